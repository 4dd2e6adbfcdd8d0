"""Built libraries become kernels: version, manifest and table are checked before anything is called."""

from __future__ import annotations

import ctypes
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, lazy, ops
from tilewright.arch import arch
from tilewright.errors import DeviceError, InternalError, LoadError, ProblemError, TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.runtime import abi, fast_path

if TYPE_CHECKING:
    from tilewright.runtime import memory_library
else:
    memory_library = lazy.module("tilewright.runtime.memory_library")

# How the loader names a library that another one needs and that is not there.
_OTHER = r"([^:]+): cannot open shared object file"
_DAMAGED = (
    "`tilewright cache verify` finds and removes damaged entries of the store, which are then built again; "
    "a library of your own must be built again by you"
)
_WHY_BYTES = 256
_unread = ctypes.create_string_buffer(_WHY_BYTES)  # for sentences nobody reads: most checks say nothing
_WORKSPACE_ALIGNMENT = 64


class Kernel:
    """One loaded kernel.  Call it with arrays, as the function of its op, to run it without selection."""

    __slots__ = (
        "_check",
        "_entry",
        "_functions",
        "_library",
        "_packed_bytes",
        "_workspace",
        "clear_bytes",
        "launch",
        "library_path",
        "pack",
        "planner",
        "spec",
    )

    def __init__(self, spec: KernelSpec, entry: abi.KernelEntry, library: ctypes.CDLL, path: Path) -> None:
        if not (entry.check and entry.workspace and entry.launch):
            raise _untrusted(path, "table-entry", f"the table entry of {spec.name} lacks a function")
        if entry.clear_bytes < 0 or entry.clear_bytes % _WORKSPACE_ALIGNMENT:
            message = f"{spec.name} wants {entry.clear_bytes} bytes of zeros, no multiple of {_WORKSPACE_ALIGNMENT}"
            raise _untrusted(path, "table-entry", message)
        self.spec = spec
        self.library_path = path
        self._library = library  # keeps the code mapped
        self._entry = ctypes.addressof(entry)
        self._functions = int(entry.check), int(entry.workspace)
        self._check = abi.CHECK(entry.check)
        self._workspace = abi.WORKSPACE(entry.workspace)
        self.launch = abi.LAUNCH(entry.launch)
        self._packed_bytes = abi.PACKED_BYTES(entry.packed_bytes) if entry.packed_bytes else None
        self.planner: Any = None  # remembers the plans of direct calls; `calls` puts it here
        self.pack = abi.PACK(entry.pack) if entry.pack else None
        self.clear_bytes = int(entry.clear_bytes)  # at the start of its workspace: zero before and after a launch

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def kind(self) -> str:
        """The kind of device it runs on: the name of its backend."""
        return arch(self.spec.arch).backend

    def __repr__(self) -> str:
        return f"<Kernel {self.spec.name}>"

    def __call__(self, *operands: Any, **keywords: Any) -> Any:
        """The operands of its op as arrays, with the op's keywords; what the kernel fixes is not asked for."""
        from tilewright.runtime.calls import call_kernel

        return call_kernel(self, *operands, **keywords)

    def refusal(self, args: ctypes.Structure) -> str:
        """Why the kernel will not take these arguments; empty when it will."""
        return self._refusal_at(ctypes.addressof(args))

    def _refusal_at(self, address: int) -> str:
        why = ctypes.create_string_buffer(_WHY_BYTES)
        code = self._check(address, why, _WHY_BYTES)
        if code == 0:
            return ""
        sentence = why.value.decode("utf-8", "replace")
        return f"{abi.STATUS_NAMES.get(code, code)}: {sentence or 'no reason given'}"

    def demand(self, args: ctypes.Structure) -> None:
        """Raise where the kernel's own check refuses."""
        if self._check(ctypes.addressof(args), _unread, _WHY_BYTES):
            raise self._refused(self.refusal(args))

    def _refused(self, why: str) -> ProblemError:
        return ProblemError(
            f"{self.name} refuses: {why}",
            rule="kernel-check",
            value=self.name,
            remedy=f"change what it names, or let another kernel be chosen (`tilewright.{self.spec.op}`)",
        )

    def workspace_bytes(self, args: ctypes.Structure, threads: int) -> int:
        size = int(self._workspace(ctypes.addressof(args), threads))
        if size < 0:
            raise InternalError(f"{self.name} asks for {size} bytes of workspace", rule="workspace", value=size)
        return size

    def demanded_workspace(self, args: ctypes.Structure, threads: int) -> int:
        """`demand` and `workspace_bytes` together, in one call of C where that serves."""
        size = fast_path.checked(self._functions, ctypes.addressof(args), threads)
        if size is None or size < 0:
            self.demand(args)
            return self.workspace_bytes(args, threads)
        return size

    def packed_bytes(self, args: ctypes.Structure) -> int:
        if self._packed_bytes is None:
            raise ProblemError(
                f"{self.name} does not take a packed operand",
                rule="not-packed",
                value=self.name,
                remedy="use a kernel that takes a packed operand",
            )
        return int(self._packed_bytes(ctypes.addressof(args)))

    def load(self) -> int:
        """Load the code into the device context that is current; 0, or what a launch would answer.

        Libraries without `tw_load` (those for hosts, and older ones) do that in the first launch.
        """
        load = getattr(self._library, "tw_load", None)
        if load is None:
            return 0
        load.argtypes, load.restype = (ctypes.c_void_p,), ctypes.c_int
        return int(load(self._entry))

    def failed(self, status: int, args: int = 0) -> TilewrightError:
        """The error for a launch that answered other than 0; with the address of its arguments, the kernel's reason."""
        why = self._refusal_at(args) if args else ""
        if why:
            return self._refused(why)
        return DeviceError(
            f"{self.name} failed at launch with {abi.STATUS_NAMES.get(status, status)}",
            rule="launch",
            value=status,
            remedy="run `tilewright doctor`; if the machine is well, this is a bug of the kernel",
        )


def _untrusted(path: Path, rule: str, message: str) -> LoadError:
    return LoadError(f"{path.name}: {message}", rule=rule, value=str(path), remedy=_DAMAGED)


def _spec_of(path: Path, manifest: bytes | None, expect: KernelSpec | None) -> KernelSpec:
    if manifest is None:
        raise _untrusted(path, "manifest", "a kernel has no manifest")
    text = manifest.decode("utf-8", "replace")
    if expect is not None and text == expect.to_json():
        return expect
    try:
        data = json.loads(text)
        data = data.get("spec", data)
        return ops.op(data["op"]).spec_from_dict(data)
    except (ValueError, KeyError, TypeError, AttributeError, TilewrightError) as error:
        raise _untrusted(path, "manifest", f"the manifest cannot be read: {error}") from error


def load_library(path: Path | str, expect: KernelSpec | None = None) -> tuple[Kernel, ...]:
    """Every kernel of a library; with `expect`, one of them must be exactly that spec."""
    path = Path(path).absolute()  # a bare name would make the system search its own folders
    if path.exists() and not path.is_file():  # the system loader would wait for a pipe to end
        raise _untrusted(path, "library", "it is no regular file")
    return _load(str(path), path, expect)


def _load(place: str, path: Path, expect: KernelSpec | None) -> tuple[Kernel, ...]:
    """The kernels of the library at a place; `path` is how people know it."""
    started = time.perf_counter()
    try:
        library = ctypes.CDLL(place)
    except OSError as error:
        message = f"the system loader refuses it: {error}"
        needs = re.match(_OTHER, str(error))
        if needs is None or needs[1] in (path.name, place):
            raise _untrusted(path, "library", message) from error
        raise LoadError(
            f"{path.name}: {message}",
            rule="library-needs",
            value=needs[1],
            remedy=f"the kernel is whole, but this machine lacks {needs[1]}: install what it belongs to "
            "(a GPU's runtime, where the kernel is for a GPU), or name its folder in LD_LIBRARY_PATH",
        ) from error
    try:
        version, table = library.tw_abi_version, library.tw_kernels
    except AttributeError as error:
        raise _untrusted(path, "exports", f"it is not a Tilewright library: {error}") from error
    version.restype, version.argtypes = ctypes.c_int64, ()
    library_version = int(version())
    if library_version != abi.ABI_VERSION:
        raise LoadError(
            f"{path.name} has ABI version {library_version}, this Tilewright speaks {abi.ABI_VERSION}",
            rule="abi-version",
            value=library_version,
            remedy="build the kernels again with this version",
        )
    table.restype, table.argtypes = ctypes.POINTER(abi.KernelEntry), (ctypes.POINTER(ctypes.c_int64),)
    count = ctypes.c_int64(0)
    entries = table(ctypes.byref(count))
    if not entries or count.value < 1:
        raise _untrusted(path, "table", f"its table holds {count.value} kernels")
    kernels = tuple(
        Kernel(_spec_of(path, entries[index].manifest, expect), entries[index], library, path)
        for index in range(count.value)
    )
    if expect is not None and all(kernel.spec.digest != expect.digest for kernel in kernels):
        held = ", ".join(kernel.spec.digest[:12] for kernel in kernels)
        raise _untrusted(path, "digest", f"it holds {held}, not {expect.digest[:12]} ({expect.name})")
    if events.active():
        seconds = time.perf_counter() - started
        for kernel in kernels:
            events.emit(events.KernelLoaded(kernel.name, kernel.spec.digest, seconds))
    return kernels


def load_kernel(path: Path, spec: KernelSpec) -> Kernel:
    """The kernel of exactly this spec."""
    return next(kernel for kernel in load_library(path, spec) if kernel.spec.digest == spec.digest)


def load_kernel_from(data: bytes, where: str, spec: KernelSpec) -> Kernel:
    """The same of a library in memory, from a place that only people can follow."""
    with memory_library.loadable(data, where) as place:
        return next(kernel for kernel in _load(place, Path(where), spec) if kernel.spec.digest == spec.digest)
