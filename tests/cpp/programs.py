"""What the tests of the C++ front end share: libtilewright, programs linked with it, and folders of kernels."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tilewright as tw
from tests.built import why_no_compiler
from tilewright import ops
from tilewright.backends.cpu.toolchain import find_toolchain

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"
INCLUDES = (f"-I{CPP / 'include'}", f"-I{ROOT / 'src/tilewright/include'}")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def why_not() -> str:
    """Why programs cannot be compiled here; empty where they can."""
    return why_no_compiler()


def compiler() -> tuple[str, ...]:
    return tuple(find_toolchain().driver)


@functools.lru_cache(maxsize=4)
def runtime(*flags: str) -> Path:
    """libtilewright, compiled once a session (and once more for each set of flags)."""
    folder = Path(tempfile.mkdtemp(prefix="libtilewright"))
    goal = folder / "libtilewright.so"
    sources = sorted(str(one) for one in (CPP / "src").glob("*.cpp"))
    script = f"-Wl,--version-script={CPP / 'src' / 'exports.map'}"
    build = ("-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", script)
    call(*compiler(), *build, *WARNINGS, *INCLUDES, *flags, *sources, "-o", str(goal), "-ldl", "-pthread")
    return goal


def program(source: Path, goal: Path, *flags: str) -> Path:
    """A program of one source, linked with libtilewright."""
    library = runtime(*flags)
    link = (f"-L{library.parent}", "-ltilewright", f"-Wl,-rpath,{library.parent}", "-pthread")
    call(*compiler(), "-std=c++17", "-O0", *WARNINGS, *INCLUDES, *flags, str(source), *link, "-o", str(goal))
    return goal


def call(*words: str, **options: Any) -> str:
    """What a command says; one that fails is a failure of the test with what it said."""
    finished = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert finished.returncode == 0, f"{' '.join(words)}\n{finished.stdout[-4000:]}\n{finished.stderr[-4000:]}"
    return str(finished.stdout)


def registry_of(target: str, problems: Sequence[Any], pool: str = "") -> tw.Registry:
    """The kernels that serve problems of these signatures: the op's candidates, or what a pool has of them."""
    registry = tw.Registry(target)
    for problem in problems:
        op = ops.op(problem.op)
        if pool:
            registry.add_pool(op.name, pool, **op.axes_of(op.signature_of(problem)))
        else:
            registry.add(op.candidates(op.signature_of(problem), target))
    return registry


def cmake() -> str:
    return shutil.which("cmake") or ""
