"""The host's C++ compiler: found, identified and turned into command lines.

The setting `cxx` comes first, then c++, g++ and clang++ on the path, then the `ziglang` wheel.  A
compiler is identified by what it says about itself, never by where or when it was installed, so
that two installations of the same build share their kernels.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import tilewright
from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends import search
from tilewright.backends.base import CompilerIdentity, ObjectRules, kernels_of, op_include_dirs
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import RequestError, ToolchainError
from tilewright.ops.base import KernelSpec

ON_PATH = ("c++", "g++", "clang++")
REMEDY = "install g++ or clang++, or `pip install ziglang`, or set TILEWRIGHT_CXX to a C++ compiler"

_COMMON_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
    "-Wall", "-Wextra", "-pthread",
)  # fmt: skip
_ONLY_LINKING = ("-shared", "-nodefaultlibs", "-nostdlib++")

# Kernels use no C++ library, so that they load fast and anywhere.  GCC learned -nostdlib++ late: it
# gets no default libraries and the C ones by name, which --as-needed drops again where unused.
_NO_CXX_LIBRARY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gcc": (("-nodefaultlibs",), ("-Wl,--as-needed", "-lm", "-lpthread", "-lc", "-lgcc")),
    "clang": (("-nostdlib++", "-Wno-unused-const-variable"), ("-lm",)),
    # Zig aims at the CPU it runs on and adds checks for undefined behaviour unless told otherwise.
    "zig": (("-nostdlib++", "-Wno-unused-const-variable", "-mcpu=baseline", "-fno-sanitize=undefined"), ("-lm",)),
}

_NO_EXCEPTIONS = ("-fno-exceptions", "-fno-rtti")

_LIBRARY_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"

# Peak resident size of a compile that is no kernel's, rounded up.
_MEMORY_PER_JOB = {"gcc": 120 << 20, "clang": 200 << 20, "zig": 300 << 20}


@dataclass(frozen=True)
class CpuToolchain:
    """One host compiler behind the contract of `tilewright.backends.base.Toolchain`."""

    driver: tuple[str, ...]  # the words before the flags
    kind: str  # gcc, clang or zig
    machine: str  # CPU part of the target triple
    identity: CompilerIdentity
    cxx_library: bool = False  # of code that uses the C++ library and exceptions

    def with_cxx_library(self) -> CpuToolchain:
        """The same for code that uses the C++ library, which must be the one that the libraries around it use."""
        if self.kind == "zig":
            raise ToolchainError(
                "Zig brings a C++ library of its own, whose exceptions the libraries of this process do not catch",
                rule="cxx-library",
                value=self.driver[0],
                remedy="install g++ or clang++, or name one by TILEWRIGHT_CXX",
            )
        return replace(self, cxx_library=True)

    @property
    def library_suffix(self) -> str:
        return _LIBRARY_SUFFIX

    def flags(self, arch: str) -> tuple[str, ...]:
        facts = arch_by_name(arch)
        if facts.backend != "cpu":
            raise ToolchainError(
                f"{self.identity.version} compiles host kernels, and {arch} is a target of the {facts.backend} backend",
                rule="arch-backend",
                value=arch,
                remedy="use the toolchain of the arch's own backend",
            )
        if facts.machines and self.machine not in facts.machines:
            raise ToolchainError(
                f"{arch} is code for {facts.machines[0]}, but {self.driver[0]} compiles for {self.machine}",
                rule="arch-machine",
                value=arch,
                remedy="use the target `generic`, or set TILEWRIGHT_CXX to a compiler for that machine",
            )
        before, after = self._around()
        common = [flag for flag in _COMMON_FLAGS if not (self.cxx_library and flag in _NO_EXCEPTIONS)]
        return (*common, *before, *facts.compile_flags, *_user_flags(settings.current().cxxflags), *after)

    def _around(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The flags that keep the C++ library out, and the libraries that are named instead."""
        return ((), ()) if self.cxx_library else _NO_CXX_LIBRARY[self.kind]

    def include_dirs(self, op: str = "") -> tuple[Path, ...]:
        return include_dirs((op,))

    def command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        _, libraries = self._around()
        flags = self.flags(arch)
        flags = flags[: len(flags) - len(libraries)]
        places = [f"-I{folder}" for folder in self.include_dirs(op)]
        # Libraries follow the source that needs them: linkers read from left to right.
        return [*self.driver, *flags, *places, "-o", str(output), str(source), *libraries]

    def environment(self, work: Path) -> Mapping[str, str]:
        # A killed compiler leaves its temporary files in the private folder, where they are swept.
        variables = {"TMPDIR": str(work)}
        if self.kind == "zig":
            # The global cache holds the C library's stubs, built once; the local one is of no use to us.
            variables["ZIG_GLOBAL_CACHE_DIR"] = str(settings.current().cache_dir.absolute() / "zig")
            variables["ZIG_LOCAL_CACHE_DIR"] = str(work / "zig")
        return variables

    def memory_per_job(self, spec: KernelSpec | None = None) -> int:
        return _MEMORY_PER_JOB[self.kind] if spec is None else kernels_of("cpu", spec).compile_memory(spec, self.kind)


def include_dirs(ops: Sequence[str] = ()) -> tuple[Path, ...]:
    """Our own headers, and those that ops bring."""
    return (*_OURS, *op_include_dirs("cpu", ops))


_PACKAGE = Path(tilewright.__file__).parent
_OURS = (_PACKAGE / "include", _PACKAGE / "backends" / "cpu" / "include")


def _user_flags(text: str) -> list[str]:
    if not text:
        return []
    import shlex  # most give none

    try:
        return shlex.split(text)
    except ValueError as error:
        raise RequestError(
            f"the setting cxxflags {text!r} cannot be split into words: {error}",
            rule="setting-value",
            value=text,
            remedy="close the quotes",
        ) from None


def _wheel_driver() -> tuple[str, ...] | None:
    """The compiler of the `ziglang` wheel; its binary is called directly, which saves a Python start."""
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.origin:
        return None
    binary = Path(package.origin).parent / ("zig.exe" if sys.platform == "win32" else "zig")
    return (str(binary), "c++") if binary.exists() else (sys.executable, "-m", "ziglang", "c++")


def candidates(cxx: str = "") -> list[tuple[str, ...]]:
    """Every compiler that would be tried, in order; a given `cxx` is the only one."""
    if cxx:
        return [search.given_words(cxx, "cxx", "the C++ compiler", rule="no-compiler", remedy=REMEDY)]
    drivers = [(path,) for path in map(search.which, ON_PATH) if path]
    wheel = _wheel_driver()
    return [*drivers, wheel] if wheel else list(drivers)


def _query(driver: tuple[str, ...], *words: str) -> str:
    return search.query(driver, *words, broken=lambda what: _broken(driver, what))


def _text_or_raise(answer: str | ToolchainError) -> str:
    if isinstance(answer, ToolchainError):
        raise answer
    return answer


def _broken(driver: tuple[str, ...], what: str) -> ToolchainError:
    import shlex

    return ToolchainError(
        f"{shlex.join(driver)} is no usable C++ compiler: {what}",
        rule="broken-compiler",
        value=shlex.join(driver),
        remedy=REMEDY,
    )


def _is_zig(driver: tuple[str, ...]) -> bool:
    return Path(driver[0]).stem == "zig" or "ziglang" in driver


def identify(driver: tuple[str, ...]) -> CpuToolchain:
    """Ask a compiler who it is; anything that does not answer like a compiler is an error."""
    zig = _is_zig(driver)
    questions = [("--version",), ("-dumpmachine",), *([] if zig else [("-dumpfullversion",)])]
    answers = search.query_together(driver, questions, broken=lambda what: _broken(driver, what))
    answer, triple = (_text_or_raise(each) for each in answers[:2])
    # Clang names its folder in --version; a place is not part of an identity.
    lines = [
        splitline.strip()
        for splitline in answer.splitlines()
        if splitline.strip() and not splitline.startswith("InstalledDir:")
    ]
    triple = triple.strip()
    if not lines or not triple:
        raise _broken(driver, "it does not print its version and target")
    if zig:
        kind = "zig"
        version = _query(tuple(word for word in driver if word != "c++"), "version").strip()
        # Zig's clang names the running kernel in its target; the C library is the part that counts.
        parts = ["zig", version, lines[0], triple]
        shown = f"zig {version} ({lines[0]})"
    else:
        kind = "clang" if "clang" in answer else "gcc"
        full = _text_or_raise(answers[2]).strip() if kind == "gcc" else ""  # others do not know the word
        # The first word of the first line is the name it was called by: c++ and g++ are one compiler.
        first = lines[0].split(maxsplit=1)[-1] if kind == "gcc" else lines[0]
        parts = [kind, first, *lines[1:], full, triple]
        shown = f"{kind} {first}" if kind == "gcc" else first
    # Words a person put after the compiler's name (-m32, --target=...) change the code like flags do.
    parts += [word for word in driver[1:] if word not in ("-m", "ziglang", "c++")]
    digest = sha256("\n".join(parts).encode()).hexdigest()
    return CpuToolchain(driver, kind, triple.split("-")[0], CompilerIdentity(kind, shown, digest))


def _none() -> ToolchainError:
    return ToolchainError(
        f"no C++ compiler: {', '.join(ON_PATH)} are not on the path and the ziglang wheel is not installed",
        rule="no-compiler",
        value="",
        remedy=REMEDY,
    )


@lru_cache(maxsize=32)
def _find(cxx: str, path: str) -> CpuToolchain:
    del path  # what the answer depends on, read again by candidates()
    return search.first_usable(candidates(cxx), identify, _none)


def find_toolchain() -> CpuToolchain:
    """The compiler for host kernels, found once for each setting; none is a ToolchainError with the remedy."""
    return _find(settings.current().cxx, settings.child_path())


def object_rules(arch: str, ops: Sequence[str] = ()) -> ObjectRules:
    """For build files: the compiler found here, or the system's usual one where there is none yet."""
    try:
        tools = find_toolchain()
        driver, kind = tools.driver, tools.kind
    except ToolchainError:
        driver, kind = (ON_PATH[0],), "gcc"
    before, after = _NO_CXX_LIBRARY[kind]
    words = (*_COMMON_FLAGS, *before, *arch_by_name(arch).compile_flags, *_user_flags(settings.current().cxxflags))
    return ObjectRules(
        language="CXX",
        variable="CXX",
        compiler=search.portable(driver),
        # One library may hold kernels of several archs, and a linker keeps one of two functions with one
        # name: AVX-512 code in a kernel for AVX2.  So that they never meet, each arch has its own namespace.
        compile_flags=(*(word for word in words if word not in _ONLY_LINKING), f"-Dtw=tw_{arch}"),
        include_dirs=include_dirs(ops),
        link_flags=("-pthread", *(word for word in before if word in _ONLY_LINKING)),
        libraries=after,
        library_suffix=_LIBRARY_SUFFIX,
    )
