"""Rules of the mma, fp8 and latent pipelines: each has an example that breaks it; pools propose what is legal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION
from tilewright.arch import arch
from tilewright.backends.cuda.attention import KERNELS
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.mla import MlaSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.backends.cuda.attention.ws import WsSchedule
from tilewright.dispatch import default_registry
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention_terms import HEADS
from tilewright.ops.base import KernelSpec

MMA = MmaSchedule("mma", 64, 4, 1, 1, 2)
SHARES = WsSchedule("decode_stream_k", 64, 1, 2, 2)
FP8 = Fp8Schedule(96, 2, 2)
LATENT = MlaSchedule(64, 2)
PLAIN = AttentionProblem(1, 4, 8, 8, 128, dtype_q="bf16")
LARGE = AttentionProblem(1, 4, 8, 8, 576, 1, 512, dtype_q="bf16")
BYTES = AttentionProblem(1, 4, 8, 8, 128, dtype_q="fp8_e4m3")


def rules(problem: AttentionProblem, schedule: Any, target: str = "sm_90a") -> set[str]:
    return {one.rule for one in ATTENTION.check(KernelSpec("attention", problem.signature, schedule, target))}


def of(problem: AttentionProblem, **more: Any) -> AttentionProblem:
    return replace(problem, q_strides=(), k_strides=(), v_strides=(), o_strides=(), **more)


@pytest.mark.parametrize(
    ("problem", "schedule", "rule"),
    [
        (of(PLAIN, dtype_q="fp32", dtype_kv="fp32", dtype_out="fp32"), MMA, "nv-inputs"),
        (PLAIN, replace(MMA, warps_m=8, warps_n=4), "nv-warps"),
        (PLAIN, replace(MMA, tile_n=72), "nv-tile-n"),
        (BYTES, replace(MMA, tile_n=48), "nv-tile-n"),
        (of(PLAIN, head_dim_v=96), replace(MMA, warps_m=1, warps_n=4), "nv-columns"),
        (PLAIN, replace(MMA, kv_stages=1), "nv-stages"),
        (of(PLAIN, head_dim=256, head_dim_v=256), replace(MMA, row_blocks=2), "nv-registers"),
        (of(PLAIN, head_dim=256, head_dim_v=256), replace(MMA, kv_stages=9), "nv-shared-memory"),
        (of(PLAIN, dtype_q="fp16", dtype_kv="fp8_e4m3", kv_scales="block", scale_block=8), MMA, "nv-scales"),
        (of(PLAIN, family="split", num_splits=2), SHARES, "nv-stream-k"),
        (PLAIN, replace(SHARES, tile_scheduler="dynamic"), "nv-stream-k"),
        (PLAIN, replace(SHARES, warpgroups=2, ctas_per_sm=1), "nv-stream-k"),
        (PLAIN, FP8, "nv-inputs"),
        (of(BYTES, pages="vectorised", page_lookup="table", page_size=16), FP8, "nv-pages"),
        (of(BYTES, kv_scales="block", scale_block=64), FP8, "nv-scales"),
        (of(BYTES, head_dim=512, head_dim_v=64), FP8, "nv-heads"),
        (BYTES, replace(FP8, tile_n=48), "nv-tile-n"),
        (BYTES, replace(FP8, warpgroups=4), "nv-warpgroups"),
        (BYTES, replace(FP8, tile_n=256), "nv-registers"),
        (BYTES, replace(FP8, stages=9), "nv-shared-memory"),
        (of(LARGE, dtype_kv="fp8_e4m3"), LATENT, "nv-inputs"),
        (of(LARGE, pages="vectorised", page_lookup="table", page_size=16), LATENT, "nv-pages"),
        (PLAIN, LATENT, "nv-heads"),
        (LARGE, replace(LATENT, tile_n=40), "nv-tile-n"),
        (LARGE, replace(LATENT, stages=1), "nv-stages"),
        (of(LARGE, softcap=True, dropout=True), replace(LATENT, tile_n=96), "nv-registers"),
        (LARGE, replace(LATENT, stages=3), "nv-shared-memory"),
    ],
)
def test_each_rule_has_an_example(problem: AttentionProblem, schedule: Any, rule: str) -> None:
    assert rule in rules(problem, schedule)


def test_fp8_and_latent_need_a_hopper() -> None:
    assert "nv-arch" in rules(LARGE, LATENT, "sm_80")
    assert rules(LARGE, LATENT) == set()
    assert "nv-arch" in rules(BYTES, FP8, "sm_80")
    assert rules(BYTES, FP8) == set()
    assert rules(BYTES, replace(MMA, tile_n=64), "sm_80") == set()


KINDS: tuple[dict[str, Any], ...] = (
    {"dtype_q": "bf16"},
    {"dtype_q": "fp16", "window_right": 0, "varlen": True},
    {"dtype_q": "bf16", "softcap": True, "bias": "alibi", "dropout": True},
    {"dtype_q": "bf16", "dtype_kv": "fp8_e4m3", "kv_scales": "head"},
    {"dtype_q": "fp8_e4m3", "q_scale": "tensor", "kv_scales": "block", "scale_block": 64},
    {"dtype_q": "bf16", "pages": "vectorised", "page_lookup": "table", "seqlens_k": True, "page_size": 16},
    {"dtype_q": "fp8_e4m3", "family": "split", "num_splits": 2},
)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("pool", ["default", "full"])
@pytest.mark.parametrize("head", HEADS)
def test_what_pools_propose_is_legal_and_above_the_floor(pool: str, head: int, target: str) -> None:
    for kind in KINDS:
        signature = AttentionProblem(1, 4, 8, 8, head, **kind).signature
        proposed = list(KERNELS.schedules(pool, signature, arch(target)))
        assert len(proposed) > 1, (kind, head)  # the floor is one
        for one in proposed:
            assert ATTENTION.check(KernelSpec("attention", signature, one, target)) == [], (kind, one)


def test_shares_take_the_rows_of_one_tile() -> None:
    spec = KernelSpec("attention", PLAIN.signature, SHARES, "sm_90a")
    assert ATTENTION.supports(spec, of(PLAIN, heads_kv=1, seqlen_q=16)) == []
    assert {one.rule for one in ATTENTION.supports(spec, of(PLAIN, heads_kv=1, seqlen_q=17))} == {"nv-rows"}


def test_a_kernel_says_so_where_places_are_too_many() -> None:
    for kind, schedule in ((PLAIN, MMA), (PLAIN, SHARES), (BYTES, FP8), (LARGE, LATENT)):
        spec = KernelSpec("attention", kind.signature, schedule, "sm_90a")
        assert ATTENTION.supports(spec, kind) == []
        for more in ({"seqlen_k": 1 << 30}, {"batch": 1 << 26}):
            assert {one.rule for one in ATTENTION.supports(spec, of(kind, **more))} == {"nv-size"}


@pytest.mark.parametrize("target", ["sm_80", "sm_86", "sm_89", "sm_100", "sm_120"])
def test_long_prefill_has_tiles_of_many_rows(target: str) -> None:
    """Blocks of 16 rows would fetch every key 128 times a head."""
    for problem in (
        AttentionProblem(2, 32, 2048, 2048, 128, 8, dtype_q="bf16", window_right=0, align="bottom_right"),
        AttentionProblem(4, 32, 4096, 4096, 128, 8, dtype_q="bf16"),
        AttentionProblem(4, 16, 4096, 4096, 64, dtype_q="fp16", window_right=0),
    ):
        chosen = default_registry(target).select(problem).spec
        assert chosen.schedule.pipeline in ("mma", "mma_decode")
        assert chosen.schedule.tile_m >= 64, chosen.name


@pytest.mark.parametrize("target", ["sm_80", "sm_120"])  # on others memory alone decides
def test_few_rows_have_tiles_of_few(target: str) -> None:
    problem = AttentionProblem(32, 32, 1, 2048, 128, 8, dtype_q="bf16", num_splits=1)
    chosen = default_registry(target).select(problem).spec
    assert chosen.schedule.tile_m == 16, chosen.name
