"""Which pipelines and paddings CK Tile's dispatcher proposes for what a kernel computes: its rules F1 to F14.

F1 (soft cap needs no bias), F2 (packed lengths need padding of rows and keys) hold for every proposal.  F15 is about
gradients (`hip.attention_backward.ck_tile.enumerated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.backends.hip.attention.ck_tile.instance import Instance, Pads

_EXTENDED = 1  # the receipt of ck_extended
_HALVES = ("fp16", "bf16")


def _pads(*words: str) -> tuple[Pads, ...]:
    return tuple((word[0] == "1", word[1] == "1", word[2] == "1", word[3] == "1") for word in words)


def _forward(inst: Instance, receipt: int) -> Iterator[tuple[str, Pads]]:
    """F3 to F9."""
    heads = (inst.hdim_q, inst.hdim_v)
    if inst.data_type in _HALVES:
        yield from _halves(inst, receipt)
        plain = not inst.logits and inst.bias == "no" and not inst.dropout and not inst.skip_min_seqlen_q
        if inst.arch == "gfx950" and heads in ((64, 64), (128, 128)) and plain:  # F6
            yield from (("qr_async_trload", pads) for pads in _pads("0000", "0011"))
        few = inst.bias == "no" and not (inst.lse or inst.dropout or inst.skip_min_seqlen_q or inst.sink)
        if inst.arch == "gfx950" and heads == (128, 128) and few and inst.mask in ("no", "top_left"):  # F7
            yield "v3", _pads("1100")[0]
    elif inst.data_type in ("fp8bf16", "fp8fp32"):  # F8
        if inst.bias == "no" and not (inst.lse or inst.dropout or inst.skip_min_seqlen_q):
            yield from (("qr" if inst.hdim_q == 64 else "qr_async", pads) for pads in _pads("1011", "1111"))
    elif inst.data_type == "fp32":  # F9
        yield from (("qr", pads) for pads in _pads("0000", "0100", "1111"))


def _halves(inst: Instance, receipt: int) -> Iterator[tuple[str, Pads]]:
    if (inst.hdim_q, inst.hdim_v) == (256, 256):  # F3
        yield from (("qr", pads) for pads in _pads("0000", "1100", "1111"))
    elif inst.bias == "bias":  # F4
        yield from (("qr", pads) for pads in _pads("0000", "1111"))
    else:
        yield from (("qr_async", pads) for pads in _pads("1011", "1111"))
        if receipt == _EXTENDED:  # F5
            yield "qr", _pads("1111")[0]


def _split(inst: Instance) -> Iterator[tuple[str, Pads]]:
    """F10."""
    if inst.mask not in ("no", "top_left"):
        return
    if inst.data_type in _HALVES and inst.lse:
        yield from (("qr", pads) for pads in _pads("0100", "1000", "1100", "1111"))
    elif inst.data_type in ("fp8", "bf8") and inst.fp8_static_quant:
        yield from (("qr", pads) for pads in _pads("0000", "1100"))


def _combine(inst: Instance) -> Iterator[tuple[str, Pads]]:
    """F11: only the paddings of rows and of V's head size count."""
    if inst.data_type not in _HALVES and inst.lse:
        return
    for rows in (False, True):
        if inst.mode == "batch" or rows:
            yield from (("splitkv_combine", (rows, True, True, size)) for size in (False, True))


def _append(inst: Instance) -> Iterator[tuple[str, Pads]]:
    """F13."""
    if inst.data_type in _HALVES:
        words = ("0100", "1111") if inst.rope == "none" else ("0110", "1111")
        yield from (("appendkv", pads) for pads in _pads(*words))
    elif inst.rope == "none":
        yield "appendkv", _pads("1111")[0]


def _prefill(inst: Instance) -> Iterator[tuple[str, Pads]]:
    """F14."""
    if inst.page_size == 1 and inst.kv_memory_layout != "linear":
        return
    halves = inst.data_type in _HALVES and inst.mask in ("no", "top_left")
    if halves or (inst.data_type == "fp8bf16" and inst.qscale in ("pertensor", "kv_blockscale")):
        yield "qr_async", _pads("1111")[0]


def _proposed(inst: Instance, receipt: int) -> Iterator[tuple[str, Pads]]:
    if inst.family == "fwd":
        yield from _forward(inst, receipt)
    elif inst.family == "fwd_splitkv":
        yield from _split(inst)
    elif inst.family == "fwd_splitkv_combine":
        yield from _combine(inst)
    elif inst.family == "fwd_pagedkv":  # F12
        if not inst.lse:
            yield from (("qr_pagedkv", pads) for pads in _pads("1000", "1100"))
    elif inst.family == "fwd_appendkv":
        yield from _append(inst)
    elif inst.family == "batch_prefill":
        yield from _prefill(inst)


def choices(inst: Instance, receipt: int = 0) -> Iterator[tuple[str, Pads]]:
    """Every pipeline and padding that F1 to F14 leave for what is computed."""
    if inst.logits and inst.bias != "no":  # F1
        return
    for pipeline, pads in _proposed(inst, receipt):
        if inst.mode == "group" and not (pads[0] and pads[1]) and inst.family != "fwd_splitkv_combine":  # F2
            continue
        yield pipeline, pads


def proposals(inst: Instance, receipt: int = 0) -> Iterator[Instance]:
    """What is computed, with every one of them."""
    return (replace(inst, pipeline=pipeline, padding=pads) for pipeline, pads in choices(inst, receipt))
