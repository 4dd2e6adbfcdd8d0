"""Calls as users write them, as operands in their slots, scalars and attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import ProblemError, TilewrightError, attribute_of, shown
from tilewright.renames import warn_renamed
from tilewright.runtime.arrays import number_beside
from tilewright.runtime.bindings.attention.operands import (
    LAYOUTS,
    PAGE_LAYOUTS,
    bad,
    known_layout,
    not_an_array,
    switch,
    whole_number,
)
from tilewright.runtime.bindings.attention.request import Attributes
from tilewright.runtime.bindings.attention.stages import BLOCK_TABLE, SLOTS
from tilewright.runtime.calls import scalar
from tilewright.runtime.requests import Operands

# The keywords of `attention` and `append_kv` until version 0.2.
RENAMED = {
    "starts_q": "cu_seqlens_q", "starts_k": "cu_seqlens_k", "longest_q": "max_seqlen_q", "longest_k": "max_seqlen_k",
    "lengths_q": "seqlens_q", "lengths_k": "seqlens_k", "page_table": "block_table", "alibi": "alibi_slopes",
    "dropout": "dropout_p", "splits": "num_splits",
}  # fmt: skip
APPEND_RENAMED = {"lengths": "cache_seqlens", "lengths_new": "seqlens_new", "page_table": "block_table"}

_NAMES = tuple(slot.name for slot in SLOTS)
NO_OPERANDS = (None,) * len(SLOTS)
_ALIGNED = {True: "top_left", "top_left": "top_left", "bottom_right": "bottom_right"}
_HALF = (1 << 32) - 1
NO_ARRAYS = (list, tuple, int, float, dict, set, str, bytes)
PLAIN = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # the scalars of a call that gives none
_OTHER = {"mask": "bias", "bias": "mask"}
_MOST = 1e38  # scales and caps: they, and one over them, are numbers of fp32


def _placed(**operands: Any) -> tuple[Any, ...]:
    for name, operand in operands.items():
        if operand is not None and isinstance(operand, NO_ARRAYS):
            raise not_an_array(name, operand)
    return tuple(map(operands.get, _NAMES))


def _causal(value: Any) -> bool | str:
    """A truth value of any library, or the alignment of the diagonal."""
    if isinstance(value, str) and value in _ALIGNED:
        return value
    try:
        return switch("causal", value)
    except ProblemError:
        remedy = "use True, False, 'top_left' or 'bottom_right'"
        raise bad("causal", f"causal is {shown(value)}", shown(value), remedy) from None


def demand_window(window: Any) -> None:
    """A window is a pair, or a pair and its alignment."""
    if not isinstance(window, (tuple, list)) or len(window) not in (2, 3):
        raise bad("window", f"window is {shown(window)}", shown(window),
                  "give (left, right), or (left, right, 'bottom_right')")  # fmt: skip
    if len(window) == 3 and not (isinstance(window[2], str) and window[2] in ("top_left", "bottom_right")):
        raise bad("window", f"window is {shown(window)}: its third element says how it is aligned", shown(window[2]),
                  "give (left, right), or (left, right, 'top_left' or 'bottom_right')")  # fmt: skip


def window_of(causal: Any, window: Any) -> tuple[str, tuple[int, int]]:
    """Alignment and bounds of `causal` and `window`."""
    causal = _causal(causal)
    left, right = -1, -1
    align = "top_left" if causal is False else _ALIGNED[causal]
    if window is not None:
        demand_window(window)
        left, right = (-1 if side is None else whole_number("window", side) for side in window[:2])
        if len(window) == 3:
            lies = window[2]
            if isinstance(causal, str) and causal != lies:
                message = f"causal is {causal!r} and the window is {lies!r}"
                raise bad("window", message, lies, "leave one of the two out, or say the same")
            align = lies
    if causal is not False:
        right = 0 if right == -1 else min(right, 0)
    return align, (left, right)


def sinks(sink: Any, sink_tokens: Any) -> tuple[Any, Any]:
    """Logits, and how many first keys stay visible.  Until version 0.2 `sink` was either of them, or both as a pair."""
    pair = isinstance(sink, tuple)
    if sink is None or not (pair or isinstance(sink, int) or attribute_of(sink, "shape") == ()):
        return sink, sink_tokens
    if pair and len(sink) != 2:
        raise bad("sink", f"sink is {shown(sink)}", shown(sink), "give logits; a number of first keys is sink_tokens")
    if sink_tokens is not None:
        raise bad("sink", "sink has a number of keys, and sink_tokens is given", shown(sink), "give sink=logits")
    warn_renamed("attention", "a number of keys in sink", "sink_tokens", skip=("sinks", "forward", "bind", "attention"))
    return (sink[1], sink[0]) if pair else (None, sink)


def mask_and_bias(mask: Any, bias: Any, attn_mask: Any) -> tuple[Any, Any]:
    """`attn_mask` as PyTorch's scaled_dot_product_attention has it: truth values are a mask, numbers a bias."""
    if attn_mask is None:
        return mask, bias
    if isinstance(attn_mask, NO_ARRAYS):
        raise not_an_array("attn_mask", attn_mask)
    is_mask = str(attribute_of(attn_mask, "dtype", "")).rpartition(".")[2] == "bool"
    demand_one_mask("mask" if is_mask else "bias", mask if is_mask else bias)
    return (attn_mask, bias) if is_mask else (mask, attn_mask)


def say_attn_mask(error: TilewrightError, attn_mask: Any, bias: Any) -> None:
    """Call a mask or bias in an error `attn_mask`, where it was given by that name."""
    if attn_mask is not None:
        word = r"\bbias\b" if attn_mask is bias else r"\bmask\b"
        error.message, error.remedy = (re.sub(word, "attn_mask", text) for text in (error.message, error.remedy))
        error.args = (error.message,)


def demand_one_mask(name: str, taken: Any) -> None:
    """Refuse what `attn_mask` is if it is given by its own name too."""
    if taken is not None:
        message = f"attn_mask is a {name}, and {name} is given too"
        raise bad("attn-mask", message, name, f"give one of the two; attn_mask may be a {_OTHER[name]} beside {name}")


def pages(block_table: Any) -> tuple[Any, Any, Any]:
    """Page numbers, and where they are of all sequences one behind the other, the starts and last lengths."""
    if isinstance(block_table, (tuple, list)):
        if len(block_table) != 3:
            message = f"block_table is {len(block_table)} arrays"
            raise bad("page-lookup", message, len(block_table), "give a block table, or (indptr, indices, last)")
        indptr, indices, last = block_table
        for name, part in (("indptr", indptr), ("indices", indices), ("last", last)):
            if part is None:
                raise bad("page-lookup", f"{name} of block_table is None", "None", "give (indptr, indices, last)")
        return indices, indptr, last
    return block_table, None, None


def _halves(name: str, value: Any) -> tuple[float, float]:
    """A number of 64 bits as two of 32; negative ones as their bits."""
    number = whole_number(name, value)
    if not -(1 << 63) <= number < 1 << 64:
        raise bad("seed", f"{name} is {number}, over 64 bits", number, "give a number of 64 bits")
    return float(number & _HALF), float(number >> 32 & _HALF)


def _seed(dropout_p: float, seed: Any) -> tuple[Any, tuple[float, float, float, float]]:
    """An array of seed and offset, or the halves of both."""
    none = (0.0, 0.0, 0.0, 0.0)
    if not dropout_p:
        if seed is not None:
            raise bad("seed", f"seed is {shown(seed)} and dropout_p is 0: nothing reads it", shown(seed),
                      "leave seed out, or give dropout_p")  # fmt: skip
        return None, none
    if seed is None:
        raise bad("seed", f"dropout_p is {shown(dropout_p)} and there is no seed", "None",
                  "give seed=, or (seed, offset): the same pair drops the same entries everywhere")  # fmt: skip
    if isinstance(seed, (tuple, list)):
        if len(seed) != 2:
            raise bad("seed", f"seed is {shown(seed)}", shown(seed), "give (seed, offset)")
        return None, (*_halves("seed", seed[0]), *_halves("offset", seed[1]))
    if attribute_of(seed, "shape", ()) != ():
        return seed, none
    return None, (*_halves("seed", seed), 0.0, 0.0)


def scalars(scale: Any, softcap: Any, dropout_p: Any, seed: Any) -> tuple[Any, tuple[float, ...]]:
    """An array of seed and offset where there is one, and the numbers of a call, in the order of its scalars."""
    if scale is None and softcap is None and seed is None and type(dropout_p) is float and not dropout_p:
        return None, PLAIN  # most calls
    if scale is None:
        scale = 1.0
    else:
        remedy = "use a number between -1e38 and 1e38, or leave it out: 1 / sqrt(head size)"
        scale = _in_range("scale", scale, -_MOST, _MOST, remedy)
    if softcap is None:
        softcap = 0.0
    else:
        remedy = "use a number over 0, from 1e-38 to below 1e38, or leave it out: 0 makes all scores 0"
        softcap = _in_range("softcap", softcap, 1 / _MOST, _MOST, remedy)
    dropout_p = _in_range("dropout_p", dropout_p, 0.0, 1.0, "use 0 or more, and less than 1")
    seeds, halves = _seed(dropout_p, seed)
    return seeds, (scale, softcap, dropout_p, *halves)


def _in_range(name: str, value: Any, low: float, high: float, remedy: str) -> float:
    """A number of any library as a float, from `low` to below `high`."""
    number = scalar(name, value)
    if not low <= number < high:
        raise bad(name, f"{name} is {number}", number, remedy)
    return number


def layouts(layout: Any, kv_layout: Any, block_table: Any) -> tuple[str, str]:
    """The layout of q, and that of keys, values or their pages."""
    layout = known_layout(layout, LAYOUTS)
    kv_layout = "" if kv_layout is None else kv_layout
    if block_table is not None:
        return layout, known_layout(kv_layout, PAGE_LAYOUTS)
    if isinstance(kv_layout, str) and kv_layout.lower() in PAGE_LAYOUTS:
        message = f"kv_layout is {shown(kv_layout)}, which is a layout of pages, and there is no block_table"
        raise bad("layout-name", message, kv_layout, f"give block_table, or use {' or '.join(LAYOUTS)}")
    return layout, known_layout(layout if isinstance(kv_layout, str) and not kv_layout else kv_layout, LAYOUTS)


def forward(q: Any, k: Any, v: Any, **options: Any) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
    """`tw.attention`'s call."""
    layout, kv_layout = layouts(options["layout"], options["kv_layout"], options["block_table"])
    align, window = window_of(options["causal"], options["window"])
    sink, first = sinks(options["sink"], options["sink_tokens"])
    sink_tokens = 0 if first is None else whole_number("sink_tokens", first)
    if sink_tokens and window[0] < 0:
        message = f"sink_tokens is {sink_tokens} and no window bounds keys on the left: nothing reads it"
        raise bad("sink", message, sink_tokens, "leave sink_tokens out, or give window=(left, right)")
    mask, bias = mask_and_bias(options["mask"], options["bias"], options["attn_mask"])
    scale, softcap, dropout = (options[name] is not None for name in ("scale", "softcap", "seed"))
    seed, numbers = scalars(options["scale"], options["softcap"], options["dropout_p"], options["seed"])
    table, indptr, last = pages(options["block_table"])
    k_scale, v_scale = scales(k, options["kv_scales"])
    operands = _placed(
        q=q, k=k, v=v, mask=mask, bias=bias, alibi_slopes=options["alibi_slopes"], sink=sink,
        cu_seqlens_q=options["cu_seqlens_q"], cu_seqlens_k=options["cu_seqlens_k"], seqlens_q=options["seqlens_q"],
        seqlens_k=options["seqlens_k"], block_table=table, page_indptr=indptr, page_last=last,
        q_scale=scale_of("q_scale", options["q_scale"], q), k_scale=k_scale, v_scale=v_scale, seed=seed,
        out=options["out"],
    )  # fmt: skip
    attributes = Attributes(
        family="forward", layout=layout, kv_layout=kv_layout, align=align, window=window, sink_tokens=sink_tokens,
        scaled=scale, softcap=softcap, dropout=dropout,
        page_size=_optional("page_size", options["page_size"]),
        longest=(longest("max_seqlen_q", options["max_seqlen_q"]), longest("max_seqlen_k", options["max_seqlen_k"])),
        scale_block=_optional("scale_block", options["scale_block"]),
        num_splits=_optional("num_splits", options["num_splits"]),
        return_lse=switch("return_lse", options["return_lse"]), out_dtype=options["out_dtype"],
    )  # fmt: skip
    return operands, numbers, tuple(attributes)


MOST_ATTRIBUTES = 1024
_PLAIN_KINDS = {bool, int, str, type(None)}
# Of options that were met, with their types, which equal ones may differ in: what follows from them.
_attributes: dict[Any, tuple[Any, ...]] = {}


def _options_key(options: tuple[Any, ...], in_pages: bool) -> Any:
    """Options of plain values with their types; None where some are not."""
    window = options[2]
    flat = (*options[:2], *window, *options[3:]) if type(window) is tuple else options
    kinds = tuple(map(type, flat))
    return (options, kinds, in_pages) if _PLAIN_KINDS.issuperset(kinds) else None


def known_attributes(options: tuple[Any, ...], slots: Operands) -> tuple[Any, ...] | None:
    """The attributes of a call in whose options `forward` found nothing wrong before: those of a new size are old ones.

    None where `forward` must look: at options, or at an operand that is no array.
    """
    key = _options_key(options, slots[BLOCK_TABLE] is not None)
    known = None if key is None else _attributes.get(key)
    if known is not None:
        for operand in slots:
            if isinstance(operand, NO_ARRAYS):
                return None
    return known


def remember_attributes(options: tuple[Any, ...], slots: Operands, attributes: tuple[Any, ...]) -> None:
    key = _options_key(options, slots[BLOCK_TABLE] is not None)
    if key is not None:
        if len(_attributes) >= MOST_ATTRIBUTES:
            _attributes.clear()
        _attributes[key] = attributes


def longest(name: str, value: Any) -> int:
    """A bound; that of sequences which are all empty is 0, and 0 means none: one row more bounds them too."""
    return 1 if value is not None and whole_number(name, value) == 0 else _optional(name, value)


def _optional(name: str, value: Any) -> int:
    if value is None:
        return 0
    number = whole_number(name, value)
    if number < 1:
        raise bad("attention-number", f"{name} is {number}", number, f"use 1 or more, or leave {name} out")
    return number


def scales(keys: Any, value: Any) -> tuple[Any, Any]:
    """Those of k and v; numbers become arrays on the device of the keys."""
    if value is None:
        return None, None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise bad("scales-both", f"kv_scales is {shown(value)}", shown(value), "give (k_scale, v_scale)")
    return scale_of("k_scale", value[0], keys), scale_of("v_scale", value[1], keys)


def scale_of(name: str, value: Any, beside: Any) -> Any:
    """A number as an array of no dimensions, of the library and place of the operand it is for."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.generic)):
        return value
    return number_beside(beside, scalar(name, value))


def append(
    cache_k: Any, cache_v: Any, k: Any, v: Any, **options: Any
) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
    """`tw.append_kv`'s call."""
    layout, kv_layout = layouts(options["layout"], options["kv_layout"], options["block_table"])
    rotary, cos, sin = options["rotary"], None, None
    kind = "none"
    if rotary is not None:
        three = isinstance(rotary, (tuple, list)) and len(rotary) == 3 and isinstance(rotary[2], str)
        if not three or rotary[2] not in ("interleaved", "half"):
            raise bad("rotary", f"rotary is {shown(rotary)}", shown(rotary),
                      "give (cos, sin, 'interleaved') or (cos, sin, 'half')")  # fmt: skip
        cos, sin, kind = rotary
    if isinstance(options["block_table"], (tuple, list)):
        raise bad(
            "page-lookup", "append_kv finds pages by a block table", "indptr", "give block_table as (batch, pages)"
        )
    if options["q"] is None and options["q_out"] is not None:
        raise bad("shape-queries", "q_out is given and q is not", "None", "give q too, or leave q_out out")
    k_scale, v_scale = scales(cache_k, options["kv_scales"])
    operands = _placed(
        q=options["q"], k=k, v=v, cache_seqlens=options["cache_seqlens"], seqlens_new=options["seqlens_new"],
        block_table=options["block_table"], cos=cos, sin=sin, k_scale=k_scale, v_scale=v_scale, cache_k=cache_k,
        cache_v=cache_v, q_out=options["q_out"],
    )  # fmt: skip
    attributes = Attributes(family="append", layout=layout, kv_layout=kv_layout, rotary=kind,
                            scale_block=_optional("scale_block", options["scale_block"]))  # fmt: skip
    return operands, PLAIN, tuple(attributes)
