"""Each rule of the CPU's attention schedules has an example that breaks it, and what is chosen is sane."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION, kind, problem
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import op_kernels
from tilewright.backends.cpu.attention import KERNELS as CPU
from tilewright.backends.cpu.attention.decode import CpuDecodeSchedule
from tilewright.backends.cpu.attention.tiled import CpuTiledSchedule
from tilewright.backends.cpu.vectors import lanes
from tilewright.ops.attention import AttentionProblem, AttentionSignature
from tilewright.ops.attention.schedule import LoopsSchedule
from tilewright.ops.base import KernelSpec

ARCHS = ("generic", "x86_64_v3", "x86_64_v4", "x86_64_v4_bf16")
PLAIN = AttentionSignature("forward", "fp32", "fp32", "fp32")
TILED, DECODE = CpuTiledSchedule((96, 64), (48, 8)), CpuDecodeSchedule((8, 64))

BROKEN: tuple[tuple[str, AttentionSignature, Any], ...] = (
    ("cpu-feature", replace(PLAIN, dropout=True), TILED),
    ("cpu-feature", replace(PLAIN, dropout=True), DECODE),
    ("cpu-feature", replace(PLAIN, pages="vectorised", page_lookup="table"), TILED),
    ("cpu-feature", AttentionSignature("forward", "bf16", "fp8_e4m3", "bf16", scales="head"), DECODE),
    ("cpu-vector", PLAIN, CpuTiledSchedule((40, 64), (40, 8))),
    ("cpu-vector", PLAIN, CpuDecodeSchedule((8, 40))),
    ("cpu-registers", PLAIN, CpuTiledSchedule((48, 60), (48, 10))),
    ("cpu-tile", PLAIN, CpuTiledSchedule((64, 64), (48, 8))),
    ("cpu-tile", PLAIN, CpuTiledSchedule((48, 60), (48, 8))),
    ("cpu-pairs", PLAIN, CpuTiledSchedule((48, 63), (48, 7))),
    ("cpu-cache-block", PLAIN, CpuTiledSchedule((48, 2048), (48, 8))),
    ("cpu-cache-block", PLAIN, CpuDecodeSchedule((8, 2048))),
    ("cpu-pass", PLAIN, CpuDecodeSchedule((6, 64))),
    ("cpu-pass", PLAIN, CpuDecodeSchedule((16, 64))),
    ("pipeline-family", replace(PLAIN, family="split"), TILED),
)


@pytest.mark.parametrize(("rule", "made", "schedule"), BROKEN, ids=[f"{n}-{one[0]}" for n, one in enumerate(BROKEN)])
def test_a_rule_is_broken_alone(rule: str, made: AttentionSignature, schedule: Any) -> None:
    found = ATTENTION.check(KernelSpec("attention", made, schedule, "x86_64_v4"))
    assert [one.rule for one in found] == [rule]
    assert found[0].remedy


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("pool", ["default", "full", "profiler"])
def test_what_pools_propose_is_legal(arch: str, pool: str) -> None:
    for made in (PLAIN, replace(PLAIN, dtype_q="bf16", dtype_kv="bf16", dtype_out="bf16", mask="window")):
        found = list(CPU.schedules(pool, made, arch_by_name(arch)))
        assert len(found) == len(set(found))
        assert not [why for one in found for why in ATTENTION.check(KernelSpec("attention", made, one, arch))]
        assert {one.pipeline for one in found} == {"tiled", "decode", "loops"}
    assert pool != "default" or len(found) <= 4


def chosen(one: AttentionProblem, arch: str, threads: int = 2) -> str:
    """The pipeline of the default pool that is estimated to be the fastest."""
    kernels = op_kernels("cpu", "attention")
    specs = [KernelSpec("attention", one.signature, each, arch)
             for each in CPU.schedules("default", one.signature, arch_by_name(arch))]  # fmt: skip
    able = [spec for spec in specs if not ATTENTION.check(spec) and not ATTENTION.supports(spec, one)]
    best = min(able, key=lambda spec: kernels.estimate(spec, one, threads))
    return str(best.schedule.pipeline)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_prompts_are_tiled_and_steps_are_decoded(arch: str, dtype: str) -> None:
    for size in (64, 128):
        for heads, heads_kv in ((8, 8), (32, 8)):
            prompt = AttentionProblem(1, heads, 1024, 1024, size, heads_kv, dtype_q=dtype, window_right=0)
            assert chosen(prompt, arch) == "tiled"
            step = AttentionProblem(4, heads, 1, 4096, size, heads_kv, dtype_q=dtype)
            if heads // heads_kv < lanes(arch_by_name(arch)):  # else both have full lanes
                assert chosen(step, arch) == "decode"
            assert chosen(replace(step, dropout=True), arch) == "loops"


@pytest.mark.parametrize("arch", ARCHS)
def test_an_estimate_is_a_time_whatever_the_problem(arch: str) -> None:
    """Positive, finite, no shorter for more keys; and no fast kernel is thought slower than the loops by much."""
    kernels = op_kernels("cpu", "attention")
    draw = random.Random(arch)
    for _ in range(60):
        one = problem(draw, kind(draw, "forward"))
        for each in (*CPU.schedules("default", one.signature, arch_by_name(arch)), LoopsSchedule()):
            spec = KernelSpec("attention", one.signature, each, arch)
            for threads in (1, 2, 64):
                assert 0 < kernels.estimate(spec, one, threads) < 1, one.describe()
    spec = KernelSpec("attention", PLAIN, TILED, arch)
    for rows in (1, 500):
        times = [kernels.estimate(spec, AttentionProblem(1, 4, rows, keys, 128), 1) for keys in (100, 1000, 10000)]
        assert times == sorted(times)


@pytest.mark.parametrize("arch", ["x86_64_v3", "x86_64_v4", "x86_64_v4_bf16"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_up_to_sixteen_rows_of_a_head_are_decoded(arch: str, dtype: str) -> None:
    """Tiles pack what they read, which every head of keys pays for: one that reads its keys once has to wait."""
    for heads, heads_kv, rows, keys, size in ((32, 8, 4, 5841, 144), (8, 1, 1, 1226, 80), (16, 1, 1, 8192, 128)):
        for pages in ({}, {"pages": "strided", "page_lookup": "table", "seqlens_k": True}):
            one = AttentionProblem(16, heads, rows, keys, size, heads_kv, dtype_q=dtype, **pages)  # type: ignore[arg-type]
            assert chosen(one, arch) == "decode", one.describe()
