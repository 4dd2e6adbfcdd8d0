"""What the tests of the C++ front end share: libtilewright, programs linked with it, and folders of kernels."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tilewright as tw
from tests.built import why_no_compiler
from tilewright import ops
from tilewright.backends.cpu.toolchain import find_toolchain

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"
INCLUDES = (f"-I{CPP / 'include'}", f"-I{ROOT / 'src/tilewright/include'}")
KEPT = ROOT / ".pytest_cache" / "tilewright-cpp"  # what was compiled before, beside the store of kernels
FRONT_END = "#include <tilewright/kernel_set.hpp>\n#include <tilewright/reference.hpp>\n"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def why_not() -> str:
    """Why programs cannot be compiled here; empty where they can."""
    return why_no_compiler()


def compiler() -> tuple[str, ...]:
    return tuple(find_toolchain().driver)


@functools.lru_cache(maxsize=1)
def _headers() -> bytes:
    """What every program includes, as one digest."""
    folders = (CPP / "include" / "tilewright", ROOT / "src/tilewright/include/tilewright", CPP / "tests", CPP / "src")
    files = sorted(file for folder in folders for file in folder.rglob("*.h*"))
    return hashlib.sha256(b"".join(str(file.name).encode() + file.read_bytes() for file in files)).digest()


@contextmanager
def locked(goal: Path, wait: bool) -> Iterator[bool]:
    """Whether this process may make a file; without `wait` not where another process is at it."""
    with goal.with_name("lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def compiled(
    sources: Sequence[Path], words: Sequence[str], name: str, *after: str, beside: str = "", wait: bool = True
) -> Path:
    """What the compiler makes of sources, kept between sessions by everything it is made of (`beside`: what else).

    What another process is compiling is waited for; without `wait` it may not be there yet.
    """
    key = hashlib.sha256(_headers())
    for part in (*compiler(), *words, *after, name, beside):
        key.update(part.encode() + b"\0")
    for source in sources:
        key.update(source.read_bytes() + b"\0")
    goal = KEPT / key.hexdigest()[:24] / name
    if not goal.exists():
        goal.parent.mkdir(parents=True, exist_ok=True)
        with locked(goal, wait) as mine:
            if mine and not goal.exists():
                with tempfile.TemporaryDirectory(dir=goal.parent) as work:
                    call(*compiler(), *words, *map(str, sources), *after, "-o", str(Path(work) / name))
                    (Path(work) / name).replace(goal)
    return goal


def runtime(*flags: str) -> Path:
    """libtilewright, compiled once for each set of flags."""
    script = CPP / "src" / "exports.map"
    build = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", *WARNINGS, *INCLUDES, *flags, "-c")
    sources = sorted((CPP / "src").glob("*.cpp"))
    for wait in (False, True):  # first what no other process is at: two of them share the work
        objects = [compiled([source], build, f"{source.stem}.o", wait=wait) for source in sources]
    link = ("-shared", f"-Wl,--version-script={script}", *flags)
    return compiled(objects, link, "libtilewright.so", "-ldl", "-pthread", beside=script.read_text())


def program(source: Path, goal: Path, *flags: str, header: bool = True) -> Path:
    """A program of one source, linked with libtilewright; `flags` are for both, `header`: it uses the front end's."""
    library = runtime(*flags)
    link = (f"-L{library.parent}", "-ltilewright", f"-Wl,-rpath,{library.parent}", "-pthread")
    words = ("-std=c++17", "-O0", *WARNINGS, *INCLUDES, *flags)
    # With other flags a header would be compiled for one or two programs: they show what these include themselves.
    before = precompiled(words) if header and not flags else ()
    built = compiled([source], (*words, *before, "-c"), f"{source.stem}.o")
    made = compiled([built], flags, source.stem, *link)
    goal.unlink(missing_ok=True)
    goal.symlink_to(made)
    return goal


def of_sources(name: str, folder: Path, *flags: str) -> Path:
    """The test of a part of libtilewright that programs do not see, compiled with the sources it needs."""
    source, goal = CPP / "src", folder / f"test_{name}"
    parts = dict.fromkeys((name, "json", "sha256"))
    files = [CPP / "tests" / f"test_{name}.cpp", *(source / f"{part}.cpp" for part in parts)]
    words = ("-std=c++17", *flags, *WARNINGS, *INCLUDES, f"-I{source}")
    call(*compiler(), *words, *map(str, files), "-o", str(goal))
    return goal


def precompiled(words: Sequence[str]) -> tuple[str, ...]:
    """What includes the front end's headers compiled with these words, once for all programs, where that is GCC's."""
    if find_toolchain().identity.kind != "gcc":
        return ()
    header = KEPT / "front_end.hpp"
    header.parent.mkdir(parents=True, exist_ok=True)
    if not header.exists() or header.read_text() != FRONT_END:
        header.write_text(FRONT_END)
    made = compiled([header], (*words, "-x", "c++-header"), "front_end.hpp.gch")
    itself = made.with_suffix("")  # GCC looks for it with .gch behind, and takes it where that one does not fit
    if not itself.exists():
        itself.write_text(FRONT_END)
    return ("-include", str(itself))


def with_header(source: Path, goal: Path) -> Path:
    """A program of one source; where the compiler is GCC, the front end's headers are compiled once for all of them."""
    flags = ("-std=c++17", "-O1", "-pthread", *WARNINGS, *INCLUDES)  # a header is used with its own flags only
    before = precompiled(flags)
    library = runtime()
    link = (f"-L{library.parent}", "-ltilewright", f"-Wl,-rpath,{library.parent}")
    shared = sorted((*source.parent.glob("*.hpp"), *source.parent.parent.glob("*.hpp")))
    beside = hashlib.sha256(b"".join(file.read_bytes() for file in shared)).hexdigest()
    name = f"{source.parent.name}_{source.stem}"
    built = compiled([source], (*flags, *before), name, *link, beside=beside)
    goal.unlink(missing_ok=True)
    goal.symlink_to(built)
    return goal


def call(*words: str, **options: Any) -> str:
    """What a command says; one that fails is a failure of the test with what it said."""
    finished = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    assert finished.returncode == 0, f"{' '.join(words)}\n{finished.stdout[-4000:]}\n{finished.stderr[-4000:]}"
    return str(finished.stdout)


def registry_of(target: str, problems: Sequence[Any], pool: str = "") -> tw.Registry:
    """The kernels that serve problems of these signatures: the op's candidates, or what a pool has of them."""
    registry = tw.Registry(target)
    for op, signature in dict.fromkeys((ops.op(one.op), ops.op(one.op).signature_of(one)) for one in problems):
        if pool:
            registry.add_pool(op.name, pool, **op.axes_of(signature))
        else:
            registry.add(op.candidates(signature, target))
    return registry


def cmake() -> str:
    return shutil.which("cmake") or ""
