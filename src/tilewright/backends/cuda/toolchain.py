"""The CUDA compiler, found, identified and turned into command lines.

Looked at, in this order: the setting `nvcc`, the path, the usual places of a CUDA installation, NVIDIA's
wheels (the extra `cuda`).  nvcc makes the device's code; the host's half, with that code inside, is
compiled by the host's compiler: together a third of the time nvcc takes for both.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tilewright
from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends import steps
from tilewright.backends.base import CompilerIdentity, ObjectRules, Toolchain, backend
from tilewright.errors import ToolchainError

ANSWER_SECONDS = 60.0
USUAL = Path("/usr/local")  # cuda and cuda-<version> lie here
OLDEST = (12, 3)  # wgmma with every shape, cluster launches
REMEDY = "install the CUDA toolkit (12.3 or later), or `pip install tilewright[cuda]`; or set TILEWRIGHT_NVCC"

# 177: a Config says more than any one pipeline reads.
_CODE = ("-std=c++17", "-O3", "-diag-suppress=177")
_HOST = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
_HOST_LIBRARIES = ("-ldl",)

MEMORY_PER_JOB = 600 << 20


@dataclass(frozen=True)
class CudaToolchain:
    """nvcc and a host compiler behind the contract of `tilewright.backends.base.Toolchain`."""

    driver: tuple[str, ...]
    host: Toolchain
    where: str  # how nvcc was found, for people
    version: tuple[int, int]
    identity: CompilerIdentity

    @property
    def library_suffix(self) -> str:
        return ".so"

    def flags(self, arch: str) -> tuple[str, ...]:
        return (*self._code(arch), *_HOST, *_HOST_LIBRARIES)

    def _code(self, arch: str) -> tuple[str, ...]:
        facts = arch_by_name(arch)
        if facts.backend != "cuda":
            raise ToolchainError(
                f"nvcc compiles for NVIDIA GPUs, and {arch} is a target of the {facts.backend} backend",
                rule="arch-backend",
                value=arch,
                remedy="ask the toolchain of the arch's own backend",
            )
        return (*_CODE, *facts.compile_flags)

    def include_dirs(self) -> tuple[Path, ...]:
        return include_dirs()

    def _places(self) -> list[str]:
        return [f"-I{one}" for one in self.include_dirs()]

    def command(self, source: Path, output: Path, arch: str) -> list[str]:
        cubin = output.with_suffix(".cubin")
        library = [
            *self.host.driver, "-x", "c++", *_HOST, f'-DTW_CUBIN="{cubin}"', *self._places(),
            "-o", str(output), str(source), *_HOST_LIBRARIES,
        ]  # fmt: skip
        return steps.joined([self.cubin_command(source, cubin, arch), library])

    def cubin_command(self, source: Path, output: Path, arch: str, *more: str) -> list[str]:
        """Only the device's code: what is run, and all there is to inspect."""
        # nvcc has the host's preprocessor run first; it must be one it knows, not just any C++ compiler.
        beside = ["-ccbin", self.host.driver[0]] if self.host.identity.kind in ("gcc", "clang") else []
        return [
            *self.driver,
            "-cubin",
            *beside,
            *self._code(arch),
            *more,
            *self._places(),
            "-o",
            str(output),
            str(source),
        ]

    def environment(self, work: Path) -> Mapping[str, str]:
        return {**self.host.environment(work), "TMPDIR": str(work)}

    def memory_per_job(self) -> int:
        return MEMORY_PER_JOB


def include_dirs() -> tuple[Path, ...]:
    package = Path(tilewright.__file__).parent
    return (
        package / "include",
        package / "backends" / "gpu" / "include",
        package / "backends" / "cuda" / "include",
    )


def _numbers(path: Path) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", path.name)]


def _wheels() -> list[Path]:
    """nvcc of NVIDIA's wheels: all of a CUDA version lie in one folder of the package `nvidia`."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(one) for one in found.submodule_search_locations or ()] if found is not None else []
    versions = [one for folder in folders for one in sorted(folder.glob("cu[0-9]*"), key=_numbers, reverse=True)]
    return [one / "bin" / "nvcc" for one in versions]


def candidates() -> list[tuple[tuple[str, ...], str]]:
    """Every compiler that would be tried with how it was found, in order; one given by a setting is the only one."""
    given = settings.current().nvcc
    if given:
        words = tuple(shlex.split(given))
        found = shutil.which(words[0]) if words else None
        if found is None:
            raise ToolchainError(
                f"the CUDA compiler {given!r} of the setting nvcc is not on this machine",
                rule="no-nvcc",
                value=given,
                remedy=f"unset TILEWRIGHT_NVCC to search for one; else {REMEDY}",
            )
        return [((found, *words[1:]), "the setting nvcc")]
    on_path = shutil.which("nvcc")
    places = [(Path(on_path), "the path")] if on_path else []
    folders = [USUAL / "cuda", *sorted(USUAL.glob("cuda-*"), key=_numbers, reverse=True)]
    places += [(one / "bin" / "nvcc", "the usual place") for one in folders]
    places += [(one, "NVIDIA's wheels") for one in _wheels()]
    unique: dict[Path, tuple[tuple[str, ...], str]] = {}
    for path, where in places:
        if path.is_file():
            unique.setdefault(path.resolve(), ((str(path),), where))
    return list(unique.values())


def _ask(driver: tuple[str, ...]) -> str:
    try:
        answer = subprocess.run(
            [*driver, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
            env=settings.child_environment(),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _broken(driver, str(error)) from error
    if answer.returncode != 0 or "release" not in answer.stdout:
        said = (answer.stderr or answer.stdout).strip()[:200]
        raise _broken(driver, f"--version exited with {answer.returncode}: {said or 'no answer'}")
    return answer.stdout


def _broken(driver: tuple[str, ...], what: str) -> ToolchainError:
    return ToolchainError(
        f"{shlex.join(driver)} is no usable CUDA compiler: {what}",
        rule="broken-nvcc",
        value=shlex.join(driver),
        remedy=REMEDY,
    )


def identify(driver: tuple[str, ...], where: str) -> CudaToolchain:
    """Ask a compiler who it is; one too old is refused by name."""
    lines = [one.strip() for one in _ask(driver).splitlines() if one.strip()]
    release = next((re.search(r"release (\d+)\.(\d+)", one) for one in lines if "release" in one), None)
    if release is None:
        raise _broken(driver, "it does not tell its release")
    version = (int(release[1]), int(release[2]))
    if version < OLDEST:
        raise _broken(
            driver, f"it is of CUDA {version[0]}.{version[1]}, and kernels need {OLDEST[0]}.{OLDEST[1]} or later"
        )
    beside = backend("cpu").toolchain()
    digest = hashlib.sha256("\n".join([*lines, *driver[1:], beside.identity.digest]).encode()).hexdigest()
    shown = f"nvcc {lines[-1]}, {beside.identity.version}"
    return CudaToolchain(driver, beside, where, version, CompilerIdentity("nvcc", shown, digest))


@lru_cache(maxsize=32)
def _find(nvcc: str, cxx: str, path: str) -> CudaToolchain:
    del nvcc, cxx, path  # what the answer depends on, read again by candidates()
    errors: list[ToolchainError] = []
    for driver, where in candidates():
        try:
            return identify(driver, where)
        except ToolchainError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    raise ToolchainError(
        f"no CUDA compiler: nvcc is not on the path, in {USUAL}/cuda or in NVIDIA's wheels",
        rule="no-nvcc",
        value="",
        remedy=REMEDY,
    )


def find_toolchain() -> CudaToolchain:
    """The CUDA compiler, found once for each setting; none is a ToolchainError with the remedy."""
    now = settings.current()
    return _find(now.nvcc, now.cxx, settings.child_environment().get("PATH", ""))


def forget() -> None:
    """Look again the next time."""
    _find.cache_clear()


def object_rules(arch: str) -> ObjectRules:
    """For build files: nvcc alone, which makes both halves of a kernel in one object."""
    try:
        driver = find_toolchain().driver
    except ToolchainError:
        driver = ("nvcc",)
    name = Path(driver[0]).name
    driver = (name if shutil.which(name) == driver[0] else driver[0], *driver[1:])
    flags = tuple(arch_by_name(arch).compile_flags)
    return ObjectRules(
        language="CUDA",
        variable="CUDACXX",
        compiler=driver,
        compile_flags=(*_CODE, *flags, "-Xcompiler=-fPIC,-fvisibility=hidden"),
        include_dirs=include_dirs(),
        link_flags=(*flags, "-cudart=static"),
        libraries=("-ldl",),
        response_flag="--options-file ",
    )
