"""What the schedules of every GEMM kernel family share.

Each family has a frozen dataclass of its own in its backend's folder, with the fields its kernels read and no others.
One vocabulary: *tile* is the block's work (on the CPU: the cache block), *warp grid* how many warps share it, *warp
tile* one matrix instruction's shape (on the CPU: the register block).  Every schedule has these three and its
`pipeline`; where one follows from the other fields, or is always the same, it is no field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tilewright.ops.schedules import Schedule

Shape = tuple[int, int, int]
Pair = tuple[int, int]
Edges = tuple[bool, bool, bool]

MNK = ("m", "n", "k")
SHAPES: Mapping[str, tuple[str, ...]] = {"tile": MNK, "warp_tile": MNK, "warp_grid": MNK}
ONE: Shape = (1, 1, 1)
ALL_EDGES: Edges = (True, True, True)


class GemmSchedule(Schedule, Protocol):
    """What every schedule has."""

    @property
    def tile(self) -> Shape: ...

    @property
    def warp_tile(self) -> Shape: ...

    @property
    def warp_grid(self) -> Shape: ...


def sizes(value: tuple[int, ...]) -> str:
    """128x64x32, as names and messages say it."""
    return "x".join(map(str, value))


def edges(pad: Edges) -> str:
    """For a name: along which axes there is edge code."""
    return "pad" + "".join(axis for axis, on in zip(MNK, pad, strict=True) if on) if any(pad) else "nopad"


def joined(*parts: object) -> str:
    """The parts of a name that say something."""
    return "_".join(str(part) for part in parts if part)
