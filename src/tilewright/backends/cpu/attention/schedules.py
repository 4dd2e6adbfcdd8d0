"""How attention kernels of the CPU family compute.

Tile is the cache block (rows by keys), warp tile the register block; threads take items from a queue at launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from tilewright.ops.attention.schedule import LoopsSchedule

Pair = tuple[int, int]
SHAPES = {"tile": ("m", "n"), "warp_tile": ("m", "n")}


@dataclass(frozen=True, slots=True)
class CpuTiledSchedule:
    """Queries in lanes, keys block by block with a running softmax; for many rows."""

    pipeline: str = field(default="tiled", init=False)
    tile: Pair  # rows that share what is packed of keys and values; keys of a block
    warp_tile: Pair  # rows in lanes; keys, or elements of a result, at once

    pipelines: ClassVar[tuple[str, ...]] = ("tiled",)
    serves: ClassVar[tuple[str, ...]] = ("forward",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES

    def label(self) -> str:
        return f"tiled_{self.tile[0]}x{self.tile[1]}_{self.warp_tile[0]}x{self.warp_tile[1]}"


@dataclass(frozen=True, slots=True)
class CpuDecodeSchedule:
    """Elements of a head in lanes: a few rows, and a cache that is read once."""

    pipeline: str = field(default="decode", init=False)
    tile: Pair  # rows of a pass, keys of a block

    pipelines: ClassVar[tuple[str, ...]] = ("decode",)
    serves: ClassVar[tuple[str, ...]] = ("forward",)
    words: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {"tile": SHAPES["tile"]}

    def label(self) -> str:
        return f"decode_{self.tile[0]}x{self.tile[1]}"


CpuSchedule: TypeAlias = CpuTiledSchedule | CpuDecodeSchedule | LoopsSchedule
