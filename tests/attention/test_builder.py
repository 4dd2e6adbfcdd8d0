"""The problem builder of CK Tile's dispatcher, its categories, and what its planner and sweep get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION
from tilewright.compat.fmha import FmhaProblemBuilder
from tilewright.dispatch.records import _problem_digest
from tilewright.errors import ProblemError
from tilewright.ops.attention import AttentionProblem, categories
from tilewright.ops.attention.options import problem as problem_of

Builder = FmhaProblemBuilder


def base() -> Builder:
    return Builder().api_family("fwd").data_type("fp16").dims(128, 128, 2, 64, 256).nheads(8, 2)


PLAIN = AttentionProblem(2, 8, 64, 256, 128, 2, dtype_q="fp16")

MADE: list[tuple[Callable[[Builder], Builder], dict[str, Any]]] = [
    (lambda one: one, {}),
    (lambda one: one.mask_type("top_left"), {"window_right": 0}),
    (lambda one: one.mask_type(1), {"window_right": 0}),
    (lambda one: one.mask_type("b").window(100, 0), {"window_left": 100, "window_right": 0, "align": "bottom_right"}),
    (lambda one: one.mask_type("generic").window(5, 3), {"window_left": 4, "window_right": 2}),
    (lambda one: one.mask_type("t").window(8, 0).sink_size(4), {"window_left": 8, "window_right": 0, "sink_tokens": 4}),
    (lambda one: one.sink(), {"sink": True}),
    (lambda one: one.bias_type("alibi"), {"bias": "alibi"}),
    (lambda one: one.bias_type(1), {"bias": "tensor"}),
    (lambda one: one.lse().dropout().logits_soft_cap(), {"return_lse": True, "dropout": True, "softcap": True}),
    (lambda one: one.data_type("fp8bf16").qscale_type("pertensor"), {"dtype_q": "fp8_e4m3fnuz", "dtype_out": "bf16",
                                                                     "q_scale": "tensor", "kv_scales": "tensor"}),
    (lambda one: one.data_type("fp8fp32").gfx_arch("gfx950").fp8_static_quant(),
     {"dtype_q": "fp8_e4m3", "dtype_out": "fp32", "q_scale": "tensor", "kv_scales": "tensor"}),
    (lambda one: one.data_type("fp8bf16").qscale_type(3), {"dtype_q": "fp8_e4m3fnuz", "dtype_out": "bf16",
                                                           "kv_scales": "block", "scale_block": 128}),
    (lambda one: one.group_mode().max_seqlen(100, 300), {"varlen": True, "total_q": 128, "total_k": 512,
                                                         "seqlen_q": 100, "seqlen_k": 300}),
    (lambda one: one.api_family("fwd_pagedkv").paged_kv(), {"pages": "strided", "page_lookup": "table",
                                                            "seqlens_k": True}),
    (lambda one: one.api_family("fwd_splitkv").num_splits(4), {"num_splits": 4}),
    (lambda one: one.api_family("batch_prefill").group_mode().max_seqlen(64, 0).kv_cache("linear", "sglang", 16),
     {"varlen": True, "total_q": 128, "pages": "strided", "page_lookup": "indices", "page_size": 16}),
    (lambda one: one.api_family("fwd_appendkv").rope_type("interleaved"),
     {"family": "append", "rotary": "interleaved", "seqlens_k": True, "dtype_out": "fp16"}),
    (lambda one: one.v_rowmajor().bwd_flags(False, False, False).skip_min_seqlen_q(False), {}),
]  # fmt: skip


@pytest.mark.parametrize(("setters", "said"), MADE, ids=[str(index) for index in range(len(MADE))])
def test_setters_make_problems(setters: Callable[[Builder], Builder], said: dict[str, Any]) -> None:
    want = replace(PLAIN, q_strides=(), k_strides=(), v_strides=(), o_strides=(),
                   dtype_kv=said.get("dtype_q", "fp16"), **said)  # fmt: skip
    if "pages" in said:
        want = replace(want, page_count=0, total_k=0)
    assert setters(base()).build() == want


REFUSED: list[tuple[Callable[[Builder], Builder], str]] = [
    (lambda one: one.bwd_flags(False, False, True), "fmha-feature"),
    (lambda one: one.v_rowmajor(False), "fmha-feature"),
    (lambda one: one.skip_min_seqlen_q(), "fmha-feature"),
    (lambda one: one.group_mode(), "fmha-group"),
    (lambda one: one.dims(128, 128, 0, 64, 64), "fmha-sizes"),
    (lambda one: one.nheads(8, 3), "heads-divide"),
    (lambda one: one.window(3, 0), "fmha-window"),
    (lambda one: one.mask_type("generic"), "fmha-window"),
    (lambda one: one.api_family("batch_prefill"), "fmha-pages"),
    (lambda one: one.mask_type("diagonal"), "fmha-mask"),
    (lambda one: one.mask_type(7), "fmha-mask"),
    (lambda one: one.data_type("mxfp8"), "fmha-data-type"),
    (lambda one: one.api_family("sideways"), "fmha-family"),
    (lambda one: one.num_splits(129), "splits"),
    (lambda one: one.data_type("fp16").qscale_type("pertensor"), "scales-dtype"),
]


@pytest.mark.parametrize(("setters", "rule"), REFUSED, ids=[f"{n}-{one[1]}" for n, one in enumerate(REFUSED)])
def test_what_cannot_be_built_has_an_error(setters: Callable[[Builder], Builder], rule: str) -> None:
    with pytest.raises(ProblemError) as caught:
        setters(base()).build()
    assert caught.value.rule == rule
    assert caught.value.remedy


def test_what_a_builder_makes_has_a_kernel() -> None:
    """Theirs demands what its planner never asks for, so that nothing matches."""
    for setters, _ in MADE:
        one = setters(base()).build()
        assert isinstance(one, AttentionProblem)
        arch = "gfx950" if one.dtype_q == "fp8_e4m3" else "gfx942"
        for stage in ATTENTION.stages(one, arch):
            specs = ATTENTION.candidates(stage.signature, arch)
            floor = ATTENTION.fallback_spec(stage.signature, arch)
            assert any(not ATTENTION.supports(spec, stage) for spec in (*specs, floor)), stage.describe()


def test_a_measurement_is_of_one_problem() -> None:
    """Their sweep takes two for one where they differ in keys or heads alone."""
    changes: list[dict[str, Any]] = [
        {}, {"seqlen_k": 257}, {"heads_kv": 4}, {"heads_q": 16}, {"head_dim_v": 64}, {"num_splits": 2},
        {"window_left": 3},
    ]  # fmt: skip
    bare: dict[str, Any] = {f"{name}_strides": () for name in "qkvo"}
    others = [replace(PLAIN, **bare, **change) for change in changes]
    assert len({_problem_digest("attention", ATTENTION.measured_as(one)) for one in others}) == len(others)


@pytest.mark.parametrize(("entries", "count"), [(categories.SMOKE, 16), (categories.FULL, 15)])
def test_every_category_has_problems(entries: Any, count: int) -> None:
    assert len(entries) == count
    for name, entry in entries.items():
        made = [problem_of(one) for one in categories.problems(entry)]
        assert made, name
        assert len(made) == len(set(made))
        broken = [why for one in made for why in ATTENTION.problem_violations(one, "x86_64_v3")]
        assert not broken, name
        if "FP8" in name:
            assert {one.dtype_q for one in made} == {"fp8_e4m3"}
    if count == 16:
        assert max(one.flops for entry in entries.values() for one in map(problem_of, categories.problems(entry))) < 4e9
