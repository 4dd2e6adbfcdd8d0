"""What CK Tile's dispatcher is tested with, and what it does wrong: the same problems, and numbers compared.

The 14 configurations of its parity suite, the sub-cases of its smoke test, and its known defects as far as forward
attention goes; each on the floor, against float64.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.attention.drawing import ATTENTION, kind, problem
from tests.attention.harness import BINDING
from tests.attention.oracle import batched, plain
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention import AttentionProblem, AttentionSignature
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.devices import HOST, device

pytestmark = pytest.mark.usefixtures("floor", "needs_compiler")

FP16: dict[str, Any] = {"dtype_q": "fp16"}
CAUSAL: dict[str, Any] = {"window_right": 0}
PARITY: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "basic_fp16": ((2, 2, 128, 128), FP16),
    "basic_bf16": ((2, 2, 128, 128), {"dtype_q": "bf16"}),
    "longer_seq": ((2, 2, 256, 256), FP16),
    "small_batch": ((1, 8, 64, 64), FP16),
    "gqa_2_1": ((2, 4, 128, 128), {**FP16, "heads_kv": 2}),
    "gqa_4_1": ((2, 8, 128, 128), {**FP16, "heads_kv": 2}),
    "causal_top_left": ((2, 2, 128, 128), {**FP16, **CAUSAL}),
    "causal_bottom_right": ((2, 2, 128, 128), {**FP16, **CAUSAL, "align": "bottom_right"}),
    "bias_elementwise": ((2, 2, 128, 128), {**FP16, "bias": "tensor", "dtype_aux": "fp16"}),
    "bias_alibi": ((2, 2, 128, 128), {**FP16, "bias": "alibi"}),
    "with_lse": ((2, 2, 128, 128), {**FP16, "return_lse": True}),
    "big_batch": ((4, 8, 128, 128), FP16),
    "asymmetric_seq": ((2, 2, 64, 256), FP16),
    "single_query": ((1, 4, 1, 128), FP16),
}
# Sequences, query heads, heads of keys, heads of q and v, rows, keys; the mask. 0 stands for the head of the run.
SMOKE: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 2, 1, 16, 0, 55, 256), {}),
    ((1, 3, 3, 0, 0, 100, 51), {}),
    ((2, 1, 1, 16, 0, 99, 256), CAUSAL),
    ((1, 2, 1, 0, 0, 1024, 256), {**CAUSAL, "align": "bottom_right"}),
    ((2, 1, 1, 0, 24, 3, 99), {**CAUSAL, "align": "bottom_right"}),
    ((3, 2, 1, 0, 0, 200, 520), {"window_left": 128, "window_right": 30}),
    ((2, 1, 1, 0, 0, 99, 32), {"window_left": 4, "window_right": 35, "align": "bottom_right"}),
    ((1, 2, 1, 0, 0, 33, 0), {**CAUSAL, "align": "bottom_right"}),
    ((1, 2, 1, 0, 0, 1, 32), {**CAUSAL, "align": "bottom_right", "seqlens_k": True}),
)


def right(one: AttentionProblem, seed: int = 0) -> None:
    registry = Registry("generic")
    made = BINDING.sample(one, seed)
    floor = registry.kernel(ATTENTION.fallback_spec(one.signature, "generic"))
    samples.runner(BINDING, floor, one, made, device(HOST), 2)()
    check = BINDING.check(one, made)
    assert check.ok, f"{one.describe()}: {check.detail}"


@pytest.mark.parametrize("name", PARITY)
def test_a_parity_configuration(name: str) -> None:
    (batch, heads, rows, keys), more = PARITY[name]
    right(AttentionProblem(batch, heads, rows, keys, 128, **more))


@pytest.mark.parametrize(
    ("size", "more"),
    [(32, {"return_lse": True}), (64, {"dtype_q": "bf16", "varlen": True}), (128, {"bias": "alibi", **FP16}),
     (256, {"bias": "tensor", "dropout": True, "return_lse": True})],
    ids=str,
)  # fmt: skip
def test_the_smoke_cases(size: int, more: dict[str, Any]) -> None:
    for (batch, heads_q, heads_kv, head_dim, head_dim_v, rows, keys), mask in SMOKE:
        if more.get("varlen"):
            mask = {**mask, "total_q": batch * rows - batch // 2, "total_k": batch * keys - keys // 2}
        right(
            AttentionProblem(
                batch, heads_q, rows, keys, head_dim or size, heads_kv, head_dim_v or size, **{**more, **mask}
            )
        )


# -- its defects -------------------------------------------------------------------------------------------------------


def test_kernels_that_differ_in_anything_have_different_names() -> None:
    """Theirs collide where they differ in soft cap, the third warp shape, a tag or the arch."""
    base = AttentionSignature("forward", "bf16", "bf16", "bf16", dtype_aux="bf16", bias="tensor", pages="strided",
                              page_lookup="table", scales="none")  # fmt: skip
    other: dict[str, Any] = {"mask": "window", "bias": "alibi", "pages": "vectorised", "page_lookup": "indices",
                             "scales": "head", "rotary": "half", "family": "split", "dtype_q": "fp16",
                             "dtype_kv": "fp8_e4m3", "dtype_out": "fp32", "dtype_aux": "fp32", "head_dim": 64,
                             "head_dim_v": 64}  # fmt: skip
    schedule = ATTENTION.fallback_spec(base, "generic").schedule
    made = {KernelSpec("attention", base, schedule, one) for one in ("generic", "x86_64_v3", "sm_90a", "gfx942")}
    for one in fields(AttentionSignature):
        value = other.get(one.name, not getattr(base, one.name))
        made.add(KernelSpec("attention", replace(base, **{one.name: value}), schedule, "generic"))
    assert len({one.name for one in made}) == len({one.digest for one in made}) == len(made) == 4 + 19
    legal = [one for one in made if not ATTENTION.check(one) and one.arch in ("generic", "x86_64_v3")]
    assert len(Registry("x86_64_v3", legal)) == len(legal) > 5


def test_more_parts_than_can_be_put_together_are_an_error() -> None:
    """Theirs does nothing at all from 129 on."""
    one = AttentionProblem(1, 2, 3, 1024, 16, num_splits=129)
    assert [broken.rule for broken in ATTENTION.problem_violations(one, "generic")] == ["splits"]
    right(AttentionProblem(1, 2, 3, 0, 16, family="combine", num_splits=128, return_lse=True))


@pytest.mark.parametrize("seed", range(8))
def test_a_combination_does_not_depend_on_what_it_combines(seed: int) -> None:
    """Theirs wants the mask, the bias and all else of the parts."""
    draw = random.Random(seed)
    one = replace(problem(draw, kind(draw, "forward")), num_splits=3, return_lse=False)
    signature = one.combined(3).signature
    plain_one = AttentionProblem(1, 2, 3, 4, one.head_dim_v, dtype_out=one.dtype_out, varlen=one.varlen)
    assert signature == plain_one.combined(3).signature


def heads(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_causal_masks_in_pages_and_in_packed_heads_first_rows() -> None:
    """Theirs mask nothing in pages and prefill, and take one sequence for the stride of packed heads."""
    q, k, v = heads(5, 4, 16), heads(7, 2, 16, seed=1), heads(7, 2, 16, seed=2)
    want = plain(q, k, v, causal="bottom_right")[0]
    pool_k, pool_v = (
        np.concatenate([one, np.full((1, 2, 16), np.nan, np.float32)]).reshape(2, 4, 2, 16) for one in (k, v)
    )
    table, lengths = np.array([[0, 1]], np.int32), np.array([7], np.int32)
    found = tw.attention(q[None], pool_k, pool_v, block_table=table, seqlens_k=lengths, causal="bottom_right")[0]
    assert np.allclose(found, want, atol=1e-5)
    cu_seqlens_q, cu_seqlens_k = np.array([0, 2, 5], np.int32), np.array([0, 3, 7], np.int32)
    turned = [np.ascontiguousarray(one.transpose(1, 0, 2)) for one in (q, k, v)]
    found = tw.attention(
        *turned, layout="bhsd", cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, causal="bottom_right"
    )
    for rows, keys in ((slice(0, 2), slice(0, 3)), (slice(2, 5), slice(3, 7))):
        mine = plain(q[rows], k[keys], v[keys], causal="bottom_right")[0]
        assert np.allclose(found[:, rows].transpose(1, 0, 2), mine, atol=1e-5)


def test_a_mask_without_a_window_hides_what_it_says() -> None:
    """Theirs takes window (-1, -1) for causal and masks nothing."""
    q, k, v = heads(1, 5, 2, 16), heads(1, 5, 2, 16, seed=1), heads(1, 5, 2, 16, seed=2)
    assert np.allclose(tw.attention(q, k, v, causal=True), batched(q, k, v, causal="top_left")[0], atol=1e-5)
    assert np.allclose(tw.attention(q, k, v, causal=True, window=(-1, -1)), tw.attention(q, k, v, causal=True))


def test_fp8_gives_bf16_and_half_queries_take_fp8_pages_with_sinks() -> None:
    """Theirs reads results of fp8 as fp16, has no fp16 queries over fp8 pages, and no sink in prefill."""
    q, k, v = heads(3, 4, 16), heads(4, 4, 2, 16, seed=1), heads(4, 4, 2, 16, seed=2)
    eight = [one.astype(ml_dtypes.float8_e4m3fn) for one in (q, k, v)]
    table = (np.array([0, 2], np.int32), np.array([3, 1], np.int32), np.array([2], np.int32))
    starts, sink = np.array([0, 3], np.int32), np.array([1, 0, -1, 2], np.float32)
    said: dict[str, Any] = {"cu_seqlens_q": starts, "block_table": table, "sink": sink, "causal": "bottom_right"}
    assert tw.attention(*eight, **said).dtype == ml_dtypes.bfloat16
    half = q.astype(np.float16)
    found = tw.attention(half, *eight[1:], **said)
    assert found.dtype == np.float16
    keys, values = (np.concatenate([one[3], one[1]])[:6].astype(np.float64) for one in eight[1:])
    assert np.allclose(found, plain(half, keys, values, causal="bottom_right", sink=sink)[0], atol=2e-3)
