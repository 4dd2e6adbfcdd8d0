"""What is legal is told without sentences as the rules have it: every op, several archs, drawn proposals."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import pytest

from tilewright.codegen import collect
from tilewright.ops import op

MOST, DRAWN = 6000, 120


@pytest.mark.parametrize("arch", ["generic", "sm_90a", "gfx90a", "gfx942", "gfx1100"])
@pytest.mark.parametrize("name", ["gemm", "conv", "attention", "attention_backward"])
def test_what_is_legal_is_told_as_the_rules_have_it(name: str, arch: str) -> None:
    known: Any = op(name)
    rng = random.Random(f"{name} {arch}")
    proposed = [spec for pool in ("default", "full") for spec in islice(known.proposals(pool, arch), MOST)]
    drawn = rng.sample(proposed, min(DRAWN, len(proposed)))
    for spec in sorted(drawn, key=proposed.index):
        assert known.is_legal(spec) == (not known.check(spec)), spec.name


def test_numbers_that_are_none_reach_no_arithmetic() -> None:
    """A configuration may hold anything: it is refused by the rule of numbers, as before."""
    config = {"tile_m": [0], "tile_n": [128], "tile_k": [32], "pipeline": ["mem"]}
    collected = collect("gemm", "gfx942", config=config)
    assert not collected.specs
    assert "positive" in collected.rejections_by_rule()
