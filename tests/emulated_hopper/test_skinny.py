"""The real skinny pipeline on an emulated GPU: every layout, few rows and few columns, every edge and epilogue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.cpu.gemm.harness import Call
from tests.backends.cuda.gemm import names as make
from tests.emulated_hopper.emulator import GEMM, Emulator, judge
from tests.emulated_hopper.test_tma_ws import problem, signature
from tilewright.ops import KernelSpec
from tilewright.ops.gemm.spec import GemmSignature

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]


def wrong(emulator: Emulator, spec: KernelSpec, *calls: Call) -> list[str]:
    kernel = emulator.kernel(spec)
    found = []
    for number, call in enumerate(calls):
        assert GEMM.supports(spec, call.problem) == [], (spec.name, call.problem)
        text = judge(kernel, replace(call, seed=number), seed=number)
        if text:
            found.append(f"{spec.name} {call.problem.describe()}: {text}")
    return found


def edges(one: GemmSignature, few: str, most: int) -> list[Call]:
    """One of the few and all of them; many that end inside a block and a thread's word; k that ends in a turn."""
    sizes = [(1, 64, 64), (most, 128, 1024), (most - 1, 75, 136), (3, 33, 8), (5, 1, 584)]
    return [Call(problem(one, *(size if few == "m" else (size[1], size[0], size[2])))) for size in sizes]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("few", ["m", "n"])
@pytest.mark.parametrize(("tiles", "datatype"), [((2, 2, 4), "bf16"), ((4, 1, 2), "fp16")])
def test_every_layout(emulator: Emulator, layout: str, few: str, tiles: tuple[int, int, int], datatype: str) -> None:
    one = signature(datatype, layout, datatype)
    spec = KernelSpec("gemm", one, make.skinny(*tiles, few), "sm_90a")
    assert GEMM.check(spec) == []
    assert wrong(emulator, spec, *edges(one, few, 8 * tiles[1])) == []


def test_a_row_tile_of_sixteen_along_k(emulator: Emulator) -> None:
    for layout in ("rcr", "ccr"):
        one = signature(layout=layout)
        spec = KernelSpec("gemm", one, make.skinny(1, 1, 8), "sm_90a")
        assert wrong(emulator, spec, *edges(one, "m", 8)) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("layout", "tiles"), [("rcr", (1, 2, 2)), ("ccr", (2, 1, 4)), ("rrr", (2, 2, 4)), ("crr", (2, 1, 2))]
)
def test_small_products_in_tiles_of_both_sides(emulator: Emulator, layout: str, tiles: tuple[int, int, int]) -> None:
    """More rows than a tile has; a k of one turn, which has code of its own, and of more; lines that end in a word."""
    one = signature("bf16", layout, "bf16")
    spec = KernelSpec("gemm", one, make.skinny(*tiles, "none"), "sm_90a")
    assert GEMM.check(spec) == []
    calls = [Call(problem(one, 40, 75, 56)), Call(problem(one, 24, 33, 328)), Call(problem(one, 17, 40, 64, batch=2))]
    assert wrong(emulator, spec, *calls) == []


def test_tiles_of_both_sides_are_for_small_products() -> None:
    spec = KernelSpec("gemm", signature("bf16", "rcr", "bf16"), make.skinny(1, 2, 4, "none"), "sm_90a")
    for large in ((1025, 64, 64), (64, 1032, 64), (64, 64, 1032)):
        assert [each.rule for each in GEMM.supports(spec, problem(spec.signature, *large))] == ["nv-skinny-size"]
    assert GEMM.supports(spec, problem(spec.signature, 1024, 1024, 1024)) == []


def test_batches_and_epilogues(emulator: Emulator) -> None:
    one = signature(layout="rrr", epilogue="MultiDAdd", count=1)
    spec = KernelSpec("gemm", one, make.skinny(2, 1, 4), "sm_90a")
    calls = [Call(problem(one, 7, 72, 200, batch=batch), alpha=0.5, d_kinds=("full",)) for batch in (1, 3)]
    assert wrong(emulator, spec, *calls) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("epilogue", "kinds"), [
    ("MultiDAdd", ("full", "row", "column", "full")), ("MultiDMultiply", ("row", "full", "one")),
])  # fmt: skip
def test_more_than_two_tensors(emulator: Emulator, epilogue: str, kinds: tuple[str, ...]) -> None:
    one = signature(layout="rcr", epilogue=epilogue, count=len(kinds))
    spec = KernelSpec("gemm", one, make.skinny(2, 1, 4), "sm_90a")
    assert GEMM.check(spec) == []
    calls = [Call(problem(one, 5, 72, 200, batch=batch), alpha=0.5, d_kinds=kinds) for batch in (1, 2)]
    assert wrong(emulator, spec, *calls) == []


def test_tma_ws_takes_two() -> None:
    one = signature(layout="rcr", epilogue="MultiDAdd", count=3)
    schedules = [spec.schedule for spec in GEMM.proposals("default", "sm_90a", **GEMM.axes_of(one))]
    rules = {h.pipeline: [each.rule for each in GEMM.check(KernelSpec("gemm", one, h, "sm_90a"))] for h in schedules}
    assert rules["tma_ws"] == ["nv-d-count"]
    assert rules["multistage"] == rules["skinny"] == []
