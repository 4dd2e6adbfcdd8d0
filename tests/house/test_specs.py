"""The ops by themselves: what they propose is legal, what they refuse is named, what they write they read back."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from tilewright import ops
from tilewright.arch import all_archs
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops.base import KernelSpec, Op, plain

CPU, NVIDIA, AMD = "x86_64_v3", "sm_90a", "gfx942"
EXAMPLES: dict[str, dict[str, Any]] = {
    "rowscale": {"rows": 7, "columns": 33, "datatype": "bf16", "activation": "Silu", "x_stride": 40},
    "regionstats": {"n": 3, "spatial": "9x7x5", "channels": 6, "dilation": "2x1x3", "weight": True, "datatype": "fp16"},
}


def test_they_are_found_beside_the_package_s_own() -> None:
    assert {"rowscale", "regionstats"} < set(ops.op_names())
    for name in EXAMPLES:
        assert isinstance(ops.op(name), Op)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("arch", [CPU, "generic", "x86_64_v4", NVIDIA, "sm_80", AMD, "gfx1100"])
def test_pools_are_legal_or_refused_by_name(name: str, arch: str) -> None:
    op = ops.op(name)
    if name == "regionstats" and all_archs()[arch].family != "cpu":
        with pytest.raises(RequestError, match="regionstats has no kernels"):
            op.proposals("default", arch)
        return
    for pool in op.pool_names:
        specs = list(op.proposals(pool, arch))
        assert specs
        for spec in specs:
            assert op.spec_from_dict(json.loads(spec.to_json())) == spec
            for violation in op.check(spec):
                assert violation.rule
                assert violation.remedy
        assert sum(not op.check(one) for one in specs) >= 2
        if pool == "full":
            assert any(op.check(one) for one in specs), "a swept pool also proposes what legality refuses"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_problem_is_the_same_after_words_and_json(name: str) -> None:
    op = ops.op(name)
    problem = op.problem(EXAMPLES[name])
    assert op.problem_from_dict(json.loads(json.dumps(plain(problem)))) == problem
    words, values = op.words(problem), {}
    while words:
        option = next(one for one in op.options if words[0] == "--" + one.name.replace("_", "-"))
        values[option.name] = True if option.kind is bool else option.kind(words[1])
        words = words[1 if option.kind is bool else 2 :]
    assert op.problem(values) == problem
    assert problem.flops > 0
    assert problem.bytes > 0
    assert name in problem.describe()


def changed(spec: KernelSpec, part: str, **fields: Any) -> KernelSpec:
    return dataclasses.replace(spec, **{part: dataclasses.replace(getattr(spec, part), **fields)})


@pytest.mark.parametrize(
    ("name", "arch", "part", "fields", "rule"),
    [
        ("rowscale", CPU, "signature", {"dtype": "fp16"}, "dtype-name"),
        ("rowscale", CPU, "signature", {"activation": "Selu"}, "activation-name"),
        ("rowscale", CPU, "schedule", {"unroll": 3}, "vector-unroll"),
        ("rowscale", CPU, "schedule", {"rows": 0}, "vector-rows"),
        ("rowscale", AMD, "schedule", {"threads": 96}, "block-threads"),
        ("rowscale", NVIDIA, "schedule", {"items": 3}, "block-items"),
        ("regionstats", CPU, "signature", {"dtype": "int8"}, "dtype-name"),
        ("regionstats", CPU, "schedule", {"vectors": 8}, "registers"),
    ],
)
def test_every_rule_speaks(name: str, arch: str, part: str, fields: dict[str, Any], rule: str) -> None:
    op = ops.op(name)
    spec = changed(next(iter(op.proposals("default", arch))), part, **fields)
    assert rule in {one.rule for one in op.check(spec)}


def test_a_schedule_of_another_family_or_stage_is_refused() -> None:
    rowscale, regionstats = ops.op("rowscale"), ops.op("regionstats")
    gpu, cpu = (next(iter(rowscale.proposals("default", one))) for one in (NVIDIA, CPU))
    assert {one.rule for one in rowscale.check(dataclasses.replace(cpu, schedule=gpu.schedule))} == {"pipeline"}
    first, second = (next(iter(regionstats.proposals("default", CPU, stages=(one,)))) for one in ("partial", "combine"))
    mixed = dataclasses.replace(first, schedule=second.schedule)
    assert {one.rule for one in regionstats.check(mixed)} == {"stage-pipeline"}


def test_kernels_are_found_by_name() -> None:
    for name in EXAMPLES:
        op = ops.op(name)
        for spec in op.proposals("full", CPU):
            rest = spec.name.removeprefix(f"{name}_")
            assert spec.signature in list(op.signatures_of(rest))


def test_the_second_stage_has_a_rule_of_its_own() -> None:
    op = ops.op("regionstats")
    spec = changed(next(iter(op.proposals("default", CPU, stages=("combine",)))), "schedule", entries=65)
    assert {one.rule for one in op.check(spec)} == {"combine-entries"}
    assert {one.rule for one in op.check(dataclasses.replace(spec, arch=AMD))} == {"combine-entries", "family"}


@pytest.mark.parametrize(
    ("name", "values", "rule"),
    [
        ("rowscale", {"rows": -1}, "size"),
        ("rowscale", {"x_stride": 3}, "stride-short"),
        ("regionstats", {"spatial": "2x2x2x2", "dilation": ""}, "spatial-rank"),
        ("regionstats", {"dilation": "2"}, "dilation-rank"),
        ("regionstats", {"dilation": "0x1x1"}, "dilation"),
        ("regionstats", {"n": 1 << 41}, "size"),
    ],
)
def test_every_rule_of_a_problem_speaks(name: str, values: dict[str, Any], rule: str) -> None:
    op = ops.op(name)
    problem = op.problem({**EXAMPLES[name], **values})
    assert rule in {one.rule for one in op.problem_violations(problem, CPU)}


def test_stages_are_problems_with_signatures_of_their_own() -> None:
    op = ops.op("regionstats")
    whole = op.problem(EXAMPLES["regionstats"])
    partial, combine = op.stages(whole, CPU)
    assert op.signature_of(partial) != op.signature_of(combine)
    assert op.stages(partial, CPU) == (partial,)
    for stage in (partial, combine):
        found = op.candidates(op.signature_of(stage), CPU)
        assert len(found) >= 2
        assert all(not op.supports(one, stage) for one in found)
        assert all(op.supports(one, whole) for one in found), "no kernel computes the whole"
    assert not {one.digest for one in op.candidates(op.signature_of(partial), CPU)} & {
        one.digest for one in op.candidates(op.signature_of(combine), CPU)
    }


def test_chunks_follow_the_rule() -> None:
    op = ops.op("regionstats")

    def chunks(spatial: str, dilation: str = "") -> int:
        found: int = op.problem({"n": 1, "spatial": spatial, "channels": 1, "dilation": dilation}).chunks
        return found

    assert [chunks("0"), chunks("511"), chunks("512"), chunks("16x16x16"), chunks("1000000")] == [1, 1, 2, 16, 64]
    assert chunks("32x32", "2x2") == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_names_that_are_not_known_are_errors(name: str) -> None:
    op = ops.op(name)
    with pytest.raises(UnknownNameError, match="default"):
        op.proposals("defualt", CPU)
    with pytest.raises(UnknownNameError):
        op.proposals("default", CPU, datatypes=("fp31",))
    with pytest.raises(UnknownNameError):
        op.preselected("some", CPU)
    with pytest.raises(RequestError):
        op.problem({**EXAMPLES[name], "datatype": "fp31"})
    with pytest.raises(RequestError):
        op.spec_from_dict({})
    good = next(iter(op.proposals("default", CPU))).to_dict()
    with pytest.raises(RequestError):
        op.spec_from_dict({**good, "schedule": {**good["schedule"], "tile": [1, 1, 1]}})
