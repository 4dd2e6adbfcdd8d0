"""Convolutions compiled for an H200 without a GPU: one kernel of each pipeline, directions in turn.

The emulated GPU includes every header at once, so that only a compiler of NVIDIA's tells what one of them leaves out.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.built import Built
from tilewright.backends.base import backend
from tilewright.backends.cuda.conv import KERNELS
from tilewright.backends.cuda.conv.depthwise import DepthwiseSchedule
from tilewright.backends.cuda.conv.depthwise_mma import DepthwiseMmaSchedule
from tilewright.backends.cuda.conv.depthwise_tile import DepthwiseTileSchedule
from tilewright.backends.cuda.conv.gather import GatherSchedule
from tilewright.backends.cuda.conv.halo import HaloSchedule
from tilewright.backends.cuda.conv.halo_wgrad import HaloWgradSchedule
from tilewright.backends.cuda.conv.pointwise_multistage import PointwiseMultistageSchedule
from tilewright.backends.cuda.conv.pointwise_skinny import PointwiseSkinnySchedule
from tilewright.backends.cuda.conv.pointwise_tma_ws import PointwiseTmaWsSchedule
from tilewright.backends.cuda.conv.small_channel_wgrad import SmallChannelWgradSchedule
from tilewright.backends.cuda.conv.tma_ws import ConvTmaWsSchedule
from tilewright.backends.cuda.conv.width_folded import WidthFoldedSchedule
from tilewright.inspect import demand_promises
from tilewright.ops import KernelSpec, op
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.schedule import LoopsSchedule

pytestmark = pytest.mark.tools  # a CUDA compiler

CONV = op("conv")
TMA = ConvTmaWsSchedule("tma_ws", (128, 64, 64), 4)
CASES: dict[str, tuple[str, Any]] = {
    "tma_ws": ("backward_data", TMA),
    "padded": ("forward", ConvTmaWsSchedule("padded", (128, 64, 64), 4, store="tma")),
    "width_folded": ("forward", WidthFoldedSchedule("width_folded", (128, 64, 64), 4, store="tma")),
    "halo": ("backward_data", HaloSchedule((128, 64, 64), 3, 320, 9, merged=True)),
    "halo_wgrad": ("backward_weight", HaloWgradSchedule(192, 3, 320)),
    "small_channel_wgrad": ("backward_weight", SmallChannelWgradSchedule(7, 4, 3)),
    "depthwise_mma": ("backward_weight", DepthwiseMmaSchedule(2)),
    "depthwise_tile": ("backward_weight", DepthwiseTileSchedule(3, 2, 8, 2, 32)),
    "depthwise": ("forward", DepthwiseSchedule(3, 1, 7)),
    "padded_width_folded": ("backward_data", WidthFoldedSchedule("padded_width_folded", (128, 16, 64), 4)),
    "padded_halo": ("forward", HaloSchedule((128, 64, 64), 3, 320, 9, pipeline="padded_halo")),
    "padded_halo_wgrad": ("backward_weight", HaloWgradSchedule(192, 3, 320, pipeline="padded_halo_wgrad")),
    "padded_depthwise_tile": ("forward", DepthwiseTileSchedule(3, 1, 7, 2, pipeline="padded_depthwise_tile")),
    "padded_depthwise": ("backward_weight", DepthwiseSchedule(3, 1, 4, pipeline="padded_depthwise")),
    "gather": ("backward_data", GatherSchedule("gather", (64, 64, 32), (2, 2, 1), 4, (1, 8))),
    "gather_planes": ("backward_weight", GatherSchedule("gather_planes", (64, 64, 32), (2, 2, 1), 4)),
    "loops": ("backward_weight", LoopsSchedule()),
    "pointwise_tma_ws": ("forward", PointwiseTmaWsSchedule("pointwise_tma_ws", (128, 64, 64), 4, store="tma")),
    "pointwise_swap_ab": (
        "backward_data",
        PointwiseTmaWsSchedule("pointwise_swap_ab", (32, 64, 64), 8, grouping="pingpong", tile_scheduler="split_k"),
    ),
    "pointwise_multistage": (
        "backward_weight",
        PointwiseMultistageSchedule("pointwise_multistage", (64, 64, 64), (16, 8, 16), (2, 2, 1), 4, (8, 8), "split_k"),
    ),
    "planes_tma_ws": ("backward_data", PointwiseTmaWsSchedule("planes_tma_ws", (128, 64, 64), 4, store="tma")),
    "planes_swap_ab": (
        "forward",
        PointwiseTmaWsSchedule("planes_swap_ab", (32, 64, 64), 8, grouping="pingpong", tile_scheduler="split_k"),
    ),
    "planes_multistage": (
        "backward_data",
        PointwiseMultistageSchedule("planes_multistage", (64, 64, 64), (16, 8, 16), (2, 2, 1), 4, (1, 1)),
    ),
    "pointwise_skinny_m": ("forward", PointwiseSkinnySchedule("pointwise_skinny_m", (16, 32, 512))),
    "pointwise_skinny_n": ("backward_data", PointwiseSkinnySchedule("pointwise_skinny_n", (16, 8, 512))),
}


def spec_of(name: str) -> KernelSpec:
    variant, schedule = CASES[name]
    one = ConvProblem(1, 64, 64, (8, 8), (3, 3), variant=variant, dtype="bf16")
    return KernelSpec("conv", one.signature, schedule, "sm_90a")


def test_every_pipeline_is_among_them() -> None:
    assert set(CASES) == {pipeline for kind in KERNELS.SCHEDULES for pipeline in kind.pipelines}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_it_compiles_to_what_is_promised(built: Built, name: str) -> None:
    spec = spec_of(name)
    assert CONV.check(spec) == []
    found = demand_promises(backend("cuda").inspect(built.artifact(spec).path, spec))
    assert found.keeps_promises is not False
