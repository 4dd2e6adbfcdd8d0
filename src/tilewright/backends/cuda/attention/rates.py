"""What the costs of attention on NVIDIA GPUs are counted in: `Rates` of cost.h, from the fits in the arch table.

ws, decode   blocks take items of rows; a step of an item is a tile of keys.  A step takes what its products take and,
             of its exponentials, what alternating warpgroups do not hide; or as long as one warpgroup needs for
             its scores and their exponentials one after another.  No step is faster than the bytes it fetches, none of
             the launch faster than memory, and the items fill whole waves of blocks.  The constants are a fit to 90
             times of an H200 (within 5 %; the fastest of two or three kernels is found, or lost by 2 %)
shares       the same, of tiles that are dealt evenly; then one block reads the pieces of an item
combine      rounds of rows, and the parts that one warp does not read at once
fp8, mma     products, exponentials and the widening of bytes follow each other in a warp; other warps and blocks of the
             multiprocessor fill the gaps up to a part
latent       scores, exponentials and values of a tile follow each other while the next tiles come; on an H200 four
             problems of decode, with their second stage, took 2 to 30 % longer than this says
loops        products of plain threads
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import Arch, fitted
from tilewright.arch.rates import (
    ComputeUnits,
    Cycles,
    Fma,
    Launch,
    Memory,
    UnitCache,
    UnitClock,
    UnitMemory,
    UnitMma,
    UnitWgmma,
    UnitWgmmaFp8,
)
from tilewright.backends.gpu import attention as kv_splits
from tilewright.dataclass import NamedTuple


class Constants(NamedTuple):
    """What depends on the device: `attention` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end an item
    unit_macs: UnitWgmma  # products a second of one multiprocessor, at the margin: the rest of a step is in `step`
    hidden_score: Cycles  # of an exponential beside another warpgroup's products, with what belongs to it
    key: Cycles  # of a warpgroup's row of scores, one after another
    step: Cycles  # of barriers and the like
    unit_bytes: UnitCache  # a second that one multiprocessor fetches
    memory: Memory  # bytes a second
    box: Cycles  # of each TMA box that pages come by
    carry: Cycles  # rows of packed heads, which threads carry, where there are few...
    carried: Cycles  # ...and of each element where all are...
    most_carried: Cycles  # ...at most
    row: Cycles  # of a combined row
    more_parts: Cycles  # and of parts that a warp reads after the first
    loop_macs: Fma  # products of the loops a second
    loop_key: Cycles  # of one key after another on one warp


class MmaConstants(NamedTuple):
    """Of the fit `attention_mma`, for the families mma and fp8."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end an item
    sync: Cycles  # of warps that share rows, at each tile
    unit_macs: UnitMma  # products a second of one multiprocessor
    unit_scores: UnitClock  # and exponentials
    widened: UnitClock  # bytes of fp8 a second, each for each warp along rows
    unit_bytes: UnitCache  # a second that one multiprocessor fetches
    memory: Memory  # bytes a second
    busy_bytes: UnitMemory  # under way, that keep a multiprocessor's share of memory busy
    fp8_macs: UnitWgmmaFp8  # products of fp8 by wgmma beside exponentials
    fp8_tile: Cycles  # to wait for and to begin a tile of them


class LatentConstants(NamedTuple):
    """Of the fit `attention_latent`."""

    units: ComputeUnits
    start: Launch
    item: Cycles  # to begin and to end an item
    unit_macs: UnitWgmma  # products a second of one multiprocessor
    unit_scores: UnitClock  # and exponentials
    step: Cycles  # of barriers
    fetch: Cycles  # of a tile that was asked for
    unit_bytes: UnitCache  # a second that one multiprocessor fetches
    memory: Memory  # bytes a second


_FITS: tuple[tuple[str, str, type[Any]], ...] = (
    ("", "attention", Constants),
    ("mma_", "attention_mma", MmaConstants),
    ("latent_", "attention_latent", LatentConstants),
)


def rates(arch: Arch) -> Mapping[str, float]:
    numbers = {"trip": kv_splits.constants(arch.name).trip}
    for prefix, fit, kind in _FITS:
        constants = fitted(fit, kind, arch.name)
        numbers |= {f"{prefix}{name}": value for name, value in constants._asdict().items() if name != "units"}
    return numbers


def arch_numbers(arch: Arch) -> Mapping[str, int]:
    return {"compute_units": max(1, arch.compute_units), "wgmma": "wgmma" in arch.features}
