"""What describes the gradients of an attention on a command line, and back.

A window is written as left,right with -1 for no bound; shapes as 1x8x128x128.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tilewright.dtypes import dtype
from tilewright.ops.attention_backward.problem import OPERANDS, AttentionBackwardProblem
from tilewright.ops.attention_backward.problem_rules import problem_violations
from tilewright.ops.attention_backward.spec import normal_family
from tilewright.ops.attention_terms import sizes, window
from tilewright.ops.base import Option
from tilewright.ops.encodings import element_type

_NAMED = {"o": "out", "do": "dout"}
OPTIONS = (
    Option("batch", "Number of sequences."),
    Option("heads_q", "Number of query heads."),
    Option("seqlen_q", "Queries of a sequence; of the longest where they differ."),
    Option("seqlen_k", "Keys of a sequence; of the longest where they differ."),
    Option("head_dim", "Elements of a head of queries and keys."),
    Option("heads_kv", "Number of heads of keys and values (0: as many as query heads).", 0),
    Option("head_dim_v", "Elements of a head of values (0: as those of keys).", 0),
    Option("family", "One stage by itself: dot, grad or convert; all of them by default.", "", str,
           normal=normal_family),
    Option("datatype", "Element type of q, k, v and their gradients: fp32, fp16 or bf16.", "fp32", str,
           normal=element_type),
    Option("causal", "Causal mask, aligned top_left or bottom_right: rows see keys up to their own.", "", str),
    Option("window", "Sliding window as left,right keys around a row's own; -1 for no bound.", "", str),
    Option("align", "Alignment of the window: top_left or bottom_right.", "", str),
    Option("sink_tokens", "Number of first keys that the window does not hide.", 0),
    Option("bias", "Bias added to scores: none, tensor or alibi.", "none", str),
    Option("aux_datatype", "Element type of a bias.", "", str, normal=element_type),
    Option("bias_shape", "Shape of a bias, such as 1x1x128x128; 1 where it repeats.", "", str),
    Option("mask_shape", "Shape of a boolean mask, likewise; without it there is none.", "", str),
    Option("softcap", "Cap scores softly (c tanh(s / c)).", False, bool),
    Option("dropout", "Drop entries of the softmax.", False, bool),
    Option("varlen", "Sequences of variable length, one behind the other (cu_seqlens).", False, bool),
    Option("total_q", "Rows of all sequences of variable length.", 0),
    Option("total_k", "Keys of all sequences of variable length.", 0),
    Option("seqlens_q", "Read the number of rows of each sequence from a table.", False, bool),
    Option("seqlens_k", "Read the number of keys of each sequence from a table.", False, bool),
    Option("dlse", "Take a gradient of lse too.", False, bool),
    Option("dsink", "Compute the gradient of sink logits.", False, bool),
    Option("dbias", "Compute the gradient of the bias.", False, bool),
    Option("dalibi", "Compute the gradient of ALiBi's slopes.", False, bool),
    Option("deterministic", "Add in a fixed order, so that every run gives the same bits.", False, bool),
    Option("accumulate",
           "Results that are fp32 accumulators between stages: none, dq, dkv or all.  By default those of the target's "
           "plan, which explain shows; of a stage by itself none.", "", str),
    Option("dkv_splits", "Number of partial sums of dk and dv per KV head between stages (0: one per query head).", 0,
           old="dkv_parts"),
    *(Option(f"{name}_strides",
             f"Element strides of {_NAMED.get(name, name)} as sequence x row x head; dense by default.", "", str)
      for name in OPERANDS),
)  # fmt: skip
# Options under another name than the field of the problem they mean.
_NAMES = {"datatype": "dtype", "aux_datatype": "dtype_aux"}
_SHAPES = ("bias_shape", "mask_shape", *(f"{operand}_strides" for operand in OPERANDS))
_REQUIRED = ("batch", "heads_q", "seqlen_q", "seqlen_k", "head_dim")


def problem(values: Mapping[str, Any]) -> AttentionBackwardProblem:
    """A stage by itself has only what it reads, so that it is the one that was measured with others."""
    options = {option.name: values.get(option.name, option.default) for option in OPTIONS}
    for name in _NAMES:
        if options[name]:
            dtype(options[name])
    problem_fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in ("causal", "window", "align"):
            problem_fields[_NAMES.get(name, name)] = sizes(name, value) if name in _SHAPES else value
    problem_fields["family"] = normal_family(problem_fields["family"])
    whole = AttentionBackwardProblem(**problem_fields, **window(options))
    if not whole.family or problem_violations(whole):
        return whole
    return whole.stage(whole.family, whole.accumulate or "none", whole.dkv_splits)


def words(problem: AttentionBackwardProblem) -> list[str]:
    """What `tilewright run attention_backward` needs to meet this problem again."""
    p = problem
    flags = [word for name in _REQUIRED for word in (f"--{name.replace('_', '-')}", str(getattr(p, name)))]
    names = {field: option for option, field in _NAMES.items()}
    least = {
        field.name: getattr(p, field.name)
        for field in fields(p)
        if field.name in (*_REQUIRED, "dtype", "varlen", "bias")
    }
    usual = AttentionBackwardProblem(**least)
    for field in fields(p):
        name, value = field.name, getattr(p, field.name)
        bare = field.default if name in least else getattr(usual, name)
        if name.endswith("_strides"):
            bare = p.dense_strides(name.removesuffix("_strides"))
        if name in (*_REQUIRED, "window_left", "window_right", "align", "aligned") or value == bare:
            continue
        flag = f"--{names.get(name, name).replace('_', '-')}"
        text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
        flags += [flag] if isinstance(value, bool) else [flag, text]
    if p.bounded:
        flags += [f"--window={p.window_left},{p.window_right}"]
    return flags + (["--align", p.align] if p.align != "top_left" else [])
