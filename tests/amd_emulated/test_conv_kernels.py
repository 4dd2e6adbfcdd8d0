"""Compiled convolution kernels, executed: every direction, dimension, element type and GPU of the catalog.

`make test-amd-emulated` runs these; without a toolchain or an emulator they are skipped, saying so.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys

import pytest

from tests.amd_emulated.conv.catalog import Case, cases, copies, problems
from tests.amd_emulated.conv.drawing import product_problem
from tests.amd_emulated.emulator import MODELLED
from tests.amd_emulated.workers import ROOT, Workers
from tilewright.build import Builder
from tilewright.ops import op

LIMIT = 240.0  # seconds of one problem


@pytest.mark.parametrize("case", cases(), ids=lambda one: one.label)
def test_the_kernel_computes_what_the_definition_says(case: Case, workers: Workers) -> None:
    library = Builder().build_one(case.spec).path
    seed = secrets.randbelow(2**31)  # fresh numbers every run; a failure names its seed
    wrong = []
    for why, one in problems(case.spec, seed):
        served = not op("conv").supports(case.spec, product_problem(case.spec, one))
        found = workers.prove_drawn(case.spec, library, one, served, LIMIT)
        if found["verdict"] != ("right" if served else "refused"):
            wrong.append(f"{why} ({one.label()}): {found['verdict']}, {found['detail']}")
    assert not wrong, f"{case.spec.name}, seed {seed}:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("variant", "rows_apart"),
    [("forward", True), ("forward", False), ("backward_data", False), ("backward_weight", False)],
)
def test_what_spans_more_than_2_gib_goes_in_several_launches(variant: str, rows_apart: bool, workers: Workers) -> None:
    axes = {"datatypes": ("bf16",), "variants": (variant,)}
    plain = [
        spec
        for spec in op("conv").proposals("default", "gfx1201", **axes)
        if (spec.schedule.pipeline, spec.signature.spatial, spec.signature.dtype_out) == ("wmma", 2, "bf16")
        and (spec.schedule.merged, spec.schedule.special, spec.signature.num_d) == (1, "any", 0)
        and (spec.schedule.split_k > 1) == (variant == "backward_weight")
        and not op("conv").check(spec)
    ]
    spec = min(plain, key=lambda one: one.schedule.tile[:2])
    request = {"spec": json.loads(spec.to_json()), "library": str(Builder().build_one(spec).path),
               "seed": secrets.randbelow(2**31), "rows_apart": rows_apart}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.amd_emulated.far_conv"], input=json.dumps(request), capture_output=True,
        text=True, cwd=ROOT, env=workers.environment(), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), f"seed {request['seed']}: {done.stdout} {done.stderr[-2000:]}"


def test_the_catalog_holds_only_legal_kernels_and_misses_nothing() -> None:
    conv, every = op("conv"), [one.spec for one in cases()]
    assert not [(one.name, conv.check(one)) for one in every if conv.check(one)]
    assert {one.arch for one in every} == set(MODELLED)
    kinds = {(one.signature.variant, one.signature.spatial) for one in every}
    assert kinds == {(variant, rank) for variant in ("forward", "backward_data", "backward_weight") for rank in (2, 3)}
    assert {one.signature.dtype for one in every} == {"fp16", "bf16", "fp32", "int8"}
    held = [one for one in every if one.schedule.pipeline != "loops"]
    assert {one.schedule.pipeline for one in held} == {"compv3", "compv4", "compv5", "mem", "wmma", "fma"}
    assert {one.arch for one in held} == set(MODELLED)
    assert {(one.signature.variant, one.signature.spatial) for one in held} == kinds
    copying = {(one.arch, one.signature.variant) for one in held if copies(one)}
    assert {arch for arch, _ in copying} == set(MODELLED)
    assert {variant for _, variant in copying} == {"forward", "backward_data", "backward_weight"}
    for spec in every:
        asked = {why: product_problem(spec, one) for why, one in problems(spec, 1)}
        assert not [why for why, one in asked.items() if conv.problem_violations(one, spec.arch)]
        refused = [why for why, one in asked.items() if conv.supports(spec, one)]
        if copies(spec):
            assert "channels first, gaps, odd addresses" not in refused
        elif spec in held:
            assert "channels first, gaps, odd addresses" in refused, "a fast kernel reads channels side by side"
        if spec in held:
            assert len(refused) <= len(asked) - 2, refused
        else:
            assert not refused
    assert len({case.label for case in cases()}) == len(every)
