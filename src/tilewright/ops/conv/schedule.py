"""What the schedules of every convolution family share: `ops.schedules`, and how tiles name their elements."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ops.schedules import LoopsSchedule
from tilewright.ops.schedules import Schedule as ConvSchedule

__all__ = ["MNK", "SHAPES", "ConvSchedule", "LoopsSchedule"]

MNK = ("m", "n", "k")
SHAPES: Mapping[str, tuple[str, ...]] = {"tile": MNK, "warp_tile": MNK, "warp_grid": MNK}
