"""Convolutions on the emulated Hopper GPU: every direction of every pipeline, and every edge of its walk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, wrong
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

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

VARIANTS = ("forward", "backward_data", "backward_weight")


def flat(batch: int, channels: int, filters: int, size: tuple[int, ...], window: tuple[int, ...], **more: Any) -> Any:
    return ConvProblem(batch, channels, filters, size, window, dtype=more.pop("dtype", "bf16"), **more)


# Padding, strides, dilation, a window over the edge, channels that end inside a stage, groups.
PROBLEMS = (
    flat(2, 64, 64, (5, 6), (3, 3), before=(1, 1)),
    flat(2, 96, 40, (7, 6), (3, 3), stride=(2, 2), before=(1, 1)),
    flat(1, 8, 72, (9, 6), (3, 2), stride=(1, 2), dilation=(2, 3), before=(2, 0), after=(0, 2)),
    flat(1, 128, 128, (5, 4), (1, 1), stride=(2, 3), groups=2),
)


def tma_ws(variant: str, m: int, n: int, kind: Any = ConvTmaWsSchedule, **more: Any) -> ConvTmaWsSchedule:
    made: ConvTmaWsSchedule = replace(kind("tma_ws", (m, n, 64), 3), **more)
    return made


def spec_of(one: ConvProblem, schedule: Any) -> KernelSpec:
    return KernelSpec("conv", one.signature, schedule, "sm_90a")


def proven(emulator: Emulator, schedule: Any, problems: tuple[ConvProblem, ...]) -> list[str]:
    """Of the first problem's signature, which all have."""
    spec = spec_of(problems[0], schedule)
    assert CONV.check(spec) == []
    serving = [one for one in problems if not CONV.supports(spec, one)]
    assert serving, [CONV.supports(spec, one) for one in problems]
    return wrong(emulator, spec, *serving)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variant", "schedule"),
    [
        ("forward", tma_ws("forward", 128, 64, store="tma")),
        ("forward", tma_ws("forward", 64, 64, grouping="pingpong", cluster=(1, 2), tile_scheduler="stream_k")),
        ("backward_data", tma_ws("backward_data", 128, 64)),
        ("backward_data", tma_ws("backward_data", 64, 128, grouping="pingpong", cluster=(2, 1), store="tma")),
        ("backward_weight", tma_ws("backward_weight", 128, 128, tile_scheduler="split_k", cluster=(2, 1))),
        (
            "backward_weight",
            tma_ws("backward_weight", 64, 192, grouping="pingpong", tile_scheduler="stream_k", store="tma"),
        ),
    ],
)
def test_walks_over_pixels(emulator: Emulator, variant: str, schedule: ConvTmaWsSchedule) -> None:
    assert proven(emulator, schedule, tuple(replace(one, variant=variant) for one in PROBLEMS)) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_dimensions(emulator: Emulator, variant: str) -> None:
    problems = (
        flat(1, 64, 64, (3, 4, 5), (3, 2, 3), before=(1, 0, 1), variant=variant),
        flat(2, 32, 64, (3, 4, 3), (3, 3, 1), stride=(2, 1, 2), before=(1, 1, 0), variant=variant),
    )
    tile_scheduler = "split_k" if variant == "backward_weight" else "data_parallel"
    assert proven(emulator, tma_ws(variant, 128, 64, tile_scheduler=tile_scheduler), problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", VARIANTS[:2])
@pytest.mark.parametrize(
    ("spatial", "schedule"),
    [
        (2, HaloSchedule((64, 64, 64), 2, 128, 9)),
        (2, HaloSchedule((64, 64, 64), 2, 128, 9, merged=True)),
        (2, HaloSchedule((64, 64, 64), 2, 128, 9, True, 16, 1)),
        (2, HaloSchedule((128, 64, 64), 2, 192, 9, True, 32, 2)),
        (2, HaloSchedule((128, 128, 64), 3, 192, 4)),
        (3, HaloSchedule((64, 64, 64), 2, 128, 5)),
    ],
)
def test_bands(emulator: Emulator, variant: str, spatial: int, schedule: HaloSchedule) -> None:
    """Weights that stay and weights in a ring, windows that reach over edges, several blocks of channels."""
    few = {"groups": 32} if schedule.merged else {}
    problems: tuple[ConvProblem, ...] = (
        flat(2, 64, 64, (5, 12), (3, 3), before=(1, 1), **few),
        flat(1, 128, 128, (7, 9), (2, 3), before=(0, 2), dilation=(2, 1), after=(2, 0), **few),
        flat(1, 64, 128, (9,), (3,), before=(1,), **few),
        flat(1, 64, 64, (6, 5), (3, 2), before=(1, 1), groups=4 if schedule.slice == 16 else 2 if few else 1),
    )
    if spatial == 3:
        problems = (flat(1, 64, 128, (3, 4, 5), (3, 2, 3), before=(1, 0, 1), dilation=(1, 2, 1), after=(0, 2, 1)),)
    assert proven(emulator, schedule, tuple(replace(one, variant=variant) for one in problems)) == []


@pytest.mark.parametrize("variant", VARIANTS[:2])
@pytest.mark.parametrize("spatial", [2, 3])
def test_bands_of_few_channels(emulator: Emulator, variant: str, spatial: int) -> None:
    """Half of a stage is multiplied, where no more is there."""
    more: Any = {"variant": variant}
    problems: tuple[ConvProblem, ...] = (
        flat(2, 32, 32, (5, 12), (3, 3), before=(1, 1), **more),
        flat(1, 24, 24, (7, 9), (2, 3), before=(0, 2), dilation=(2, 1), after=(2, 0), **more),
        flat(1, *((8, 136) if variant == "forward" else (136, 8)), (9,), (3,), before=(1,), **more),
    )
    if spatial == 3:
        problems = (flat(1, 16, 16, (3, 4, 5), (3, 2, 3), before=(1, 0, 1), **more),)
    schedule = HaloSchedule((64, 64, 32), 2, 128, 5)
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert CONV.supports(spec_of(problems[0], schedule), flat(1, 40, 40, (5, 12), (3, 3), **more))
    assert proven(emulator, schedule, problems) == []


@pytest.mark.parametrize("variant", VARIANTS[:2])
@pytest.mark.parametrize("deep", [64, 32])
def test_long_bands(emulator: Emulator, variant: str, deep: int) -> None:
    """Rows of pixels so wide, or windows so high, that a tile's band is more than twice its rows; several tiles."""
    few = 32 if deep == 32 else 72
    problems = (
        flat(1, few, few, (4, 181), (3, 3), before=(1, 1), variant=variant),
        flat(1, few, few, (7, 84), (5, 5), before=(2, 2), variant=variant),
    )
    schedule = HaloSchedule((256, 64, deep), 2, 640, 4)
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert proven(emulator, schedule, problems) == []


@pytest.mark.parametrize(
    ("spatial", "schedule"),
    [
        (2, HaloSchedule((64, 64, 64), 2, 128, 9)),
        (2, HaloSchedule((64, 64, 64), 2, 128, 9, True)),
        (2, HaloSchedule((128, 128, 64), 3, 192, 4)),
        (3, HaloSchedule((64, 64, 64), 2, 128, 5)),
    ],
)
def test_bands_of_strides(emulator: Emulator, spatial: int, schedule: HaloSchedule) -> None:
    """A kind of band for each residue of taps: of one tap and of several, strides that differ, edges that end early."""
    groups = {"groups": 4} if schedule.merged else {}
    problems: tuple[ConvProblem, ...] = (
        flat(2, 64, 64, (9, 8), (3, 3), stride=(2, 2), before=(1, 1), **groups),
        flat(1, 64, 64, (10, 11), (5, 4), stride=(2, 3), before=(2, 0), after=(1, 2), **groups),
        flat(1, 64, 64, (7, 9), (3, 3), stride=(1, 2), before=(1, 0), **groups),
    )
    if not schedule.merged:
        problems += (
            flat(1, 136, 128, (7, 9), (2, 3), stride=(2, 2), before=(0, 2), after=(2, 0)),
            flat(1, 32, 64, (13,), (4,), stride=(3,), before=(1,)),
        )
    if spatial == 3:
        problems = (
            flat(1, 32, 64, (5, 6, 7), (3, 3, 3), stride=(2, 2, 2), before=(1, 1, 1)),
            flat(1, 64, 128, (3, 5, 6), (3, 2, 3), stride=(3, 1, 2), before=(1, 0, 1), dilation=(1, 2, 1)),
        )
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert proven(emulator, schedule, problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", VARIANTS[:2])
def test_slices_of_tiles_over_64_columns(emulator: Emulator, variant: str) -> None:
    """Columns that lie side by side come in pieces of 64: the third slice begins another.  Found by chance on a GPU."""
    wide, deep = (128, 64) if variant == "backward_data" else (64, 128)
    problems = (
        flat(2, wide, deep, (5, 9), (3, 3), before=(1, 2), dilation=(1, 2), after=(1, 2), groups=4, variant=variant),
        flat(1, 2 * wide, 2 * deep, (6, 5), (2, 3), before=(1, 1), groups=8, variant=variant),
    )
    schedule = HaloSchedule((128, 128, 64), 2, 192, 4, True, 32, 1)
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert proven(emulator, schedule, problems) == []


@pytest.mark.sampled(1)
def test_slices_of_gradients_end_with_the_pieces_of_columns() -> None:
    one = flat(1, 192, 64, (5, 6), (3, 3), before=(1, 1), groups=4, variant="backward_data")
    schedule = HaloSchedule((64, 192, 64), 2, 128, 3, True, 48, 1)
    assert "nv-slice" in [said.rule for said in CONV.check(spec_of(one, schedule))]
    forward = replace(one, variant="forward", channels=64, filters=192, x_strides=(), w_strides=(), y_strides=())
    assert "nv-slice" not in [said.rule for said in CONV.check(spec_of(forward, schedule))]


@pytest.mark.sampled(1)
def test_slices_take_one_band_a_tile() -> None:
    """Warpgroups take no turns there: one would wait for a phase that an earlier band of the other's ends."""
    schedule = HaloSchedule((64, 64, 64), 2, 128, 9, True, 32, 2)
    strided = flat(2, 256, 256, (27, 15), (3, 3), before=(1, 1), stride=(2, 2), groups=8)
    volume = flat(1, 64, 64, (4, 5, 6), (3, 3, 3), before=(1, 1, 1), groups=2)
    for one in (strided, volume):
        assert [said.rule for said in CONV.supports(spec_of(one, schedule), one)] == ["nv-slice"]
    assert not CONV.supports(spec_of(strided, schedule), replace(strided, stride=(1, 1), y_strides=()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("spatial", "schedule"), [(2, HaloWgradSchedule(64, 2, 128)), (3, HaloWgradSchedule(128, 3, 192))]
)
def test_bands_of_gradients_of_weights(emulator: Emulator, spatial: int, schedule: HaloWgradSchedule) -> None:
    """Several parts and blocks, groups side by side and groups that fill blocks, windows over edges."""
    also: Any = {"variant": "backward_weight"}
    problems: tuple[ConvProblem, ...] = (
        flat(3, 64, 64, (5, 12), (3, 3), before=(1, 1), **also),
        flat(2, 72, 136, (7, 9), (2, 3), before=(0, 2), dilation=(2, 1), after=(2, 0), **also),
        flat(2, 128, 128, (6, 5), (3, 3), groups=32, before=(1, 1), **also),
        flat(1, 48, 96, (9,), (3,), groups=2, before=(1,), **also),
    )
    if spatial == 3:
        problems = (
            flat(1, 64, 128, (3, 4, 5), (3, 2, 3), before=(1, 0, 1), dilation=(1, 2, 1), after=(0, 2, 1), **also),
            flat(2, 32, 64, (3, 4, 5), (2, 3, 3), groups=4, before=(1, 1, 1), **also),
        )
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert proven(emulator, schedule, problems) == []


@pytest.mark.parametrize(
    "schedule",
    [
        tma_ws("backward_weight", 64, 64, grouping="pingpong", tile_scheduler="split_k"),
        tma_ws("backward_weight", 128, 128, store="tma"),
        tma_ws("backward_weight", 128, 192, tile_scheduler="stream_k", store="tma"),
        tma_ws("backward_weight", 128, 128, tile_scheduler="split_k", cluster=(2, 1), store="tma"),
    ],
)
@pytest.mark.parametrize("dtype_out", ["bf16", "fp32"])
def test_gradients_of_weights_leave_tap_by_tap(emulator: Emulator, schedule: Any, dtype_out: str) -> None:
    """Channels that end inside 64 columns, and gaps between taps, with nothing in between; others through a copy."""
    if dtype_out == "fp32":
        schedule = replace(schedule, store="direct")
    also: Any = {"variant": "backward_weight", "dtype_out": dtype_out}
    apart = flat(2, 64, 72, (6, 5), (3, 3), before=(1, 1), **also)
    gaps = (9 * 80, 3 * 80, 80, 1)
    problems = (
        flat(2, 72, 136, (7, 9), (2, 3), before=(0, 2), after=(2, 0), **also),
        flat(3, 24, 40, (11,), (4,), **also),
        flat(1, 200, 64, (5, 4), (1, 1), **also),
        apart.laid(w_strides=gaps),
        flat(1, 48, 96, (5, 6), (3, 3), groups=2, **also),
    )
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert proven(emulator, schedule, problems) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_groups_of_few_channels_are_merged(emulator: Emulator, variant: str) -> None:
    problems = (
        flat(1, 128, 128, (4, 5), (3, 3), groups=32, before=(1, 1), variant=variant),
        flat(1, 64, 128, (5, 4), (2, 3), groups=4, stride=(2, 2), before=(1, 1), variant=variant),
    )
    tile_scheduler = "split_k" if variant == "backward_weight" else "data_parallel"
    assert proven(emulator, tma_ws(variant, 128, 64, tile_scheduler=tile_scheduler, merged=True), problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variant", "n"), [("forward", 64), ("backward_data", 64), ("backward_data", 16), ("backward_weight", 64)]
)
def test_few_channels_are_folded(emulator: Emulator, variant: str, n: int) -> None:
    problems: tuple[ConvProblem, ...] = (
        flat(2, 3, 24, (9, 11), (7, 7), stride=(2, 2), before=(3, 3), variant=variant),
        flat(1, 1, 8, (5, 7), (3, 5), stride=(1, 2), dilation=(2, 1), before=(2, 1), after=(1, 3), variant=variant),
    )
    if variant == "backward_data":  # gaps along the width, more columns than a tile has, filters that are no whole 64s
        problems += (
            flat(2, 5, 16, (6, 10), (2, 7), dilation=(1, 2), before=(1, 4), after=(0, 5), variant=variant),
            flat(1, 3, 56, (9, 13), (7, 7), before=(3, 3), after=(3, 3), variant=variant),
            flat(1, 1, 96, (11, 8), (5, 5), stride=(2, 2), before=(2, 2), after=(2, 2), variant=variant),
        )
    tile_scheduler = "split_k" if variant == "backward_weight" else "data_parallel"
    store = "direct" if variant == "backward_data" else "tma"
    schedule = tma_ws(
        variant, 128, n, kind=WidthFoldedSchedule, pipeline="width_folded", tile_scheduler=tile_scheduler, store=store
    )
    assert proven(emulator, schedule, problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "schedule",
    [
        SmallChannelWgradSchedule(7, 2, 3),
        SmallChannelWgradSchedule(7, 4, 2),
        SmallChannelWgradSchedule(3, 2, 4),
        SmallChannelWgradSchedule(5, 3, 3),
    ],
)
def test_gradients_of_first_layers(emulator: Emulator, schedule: SmallChannelWgradSchedule) -> None:
    """Lines of one and of several phases, both widths of a pixel, windows over every edge, filters inside 64."""
    also: Any = {"variant": "backward_weight"}
    k = schedule.filter_rows
    problems: tuple[ConvProblem, ...] = (
        flat(2, 3, 24, (9, 37), (k, k), stride=(2, 2), before=(k // 2,) * 2, **also),
        flat(2, 3, 24, (9, 38), (k, k), stride=(2, 2), before=(k // 2,) * 2, after=(1, 4), **also),
        flat(1, 3, 8, (8, 26), (k, 3), stride=(1, 4), before=(1, 2), **also),
        flat(3, 1, 72, (11, 23), (k, 2), stride=(1, 4), before=(3, 1), after=(1, 3), **also),
        flat(1, 5, 8, (k + 6, 21), (k, 3), stride=(2, 2), before=(0, 1), **also),
        flat(1, 4, 64, (9, 15), (k, 3), dilation=(2, 1), before=(k, 1), after=(k, 0), **also),
        flat(1, 2, 16, (k + 1, 530), (k, 3), before=(1, 1), **also),
    )
    if schedule.lines * 2 >= k:
        problems += (flat(2, 3, 40, (7, 18), (k, k), before=(k // 2,) * 2, **also),)
    assert all(not CONV.supports(spec_of(one, schedule), one) for one in problems)
    assert proven(emulator, schedule, problems) == []


def test_gradients_of_first_layers_of_three_dimensions(emulator: Emulator) -> None:
    more: Any = {"variant": "backward_weight", "dtype_out": "fp32"}
    problems = (
        flat(2, 3, 24, (5, 9, 19), (3, 3, 3), stride=(2, 2, 2), before=(1, 1, 1), after=(1, 1, 1), **more),
        flat(1, 6, 72, (4, 5, 7), (2, 3, 3), dilation=(2, 1, 1), before=(1, 1, 0), **more),
    )
    assert proven(emulator, SmallChannelWgradSchedule(3, 2, 3), problems) == []


def first(one: ConvProblem, names: str = "xwy") -> ConvProblem:
    """With memory whose channels lie apart."""
    strides: Any = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in names}
    return one.laid(**strides)


def uneven(one: ConvProblem) -> ConvProblem:
    """With gaps between the rows of pixels, and of taps: a part of larger arrays, aligned as TMA asks."""
    strides: Any = {}
    for name in "xwy":
        images, rows, pixel, channel = getattr(one, f"{name}_strides")
        strides[f"{name}_strides"] = (2 * images, rows + 2 * pixel, pixel, channel)
    return one.laid(**strides)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("variant", VARIANTS)
def test_odd_channels_are_padded_and_channels_that_lie_apart_turned(emulator: Emulator, variant: str) -> None:
    problems = (
        flat(2, 21, 35, (5, 6), (3, 3), stride=(2, 1), before=(1, 1), variant=variant),
        flat(1, 24, 9, (4, 5), (3, 2), variant=variant),
        first(flat(2, 21, 72, (7, 11), (3, 2), before=(1, 1), variant=variant)),
        first(flat(3, 136, 64, (5, 6), (1, 3), variant=variant), "xw"),
        uneven(flat(2, 16, 24, (5, 6), (3, 2), before=(1, 1), variant=variant)),
        first(flat(1, 128, 64, (3, 5), (1, 1), groups=2, variant=variant), "y"),
    )
    tile_scheduler = "split_k" if variant == "backward_weight" else "data_parallel"
    store = "direct" if variant == "backward_data" else "tma"
    schedule = tma_ws(variant, 128, 64, pipeline="padded", tile_scheduler=tile_scheduler, store=store)
    spec = spec_of(problems[0], schedule)
    assert [CONV.supports(spec, one) for one in problems[:5]] == [[]] * 5
    assert proven(emulator, schedule, problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variant", "schedule"),
    [
        ("forward", DepthwiseSchedule(3, 1, 4)),
        ("forward", DepthwiseSchedule(3, 2, 4)),
        ("forward", DepthwiseSchedule(0, 1, 2)),
        ("backward_data", DepthwiseSchedule(3, 1, 7)),
        ("backward_data", DepthwiseSchedule(0, 1, 2)),
        ("backward_weight", DepthwiseSchedule(3, 1, 4)),
        ("backward_weight", DepthwiseSchedule(3, 2, 4)),
        ("forward", DepthwiseSchedule(3, 1, 7, 4, 4)),
        ("backward_data", DepthwiseSchedule(3, 1, 4, 7, 2)),
        ("backward_weight", DepthwiseSchedule(3, 1, 7, 4, 2)),
    ],
)
def test_depthwise(emulator: Emulator, variant: str, schedule: DepthwiseSchedule) -> None:
    problems = (
        flat(2, 24, 24, (6, 9), (3, 3), groups=24, before=(1, 1), variant=variant),
        flat(1, 40, 40, (7, 8), (3, 3), groups=40, stride=(2, 2), before=(1, 0), after=(0, 2), variant=variant),
        flat(1, 8, 8, (5, 11), (2, 5), groups=8, stride=(1, 3), dilation=(2, 2), before=(1, 4), variant=variant),
        flat(1, 136, 136, (9,), (3,), groups=136, before=(1,), variant=variant),
    )
    assert proven(emulator, schedule, problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variant", "schedule"),
    [
        ("forward", DepthwiseTileSchedule(3, 1, 7, 2)),
        ("forward", DepthwiseTileSchedule(3, 2, 4, 2, 32)),
        ("backward_data", DepthwiseTileSchedule(3, 1, 8, 1, 32)),
        ("backward_weight", DepthwiseTileSchedule(3, 1, 7, 2, 32)),
        ("backward_weight", DepthwiseTileSchedule(3, 2, 4, 2)),
        ("forward", DepthwiseTileSchedule(3, 1, 7, 2, 32, 2)),
        ("backward_data", DepthwiseTileSchedule(3, 1, 7, 2, 64, 2)),
        ("backward_weight", DepthwiseTileSchedule(3, 1, 7, 2, 32, 2)),
        ("backward_weight", DepthwiseTileSchedule(3, 2, 7, 1, 64, 2)),
    ],
)
def test_depthwise_over_tiles(emulator: Emulator, variant: str, schedule: DepthwiseTileSchedule) -> None:
    """Units over every edge, channels that end inside a tile, several tiles of a block."""
    also: Any = {"stride": (schedule.stride,) * 2, "dilation": (schedule.dilation,) * 2, "variant": variant}
    problems = (
        flat(3, 24, 24, (6, 9), (3, 3), groups=24, before=(1, 1), **also),
        flat(2, 72, 72, (11, 20), (3, 3), groups=72, before=(0, 2), after=(2, 1), **also),
        flat(1, 8, 8, (3, 3), (3, 3), groups=8, before=(2, 2), after=(0, 0), **also),
    )
    assert proven(emulator, schedule, problems) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("window", "stages"), [(4, 2), (5, 3), (7, 2)])
def test_depthwise_gradients_by_matrix_instructions(emulator: Emulator, window: int, stages: int) -> None:
    """Rows of one and of several 16s, odd numbers of them, channels that end inside a tile, windows over edges."""
    also: Any = {"variant": "backward_weight", "before": (window // 2,) * 2}
    problems = (
        flat(3, 24, 24, (9, 14), (window, window), groups=24, **also),
        flat(2, 72, 72, (14, 37), (window, window), groups=72, after=(2, 1), **also),
        flat(1, 40, 40, (8, 9), (window, window + 1), groups=40, **also),
        flat(1, 8, 8, (23, 21), (3, 8), groups=8, variant="backward_weight"),
    )
    assert all(not CONV.supports(spec_of(one, DepthwiseMmaSchedule(stages)), one) for one in problems)
    assert proven(emulator, DepthwiseMmaSchedule(stages), problems) == []


def test_depthwise_gradients_by_matrix_instructions_of_three_dimensions(emulator: Emulator) -> None:
    more: Any = {"variant": "backward_weight", "dtype": "fp16", "dtype_out": "fp32"}
    apart: Any = {"dilation": (2, 1, 1), "stride": (2, 1, 1), "before": (2, 2, 1)}
    problems = (
        flat(2, 8, 8, (4, 7, 6), (2, 4, 5), groups=8, before=(1, 1, 0), after=(0, 1, 2), **more),
        flat(1, 40, 40, (5, 5, 9), (3, 6, 3), groups=40, **apart, **more),
    )
    assert all(not CONV.supports(spec_of(one, DepthwiseMmaSchedule(2)), one) for one in problems)
    assert proven(emulator, DepthwiseMmaSchedule(2), problems) == []


@pytest.mark.parametrize(("window", "padding"), [(3, 1), (3, 0), (5, 2), (7, 3)])
def test_depthwise_gradients_over_strides(emulator: Emulator, window: int, padding: int) -> None:
    """Results of one stride are made together: odd sizes, odd and even padding, and more of it on one side."""
    more: Any = {"groups": 40, "stride": (2, 2), "variant": "backward_data"}
    square, around = (window, window), (padding, padding)
    problems = (
        flat(2, 40, 40, (11, 18), square, before=around, after=around, **more),
        flat(1, 40, 40, (10, 31), square, before=around, after=(padding + 1, padding), **more),
        flat(1, 40, 40, (9, 8), square, before=(padding, padding + 2), after=around, **more),
    )
    assert proven(emulator, DepthwiseTileSchedule(window, 2, 7, 1, 32 if window == 3 else 64), problems) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_depthwise_over_tiles_of_three_dimensions(emulator: Emulator, variant: str) -> None:
    problems = (
        flat(2, 8, 8, (4, 5, 6), (2, 3, 3), groups=8, before=(1, 1, 0), after=(0, 1, 2), variant=variant),
        flat(1, 40, 40, (5, 4, 9), (3, 3, 3), groups=40, dilation=(2, 1, 1), before=(2, 1, 1), variant=variant),
    )
    assert proven(emulator, DepthwiseTileSchedule(3, 1, 8, 2, 32), problems) == []


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("rows", [0, 4])
def test_depthwise_in_three_dimensions(emulator: Emulator, variant: str, rows: int) -> None:
    one = flat(1, 8, 8, (4, 5, 6), (2, 3, 3), groups=8, before=(1, 1, 0), after=(0, 1, 2), variant=variant)
    assert proven(emulator, DepthwiseSchedule(3, 1, 4, rows), (one,)) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "schedule",
    [
        tma_ws("forward", 256, 64, store="tma"),
        HaloSchedule((64, 64, 64), 2, 128, 9),
        DepthwiseSchedule(3, 1, 4),
        DepthwiseTileSchedule(3, 1, 7, 2),
    ],
)
def test_what_is_fused(emulator: Emulator, schedule: Any) -> None:
    groups = 64 if isinstance(schedule, (DepthwiseSchedule, DepthwiseTileSchedule)) else 1
    full = 0 if isinstance(schedule, HaloSchedule) else 1
    one = flat(2, 64, 64, (5, 6), (3, 3), before=(1, 1), groups=groups, epilogue="Silu", num_d=2, full_d=full)
    assert proven(emulator, schedule, (one,)) == []


@pytest.mark.parametrize(
    "schedule",
    [
        tma_ws("forward", 128, 64, store="tma"),
        HaloSchedule((64, 64, 64), 2, 128, 9),
        DepthwiseTileSchedule(3, 1, 7, 2),
    ],
)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_bias_and_positive_part(emulator: Emulator, schedule: Any, dtype: str) -> None:
    """Biases where sums begin, and the instruction that rounds."""
    groups = 64 if isinstance(schedule, DepthwiseTileSchedule) else 1
    also: Any = {"before": (1, 1), "groups": groups, "epilogue": "Relu", "num_d": 1, "dtype": dtype}
    assert proven(emulator, schedule, (flat(2, 64, 64, (5, 6), (3, 3), **also),)) == []
