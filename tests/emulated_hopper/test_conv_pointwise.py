"""Windows of one pixel by GEMM's kernels on the emulated Hopper GPU, and what they refuse."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, disagreement, wrong
from tests.emulated_hopper.emulator import Emulator
from tilewright.backends.cuda.conv.pointwise_multistage import PointwiseMultistageSchedule
from tilewright.backends.cuda.conv.pointwise_skinny import PointwiseSkinnySchedule
from tilewright.backends.cuda.conv.pointwise_tma_ws import PointwiseTmaWsSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first
from tilewright.ops.conv.problem_rules import problem_violations

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

VARIANTS = ("forward", "backward_data", "backward_weight")
TMA = PointwiseTmaWsSchedule("pointwise_tma_ws", (128, 64, 64), 3)
TURNED = PointwiseTmaWsSchedule("pointwise_swap_ab", (32, 64, 64), 4, grouping="pingpong", tile_scheduler="split_k")
STAGES = PointwiseMultistageSchedule("pointwise_multistage", (64, 64, 32), (16, 8, 16), (2, 2, 1), 3, (8, 8), "split_k")
FEW = PointwiseSkinnySchedule("pointwise_skinny_m", (32, 32, 256))
PLAIN = PointwiseMultistageSchedule("pointwise_multistage", (64, 64, 16), (16, 32, 1), (2, 2, 1), 3, (1, 1))
BYTES = PointwiseMultistageSchedule("pointwise_multistage", (64, 64, 64), (16, 8, 32), (2, 2, 1), 3, (16, 16))


def one_pixel(batch: int, channels: int, filters: int, *size: int, **more: Any) -> ConvProblem:
    more = {"dtype": "bf16", **more}
    return ConvProblem(batch, channels, filters, size, (1,) * len(size), **more)


def wide_pixels(one: ConvProblem) -> ConvProblem:
    """A part of the channels of larger arrays."""
    strides: Any = {}
    for name in "xy":
        strides[f"{name}_strides"] = (*(2 * step for step in getattr(one, f"{name}_strides")[:-1]), 1)
    return one.laid(**strides, w_strides=(one.w_strides[0] + 16, *one.w_strides[1:]))


# Several images and tiles, one pixel, one dimension, channels that are no whole 16 bytes, groups, gaps.
PROBLEMS = (
    one_pixel(2, 72, 136, 9, 10),
    one_pixel(3, 64, 200, 1, 1, stride=(2, 2)),
    one_pixel(1, 40, 24, 75),
    one_pixel(2, 21, 35, 5, 6),
    one_pixel(2, 96, 48, 7, 5, groups=3),
    one_pixel(2, 20, 36, 4, 5, groups=4),
    wide_pixels(one_pixel(2, 48, 64, 5, 8)),
    replace(one_pixel(2, 64, 40, 6, 5), aligned=False),
)


def proven(emulator: Emulator, schedule: Any, problems: tuple[ConvProblem, ...], least: int) -> list[str]:
    spec = KernelSpec("conv", problems[0].signature, schedule, "sm_90a")
    assert CONV.check(spec) == []
    serving = [one for one in problems if not CONV.supports(spec, one)]
    assert len(serving) >= least, [CONV.supports(spec, one) for one in problems]
    return wrong(emulator, spec, *serving)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("schedule", "least"),
    [
        (replace(TMA, store="tma"), 5),
        (replace(TMA, tile=(64, 96, 64), grouping="pingpong", tile_scheduler="stream_k", cluster=(1, 2)), 8),
        (TURNED, 8),
        (STAGES, 4),
        (replace(STAGES, vectors=(1, 1), tile_scheduler="data_parallel"), 8),
    ],
)
def test_pixels_are_rows(emulator: Emulator, variant: str, schedule: Any, least: int) -> None:
    problems = tuple(replace(one, variant=variant) for one in PROBLEMS)
    assert proven(emulator, schedule, problems, least) == []


def first(one: ConvProblem) -> ConvProblem:
    """In channels-first memory; w is the same in either order."""
    strides: Any = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xy"}
    return one.laid(**strides)


def apart(one: ConvProblem) -> ConvProblem:
    """Part of the channels and images of larger arrays."""
    strides: Any = {}
    for name in "xy":
        image, *pixels, channel = getattr(one, f"{name}_strides")
        strides[f"{name}_strides"] = (3 * image, *pixels, channel + 8)
    return one.laid(**strides)


# Planes that are whole 16 bytes and such that are not, of one dimension, groups of one image, gaps.
PLANES = (
    first(one_pixel(3, 72, 136, 9, 8)),
    first(one_pixel(1, 40, 24, 75)),
    first(one_pixel(2, 21, 35, 5, 7)),
    first(one_pixel(1, 96, 48, 8, 5, groups=3)),
    first(one_pixel(1, 96, 48, 7, 5, groups=3)),
    apart(first(one_pixel(2, 48, 64, 5, 8))),
    replace(first(one_pixel(2, 64, 40, 6, 4)), aligned=False),
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("schedule", "least"),
    [
        (replace(TMA, pipeline="planes_tma_ws", store="tma"), 1),
        (replace(TMA, pipeline="planes_tma_ws", tile=(64, 96, 64), grouping="pingpong", cluster=(1, 2)), 3),
        (replace(TURNED, pipeline="planes_swap_ab"), 3),
        (replace(STAGES, pipeline="planes_multistage", vectors=(1, 1)), 3),
    ],
)
def test_planes_are_columns(emulator: Emulator, variant: str, schedule: Any, least: int) -> None:
    """Channels-first memory as it lies; gradients of weights of one image."""
    problems = tuple(replace(one, variant=variant) for one in PLANES)
    assert proven(emulator, schedule, problems, least if variant == "backward_weight" else 2 * least) == []


@pytest.mark.parametrize("schedule", [replace(TMA, store="tma"), TMA, TURNED, STAGES])
def test_a_number_a_filter_beside_planes(emulator: Emulator, schedule: Any) -> None:
    schedule = replace(schedule, pipeline=schedule.pipeline.replace("pointwise", "planes"))
    problems = tuple(
        first(one_pixel(batch, 64, 80, 4, 6, epilogue="Silu", num_d=2, groups=groups))
        for batch, groups in ((3, 1), (1, 2))
    )
    assert proven(emulator, schedule, problems, 2) == []
    full = replace(problems[0], full_d=1)
    assert [one.rule for one in CONV.supports(KernelSpec("conv", full.signature, schedule, "sm_90a"), full)] == [
        "nv-planes"
    ]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("skinny_dim", ["m", "n"])
def test_few_pixels_and_few_channels(emulator: Emulator, variant: str, skinny_dim: str) -> None:
    """Few rows of a product, or few columns; gradients of weights have filters as rows, channels as columns."""
    tile = (16, 32, 256) if skinny_dim == "m" else (32, 16, 256)
    problems: tuple[ConvProblem, ...] = (
        one_pixel(3, 72, 136, 5, 1),
        one_pixel(16, 64, 96, 1, 1, groups=2),
        one_pixel(2, 80, 16, 9, 4),
        one_pixel(2, 8, 80, 9, 4),
        one_pixel(2, 16, 80, 6, 4),
        one_pixel(2, 80, 8, 6, 4),
    )
    schedule = PointwiseSkinnySchedule(f"pointwise_skinny_{skinny_dim}", tile)
    assert proven(emulator, schedule, tuple(replace(one, variant=variant) for one in problems), 2) == []


def test_blocks_of_a_cluster_share_k(emulator: Emulator) -> None:
    schedule = replace(TMA, cluster=(2, 1), tile_scheduler="cluster_k", stages=4)
    problems = (one_pixel(2, 136, 72, 9, 10), one_pixel(1, 200, 64, 5, 8))
    assert proven(emulator, schedule, problems, 2) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_dimensions_and_exact_floats(emulator: Emulator, variant: str) -> None:
    more: Any = {"variant": variant, "dtype": "fp32"}
    problems = (one_pixel(2, 19, 70, 3, 4, 5, **more), one_pixel(1, 64, 64, 2, 3, 7, groups=2, **more))
    assert proven(emulator, PLAIN, problems, 2) == []


@pytest.mark.parametrize("dtype_out", ["int32", "int8"])
def test_bytes(emulator: Emulator, dtype_out: str) -> None:
    more: Any = {"dtype": "int8", "dtype_out": dtype_out}
    problems = (one_pixel(2, 80, 48, 7, 5, **more), one_pixel(1, 128, 96, 5, 6, groups=2, **more))
    assert proven(emulator, BYTES, problems, 2) == []
    assert proven(emulator, replace(TMA, tile=(128, 64, 128)), problems, 2) == []


@pytest.mark.parametrize("schedule", [replace(TMA, store="tma"), TMA, TURNED, STAGES])
def test_what_is_fused(emulator: Emulator, schedule: Any) -> None:
    """A number a channel, numbers like y, and both; of groups too."""
    problems = tuple(
        one_pixel(2, 64, 80, 5, 6, epilogue="Silu", num_d=2, full_d=full, groups=groups)
        for full, groups in ((0, 1), (1, 1), (2, 2), (1, 2))
    )
    assert proven(emulator, schedule, problems, 4) == []


def test_no_images_have_gradients_of_zero(emulator: Emulator) -> None:
    one = one_pixel(0, 64, 40, 6, 5, variant="backward_weight")
    spec = KernelSpec("conv", one.signature, TMA, "sm_90a")
    assert [broken.rule for broken in CONV.supports(spec, one)] == ["nv-empty-k"]
    assert proven(emulator, STAGES, (one,), 1) == []


SEED, COUNT = 20261116, 300


def drawn(rng: random.Random, rank: int, variant: str) -> ConvProblem:
    """Mostly windows of one pixel; now and then others, strides, padding, gaps, and channels that lie apart."""

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(rank))

    groups = rng.choice((1, 1, 1, 2, 4))
    channels, filters = groups * rng.choice((1, 4, 8, 16, 21, 64)), groups * rng.choice((1, 4, 8, 24, 64))
    usual = rng.random() < 0.8
    one = ConvProblem(
        rng.choice((0, 1, 2)), channels, filters, each(1, 4, 8, 9), each(1) if usual else each(1, 1, 3), groups,
        each(1) if usual else each(1, 1, 2), before=each(0) if usual else each(0, 0, 1), variant=variant, dtype="bf16",
        after=each(0) if rng.random() < 0.9 else each(0, 1),
    )  # fmt: skip
    changed: Any
    if rng.random() < 0.3:
        name = rng.choice(("x_strides", "w_strides", "y_strides"))
        strides = list(getattr(one, name))
        place = rng.randrange(len(strides))
        strides[place] += rng.choice((1, 8, 64)) * strides[place]
        changed = {name: tuple(strides)}
        one = replace(one, **changed)
    both = rng.random() < 0.4
    for name in "xwy":
        if rng.random() < 0.05 or (both and name != "w"):
            changed = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape"))}
            one = replace(one, **changed)
    return one


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_checks_agree(emulator: Emulator, variant: str, rank: int) -> None:
    rng = random.Random(f"{SEED} {variant} {rank}")
    problems = [one for one in (drawn(rng, rank, variant) for _ in range(COUNT)) if not problem_violations(one)]
    assert len(problems) > COUNT // 2
    made = [replace(TMA, store="tma"), TMA, TURNED, STAGES, replace(STAGES, vectors=(1, 8)), FEW]
    made += [replace(TMA, pipeline="planes_tma_ws", store="tma"), replace(STAGES, pipeline="planes_multistage")]
    for schedule in made[rank - 2 :: 2]:
        spec = KernelSpec("conv", problems[0].signature, schedule, "sm_90a")
        assert CONV.check(spec) == []
        kernel = emulator.kernel(spec)
        for one in problems:
            for odd in ("", rng.choice(("x", "w", "y"))):
                assert disagreement(kernel, one, odd) == ""
        assert {bool(CONV.supports(spec, one)) for one in problems} == {True, False}
