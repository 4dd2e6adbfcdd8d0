"""What a configuration of CK Tile's attention must keep to, whatever the version of its headers: rules V1 to V33.

They are the dispatcher's own, each under a name that says what it is about.  Where it only warns (V7, V10, V33), a
kernel is refused here: what nobody has measured or cannot be made is no kernel to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tilewright.arch import Arch
from tilewright.backends.hip.attention.ck_tile.instance import BACKWARD, FAMILIES, FORWARD, WORDS, Instance
from tilewright.backends.hip.attention.ck_tile.tiles import HEAD_SIZES
from tilewright.ops.base import Violation

Rule = Callable[[Instance, Arch], Iterator[Violation]]

COMBINE_N1 = 32
NEWEST = ("qr_async_trload", "qr_async_trload_v3", "v3")
NEWEST_SIZES = (64, 128)
_ODD_HEADS = (192, 128)


def _facts(arch: Arch, what: str) -> tuple[str, ...]:
    return (arch.ck_tile_of("attention") or {}).get(what, ())


def _arch(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V1 and V3."""
    if arch.ck_tile_of("attention") is None:
        yield Violation(
            "amd-attention-arch", f"CK Tile has no attention for {arch.name}", "use gfx90a, gfx942 or gfx950"
        )
    elif inst.data_type not in _facts(arch, "dtypes"):
        yield Violation(
            "amd-attention-dtype",
            f"attention of {inst.data_type} on {arch.name}: it has no matrix instruction for it",
            f"use {', '.join(_facts(arch, 'dtypes'))}",
        )


def _words(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V2, V4, V5, and words that mean nothing."""
    if inst.family not in FAMILIES:
        yield Violation("amd-attention-family", f"{inst.family!r} is no family", f"use {', '.join(FORWARD)}")
    if inst.family in BACKWARD and inst.data_type not in ("fp32", "fp16", "bf16"):
        yield Violation("amd-attention-bwd-dtype", f"{inst.family} of {inst.data_type}", "use fp32, fp16 or bf16")
    if inst.family in FORWARD and inst.family != "fwd_appendkv" and inst.data_type not in HEAD_SIZES:
        yield Violation("amd-attention-dtype", f"{inst.data_type!r} is no element type", f"use {', '.join(HEAD_SIZES)}")
    for kind, known in WORDS.items():
        if getattr(inst, kind) not in known:
            yield Violation(f"amd-attention-{kind}", f"{kind} {getattr(inst, kind)!r}", f"use {', '.join(known)}")


def _pipeline(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V6 to V8, V12."""
    if inst.family != "fwd_splitkv_combine" and arch.ck_tile_of("attention") is not None:
        known = _facts(arch, "pipelines")
        if inst.pipeline in NEWEST and inst.pipeline not in known:
            yield Violation(
                "amd-attention-trload",
                f"pipeline {inst.pipeline} on {arch.name}, which does not read LDS transposed",
                "use qr_async",
            )
        elif inst.pipeline not in known:
            yield Violation(
                "amd-attention-pipeline", f"pipeline {inst.pipeline} on {arch.name}", f"use {', '.join(known)}"
            )
    if inst.pipeline in NEWEST and (inst.hdim_q != inst.hdim_v or inst.hdim_q not in NEWEST_SIZES):
        yield Violation(
            "amd-attention-trload-heads",
            f"pipeline {inst.pipeline} with head sizes {inst.hdim_q} and {inst.hdim_v}",
            "use 64 and 64 or 128 and 128, or qr_async",
        )


def _heads(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V9 to V11."""
    if inst.hdim_q <= 0 or inst.hdim_v <= 0 or inst.hdim_q % 8 or inst.hdim_v % 8:
        yield Violation(
            "amd-attention-head-size",
            f"head sizes {inst.hdim_q} and {inst.hdim_v} are not both multiples of 8",
            "pad them to multiples of 8",
        )
    if (inst.hdim_q, inst.hdim_v) == _ODD_HEADS and (inst.bias != "no" or inst.dropout):
        yield Violation(
            "amd-attention-192x128",
            "bias or dropout with head sizes 192 and 128: CK Tile has no such kernel",
            "leave bias and dropout out, or use 192 and 192",
        )
    if inst.logits and inst.bias != "no":
        yield Violation(
            "amd-attention-softcap-bias",
            f"a soft cap with bias {inst.bias}: the pipelines do one or the other",
            "leave one of them out",
        )


def _lengths(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V13, V15, V16."""
    tile = 9 if inst.family == "bwd_dq_dk_dv" else 6
    for what, values, count in (("tile", inst.tile, tile), ("wave", inst.wave, 9), ("warp", inst.warp, 9)):
        if len(values) != count:
            yield Violation(
                "amd-attention-lengths", f"{what} has {len(values)} numbers, not {count}", f"give {count} numbers"
            )
        elif any(value <= 0 for value in values[:6]):
            yield Violation("amd-attention-lengths", f"{what} {values} has a number under 1", "give positive numbers")
    if inst.block_per_cu <= 0 and inst.block_per_cu != -1:
        yield Violation(
            "amd-attention-occupancy",
            f"block_per_cu {inst.block_per_cu}",
            "use -1 (CK Tile's own choice) or 1 and more",
        )
    if inst.num_wave_groups <= 0:
        yield Violation("amd-attention-wave-groups", f"num_wave_groups {inst.num_wave_groups}", "use 1")


def _interleave(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V14: with head size 256 the instructions of qr are interleaved by eights."""
    numbers = (*inst.tile[:3], *inst.warp[:3], *inst.wave[:2])
    if inst.pipeline != "qr" or inst.hdim_q != 256 or arch.family != "cdna" or len(numbers) < 8 or min(numbers) <= 0:
        return
    m, n, k = (inst.tile[i] // inst.warp[i] for i in range(3))
    turns = m * n * k // (inst.wave[0] * inst.wave[1])
    if turns % 8:
        yield Violation(
            "amd-attention-256-eights",
            f"qr with head size 256: a wave multiplies {turns} times a step, no multiple of 8",
            "use a larger tile_n0 or tile_k0",
        )


def _rows_of_v(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V17, V24, V30, V32, V33: V has rows of head sizes everywhere."""
    if inst.vlayout != "r":
        yield Violation(
            "amd-attention-v-rows", f"V with layout {inst.vlayout!r} in {inst.family}", "use r: a key's values in a row"
        )


def _prefill(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V18 to V21, and V34 of newer versions, which no dtype here can break."""
    if inst.family != "batch_prefill":
        return
    if not inst.paged_kv:
        yield Violation("amd-attention-prefill-pages", "batch_prefill without pages", "use fwd, or paged_kv true")
    if inst.page_size <= 0 or inst.page_size & (inst.page_size - 1):
        yield Violation(
            "amd-attention-page-size", f"page size {inst.page_size} is no power of two", "use 1, 2, 4 and so on"
        )
    if inst.mode != "group":
        yield Violation("amd-attention-prefill-packed", f"batch_prefill with mode {inst.mode}", "use group")
    if inst.pipeline != "qr_async":
        yield Violation("amd-attention-prefill-pipeline", f"batch_prefill with {inst.pipeline}", "use qr_async")


def _append(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V22 and V23."""
    if inst.family != "fwd_appendkv":
        return
    if inst.mode != "batch":
        yield Violation("amd-attention-append-batch", f"fwd_appendkv with mode {inst.mode}", "use batch")
    if inst.pipeline != "appendkv":
        yield Violation("amd-attention-append-pipeline", f"fwd_appendkv with {inst.pipeline}", "use appendkv")


def _combine(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V25 to V27."""
    if inst.mode not in ("batch", "group"):
        yield Violation("amd-attention-mode", f"mode {inst.mode!r}", "use batch or group")
    if inst.family != "fwd_splitkv_combine" or len(inst.tile) < 4:
        return
    n1 = inst.tile[3]
    if n1 != COMBINE_N1:
        yield Violation("amd-attention-combine-n1", f"combine with tile_n1 {n1}", f"use {COMBINE_N1}")
    if inst.hdim_v < n1 or inst.hdim_v % max(1, n1):
        yield Violation(
            "amd-attention-combine-heads",
            f"combine with head size {inst.hdim_v}, no multiple of tile_n1 {n1}",
            f"use a head size of V that is a multiple of {COMBINE_N1}",
        )


def _paged(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """V28, V29, V31."""
    if inst.family == "fwd_pagedkv":
        if inst.pipeline != "qr_pagedkv":
            yield Violation("amd-attention-paged-pipeline", f"fwd_pagedkv with {inst.pipeline}", "use qr_pagedkv")
        if not inst.paged_kv:
            yield Violation("amd-attention-paged-pages", "fwd_pagedkv without pages", "use fwd, or paged_kv true")
    if inst.family == "fwd_splitkv" and inst.pipeline not in ("qr", "qr_nwarp_sshuffle"):
        yield Violation(
            "amd-attention-split-pipeline", f"fwd_splitkv with {inst.pipeline}", "use qr or qr_nwarp_sshuffle"
        )
    if inst.family == "fwd" and inst.pipeline not in ("qr", "qr_async", "qs", *NEWEST):
        yield Violation("amd-attention-pipeline", f"fwd with {inst.pipeline}", "use qr, qr_async or qs")


RULES: Mapping[str, Rule] = {
    "V1 V3": _arch,
    "V2 V4 V5": _words,
    "V6 V7 V8 V12": _pipeline,
    "V9 V10 V11": _heads,
    "V13 V15 V16": _lengths,
    "V14": _interleave,
    "V17 V24 V30 V32 V33": _rows_of_v,
    "V18 V19 V20 V21": _prefill,
    "V22 V23": _append,
    "V25 V26 V27": _combine,
    "V28 V29 V31": _paged,
}


def violations(inst: Instance, arch: Arch) -> Iterator[Violation]:
    """Every rule the instance breaks; of an arch without attention only that."""
    if arch.ck_tile_of("attention") is None:
        yield from _arch(inst, arch)
        return
    for rule in RULES.values():
        yield from rule(inst, arch)
