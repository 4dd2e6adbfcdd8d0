"""Compiled convolution kernels, executed: every direction, dimension, element type and GPU of the catalog.

`make test-amd-emulated` runs these; without a toolchain or an emulator they are skipped, saying so.
"""

from __future__ import annotations

import secrets

import pytest

from tests.amd_emulated.conv.catalog import Case, cases, problems
from tests.amd_emulated.conv.drawing import product_problem
from tests.amd_emulated.emulator import MODELLED
from tests.amd_emulated.workers import Workers
from tilewright.build import Builder
from tilewright.ops import op

LIMIT = 240.0  # seconds of one problem


@pytest.mark.parametrize("case", cases(), ids=lambda one: one.label)
def test_the_kernel_computes_what_the_definition_says(case: Case, workers: Workers) -> None:
    library = Builder().build_one(case.spec).path
    seed = secrets.randbelow(2**31)  # fresh numbers every run; a failure names its seed
    wrong = []
    for why, one in problems(case.spec, seed):
        found = workers.prove_drawn(case.spec, library, one, True, LIMIT)
        if found["verdict"] != "right":
            wrong.append(f"{why} ({one.label()}): {found['detail']}")
    assert not wrong, f"{case.spec.name}, seed {seed}:\n" + "\n".join(wrong)


def test_the_catalog_holds_only_legal_kernels_and_misses_nothing() -> None:
    conv, every = op("conv"), [one.spec for one in cases()]
    assert not [(one.name, conv.check(one)) for one in every if conv.check(one)]
    assert {one.arch for one in every} == set(MODELLED)
    kinds = {(one.signature.variant, one.signature.spatial) for one in every}
    assert kinds == {(variant, rank) for variant in ("forward", "backward_data", "backward_weight") for rank in (2, 3)}
    assert {one.signature.dtype for one in every} == {"fp16", "bf16", "fp32", "int8"}
    for spec in every:
        for why, one in problems(spec, 1):
            asked = product_problem(spec, one)
            assert not conv.problem_violations(asked, spec.arch), why
            assert not conv.supports(spec, asked), why
    assert len({case.label for case in cases()}) == len(every)
