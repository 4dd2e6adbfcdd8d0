"""Convolutions of gathered operands on the emulated GPU: drawn problems of every direction, type and memory."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, disagreement, wrong
from tests.emulated_hopper.emulator import Emulator
from tilewright.arch import arch
from tilewright.backends.cuda.conv.depthwise import DepthwiseSchedule
from tilewright.backends.cuda.conv.gather import GatherSchedule, gathers
from tilewright.ops import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first, dense_strides
from tilewright.ops.conv.problem_rules import problem_violations

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 20261116, 5
VARIANTS = ("forward", "backward_data", "backward_weight")
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    *((one, {"dtype": "bf16"}) for one in VARIANTS),
    *((one, {"dtype": "fp32"}) for one in VARIANTS),
    ("backward_data", {"dtype": "fp16", "dtype_out": "fp32"}),
    ("forward", {"dtype": "int8"}),
    ("forward", {"dtype": "int8", "dtype_out": "int8", "epilogue": "MultiDAdd", "num_d": 1, "full_d": 1}),
    ("forward", {"dtype": "fp16", "epilogue": "Silu", "num_d": 2, "full_d": 1}),
    ("forward", {"dtype": "fp32", "epilogue": "MultiDMultiply", "num_d": 1}),
)


def drawn(rng: random.Random, rank: int, grains: tuple[int, int], **more: Any) -> ConvProblem:
    """Small ones with everything: groups, strides, dilation, padding, gaps, memory of any order."""

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(rank))

    while True:
        groups = rng.choice((1, 1, 2, 3))
        channels, filters = (groups * grain * rng.choice((1, 1, 2, 3, 5, 9)) for grain in grains)
        size = each(1, 3, 5, 6, 9) if rank < 3 else each(1, 2, 4, 5)
        window = each(1, 1, 2, 3, 4) if rank < 3 else each(1, 2, 3)
        one = ConvProblem(
            rng.choice((1, 2, 3)), channels, filters, size, window, groups, each(1, 1, 2, 3), each(1, 1, 2, 3),
            each(0, 1, 2), each(0, 1, 2), **more,
        )  # fmt: skip
        if not problem_violations(one):
            return one


def laid(rng: random.Random, one: ConvProblem, first: bool) -> ConvProblem:
    """Gaps between rows, and channels-first memory: of all operands, or of some."""
    changed = {}
    for name in "xwy":
        shape = getattr(one, f"{name}_shape")
        if first or rng.random() < 0.2:
            changed[f"{name}_strides"] = channels_first(shape)
        elif rng.random() < 0.4:
            room = [size + rng.choice((0, 1, 16)) for size in shape]  # of a larger array that it is a part of
            changed[f"{name}_strides"] = dense_strides(tuple(room))
    return one.laid(**changed)


def spec_of(one: ConvProblem, schedule: GatherSchedule, name: str = "sm_90a") -> KernelSpec:
    return KernelSpec("conv", one.signature, schedule, name)


def problems(rng: random.Random, rank: int, schedule: GatherSchedule, **more: Any) -> list[ConvProblem]:
    """Such as a kernel serves: one after another with channels of its vectors."""
    wide = {"bf16": 8, "fp16": 8, "fp32": 4, "int8": 16}[more["dtype"]]
    planes, found = schedule.pipeline == "gather_planes", []
    for _ in range(400):
        grains = (wide, wide) if max(schedule.vectors) > 1 else (1, 1)
        one = laid(rng, drawn(rng, rank, grains, **more), planes)
        if max(schedule.vectors) == 1 and rng.random() < 0.3:
            one = replace(one, aligned=False)
        if not CONV.supports(spec_of(one, schedule), one):
            found.append(one)
        if len(found) == COUNT:
            return found
    raise AssertionError(f"{schedule.label()} serves none of what is drawn")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(("variant", "more"), KINDS)
def test_gathered_operands(emulator: Emulator, variant: str, more: dict[str, Any], rank: int) -> None:
    """A kernel of each way in, its tile drawn."""
    rng = random.Random(f"{SEED} {variant} {sorted(more.items())} {rank}")
    one = drawn(rng, rank, (1, 1), variant=variant, **more)
    ways: dict[Any, list[GatherSchedule]] = {}
    for schedule in gathers(one.signature, arch("sm_90a")):
        ways.setdefault((schedule.pipeline, schedule.vectors), []).append(schedule)
    assert len(ways) > 1
    for number, kinds in enumerate(ways.values()):
        if number % 3 != rank - 1 and rank != 2 and len(ways) > 3:
            continue  # two dimensions have them all
        schedule = rng.choice(kinds)
        spec = spec_of(one, schedule)
        assert CONV.check(spec) == []
        asked = problems(rng, rank, schedule, variant=variant, **more)
        assert wrong(emulator, spec, *asked, multiprocessors=rng.choice((1, 4, 16))) == []


def test_no_images_have_no_gradient(emulator: Emulator) -> None:
    one = ConvProblem(0, 8, 8, (4, 4), (3, 3), variant="backward_weight", dtype="bf16")
    schedule = GatherSchedule("gather", (64, 64, 32), (2, 2, 1), 4, (8, 8))
    assert wrong(emulator, spec_of(one, schedule), one) == []


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_both_checks_agree(emulator: Emulator, variant: str, rank: int) -> None:
    """What `supports` says, the check in C says too."""
    rng = random.Random(f"{SEED} {variant} {rank}")
    said = set()
    for vectors in ((8, 8), (8, 1), (2, 2), (1, 1)):
        schedule = GatherSchedule("gather", (64, 64, 32), (2, 2, 1), 4, vectors)
        spec = spec_of(drawn(rng, rank, (8, 8), variant=variant, dtype="bf16"), schedule)
        assert CONV.check(spec) == []
        kernel = emulator.kernel(spec)
        for _ in range(150):
            grains = rng.choice((1, 2, 8)), rng.choice((1, 2, 8))
            one = laid(rng, drawn(rng, rank, grains, variant=variant, dtype="bf16"), rng.random() < 0.1)
            if rng.random() < 0.3:
                window = (*one.window[:-1], rng.choice((25, 28, 40)))
                one = replace(one, window=window, before=window, after=window, x_strides=(), w_strides=(), y_strides=())
            if rng.random() < 0.2:
                one = replace(one, stride=(9,) * rank, x_strides=(), w_strides=(), y_strides=())
            if rng.random() < 0.1:
                one = one.laid(x_strides=(1 << 30, *one.x_strides[1:]))
            if problem_violations(one):
                continue
            for odd in ("", rng.choice(("x", "w", "y"))):
                assert disagreement(kernel, one, odd) == ""
            said.add((vectors, bool(CONV.supports(spec, one))))
    assert len(said) == 8, "nothing was taken, or nothing refused"


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_depthwise_windows_of_an_odd_number_of_channels(emulator: Emulator, variant: str, dtype: str) -> None:
    """A channel for each thread, wherever it begins."""
    square, any_window = DepthwiseSchedule(3, 1, 7, vector=1), DepthwiseSchedule(0, 1, 2, vector=1)
    made: Any = {"variant": variant, "dtype": dtype}
    asked = [
        ConvProblem(2, 25, 25, (6, 9), (3, 3), 25, before=(1, 1), **made),
        ConvProblem(1, 1, 1, (7, 8), (3, 3), 1, before=(0, 2), aligned=False, **made),
        ConvProblem(1, 135, 135, (9,), (3,), 135, before=(1,), aligned=False, **made),
        ConvProblem(1, 7, 7, (5, 11), (2, 5), 7, (1, 3), (2, 2), (1, 4), **made),
    ]
    for schedule, serves in ((square, asked[:3]), (any_window, asked)):
        if schedule.filter_size or variant != "backward_weight":
            spec = KernelSpec("conv", asked[0].signature, schedule, "sm_90a")
            assert CONV.check(spec) == []
            assert wrong(emulator, spec, *serves) == []
            kernel = emulator.kernel(spec)
            even = replace(asked[0], channels=24, filters=24, groups=24, x_strides=(), w_strides=(), y_strides=())
            assert disagreement(kernel, even) == ""
            assert CONV.supports(spec, even)
            places = ("", "x", "y") if dtype == "bf16" else ("",)  # two bytes behind
            for one in asked:
                assert [text for odd in places if (text := disagreement(kernel, one, odd))] == []
