"""Selection libraries, one for the kernels of an op on a backend: built through the store at the first question."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright import events, settings
from tilewright.backends.native import NativeKernels
from tilewright.dataclass import dataclass
from tilewright.errors import TilewrightError
from tilewright.native.source import text_of

if TYPE_CHECKING:
    from tilewright.backends.base import Source

_VERSION = 9  # `kVersion` of select/library.h

_int, _pointer = ctypes.c_int64, ctypes.c_void_p


class Candidate(ctypes.Structure):
    """`Candidate` of select/library.h."""

    _fields_ = (("family", _int), ("schedule", _pointer), ("arch", _pointer), ("rates", _pointer))


class Question(ctypes.Structure):
    """`Question` of select/library.h."""

    _fields_ = (
        *((name, _pointer) for name in ("candidates", "order", "problem", "rules", "seconds")),
        *((name, _int) for name in ("count", "estimates_only", "threads", "l2_bytes", "dual_fma", "served", "best")),
    )


class Rule(ctypes.Structure):
    """`Rule` of select/rules.h."""

    _fields_ = (("name", ctypes.c_char_p), ("code", _int), ("why", ctypes.c_char_p), ("remedy", ctypes.c_char_p))


@dataclass(frozen=True)
class Names:
    """What the library calls the numbers it takes, and in which order."""

    problem: tuple[str, ...]
    arch: tuple[str, ...]
    rates: tuple[str, ...]
    families: Mapping[str, tuple[int, tuple[str, ...]]]  # a family's number and fields


class Library:
    """The loaded functions."""

    def __init__(self, path: str) -> None:
        native = ctypes.PyDLL(path)  # a question takes microseconds: less than giving up the lock and waiting for it
        native.tw_select_abi_version.restype = native.tw_select_question_bytes.restype = _int
        if native.tw_select_abi_version() != _VERSION or native.tw_select_question_bytes() != ctypes.sizeof(Question):
            raise OSError(f"{path} is of another version")
        native.tw_select_names.argtypes, native.tw_select_names.restype = (_int,), ctypes.c_char_p
        native.tw_select_ask.argtypes, native.tw_select_ask.restype = (_pointer,), None
        self.ask = native.tw_select_ask
        self._native, self.path = native, path
        self.names = self._names()

    def function(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """One of the more functions of a library; None where it has none of that name."""
        function = getattr(self._native, name, None)
        if function is not None:
            function.argtypes, function.restype = arguments, None
        return function

    def _words(self, what: int) -> tuple[str, ...]:
        return tuple(str(self._native.tw_select_names(what).decode()).split())

    def _names(self) -> Names:
        families: dict[str, tuple[int, tuple[str, ...]]] = {}
        while (name := self._native.tw_select_names(3 + 2 * len(families))) is not None:
            families[name.decode()] = len(families), self._words(4 + 2 * len(families))
        return Names(self._words(0), self._words(1), self._words(2), families)


_lock = threading.Lock()
_loaded: dict[str, Library] = {}
# Those that could not be had, by the settings then, and when to try again: a store may be filled, or a compiler come.
_failed: dict[tuple[str, settings.Settings], float] = {}
_wanted: dict[str, NativeKernels] = {}  # the sets of these
_reason = ""  # of the last that could not
recovered = 0  # raised when one is had that could not be: choices made without it are stale

RETRY_SECONDS = 1.0
_MAY_COME = ("frozen", "no-compiler")  # found out quickly; what a compiler refused is not given to it again
_clock = time.monotonic


def library_source(kernels: NativeKernels) -> Source:
    """What the library of a set is compiled from."""
    from tilewright.backends.base import Source

    return Source(f"tilewright_select_{kernels.set_name}.cpp", text_of(kernels.set_name, kernels.source()), "c++")


def _build(kernels: NativeKernels) -> Library:
    from tilewright.arch import runnable_host_archs
    from tilewright.build import build_source

    # The plainest host arch: where products and sums are fused, estimates round another way than elsewhere.
    return Library(str(build_source(library_source(kernels), runnable_host_archs()[-1].name).path))


def library(kernels: NativeKernels) -> Library | None:
    """None where it cannot be had, which is said once: kernels are then taken in the order of their pool."""
    known = _loaded.get(kernels.set_name)
    if known is not None:
        return known
    current = settings.current()
    with _lock:
        name = kernels.set_name
        if name not in _loaded and _clock() >= _failed.get((name, current), -math.inf):
            try:
                _loaded[name] = _build(kernels)
            except (TilewrightError, OSError, AttributeError) as error:
                _note_failure(kernels, current, error)
            else:
                _note_success(name)
        return _loaded.get(name)


def _note_failure(kernels: NativeKernels, current: settings.Settings, error: Exception) -> None:
    global _reason
    name, again = kernels.set_name, isinstance(error, TilewrightError) and error.rule in _MAY_COME
    if (name, current) not in _failed:
        events.emit(events.Warned("selection", f"kernels of {name} are taken as their pool lists them: {error}"))
    _failed[name, current] = _clock() + RETRY_SECONDS if again else math.inf
    _wanted[name] = kernels
    _reason = error.message if isinstance(error, TilewrightError) else str(error)


def _note_success(name: str) -> None:
    global recovered, _reason
    if _wanted.pop(name, None) is not None:
        for key in [key for key in _failed if key[0] == name]:
            del _failed[key]
        recovered += 1
        _reason = _reason if _failed else ""


def any_missing() -> bool:
    """Whether one could not be had so far."""
    return bool(_failed)


def retry() -> None:
    """Try again to have what could not be had, where that is due."""
    for kernels in tuple(_wanted.values()):
        library(kernels)


def why_missing() -> str:
    """Why a library could not be had, in one line; empty where none failed."""
    return _reason.partition("\n")[0]
