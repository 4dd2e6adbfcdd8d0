"""The tiles that CK Tile's authors chose for its kernel of dq, dk and dv, and the schedules of its kernels.

A tile has nine numbers: rows and keys of a block, elements a step of the five multiplications (q k, pᵀ dout, dout v,
dsᵀ q, ds k), and the heads of q and v that it holds.  The first and third multiplication share a grid of waves, so do
the second and fourth; the fifth has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tilewright.dataclass import dataclass

Nine = tuple[int, int, int, int, int, int, int, int, int]
Six = tuple[int, int, int, int, int, int]
Pair = tuple[bool, bool]
Pads = tuple[bool, bool, bool, bool]
WAVE = 64
PIPELINES = ("kr_ktr_vr", "kr_ktr_vr_iglp")
WARP_TILE: Six = (16, 16, 32, 16, 16, 16)
ROWS = 64  # of a block of dot_do_o and of convert_dq


@dataclass(frozen=True, slots=True)
class CkTileBackwardSchedule:
    """A kernel of CK Tile."""

    pipeline: str
    tile: Nine
    warp_grid: Nine
    warp_tile: Six = WARP_TILE
    pad: Pads = (True, True, False, False)  # edge code for rows, keys, heads of q and k, heads of v
    deterministic: bool = False  # tiles of keys leave dq in slices, which are added up in one order
    store_randval: bool = False  # what dropout drew is stored
    block_per_cu: int = 1  # blocks that registers are to leave room for

    pipelines: ClassVar[tuple[str, ...]] = PIPELINES
    serves: ClassVar[tuple[str, ...]] = ("grad",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": PIPELINES}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[dict[str, tuple[str, ...]]] = {
        "tile": ("m0", "n0", "k0", "k1", "k2", "k3", "k4", "head_qk", "head_v"),
        "warp_grid": ("m0", "n0", "k0", "m1", "n1", "k1", "m2", "n2", "k2"),
        "warp_tile": ("m0", "n0", "k0", "m1", "n1", "k1"),
        "pad": ("rows", "keys", "head_qk", "head_v"),
    }

    def label(self) -> str:
        words = [self.pipeline, f"{self.tile[0]}x{self.tile[1]}x{self.tile[7]}", pad_word(self.pad)]
        words += ["det"] * self.deterministic + ["randval"] * self.store_randval
        return "_".join(words + [f"o{self.block_per_cu}"] * (self.block_per_cu > 1))

    @property
    def threads(self) -> int:
        return self.warp_grid[0] * self.warp_grid[1] * self.warp_grid[2] * WAVE


@dataclass(frozen=True, slots=True)
class CkRowsSchedule:
    """A kernel of CK Tile before or behind that of dq, dk and dv."""

    pipeline: str
    pad: Pair = (True, False)  # edge code for rows, and for heads
    deterministic: bool = False  # of convert_dq: adds up sums that were left in parts, in one order

    pipelines: ClassVar[tuple[str, ...]] = ("dot_do_o", "convert_dq")
    serves: ClassVar[tuple[str, ...]] = ("dot", "convert")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[dict[str, tuple[str, ...]]] = {"pad": ("rows", "head")}

    def label(self) -> str:
        return "_".join([self.pipeline, pad_word(self.pad), *["det"] * self.deterministic])


def pad_word(pads: tuple[bool, ...]) -> str:
    return "pad" + "".join("1" if padded else "0" for padded in pads)


_WIDE = (1, 4, 1, 4, 1, 1, 1, 4, 1)  # waves side by side along keys, but for sums of dk and dv
_SQUARE = (1, 4, 1, 4, 1, 1, 2, 2, 1)

# By the heads a tile holds.
TILES: Mapping[int, tuple[Nine, Nine]] = {
    32: ((32, 128, 32, 32, 32, 32, 64, 32, 32), _SQUARE),
    64: ((32, 128, 64, 32, 64, 32, 32, 64, 64), _WIDE),
    128: ((16, 128, 128, 16, 128, 16, 32, 128, 128), _WIDE),
    256: ((16, 64, 256, 16, 256, 16, 32, 256, 256), _WIDE),
}


def usual_pipeline(size: int) -> str:
    """Which of the two its authors took."""
    return "kr_ktr_vr" if size == 128 else "kr_ktr_vr_iglp"
