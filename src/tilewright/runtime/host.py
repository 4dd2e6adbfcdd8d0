"""What host kernels need around them: a team of threads, scratch memory, a clock; and the host as a device."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, settings
from tilewright.arch import host_facts
from tilewright.arch.host import flags_digest
from tilewright.errors import (
    DeviceError,
    LoadError,
    MachineError,
    NoKernelError,
    TilewrightError,
    ToolchainError,
    no_memory,
)
from tilewright.runtime.abi import ABI_VERSION
from tilewright.runtime.devices import HOST, Place

if TYPE_CHECKING:
    from tilewright.backends.base import Source
    from tilewright.runtime.loader import Kernel
    from tilewright.runtime.timing import Stopwatch

ALIGNMENT = 64

clock = time.perf_counter

_lock = threading.Lock()
_library: ctypes.CDLL | None = None
_teams: dict[tuple[int, int], int] = {}
_alone = False  # whether it was said that there are no teams
_OWN, _SHARED, _FOLLOWED, _OPENMP, _OPENMP_FOLLOWED = range(5)  # `Pool` of backends/cpu/host/team.cpp


def thread_count() -> int:
    """Threads a host kernel uses under the settings in force."""
    return threads_under(settings.current())


def threads_under(now: settings.Settings) -> int:
    """The same of settings that are at hand."""
    return now.threads or _default_threads()


@lru_cache(maxsize=1)
def _default_threads() -> int:
    """What OMP_NUM_THREADS says, as for the libraries around us, but never more than there are cores for."""
    most = min(host_facts().cores, settings.MAX_THREADS)
    return min(settings.openmp_threads() or most, most)


def load_team_library(path: Path) -> ctypes.CDLL:
    """Load the team library; another ABI version is refused."""
    try:
        library = ctypes.CDLL(str(path))
        version = library.tw_team_abi_version
        start, openmp = library.tw_team, library.tw_team_openmp
    except (OSError, AttributeError) as error:
        raise LoadError(
            f"the thread team library cannot be loaded: {error}",
            rule="team-library",
            value=str(path),
            remedy="`tilewright cache verify` finds and removes damaged entries",
        ) from error
    version.restype = ctypes.c_int64
    version.argtypes = ()
    if version() != ABI_VERSION:
        raise LoadError(
            f"the thread team library has ABI version {version()}, this Tilewright speaks {ABI_VERSION}",
            rule="abi-version",
            value=version(),
            remedy="clear the store: `tilewright cache gc --all`",
        )
    start.restype = ctypes.c_void_p
    start.argtypes = (ctypes.c_int64, ctypes.c_int64)
    openmp.restype = ctypes.c_char_p
    openmp.argtypes = ()
    return library


def team_source() -> Source:
    """What the library of teams is compiled from."""
    from tilewright.backends.base import backend

    source = backend(HOST.kind).host_library_source()
    if source is None:
        raise LoadError("the host's backend has no thread team", rule="team-library", value=HOST.kind)
    return source


def build_team_library() -> Path:
    """Through the kernel store, for the plainest arch of the host: the team itself does no arithmetic."""
    from tilewright.arch import runnable_host_archs
    from tilewright.build import build_source

    return build_source(team_source(), runnable_host_archs()[-1].name).path


def _team_library() -> ctypes.CDLL:
    global _library
    if _library is None:
        _library = load_team_library(build_team_library())
    return _library


def _pool() -> int:
    """Whose threads a team has under the settings in force.

    On OpenMP's a number that nobody gave is at most the one OpenMP would take, which `torch.set_num_threads` sets.
    """
    now = settings.current()
    if now.thread_pool == "own":
        return _OWN
    if now.thread_pool == "openmp" and not openmp_library():
        raise MachineError(
            "the threads of OpenMP are requested, and this process has no OpenMP runtime whose threads it may use",
            rule="thread-pool",
            value=now.thread_pool,
            remedy="import torch first, or set thread_pool to auto; a forked process cannot use such threads",
        )
    if now.thread_pool == "openmp":
        return _OPENMP if now.threads else _OPENMP_FOLLOWED
    return _SHARED if now.threads else _FOLLOWED


def openmp_library() -> str:
    """The path of the OpenMP runtime whose threads are shared; empty while none is loaded."""
    with _lock:
        path = _team_library().tw_team_openmp()
    return os.fsdecode(path) if path else ""


def _serve_alone(error: TilewrightError) -> None:
    """What cannot be built here (frozen, no compiler) makes calls slower, not wrong; said once."""
    global _alone
    if not _alone:
        _alone = True
        message = f"kernels run on the calling thread alone, for there is no thread team: {error.message}"
        events.emit(events.Warned(rule="team-library", message=message))


def team(threads: int) -> int:
    """The `stream` of host kernels: the address of a team handle; 0 means the calling thread alone."""
    if threads <= 1:
        return 0
    key = threads, _pool()
    with _lock:
        try:
            library = _library or _team_library()
        except (NoKernelError, ToolchainError) as error:
            _serve_alone(error)
            return 0
        if key not in _teams:
            handle = library.tw_team(*key)
            if not handle:
                raise LoadError("no memory for the thread team", rule="team-memory", value=threads)
            _teams[key] = handle
        else:
            library.tw_team_openmp()  # a look: libraries may have been loaded since
        return _teams[key]


class _Scratch(threading.local):
    """One growing buffer a thread: concurrent calls never share one."""

    def __init__(self) -> None:
        self.bytes = -1
        self.address = 0
        self.memory: ctypes.Array[ctypes.c_char] | None = None


_scratch = _Scratch()


def _bytes(size: int) -> ctypes.Array[ctypes.c_char]:
    try:
        return (ctypes.c_char * size)()
    except (MemoryError, OverflowError, ValueError) as error:
        raise no_memory(f"a workspace of {size} bytes", error) from error


def workspace(size: int) -> int:
    """Address of at least `size` bytes, aligned to 64, owned by the calling thread until its next call."""
    scratch = _scratch
    if scratch.bytes < size:
        wanted = max(size, min(2 * scratch.bytes, size + (64 << 20)))
        memory = _bytes(wanted + ALIGNMENT)
        scratch.memory, scratch.bytes = memory, wanted
        scratch.address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
    return scratch.address


def aligned_buffer(size: int) -> tuple[object, int]:
    """New memory aligned to 64 and its address; the first value owns it."""
    memory = _bytes(size + ALIGNMENT)
    return memory, -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT


class HostMemory:
    """Bytes of the host, aligned as kernels want them."""

    __slots__ = ("_memory", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self._memory, self.address = aligned_buffer(nbytes)
        self.nbytes = nbytes

    def free(self) -> None:
        self._memory, self.address = None, 0


class Host:
    """The host behind the contract of `runtime.devices.Device`; its streams are teams of threads."""

    place: Place = HOST

    @property
    def name(self) -> str:
        return host_facts().model

    @property
    def arch(self) -> str:
        from tilewright.arch import best_host_arch

        return best_host_arch().name

    @property
    def identity(self) -> Mapping[str, Any]:
        facts = host_facts()
        return {
            "model": facts.model,
            "machine": facts.machine,
            "cores": facts.cores,
            "l2_bytes": facts.l2_bytes,
            "l3_bytes": facts.l3_bytes,
            "flags": flags_digest(facts.flags),
        }

    @property
    def cache_bytes(self) -> int:
        facts = host_facts()
        return max(facts.l2_bytes, facts.l3_bytes)

    def demand_arch(self, arch: str) -> None:
        from tilewright.arch import runnable_host_archs

        here = [known.name for known in runnable_host_archs()]
        if arch not in here:
            raise DeviceError(
                f"kernels of {arch} do not run on this CPU ({self.name})",
                rule="device-arch",
                value=arch,
                remedy=f"this machine runs {', '.join(here)}",
            )

    def allocate(self, nbytes: int) -> HostMemory:
        return HostMemory(nbytes)

    def write(self, address: int, source: int, nbytes: int) -> None:
        ctypes.memmove(address, source, nbytes)

    def read(self, target: int, address: int, nbytes: int) -> None:
        ctypes.memmove(target, address, nbytes)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        ctypes.memset(address, byte, nbytes)

    def stream(self) -> int:
        return team(thread_count())

    def synchronize(self) -> None:
        """Host kernels have ended when their call returns."""

    @contextmanager
    def scratch(self, nbytes: int, clear_bytes: int = 0) -> Iterator[tuple[int, int]]:
        """Memory of the calling thread and the team; host kernels want no zeros."""
        yield (workspace(nbytes) if nbytes else 0), self.stream()

    def copy_rows(self, target: int, target_pitch: int, source: int, pitch: int, width: int, rows: int) -> None:
        for row in range(rows):
            ctypes.memmove(target + row * target_pitch, source + row * pitch, width)

    def load(self, kernel: Kernel) -> None:
        """A kernel of the host is loaded with its library."""

    def launch_error(self, kernel: Kernel, status: int, args: int) -> Exception:
        return kernel.failed(status, args)

    def stopwatch(self) -> Stopwatch:
        from tilewright.runtime.timing import HostStopwatch

        return HostStopwatch(self.cache_bytes)


@lru_cache(maxsize=1)
def device(index: int = 0) -> Host:
    if index != 0:
        raise DeviceError(
            f"there is no cpu:{index}", rule="device-index", value=index, remedy="the host is one device, cpu:0"
        )
    return Host()


def all_devices() -> tuple[Host, ...]:
    return (device(0),)


def current_index() -> int:
    return 0
