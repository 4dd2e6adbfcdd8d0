"""The dispatcher's blocks, as headers of mid-2025 can have them.

Its tables were written for headers of several ages.  What they say in one word is kept in the nearest that these
headers have, so that a pool by a profile's name holds a kernel wherever the profile has one:

    instruction 16x16x32     16x16x16: these headers take that one whatever is declared
    qr_async                 K is copied in steps of the second product, so both have the same
                             no edge code of a head's elements: rows of Q are as long as the head
    V of 96, 160, 192        lies in 128 or 256 columns: lanes share out powers of two (192 itself is dealt wrongly)
    fp8 with qr_async        qr: the only pipeline that takes fp8
    splits, pages            edge code of keys: parts and last pages end anywhere
    too few registers        block_per_cu 1, which leaves a block twice as many (`WIDE_V`: four waves at most)
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.hip.attention.ck_tile import headers
from tilewright.backends.hip.attention.ck_tile import tiles as amd_tiles
from tilewright.backends.hip.attention.ck_tile.instance import FP8, Instance, Pads
from tilewright.backends.hip.attention.ck_tile.rules import NEWEST
from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule, scheduled

COLUMNS_OF_V = {96: 128, 160: 256, 192: 256}
_INSTRUCTIONS = {(16, 16, 32): (16, 16, 16)}
# Of qr_async with instructions of 16 rows, or with more than 128 columns of V: a lane wants far more than what is
# counted.  With the 256 registers that a second wave of its SIMD leaves it, 64x192x32x256 of four waves (184 counted)
# had 508 bytes of scratch, 128x96x32x256 of eight (132) 112, 128x256x32x128 of eight (156) 1,056; 128x128 of eight
# (104) none.
WIDE_V, WAVES_ALONE, SMALL, COUNTED = 128, 4, 16, 110
_ENDING = ("fwd_splitkv", "fwd_pagedkv")


def read(inst: Instance) -> Instance:
    """What is computed, as far as blocks depend on it: what is read here and by the count of registers."""
    kept = {name: getattr(inst, name) for name in ("arch", "family", "data_type", "hdim_q", "hdim_v", "dropout")}
    masked = inst.bias != "no" and inst.mask != "no"
    return Instance(**kept, bias=inst.bias, mask="top_left" if masked else "no")


@lru_cache(maxsize=2048)
def blocks(computed: Instance, pipeline: str, padding: Pads) -> tuple[CkTileAttentionSchedule, ...]:
    """The schedules of a proposal of the dispatcher: its pipeline and edge code with every tile it has for them."""
    inst = replace(computed, pipeline=pipeline, padding=padding)
    want = amd_tiles.Wanted(inst.data_type, inst.hdim_q, inst.hdim_v, inst.pipeline, inst.arch)
    chosen = amd_tiles.tiles(want) if inst.family == "fwd" else amd_tiles.paged_tiles(want)
    rows, keys, qk, v = padding
    pads: Pads = (rows, keys or inst.family in _ENDING, qk, v)
    arch = arch_by_name(inst.arch)
    proposed = (
        CkTileAttentionSchedule(
            inst.pipeline, amd_tiles.block(each, want, inst.family), (amd_tiles.warps(each), 1, 1), each.warp, pads
        )
        for each in chosen
    )
    fitted = dict.fromkeys(_fitted(schedule, inst, arch) for schedule in proposed)
    return tuple(
        schedule
        for schedule in fitted
        if schedule.warp_grid[0] <= WAVES_ALONE or not _is_crowded(schedule, scheduled(inst, schedule))
    )


def _is_crowded(schedule: CkTileAttentionSchedule, kernel: Instance) -> bool:
    """Whether a lane wants more registers than the rule of legality counts (above)."""
    hungry = schedule.tile[3] > WIDE_V or schedule.warp_tile[0] == SMALL
    return schedule.pipeline == "qr_async" and hungry and headers.registers(kernel) > COUNTED


def _fitted(schedule: CkTileAttentionSchedule, inst: Instance, arch: Arch) -> CkTileAttentionSchedule:
    if schedule.pipeline in NEWEST:
        return schedule
    m0, n0, k0, n1, k1, k0max = schedule.tile
    pipeline = "qr" if inst.data_type in FP8 and inst.family == "fwd" else schedule.pipeline
    if pipeline not in headers.LOADED:
        k1, k0max = k0, inst.hdim_q
    tile = (m0, n0, k0, COLUMNS_OF_V.get(n1, n1), k1, k0max)
    warp = _INSTRUCTIONS.get(schedule.warp_tile, schedule.warp_tile)
    schedule = CkTileAttentionSchedule(pipeline, tile, schedule.warp_grid, warp, schedule.pad)
    kernel = scheduled(inst, schedule)
    spills = headers.registers(kernel) > headers.room(kernel, arch)
    if not spills and not (_is_crowded(schedule, kernel) and schedule.warp_grid[0] <= WAVES_ALONE):
        return schedule
    alone = replace(schedule, block_per_cu=1)
    more = scheduled(inst, alone)
    return schedule if headers.registers(more) > headers.room(more, arch) else alone
