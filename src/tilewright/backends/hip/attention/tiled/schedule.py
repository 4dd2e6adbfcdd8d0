"""The schedule of our own attention kernels for AMD GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TiledAttentionSchedule:
    """A block of waves with rows of their own, which share tiles of keys in LDS."""

    pipeline: str = field(default="tiled", init=False)
    tile_n: int  # keys of a tile
    waves: int
    row_blocks: int  # of 16 rows, that a wave has
    lean: bool = False  # where registers are few: queries stay in LDS, and nothing is fetched ahead
    column_waves: int = 1  # waves that have the same rows, and columns of the result of their own

    pipelines: ClassVar[tuple[str, ...]] = ("tiled",)
    serves: ClassVar[tuple[str, ...]] = ("forward", "split")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()

    @property
    def tile_m(self) -> int:
        return 16 * self.row_blocks * self.waves // self.column_waves

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and keys of a tile."""
        return self.tile_m, self.tile_n

    def label(self) -> str:
        label = f"{self.pipeline}_{self.tile_m}x{self.tile_n}_waves{self.waves}"
        label += f"_columns{self.column_waves}" if self.column_waves > 1 else ""
        return label + ("_lean" if self.lean else "")
