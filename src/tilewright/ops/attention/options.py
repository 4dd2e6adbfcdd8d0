"""What describes an attention on a command line, and back.

A window is written as left,right with -1 for no bound; shapes as 1x8x128x128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tilewright.dtypes import dtype
from tilewright.errors import RequestError
from tilewright.ops.attention.problem import OPERANDS, AttentionProblem
from tilewright.ops.attention.spec import normal_family
from tilewright.ops.attention_terms import sizes, window
from tilewright.ops.base import Option
from tilewright.ops.encodings import element_type

OPTIONS = (
    Option("batch", "Number of sequences."),
    Option("heads_q", "Number of query heads; may be left out of an append without rotary embedding of q.", 0),
    Option("seqlen_q", "Queries per sequence; of the longest one where lengths differ.", old="rows"),
    Option("seqlen_k", "Keys per sequence; of the longest one where lengths differ.", old="keys"),
    Option("head_dim", "Head dimension of queries and keys.", old="head_qk"),
    Option("heads_kv", "Number of KV heads (0: as many as query heads).", 0),
    Option("head_dim_v", "Head dimension of values (0: that of keys).", 0, old="head_v"),
    Option("family", "Family of kernels: forward, split, combine or append.", "forward", str, normal=normal_family),
    Option("datatype", "Element type of q: fp32, fp16, bf16 or fp8_e4m3.", "fp32", str, normal=element_type),
    Option("kv_datatype", "Element type of k and v; by default that of q.", "", str, normal=element_type),
    Option("output", "Element type of the result; by default that of q.", "", str, normal=element_type),
    Option("causal", "Causal mask, aligned top_left or bottom_right.", "", str),
    Option("window", "Sliding window: keys to the left,right of a query; -1 for no bound.", "", str),
    Option("align", "Alignment of the window: top_left or bottom_right.", "", str),
    Option("sink_tokens", "Number of first keys that stay visible outside of the window.", 0, old="sink_keys"),
    Option("bias", "Bias added to the scores: none, tensor or alibi.", "none", str),
    Option("aux_datatype", "Element type of a bias, or of rotary tables.", "", str, normal=element_type),
    Option("bias_shape", "Shape of a bias, such as 1x1x128x128; 1 where it is broadcast.", "", str),
    Option("mask_shape", "Shape of a boolean mask, likewise; no mask by default.", "", str),
    Option("softcap", "Cap scores softly (c tanh(s / c)).", False, bool),
    Option("dropout", "Drop entries of the softmax.", False, bool),
    Option("return_lse", "Return lse, the logarithm of the softmax denominators, too.", False, bool, old="lse"),
    Option("sink", "Add a learned logit per head to the softmax denominator.", False, bool),
    Option("varlen", "Pack sequences of variable length one after the other (cu_seqlens).", False, bool, old="packed"),
    Option("total_q", "Total number of queries of all sequences, with --varlen.", 0, old="total_rows"),
    Option("total_k", "Total number of keys of all sequences, with --varlen.", 0, old="total_keys"),
    Option("seqlens_q", "Read the number of queries per sequence from an array.", False, bool, old="lengths_q"),
    Option("seqlens_k", "Read the number of keys per sequence from an array.", False, bool, old="lengths_k"),
    Option("pages", "Layout of a paged KV cache: none, strided or vectorised.", "none", str),
    Option("page_lookup", "Page lookup: table (a block table) or indices.", "", str, old="lookup"),
    Option("page_size", "Keys per page.", 0),
    Option("page_count", "Number of pages (0: as many as the sequences fill).", 0),
    Option("q_scale", "Scales of q: none, tensor, head or block.", "none", str, old="scales_q"),
    Option("kv_scales", "Scales of k and v: none, tensor, head or block.", "none", str, old="scales_kv"),
    Option("scale_block", "Number of rows that share a scale.", 0),
    Option("num_splits", "Number of KV splits (0: heuristic).", 0, old="splits"),
    Option("rotary", "Rotary embedding of an append: none, interleaved or half.", "none", str),
    Option("rotary_dim", "Rotary dimension (0: the head dimension).", 0, old="rotary_size"),
    Option("rotary_q", "Apply rotary embedding to q too in an append.", False, bool, old="turns_q"),
    Option("q_strides", "Element strides of q as sequence x row x head; dense by default.", "", str),
    Option("k_strides", "Element strides of k, or of its pages.", "", str),
    Option("v_strides", "Element strides of v.", "", str),
    Option("o_strides", "Element strides of the result.", "", str),
)
# Options under another name than the field of the problem they mean.
_NAMES = {"datatype": "dtype_q", "kv_datatype": "dtype_kv", "output": "dtype_out", "aux_datatype": "dtype_aux"}
_SHAPES = ("bias_shape", "mask_shape", *(f"{operand}_strides" for operand in OPERANDS))


def _heads_of_append(problem_fields: Mapping[str, Any]) -> int:
    """Query heads of a problem that has none to speak of."""
    if problem_fields["family"] == "append" and problem_fields["heads_kv"] and not problem_fields["rotary_q"]:
        return int(problem_fields["heads_kv"])
    append = problem_fields["family"] == "append" and not problem_fields["rotary_q"]
    flag = "--heads-kv" if append else "--heads-q"
    raise RequestError(
        f"an attention problem needs {flag}",
        rule="option-missing",
        value=flag,
        remedy=f"give {flag} N; `--help` says what it means",
    )


def problem(values: Mapping[str, Any]) -> AttentionProblem:
    options = {option.name: values.get(option.name, option.default) for option in OPTIONS}
    for name in _NAMES:
        if options[name]:
            dtype(options[name])
    problem_fields: dict[str, Any] = {}
    for name, value in options.items():
        if name in ("causal", "window", "align"):
            continue
        problem_fields[_NAMES.get(name, name)] = sizes(name, value) if name in _SHAPES else value
    problem_fields["family"] = normal_family(problem_fields["family"])
    if "heads_q" not in values:
        problem_fields["heads_q"] = _heads_of_append(problem_fields)
    problem_fields["page_lookup"] = problem_fields["page_lookup"] or (
        "none" if problem_fields["pages"] == "none" else "table"
    )
    return AttentionProblem(**problem_fields, **window(options))


def words(problem: AttentionProblem) -> list[str]:
    """What `tilewright run attention` needs to meet this problem again."""
    p = problem
    required = ("batch", "heads_q", "seqlen_q", "seqlen_k", "head_dim")
    flags = [word for name in required for word in (f"--{name.replace('_', '-')}", str(getattr(p, name)))]
    names = {field: option for option, field in _NAMES.items()}
    least = {field.name: getattr(p, field.name) for field in fields(p) if field.name in (*required, "family", "dtype_q",
             "pages", "page_lookup", "varlen", "bias", "rotary")}  # fmt: skip
    usual = AttentionProblem(**least)
    for field in fields(p):
        name, value = field.name, getattr(p, field.name)
        bare = field.default if name in least else getattr(usual, name)
        if name.endswith("_strides"):
            bare = p.dense_strides(name[0])
        if name in required or name in ("window_left", "window_right", "align", "aligned") or value == bare:
            continue
        flag = f"--{names.get(name, name).replace('_', '-')}"
        text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
        flags += [flag] if isinstance(value, bool) else [flag, text]
    if p.bounded:
        flags += [f"--window={p.window_left},{p.window_right}"]
    return flags + (["--align", p.align] if p.align != "top_left" else [])
