"""The problem builder of CK Tile's dispatcher, of gradients: what its setters mean, and what cannot be built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.attention_backward.drawing import BACKWARD
from tilewright.compat.fmha import FmhaProblemBuilder
from tilewright.errors import ProblemError
from tilewright.ops.attention_backward import AttentionBackwardProblem

Builder = FmhaProblemBuilder
PLAIN = AttentionBackwardProblem(2, 8, 64, 256, 64, 2, dtype="bf16")
EVERYWHERE: dict[str, Any] = {f"{name}_strides": () for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv")}


def base() -> Builder:
    return Builder().api_family("bwd").data_type("bf16").dims(64, 64, 2, 64, 256).nheads(8, 2).lse()


MADE: list[tuple[Callable[[Builder], Builder], dict[str, Any]]] = [
    (lambda builder: builder, {}),
    (lambda builder: builder.mask_type("top_left"), {"window_right": 0}),
    (lambda builder: builder.mask_type("b").window(9, 0), {"window_left": 9, "window_right": 0,
                                                           "align": "bottom_right"}),
    (lambda builder: builder.bias_type(1).bwd_flags(True, False, False), {"bias": "tensor", "dbias": True}),
    (lambda builder: builder.bias_type("alibi").dropout(), {"bias": "alibi", "dropout": True}),
    (lambda builder: builder.bwd_flags(False, False, True), {"deterministic": True}),
    (lambda builder: builder.group_mode().max_seqlen(100, 300), {"varlen": True, "total_q": 128, "total_k": 512,
                                                                 "seqlen_q": 100, "seqlen_k": 300}),
    (lambda builder: builder.logits_soft_cap().sink(), {"softcap": True, "dsink": True}),
]  # fmt: skip


@pytest.mark.parametrize(("setters", "said"), MADE, ids=[str(index) for index in range(len(MADE))])
def test_setters_make_problems_that_have_kernels(setters: Callable[[Builder], Builder], said: dict[str, Any]) -> None:
    problem = setters(base()).build()
    assert problem == replace(PLAIN, **EVERYWHERE, **said)
    for stage in BACKWARD.stages(problem, "gfx942"):
        assert BACKWARD.candidates(stage.signature, "gfx942")


@pytest.mark.parametrize(("kernel", "family"), [("bwd_dot_do_o", "dot"), ("bwd_dq_dk_dv", "grad"),
                                                ("bwd_convert_dq", "convert")])  # fmt: skip
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_kernel_family_builds_its_stage(kernel: str, family: str, arch: str) -> None:
    stage = base().gfx_arch(arch).kernel_family(kernel).build()
    assert stage.family == family
    assert BACKWARD.problem_violations(stage, arch) == []


REFUSED: list[tuple[Callable[[Builder], Builder], str]] = [
    (lambda builder: builder.lse(False), "fmha-lse"),
    (lambda builder: builder.bwd_flags(False, True, False), "fmha-feature"),
    (lambda builder: builder.bwd_flags(True, False, False), "dbias-bias"),
    (lambda builder: builder.paged_kv(), "fmha-feature"),
    (lambda builder: builder.rope_type("half"), "fmha-feature"),
    (lambda builder: builder.num_splits(4), "fmha-feature"),
    (lambda builder: builder.data_type("fp8bf16"), "fmha-data-type"),
    (lambda builder: builder.group_mode(), "fmha-group"),
    (lambda builder: builder.nheads(8, 3), "heads-divide"),
]


@pytest.mark.parametrize(("setters", "rule"), REFUSED, ids=[f"{n}-{each[1]}" for n, each in enumerate(REFUSED)])
def test_what_cannot_be_built_has_an_error(setters: Callable[[Builder], Builder], rule: str) -> None:
    with pytest.raises(ProblemError) as caught:
        setters(base()).build()
    assert caught.value.rule == rule
    assert caught.value.remedy
