"""Convolutions of one pixel's window on CUDA: what GEMM's kernels are told, promise and take."""

from __future__ import annotations

from tilewright.backends.base import Promises
from tilewright.backends.cuda import gemm_estimate
from tilewright.backends.cuda.gemm import KERNELS as GEMM
from tilewright.backends.cuda.pipelines import Fields, Pipeline, flag
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.nvidia_pointwise import (
    PointwiseMultistageSchedule,
    PointwiseSkinnySchedule,
    PointwiseTmaWsSchedule,
    lying,
    product,
    twin,
)
from tilewright.ops.conv.problem import ConvProblem


def promises(spec: KernelSpec) -> Promises:
    return GEMM.promises(twin(spec.signature, spec.schedule, spec.arch))


def seconds(spec: KernelSpec, problem: ConvProblem, start: float, ahead: float) -> float:
    """As GEMM's estimate says, in the measure of the kernels beside it.

    `ahead` is what is left of a product's time where pixels are walked over: rows are never slower than walks, so
    they are not said to be.
    """
    counted = gemm_estimate.facts(
        twin(spec.signature, spec.schedule, spec.arch), product(problem, spec.schedule.planes)
    )
    whole = gemm_estimate.seconds_of(counted._replace(moved=float(problem.bytes)))
    return start + ahead * (whole - start)


def _layout(spec: KernelSpec) -> Fields:
    planes = spec.schedule.planes
    layout = lying(spec.signature.variant, planes).layout
    rows = {"a_rows": flag(layout[0] == "r"), "b_rows": flag(layout[1] == "r")}
    return {**rows, "packed": flag(False), "planes": flag(planes)}


def _tma_ws(spec: KernelSpec) -> Fields:
    h: PointwiseTmaWsSchedule = spec.schedule
    return {
        **_layout(spec),
        "pipeline": "tw::Pipeline::tma_ws",
        "tile_m": h.tile[0],
        "tile_n": h.tile[1],
        "stages": h.stages,
        "cluster_m": h.cluster[0],
        "cluster_n": h.cluster[1],
        "pingpong": flag(h.grouping == "pingpong"),
        "turned": flag(h.turned),
        "tma_store": flag(h.store == "tma"),
        "deal": f"tw::Deal::{h.dealing}",
    }


def _multistage(spec: KernelSpec) -> Fields:
    h: PointwiseMultistageSchedule = spec.schedule
    size = DTYPES[spec.signature.dtype].bytes
    return {
        **_layout(spec),
        "pipeline": "tw::Pipeline::multistage",
        "tile_m": h.tile[0],
        "tile_n": h.tile[1],
        "tile_k": h.tile[2],
        "warps_m": h.warp_grid[0],
        "warps_n": h.warp_grid[1],
        "unit_m": h.warp_tile[0],
        "stages": h.stages,
        "vector_a": h.vectors[0] * size,
        "vector_b": h.vectors[1] * size,
        "deal": f"tw::Deal::{h.dealing}",
    }


def _skinny(spec: KernelSpec) -> Fields:
    h: PointwiseSkinnySchedule = spec.schedule
    return {
        **_layout(spec),
        "pipeline": "tw::Pipeline::skinny",
        "tile_m": h.tile[0],
        "tile_n": h.tile[1],
        "warps": h.warp_grid[2],
        "few_columns": flag(h.few == "columns"),
    }


_TMA_WS = Pipeline(
    "conv_pointwise_tma_ws.h",
    "conv_host_pointwise.h",
    "TW_DEVICE_TMA_WS",
    "HostConvPointwise",
    _tma_ws,
    ("_repack",),
)
_SKINNY = Pipeline("conv_pointwise_skinny.h", "conv_host_pointwise.h", "TW_DEVICE_SKINNY", "HostConvPointwise", _skinny)
_MULTISTAGE = Pipeline(
    "conv_pointwise_multistage.h", "conv_host_pointwise.h", "TW_DEVICE_MULTISTAGE", "HostConvPointwise", _multistage
)
PIPELINES = {
    "pointwise_tma_ws": _TMA_WS,
    "pointwise_turned": _TMA_WS,
    "planes_tma_ws": _TMA_WS,
    "planes_turned": _TMA_WS,
    "pointwise_multistage": _MULTISTAGE,
    "planes_multistage": _MULTISTAGE,
    "pointwise_few_rows": _SKINNY,
    "pointwise_few_columns": _SKINNY,
}
