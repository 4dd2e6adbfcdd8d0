"""Programs in C++ of `cpp`, linked with PyTorch's libraries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import torch


def compiled(name: str, place: Path) -> Path:
    """A program of `cpp`, in a folder."""
    from torch.utils import cpp_extension

    program, libraries = place / name, Path(torch.__file__).parent / "lib"
    source = Path(__file__).parent / "cpp" / f"{name}.cpp"
    flags = ["-std=c++20" if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12) else "-std=c++17", "-O1"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    links = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-Wl,--no-as-needed"]
    links += ["-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    if (libraries / "libtorch_cuda.so").exists():
        links += ["-ltorch_cuda", "-lc10_cuda"]
        if cpp_extension.CUDA_HOME:
            flags += ["-DWITH_CUDA"]
            includes += [f"-I{cpp_extension.CUDA_HOME}/include"]
    command = [os.environ.get("CXX", "c++"), *flags, *includes, str(source), "-o", str(program), *links]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not built.returncode, built.stderr[-2000:]
    return program


def run(*command: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
