"""What `supports` says of a convolution kernel, its check in C says too, on problems drawn by seed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, disagreement
from tests.emulated_hopper.emulator import Emulator
from tilewright.backends.cuda.conv.depthwise import DepthwiseSchedule
from tilewright.backends.cuda.conv.depthwise_mma import DepthwiseMmaSchedule
from tilewright.backends.cuda.conv.depthwise_tile import DepthwiseTileSchedule
from tilewright.backends.cuda.conv.halo import HaloSchedule
from tilewright.backends.cuda.conv.halo_wgrad import HaloWgradSchedule
from tilewright.backends.cuda.conv.small_channel_wgrad import SmallChannelWgradSchedule
from tilewright.backends.cuda.conv.tma_ws import ConvTmaWsSchedule
from tilewright.backends.cuda.conv.width_folded import WidthFoldedSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first
from tilewright.ops.conv.problem_rules import problem_violations

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

SEED, COUNT = 20261115, 200


def drawn(rng: random.Random, rank: int, variant: str) -> ConvProblem:
    """Mostly what kernels take; now and then sizes, paddings, strides or gaps they do not."""

    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(rank))

    groups = rng.choice((1, 1, 1, 2, 4, 8, 32))
    channels, filters = groups * rng.choice((1, 3, 8, 16, 20, 64, 64)), groups * rng.choice((1, 8, 16, 64))
    if rng.random() < 0.1:
        groups = channels = filters = rng.choice((8, 20, 72))
    window, before = each(1, 3, 3, 3, 7, 9), each(0, 1, 1, 3, 17, 130)
    changed: Any
    one = ConvProblem(
        rng.choice((0, 1, 2)), channels, filters, each(4, 9, 20, 130, 300), window, groups, each(1, 1, 1, 2, 9),
        each(1, 1, 1, 2, 20), before, each(0, 1, 1, 3), variant, "bf16",
    )  # fmt: skip
    if rng.random() < 0.2:
        name = rng.choice(("x_strides", "w_strides", "y_strides"))
        strides = list(getattr(one, name))
        place = rng.randrange(len(strides))
        strides[place] += rng.choice((1, 8, 64)) * strides[place]
        changed = {name: tuple(strides)}
        one = replace(one, **changed)
    for name in "xwy":
        if rng.random() < 0.07:
            changed = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape"))}
            one = replace(one, **changed)
    return one


def schedules(variant: str) -> list[Any]:
    tma = ConvTmaWsSchedule("tma_ws", (128, 64, 64), 3)
    deal: Any = {"tile_scheduler": "split_k"} if variant == "backward_weight" else {}
    made: list[Any] = [replace(tma, **deal), replace(tma, store="tma", **deal), replace(tma, merged=True, **deal)]
    store = "direct" if variant == "backward_data" else "tma"
    made += [WidthFoldedSchedule("width_folded", tma.tile, tma.stages, store=store, **deal), DepthwiseSchedule(3, 1, 4)]
    made += [DepthwiseSchedule(3, 1, 4, 7), replace(tma, pipeline="padded", **deal)]
    made += [DepthwiseTileSchedule(3, 1, 7, 2), DepthwiseTileSchedule(3, 1, 8, 2, 32)]
    made += [DepthwiseTileSchedule(3, 2, 7, 1)] * 2
    made += [replace(tma, pipeline="padded", merged=True, **deal)] * 2
    made += [WidthFoldedSchedule("padded_width_folded", tma.tile, tma.stages, store=store, **deal)] * 2
    made += [DepthwiseTileSchedule(3, 1, 7, 2, pipeline="padded_depthwise_tile")] * 2
    made += [DepthwiseSchedule(3, 1, 4, pipeline="padded_depthwise")] * 2
    if variant == "backward_weight":
        made += [HaloWgradSchedule(128, 2, 192)] * 2
        made += [SmallChannelWgradSchedule(3, 2, 3)] * 2 + [DepthwiseMmaSchedule(2)] * 2
        made += [HaloWgradSchedule(128, 2, 192, pipeline="padded_halo_wgrad")] * 2
    if variant != "backward_weight":
        made += [HaloSchedule((128, 64, 64), 2, 192, 9, merged) for merged in (False, True)]
        made += [
            HaloSchedule((128, 64, 64), 2, 192, 9, merged, pipeline="padded_halo")
            for merged in (False, False, True, True)
        ]
        made.append(DepthwiseSchedule(0, 1, 2))
    return made


@pytest.mark.sampled(1)
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("variant", ["forward", "backward_data", "backward_weight"])
def test_both_checks_agree(emulator: Emulator, variant: str, rank: int) -> None:
    rng = random.Random(f"{SEED} {variant} {rank}")
    problems = [one for one in (drawn(rng, rank, variant) for _ in range(COUNT)) if not problem_violations(one)]
    assert len(problems) > COUNT // 8
    said: dict[str, set[bool]] = {}
    for schedule in schedules(variant)[rank - 2 :: 2]:
        spec = KernelSpec("conv", problems[0].signature, schedule, "sm_90a")
        assert CONV.check(spec) == []
        kernel = emulator.kernel(spec)
        for one in problems:
            for odd in ("", rng.choice(("x", "w", "y"))):
                assert disagreement(kernel, one, odd) == ""
            said.setdefault(spec.name, set()).add(bool(CONV.supports(spec, one)))
    assert any(one == {True, False} for one in said.values()), "nothing was taken, or nothing refused"
