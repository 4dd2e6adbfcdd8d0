"""Attention in the words of the FMHA part of AMD's CK Tile dispatcher, turned into ours.

theirs                                            ours
variant fwd, splitkv, pagedkv, batch_prefill      family forward, split; forward with pages
mask no, top_left; bias no, alibi; lse, ...       features of a kernel, joined by +
mode batch, group                                 plain, packed
nhead_q, nhead_k, hdim_q, hdim_v, dtype           heads_q, heads_kv, head_dim, head_dim_v, datatype
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from tilewright.errors import RequestError
from tilewright.ops.sweep import values_of

TRAITS = "trait_config"
# Their variants: our family, and features that every kernel of it has.
VARIANTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "fwd": ("forward", ()),
    "splitkv": ("split", ()),
    "pagedkv": ("forward", ("pages_strided_table",)),
    "batch_prefill": ("forward", ("packed", "pages_strided_indices")),
    "appendkv": ("append", ()),
}
# Features of ours, by the values of their traits; those without any are not here.
FEATURES: Mapping[str, Mapping[Any, str]] = {
    "mode": {"batch": "", "group": "packed"},
    "mask": {"no": "", "top_left": "window", "bottom_right": "window", "generic": "window"},
    "bias": {"no": "", "bias": "bias", "elementwise": "bias", "alibi": "alibi"},
    "logits": {False: "", True: "softcap"},
    "dropout": {False: "", True: "dropout"},
    "lse": {False: "", True: "lse"},
    "sink": {False: "", True: "sink"},
    "paged_kv": {False: "", True: "pages_strided_table"},
}
WITHOUT_MEANING = ("block_per_cu", "num_wave_groups", "receipt")


def trait_config(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """A trait config under our names, and what was left out of it, for people; one in our names is let be."""
    traits = data.get(TRAITS)
    if not isinstance(traits, Mapping) or ("variant" not in data and not FEATURES.keys() & traits.keys()):
        return data, []
    variants = values_of("variant", data.get("variant", "fwd"))
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown:
        raise RequestError(
            f"variant of the configuration is {unknown[0]!r:.60}",
            rule="config-value",
            value=unknown[0],
            remedy=f"use {', '.join(VARIANTS)}; gradients are the op attention_backward",
        )
    families = {VARIANTS[variant] for variant in variants}
    if len(families) > 1:
        raise RequestError(
            "variants of the configuration are kernels of different kinds",
            rule="config-value",
            value="variant",
            remedy="write a configuration for each",
        )
    family, always = families.pop()
    notes = [f"{name} means nothing here, and is left out" for name in WITHOUT_MEANING if name in traits]
    rest = {name: value for name, value in traits.items() if name not in (*FEATURES, *WITHOUT_MEANING)}
    if FEATURES.keys() & traits.keys() or always:
        rest["features"] = _features(traits, always)
    ours = {name: value for name, value in data.items() if name != "variant"}
    return {**ours, "family": [family], TRAITS: rest}, notes


def _features(traits: Mapping[str, Any], always: Sequence[str]) -> list[str]:
    """Every combination of what their traits allow."""
    choices: list[list[str]] = []
    for name, words in FEATURES.items():
        if name not in traits:
            continue
        values = values_of(name, traits[name])
        odd = [value for value in values if value not in words]
        if odd:
            known = ", ".join(str(word) for word in words)
            raise RequestError(
                f"{name} of the configuration is {odd[0]!r:.60}",
                rule="config-value",
                value=name,
                remedy=f"use one of {known}",
            )
        choices.append(list(dict.fromkeys(words[value] for value in values)))
    combinations = (sorted({word for word in (*chosen, *always) if word}, key=_order) for chosen in product(*choices))
    return list(dict.fromkeys("+".join(words) or "plain" for words in combinations))


_ORDER = ("window", "alibi", "bias", "softcap", "dropout", "lse", "sink", "packed")


def _order(word: str) -> int:
    return _ORDER.index(word) if word in _ORDER else len(_ORDER)


_NAMES = {
    "nhead_q": "heads_q", "nhead_k": "heads_kv", "hdim_q": "head_dim", "hdim_v": "head_dim_v", "dtype": "datatype",
}  # fmt: skip


def problem(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A problem by the names of their problems, under ours; one by other names is let be."""
    if "nhead_q" not in row:
        return row
    values = {_NAMES.get(name, name): value for name, value in row.items()}
    mask = values.pop("mask", "")
    if mask and mask not in ("no", "no_mask"):
        values["causal"] = mask
    return values


def of_numbers(numbers: tuple[int, ...]) -> Mapping[str, Any]:
    """b,h,s,d or b,hq,hk,sq,sk,d as their benchmark takes problems."""
    if len(numbers) == 4:
        batch, heads, rows, size = numbers
        numbers = (batch, heads, heads, rows, rows, size)
    if len(numbers) != 6:
        raise RequestError(
            f"{','.join(map(str, numbers))} is no problem of attention",
            rule="problem-set",
            value=len(numbers),
            remedy="give batch,heads,seqlen,head_dim or batch,heads_q,heads_kv,seqlen_q,seqlen_k,head_dim",
        )
    names = ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim")
    return dict(zip(names, numbers, strict=True))


def columns(p: Any) -> dict[str, Any]:
    """The columns of a problem in their tables."""
    mask = "no" if p.window_right < 0 and p.window_left < 0 else p.align
    return {
        "dtype": p.dtype_q, "mode": "group" if p.varlen else "batch", "mask": mask, "bias": p.bias,
        "hdim_q": p.head_dim, "hdim_v": p.head_dim_v, "num_splits": p.num_splits, "batch": p.batch,
        "nhead_q": p.heads_q, "nhead_k": p.heads_kv, "seqlen_q": p.seqlen_q, "seqlen_k": p.seqlen_k,
    }  # fmt: skip
