"""The reference is the derivative of the forward pass: by central differences in float64, input by input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ops.attention_backward import AttentionBackwardProblem, reference
from tilewright.ops.attention_scores import Numbers, numbers_of
from tilewright.runtime.bindings.attention_backward import samples
from tilewright.runtime.bindings.attention_backward.stages import NAMES

STEP = 1e-5
CASES: tuple[dict[str, Any], ...] = (
    {},
    {"window_right": 0},
    {"window_left": 2, "window_right": 1, "align": "bottom_right", "sink_tokens": 1},
    {"softcap": True, "bias": "tensor", "bias_shape": (2, 1, 5, 1), "dbias": True},
    {"bias": "tensor", "bias_shape": (1, 4, 1, 6), "dbias": True, "mask_shape": (2, 1, 5, 6)},
    {"bias": "alibi", "dalibi": True, "dsink": True, "window_right": 0},
    {"dropout": True, "dlse": True, "dsink": True, "softcap": True},
    {"seqlens_q": True, "seqlens_k": True, "bias": "tensor", "bias_shape": (1, 1, 5, 6), "dbias": True, "dlse": True},
)


def _operands(p: AttentionBackwardProblem) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    made: dict[str, Any] = {name: rng.standard_normal(p.shape(name)) for name in ("q", "k", "v")}
    made["dout"] = rng.standard_normal(p.shape("o"))
    if p.bias == "tensor":
        made["bias"] = rng.standard_normal(p.bias_shape)
    if p.bias == "alibi":
        made["alibi_slopes"] = rng.random((p.batch, p.heads_q))
    if p.mask_shape:
        made["mask"] = rng.random(p.mask_shape) < 0.7
    if p.dsink:
        made["sink"] = rng.standard_normal(p.heads_q)
    if p.dlse:
        made["dlse"] = rng.standard_normal(p.lse_shape)
    if p.seqlens_q:
        made["seqlens_q"] = np.array([3, 5], np.int32)
    if p.seqlens_k:
        made["seqlens_k"] = np.array([6, 4], np.int32)
    return made


def _loss(p: AttentionBackwardProblem, given: dict[str, Any], numbers: Numbers) -> float:
    out, lse = reference.forward(p, given, numbers)
    found = float((out * given["dout"]).sum())
    return found + (float((np.where(np.isfinite(lse), lse, 0.0) * given["dlse"]).sum()) if p.dlse else 0.0)


@pytest.mark.parametrize("more", CASES)
def test_gradients_are_central_differences(more: dict[str, Any]) -> None:
    p = AttentionBackwardProblem(2, 4, 5, 6, 3, 2, 4, **more)
    numbers = Numbers(0.7, 1.3 if p.softcap else 0.0, 0.3 if p.dropout else 0.0, 5, 9)
    given = _operands(p)
    out, lse = reference.forward(p, given, numbers)
    exact = reference.gradients(p, {**given, "out": out, "lse": lse}, numbers)
    of = {"dq": "q", "dk": "k", "dv": "v", "dbias": "bias", "dsink": "sink", "dalibi": "alibi_slopes"}
    assert set(exact) == {"dq", "dk", "dv", *(name for name in ("dbias", "dsink", "dalibi") if more.get(name))}
    for name, (value, bound) in exact.items():
        array = given[of[name]]
        assert value.shape == array.shape
        assert np.isfinite(value).all()
        assert (bound >= 0).all()
        for place in np.ndindex(array.shape):
            kept = array[place]
            array[place] = kept + STEP
            above = _loss(p, given, numbers)
            array[place] = kept - STEP
            below = _loss(p, given, numbers)
            array[place] = kept
            assert abs((above - below) / (2 * STEP) - value[place]) < 1e-7 * (1 + abs(value[place])), (name, place)


def test_rows_that_see_nothing_have_no_gradient_and_no_bound() -> None:
    p = AttentionBackwardProblem(1, 1, 6, 3, 4, window_right=0, align="bottom_right")
    given, numbers = _operands(p), Numbers(0.5)
    out, lse = reference.forward(p, given, numbers)
    assert np.isneginf(lse[0, 0, :3]).all()
    dq, bound = reference.gradients(p, {**given, "out": out, "lse": lse}, numbers)["dq"]
    assert (dq[0, :3] == 0).all()
    assert (bound[0, :3] == 0).all()
    assert (dq[0, 3:] != 0).any()


def test_of_a_large_problem_some_heads_are_looked_at() -> None:
    large = AttentionBackwardProblem(4, 32, 4096, 4096, 128, 8)
    chosen = reference.chosen_heads(large)
    assert 2 <= len(chosen) < 32
    assert chosen[0] == (0, 0)
    assert chosen[-1] == (3, 7)
    assert len(reference.chosen_heads(AttentionBackwardProblem(4, 32, 64, 64, 128, 8))) == 32


def test_subnormal_weights_may_be_flushed() -> None:
    """Kernels take exp2 without subnormal numbers: gradients of weights below 2^-126 may be 0, and no larger one."""
    problem = AttentionBackwardProblem(1, 1, 1, 400, 8, dtype="bf16", bias="alibi").stage("grad", "none")
    sample = samples.sample(problem, 5)
    operands = dict(zip(NAMES, sample.operands, strict=True))
    given = {name: array for name, array in operands.items() if array is not None}
    given["alibi_slopes"] = np.full(1, 0.25, np.float32)  # the first keys weigh exp(-100)
    numbers = numbers_of(problem, sample.scalars)
    exact = reference.gradients(problem, given, numbers)
    value = exact["dv"][0]
    flushed = {name: np.where(np.abs(each[0]) < 2.0**-126, 0.0, each[0]) for name, each in exact.items()}
    assert ((value != 0) & (np.abs(value) < 2.0**-126)).any()
    judge = reference.judgement(problem, given, numbers)
    kind = operands["dv"].dtype
    assert judge({name: each.astype(np.float32).astype(kind) for name, each in flushed.items()}).ok
    larger = {name: np.where(np.abs(each[0]) < 2.0**-100, 0.0, each[0]) for name, each in exact.items()}
    assert not judge({name: each.astype(np.float32).astype(kind) for name, each in larger.items()}).ok
