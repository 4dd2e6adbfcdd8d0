"""The CUDA compilers, found, identified and turned into command lines.

nvcc or NVRTC makes the device's code; the host's half, with that code inside, is compiled by the host's
compiler: together a third of the time nvcc takes for both.  Looked for, in this order: the settings `nvcc`
and `nvrtc`, the path, the usual places of a CUDA installation, NVIDIA's wheels (the extra `cuda`, or those
PyTorch brings).  The setting `cuda_compiler` picks one kind; else nvcc comes first: NVRTC is faster, but it
makes other code of the same source, and what is known of our kernels' speed was measured with nvcc.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import tilewright
from tilewright import settings
from tilewright.arch import arch as arch_by_name
from tilewright.backends import search, steps
from tilewright.backends.base import CompilerIdentity, ObjectRules, Toolchain, backend, kernels_of, op_include_dirs
from tilewright.backends.cuda import nvrtc, places
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec

OLDEST = (12, 3)  # wgmma with every shape, cluster launches
REMEDY = (
    "install the CUDA toolkit (12.3 or later), or `pip install tilewright[cuda]`; "
    "or set TILEWRIGHT_NVCC or TILEWRIGHT_NVRTC"
)

# 177: a Config says more than any one pipeline reads.
_CODE = ("-std=c++17", "-O3", "-diag-suppress=177")
# nvcc has INFINITY from the C library, which NVRTC lacks; nor does that know a host, whose functions some headers have.
_NVRTC_CODE = ("-std=c++17", "-default-device", "-diag-suppress=177", "-DINFINITY=__int_as_float(0x7f800000)")
_HOST = (
    "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
    "-Wall", "-Wextra", "-Wno-unused-const-variable",  # what only the device's half reads
)  # fmt: skip
_HOST_LIBRARIES = ("-ldl",)
_NVCC_KNOWS = ("gcc", "clang")  # host compilers; it runs their preprocessor first

# Peak resident size of a compile that is no kernel's.
MEMORY_PER_JOB = 300 << 20


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compiler that would be tried: nvcc by its words, NVRTC by its library, and how it was found."""

    kind: str
    driver: tuple[str, ...]
    where: str

    @property
    def shown(self) -> str:
        import shlex  # for people

        return shlex.join(self.driver)


@dataclass(frozen=True)
class CudaToolchain:
    """nvcc or NVRTC and a host compiler behind the contract of `tilewright.backends.base.Toolchain`."""

    driver: tuple[str, ...]  # nvcc, or the program that drives NVRTC
    host: Toolchain
    where: str  # how it was found, for people
    version: tuple[int, int]
    identity: CompilerIdentity  # its kind is that of the candidate

    @property
    def library_suffix(self) -> str:
        return ".so"

    def flags(self, arch: str) -> tuple[str, ...]:
        return (*self._code(arch), *_HOST, *_HOST_LIBRARIES)

    def _code(self, arch: str) -> tuple[str, ...]:
        facts = arch_by_name(arch)
        if facts.backend != "cuda":
            raise ToolchainError(
                f"{self.identity.kind} compiles for NVIDIA GPUs, and {arch} is a target of the {facts.backend} backend",
                rule="arch-backend",
                value=arch,
                remedy="use the toolchain of the arch's own backend",
            )
        if self.identity.kind == "nvrtc":
            return (*_NVRTC_CODE, f"--gpu-architecture={_codes(facts.compile_flags)[0]}")
        return (*_CODE, f"-DTW_CUDA_RUNTIME=0x{_runtime_digest()}", *facts.compile_flags)

    def include_dirs(self, op: str = "") -> tuple[Path, ...]:
        ours = include_dirs((op,))
        return (*ours, _STAND_INS if self.identity.kind == "nvrtc" else _RUNTIME)

    def command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        cubin, assembly = output.with_suffix(".cubin"), output.with_suffix(".s")
        device = self.cubin_command(source, cubin, arch, op=op)
        if (own := f"-I{_RUNTIME}") in device:
            device = [*device, steps.ELSE, *(word for word in device if word != own)]  # with NVIDIA's runtime header
        host = self.host_command(source, cubin, assembly, op)
        link = [*self.host.driver, "-shared", "-o", str(output), str(assembly), *_HOST_LIBRARIES]
        # gcc needs the device code only when it assembles: a quarter of a first call's wait.  Clang needs it before.
        halves = [[device, host]] if self.host.identity.kind == "gcc" else [[device], [host]]
        return steps.joined([*halves, [link]])

    def host_command(self, source: Path, cubin: Path, assembly: Path, op: str = "") -> list[str]:
        """The library around the device's code, as assembly that names the file of that code."""
        return [
            *self.host.driver, "-x", "c++", "-S", *(flag for flag in _HOST if flag != "-shared"),
            f'-DTW_CUBIN="{cubin}"', *_included(include_dirs((op,))), "-o", str(assembly), str(source),
        ]  # fmt: skip

    def cubin_command(self, source: Path, output: Path, arch: str, *more: str, op: str = "") -> list[str]:
        """Only the device's code: what is run, and all there is to inspect.

        Of an arch whose flags ask for PTX too (`code=[sm_80,compute_80]`) both, as nvcc packs them: the driver of a
        newer GPU compiles the PTX.  Inspection reads the machine code in there, so nothing is compressed.  NVRTC gives
        no PTX.
        """
        flags = [*self._code(arch), *more, *_included(self.include_dirs(op))]
        if self.identity.kind == "nvrtc":
            return [*self.driver, str(source), str(output), *flags]
        # nvcc has the host's preprocessor run first; it must be one it knows, not just any C++ compiler.
        beside = ["-ccbin", self.host.driver[0]] if self.host.identity.kind in _NVCC_KNOWS else []
        kind = ["-cubin"] if len(_codes(arch_by_name(arch).compile_flags)) == 1 else ["-fatbin", "-no-compress"]
        return [*self.driver, *kind, *beside, *flags, "-o", str(output), str(source)]

    def environment(self, work: Path) -> Mapping[str, str]:
        return {**self.host.environment(work), "TMPDIR": str(work)}

    def memory_per_job(self, spec: KernelSpec | None = None) -> int:
        return MEMORY_PER_JOB if spec is None else kernels_of("cuda", spec).compile_memory(spec, self.identity.kind)


def include_dirs(ops: Sequence[str] = ()) -> tuple[Path, ...]:
    """Our own headers, and those that ops bring."""
    return (*_OURS, *op_include_dirs("cuda", ops))


_PACKAGE = Path(tilewright.__file__).parent
_OURS = (
    _PACKAGE / "include",
    _PACKAGE / "backends" / "gpu" / "include",
    _PACKAGE / "backends" / "cuda" / "include",
)


_STAND_INS = Path(__file__).parent / "nvrtc_include"
_RUNTIME = Path(__file__).parent / "nvcc_include"  # before NVIDIA's folders: nvcc includes `cuda_runtime.h` by itself


@lru_cache(maxsize=1)
def _runtime_digest() -> str:
    """A part of every key: no source names the header that nvcc includes first."""
    return sha256((_RUNTIME / "cuda_runtime.h").read_bytes()).hexdigest()[:8]


def _codes(flags: Sequence[str]) -> list[str]:
    """What an arch's flags have nvcc make: machine code (sm_80) and PTX (compute_80)."""
    named = re.search(r",code=\[?([\w,]+)", " ".join(flags))
    return named[1].split(",") if named else []


def _included(folders: tuple[Path, ...]) -> list[str]:
    return [f"-I{folder}" for folder in folders]


def _nvccs() -> list[Candidate]:
    setting = settings.current().nvcc
    if setting:
        words = search.given_words(setting, "nvcc", "the CUDA compiler", rule="no-nvcc", remedy=REMEDY)
        return [Candidate("nvcc", words, "the setting nvcc")]
    return [Candidate("nvcc", (str(path),), where) for path, where in places.compilers()]


def _nvrtcs() -> list[Candidate]:
    setting = settings.current().nvrtc
    if setting:
        if not Path(setting).expanduser().is_file():
            raise ToolchainError(
                f"the library {setting!r} of the setting nvrtc is not on this machine",
                rule="no-nvrtc",
                value=setting,
                remedy=f"unset TILEWRIGHT_NVRTC to search for one; else {REMEDY}",
            )
        return [Candidate("nvrtc", (str(Path(setting).expanduser()),), "the setting nvrtc")]
    return [Candidate("nvrtc", (str(path),), where) for path, where in places.nvrtc_libraries()]


def candidates() -> list[Candidate]:
    """Every compiler that would be tried, in order; one given by a setting is the only one."""
    now = settings.current()
    if now.cuda_compiler == "nvcc" or (now.nvcc and now.cuda_compiler == "auto"):
        return _nvccs()
    if now.cuda_compiler == "nvrtc" or now.nvrtc:
        return _nvrtcs()
    return [*_nvccs(), *_nvrtcs()]


def _broken(candidate: Candidate, what: str) -> ToolchainError:
    name = "CUDA compiler" if candidate.kind == "nvcc" else "NVRTC"
    return ToolchainError(
        f"{candidate.shown} is no usable {name}: {what}",
        rule=f"broken-{candidate.kind}",
        value=candidate.shown,
        remedy=REMEDY,
    )


def _has_host_compiler(nvcc: Candidate) -> bool:
    """Whether nvcc by itself finds one: given with it, or under the name it looks for."""
    path = settings.child_path()
    return "-ccbin" in nvcc.driver or search.which("gcc", path=path) is not None


def identify(candidate: Candidate) -> CudaToolchain:
    """Ask a compiler who it is; one too old is refused by name."""
    # The program is ours and needs no name in the identity; the words behind nvcc change its code.
    driver = (
        candidate.driver
        if candidate.kind == "nvcc"
        else (sys.executable, "-I", "-S", nvrtc.__file__, *candidate.driver)
    )
    words = ("--version",) if candidate.kind == "nvcc" else ()
    answer = search.query(driver, *words, broken=lambda what: _broken(candidate, what), expect="release")
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    release = re.search(r"release (\d+)\.(\d+)", answer)
    if release is None:
        raise _broken(candidate, "it does not print its release")
    version = (int(release[1]), int(release[2]))
    if version < OLDEST:
        raise _broken(
            candidate, f"it is of CUDA {version[0]}.{version[1]}, and kernels need {OLDEST[0]}.{OLDEST[1]} or later"
        )
    beside = backend("cpu").toolchain()
    if candidate.kind == "nvcc" and beside.identity.kind not in _NVCC_KNOWS and not _has_host_compiler(candidate):
        raise _broken(candidate, f"it asks gcc or clang++ about the host, and here is only {beside.identity.version}")
    parts = [*lines, *(candidate.driver[1:] if candidate.kind == "nvcc" else ("nvrtc",)), beside.identity.digest]
    digest = sha256("\n".join(parts).encode()).hexdigest()
    shown = f"{candidate.kind} {lines[-1]}, {beside.identity.version}"
    return CudaToolchain(driver, beside, candidate.where, version, CompilerIdentity(candidate.kind, shown, digest))


def _none() -> ToolchainError:
    kind = settings.current().cuda_compiler
    what = "nvcc and NVRTC are" if kind == "auto" else f"{'NVRTC' if kind == 'nvrtc' else kind} is"
    return ToolchainError(
        f"no CUDA compiler: {what} not on the path, in {places.USUAL}/cuda or in NVIDIA's wheels",
        rule="no-nvrtc" if kind == "nvrtc" else "no-nvcc",
        value="",
        remedy=REMEDY,
    )


@lru_cache(maxsize=32)
def _find(kind: str, nvcc: str, nvrtc_library: str, cxx: str, path: str) -> CudaToolchain:
    del kind, nvcc, nvrtc_library, cxx, path  # what the answer depends on, read again by candidates()
    return search.first_usable(candidates(), identify, _none)


def find_toolchain() -> CudaToolchain:
    """The CUDA compiler, found once for each setting; none is a ToolchainError with the remedy."""
    now = settings.current()
    path = settings.child_path()
    return _find(now.cuda_compiler, now.nvcc, now.nvrtc, now.cxx, path)


def forget() -> None:
    """Look again the next time."""
    _find.cache_clear()


def object_rules(arch: str, ops: Sequence[str] = ()) -> ObjectRules:
    """For build files: nvcc alone, which makes both halves of a kernel in one object."""
    try:
        with settings.override(cuda_compiler="nvcc"):
            driver = find_toolchain().driver
    except ToolchainError:
        driver = ("nvcc",)
    flags = tuple(arch_by_name(arch).compile_flags)
    return ObjectRules(
        language="CUDA",
        variable="CUDACXX",
        compiler=search.portable(driver),
        compile_flags=(*_CODE, *flags, "-Xcompiler=-fPIC,-fvisibility=hidden"),
        include_dirs=include_dirs(ops),
        link_flags=(*flags, "-cudart=static"),
        libraries=("-ldl",),
        response_flag="--options-file ",
    )
