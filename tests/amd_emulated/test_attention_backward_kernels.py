"""Kernels of attention's gradients executed in the emulator, every family of them, against the float64 reference.

Seeds are fresh each run unless CATALOG_SEED names one; a failure says which it was.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.amd_emulated.attention_backward.catalog import Case, cases, drawn
from tests.amd_emulated.workers import Workers
from tilewright.build import Builder

SEED = int(os.environ.get("CATALOG_SEED") or random.SystemRandom().randrange(1 << 20))
DRAWN = 6
LIMIT = 240.0  # seconds of one problem


@pytest.mark.parametrize("case", cases(), ids=lambda one: str(one.label))
def test_kernel(case: Case, workers: Workers) -> None:
    spec = case.spec
    library = Builder().build_one(spec).path
    asked = drawn(case, SEED, DRAWN)
    assert asked
    results = [workers.prove_drawn(spec, library, one, must_serve=True, limit=LIMIT) for one in asked]
    wrong = [f"{one['label']}: {one['detail']}" for one in results if one["verdict"] != "right"]
    assert not wrong, f"{spec.name}, seed {SEED}:\n" + "\n".join(wrong)
