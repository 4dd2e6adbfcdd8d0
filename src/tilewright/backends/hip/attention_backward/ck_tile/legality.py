"""What CK Tile's kernel of dq, dk and dv can be made into: which signatures, and which tiles."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.attention_backward.ck_tile.tiles import TILES, WARP_TILE, CkTileBackwardSchedule
from tilewright.backends.hip.matrix import lane_registers
from tilewright.errors import either
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import Violation

HALVES = ("fp16", "bf16")
BLOCKS_PER_CU = (1, 2)
BIASED_HEADS = 64  # the largest that were executed with a bias
LARGE_HEADS = 256  # whose gradients fill the registers of a wave
# Registers of a lane beside what is counted, and for what dropout draws.  For one block a compute unit, heads of 32 had
# 227 (92 counted), of 64 311, with dropout 351 (152), of 128 393 and 422 (248); by kr_ktr_vr of 64 250, of 128 with
# dropout 348.  For two, 188 to 352 bytes of scratch (heads of 32 and 64 with dropout, on all three archs), on gfx950
# 520 and 740 (of 128 and 256).
BESIDE, DRAWN = {"kr_ktr_vr": 98, "kr_ktr_vr_iglp": 150}, 40
_LACKING = {
    "masked": ("a boolean mask", "give a bias that is minus infinity where it hides, or use loops"),
    "softcap": ("a soft cap in its gradients", "use loops"),
    "dbias": ("a bias's gradient of fp32, added where the bias repeats", "use loops"),
    "dalibi": ("a gradient of ALiBi's slopes", "use loops"),
}


def arch_rules(arch: Arch) -> Iterator[Violation]:
    if "mfma" not in arch.features or not arch.accumulator_registers or arch.ck_tile_of("attention") is None:
        message = f"CK Tile's gradients on {arch.name}: they multiply with the matrix instructions of gfx90a and up"
        yield Violation("amd-backward-arch", message, "use loops, or gfx90a, gfx942 or gfx950")


def common_rules(signature: AttentionBackwardSignature) -> Iterator[Violation]:
    """Of what CK Tile has no gradients, whichever of its three kernels."""
    s = signature
    if s.dtype not in HALVES:
        yield Violation("amd-backward-dtype", f"CK Tile headers of mid-2025 have no gradients of {s.dtype}",
                        f"use {either(HALVES)}, or loops")  # fmt: skip
    if s.head_dim != s.head_dim_v or s.head_dim not in TILES:
        message = f"heads of {s.head_dim} and {s.head_dim_v}: CK Tile's gradients have no such tile"
        yield Violation("amd-backward-heads", message, f"use {either(tuple(map(str, TILES)))} of both, or loops")


def signature_rules(signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
    """Why CK Tile has no kernel for a signature, whatever its schedule."""
    s = signature
    if absent := list(arch_rules(arch)):
        yield from absent
        return
    yield from common_rules(s)
    if s.accumulate not in ("dq", "all"):
        message = f"accumulate {s.accumulate}: CK Tile adds dq up over blocks, in fp32"
        yield Violation("amd-backward-sums", message, "use accumulate dq or all")
    if s.varlen and s.accumulate != "all":  # keys of no block would keep what dk and dv held before
        message = "packed rows, and dk and dv are no sums: a sequence without rows would leave them as they were"
        yield Violation("amd-backward-packed", message, "use accumulate all")
    if s.mask == "generic":
        yield Violation("amd-backward-mask", "CK Tile has no sink keys in its gradients", "use loops")
    if s.bias == "tensor":
        yield from _bias_rules(s)
    for name, (what, remedy) in _LACKING.items():
        if getattr(s, name):
            yield Violation(f"amd-backward-{name}", f"CK Tile knows no {what.removeprefix('a ')}", remedy)


def _bias_rules(s: AttentionBackwardSignature) -> Iterator[Violation]:
    if s.dtype_aux != s.dtype:
        message = f"a bias of {s.dtype_aux} with queries of {s.dtype}: CK Tile reads one of their type"
        yield Violation("amd-backward-bias", message, f"use a bias of {s.dtype}, or tiled")
    if s.varlen or s.head_dim > BIASED_HEADS:
        what = "packed rows" if s.varlen else f"heads of {s.head_dim}"
        yield Violation(
            "amd-backward-bias", f"CK Tile's gradients of {what} with a bias are not proven right", "use tiled"
        )


def registers(signature: AttentionBackwardSignature, schedule: CkTileBackwardSchedule) -> int:
    """Of a lane: scores and their gradients, sums of dq, dk and dv, K (twice) and V as operands, and the rest."""
    (m0, n0, *_, head, head_v), lanes = schedule.tile, schedule.threads
    scores, sums = 2 * m0 * n0, n0 * (head + head_v) + m0 * head
    operands = n0 * (2 * head + head_v) // 2  # of two bytes
    return (scores + sums + operands) // lanes + BESIDE[schedule.pipeline] + DRAWN * signature.dropout


def violations(
    signature: AttentionBackwardSignature, schedule: CkTileBackwardSchedule, arch: Arch
) -> Iterator[Violation]:
    s, h = signature, schedule
    yield from signature_rules(s, arch)
    known = dict(TILES.values())
    if h.tile not in known or h.warp_grid != known[h.tile] or h.warp_tile != WARP_TILE:
        message = f"tile {h.tile} with waves {h.warp_grid} of {h.warp_tile}"
        yield Violation("amd-backward-tile", message, "use a tile of CK Tile's own table (`tilewright specs`)")
        return
    if h.block_per_cu not in BLOCKS_PER_CU:
        yield Violation("amd-backward-occupancy", f"{h.block_per_cu} blocks a compute unit", "use 1 or 2")
    elif (held := registers(s, h)) > (own := lane_registers(h.block_per_cu * h.threads // arch.warp_size, arch)):
        message = f"a lane holds {held} registers; it has {own} with {h.block_per_cu} blocks a compute unit"
        yield Violation("amd-backward-registers", message, "use 1 block a compute unit, or tiled")
    if s.dropout and s.head_dim >= LARGE_HEADS:  # 100 bytes a lane of one of bf16 on gfx90a
        message = f"dropout with heads of {s.head_dim} does not fit their registers"
        yield Violation("amd-backward-registers", message, "use loops")
    if not all(h.pad[:2]):
        message = "CK Tile's gradients without edge code of rows or keys are not proven right"
        yield Violation("amd-backward-rows", message, "pad rows and keys")
    if h.store_randval:
        message = "CK Tile's dropout stores its random bytes, which no call asks for: they follow from the seed"
        yield Violation("amd-backward-randval", message, "leave store_randval out")
    if any(h.pad[2:]):  # one of heads of 128 gave wrong results in the emulator, one with a bias did not fit registers
        message = "CK Tile's edge code of heads in its gradients is not proven right"
        yield Violation("amd-backward-edges", message, f"use heads of {either(tuple(map(str, TILES)))}, or loops")
    # In the emulator two of fp16 that left sums of dq alone were wrong, two of bf16 that left sums of all were right.
    if h.pipeline == "kr_ktr_vr" and (s.dtype == "fp16" or s.accumulate != "all"):
        message = f"kr_ktr_vr of {s.dtype} with sums of {s.accumulate} is not proven right"
        yield Violation("amd-backward-pipeline", message, "use kr_ktr_vr_iglp, or bf16 with accumulate all")
    # Executed with a bias, kr_ktr_vr gave wrong results in the emulator.
    if s.bias == "tensor" and (h.pipeline == "kr_ktr_vr" or h.block_per_cu > 1):
        message = f"{h.pipeline} with a bias, {h.block_per_cu} blocks a compute unit, is not proven right"
        yield Violation("amd-backward-bias", message, "use kr_ktr_vr_iglp and 1 block a compute unit")
    for tile, head in ((h.tile[7], s.head_dim), (h.tile[8], s.head_dim_v)):
        if tile != head:
            message = f"a tile of {tile} elements where heads have {head}, and no edge code of heads"
            yield Violation("amd-backward-whole-heads", message, "use a tile as large as they are")
