"""Every legality rule has an example that breaks it, a sentence and a remedy."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.names import CpuDirectSchedule, CpuStreamSchedule
from tests.backends.cuda.gemm.names import TmaWsSchedule
from tests.ops.rules_said import rules_said
from tilewright.arch import all_archs
from tilewright.backends.cpu import gemm as cpu_gemm
from tilewright.backends.cpu import vectors
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.native import our_include_dir
from tilewright.errors import IllegalSpecError
from tilewright.ops import KernelSpec, fused, op, rules
from tilewright.ops.base import demand_legal
from tilewright.ops.gemm import GemmProblem, dtype_rules, legality, problem
from tilewright.ops.gemm.pools import signatures

GEMM = op("gemm")
ARCH = "x86_64_v3"
SIGNATURE = next(signatures(["fp32"], ["rrr"], ["standard"]))


def legal(pipeline: str) -> KernelSpec:
    """A legal spec to break, whatever numbers the family proposes today."""
    return next(one for one in GEMM.candidates(SIGNATURE, ARCH) if one.schedule.pipeline == pipeline)


def signed(spec: KernelSpec, **changes: Any) -> KernelSpec:
    return dataclasses.replace(spec, signature=dataclasses.replace(spec.signature, **changes))


def scheduled(spec: KernelSpec, **changes: Any) -> KernelSpec:
    return dataclasses.replace(spec, schedule=dataclasses.replace(spec.schedule, **changes))


def with_warp_tile(spec: KernelSpec, rows: int, columns: int, step: int = 1) -> KernelSpec:
    return scheduled(spec, warp_tile=(rows, columns, step), tile=(rows * 4, columns * 4, 64 * step))


def stream(**changes: Any) -> KernelSpec:
    """A legal gemv spec with some of its schedule changed."""
    width, step = vectors.lanes(all_archs()[ARCH]), cpu.dot_step(SIGNATURE, all_archs()[ARCH])
    base = CpuStreamSchedule("gemv", (1, width * 8, width * step * 8), (1, width, step))
    return KernelSpec("gemm", SIGNATURE, dataclasses.replace(base, **changes), ARCH)


def direct(arch: str = ARCH) -> KernelSpec:
    return KernelSpec("gemm", SIGNATURE, CpuDirectSchedule(legal("packed").schedule.warp_tile), arch)


Breaker = Callable[[], KernelSpec]

BROKEN: dict[str, list[Breaker]] = {
    "arch-name": [lambda: dataclasses.replace(legal("packed"), arch="x86_64_v33")],
    "variant-name": [lambda: signed(legal("packed"), variant="standrad")],
    "layout-name": [lambda: signed(legal("packed"), layout="rrc")],
    "epilogue-name": [lambda: signed(legal("packed"), epilogue="Rleu")],
    "dtype-name": [lambda: signed(legal("packed"), dtype_b="fp23")],
    "positive": [
        lambda: scheduled(legal("packed"), tile=(0, 8, 8)),
        lambda: scheduled(legal("packed"), warp_tile=(1, -1, 1)),
        lambda: scheduled(legal("packed"), split_k=0),
        lambda: scheduled(legal("packed"), unroll=0),
        lambda: scheduled(legal("packed"), prefetch=-1),
    ],
    "tile-multiple": [lambda: scheduled(legal("packed"), tile=(legal("packed").schedule.warp_tile[0] + 1, 64, 64))],
    "epilogue-d-count": [lambda: signed(legal("packed"), variant="multi_d", epilogue="MultiDAdd", num_d=5)],
    "variant-epilogue": [
        lambda: signed(legal("packed"), epilogue="Relu"),
        lambda: signed(legal("packed"), variant="multi_d"),
    ],
    "accumulator": [lambda: signed(legal("packed"), dtype_acc="int32")],
    "schedule-name": [
        lambda: scheduled(legal("packed"), pipeline="compv4"),
        lambda: dataclasses.replace(legal("packed"), schedule=TmaWsSchedule((8, 8, 8), 2, grouping="x"), arch="sm_90a"),
    ],
    "schedule-family": [
        lambda: dataclasses.replace(legal("packed"), arch="gfx942"),
        lambda: dataclasses.replace(legal("packed"), arch="sm_90a"),
        lambda: dataclasses.replace(
            legal("packed"), schedule=CkTileSchedule("mem", (64, 64, 64), (16, 16, 16), (2, 2, 1))
        ),
    ],
    "dtype-mix": [
        lambda: signed(legal("packed"), dtype_b="int8"),
        lambda: signed(legal("packed"), dtype_a="int32", dtype_b="int32"),
    ],
    "dtype-output": [lambda: signed(legal("packed"), dtype_c="int8")],
    "dtype-d": [lambda: signed(legal("packed"), variant="multi_d", epilogue="MultiDAdd", num_d=1, dtype_d="bf16")],
    "dual-target": [lambda: signed(legal("packed"), variant="multi_d", epilogue="SiluAndMul")],
    "dual-kernel": [lambda: signed(legal("packed"), variant="multi_d", epilogue="GeluAndMul")],
    "cpu-preshuffle": [
        lambda: signed(legal("packed"), variant="preshuffle"),
        lambda: scheduled(legal("packed"), pipeline="preshuffle"),
    ],
    "cpu-unroll": [lambda: scheduled(legal("packed"), unroll=cpu.MAX_UNROLL + 1)],
    "cpu-split-k": [lambda: scheduled(legal("packed"), split_k=cpu.MAX_SPLIT_K + 1)],
    "cpu-vector": [lambda: with_warp_tile(legal("packed"), 2, 9)],
    "cpu-dot-step": [lambda: with_warp_tile(legal("packed"), 2, 8, step=3)],
    "cpu-registers": [
        lambda: with_warp_tile(legal("packed"), 64, 8),
        lambda: with_warp_tile(legal("packed"), 1, 8 * 64),
    ],
    "cpu-cache-block": [lambda: scheduled(legal("packed"), tile=(*legal("packed").schedule.tile[:2], 1 << 20))],
    "cpu-stream-rows": [
        lambda: stream(tile=(cpu.GEMV_MAX + 1, 64, 64)),
        lambda: stream(pipeline="stream", tile=(cpu.STREAM_MAX + 1, 64, 64)),
    ],
    "cpu-stream-warp-tile": [lambda: stream(warp_tile=(2, 8, 1), tile=(2, 64, 64))],
    "cpu-stream-k": [lambda: stream(tile=(1, 64, 63))],
    "cpu-direct-layout": [lambda: signed(direct(), layout="rcr")],
    "cpu-direct-int8": [
        lambda: signed(
            direct(arch="x86_64_v4_vnni"),
            dtype_a="int8",
            dtype_b="int8",
            dtype_acc="int32",
            dtype_c="int32",
            dtype_d="int32",
        )
    ],
}

PROBLEMS: dict[str, list[GemmProblem]] = {
    "size-negative": [GemmProblem(-1, 1, 1), GemmProblem(1, 1, 1, batch=-1)],
    "size-huge": [GemmProblem(problem.MAX_SIZE + 1, 1, 1), GemmProblem(1 << 35, 1 << 35, 1)],
    "layout-name": [GemmProblem(1, 1, 1, layout="rrc")],
    "epilogue-name": [GemmProblem(1, 1, 1, epilogue="Rleu")],
    "epilogue-d-count": [GemmProblem(1, 1, 1, num_d=1), GemmProblem(1, 1, 1, epilogue="MultiDAdd")],
    "stride-huge": [GemmProblem(4, 4, 4, a_stride=1 << 61), GemmProblem(4, 4, 4, c_stride=1 << 61)],
    "stride-short": [GemmProblem(4, 4, 4, a_stride=3), GemmProblem(4, 4, 4, layout="rcr", b_stride=3)],
    "dtype-mix": [GemmProblem(1, 1, 1, dtype_a="int8", dtype_b="fp32")],
    "dtype-output": [GemmProblem(1, 1, 1, dtype_c="int8")],
    "dual-operands": [GemmProblem(1, 1, 1, epilogue="SiluAndMul", beta=True)],
    "operand-name": [GemmProblem(1, 1, 1, unaligned="x")],
    "gate-dtype": [GemmProblem(1, 1, 1, dtype_a="int8", epilogue="SiluAndMul", num_d=1)],
}

UNSERVED: dict[str, tuple[Breaker, GemmProblem]] = {
    "signature": (lambda: legal("packed"), GemmProblem(8, 8, 8, dtype_a="bf16")),
    "cpu-stream-size": (stream, GemmProblem(8, 8, 8)),
    "no-edge-code": (lambda: scheduled(legal("packed"), pad=(False, True, True)), GemmProblem(10**6 + 3, 8, 8)),
}


def rules_in_the_source() -> set[str]:
    modules = (legality, rules, vectors, dtype_rules, problem, fused)
    shared = our_include_dir() / "tilewright/select/gemm.h"
    of_a_field = {"cpu-unroll", "cpu-split-k"}  # which packed/__init__.py puts the field's name into
    files = (str(module.__file__) for module in modules)
    return of_a_field | rules_said(*files, Path(cpu_gemm.__file__).parent, shared)


def test_every_rule_has_an_example_here() -> None:
    covered = {*BROKEN, *PROBLEMS, *UNSERVED, "family"}
    assert rules_in_the_source() == covered, "a rule came or went: add or remove its failing example"


@pytest.mark.parametrize(("rule", "number"), [(rule, i) for rule, cases in BROKEN.items() for i in range(len(cases))])
def test_a_broken_spec_is_told_rule_sentence_and_remedy(rule: str, number: int) -> None:
    spec = BROKEN[rule][number]()
    violations = {one.rule: one for one in GEMM.check(spec)}
    assert rule in violations, violations
    assert violations[rule].message
    assert violations[rule].remedy
    with pytest.raises(IllegalSpecError) as caught:
        demand_legal(GEMM, spec)
    assert violations[rule].message in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(("rule", "number"), [(rule, i) for rule, cases in PROBLEMS.items() for i in range(len(cases))])
def test_an_illegal_problem_is_told_rule_sentence_and_remedy(rule: str, number: int) -> None:
    violations = {one.rule: one for one in GEMM.problem_violations(PROBLEMS[rule][number], ARCH)}
    assert rule in violations, violations
    assert violations[rule].message
    assert violations[rule].remedy


@pytest.mark.parametrize("rule", UNSERVED)
def test_a_kernel_says_why_it_cannot_serve(rule: str) -> None:
    make, unserved = UNSERVED[rule]
    violations = {one.rule: one for one in GEMM.supports(make(), unserved)}
    assert rule in violations, violations
    assert violations[rule].message


def test_a_family_without_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = dataclasses.replace(all_archs()[ARCH], name="stranger", family="abacus")
    monkeypatch.setattr(rules, "all_archs", lambda: {"stranger": stranger})
    violations = GEMM.check(dataclasses.replace(legal("packed"), arch="stranger"))
    assert [one.rule for one in violations] == ["family"]
    assert violations[0].remedy


def test_the_specs_the_examples_start_from_are_legal() -> None:
    assert [GEMM.check(one) for one in (legal("packed"), stream(), direct())] == [[], [], []]


def test_all_broken_rules_are_told_at_once() -> None:
    spec = scheduled(signed(legal("packed"), dtype_c="int8"), unroll=99, split_k=99)
    assert {"dtype-output", "cpu-unroll", "cpu-split-k"} <= {one.rule for one in GEMM.check(spec)}


def test_no_rule_says_that_a_field_means_nothing() -> None:
    """A family has the fields it reads: every one of them changes what a kernel is."""
    texts = (file.read_text(encoding="utf-8") for file in Path(cpu_gemm.__file__).parent.rglob("*.py"))
    assert "means nothing" not in "".join((inspect.getsource(legality), *texts))
    kinds = legality.SPACES.every_schedule()
    assert len(kinds) > 5, "the test looks at the wrong place"
    for kind in kinds:
        assert {"tile", "warp_tile", "warp_grid"} <= set(kind.axis_names)
        assert set(kind.choices) | set(kind.may_be_zero) <= {field.name for field in dataclasses.fields(kind)}


@pytest.mark.parametrize("size", [(0, 0, 0), (1, 1, 1), (0, 7, 3), (7, 3, 0), (1 << 20, 1 << 20, 1)])
def test_a_legal_problem_is_legal_and_the_generic_kernel_serves_it(size: tuple[int, int, int]) -> None:
    one = GemmProblem(*size)
    assert GEMM.problem_violations(one, ARCH) == []
    assert GEMM.supports(GEMM.fallback_spec(one.signature, ARCH), one) == []


def test_the_tile_a_remedy_names_is_named_once() -> None:
    spec = legal("packed")
    step = spec.schedule.warp_tile[0] * spec.schedule.warp_grid[0]
    for tile_m, remedy in ((step - 1, f"use tile_m {step}"), (step + 1, f"use tile_m {step} or {2 * step}")):
        found = op("gemm").check(scheduled(spec, tile=(tile_m, *spec.schedule.tile[1:])))
        assert remedy in [one.remedy for one in found if one.rule == "tile-multiple"]
