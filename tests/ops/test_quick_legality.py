"""What is legal is told without sentences as the rules have it: every op, several archs, drawn proposals."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from tilewright.codegen import Tally, collect, tally
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


@pytest.mark.parametrize("variant", ["standard", "multi_d", "preshuffle"])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx950"])
def test_schedules_that_share_a_verdict_share_the_rules(arch: str, variant: str) -> None:
    """CK Tile's GEMM asks the rules once of schedules that differ in edge code or parts of k."""
    gemm: Any = op("gemm")
    proposed = list(islice(gemm.proposals("profiler", arch, variants=(variant,)), 60000))
    rng = random.Random(f"{arch} {variant}")
    drawn = [
        replace(spec, schedule=replace(spec.schedule, **rng.choice(CHANGES)))
        for spec in rng.sample([spec for spec in proposed if hasattr(spec.schedule, "store_width")], 200)
    ]
    signature = drawn[0].signature
    legal = gemm.legal_schedules(signature, arch)
    verdicts = {spec: legal(spec.schedule) for spec in drawn if spec.signature == signature}
    assert verdicts == {spec: not gemm.check(spec) for spec in verdicts}


CHANGES: tuple[dict[str, Any], ...] = (
    {}, {"split_k": 4}, {"split_k": 65}, {"split_k": 0}, {"pad": (True, True, True)}, {"pad": (True, False, False)},
    {"scheduler": "interwave"}, {"scheduler": "default"}, {"persistent": True}, {"store_width": 2}, {"store": "direct"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arch", "pool", "axes"),
    [
        ("gemm", "gfx942", "full", {"datatypes": ("fp16", "int8")}),
        ("gemm", "generic", "full", {}),
        ("conv", "gfx950", "default", {}),
        ("attention", "gfx942", "fp32_min", {}),
        ("attention", "gfx950", "ck_default", {"heads": ("128",), "datatypes": ("bf16",)}),
        ("attention_backward", "gfx90a", "full", {}),
    ],
)
def test_a_tally_is_the_length_of_what_is_collected(name: str, arch: str, pool: str, axes: dict[str, Any]) -> None:
    collected = collect(name, arch, pool=pool, axes=axes)
    expected = Tally(len(collected.specs), len(collected.rejected), 0)
    assert tally(name, arch, pool=pool, axes=axes) == expected
    few = tally(name, arch, pool=pool, axes=axes, limit=2)
    assert few.specs == min(2, expected.specs)


def test_a_tally_counts_what_the_filter_takes_out() -> None:
    words = {"pool": "full", "expression": "c.tile_m >= 128"}
    collected = collect("gemm", "gfx942", **words)  # type: ignore[arg-type]
    assert collected.filtered
    assert tally("gemm", "gfx942", **words) == Tally(  # type: ignore[arg-type]
        len(collected.specs), len(collected.rejected), collected.filtered
    )
