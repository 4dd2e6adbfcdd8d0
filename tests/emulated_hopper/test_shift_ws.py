"""Rows that begin anywhere, shifted into place by feeding warps, executed on the emulated Hopper GPU."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, judge
from tests.emulated_hopper.test_split_and_turned import odd
from tests.emulated_hopper.test_tma_ws import problem, signature, wrong
from tests.kernels.fenced_pages import Pages
from tests.kernels.harness import Call
from tilewright.ops import KernelSpec
from tilewright.ops.gemm import GemmSignature
from tilewright.ops.gemm.nvidia_schedules import WAYS, shift_ws

SEED = 9231


def shifted(one: GemmSignature, m: int, n: int, stages: int, way: str, cluster: tuple[int, int] = (1, 1)) -> KernelSpec:
    return KernelSpec("gemm", one, shift_ws(one, m, n, stages, WAYS[way], cluster), "sm_90a")


def drawn(layout: str, count: int, dtype: str = "bf16") -> list[Call]:
    """Odd sizes; k around whole steps, so that rows end at every place of a word and of a stage."""
    draw = random.Random(f"{SEED} {layout} {dtype}")
    step = 128 if dtype.startswith("fp8") else 64
    found = [Call(odd(layout, 1, 1, 1, dtype)), Call(odd(layout, 67, 65, step - 1, dtype))]
    for _ in range(count):
        k = draw.randint(1, 4) * step + draw.choice((-3, -1, 1, 3, 17))
        found.append(Call(odd(layout, draw.randint(1, 150) | 1, draw.randint(1, 150) | 1, k, dtype)))
    return found


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize(
    ("m", "n", "stages", "way"),
    [(128, 64, 3, "cooperative"), (64, 24, 5, "pingpong"), (64, 128, 3, "pingpong_stream_k")],
)
def test_rows_begin_anywhere(emulator: Emulator, layout: str, m: int, n: int, stages: int, way: str) -> None:
    one = signature(layout=layout)
    calls = drawn(layout, 3)
    calls.append(Call(odd(layout, 31, 33, 135, batch=3), alpha=0.5))
    calls.append(Call(odd(layout, 31, 33, 35, batch=2, broadcast_b=True)))
    assert wrong(emulator, shifted(one, m, n, stages, way), *calls) == []


@pytest.mark.parametrize(
    ("m", "n", "way", "cluster"),
    [(128, 128, "cooperative_stream_k", (1, 1)), (16, 64, "pingpong_turned_stream_k", (1, 1)),
     (128, 64, "cooperative_cluster_k", (2, 1)), (32, 128, "cooperative_turned_cluster_k", (2, 1))],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["rcr", "crr"])
def test_other_ways_to_deal(
    emulator: Emulator, layout: str, m: int, n: int, way: str, cluster: tuple[int, int]
) -> None:
    one = signature(layout=layout)
    calls = [Call(odd(layout, *sizes)) for sizes in ((131, 67, 901), (9, 300, 333), (67, 129, 130))]
    assert wrong(emulator, shifted(one, m, n, 3, way, cluster), *calls) == []


def test_fused_work_and_strides(emulator: Emulator) -> None:
    one = signature("bf16", "rcr", "fp32", "Gelu", 2)
    base = problem(one, 40, 72, 130)
    calls = [
        Call(replace(base, a_stride=133), alpha=0.5, d_kinds=("full", "row")),
        Call(replace(base, b_stride=131), d_kinds=("row", "full")),
    ]
    assert wrong(emulator, shifted(one, 64, 64, 4, "pingpong"), *calls) == []


def test_bytes(emulator: Emulator) -> None:
    spec = shifted(signature("fp8_e4m3"), 64, 64, 4, "pingpong")
    assert wrong(emulator, spec, *drawn("rcr", 3, "fp8_e4m3")) == []


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize(
    ("m", "n", "way"), [(64, 64, "pingpong"), (128, 48, "cooperative_stream_k"), (8, 64, "pingpong_turned_stream_k")]
)
def test_words_are_rounded_and_turned(emulator: Emulator, layout: str, m: int, n: int, way: str) -> None:
    one = signature("tf32", layout, "fp32")
    calls = [Call(replace(call.problem, dtype_c="fp32", dtype_d="fp32")) for call in drawn(layout, 3, "tf32")]
    if layout != "rcr":  # which the copy engine could read
        calls.append(Call(problem(one, 70, 130, 96, batch=2), alpha=0.5))
    assert wrong(emulator, shifted(one, m, n, 4, way), *calls) == []


@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("layout", ["rcr", "crr", "rrr"])
def test_nothing_is_read_outside_an_operand(emulator: Emulator, layout: str, at_end: bool) -> None:
    """Operands that end (or begin) at a page nobody may touch."""
    built = emulator.kernel(shifted(signature(layout=layout), 64, 64, 4, "pingpong"))
    for sizes in ((65, 67, 75), (1, 1, 1), (3, 70, 33), (129, 63, 127)):
        call = Call(odd(layout, *sizes, aligned=False))
        assert judge(built, call, LATE, 1, allocate=Pages(at_end)) == "", sizes


MISTAKES = {
    "a stage is overwritten": ("shared.empty[ring.stage].wait(ring.phase ^ 1);", ""),
    "tails of other rows": ("behind = lane_at(u.tail, j)", "behind = lane_at(u.tail, 0)"),
    "no tails": ("if (before && me.lane < rows", "if (false && me.lane < rows"),
    "what lies behind k": ("= word & u.keep;", "= word;"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_show(emulator: Emulator, mistake: str) -> None:
    before, after = MISTAKES[mistake]
    one = signature()

    def edit(header: str) -> str:
        assert before in header, f"{before!r} is not in the header any more"
        return header.replace(before, after)

    kernel = emulator.kernel(shifted(one, 64, 64, 3, "pingpong"), edit, mistake, "cuda/shift_ws_feed.h")
    call = Call(odd("rcr", 33, 37, 1011))
    assert any(judge(kernel, call, mode, 1) for mode in (LATE, EAGER, CHANCE))
