"""Groups of few channels in memory that no kernel takes as it is, on the emulated Hopper GPU: drawn by seed."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from math import gcd
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, disagreement, prove, wrong
from tests.emulated_hopper.emulator import EAGER, LATE, Emulator, apart
from tilewright.backends.cuda.conv.tma_ws import ConvTmaWsSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first
from tilewright.ops.conv.problem_rules import problem_violations

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT, FEW = 20261116, 9, (1, 2, 4, 8, 12)
PINGPONG = ConvTmaWsSchedule("padded", (128, 64, 64), 3, grouping="pingpong", merged=True)
FUSED: Any = {"dtype": "fp16", "epilogue": "Relu", "num_d": 1}
CASES: list[tuple[str, int, ConvTmaWsSchedule, Any]] = [
    ("forward", 2, replace(PINGPONG, store="tma"), {"dtype": "bf16"}),
    ("forward", 3, PINGPONG, FUSED),
    ("backward_data", 2, PINGPONG, {"dtype": "fp16"}),
    ("backward_data", 3, replace(PINGPONG, store="tma"), {"dtype": "bf16"}),
    ("backward_weight", 2, replace(PINGPONG, grouping="cooperative", tile_scheduler="split_k"), {"dtype": "bf16"}),
    ("backward_weight", 3, replace(PINGPONG, grouping="cooperative", tile_scheduler="split_k"), {"dtype": "fp16"}),
]


def drawn(rng: random.Random, variant: str, rank: int, more: Any) -> ConvProblem | None:
    """Groups that mostly fill stages; x, w and y channels-first or not, some off by an element, w also with gaps."""

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(rank))

    channels, filters = rng.choice(FEW), rng.choice(FEW)
    deep = filters if variant == "backward_data" else channels
    unit = 64 // gcd(deep, 64)
    groups = rng.choice((unit, unit, unit, 2 * unit, 6))
    if groups * max(channels, filters) > 256:
        return None
    one = ConvProblem(
        rng.choice((1, 2)), groups * channels, groups * filters, each(3, 4, 5), each(1, 2, 3), groups, each(1, 1, 2),
        each(1, 1, 2), each(0, 1), each(0, 1), variant, **more,
    )  # fmt: skip
    if problem_violations(one):
        return None
    strides: Any = {
        f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy" if rng.random() < 0.7
    }
    if "w_strides" not in strides and rng.random() < 0.5:  # gaps between taps, or between rows of them
        images, *rows, tap, channel = one.w_strides
        strides["w_strides"] = (3 * images, *(3 * row + rng.choice((0, tap)) for row in rows), 3 * tap, channel)
    return replace(one.laid(**strides), aligned=rng.random() < 0.8)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("variant", "rank", "schedule", "more"), CASES, ids=[f"{one[0]}-{one[1]}d" for one in CASES])
def test_merged_groups_in_copies(
    emulator: Emulator, variant: str, rank: int, schedule: ConvTmaWsSchedule, more: Any
) -> None:
    signature = ConvProblem(1, 64, 64, (4,) * rank, (1,) * rank, variant=variant, **more).signature
    spec = KernelSpec("conv", signature, schedule, "sm_90a")
    assert CONV.check(spec) == []
    rng = random.Random(f"{SEED} {variant} {rank}")
    asked = [one for one in (drawn(rng, variant, rank, more) for _ in range(40 * COUNT)) if one is not None]
    kernel = emulator.kernel(spec)
    assert [text for one in asked for odd in ("", *"xwy") if (text := disagreement(kernel, one, odd))] == []
    serving = [one for one in asked if not CONV.supports(spec, one)]
    assert COUNT < len(serving) < len(asked)
    odd, even = ([one for one in serving if one.aligned is aligned] for aligned in (False, True))
    problems = (*odd[: COUNT // 3], *even[: COUNT - COUNT // 3])
    assert len({one.group_channels for one in problems}) > 2
    assert len(problems) == COUNT
    assert wrong(emulator, spec, *problems) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("strides[4] = 1, strides[3] = all,", "strides[4] = 1, strides[3] = channels,"),
        ("else if (given.groups == 1) x.channels = all_channels(given)", "else x.channels = whole(given.channels)"),
        ("w.made = grown || odd(x.w) || (w.transposed && !needs.whole_groups) ||", "w.made ="),
    ],
)
def test_mistakes_show(emulator: Emulator, before: str, after: str) -> None:
    def edit(text: str) -> str:
        assert before in text, f"{before!r} is not in conv_host_padded.h any more"
        return text.replace(before, after)

    one = ConvProblem(2, 64, 64, (4, 5), (3, 2), 16, before=(1, 1), dtype="bf16")
    one = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})
    spec = KernelSpec("conv", one.signature, replace(PINGPONG, store="tma"), "sm_90a")
    assert CONV.supports(spec, one) == []
    kernel = emulator.kernel(spec, edit, before, "cuda/conv/padded/host.h")
    assert any(apart(kernel, partial(prove, kernel, one), mode, 0, 4) for mode in (LATE, EAGER))
