"""What CK Tile's kernel of dq, dk and dv can be made into: which signatures, and which tiles."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.attention_backward.ck_tile.tiles import TILES, WARP_TILE, CkTileBackwardSchedule, tile_of
from tilewright.errors import either
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import Violation

HALVES = ("fp16", "bf16")
BLOCKS_PER_CU = (1, 2)
_LACKING = {
    "masked": ("a boolean mask", "give a bias that is minus infinity where it hides, or use loops"),
    "softcap": ("a soft cap in its gradients", "use loops"),
    "dbias": ("a bias's gradient of fp32, added where the bias repeats", "use loops"),
    "dalibi": ("a gradient of ALiBi's slopes", "use loops"),
}


def signature_rules(signature: AttentionBackwardSignature, arch: Arch) -> Iterator[Violation]:
    """Why CK Tile has no kernel for a signature, whatever its schedule."""
    s = signature
    if "mfma" not in arch.features or not arch.accumulator_registers or arch.ck_tile_of("attention") is None:
        message = f"CK Tile's gradients on {arch.name}: they multiply with the matrix instructions of gfx90a and up"
        yield Violation("amd-backward-arch", message, "use loops, or gfx90a, gfx942 or gfx950")
        return
    if s.dtype not in HALVES:
        yield Violation("amd-backward-dtype", f"CK Tile headers of mid-2025 have no gradients of {s.dtype}",
                        f"use {either(HALVES)}, or loops")  # fmt: skip
    if s.accumulate not in ("dq", "all"):
        message = f"accumulate {s.accumulate}: CK Tile adds dq up over blocks, in fp32"
        yield Violation("amd-backward-sums", message, "use accumulate dq or all")
    if s.mask == "generic":
        yield Violation("amd-backward-mask", "CK Tile has no sink keys in its gradients", "use loops")
    if s.bias == "tensor" and s.dtype_aux != s.dtype:
        yield Violation("amd-backward-aux", f"a bias of {s.dtype_aux} with {s.dtype}", f"use {s.dtype}")
    for name, (what, remedy) in _LACKING.items():
        if getattr(s, name):
            yield Violation(f"amd-backward-{name}", f"CK Tile knows no {what.removeprefix('a ')}", remedy)
    if not tile_of(s.head_dim, s.head_dim_v):
        message = f"heads of {s.head_dim} and {s.head_dim_v}: CK Tile's gradients hold heads of up to {max(TILES)}"
        yield Violation("amd-backward-heads", message, "use loops")


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
    if h.pipeline == "kr_ktr_vr_iglp" and any(h.pad):
        message = "kr_ktr_vr_iglp orders whole loads, and edge code of heads loads elements"
        yield Violation("amd-backward-pipeline", message, "use kr_ktr_vr, or no edge code")
    if h.pipeline == "kr_ktr_vr_iglp" and s.bias == "tensor":
        message = "kr_ktr_vr_iglp with a bias: it is written over what other waves still read"
        yield Violation("amd-backward-pipeline", message, "use kr_ktr_vr")
    if any(h.pad) and s.bias == "tensor":  # built, one of heads of 64 kept 36 bytes a lane in memory
        message = "a bias with edge code of heads: registers do not hold both"
        yield Violation("amd-backward-registers", message, "use heads of the tile's size, or loops")
    for what, padded, tile, head in (
        ("q and k", h.pad[0], h.tile[7], s.head_dim),
        ("v", h.pad[1], h.tile[8], s.head_dim_v),
    ):
        if tile < head:
            yield Violation("amd-backward-heads", f"a tile of {tile} elements under heads of {head}", "use a larger")
        if not padded and tile > head:
            message = f"no edge code of heads of {what}, and a tile of {tile} elements where heads have {head}"
            yield Violation("amd-backward-whole-heads", message, "pad the heads, or use a tile as large as they are")
