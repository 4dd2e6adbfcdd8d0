"""Operands whose rows begin anywhere, fetched row by row of a kind by the emulated copy engine."""

from __future__ import annotations

import pytest

from tests.emulated_hopper.emulator import CHANCE, Emulator, judge
from tests.emulated_hopper.test_tma_ws import signature, tma_ws, wrong
from tests.kernels.harness import Call
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.spec import GemmSignature

SIZES = ((65, 71, 77), (200, 257, 133), (129, 130, 9), (3, 5, 7), (136, 72, 65))


def odd(one: GemmSignature, m: int, n: int, k: int, **more: object) -> GemmProblem:
    """Packed rows: whatever the sizes are, the strides are."""
    return GemmProblem(m, n, k, one.dtype_a, one.dtype_b, one.dtype_c, one.dtype_d, one.layout,
                       epilogue=one.epilogue, num_d=one.num_d, **more)  # type: ignore[arg-type]  # fmt: skip


def calls(one: GemmSignature) -> list[Call]:
    """No row aligned, one operand aligned and the other not, fewer rows than there are kinds."""
    return [Call(odd(one, *size)) for size in SIZES]


@pytest.mark.parametrize("layout", ["rcr", "crr", "rrr", "ccr"])
@pytest.mark.parametrize(
    ("m", "n", "stages", "cluster", "scheduler"),
    [
        (64, 64, 4, (1, 1), "pingpong"),  # from the registers
        (128, 128, 3, (2, 1), "pingpong"),  # through a sheet, kinds dealt to a cluster
        (64, 128, 4, (1, 1), "cooperative_turned_split_k"),
    ],
)
def test_every_layout(
    emulator: Emulator, layout: str, m: int, n: int, stages: int, cluster: tuple[int, int], scheduler: str
) -> None:
    one = signature(layout=layout)
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, scheduler, "direct"), *calls(one)) == []


@pytest.mark.parametrize("scheduler", ["cooperative_cluster_k", "cooperative_turned_cluster_k", "cooperative_split_k"])
def test_sums_that_change_hands(emulator: Emulator, scheduler: str) -> None:
    one = signature()
    cluster = (2, 1) if "cluster_k" in scheduler else (1, 1)
    sizes = (64, 128) if "turned" in scheduler else (128, 64)
    assert wrong(emulator, tma_ws(one, *sizes, 6, cluster, scheduler, "direct"), *calls(one)[:2]) == []


def test_four_byte_elements(emulator: Emulator) -> None:
    one = signature("tf32", output="fp32")
    assert wrong(emulator, tma_ws(one, 128, 64, 4, (1, 1), "cooperative", "direct"), *calls(one)[:3]) == []


def test_a_batch_and_what_is_fused(emulator: Emulator) -> None:
    one = signature(epilogue="MultiDAdd", count=1)
    spec = tma_ws(one, 64, 64, 4, (1, 1), "pingpong", "direct")
    call = Call(odd(one, 72, 80, 67, batch=2), alpha=0.5, d_kinds=("full",))
    assert judge(emulator.kernel(spec), call, mode=CHANCE, seed=3) == ""
