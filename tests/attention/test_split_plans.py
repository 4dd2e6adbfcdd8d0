"""Numbers of parts: by the rule until others were measured and took less time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.attention.drawing import ATTENTION
from tests.attention.harness import BINDING
from tilewright.arch import arch as arch_by_name
from tilewright.dispatch import records as stored
from tilewright.dispatch import split_plans
from tilewright.dispatch.records import Record, Timing, records
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.splits import independent_splits, splits_of
from tilewright.ops.base import plain
from tilewright.runtime.bindings.attention import request
from tilewright.tune.sweep import Options, Sweep

STEP = AttentionProblem(1, 32, 1, 32768, 128, 8, dtype_q="bf16", seqlens_k=True)
SHARED = AttentionProblem(3, 32, 1, 32768, 128, 8, dtype_q="bf16", seqlens_k=True)  # lengths that the device tells
H200 = "sm_90a"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Of a machine that says it has the device, with a store of its own."""
    monkeypatch.setattr(stored, "_identity", lambda target: {"model": "a device", "arch": target})
    with tw.settings.override(cache_dir=tmp_path):
        yield Registry(H200)


def remember(registry: Registry, stage: AttentionProblem, seconds: float) -> None:
    """As if the stage had been measured."""
    timed = ATTENTION.measured_as(stage)
    spec = registry.select_stage(timed).spec
    timing = Timing(spec.digest, spec.name, spec.to_dict(), seconds, 0.01, 0.1)
    records().put(Record("attention", plain(timed), 1, H200, spec.digest, (timing,), {}, {}))


def test_ways_are_the_rules_number_one_and_its_neighbours() -> None:
    arch = arch_by_name(H200)
    rule = splits_of(STEP, arch)
    known = ATTENTION.split_plans(STEP, H200)
    assert rule > 2
    assert next(iter(known)) == f"{rule} splits"
    assert {"1 split", f"{round(rule / 2)} splits", f"{2 * rule} splits"} <= set(known)
    assert tuple(known[f"{rule} splits"]) == tuple(ATTENTION.stages(STEP, H200))
    assert [one.num_splits for one in known["1 split"]] == [1]
    for name, stages in known.items():
        count = int(name.partition(" ")[0])
        assert count == 1 or [one.family for one in stages] == ["split", "combine"]
        assert all(one.num_splits == count for one in stages)
    for other, target in (
        (replace(STEP, num_splits=3), H200),
        (STEP, "x86_64_v4"),
        (replace(STEP, seqlen_k=300), H200),
    ):
        assert len(ATTENTION.split_plans(other, target)) == 1


def test_what_kernels_divide_themselves_is_measured_beside_parts() -> None:
    parts = independent_splits(SHARED, arch_by_name(H200))
    known = ATTENTION.split_plans(SHARED, H200)
    assert next(iter(known)) == "1 split"
    assert {f"{parts} splits", f"{round(parts / 2)} splits", f"{2 * parts} splits"} <= set(known)
    assert tuple(known["1 split"]) == tuple(ATTENTION.stages(SHARED, H200)) == (SHARED,)


def test_the_fastest_way_that_was_measured_is_taken(registry: Registry) -> None:
    known = ATTENTION.split_plans(STEP, H200)
    rule, *others = known
    assert registry.stages(STEP) == tuple(known[rule])
    assert f"{rule} by heuristic; no other plan was measured" in str(registry.explain(STEP))
    for stage in known[others[0]]:
        remember(registry, stage, 5e-6)
    assert registry.stages(STEP) == tuple(known[rule]), "the rule's own was not measured"
    for stage in known[rule]:
        remember(registry, stage, 8e-6)
    assert registry.stages(STEP) == tuple(known[others[0]])
    said = registry.explain(STEP)
    assert f"stages    {others[0]} by measurement; measured: {rule} 16.0 us" in str(said)
    assert said.to_dict()["split_plan"].startswith(others[0])
    with pytest.warns(DeprecationWarning, match="way is now called split_plan"):
        assert said.way == said.split_plan
    assert registry.select(STEP).stages
    # the call of the same problem follows
    whole = request.made_up(STEP, H200)
    taken = split_plans.request_of(ATTENTION, whole, H200)
    assert tuple(one.problem for one in taken.stages) == registry.stages(STEP)
    assert tuple(one.problem for one in whole.stages) == tuple(known[rule])
    with tw.settings.override(measure=False):
        assert registry.stages(STEP) == tuple(known[rule])


def test_a_way_has_to_save_something() -> None:
    assert split_plans.fastest([0.0, 1.0]) == 0
    assert split_plans.fastest([1.0, 0.99, 0.0]) == 0
    assert split_plans.fastest([1.0, 0.97, 0.96]) == 2
    assert split_plans.fastest([1.0]) == 0


def test_ways_hand_on_as_much_as_their_parts_need() -> None:
    whole = request.made_up(STEP, H200)
    assert whole.others is not None
    sizes = {one.stages[0].problem.num_splits: one.between_bytes for one in (whole, *whole.others())}
    assert sizes[1] == 0
    assert all(size > 0 for count, size in sizes.items() if count > 1)
    assert sorted(sizes.values()) == [size for _, size in sorted(sizes.items())]
    assert BINDING.dense(replace(STEP, num_splits=1)).others is None


def test_a_sweep_measures_the_stages_of_every_way() -> None:
    for asked in (False, True):
        sweep = object.__new__(Sweep)
        sweep.op, sweep.target, sweep.options = ATTENTION, H200, Options(split_plans=asked)
        known = ATTENTION.split_plans(STEP, H200)
        wanted = [one for way in known.values() for one in way] if asked else list(ATTENTION.stages(STEP, H200))
        assert sweep._stages([STEP, STEP]) == [ATTENTION.measured_as(one) for one in wanted]
