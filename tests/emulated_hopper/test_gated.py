"""Gated products on an emulated GPU: kernels with two B, and gates that multiply by a D tensor."""

from __future__ import annotations

import pytest

from tests.backends.cpu.gemm.harness import Call
from tests.backends.cuda.gemm import names as make
from tests.emulated_hopper.emulator import GEMM, Emulator
from tests.emulated_hopper.test_fused import fused
from tests.emulated_hopper.test_multistage import kernel as multistage
from tests.emulated_hopper.test_skinny import wrong as wrong_of
from tests.emulated_hopper.test_tma_ws import problem, signature, tma_ws, wrong
from tilewright.ops import KernelSpec
from tilewright.ops.fused import GATES


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("tiles", "datatype", "gate"), [
    ((1, 1, 4), "bf16", "SiluAndMul"), ((2, 2, 4), "fp16", "GeluAndMul"), ((4, 1, 2), "bf16", "FastGeluAndMul"),
])  # fmt: skip
def test_two_bs_against_few_rows(emulator: Emulator, tiles: tuple[int, int, int], datatype: str, gate: str) -> None:
    """Columns that end inside a block and inside its eight rows of either B; k that ends in a turn; a batch."""
    one = signature(datatype, "rcr", datatype, gate)
    spec = KernelSpec("gemm", one, make.skinny(*tiles), "sm_90a")
    assert GEMM.check(spec) == []
    most = 8 * tiles[1]
    sizes = [(1, 64, 64), (most, 128, 1024), (most - 1, 75, 136), (3, 33, 8), (5, 1, 584)]
    calls = [Call(problem(one, *size)) for size in sizes] + [Call(problem(one, 2, 40, 72, batch=3), gap=24)]
    assert wrong_of(emulator, spec, *calls) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("tile", "way", "store"), [
    ((128, 128, 3, (1, 1)), "cooperative", "tma"), ((64, 64, 4, (1, 1)), "pingpong", "direct"),
    ((128, 256, 3, (2, 1)), "cooperative", "tma"), ((256, 128, 3, (1, 2)), "cooperative", "tma"),
    ((192, 96, 3, (1, 1)), "cooperative", "direct"), ((64, 160, 3, (1, 1)), "pingpong", "tma"),
])  # fmt: skip
def test_two_bs_through_tma(
    emulator: Emulator, tile: tuple[int, int, int, tuple[int, int]], way: str, store: str
) -> None:
    """Sizes of one tile, of several and of parts of one; alpha; a batch; A by columns."""
    for datatype, layout, gate in (("bf16", "rcr", "SiluAndMul"), ("fp16", "ccr", "GeluAndMul")):
        one = signature(datatype, layout, datatype, gate)
        calls = [
            Call(problem(one, 129, 136, 200), alpha=0.5),
            Call(problem(one, 300, 264, 72)),
            Call(problem(one, 5, 8, 64)),
            Call(problem(one, 72, 72, 136, batch=2), gap=24),
        ]
        calls += [] if store == "tma" else [Call(problem(one, 65, 75, 136))]
        assert wrong(emulator, tma_ws(one, *tile, way, store), *calls) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("store", ["tma", "direct"])
def test_a_gate_times_a_tensor_behind_the_copy_engine(emulator: Emulator, gate: str, store: str) -> None:
    one = signature("bf16", "rcr", "bf16", gate, 1)
    calls = [
        fused(one, 129, 136, 200, ("full",), alpha=0.5),
        fused(one, 300, 264, 72, ("row",)),
        fused(one, 72, 520, 136, ("column",), beta=-1.0),
        fused(one, 136, 72, 72, ("full",), beta=0.5, d_gap=3),
    ]
    assert wrong(emulator, tma_ws(one, 128, 128, 3, (1, 1), "cooperative", store), *calls) == []


def test_a_gate_times_a_tensor_without_it(emulator: Emulator) -> None:
    one = signature("bf16", "rcr", "bf16", "SiluAndMul", 1)
    calls = [fused(one, 70, 136, 200, ("full",)), fused(one, 33, 75, 72, ("row",), beta=0.5)]
    assert wrong_of(emulator, multistage(one, 64, 64), *calls) == []


def test_which_families_have_two_bs() -> None:
    one = signature("bf16", "rcr", "bf16", "SiluAndMul")
    (refused,) = GEMM.check(multistage(one, 64, 64))
    assert refused.rule == "dual-kernel"
    columns = KernelSpec("gemm", one, make.skinny(1, 1, 4, "n"), "sm_90a")
    assert [broken.rule for broken in GEMM.check(columns)] == ["nv-skinny-dual"]
