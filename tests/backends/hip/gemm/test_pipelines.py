"""The table of CK Tile's pipelines, and what limits.h says of them: the two sides of one definition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright
from tests.built import why_no_compiler
from tilewright import ops
from tilewright.backends.hip.ck_tile_pipelines import PIPELINES, number_of
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.gemm.ck_tile.schedule import CkTileSchedule
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

FOLDER = Path(tilewright.__file__).parent / "backends/hip/gemm/ck_tile/include/tilewright/hip/gemm/ck_tile"


def test_numbers_are_those_of_the_header() -> None:
    text = (FOLDER / "limits.h").read_text(encoding="utf-8")
    named = re.search(r"enum Pipeline : int64_t \{([^}]*)\}", text)
    assert named is not None
    names = [one.strip() for one in named[1].split(",")]
    assert {name: number_of(name) for name in PIPELINES} == {name: at for at, name in enumerate(names)}


def test_schedules_know_the_pipelines_of_the_table() -> None:
    assert set(CkTileSchedule.pipelines) == set(PIPELINES)
    packed = {name for name, one in PIPELINES.items() if one.packed_b}  # filters are never packed
    assert set(CkTileConvSchedule.pipelines) == set(PIPELINES) - packed


def _kernels() -> dict[str, KernelSpec]:
    """A legal kernel of each pipeline."""
    gemm, found = ops.op("gemm"), {}
    for variant in ("standard", "preshuffle"):
        for pool in ("tests", "full"):
            for one in gemm.proposals(pool, "gfx942", datatypes=("fp16",), layouts=("rcr",), variants=(variant,)):
                name = getattr(one.schedule, "pipeline", "")
                if name in PIPELINES and name not in found and one.schedule.split_k == 1 and not gemm.check(one):
                    found[name] = one
                if len(found) == len(PIPELINES):
                    return found
    raise AssertionError(f"no legal kernel of {set(PIPELINES) - set(found)}")


def test_the_least_turns_of_the_k_loop_are_those_of_the_header() -> None:
    """A k of fewer turns than the table says is refused, and one of as many is not."""
    if why := why_no_compiler():
        pytest.skip(why)
    gemm = ops.op("gemm")
    for name, spec in _kernels().items():
        m, n, k = spec.schedule.tile
        for turns in (1, 2, 4):
            one = GemmProblem(m, n, k * turns, "fp16", layout="rcr", preshuffled=spec.signature.variant == "preshuffle")
            rules = {each.rule for each in gemm.supports(spec, one)}
            assert ("amd-k-loops" in rules) == (turns < PIPELINES[name].least_loops), (spec.name, turns)
            whole = turns % PIPELINES[name].loop_step == 0
            assert bool(rules) == (not whole or turns < PIPELINES[name].least_loops), (spec.name, turns, rules)
