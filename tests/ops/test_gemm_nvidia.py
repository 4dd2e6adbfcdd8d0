"""NVIDIA legality: every rule has an example that breaks it, a sentence and a remedy; pools and candidates."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.backends.cuda.gemm import names as make
from tests.backends.cuda.gemm.names import NvidiaSchedule
from tests.ops.rules_said import rules_said
from tilewright.backends.cuda import gemm
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.ops import KernelSpec, op
from tilewright.ops.gemm import GemmProblem, GemmSignature
from tilewright.ops.gemm.pools import proposals
from tilewright.ops.gemm.spec import LAYOUTS
from tilewright.ops.pooling import POOL_NAMES

GEMM = op("gemm")
BF16 = GemmSignature("standard", "bf16", "bf16", "fp32", "bf16", "bf16", "rcr")
TF32 = GemmSignature("standard", "tf32", "tf32", "fp32", "fp32", "fp32", "ccr")
FP8 = GemmSignature("standard", "fp8_e4m3", "fp8_e4m3", "fp32", "fp32", "fp32", "rcr")


def spec(schedule: NvidiaSchedule, signature: GemmSignature = BF16, arch: str = "sm_90a", **changes: Any) -> KernelSpec:
    return KernelSpec("gemm", signature, dataclasses.replace(schedule, **changes), arch)


def tma(signature: GemmSignature = BF16, arch: str = "sm_90a", **changes: Any) -> KernelSpec:
    return spec(make.tma_ws(signature, 128, 128, 4, (1, 1)), signature, arch, **changes)


def skinny(signature: GemmSignature = BF16, **changes: Any) -> KernelSpec:
    return spec(make.skinny(1, 1, 8), signature, **changes)


def multistage(signature: GemmSignature = BF16, **changes: Any) -> KernelSpec:
    return spec(make.multistage(signature, 128, 128, 64, (2, 2), 3), signature, **changes)


def loops(signature: GemmSignature = BF16) -> KernelSpec:
    return spec(GpuLoopsSchedule(), signature)


def signed(**changes: Any) -> GemmSignature:
    return dataclasses.replace(BF16, **changes)


BROKEN: dict[str, list[KernelSpec]] = {
    "nv-preshuffle": [
        tma(signed(variant="preshuffle", dtype_a="fp32", dtype_b="fp32")),
        tma(signed(variant="preshuffle", dtype_b="fp16")),
        tma(signed(variant="preshuffle"), arch="sm_80"),
    ],
    "nv-packed": [
        skinny(signed(variant="preshuffle")),
        multistage(signed(variant="preshuffle")),
    ],
    "dtype-mix": [loops(signed(dtype_a="tf32")), loops(signed(dtype_b="int8")), loops(signed(dtype_a="int32"))],
    "dtype-output": [loops(signed(dtype_c="int32"))],
    "dtype-d": [loops(signed(variant="multi_d", epilogue="MultiDAdd", num_d=1, dtype_d="fp16"))],
    "nv-arch": [tma(arch="sm_80")],
    "nv-d-count": [tma(signed(variant="multi_d", epilogue="MultiDAdd", num_d=3))],
    "nv-split-sums": [
        multistage(signed(dtype_a="int8", dtype_b="int8", dtype_acc="int32", dtype_c="int32", dtype_d="int32"),
                   tile_scheduler="split_k"),
    ],
    "nv-warps": [multistage(warp_grid=(4, 8, 1))],
    "nv-warp-part": [multistage(tile=(128, 24, 32)), multistage(tile=(48, 128, 32))],
    "nv-vector": [multistage(vector=(16, 8)), multistage(vector=(8, 3))],
    "nv-copies": [
        multistage(signed(layout="crr"), tile=(96, 128, 32), warp_grid=(2, 4, 1)),
        multistage(signed(layout="rrr"), tile=(32, 256, 32), warp_grid=(1, 2, 1), vector=(8, 2)),
    ],
    "nv-inputs": [
        multistage(signed(dtype_b="fp16")), skinny(FP8),
        tma(signed(dtype_b="fp16")), tma(signed(dtype_a="fp32", dtype_b="fp32")),
    ],
    "nv-stream": [multistage(tile_scheduler="stream_k")],
    "nv-columns": [tma(tile=(128, 40, 64)), tma(tile=(128, 512, 64))],
    "nv-cluster-k": [
        tma(tile_scheduler="cluster_k", cluster=(2, 1), grouping="pingpong"),
        tma(tile_scheduler="cluster_k", cluster=(2, 1), store="tma"),
        tma(tile_scheduler="cluster_k", cluster=(2, 1), tile=(256, 128, 64), stages=2),
    ],
    "nv-warp": [
        multistage(warp_tile=(8, 16, 16)), multistage(warp_grid=(2, 1, 2)),
    ],
    "nv-tile-k": [
        multistage(tile=(128, 128, 96)), tma(tile=(128, 128, 128)), skinny(tile=(8, 16, 192)), skinny(tile=(8, 16, 96)),
    ],
    "nv-tile-m": [tma(tile=(384, 128, 64)), tma(tile=(64, 128, 64))],
    "nv-groups": [tma(tile=(192, 128, 64), tile_scheduler=one) for one in ("stream_k", "split_k")],
    "nv-tma-store": [
        tma(signed(dtype_c="fp32"), store="tma"),
        tma(tile=(128, 24, 64), store="tma"),
        tma(signed(variant="multi_d", epilogue="MultiDAdd", num_d=1), swap_ab=True, store="tma"),
    ],
    "nv-cluster": [tma(cluster=(4, 4)), tma(tile_scheduler="cluster_k", store="direct")],
    "nv-cluster-part": [
        tma(signed(layout="rrr"), cluster=(3, 1)),
        tma(signed(layout="crr"), cluster=(1, 3)),
        tma(tile=(128, 8, 64), cluster=(2, 1), store="direct"),
        tma(signed(variant="preshuffle"), tile=(128, 24, 64), cluster=(2, 1), store="direct"),
    ],
    "nv-registers": [
        multistage(tile=(256, 128, 32)),
        tma(tile=(256, 256, 64), stages=2),
    ],
    "nv-stages": [multistage(stages=1), multistage(stages=9), tma(stages=1), tma(stages=17)],
    "nv-shared-memory": [
        multistage(tile=(128, 128, 64), stages=8), tma(stages=8),
        skinny(tile=(32, 64, 512)),
    ],
    "nv-skinny-layout": [skinny(signed(layout="rrr"))],
    "nv-dual": [
        tma(signed(variant="multi_d", epilogue="SiluAndMul"), tile_scheduler="split_k"),
        tma(signed(variant="multi_d", epilogue="SiluAndMul", layout="rrr")),
        tma(signed(variant="multi_d", epilogue="SiluAndMul"), tile=(128, 24, 64), store="direct"),
    ],
    "nv-skinny-dual": [skinny(signed(variant="multi_d", epilogue="SiluAndMul", layout="rrr"))],
    "nv-skinny-tile": [skinny(tile=(40, 16, 512)), skinny(tile=(8, 128, 512))],
}  # fmt: skip

ODD: dict[str, Any] = {"dtype_a": "bf16", "layout": "rcr"}
UNSERVED: dict[str, list[tuple[KernelSpec, GemmProblem]]] = {
    "nv-empty-k": [(tma(), GemmProblem(8, 8, 0, **ODD)), (skinny(), GemmProblem(8, 8, 0, **ODD))],
    "nv-beta": [(tma(swap_ab=True, store="tma"), GemmProblem(64, 64, 64, beta=True, **ODD))],
    "nv-size": [
        (multistage(), GemmProblem(1 << 29, 8, 8, **ODD)),
        (multistage(), GemmProblem(1 << 28, 1 << 28, 8, **ODD)),
        (tma(), GemmProblem(1 << 31, 8, 8, **ODD)),
        (tma(), GemmProblem(1 << 20, 1 << 20, 1 << 20, **ODD)),
        (skinny(), GemmProblem(8, 8, 8, batch=1 << 16, **ODD)),
    ],
    "nv-alignment": [
        (multistage(), GemmProblem(8, 8, 12, **ODD)),
        (multistage(), GemmProblem(8, 8, 8, b_stride=9, **ODD)),
        (multistage(vector=(4, 1)), GemmProblem(8, 8, 8, aligned=False, **ODD)),
        (tma(), GemmProblem(8, 9, 8, **ODD)),
        (tma(), GemmProblem(8, 8, 8, aligned=False, **ODD)),
        (skinny(), GemmProblem(8, 8, 8, a_stride=12, **ODD)),
    ],
    "nv-skinny-size": [(skinny(), GemmProblem(9, 64, 64, **ODD))],
    "nv-skinny-k": [(skinny(), GemmProblem(8, 64, 60, a_stride=64, b_stride=64, **ODD))],
}


def test_every_rule_has_an_example_here() -> None:
    assert rules_said(Path(gemm.__file__).parent) == {*BROKEN, *UNSERVED}


@pytest.mark.parametrize(("rule", "number"), [(rule, i) for rule, cases in BROKEN.items() for i in range(len(cases))])
def test_a_broken_spec_is_told_rule_sentence_and_remedy(rule: str, number: int) -> None:
    violations = {one.rule: one for one in GEMM.check(BROKEN[rule][number])}
    assert rule in violations, violations
    assert violations[rule].message
    assert violations[rule].remedy


@pytest.mark.parametrize(("rule", "number"), [(rule, i) for rule, cases in UNSERVED.items() for i in range(len(cases))])
def test_a_kernel_says_why_it_cannot_serve(rule: str, number: int) -> None:
    one, problem = UNSERVED[rule][number]
    violations = {found.rule: found for found in GEMM.supports(one, problem)}
    assert rule in violations, violations
    assert violations[rule].message
    assert violations[rule].remedy


def test_the_specs_the_examples_start_from_are_legal() -> None:
    assert [GEMM.check(one) for one in (tma(), tma(FP8), multistage(), skinny(), loops())] == [[]] * 5


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("pool", POOL_NAMES)
def test_every_pool_proposes_something_legal(pool: str, arch: str) -> None:
    found = [one for one in proposals(pool, arch, datatypes=["bf16"], layouts=["rcr"]) if not GEMM.check(one)]
    assert found
    assert len({one.digest for one in found}) == len(found)
    assert len({one.name for one in found}) == len(found)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"])
def test_every_problem_has_a_kernel(arch: str, layout: str, dtype: str) -> None:
    for size in ((0, 0, 0), (1, 1, 1), (7, 5, 0), (4097, 333, 65), (1 << 20, 8, 8)):
        problem = GemmProblem(*size, dtype, layout=layout, aligned=False)
        assert GEMM.problem_violations(problem, arch) == []
        floor = GEMM.fallback_spec(problem.signature, arch)
        assert GEMM.check(floor) == []
        assert GEMM.supports(floor, problem) == []


def test_an_aligned_problem_of_every_layout_goes_to_the_tensor_cores() -> None:
    for layout in LAYOUTS:
        for m, n in ((512, 512), (64, 4096), (8192, 64)):
            problem = GemmProblem(m, n, 1024, "bf16", layout=layout)
            served = [one for one in GEMM.candidates(problem.signature, "sm_90a") if not GEMM.supports(one, problem)]
            assert sum(one.schedule.pipeline == "tma_ws" for one in served) >= 10, layout
