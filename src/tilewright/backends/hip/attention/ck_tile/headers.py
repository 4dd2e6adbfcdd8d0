"""What CK Tile's headers can be made into: their asserts in words, and what they do not have.

The dispatcher's rules (`rules.py`) were written for headers of several ages and let more pass.  What the pipelines
assert that only later headers have is in `later.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile import later, versions
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
ROUTES = {
    "fwd": "forward", "fwd_pagedkv": "paged", "batch_prefill": "prefill", "fwd_splitkv": "split",
    "fwd_splitkv_combine": "combine", "fwd_appendkv": "append",
}  # fmt: skip
LOG_SPLITS = (3, 4, 5, 6, 7)
APPEND_TILE = 64  # rows of Q and new keys of a block
APPEND_HEADS = (32, 64, 128, 256)
BESIDE = 66  # registers for addresses, fragments and the like: kernels that had fewer left spilled
# Of a split, for each 64 of up to 128 columns of V: windows of K and V that know pages.  Of one tile the split kernel
# wanted 271 registers, the forward one 195; splits with 128 beside their windows fit into 256, those with 154 spilled.
WINDOWS = 20
# And for distances of ALiBi: one of bf16 with 152 counted of 152 (64x128 by four waves, heads of 128) spilled 13.
DISTANCES = 16
# Fragments of a tile's K and V that the compiler reads ahead, as a share of all: every step is written out.  Of ten
# kernels that were built it is 0.29 to 0.66, most 0.43 to 0.58; they had 41 to 378 registers beside those counted.
READ_AHEAD, LEAST_BESIDE = 0.5, 16
READING = 256  # registers of a lane from which on this was seen; kernels with fewer fit by BESIDE alone
SMALL_WARP = 16
# A copy to LDS past the registers names its place by 16 bits of M0 in CDNA 3's ISA.  gfx950 has 160 KiB: whether it
# takes more bits is not known here, and a kernel of 108 KiB gave NaN where it takes 16 (tests/amd_emulated).
ADDRESSED = 65536
COPIED_BYTES, MOST_WAITED = 4, 63  # of a lane's load past the registers; loads under way that a wait can tell apart
DRAWN, DRAWN_KEYS = 16, 32  # registers of random numbers, and neighbours that are drawn for together
_AGE = "CK Tile headers of mid-2025"


def threads(inst: Instance) -> int:
    """Of a block."""
    if inst.family in ("fwd_splitkv_combine", "fwd_appendkv"):
        return 256
    return inst.wave[0] * inst.wave[1] * inst.wave[2] * WAVE


def sub_head(size: int) -> int:
    """The length of a row of Q in registers; 0 where the headers know none."""
    if size in (96, 160):
        return {96: 128, 160: 256}[size]
    return size if size == 192 or (size > 0 and size & (size - 1) == 0) else 0


def _spread(rows: int, columns: int, pack: int) -> int:
    """Elements of a tile in LDS whose packs of columns lie a row and one apart."""
    return (columns // pack - 1) * (rows + 1) * pack + rows * pack


def _random_bytes(inst: Instance) -> int:
    """What CK Tile keeps for random numbers, which ours do not need."""
    return (inst.wave[0] * inst.warp[0] + 1) * inst.warp[1] if inst.dropout else 0


def lds_bytes(inst: Instance) -> int:
    """What a block stages: the larger of K and V, three times where they are copied past the registers."""
    if inst.pipeline in NEWEST:
        return later.lds_bytes(inst)
    m0, n0, k0, n1, k1, _ = inst.tile
    size, pack, row = inst.bytes, 16 // inst.bytes, 128 // inst.bytes
    values = (k1 // pack) * (n1 // (row // pack)) * (row + pack)
    if inst.pipeline not in LOADED:
        vector, waves = 4 // size, threads(inst) // WAVE
        groups = WAVE // max(1, k1 // vector)
        keys = n0 // max(1, groups * waves) * waves * (WAVE * vector + pack)
        return BUFFERS * max(keys, values) * size + _random_bytes(inst)
    keys = _spread(n0, k0, pack) * size
    if inst.pipeline == "qs":  # V lies where Q and K lay
        return max(-(-_spread(m0, k0, pack) * size // 16) * 16 + keys, (values - pack) * size)
    return max(keys, values * size, _random_bytes(inst))


def width_v(inst: Instance) -> int:
    """Elements of V a lane loads at once."""
    total = inst.tile[3] * inst.tile[4] // threads(inst)
    most, least = min(total, 16 // inst.bytes), 4 // inst.bytes
    if most <= 0:
        return 0
    return most if total // most >= least else total // least


def width_k(inst: Instance) -> int:
    """Elements of K a lane loads at once."""
    if inst.pipeline not in LOADED:
        return 4 // inst.bytes
    return min(16 // inst.bytes, inst.tile[1] * inst.tile[2] // threads(inst))


def occupancy(inst: Instance) -> int:
    """Blocks of four waves a compute unit is to hold: registers are shared out by it.  Where nobody says, CK Tile's."""
    if inst.block_per_cu > 0:
        return inst.block_per_cu
    size = inst.tile[5]
    biased = inst.bias == "bias" and (inst.pipeline in LOADED or inst.padding[1])
    if inst.pipeline not in LOADED and inst.dropout and inst.bias != "no":
        return 1
    if size <= 32:
        return 1 if inst.pipeline not in LOADED and biased and inst.mask != "no" else 2
    if size <= 64:
        return 2 if inst.pipeline not in LOADED and biased else 3
    if size <= (128 if inst.pipeline in LOADED else 192):
        return 1 if biased else 2
    return 1


def registers(inst: Instance) -> int:
    """Registers of a lane that hold sums, scores, weights, rows of Q and what is on its way to LDS; the rest is beside
    them."""
    m0, n0, k0, n1, k1, k0max = inst.tile
    lanes = threads(inst)
    coming = n1 * k1 + (n0 * k0 if inst.pipeline in LOADED else 0) + (m0 * k0 if inst.pipeline == "qs" else 0)
    scores = m0 * n0 // lanes
    rows = 0 if inst.pipeline == "qs" else m0 * sub_head(k0max) * inst.bytes // 4 // lanes
    biased = _biased(inst)
    dropping = DRAWN if inst.dropout else 0
    placed = scores if _places_kept(inst) else 0
    windows = _windows(inst) + _places_in_pages(inst)
    windows += DISTANCES if inst.family == "fwd_splitkv" and inst.bias == "alibi" else 0
    coming = coming * inst.bytes // 4 // lanes
    return m0 * n1 // lanes + scores + scores * inst.bytes // 4 + rows + biased + coming + dropping + placed + windows


def _places_in_pages(inst: Instance) -> int:
    """Registers of a lane for where each key lies that it loads in a step: slots of pages lie anywhere, so every load
    of K and V has a slot and an offset of its own.

    Of few waves they are many: bf16 with heads of 128 (qr_async, 256 registers) had 120 bytes of scratch with one wave
    (32x64: 24 loads beside 176 registers counted), 8 with two (64x64: 12 beside 160), none with four (6 beside 152).
    """
    if inst.family != "batch_prefill" or threads(inst) >= 256:
        return 0
    _, n0, _, n1, k1, _ = inst.tile
    keys, values = (n0 * k1 // max(1, width_k(inst)), n1 * k1 // max(1, width_v(inst)))
    return 2 * (keys + values) // threads(inst)


def _places_kept(inst: Instance) -> bool:
    """Whether where each score lies is kept from step to step, beside K on its way.

    Built, such kernels spilled: of ALiBi and a window one of one wave (43 registers), of dropout one of small warp
    tiles (26 with a window, 18 without; with a window and no dropout it fits).
    """
    if inst.pipeline not in LOADED:
        return False
    biased = inst.bias == "alibi" and inst.mask != "no" and threads(inst) == WAVE
    return biased or (inst.dropout and inst.warp[0] == SMALL_WARP)


def _share(inst: Instance, arch: Arch) -> tuple[int, int]:
    """Waves of a SIMD, and the registers that leaves to a lane of each."""
    waves = max(occupancy(inst), -(-threads(inst) // WAVE // max(1, arch.simds)))
    return waves, min(arch.vector_registers + arch.accumulator_registers, arch.simd_registers // waves)


def fragments(inst: Instance) -> int:
    """Registers of a lane that a whole tile of K and V would take as operands, which no two waves share; with qs those
    of Q too."""
    m0, n0, _, n1, _, k0max = inst.tile
    rows = m0 // max(1, inst.wave[0]) * k0max if inst.pipeline == "qs" else 0
    return (n0 * (k0max + n1) + rows) * inst.bytes // 4 // WAVE


def room(inst: Instance, arch: Arch) -> int:
    """Registers of a lane above which kernels spill; accumulation registers hold sums, and nothing is computed in
    them."""
    own, beside = _share(inst, arch)[1], BESIDE
    if own >= READING:
        counted = _windows(inst) + _biased(inst)  # these are in what was read ahead, too
        beside = max(beside, LEAST_BESIDE + int(READ_AHEAD * fragments(inst)) - counted)
    return min(own - beside, arch.vector_registers)


def _biased(inst: Instance) -> int:
    return inst.tile[0] * inst.tile[1] // threads(inst) * inst.bytes // 4 if inst.bias == "bias" else 0


def _windows(inst: Instance) -> int:
    return WINDOWS * min(inst.tile[3], 128) // 64 if inst.family == "fwd_splitkv" else 0


def _lacking(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """What is not in these headers at all."""
    if inst.family in BACKWARD:
        yield Violation(
            "amd-attention-backward", f"{inst.family}: no backward kernel is written yet", "use a forward one"
        )
    kernel, version = f"{ROUTES.get(inst.family, inst.family)} {inst.pipeline}", versions.current()
    if inst.family not in BACKWARD and kernel not in versions.written(version):
        have = " or ".join(versions.having(kernel))
        here = "; ".join(sorted(versions.written(version))) or "none of CK Tile's"
        yield Violation(
            "amd-attention-headers",
            f"{kernel} is not written for CK Tile headers of {version}",
            f"set TILEWRIGHT_CK_TILE to headers of {have}" if have else f"of {version} there are: {here}",
        )
    if inst.sink:
        yield Violation("amd-attention-headers", f"{_AGE} know no sinks", "leave sinks out")
    if inst.data_type == "fp32":
        yield Violation("amd-attention-headers", f"{_AGE} have no attention of fp32", "use fp16 or bf16")
    if inst.data_type in (*FP8, "mxfp8"):
        yield from _narrow(inst)
    if inst.qscale not in ("no", "pertensor"):
        yield Violation(
            "amd-attention-headers", f"{_AGE} know no scales of kind {inst.qscale}", "scale before the call"
        )
    if inst.dropout and (inst.family != "fwd" or inst.pipeline not in DROPPING):
        yield Violation(
            "amd-attention-dropout",
            f"dropout with {inst.family} {inst.pipeline}: of {_AGE} only forward kernels with qr and qr_async drop",
            "use fwd with qr or qr_async, or dropout 0",
        )
    if inst.family == "batch_prefill":
        yield from _pool(inst)


def _narrow(inst: Instance) -> Iterator[Violation]:
    """Of fp8."""
    if inst.data_type not in NARROW:
        yield Violation("amd-attention-headers", f"{_AGE} have no attention of {inst.data_type}", f"use {NARROW[0]}")
    if inst.family != "fwd" or inst.pipeline != "qr":
        yield Violation(
            "amd-attention-headers",
            f"{inst.family} {inst.pipeline} of {inst.data_type}: of {_AGE} only forward kernels with qr take scales",
            "use fwd with qr, or fp16 or bf16",
        )
    if inst.bias == "bias" or inst.dropout:
        yield Violation(
            "amd-attention-headers", f"bias or dropout of {inst.data_type}: CK Tile proposes no such kernel", "use fp16"
        )


def _pool(inst: Instance) -> Iterator[Violation]:
    if inst.page_size != 1:
        yield Violation("amd-attention-headers", f"batch_prefill of pages of {inst.page_size}: {_AGE} know 1", "use 1")
    if inst.kv_memory_layout != "linear":
        yield Violation(
            "amd-attention-headers",
            f"batch_prefill of {inst.kv_memory_layout} pages: {_AGE} know linear ones",
            "linear",
        )
    if inst.kv_lookup_table != "sglang":
        yield Violation(
            "amd-attention-headers",
            f"batch_prefill with a table of {inst.kv_lookup_table}: {_AGE} know starts and indices",
            "use sglang's tables",
        )


def _waves(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """How a block's waves share its rows."""
    if inst.family not in MULTIPLYING:
        return
    if inst.wave[1:3] != (1, 1) or inst.wave[3:6] != inst.wave[:3]:
        yield Violation(
            "amd-attention-wave-grid",
            f"waves {inst.wave[:3]} and {inst.wave[3:6]}: rows are reduced inside a wave, so both grids are w, 1, 1",
            f"use {inst.wave[0]}, 1, 1 for both",
        )
    if inst.pipeline in NEWEST:
        known = later.WARP_TILES
    else:
        known = {32: (32, 32, 32)} if inst.bytes == 1 else {32: (32, 32, 16), 16: (16, 16, 16)}
    if known.get(inst.warp[0]) != tuple(inst.warp[:3]) or inst.warp[3:6] != inst.warp[:3]:
        yield Violation(
            "amd-attention-warp-tile",
            f"warp tiles {inst.warp[:3]} and {inst.warp[3:6]}: {_AGE} multiply by 32x32x16 or 16x16x16, "
            "fp8 by 32x32x32, twice the same",
            "use 32x32x32" if inst.bytes == 1 else "use 32x32x16 or 16x16x16",
        )
    elif inst.tile[0] % (inst.wave[0] * inst.warp[0]):
        yield Violation(
            "amd-attention-rows",
            f"tile_m0 {inst.tile[0]} over {inst.wave[0]} waves of {inst.warp[0]} rows",
            f"use {inst.wave[0] * inst.warp[0]}",
        )
    if threads(inst) > arch.max_threads:
        yield Violation("amd-attention-threads", f"{threads(inst)} threads a block", f"use {arch.max_threads} or fewer")


def _steps(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """How a tile is walked through."""
    if inst.family not in MULTIPLYING:
        return
    if inst.pipeline in NEWEST:
        yield from later.violations(inst)
        return
    _, n0, k0, n1, k1, k0max = inst.tile
    if not sub_head(k0max) or k0max > MOST_HEAD:
        yield Violation(
            "amd-attention-k0max",
            f"tile_k0max {k0max}: rows of Q have 32, 64, 96, 128, 160, 192 or 256 elements in these headers",
            "use the next larger of them",
        )
    if k0max % k0 or k0 % inst.warp[2]:
        yield Violation("amd-attention-k0", f"tile_k0 {k0} with tile_k0max {k0max}", "use a divisor from 16 up")
    elif inst.pipeline in LOADED and k0max // k0 < 2:
        yield Violation(
            "amd-attention-k0", f"{inst.pipeline} with one step of tile_k0 {k0}: it needs two", f"use {k0max // 2}"
        )
    if n0 % k1 or k1 % inst.warp[5] or n0 % inst.warp[1]:
        yield Violation("amd-attention-k1", f"tile_k1 {k1} with tile_n0 {n0}", "use a divisor, 16 or 32")
    if n1 % inst.warp[4] or n1 != inst.hdim_v:
        yield Violation("amd-attention-n1", f"tile_n1 {n1} with head size {inst.hdim_v} of V", f"use {inst.hdim_v}")
    if inst.dropout and n0 % DRAWN_KEYS:
        yield Violation(
            "amd-attention-dropout",
            f"dropout with tile_n0 {n0}: random numbers are drawn for {DRAWN_KEYS} keys at a time",
            f"use a multiple of {DRAWN_KEYS}",
        )
    if k0max < inst.hdim_q:
        yield Violation("amd-attention-k0max", f"tile_k0max {k0max} under the head size {inst.hdim_q}", "use a larger")
    if inst.pipeline not in LOADED:
        if n0 < 2 * k1:
            yield Violation(
                "amd-attention-async-steps",
                f"{inst.pipeline} with one step of tile_k1 {k1} in tile_n0 {n0}: V would stay where it is",
                f"use tile_n0 {2 * k1} or more",
            )
        if k0 != k1:
            yield Violation(
                "amd-attention-async-steps",
                f"{inst.pipeline} with tile_k0 {k0} and tile_k1 {k1}: K is copied in steps of tile_k1",
                f"use {k1} for both",
            )
        copies = n0 * k1 * inst.bytes // (COPIED_BYTES * threads(inst))
        if copies > MOST_WAITED:
            yield Violation(
                "amd-attention-async-loads",
                f"{inst.pipeline} with {copies} loads of a lane for {n0} keys: a wait counts up to {MOST_WAITED}",
                "use more waves, or fewer keys a step",
            )
        if not (inst.padding[0] and inst.padding[2] and inst.padding[3]):
            yield Violation(
                "amd-attention-async-pads", f"{inst.pipeline} without padding of rows and head sizes", "pad them"
            )


def _dealt(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """Tiles of K and V are whole loads of all lanes."""
    if inst.family not in MULTIPLYING or inst.pipeline in NEWEST:
        return
    why = _keys_dealt(inst) or _values_dealt(inst) or (_rows_dealt(inst) if inst.pipeline == "qs" else "")
    if why:
        yield Violation("amd-attention-dealt", why, "use more keys a step, or fewer waves")


def _keys_dealt(inst: Instance) -> str:
    _, n0, k0, _, k1, _ = inst.tile
    waves, width = threads(inst) // WAVE, width_k(inst)
    depth = k0 if inst.pipeline in LOADED else k1
    lanes = depth // width if width else 0
    if width < 1 or not lanes or depth % width or WAVE % lanes or n0 % (WAVE // lanes * waves):
        return f"a tile of K of {n0} by {depth} is no whole number of loads by {waves} waves"
    return ""


def _rows_dealt(inst: Instance) -> str:
    """Of Q that goes through LDS a step at a time."""
    m0, k0 = inst.tile[0], inst.tile[2]
    waves = threads(inst) // WAVE
    width = min(16 // inst.bytes, m0 * k0 // threads(inst))
    lanes = k0 // width if width else 0
    if not lanes or k0 % width or WAVE % lanes or m0 % (WAVE // lanes * waves):
        return f"a tile of Q of {m0} by {k0} is no whole number of loads by {waves} waves"
    return ""


def _values_dealt(inst: Instance) -> str:
    n1, k1 = inst.tile[3], inst.tile[4]
    waves, pack, width = threads(inst) // WAVE, 16 // inst.bytes, width_v(inst)
    bad = f"a tile of V of {k1} by {n1} is no whole number of loads by {waves} waves"
    total = n1 * k1 // (waves * WAVE)
    if width < 1 or n1 * k1 % (waves * WAVE) or total % width or pack % (total // width) or n1 % width:
        return bad
    if (inst.bytes == 2 and width % 2) or width & (width - 1):
        return f"{bad}: a lane would load {width} neighbours at once and turn them, and it does so with 1, 2 or 4 words"
    deep = total // width
    across, lanes = n1 // width, pack // deep
    if WAVE % (lanes * across) == 0:
        return "" if k1 == waves * (WAVE // (lanes * across)) * lanes * deep else bad
    shares = lanes * across // WAVE
    if lanes * across % WAVE or lanes % shares or waves % shares:
        return bad
    return "" if k1 == (waves // shares) * shares * (lanes // shares) * deep else bad


def _resources(inst: Instance, arch: Arch) -> Iterator[Violation]:
    within = arch.scratch_bytes if inst.pipeline in LOADED else min(arch.scratch_bytes, ADDRESSED)
    if inst.family in MULTIPLYING and lds_bytes(inst) > within:
        why = "" if within == arch.scratch_bytes else " within what copies past the registers are known to address"
        yield Violation(
            "amd-attention-lds",
            f"a block stages {lds_bytes(inst)} bytes, {arch.name} has {within}{why}",
            "use fewer keys a step",
        )
    if inst.family not in MULTIPLYING or not arch.simd_registers:
        return
    waves, own = _share(inst, arch)
    if registers(inst) > (most := room(inst, arch)):
        yield Violation(
            "amd-attention-registers",
            f"a lane holds {registers(inst)} registers of sums, scores and q; it has {own} with {waves} waves a SIMD, "
            f"and over {most} it spills",
            "use a smaller tile, fewer keys a tile, more waves, or block_per_cu 1",
        )


def _others(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """Combine and append, which do not multiply."""
    if inst.family == "fwd_splitkv_combine" and inst.max_splits_log2 not in LOG_SPLITS:
        yield Violation(
            "amd-attention-splits",
            f"combine of up to 2^{inst.max_splits_log2} parts",
            "use 3 to 7: 8 to 128 parts",
        )
    if inst.family != "fwd_appendkv":
        return
    m0, n0, k0, n1 = inst.tile[:4]
    if (m0, n0) != (APPEND_TILE, APPEND_TILE) or k0 != n1 or k0 not in APPEND_HEADS:
        yield Violation(
            "amd-attention-append-tile",
            f"append with tile {m0}, {n0}, {k0}, {n1}",
            f"use {APPEND_TILE}, {APPEND_TILE} and twice one of {', '.join(map(str, APPEND_HEADS))}",
        )
    elif k0 < inst.hdim_q or n1 < inst.hdim_v:
        yield Violation("amd-attention-append-tile", f"head sizes over tile_k0 {k0}", "use a larger tile_k0")


RULES: tuple[Callable[[Instance, Arch], Iterator[Violation]], ...] = (_lacking, _waves, _steps, _others)
_ARITHMETIC: tuple[Callable[[Instance, Arch], Iterator[Violation]], ...] = (_dealt, _resources)


def violations(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """What keeps these headers from being made into the instance; shapes that are no shapes say only that."""
    broken = [each for rule in RULES for each in rule(inst, arch)]
    yield from broken
    if not broken:
        for rule in _ARITHMETIC:
            yield from rule(inst, arch)
