"""Convolutions on NVIDIA GPUs: what is proposed is legal, and what copies are made of a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.backends.cuda.conv import KERNELS, copies
from tilewright.backends.cuda.conv.depthwise import DepthwiseSchedule
from tilewright.backends.cuda.conv.depthwise_tile import DepthwiseTileSchedule
from tilewright.backends.cuda.conv.gather import GatherSchedule
from tilewright.backends.cuda.conv.halo import HaloSchedule
from tilewright.backends.cuda.conv.pointwise_tma_ws import PointwiseTmaWsSchedule
from tilewright.backends.cuda.conv.tma_ws import ConvTmaWsSchedule
from tilewright.backends.cuda.conv.width_folded import WidthFoldedSchedule
from tilewright.dispatch.registry import Registry
from tilewright.ops import KernelSpec, op
from tilewright.ops.base import Violation
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first

CONV = op("conv")
ARCH = "sm_90a"
VARIANTS = ("forward", "backward_data", "backward_weight")
IN_COPIES = {pipeline for family in KERNELS.own for pipeline in family.copies}


def limits(schedule: Any, problem: ConvProblem) -> list[Violation]:
    return CONV.supports(KernelSpec("conv", problem.signature, schedule, ARCH), problem)


def padded(problem: ConvProblem, schedule: Any) -> ConvProblem:
    return copies.padded(problem, KERNELS.family_of(schedule).needs(schedule))


def padded_copies(problem: ConvProblem, schedule: Any) -> str:
    return copies.padded_copies(problem, KERNELS.family_of(schedule).needs(schedule))


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_proposal_is_legal_and_has_a_name_of_its_own(variant: str, dtype: str, spatial: int) -> None:
    if dtype == "int8" and variant != "forward":
        return
    made = list(CONV.proposals("default", ARCH, variants=[variant], datatypes=[dtype], spatial=[spatial]))
    assert [(one.name, CONV.check(one)) for one in made if CONV.check(one)] == []
    assert len({one.name for one in made}) == len(made)
    assert ("tma_ws" in {one.schedule.pipeline for one in made}) == (dtype != "fp32")


def test_a_padded_problem_copies_what_is_odd() -> None:
    one = ConvProblem(2, 21, 64, (8, 8), (3, 3), dtype="bf16")
    plain = ConvTmaWsSchedule("padded", (128, 64, 64), 4)
    merged = replace(plain, merged=True)
    assert (padded_copies(one, plain), padded(one, plain).channels) == ("xw", 24)
    assert padded_copies(replace(one, channels=24, x_strides=(), w_strides=()), plain) == ""
    assert padded_copies(replace(one, channels=24, x_strides=(), w_strides=(), aligned=False), plain) == "xwy"
    few = ConvProblem(2, 128, 128, (8, 8), (3, 3), 32, dtype="bf16")  # of merged groups, w is copied where it has to be
    assert (padded_copies(few, merged), padded_copies(replace(few, aligned=False), merged)) == ("", "xwy")
    apart = few.laid(**{f"{name}_strides": channels_first(getattr(few, f"{name}_shape")) for name in "xy"})
    assert (padded_copies(apart, merged), padded_copies(apart, plain)) == ("xy", "xwy")
    first = apart.laid(w_strides=channels_first(few.w_shape))
    assert copies.padded_elements(first, copies.Needs(any_filters=True))["w"] == 128 * 9 * 8


def test_groups_of_one_channel_are_filled_up_to_whole_8s() -> None:
    schedule = DepthwiseTileSchedule(3, 1, 7, 2, pipeline="padded_depthwise_tile")
    one = ConvProblem(2, 20, 20, (8, 8), (3, 3), 20, dtype="bf16")
    made = padded(one, schedule)
    assert (made.groups, made.channels, made.filters) == (24, 24, 24)
    assert (padded_copies(one, schedule), list(limits(schedule, replace(one, aligned=False)))) == ("xwy", [])
    whole = replace(one, groups=24, channels=24, filters=24, x_strides=(), w_strides=(), y_strides=())
    assert [broken.rule for broken in limits(schedule, whole)] == ["nv-padded"]  # nothing to copy
    odd = replace(one, groups=21, channels=21, filters=21, x_strides=(), w_strides=(), y_strides=())
    chosen = [Registry(ARCH).select(each).spec.schedule.pipeline for each in (odd, one, whole)]
    assert chosen == ["depthwise", "depthwise", "depthwise_tile"]
    # A thread a channel is faster than copies (26 us beside 30 on an H200), not so of gradients of weights (32, 23).
    weights = ConvProblem(32, 77, 77, (30, 34), (3, 3), 77, before=(1, 1), variant="backward_weight", dtype="bf16")
    assert Registry(ARCH).select(weights).spec.schedule.pipeline == "padded_depthwise_tile"


def test_few_channels_are_folded_from_wherever_they_lie() -> None:
    schedule = WidthFoldedSchedule("padded_width_folded", (128, 64, 64), 4, store="tma")
    one = ConvProblem(2, 3, 64, (30, 40), (7, 7), 1, (2, 2), before=(3, 3), dtype="bf16")
    first = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})
    assert (padded_copies(first, schedule), list(limits(schedule, first))) == ("y", [])
    apart = first.laid(y_strides=one.y_strides)  # nothing but its own copy of pixels
    assert list(limits(replace(schedule, pipeline="width_folded"), apart)) == []
    assert [broken.rule for broken in limits(schedule, apart)] == ["nv-padded"]


def test_bytes_are_filled_up_to_whole_16s() -> None:
    one = ConvProblem(16, 200, 233, (28, 28), (3, 3), dtype="int8")  # small ones are gathered
    first = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"})
    for asked in (one, first):
        chosen = Registry(ARCH).select(asked)
        assert chosen.spec.schedule.pipeline == "padded"
        made = padded(asked, chosen.spec.schedule)
        assert (made.channels, made.filters) == (208, 240)


def test_which_copies_are_made_is_told() -> None:
    one = ConvProblem(8, 60, 60, (28, 28), (3, 3), 60, before=(1, 1), dtype="bf16")
    first = one.laid(**{f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xy"})
    said = str(Registry(ARCH).explain(first))
    copies = "copies x (transposed to channels-last), w (aligned), y (transposed to channels-last, back): 1.6 MB"
    assert f"{copies}, channels from 60 to 64 and filters from 60 to 64; depthwise_tile runs on them" in said


def test_groups_begin_at_whole_16_bytes_of_channels() -> None:
    """Backward-weight of 200 groups of one channel ended an H200's run with an illegal instruction."""
    schedule = ConvTmaWsSchedule("tma_ws", (64, 64, 64), 4, grouping="pingpong", tile_scheduler="split_k")
    one = ConvProblem(102, 200, 200, (134, 54), (3, 3), 200, (2, 2), (2, 2), dtype="bf16", variant="backward_weight")
    assert "nv-groups" in [broken.rule for broken in limits(schedule, one)]
    assert (
        list(limits(schedule, ConvProblem(2, 64, 64, (9, 9), (3, 3), 8, dtype="bf16", variant="backward_weight"))) == []
    )


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        (HaloSchedule((128, 64, 64), 2, 320, 9), "nv-halo"),
        (DepthwiseSchedule(3, 1, 4), "nv-groups"),
        (WidthFoldedSchedule("width_folded", (128, 64, 64), 4), "nv-width-folded"),
        (ConvTmaWsSchedule("tma_ws", (128, 64, 64), 4, store="tma"), "nv-walk"),
    ],
)
def test_what_a_kernel_was_not_made_for_is_said(schedule: object, rule: str) -> None:
    variant = "backward_data" if rule in ("nv-walk", "nv-width-folded", "nv-halo") else "forward"
    one = ConvProblem(1, 64, 64, (9, 9), (3, 3), stride=(2, 2), dtype="bf16", variant=variant)
    assert not CONV.check(KernelSpec("conv", one.signature, schedule, ARCH))
    assert rule in [broken.rule for broken in limits(schedule, one)]


@pytest.mark.parametrize(
    ("channels", "filters", "groups"),
    [(64, 64, 1), (21, 64, 1), (64, 64, 8), (128, 64, 2), (128, 128, 32), (192, 384, 16), (128, 128, 128)],
)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_channels_that_lie_apart_are_turned_by_the_kernel_itself(
    variant: str, dtype: str, channels: int, filters: int, groups: int
) -> None:
    """Not by the floor, which would take a hundred times as long (1344 us for 92 of groups of 4 channels)."""
    one = ConvProblem(8, channels, filters, (28, 28), (3, 3), groups, before=(1, 1), variant=variant, dtype=dtype)
    strides = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"}
    chosen = Registry(ARCH).select(one.laid(**strides))
    assert chosen.spec.schedule.pipeline in IN_COPIES
    assert chosen.tier == Registry(ARCH).select(one).tier


def test_a_residual_whose_channels_lie_apart_is_copied() -> None:
    one = ConvProblem(8, 64, 64, (28, 28), (1, 1), dtype="bf16", epilogue="MultiDAdd", num_d=1, full_d=1)
    first = one.laid(y_strides=channels_first(one.y_shape))
    schedule = ConvTmaWsSchedule("padded", (128, 64, 64), 4, store="tma")
    assert list(limits(schedule, first)) == []
    assert Registry(ARCH).select(first).spec.schedule.pipeline in IN_COPIES


def pointwise(variant: str, batch: int, groups: int, *, first: bool = False, dtype: str = "bf16") -> ConvProblem:
    one = ConvProblem(batch, 24, 40, (5, 8), (1, 1), groups, variant=variant, dtype=dtype)
    strides = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"}
    return one.laid(**strides) if first else one


@pytest.mark.parametrize("target", ["sm_80", ARCH])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "int8"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_gemm_serves_windows_of_one_pixel(variant: str, dtype: str, target: str) -> None:
    """In every type, groups or not, and in channels-first memory as it lies, where there is one product an image."""
    if dtype == "int8" and variant != "forward":
        return
    # Others may be faster: walks, and of few pixels what is gathered.
    others = ("gather", *(("tma_ws",) if target == ARCH and dtype in ("bf16", "fp16") else ()))
    for groups in (1, 2):
        asked = pointwise(variant, 3, groups, dtype=dtype)
        chosen = Registry(target).select(asked).spec.schedule
        assert chosen.pipeline.startswith(("pointwise_", *others)), chosen
        serving = [one for one in Registry(target).candidates(asked) if not CONV.supports(one, asked)]
        assert any(one.schedule.pipeline.startswith("pointwise_") for one in serving)
    images = 1 if variant == "backward_weight" else 3
    first = Registry(target).select(pointwise(variant, images, 1, first=True, dtype=dtype))
    # With its own rates sm_80 gathers the gradients of weights.
    fitting = ("planes_", "gather_planes") if (target, variant) == ("sm_80", "backward_weight") else ("planes_",)
    assert first.spec.schedule.pipeline.startswith(fitting)
    assert first.tier == "heuristic"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"window": (3, 1)}, "nv-pointwise"),
        ({"stride": (2, 1)}, "nv-pointwise"),
        ({"before": (0, 1), "after": (0, 0)}, "nv-pointwise"),
        ({"x_strides": (1000, 192, 24, 1)}, "nv-dense"),
        ({"x_strides": (960, 1, 5, 40)}, "nv-channels-last"),
    ],
)
def test_what_is_no_product_is_refused(change: dict[str, tuple[int, ...]], rule: str) -> None:
    one = pointwise("forward", 3, 1)
    changed = replace(one, y_strides=(), w_strides=(), **change)  # type: ignore[arg-type]
    schedule = PointwiseTmaWsSchedule("pointwise_tma_ws", (128, 64, 64), 4)
    assert [broken.rule for broken in limits(schedule, changed)] == [rule]
    assert list(limits(schedule, one)) == []


@pytest.mark.parametrize("target", [ARCH, "sm_80"])
@pytest.mark.parametrize(
    ("channels", "filters", "groups"), [(64, 64, 1), (51, 77, 1), (3, 64, 1), (35, 21, 7), (32, 64, 4)]
)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["fp32", "int8", "bf16"])
def test_the_floor_is_for_what_nobody_else_takes(
    dtype: str, variant: str, channels: int, filters: int, groups: int, target: str
) -> None:
    """It takes 20 to 100 times as long."""
    if dtype == "int8" and variant != "forward":
        return
    for rank in (1, 2, 3):
        size, window = (20,) * rank, (3,) * rank
        one = ConvProblem(8, channels, filters, size, window, groups, before=(1,) * rank, variant=variant, dtype=dtype)
        strides = {f"{name}_strides": channels_first(getattr(one, f"{name}_shape")) for name in "xwy"}
        for asked in (one, one.laid(**strides)):
            assert Registry(target).select(asked).spec.schedule.pipeline != "loops"


@pytest.mark.parametrize("variant", VARIANTS)
def test_aligned_channels_are_not_gathered_on_hopper(variant: str) -> None:
    """TMA and wgmma are faster; and what the learned model says of its kernels is as it was."""
    for size, window in (((28, 28), (3, 3)), ((56, 56), (1, 1)), ((9, 16, 20), (3, 3, 3))):
        for batch in (1, 32):
            one = ConvProblem(batch, 128, 128, size, window, dtype="bf16", variant=variant)
            assert not Registry(ARCH).select(one).spec.schedule.pipeline.startswith("gather"), one.describe()


@pytest.mark.parametrize(
    "one",
    [
        ConvProblem(1, 8, 8, (64, 64), (1, 40), dtype="fp32"),
        ConvProblem(8, 64, 64, (30, 30), (3, 3), 64, dtype="int8"),  # gathered, a tile has one column of sixteen
    ],
)
def test_what_it_would_not_help_is_the_floor_s(one: ConvProblem) -> None:
    schedule = GatherSchedule("gather", (64, 64, 16), (2, 2, 1), 4)
    assert [v.rule for v in limits(schedule, one)] == ["nv-gather"]
    assert Registry(ARCH).select(one).spec.schedule.pipeline == "loops"


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        (GatherSchedule("gather", (64, 64, 32), (2, 2, 1), 2), "nv-stages"),
        (GatherSchedule("gather", (64, 64, 48), (2, 2, 1), 4), "nv-tile-k"),
        (GatherSchedule("gather", (64, 48, 32), (2, 2, 1), 4), "nv-warp-part"),
        (GatherSchedule("gather", (64, 64, 32), (2, 2, 2), 4), "nv-warps"),
        (GatherSchedule("gather", (64, 64, 32), (2, 2, 1), 4, (3, 8)), "nv-vector"),
        (GatherSchedule("gather", (128, 128, 32), (1, 2, 1), 4), "nv-registers"),
        (GatherSchedule("gather", (128, 128, 64), (2, 4, 1), 8, (8, 8)), "nv-shared-memory"),
        (GatherSchedule("gather_planes", (96, 64, 32), (2, 2, 1), 4, (1, 8)), "nv-pieces"),
    ],
)
def test_what_a_gather_kernel_cannot_be_is_said(schedule: GatherSchedule, rule: str) -> None:
    one = ConvProblem(1, 8, 8, (8, 8), (3, 3), dtype="bf16")
    assert rule in [broken.rule for broken in CONV.check(KernelSpec("conv", one.signature, schedule, ARCH))]


def test_a_rule_of_gemm_s_names_the_sizes_of_the_product() -> None:
    schedule = PointwiseTmaWsSchedule("pointwise_tma_ws", (128, 64, 64), 4, store="tma")
    one = pointwise("forward", 3, 2)
    (broken,) = limits(schedule, one)
    assert broken.rule == "nv-alignment"
    assert "{" not in str(broken)
    assert "20" in str(broken), "the filters of a group, which are the columns of the product"


@pytest.mark.parametrize("filters", [256, 512])
def test_gradients_of_joined_groups_with_few_channels_do_not_go_through_copies(filters: int) -> None:
    """Channels-first, 4 channels a group and more filters: on an H200 those kernels ended in an illegal instruction."""
    dense = ConvProblem(2, 128, filters, (65, 109), (3, 3), 32, before=(1, 1), variant="backward_data", dtype="bf16")
    problem = dense.laid(**{f"{name}_strides": channels_first(getattr(dense, f"{name}_shape")) for name in "xwy"})
    conv = op("conv")
    asked = [spec for spec in conv.candidates(conv.signature_of(problem), "sm_90a") if "padded_halo" in spec.name]
    merged = [spec for spec in asked if "merged" in spec.name]
    assert merged
    assert all("nv-groups" in {refusal.rule for refusal in conv.supports(spec, problem)} for spec in merged)
    assert "padded_halo" not in Registry("sm_90a").select(problem).stages[0].spec.name
