"""The selection library, built once through the kernel store and loaded at the first question."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from tilewright import events, settings
from tilewright.errors import TilewrightError

_VERSION = 6
WORTH_IT = 4  # questions of a process that Python answers, before the library is built or loaded

_int, _pointer = ctypes.c_int64, ctypes.c_void_p


class Candidate(ctypes.Structure):
    """`Candidate` of select.cpp."""

    _fields_ = (("family", _int), ("schedule", _pointer), ("arch", _pointer), ("rates", _pointer))


class Question(ctypes.Structure):
    """`Question` of select.cpp."""

    _fields_ = (
        *((name, _pointer) for name in ("candidates", "order", "problem", "rules", "seconds")),
        *((name, _int) for name in ("count", "estimates_only", "threads", "l2_bytes", "served", "best")),
    )


@dataclass(frozen=True)
class Names:
    """What the library calls the numbers of a set, and in which order it takes them."""

    place: int
    problem: tuple[str, ...]
    rules: tuple[str, ...]  # by their number; the first means that a kernel serves the problem
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
        native.tw_select_names.argtypes, native.tw_select_names.restype = (_int, _int), ctypes.c_char_p
        native.tw_select_ask.argtypes, native.tw_select_ask.restype = (_int, _pointer), None
        native.tw_select_gemm_features.argtypes = (_pointer, _pointer, _int, _int, _pointer, _pointer)
        native.tw_select_gemm_features.restype = None
        self.ask = native.tw_select_ask
        self.features = {"gemm": native.tw_select_gemm_features}
        self._native = native
        self.sets: dict[str, Names] = {}
        while (name := self._told(len(self.sets), 0)) is not None:
            self.sets[name] = self._names(len(self.sets))

    def _told(self, place: int, what: int) -> str | None:
        text = self._native.tw_select_names(place, what)
        return None if text is None else str(text.decode())

    def _names(self, place: int) -> Names:
        problem, rules, arch, rates = (tuple((self._told(place, what) or "").split()) for what in range(1, 5))
        families: dict[str, tuple[int, tuple[str, ...]]] = {}
        while (family := self._told(place, 5 + 2 * len(families))) is not None:
            fields = (self._told(place, 6 + 2 * len(families)) or "").split()
            families[family] = len(families), tuple(fields)
        rules = tuple(one.replace("_", "-") for one in rules)
        return Names(place, problem, rules, arch, rates, families)


_lock = threading.Lock()
_loaded: Library | None = None
_failed: list[settings.Settings] = []  # those under which it could not be had
_asked = 0


def _build() -> Library:
    from tilewright.arch import runnable_host_archs
    from tilewright.backends.base import Source
    from tilewright.build import build_source

    text = resources.files("tilewright.native").joinpath("select.cpp").read_text(encoding="utf-8")
    # The plainest host arch: where products and sums are fused, estimates round another way than Python's.
    source = Source("tilewright_select.cpp", text, "c++")
    return Library(str(build_source(source, runnable_host_archs()[-1].name).path))


def library(*, now: bool = False) -> Library | None:
    """None where it cannot be had, which is said once: Python then does the same, slower.

    Nor is it had for the first few questions of a process, unless it is wanted `now`: a program that chooses a kernel
    or two is done before the library would be built.
    """
    global _loaded, _asked
    if _loaded is not None:
        return _loaded
    current = settings.current()
    with _lock:
        _asked += 1
        if _loaded is None and (now or _asked > WORTH_IT) and current not in _failed:
            try:
                _loaded = _build()
            except (TilewrightError, OSError, AttributeError) as error:
                _failed.append(current)
                events.emit(events.Warned("selection", f"selection takes milliseconds longer: {error}"))
        return _loaded


def may_come() -> bool:
    """Whether it is not there yet, and may be at another question."""
    return _loaded is None and settings.current() not in _failed
