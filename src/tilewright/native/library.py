"""Selection libraries, one for the kernels of an op on a backend: built through the store at the first question."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright import events, settings
from tilewright.backends.native import NativeKernels
from tilewright.dataclass import dataclass
from tilewright.errors import TilewrightError
from tilewright.native.source import text_of

if TYPE_CHECKING:
    from tilewright.backends.base import Source

_VERSION = 7  # `kVersion` of select/library.h

_int, _pointer = ctypes.c_int64, ctypes.c_void_p


class Candidate(ctypes.Structure):
    """`Candidate` of select/library.h."""

    _fields_ = (("family", _int), ("schedule", _pointer), ("arch", _pointer), ("rates", _pointer))


class Question(ctypes.Structure):
    """`Question` of select/library.h."""

    _fields_ = (
        *((name, _pointer) for name in ("candidates", "order", "problem", "rules", "seconds")),
        *((name, _int) for name in ("count", "estimates_only", "threads", "l2_bytes", "served", "best")),
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
_failed: list[tuple[str, settings.Settings]] = []  # those under which one could not be had
_reason = ""  # of the last that could not


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
    global _reason
    known = _loaded.get(kernels.set_name)
    if known is not None:
        return known
    current = settings.current()
    with _lock:
        name = kernels.set_name
        if name not in _loaded and (name, current) not in _failed:
            try:
                _loaded[name] = _build(kernels)
            except (TilewrightError, OSError, AttributeError) as error:
                _failed.append((name, current))
                _reason = error.message if isinstance(error, TilewrightError) else str(error)
                events.emit(
                    events.Warned("selection", f"kernels of {name} are taken as their pool lists them: {error}")
                )
        return _loaded.get(name)


def why_missing() -> str:
    """Why a library could not be had, in one line; empty where none failed."""
    return _reason.partition("\n")[0]
