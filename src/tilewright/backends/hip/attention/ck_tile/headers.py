"""What CK Tile's headers of mid-2025 can be made into: their asserts in words, and what they do not have.

The dispatcher's rules (`rules.py`) were written for headers of several ages and let more pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile.instance import BACKWARD, FP8, Instance
from tilewright.backends.hip.attention.ck_tile.rules import NEWEST
from tilewright.ops.base import Violation

WAVE = 64
BUFFERS = 3  # of K and V in LDS, where they are copied there past the registers
MOST_HEAD = 256
LOADED = ("qr", "qs", "qr_pagedkv")  # pipelines that load K into registers first
DROPPING = ("qr", "qr_async")
NARROW = ("fp8bf16", "fp8fp16", "fp8fp32")
MULTIPLYING = ("fwd", "fwd_splitkv", "fwd_pagedkv", "batch_prefill")
LOG_SPLITS = (3, 4, 5, 6, 7)
APPEND_TILE = 64  # rows of Q and new keys of a block
APPEND_HEADS = (32, 64, 128, 256)
BESIDE = 66  # registers for addresses, fragments and the like: kernels that had fewer left spilled
# Of a split, for each 64 of up to 128 columns of V: windows of K and V that know pages.  Of one tile the split kernel
# wanted 271 registers, the forward one 195; splits with 128 beside their windows fit into 256, those with 154 spilled.
WINDOWS = 20
SMALL_WARP = 16
DRAWN, DRAWN_KEYS = 16, 32  # registers of random numbers, and neighbours that are drawn for together
_AGE = "CK Tile headers of mid-2025"


def threads(one: Instance) -> int:
    """Of a block."""
    if one.family in ("fwd_splitkv_combine", "fwd_appendkv"):
        return 256
    return one.wave[0] * one.wave[1] * one.wave[2] * WAVE


def sub_head(size: int) -> int:
    """The length of a row of Q in registers; 0 where the headers know none."""
    if size in (96, 160):
        return {96: 128, 160: 256}[size]
    return size if size == 192 or (size > 0 and size & (size - 1) == 0) else 0


def _spread(rows: int, columns: int, pack: int) -> int:
    """Elements of a tile in LDS whose packs of columns lie a row and one apart."""
    return (columns // pack - 1) * (rows + 1) * pack + rows * pack


def _random_bytes(one: Instance) -> int:
    """What CK Tile keeps for random numbers, which ours do not need."""
    return (one.wave[0] * one.warp[0] + 1) * one.warp[1] if one.dropout else 0


def lds_bytes(one: Instance) -> int:
    """What a block stages: the larger of K and V, three times where they are copied past the registers."""
    m0, n0, k0, n1, k1, _ = one.tile
    size, pack, row = one.bytes, 16 // one.bytes, 128 // one.bytes
    values = (k1 // pack) * (n1 // (row // pack)) * (row + pack)
    if one.pipeline not in LOADED:
        vector, waves = 4 // size, threads(one) // WAVE
        groups = WAVE // max(1, k1 // vector)
        keys = n0 // max(1, groups * waves) * waves * (WAVE * vector + pack)
        return BUFFERS * max(keys, values) * size + _random_bytes(one)
    keys = _spread(n0, k0, pack) * size
    if one.pipeline == "qs":  # V lies where Q and K lay
        return max(-(-_spread(m0, k0, pack) * size // 16) * 16 + keys, (values - pack) * size)
    return max(keys, values * size, _random_bytes(one))


def width_v(one: Instance) -> int:
    """Elements of V a lane loads at once."""
    total = one.tile[3] * one.tile[4] // threads(one)
    most, least = min(total, 16 // one.bytes), 4 // one.bytes
    if most <= 0:
        return 0
    return most if total // most >= least else total // least


def width_k(one: Instance) -> int:
    """Elements of K a lane loads at once."""
    if one.pipeline not in LOADED:
        return 4 // one.bytes
    return min(16 // one.bytes, one.tile[1] * one.tile[2] // threads(one))


def occupancy(one: Instance) -> int:
    """Blocks of four waves a compute unit is to hold: registers are shared out by it.  Where nobody says, CK Tile's."""
    if one.block_per_cu > 0:
        return one.block_per_cu
    size = one.tile[5]
    biased = one.bias == "bias" and (one.pipeline in LOADED or one.padding[1])
    if one.pipeline not in LOADED and one.dropout and one.bias != "no":
        return 1
    if size <= 32:
        return 1 if one.pipeline not in LOADED and biased and one.mask != "no" else 2
    if size <= 64:
        return 2 if one.pipeline not in LOADED and biased else 3
    if size <= (128 if one.pipeline in LOADED else 192):
        return 1 if biased else 2
    return 1


def registers(one: Instance) -> int:
    """Registers of a lane that hold sums, scores, weights, rows of Q and what is on its way to LDS; the rest is beside
    them."""
    m0, n0, k0, n1, k1, k0max = one.tile
    lanes = threads(one)
    coming = n1 * k1 + (n0 * k0 if one.pipeline in LOADED else 0) + (m0 * k0 if one.pipeline == "qs" else 0)
    scores = m0 * n0 // lanes
    rows = 0 if one.pipeline == "qs" else m0 * sub_head(k0max) * one.bytes // 4 // lanes
    biased = scores * one.bytes // 4 if one.bias == "bias" else 0
    dropping = DRAWN if one.dropout else 0
    placed = scores if _places_kept(one) else 0
    windows = WINDOWS * min(n1, 128) // 64 if one.family == "fwd_splitkv" else 0
    coming = coming * one.bytes // 4 // lanes
    return m0 * n1 // lanes + scores + scores * one.bytes // 4 + rows + biased + coming + dropping + placed + windows


def _places_kept(one: Instance) -> bool:
    """Whether where each score lies is kept from step to step, beside K on its way.

    Built, such kernels spilled: of ALiBi and a window one of one wave (43 registers), of dropout one of small warp
    tiles (26 with a window, 18 without; with a window and no dropout it fits).
    """
    if one.pipeline not in LOADED:
        return False
    biased = one.bias == "alibi" and one.mask != "no" and threads(one) == WAVE
    return biased or (one.dropout and one.warp[0] == SMALL_WARP)


def _lacking(one: Instance, arch: Arch) -> Iterator[Violation]:
    """What is not in these headers at all."""
    if one.family in BACKWARD:
        yield Violation(
            "amd-attention-backward", f"{one.family}: no backward kernel is written yet", "use a forward one"
        )
    if one.pipeline in NEWEST:
        yield Violation("amd-attention-headers", f"{_AGE} have no pipeline {one.pipeline}", "use qr_async")
    if one.pipeline == "qr_nwarp_sshuffle":
        yield Violation("amd-attention-headers", f"pipeline {one.pipeline} is not written for {_AGE}", "use qr")
    if one.sink:
        yield Violation("amd-attention-headers", f"{_AGE} know no sinks", "leave sinks out")
    if one.data_type == "fp32":
        yield Violation("amd-attention-headers", f"{_AGE} have no attention of fp32", "use fp16 or bf16")
    if one.data_type in (*FP8, "mxfp8"):
        yield from _narrow(one)
    if one.qscale not in ("no", "pertensor"):
        yield Violation("amd-attention-headers", f"{_AGE} know no scales of kind {one.qscale}", "scale before the call")
    if one.dropout and (one.family != "fwd" or one.pipeline not in DROPPING):
        yield Violation(
            "amd-attention-dropout",
            f"dropout with {one.family} {one.pipeline}: of {_AGE} only forward kernels with qr and qr_async drop",
            "use fwd with qr or qr_async, or dropout 0",
        )
    if one.family == "batch_prefill":
        yield from _pool(one)


def _narrow(one: Instance) -> Iterator[Violation]:
    """Of fp8."""
    if one.data_type not in NARROW:
        yield Violation("amd-attention-headers", f"{_AGE} have no attention of {one.data_type}", f"use {NARROW[0]}")
    if one.family != "fwd" or one.pipeline != "qr":
        yield Violation(
            "amd-attention-headers",
            f"{one.family} {one.pipeline} of {one.data_type}: of {_AGE} only forward kernels with qr take scales",
            "use fwd with qr, or fp16 or bf16",
        )
    if one.bias == "bias" or one.dropout:
        yield Violation(
            "amd-attention-headers", f"bias or dropout of {one.data_type}: CK Tile proposes no such kernel", "use fp16"
        )


def _pool(one: Instance) -> Iterator[Violation]:
    if one.page_size != 1:
        yield Violation("amd-attention-headers", f"batch_prefill of pages of {one.page_size}: {_AGE} know 1", "use 1")
    if one.kv_memory_layout != "linear":
        yield Violation(
            "amd-attention-headers", f"batch_prefill of {one.kv_memory_layout} pages: {_AGE} know linear ones", "linear"
        )
    if one.kv_lookup_table != "sglang":
        yield Violation(
            "amd-attention-headers",
            f"batch_prefill with a table of {one.kv_lookup_table}: {_AGE} know starts and indices",
            "use sglang's tables",
        )


def _waves(one: Instance, arch: Arch) -> Iterator[Violation]:
    """How a block's waves share its rows."""
    if one.family not in MULTIPLYING:
        return
    if one.wave[1:3] != (1, 1) or one.wave[3:6] != one.wave[:3]:
        yield Violation(
            "amd-attention-wave-grid",
            f"waves {one.wave[:3]} and {one.wave[3:6]}: rows are reduced inside a wave, so both grids are w, 1, 1",
            f"use {one.wave[0]}, 1, 1 for both",
        )
    known = {32: (32, 32, 32)} if one.bytes == 1 else {32: (32, 32, 16), 16: (16, 16, 16)}
    if known.get(one.warp[0]) != tuple(one.warp[:3]) or one.warp[3:6] != one.warp[:3]:
        yield Violation(
            "amd-attention-warp-tile",
            f"warp tiles {one.warp[:3]} and {one.warp[3:6]}: {_AGE} multiply by 32x32x16 or 16x16x16, fp8 by 32x32x32, "
            "twice the same",
            "use 32x32x32" if one.bytes == 1 else "use 32x32x16 or 16x16x16",
        )
    elif one.tile[0] % (one.wave[0] * one.warp[0]):
        yield Violation(
            "amd-attention-rows",
            f"tile_m0 {one.tile[0]} over {one.wave[0]} waves of {one.warp[0]} rows",
            f"use {one.wave[0] * one.warp[0]}",
        )
    if threads(one) > arch.max_threads:
        yield Violation("amd-attention-threads", f"{threads(one)} threads a block", f"use {arch.max_threads} or fewer")


def _steps(one: Instance, arch: Arch) -> Iterator[Violation]:
    """How a tile is walked through."""
    if one.family not in MULTIPLYING:
        return
    _, n0, k0, n1, k1, k0max = one.tile
    if not sub_head(k0max) or k0max > MOST_HEAD:
        yield Violation(
            "amd-attention-k0max",
            f"tile_k0max {k0max}: rows of Q have 32, 64, 96, 128, 160, 192 or 256 elements in these headers",
            "use the next larger of them",
        )
    if k0max % k0 or k0 % one.warp[2]:
        yield Violation("amd-attention-k0", f"tile_k0 {k0} with tile_k0max {k0max}", "use a divisor from 16 up")
    elif one.pipeline in LOADED and k0max // k0 < 2:
        yield Violation(
            "amd-attention-k0", f"{one.pipeline} with one step of tile_k0 {k0}: it needs two", f"use {k0max // 2}"
        )
    if n0 % k1 or k1 % one.warp[5] or n0 % one.warp[1]:
        yield Violation("amd-attention-k1", f"tile_k1 {k1} with tile_n0 {n0}", "use a divisor, 16 or 32")
    if n1 % one.warp[4] or n1 != one.hdim_v:
        yield Violation("amd-attention-n1", f"tile_n1 {n1} with head size {one.hdim_v} of V", f"use {one.hdim_v}")
    if one.dropout and n0 % DRAWN_KEYS:
        yield Violation(
            "amd-attention-dropout",
            f"dropout with tile_n0 {n0}: random numbers are drawn for {DRAWN_KEYS} keys at a time",
            f"use a multiple of {DRAWN_KEYS}",
        )
    if k0max < one.hdim_q:
        yield Violation("amd-attention-k0max", f"tile_k0max {k0max} under the head size {one.hdim_q}", "use a larger")
    if one.pipeline not in LOADED:
        if n0 < 2 * k1:
            yield Violation(
                "amd-attention-async-steps",
                f"{one.pipeline} with one step of tile_k1 {k1} in tile_n0 {n0}: V would stay where it is",
                f"use tile_n0 {2 * k1} or more",
            )
        if k0 != k1:
            yield Violation(
                "amd-attention-async-steps",
                f"{one.pipeline} with tile_k0 {k0} and tile_k1 {k1}: K is copied in steps of tile_k1",
                f"use {k1} for both",
            )
        if not (one.padding[0] and one.padding[2] and one.padding[3]):
            yield Violation(
                "amd-attention-async-pads", f"{one.pipeline} without padding of rows and head sizes", "pad them"
            )


def _dealt(one: Instance, arch: Arch) -> Iterator[Violation]:
    """Tiles of K and V are whole loads of all lanes."""
    if one.family not in MULTIPLYING:
        return
    why = _keys_dealt(one) or _values_dealt(one) or (_rows_dealt(one) if one.pipeline == "qs" else "")
    if why:
        yield Violation("amd-attention-dealt", why, "use more keys a step, or fewer waves")


def _keys_dealt(one: Instance) -> str:
    _, n0, k0, _, k1, _ = one.tile
    waves, width = threads(one) // WAVE, width_k(one)
    depth = k0 if one.pipeline in LOADED else k1
    lanes = depth // width if width else 0
    if width < 1 or not lanes or depth % width or WAVE % lanes or n0 % (WAVE // lanes * waves):
        return f"a tile of K of {n0} by {depth} is no whole number of loads by {waves} waves"
    return ""


def _rows_dealt(one: Instance) -> str:
    """Of Q that goes through LDS a step at a time."""
    m0, k0 = one.tile[0], one.tile[2]
    waves = threads(one) // WAVE
    width = min(16 // one.bytes, m0 * k0 // threads(one))
    lanes = k0 // width if width else 0
    if not lanes or k0 % width or WAVE % lanes or m0 % (WAVE // lanes * waves):
        return f"a tile of Q of {m0} by {k0} is no whole number of loads by {waves} waves"
    return ""


def _values_dealt(one: Instance) -> str:
    n1, k1 = one.tile[3], one.tile[4]
    waves, pack, width = threads(one) // WAVE, 16 // one.bytes, width_v(one)
    bad = f"a tile of V of {k1} by {n1} is no whole number of loads by {waves} waves"
    total = n1 * k1 // (waves * WAVE)
    if width < 1 or n1 * k1 % (waves * WAVE) or total % width or pack % (total // width) or n1 % width:
        return bad
    if (one.bytes == 2 and width % 2) or width & (width - 1):
        return f"{bad}: a lane would load {width} neighbours at once and turn them, and it does so with 1, 2 or 4 words"
    deep = total // width
    across, lanes = n1 // width, pack // deep
    if WAVE % (lanes * across) == 0:
        return "" if k1 == waves * (WAVE // (lanes * across)) * lanes * deep else bad
    shares = lanes * across // WAVE
    if lanes * across % WAVE or lanes % shares or waves % shares:
        return bad
    return "" if k1 == (waves // shares) * shares * (lanes // shares) * deep else bad


def _resources(one: Instance, arch: Arch) -> Iterator[Violation]:
    if one.family in MULTIPLYING and lds_bytes(one) > arch.scratch_bytes:
        yield Violation(
            "amd-attention-lds",
            f"a block stages {lds_bytes(one)} bytes, {arch.name} has {arch.scratch_bytes}",
            "use fewer keys a step",
        )
    if one.family not in MULTIPLYING or not arch.simd_registers:
        return
    waves = max(occupancy(one), -(-threads(one) // WAVE // max(1, arch.simds)))
    own = min(arch.vector_registers + arch.accumulator_registers, arch.simd_registers // waves)
    room = min(own - BESIDE, arch.vector_registers)  # accumulation registers hold sums, and nothing is computed in them
    if registers(one) > room:
        yield Violation(
            "amd-attention-registers",
            f"a lane holds {registers(one)} registers of sums, scores and q; it has {own} with {waves} waves a SIMD, "
            f"and over {room} it spills",
            "use a smaller tile, more waves, or block_per_cu 1",
        )


def _others(one: Instance, arch: Arch) -> Iterator[Violation]:
    """Combine and append, which do not multiply."""
    if one.family == "fwd_splitkv_combine" and one.max_splits_log2 not in LOG_SPLITS:
        yield Violation(
            "amd-attention-splits",
            f"combine of up to 2^{one.max_splits_log2} parts",
            "use 3 to 7: 8 to 128 parts",
        )
    if one.family != "fwd_appendkv":
        return
    m0, n0, k0, n1 = one.tile[:4]
    if (m0, n0) != (APPEND_TILE, APPEND_TILE) or k0 != n1 or k0 not in APPEND_HEADS:
        yield Violation(
            "amd-attention-append-tile",
            f"append with tile {m0}, {n0}, {k0}, {n1}",
            f"use {APPEND_TILE}, {APPEND_TILE} and twice one of {', '.join(map(str, APPEND_HEADS))}",
        )
    elif k0 < one.hdim_q or n1 < one.hdim_v:
        yield Violation("amd-attention-append-tile", f"head sizes over tile_k0 {k0}", "use a larger tile_k0")


RULES: tuple[Callable[[Instance, Arch], Iterator[Violation]], ...] = (_lacking, _waves, _steps, _others)
_ARITHMETIC: tuple[Callable[[Instance, Arch], Iterator[Violation]], ...] = (_dealt, _resources)


def violations(one: Instance, arch: Arch) -> Iterator[Violation]:
    """What keeps these headers from being made into the instance; shapes that are no shapes say only that."""
    found = [each for rule in RULES for each in rule(one, arch)]
    yield from found
    if not found:
        for rule in _ARITHMETIC:
            yield from rule(one, arch)
