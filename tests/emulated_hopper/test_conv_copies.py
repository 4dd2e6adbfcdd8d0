"""Convolutions in copies of their operands, on the emulated Hopper GPU: every pipeline around which copies are made,
on problems drawn by seed whose channels lie apart, are odd, or begin anywhere."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, disagreement, prove, wrong
from tests.emulated_hopper.emulator import EAGER, LATE, Emulator, apart
from tilewright.backends.cuda.conv import KERNELS
from tilewright.backends.cuda.conv.copies import padded_copies
from tilewright.backends.cuda.conv.depthwise import DepthwiseSchedule
from tilewright.backends.cuda.conv.depthwise_tile import DepthwiseTileSchedule
from tilewright.backends.cuda.conv.halo import HaloSchedule
from tilewright.backends.cuda.conv.halo_wgrad import HaloWgradSchedule
from tilewright.backends.cuda.conv.tma_ws import ConvTmaWsSchedule
from tilewright.backends.cuda.conv.width_folded import WidthFoldedSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first
from tilewright.ops.conv.problem_rules import problem_violations

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 20261117, 7
TMA = ConvTmaWsSchedule("padded", (128, 64, 64), 3)
FOLDED = WidthFoldedSchedule("padded_width_folded", TMA.tile, TMA.stages)
WEIGHT: Any = {"tile_scheduler": "split_k"}
TILE: Any = {"pipeline": "padded_depthwise_tile"}
STRIP: Any = {"pipeline": "padded_depthwise"}
BAND: Any = {"pipeline": "padded_halo"}
BIAS: Any = {"epilogue": "Relu", "num_d": 1}
FULL: Any = {"epilogue": "MultiDAdd", "num_d": 2, "full_d": 1}
CASES: list[tuple[str, str, int, Any, Any]] = [
    ("depthwise", "forward", 2, DepthwiseTileSchedule(3, 1, 7, 2, **TILE), {"dtype": "bf16", **FULL}),
    ("depthwise", "backward_data", 2, DepthwiseTileSchedule(3, 1, 7, 2, 32, **TILE), {"dtype": "fp16"}),
    ("depthwise", "backward_weight", 2, DepthwiseTileSchedule(3, 1, 7, 2, 32, **TILE), {"dtype": "bf16"}),
    ("depthwise", "forward", 2, DepthwiseSchedule(0, 1, 2, **STRIP), {"dtype": "fp32", **BIAS}),
    ("depthwise", "backward_data", 2, DepthwiseSchedule(0, 1, 2, **STRIP), {"dtype": "bf16", "dtype_out": "fp32"}),
    ("depthwise", "backward_weight", 3, DepthwiseSchedule(3, 1, 4, **STRIP), {"dtype": "fp16"}),
    ("dense", "forward", 2, HaloSchedule((64, 64, 64), 2, 128, 9, **BAND), {"dtype": "bf16", **BIAS}),
    ("dense", "backward_data", 3, HaloSchedule((64, 64, 32), 2, 128, 9, **BAND), {"dtype": "bf16"}),
    ("grouped", "backward_data", 2, HaloSchedule((64, 64, 64), 2, 128, 9, True, **BAND), {"dtype": "fp16"}),
    ("grouped", "backward_weight", 2, HaloWgradSchedule(64, 2, 128, pipeline="padded_halo_wgrad"), {"dtype": "bf16"}),
    ("few", "forward", 2, replace(FOLDED, store="tma"), {"dtype": "bf16", **FULL}),
    ("few", "backward_data", 2, FOLDED, {"dtype": "fp16"}),
    ("few", "backward_weight", 3, replace(FOLDED, store="tma", **WEIGHT), {"dtype": "bf16"}),
    ("dense", "forward", 2, replace(TMA, store="tma"), {"dtype": "fp16", **FULL}),
    ("dense", "forward", 2, replace(TMA, tile=(128, 64, 128)), {"dtype": "int8"}),
    ("dense", "backward_weight", 2, replace(TMA, **WEIGHT), {"dtype": "bf16", "dtype_out": "fp32"}),
]  # fmt: skip


def drawn(rng: random.Random, kind: str, variant: str, rank: int, more: Any) -> ConvProblem | None:
    """Planes of a few pixels, and of more than a tile has; x, w and y channels-first or not, some with gaps, some
    that begin an element after 16 bytes."""

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(rank))

    groups, window = 1, rng.choice(((3,) * rank, each(1, 2, 3)))
    channels, filters = (rng.choice((8, 13, 24, 64, 72)) for _ in range(2))
    if kind == "few":
        channels = rng.choice((1, 3, 4, 8))
    if kind == "grouped":
        groups = 16
        channels, filters = 64, rng.choice((64, 128)) if variant == "backward_weight" else 64
    if kind == "depthwise":
        groups = channels = filters = rng.choice((3, 8, 20, 72))
    sizes = each(4, 5, 7) if rank == 3 else rng.choice((each(4, 5, 7), each(9, 12, 14)))
    one = ConvProblem(
        rng.choice((1, 2)), channels, filters, sizes, window, groups, each(1, 1, 1, 2), each(1, 1, 1, 2), each(0, 1),
        each(0, 1), variant, **more,
    )  # fmt: skip
    if problem_violations(one):
        return None
    strides: Any = {}
    for name in "xwy":
        shape = getattr(one, f"{name}_shape")
        if rng.random() < 0.8:
            strides[f"{name}_strides"] = channels_first(shape)
        if rng.random() < 0.1:  # a part of a larger array
            strides[f"{name}_strides"] = channels_first((shape[0], *(size + 1 for size in shape[1:-1]), shape[-1] + 2))
    return replace(one.laid(**strides), aligned=rng.random() < 0.8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "variant", "rank", "schedule", "more"),
    CASES,
    ids=[f"{one[3].pipeline}-{one[1]}-{one[2]}d-{one[4]['dtype']}" for one in CASES],
)
def test_drawn_problems(emulator: Emulator, kind: str, variant: str, rank: int, schedule: Any, more: Any) -> None:
    signature = ConvProblem(1, 64, 64, (4,) * rank, (1,) * rank, variant=variant, **more).signature
    spec = KernelSpec("conv", signature, schedule, "sm_90a")
    assert CONV.check(spec) == []
    rng = random.Random(f"{SEED} {schedule.label()} {variant} {rank}")
    asked = [one for one in (drawn(rng, kind, variant, rank, more) for _ in range(60 * COUNT)) if one is not None]
    kernel = emulator.kernel(spec)
    assert [text for one in asked for odd in ("", *"xwy") if (text := disagreement(kernel, one, odd))] == []
    serving = [one for one in asked if not CONV.supports(spec, one)]
    assert len(serving) > COUNT
    assert len(serving) < len(asked) or schedule.pipeline == "padded"
    odd, even = ([one for one in serving if one.aligned is aligned] for aligned in (False, True))
    problems = (*odd[: COUNT // 3], *even[: COUNT - COUNT // 3])
    assert len({padded_copies(one, KERNELS.family_of(schedule).needs(schedule)) for one in serving}) > 1
    assert wrong(emulator, spec, *problems) == []


@pytest.mark.parametrize(
    "schedule",
    [replace(TMA, store="tma"), DepthwiseTileSchedule(3, 1, 7, 2, 32, **TILE), replace(FOLDED, store="tma")],
    ids=lambda one: one.pipeline,
)
@pytest.mark.parametrize("dtype_d", ["bf16", "fp32"])
def test_residuals_lie_like_the_result(emulator: Emulator, schedule: Any, dtype_d: str) -> None:
    """As large as y, and channels-first as it is: turned on their way, with filters that are filled up or not."""
    also: Any = {"epilogue": "MultiDAdd", "num_d": 2, "full_d": 1, "dtype": "bf16", "dtype_d": dtype_d}
    depthwise = isinstance(schedule, DepthwiseTileSchedule)
    for filters, size in ((20, (9, 13)), (24, (8, 16))):
        groups, channels = (filters, filters) if depthwise else (1, 3)
        one = ConvProblem(2, channels, filters, size, (3, 3), groups, before=(1, 1), **also)
        one = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})
        spec = KernelSpec("conv", one.signature, schedule, "sm_90a")
        assert CONV.supports(spec, one) == []
        kernel = emulator.kernel(spec)
        for mode in (LATE, EAGER):
            assert apart(kernel, partial(prove, kernel, one, d_first=True), mode, 0, 4) == ""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("before", "after", "header"),
    [
        ("t.mask = planes && ragged(t) ?", "t.mask = false ?", "cuda/conv/padded/host.h"),
        ("to - from == each) continue;", "true) continue;", "cuda/conv/padded/shape.h"),
        ("to -= Size;", "", "cuda/conv/padded/shape.h"),
        ("room += one.bytes();", "", "cuda/conv/padded/host.h"),
    ],
)
def test_mistakes_show(emulator: Emulator, before: str, after: str, header: str) -> None:
    def edit(text: str) -> str:
        assert before in text, f"{before!r} is not in {header} any more"
        return text.replace(before, after)

    one = ConvProblem(2, 20, 20, (9, 13), (3, 3), 20, before=(1, 1), dtype="bf16")
    one = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})
    spec = KernelSpec("conv", one.signature, DepthwiseTileSchedule(3, 1, 7, 2, 32, **TILE), "sm_90a")
    assert CONV.supports(spec, one) == []
    kernel = emulator.kernel(spec, edit, before + after, header)
    assert any(apart(kernel, partial(prove, kernel, one), mode, 0, 4) for mode in (LATE, EAGER))
