"""Split-K, swap_ab tiles and copies of odd operands, executed on the emulated Hopper GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends.cpu.gemm.harness import Call
from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, judge
from tests.emulated_hopper.test_tma_ws import edges, problem, signature, tma_ws, wrong
from tilewright.ops.gemm import GemmProblem

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("multiprocessors", [4, 7, 16])
@pytest.mark.parametrize(
    ("m", "n", "cluster", "scheduler", "store"),
    [
        (128, 64, (1, 1), "cooperative_split_k", "tma"),
        (128, 96, (2, 1), "cooperative_split_k", "direct"),
        (64, 64, (1, 2), "pingpong_split_k", "tma"),
        (64, 16, (1, 1), "pingpong_split_k", "tma"),
    ],
)
def test_parts_of_a_tile_meet_and_add_up(
    emulator: Emulator, m: int, n: int, cluster: tuple[int, int], scheduler: str, store: str, multiprocessors: int
) -> None:
    one = signature()
    long = (Call(problem(one, 60, 40, 1100)), Call(problem(one, 130, 72, 2000), alpha=2.0))
    spec = tma_ws(one, m, n, 3, cluster, scheduler, store)
    assert wrong(emulator, spec, *edges(one), *long, multiprocessors=multiprocessors) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize(
    ("few", "many", "cluster", "scheduler"),
    [
        (8, 64, (1, 1), "pingpong_swap_ab_split_k"),
        (16, 128, (1, 2), "cooperative_swap_ab"),
        (64, 64, (1, 1), "pingpong_swap_ab_stream_k"),
        (64, 128, (1, 1), "cooperative_swap_ab_split_k"),
    ],
)
def test_few_rows_lie_along_the_narrow_side(
    emulator: Emulator, few: int, many: int, cluster: tuple[int, int], scheduler: str, layout: str
) -> None:
    if layout in ("crr", "ccr") and few < 64:
        pytest.skip("rows that are contiguous along m come 64 at a time")
    one = signature(layout=layout)
    calls = [
        Call(problem(one, m, n, k), alpha=alpha)
        for m, n, k, alpha in ((1, 200, 300, 1.0), (7, 130, 1040, 0.5), (few, 64, 72, 1.0), (few + 9, 300, 136, -1.0))
    ]
    assert wrong(emulator, tma_ws(one, few, many, 3, cluster, scheduler), *calls) == []


def test_swap_ab_results_meet_their_neighbours(emulator: Emulator) -> None:
    """D tensors, C and the batch keep their places."""
    one = signature("bf16", "rcr", "fp32", "Gelu", 2)
    calls = [
        Call(problem(one, 9, 135, 1000, beta=True), alpha=0.5, beta=-1.0, d_kinds=("full", "row")),
        Call(problem(one, 5, 70, 72, batch=3, broadcast_b=True), d_kinds=("row", "full")),
        Call(problem(one, 17, 70, 72, batch=2, broadcast_a=True), d_kinds=("full", "full")),
    ]
    assert wrong(emulator, tma_ws(one, 16, 64, 4, (1, 1), "pingpong_swap_ab_split_k"), *calls) == []


def odd(layout: str, m: int, n: int, k: int, dtype: str = "bf16", **more: object) -> GemmProblem:
    """Packed rows: whatever the sizes are, the strides are."""
    return GemmProblem(m, n, k, dtype, dtype, "bf16", layout=layout, **more)  # type: ignore[arg-type]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
def test_operands_with_odd_rows_are_copied_first(emulator: Emulator, layout: str) -> None:
    one = signature(layout=layout)
    calls = [
        Call(odd(layout, m, n, k)) for m, n, k in ((1, 1, 1), (67, 65, 63), (129, 257, 71), (64, 64, 33), (33, 120, 64))
    ]
    calls.append(Call(odd(layout, 31, 33, 35, batch=3)))
    calls.append(Call(odd(layout, 31, 33, 35, batch=3, broadcast_b=True)))
    assert wrong(emulator, tma_ws(one, 128, 64, 3, (1, 1), "cooperative", "direct"), *calls) == []


def test_only_one_operand_is_odd(emulator: Emulator) -> None:
    one = signature()
    base = odd("rcr", 40, 72, 64)
    calls = [Call(replace(base, a_stride=67)), Call(replace(base, b_stride=65))]
    assert wrong(emulator, tma_ws(one, 64, 64, 3, (1, 1), "pingpong_split_k"), *calls) == []


def test_bytes_are_copied_from_any_place(emulator: Emulator) -> None:
    one = signature("fp8_e4m3")
    calls = [Call(odd("rcr", m, n, k, "fp8_e4m3")) for m, n, k in ((5, 7, 129), (70, 66, 131), (33, 17, 258))]
    assert wrong(emulator, tma_ws(one, 64, 64, 3, (1, 1), "pingpong", "direct"), *calls) == []


COLLECTING = {
    "sums read before they are there": ("cooperative_stream_k", "while (atomicAdd(flag, 0u) == 0u) TW_SPIN();", ""),
    "words left set": ("cooperative_stream_k", "atomicExch(flag, 0u);", ""),
    "parts that do not wait for each other": ("cooperative_split_k", "if (me.thread == 0) sync(", "if (false) sync("),
}


@pytest.mark.parametrize("mistake", COLLECTING)
def test_mistakes_of_collecting_show(emulator: Emulator, mistake: str) -> None:
    scheduler, before, after = COLLECTING[mistake]
    one = signature()

    def edit(header: str) -> str:
        assert before in header, f"{before!r} is not in the header any more"
        return header.replace(before, after)

    spec = tma_ws(one, 128, 64, 3, (1, 1), scheduler, "tma")
    kernel = emulator.kernel(spec, edit, mistake, "cuda/gemm/tma_ws/split_k_reduce.h")
    call = Call(problem(one, 60, 40, 1100))  # one tile, shared by four blocks
    assert any(judge(kernel, call, mode, 1) for mode in (LATE, EAGER, CHANCE))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr"])
@pytest.mark.parametrize(
    ("m", "n", "stages", "cluster", "scheduler"),
    [
        (104, 128, 3, (1, 1), "cooperative_swap_ab"),  # boxes of eight rows, all of a tile at once
        (72, 256, 4, (2, 1), "cooperative_swap_ab"),
        (152, 192, 4, (2, 1), "cooperative_swap_ab"),  # eight buffers, four of which leave together
        (104, 64, 6, (1, 2), "pingpong_swap_ab_split_k"),  # whose blocks take turns to fetch A
        (104, 192, 4, (1, 2), "cooperative_swap_ab"),
        (128, 128, 3, (1, 2), "pingpong_swap_ab"),
        (96, 256, 3, (1, 1), "cooperative_swap_ab_stream_k"),
        (16, 128, 4, (1, 1), "cooperative_swap_ab_split_k"),
        (160, 256, 3, (1, 1), "cooperative_swap_ab_split_k"),
        (192, 256, 3, (2, 1), "cooperative_swap_ab"),  # as many accumulators as registers have room for
    ],
)
def test_swap_ab_results_leave_by_the_copy_engine(
    emulator: Emulator, layout: str, m: int, n: int, stages: int, cluster: tuple[int, int], scheduler: str
) -> None:
    one = signature(layout=layout)
    if layout == "rcr" and cluster[0] == 2 and n == 192:
        one = signature(layout=layout, epilogue="Relu")
    calls = [
        Call(problem(one, *sizes), alpha=alpha)
        for *sizes, alpha in ((1, 200, 300, 1.0), (m + 9, n + 40, 264, 0.5), (3 * m - 8, 2 * n, 72, -1.0))
    ]
    calls += [Call(problem(one, m + 1, n + 8, 200, batch=3))]
    assert wrong(emulator, tma_ws(one, m, n, stages, cluster, scheduler, "tma"), *calls, multiprocessors=7) == []
