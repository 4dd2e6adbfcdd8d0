"""What the forward pipelines of gfx950 ask for that came with CK Tile's headers of late 2025: their asserts in words.

v3               eight waves in two groups that take turns: one loads while the other multiplies.  A lane holds a row
qr_async_trload  K and V are copied past the registers, and V is turned while it is read from LDS
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.backends.hip.attention.ck_tile.instance import Instance, Pads, Tile
from tilewright.ops.base import Violation

Block = tuple[Tile, int, tuple[int, int, int], Pads]  # the tile, waves, their instruction, and edge code

ARCH = "gfx950"
V3, TRLOAD = "v3", "qr_async_trload"
WAVES, WAVE = 8, 64
WARP_TILES = {32: (32, 32, 16), 16: (16, 16, 32)}
ROW_TILE = WARP_TILES[32]  # of v3: its maxima are exchanged between the halves of a wave
BANKS = 64  # of LDS, on gfx950
_ENDS: Pads = (True, True, False, False)
_WHOLE: tuple[Pads, ...] = ((False, False, False, False), (False, False, True, True))
# Blocks that were built, executed and right, which default pools have.  Of trload there are no others: its headers
# hardly assert what a tile must be.  With heads of 128 a tile of 128x64 does not compile (16 reads of LDS under way, a
# wait tells 15 apart), and one of 64x64, by instructions of 16 rows, computes something else.
BLOCKS: Mapping[str, tuple[Block, ...]] = {
    V3: (((256, 32, 128, 128, 32, 128), WAVES, ROW_TILE, _ENDS),),
    TRLOAD: (
        ((128, 64, 32, 64, 32, 64), 4, ROW_TILE, _WHOLE[0]),
        ((32, 32, 64, 64, 32, 64), 1, ROW_TILE, _WHOLE[0]),
        ((16, 32, 64, 64, 32, 64), 1, WARP_TILES[16], _WHOLE[1]),
    ),
}
_VECTOR = 16  # bytes of a lane's load past the registers
HALVES = ("fp16", "bf16")


def lds_bytes(inst: Instance) -> int:
    """What a block stages, as the pipelines count it."""
    return _lds_of_v3(inst) if inst.pipeline == V3 else 0


def _lds_of_v3(inst: Instance) -> int:
    """Two tiles of K and of V each, and a tile of weights that no instruction touches; or the result, if larger."""
    m0, n0, _, n1, k1, _ = inst.tile
    pack, row = _VECTOR // inst.bytes, BANKS * 4 // inst.bytes
    lanes = max(1, k1 // pack)
    issues = n0 // (WAVE // lanes * WAVES) if lanes <= WAVE else 0
    keys = issues * WAVES * (WAVE * pack + pack)
    values = (k1 // pack) * (n1 // (row // pack)) * (row + pack)
    return inst.bytes * max(m0 * n1, 4 * max(keys, values) + m0 * n0)


def violations(inst: Instance) -> Iterator[Violation]:
    name = inst.pipeline
    if inst.family != "fwd" or inst.data_type not in HALVES:
        yield Violation("amd-attention-newest", f"{name} of {inst.family} {inst.data_type}", "use fwd of fp16 or bf16")
    if inst.bias != "no" or inst.logits or inst.dropout:
        yield Violation(
            "amd-attention-newest", f"{name} with a bias, a soft cap or dropout: it knows none", "use qr_async"
        )
    if name == V3:
        yield from _v3(inst)
    elif name == TRLOAD:
        yield from _trload(inst)


def _v3(inst: Instance) -> Iterator[Violation]:
    m0, n0, k0, n1, k1, k0max = inst.tile
    if inst.wave[0] != WAVES or tuple(inst.warp[:3]) != ROW_TILE or m0 != WAVES * ROW_TILE[0]:
        yield Violation(
            "amd-attention-v3-block",
            f"v3 with {m0} rows by {inst.wave[0]} waves of {inst.warp[0]}: two groups of four waves, a row a lane",
            f"use {WAVES * ROW_TILE[0]} rows by {WAVES} waves of 32x32x16",
        )
    whole = n0 == k1 and k0 == k0max == inst.hdim_q and n1 == inst.hdim_v
    if not whole or n0 * k0 % (WAVES * WAVE * _VECTOR // inst.bytes):
        yield Violation(
            "amd-attention-v3-steps",
            f"v3 with tile {inst.tile}: both products are one step, of whole loads by {WAVES} waves",
            f"use {m0}, 32, {k0max}, {inst.hdim_v}, 32, {k0max}",
        )
    if tuple(inst.padding) != (True, True, False, False):
        yield Violation(
            "amd-attention-v3-pads", "v3 with other edge code than of rows and keys", "pad rows and keys alone"
        )


def _trload(inst: Instance) -> Iterator[Violation]:
    tried = [(tile, waves, warp) for tile, waves, warp, _ in BLOCKS[TRLOAD] if tile[5] == inst.hdim_q]
    if (tuple(inst.tile), inst.wave[0], tuple(inst.warp[:3])) not in tried:
        known = "; ".join(f"tile {tile} by {waves} waves of {warp}" for tile, waves, warp in tried)
        yield Violation(
            "amd-attention-trload-block",
            f"{TRLOAD} with tile {inst.tile} by {inst.wave[0]} waves of {inst.warp[:3]}: it is not known to be right",
            f"use {known}" if known else "use qr_async, or heads of 64",
        )
    if tuple(inst.padding) not in _WHOLE:
        yield Violation(
            "amd-attention-trload-pads",
            f"{TRLOAD} with edge code of rows or keys: CK Tile reads whole tiles of them there",
            "pad heads alone, or nothing",
        )
