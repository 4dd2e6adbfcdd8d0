"""Operands as recipes, and the memory they are made in.

A recipe says everything of an operand in plain data, so that a call can be printed and made again.  All memory of an
operand that has some lies in a buffer of bytes of ours: poisoned around its elements, or against a page nobody may
touch.  So whatever a call reads or writes beside them is seen.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

finfo: Any = ml_dtypes.finfo  # untyped

POISON = 0xFF  # a NaN in every float type kernels take, -1 in the integers
MARGIN = 96  # bytes around the elements that must stay as they are

# What tilewright calls the element types; the others it does not compute with.  Written here once more: the fuzzer
# shares no table with what it tests.
OURS = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "int8": "int8",
    "int32": "int32",
}
NAMES = {ours: name for name, ours in OURS.items()}


def numpy_type(name: str) -> np.dtype[Any]:
    """Of a name like float32, bfloat16 or >f4."""
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
    return found


class Shown:
    """Data that prints what is not as usual, and can be read again."""

    def __repr__(self) -> str:
        told = []
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.default is MISSING:
                told.append(repr(value))
            elif value != one.default:
                told.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(told)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis prints it."""
        printer.text(repr(self))


@dataclass(frozen=True, repr=False)
class Array(Shown):
    """An operand with memory: of NumPy, of PyTorch, or of something that only speaks DLPack.

    Strides are in bytes.  `offset` is how far behind a multiple of 64 bytes it starts; `within` names another operand
    in whose memory it lies, so many bytes behind that one's first element.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    library: str = "numpy"
    offset: int = 0
    values: str = "small"
    seed: int = 0
    writeable: bool = True
    kind: str = ""  # what is peculiar of it: a subclass, a gradient, a capsule that lies
    within: str = ""
    fence: str = ""  # the page nobody may touch: at its "start" or its "end"

    @property
    def itemsize(self) -> int:
        return int(numpy_type(self.dtype).itemsize)

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=object)) if self.shape else 1

    @property
    def extent(self) -> tuple[int, int]:
        """Bytes before and behind the first element that its elements take."""
        if 0 in self.shape:
            return 0, 0
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        return sum(min(one, 0) for one in reach), sum(max(one, 0) for one in reach) + self.itemsize


@dataclass(frozen=True)
class Foreign:
    """Zeros of an element type that no kernel takes, or of all of them, as `library` makes them."""

    library: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Strange:
    """A tensor with a memory that is not what it seems; `oddities` makes it."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Junk:
    """What is no array; `oddities` makes it."""

    name: str


@dataclass(frozen=True)
class Same:
    """The very object that stands for another operand."""

    of: str


Operand = Array | Foreign | Strange | Junk | Same


@dataclass
class Live:
    """An operand that was made: the object a call gets, and what is known of it without asking tilewright."""

    recipe: Operand
    thing: Any
    base: Bytes | None = None  # the memory it lies in
    start: int = 0  # of its first element in `base`
    view: np.ndarray[Any, Any] | None = None  # the same memory, whatever library it is of
    values: Floats | None = None
    before: Bytes | None = None  # what `base` was before the call
    fenced: bool = False

    @property
    def address(self) -> int:
        assert self.base is not None
        return int(self.base.ctypes.data) + self.start

    def mask(self) -> Bytes:
        """1 for every byte of `base` that belongs to an element."""
        assert self.base is not None
        assert self.view is not None
        found = np.zeros(len(self.base), np.uint8)
        if self.view.size:
            size = self.view.dtype.itemsize
            marks = np.ndarray(self.view.shape, f"V{size}", found, self.start, self.view.strides)
            once(marks)[...] = np.frombuffer(b"\1" * size, f"V{size}")[0]
        return found


def once(view: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view without what repeats: there may be more of that than anyone can count."""
    return view[(..., *(slice(None) if stride else slice(0, 1) for stride in view.strides))]


# -- memory ------------------------------------------------------------------------------------------------------------

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_fenced: dict[int, list[Bytes]] = {}  # regions that are free again, by their number of pages


def _fenced_pages(pages: int) -> Bytes:
    """Pages between two that nobody may touch."""
    free = _fenced.setdefault(pages, [])
    if free:
        return free.pop()
    region = mmap.mmap(-1, (pages + 2) * _PAGE)
    whole = np.frombuffer(region, np.uint8)
    start = int(whole.ctypes.data)
    for page in (start, start + (pages + 1) * _PAGE):
        if _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return whole[_PAGE:-_PAGE]


def release(lives: Iterable[Live]) -> None:
    """Fenced memory may be used again once a call is over; a process can have only so many regions."""
    seen: set[int] = set()
    for one in lives:
        if one.fenced and one.base is not None and id(one.base) not in seen:
            seen.add(id(one.base))
            _fenced[len(one.base) // _PAGE].append(one.base)


def _base_of(low: int, high: int, offset: int, fence: str) -> tuple[Bytes, int]:
    """A buffer for what reaches from `low` to `high` around a first element, and where that is."""
    if fence and high > low:
        base = _fenced_pages(-(-(high - low) // _PAGE))
        base[...] = POISON
        return base, len(base) - high if fence == "end" else -low
    room = high - low + 2 * MARGIN + 128
    base = np.full(room, POISON, np.uint8)
    start = MARGIN - low
    start += (offset - int(base.ctypes.data) - start) % 64
    return base, start


def make_arrays(recipes: Mapping[str, Array]) -> dict[str, Live]:
    """The memory of all arrays of a call, filled; those within another one share its buffer."""
    roots: dict[str, dict[str, int]] = {}
    for name, one in recipes.items():
        root, shift = name, 0
        while recipes[root].within:
            shift += recipes[root].offset
            root = recipes[root].within
        roots.setdefault(root, {})[name] = shift
        assert one.library in ("numpy", "torch", "dlpack")
    made: dict[str, Live] = {}
    for root, members in roots.items():
        ends = [(shift + recipes[name].extent[0], shift + recipes[name].extent[1]) for name, shift in members.items()]
        whole = (min(low for low, _ in ends), max(high for _, high in ends))
        base, start = _base_of(*whole, recipes[root].offset, recipes[root].fence)
        for name, shift in members.items():
            one = recipes[name]
            view = np.ndarray(one.shape, numpy_type(one.dtype), base, start + shift, one.strides)
            fenced = bool(recipes[root].fence) and whole[1] > whole[0]
            made[name] = Live(one, None, base, start + shift, view, fenced=fenced)
    for name in sorted(made, key=lambda one: one == "out"):
        one = recipes[name]
        if name != "out" or not one.within:
            _fill(made[name].view, one)
    for live in made.values():
        live.before = None if live.base is None else live.base.copy()
        live.values = _read(live.view)
    return made


def _read(view: Any) -> Floats:
    with np.errstate(all="ignore"):
        return np.broadcast_to(once(view).astype(np.float64), view.shape)


def _fill(view: Any, one: Array) -> None:
    if one.values == "poison" or not view.size:
        return
    with np.errstate(all="ignore"):
        part = once(view)
        part[...] = sample(one.dtype, part.shape, one.values, one.seed)


@lru_cache(maxsize=32)
def _specials(dtype: str) -> np.ndarray[Any, Any]:
    kind = numpy_type(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return np.array([info.min, info.max, 0, 1, -1 if info.min else 1], kind)
    of = finfo(kind)
    with np.errstate(all="ignore"):
        found = [np.nan, np.inf, -np.inf, 0.0, -0.0, of.max, of.min, of.tiny, of.smallest_subnormal]
        return np.array([np.array(one).astype(kind) for one in found], kind)


def sample(dtype: str, shape: tuple[int, ...], values: str, seed: int) -> np.ndarray[Any, Any]:
    """Numbers for an operand: `small` integers, whose sums are exact, `normal` ones, `special` ones, any `bits`."""
    rng, kind = np.random.default_rng(seed), numpy_type(dtype)
    if values == "small" or kind.kind == "b":
        return rng.integers(-4, 5, shape).astype(kind)
    if values == "bits":
        bits = rng.integers(0, 256, (*shape, kind.itemsize), np.uint8)
        return bits.view(kind).reshape(shape)
    whole = kind.kind in "iu"
    found: np.ndarray[Any, Any] = rng.integers(-128, 128, shape) if whole else rng.standard_normal(shape)
    with np.errstate(all="ignore"):
        found = found.astype(kind)
    if values == "special":
        specials = _specials(dtype)
        found = np.where(rng.random(shape) < 0.1, specials[rng.integers(0, len(specials), shape)], found)
    return found
