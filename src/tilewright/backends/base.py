"""What a backend is: it renders specs, compiles sources, loads and runs kernels, and estimates time.

A backend is a package found by the entry point group `tilewright.backends`.  What it knows of an op is in one module
of that op, found by the group `tilewright.kernels.<backend>`: a backend itself knows none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tilewright import events, plugins, settings
from tilewright.arch import Arch, all_archs, best_host_arch
from tilewright.arch import arch as arch_by_name
from tilewright.dataclass import dataclass
from tilewright.errors import DeviceError, PluginError, UnknownNameError, nearest, shown
from tilewright.ops.base import KernelSpec
from tilewright.ops.families import FamilyRules, families
from tilewright.ops.spaces import kernels_group

if TYPE_CHECKING:
    from tilewright.inspect.report import Inspection


@dataclass(frozen=True, slots=True)
class Source:
    """Rendered text and its file name.  Rendering is pure: same spec, same bytes."""

    file_name: str
    text: str
    language: str  # "c++", "cuda", "hip"
    headers: str = ""  # version of others' headers it is written for, where it includes any that come in versions
    cxx_library: bool = False  # host code that needs the C++ library and exceptions, which kernels do without


@dataclass(frozen=True, slots=True)
class CompilerIdentity:
    """What makes two compilers produce different code: kind, version line, digest of its build."""

    kind: str
    version: str
    digest: str


class Toolchain(Protocol):
    """Turns one source into one shared library, through command lines a build file can hold."""

    @property
    def driver(self) -> tuple[str, ...]:
        """The compiler's own words, before any flag."""

    @property
    def identity(self) -> CompilerIdentity: ...

    @property
    def library_suffix(self) -> str: ...

    def flags(self, arch: str) -> tuple[str, ...]:
        """Every flag that can change the code, none that names a place."""

    def include_dirs(self, op: str = "") -> tuple[Path, ...]:
        """Where headers are that a kernel of the op (or a source of none) may include.

        Their contents are part of the key, the places are not.
        """

    def command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        """One command that compiles and links `source`, a kernel of `op`, into the shared library `output`."""

    def environment(self, work: Path) -> Mapping[str, str]:
        """Variables the compiler needs beyond the usual ones; `work` is a private folder for the run."""

    def memory_per_job(self, spec: KernelSpec | None = None) -> int:
        """Bytes the compile of a kernel (or of a source of no op) needs at its peak, for the parallelism limit."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Something several compiles share: a command writes `part`, which becomes `output` when it is whole."""

    command: tuple[str, ...]
    part: Path
    output: Path


@runtime_checkable
class Preparing(Protocol):
    """A toolchain whose compiles become cheaper by something made once, and right without it."""

    def preparation(self, arch: str, op: str, kernels: int) -> Preparation | None:
        """What to make before that many kernels of an op are compiled; None where it is there, or would not pay."""


@runtime_checkable
class Rendering(Protocol):
    """A toolchain whose headers come in versions: a kernel's source follows those it has."""

    def source(self, spec: KernelSpec) -> Source:
        """The source to compile here; a kernel these headers do not have is an error."""


@runtime_checkable
class WithCxxLibrary(Protocol):
    """A toolchain that can also compile what uses the C++ library and exceptions (`Source.cxx_library`)."""

    def with_cxx_library(self) -> Toolchain: ...


@dataclass(frozen=True, slots=True)
class ObjectRules:
    """How a person's own build compiles kernels of one arch to objects and links them into one library.

    Build files are made from these words, on machines that may lack the compiler: nothing here asks
    for it, and no word but the include folders names a place of this installation.
    """

    language: str  # as CMake calls it: CXX or CUDA
    variable: str  # what people name the compiler with: CXX, HIPCXX, CUDACXX
    compiler: tuple[str, ...]
    compile_flags: tuple[str, ...]  # of an object, without -c, -o, dependency and include flags
    include_dirs: tuple[Path, ...]
    link_flags: tuple[str, ...] = ()  # before the objects, without -shared
    libraries: tuple[str, ...] = ()  # after the objects
    response_flag: str = "@"  # stands right before the name of a file that holds the objects' names
    library_suffix: str = ".so"
    headers: str = ""  # version of others' headers that these words lead to, where known
    note: str = ""  # what a person should know of the compiler before building
    compress_flags: tuple[str, ...] = ()  # of an object whose device code is compressed, where the compiler can

    def compressed(self) -> ObjectRules:
        from dataclasses import replace  # only build files need it

        return replace(self, compile_flags=(*self.compile_flags, *self.compress_flags))


@dataclass(frozen=True, slots=True)
class Promises:
    """What the code of a kernel must hold, and what each launch asks for."""

    multiply: tuple[str, ...] = ()  # beginnings of mnemonics, one of which must be there; none: nothing is promised
    copies: tuple[str, ...] = ()  # beginnings of mnemonics of copies (GPUs), all of which must be there
    dynamic_shared_bytes: int = 0  # shared memory of a block beyond what the code itself declares


class OpKernels(Protocol):
    """All that one backend knows of one op, which may live in another package than either."""

    template: tuple[str, str]  # of an instance file: its package, and its path there

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        """What the template is filled with beside `name`, `manifest`, `space`, `s` (signature), `h` (schedule)."""

    def include_dirs(self) -> tuple[Path, ...]:
        """Folders of headers that kernels of the op include, beyond those of the backend."""

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        """Predicted seconds, for choosing among kernels that were never measured."""

    def promises(self, spec: KernelSpec) -> Promises: ...

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        """Bytes one compile needs at its peak, with a compiler of this kind (`CompilerIdentity.kind`)."""


class KernelFamily(FamilyRules, OpKernels, Protocol):
    """One kind of kernel of an op on a backend, whole: found by `ops.families`, in any package."""


class KernelsDefaults:
    """The plain answers of an op's kernels: the template needs no more words, nothing is promised."""

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        return {}

    def include_dirs(self) -> tuple[Path, ...]:
        return ()

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises()

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        """More than a small kernel takes with any compiler we know."""
        return 300 << 20


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """How others name the devices a backend's kernels run on."""

    runtime: str  # the module that opens them: device(index), all_devices(), current_index()
    dlpack: int  # DLPack's device type
    dlpack_more: tuple[int, ...] = ()  # of other memory such a device owns
    dlpack_pinned: tuple[int, ...] = ()  # of host memory that every such device reads too
    torch: str = ""  # PyTorch's word for the device


class Backend(Protocol):
    name: str
    usual_arch: str  # what its name means where kernels are made that nothing here runs
    language: str  # of its sources: "c++", "cuda", "hip"
    wrapper_suffix: str  # what a source that only includes a kernel is called, so that build systems know its language
    device: DeviceKind

    def kernels(self, op: str) -> OpKernels:
        """What this backend knows of an op; an op it has no kernels for is an error."""

    def render(self, spec: KernelSpec) -> Source: ...

    def toolchain(self) -> Toolchain:
        """The compiler, found once; a missing one is a ToolchainError that says what to install."""

    def object_rules(self, arch: str, ops: Sequence[str] = ()) -> ObjectRules:
        """For build files: how kernels of an arch and these ops become objects and a library, compiler or not."""

    def available_archs(self) -> Sequence[str]:
        """Archs whose kernels run on this machine, best first."""

    def why_unavailable(self) -> str:
        """Empty when kernels of this backend run here, else the reason."""

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        """Predicted seconds, for choosing among kernels that were never measured."""

    def recognises(self, data: bytes) -> bool:
        """True where a file holds code of this backend: a library or a code object."""

    def inspect(self, path: Path, spec: KernelSpec | None = None) -> Inspection:
        """What is inside a built library or code object, with what the spec promises of it."""

    def listing(self, path: Path) -> str:
        """The machine code in a library or code object as text; NoDisassembly where there is nobody to ask."""

    def promises(self, spec: KernelSpec) -> Promises:
        """What the kernel's code must hold."""

    def holds(self, path: Path, beginnings: tuple[str, ...]) -> bool:
        """Whether a built library holds one of them; NoDisassembly where there is nobody to ask."""

    def host_library_source(self) -> Source | None:
        """Source of the support library the runtime needs (the host's thread team), if any."""


GROUP = "tilewright.backends"


def backend_names() -> list[str]:
    """Every backend that is installed, none of them loaded."""
    return plugins.names(GROUP)


@lru_cache(maxsize=32)
def backend(name: str) -> Backend:
    """One backend, loaded on first use."""
    loaded: Backend = plugins.load(GROUP, name, "a backend")()
    return loaded


def all_backends() -> dict[str, Backend]:
    """Every backend that can be loaded; one that cannot is reported as an event."""
    loaded = {}
    for name in backend_names():
        try:
            loaded[name] = backend(name)
        except PluginError as error:
            events.emit(events.Warned("plugin", error.message))
    return loaded


@lru_cache(maxsize=256)
def op_kernels(name: str, op: str) -> OpKernels:
    """What a backend knows of an op; an op without kernels for it is an error."""
    known = plugins.names(kernels_group(name))
    if op not in known:
        raise UnknownNameError(
            f"the {name} backend has no kernels for op {op!r}", rule="op-kernels", value=op, remedy=nearest(op, known)
        )
    kernels: OpKernels = plugins.load(kernels_group(name), op, f"a {name} kernel", OpKernels)
    return kernels


def kernels_of(name: str, spec: KernelSpec) -> OpKernels:
    """What a backend knows of a kernel: its op's own, or the family from elsewhere that its schedule belongs to."""
    known = op_kernels(name, spec.op)
    family_of = getattr(known, "family_of", None)
    if family_of is not None:
        mine: OpKernels = family_of(spec.schedule)
        return mine
    for family in families(name, spec.op):
        if type(spec.schedule) in family.schedules:
            joined: OpKernels = family
            return joined
    return known


def source_dirs(arch: str, ops: Sequence[str]) -> tuple[Path, ...]:
    """Folders of the headers that sources for an arch include; a backend that knows them needs no compiler."""
    owner = backend(arch_by_name(arch).backend)
    tell = getattr(owner, "include_dirs", None)
    return tuple(tell(ops)) if tell is not None else owner.object_rules(arch, ops).include_dirs


def op_include_dirs(name: str, ops: Sequence[str]) -> tuple[Path, ...]:
    """The folders of headers that ops and kernel families bring to a backend, each once."""
    brought = (kernels for op in ops if op for kernels in (op_kernels(name, op), *families(name, op)))
    return tuple(dict.fromkeys(folder for kernels in brought for folder in kernels.include_dirs()))


def target_name(target: object = None) -> str:
    """A target's name as it was given, else the setting's; empty where neither says."""
    if isinstance(target, str) or target is None:
        return target or settings.current().target
    raise UnknownNameError(
        f"the target is {shown(target)}, which is no name of an arch or backend",
        rule="arch-name",
        value=shown(target),
        remedy=nearest("cpu", [*all_archs(), *backend_names()]),
    )


def resolve_target(name: str | None = None, *, to_run: bool = True) -> Arch:
    """The arch a target means: its name, or a backend's name for the best arch of it that runs here.

    Without a name the setting's counts, else the best arch of this CPU.  Where nothing of a named backend runs here
    that is an error, unless the kernels need not run (`to_run` false): then its usual arch is meant.
    """
    name = target_name(name)
    if not name:
        return best_host_arch()
    if name in all_archs():
        return arch_by_name(name)
    if name not in backend_names():
        known = [*all_archs(), *backend_names()]
        raise UnknownNameError(
            f"{shown(name)} is not a known arch or backend", rule="arch-name", value=name, remedy=nearest(name, known)
        )
    here = backend(name).available_archs()
    if here:
        return arch_by_name(here[0])
    if not to_run:
        return arch_by_name(backend(name).usual_arch)
    raise DeviceError(
        f"no arch of {name!r} runs on this machine: {backend(name).why_unavailable()}",
        rule="target-unavailable",
        value=name,
        remedy="to run here leave the target out, or fix what `tilewright doctor` says of it; to build without "
        f"running name an arch, such as {backend(name).usual_arch}, to `tilewright build`",
    )


def not_runnable(arch: str) -> DeviceError | None:
    """None where kernels of an arch run on this machine, else the error that says why not."""
    owner = backend(arch_by_name(arch).backend)
    here = owner.available_archs()
    if arch in here:
        return None
    why = owner.why_unavailable() or f"it runs {', '.join(here)}"
    return DeviceError(
        f"kernels of {arch} do not run on this machine ({why})",
        rule="arch-not-runnable",
        value=arch,
        remedy="they can be generated and built here, and run on a machine that has the arch"
        + (f"; to run here use target {here[0]!r}" if here else ""),
    )


def demand_runnable(arch: str) -> None:
    """Raise where this machine cannot run kernels of an arch."""
    error = not_runnable(arch)
    if error is not None:
        raise error
