"""Where CUDA is: folders of installations and of NVIDIA's wheels, and what is in them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from tilewright.backends.search import numbers, which

USUAL = Path("/usr/local")  # cuda and cuda-<version> are here
SYSTEM_LIBRARIES = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"))
_LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib")


def _package(name: str) -> list[Path]:
    """The folders of an installed package, which is not imported."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    return [Path(location) for location in spec.submodule_search_locations or ()] if spec is not None else []


def _wheels() -> list[Path]:
    """Wheels from CUDA 13 on share one folder of the package `nvidia`; older ones have a folder each."""
    folders = _package("nvidia")
    shared = [toolkit for folder in folders for toolkit in sorted(folder.glob("cu[0-9]*"), key=numbers, reverse=True)]
    return shared + [folder / name for folder in folders for name in ("cuda_nvcc", "cuda_nvrtc")]


def roots() -> Iterator[tuple[Path, str]]:
    """Folders that may hold bin/nvcc and lib/libnvrtc, with how they were found, in order."""
    on_path = which("nvcc")
    if on_path:
        yield Path(on_path).parent.parent, "the path"
    for toolkit in (USUAL / "cuda", *sorted(USUAL.glob("cuda-*"), key=numbers, reverse=True)):
        yield toolkit, "the usual folder"
    for wheel in _wheels():
        yield wheel, "NVIDIA's wheels"


def compilers() -> list[tuple[Path, str]]:
    """Every nvcc, each once."""
    on_path = which("nvcc")
    paths = [(Path(on_path), "the path")] if on_path else []
    paths += [(root / "bin" / "nvcc", where) for root, where in roots()]
    unique: dict[Path, tuple[Path, str]] = {}
    for path, where in paths:
        if path.is_file():
            unique.setdefault(path.resolve(), (path, where))
    return list(unique.values())


def nvrtc_libraries() -> list[tuple[Path, str]]:
    """Every NVRTC, each once, the newest of a folder first."""
    unique: dict[Path, tuple[Path, str]] = {}
    folders = [(root / name, where) for root, where in roots() for name in _LIBRARY_FOLDERS]
    folders += [(library, "the usual folder") for library in SYSTEM_LIBRARIES]
    for folder, where in folders:
        for path in sorted(folder.glob("libnvrtc.so.[0-9]*"), key=numbers, reverse=True):
            unique.setdefault(path.resolve(), (path, where))
    return list(unique.values())


def tool(name: str) -> Path | None:
    """A program of CUDA's such as nvdisasm: on the path, beside a compiler, in the wheels (Triton's has some too)."""
    on_path = which(name)
    if on_path:
        return Path(on_path)
    folders = [root / "bin" for root, _ in roots()]
    folders += [package / "backends" / "nvidia" / "bin" for package in _package("triton")]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
