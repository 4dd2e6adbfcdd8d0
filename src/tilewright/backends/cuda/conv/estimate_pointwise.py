"""Convolutions of one pixel's window on CUDA: what GEMM's kernels are told, promise and take."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilewright.arch import fitted
from tilewright.arch.rates import Cycles, Launch
from tilewright.backends.base import Promises
from tilewright.backends.cuda.conv.pointwise import (
    PointwiseMultistageSchedule,
    PointwiseSkinnySchedule,
    PointwiseTmaWsSchedule,
    lying,
    product,
    twin,
)
from tilewright.backends.cuda.gemm import KERNELS as GEMM
from tilewright.backends.cuda.gemm import estimate as gemm_estimate
from tilewright.backends.cuda.pipelines import Fields, Pipeline, flag
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.gemm.problem import GemmProblem


def promises(spec: KernelSpec) -> Promises:
    return GEMM.promises(twin(spec.signature, spec.schedule, spec.arch))


BESIDE = 0.1  # how much is felt of what is hidden behind the longer of rows and product


class Constants(NamedTuple):
    """Seconds of the copy engine: `conv_pointwise` of the fits in the arch table."""

    row: Cycles  # of 128 bytes
    short_row: Cycles  # one that ends before
    first_rows: Launch  # until they are there


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("conv_pointwise", Constants, arch)


def seconds(spec: KernelSpec, problem: ConvProblem, start: float, ahead: float) -> float:
    """As GEMM's estimate says, in the measure of the kernels beside it, or the rows that have to come.

    `ahead` is what is left of a product's time in that measure.
    """
    asked, one = product(problem, spec.schedule.planes), twin(spec.signature, spec.schedule, spec.arch)
    counted = gemm_estimate.facts(one, asked)
    of_gemm = gemm_estimate.constants(spec.arch)
    whole = start + ahead * (gemm_estimate.seconds_of(counted._replace(moved=float(problem.bytes)), of_gemm) - start)
    if not isinstance(counted, gemm_estimate.TmaFacts):
        return whole
    c = constants(spec.arch)
    rows = start + c.first_rows + counted.steps * _rows(c, spec.schedule, asked)
    return max(whole, rows) + BESIDE * (min(whole, rows) - start)


def _rows(c: Constants, schedule: PointwiseTmaWsSchedule, asked: GemmProblem) -> float:
    """Seconds of the rows that a block asks for in a step, on average: k or lines that are no whole 64s end early."""
    shared = schedule.cluster if schedule.dealing != "cluster_k" else (1, 1)
    found, deep = 0.0, schedule.tile[2]
    for along_k, tile, lines, parts in (
        (asked.layout[0] == "r", schedule.tile[0], asked.m, shared[1]),
        (asked.layout[1] == "c", schedule.tile[1], asked.n, shared[0]),
    ):
        if along_k:
            rows, short = tile, tile * (asked.k % deep > 0) / -(-asked.k // deep)
        else:
            rows, short = 64 * -(-min(tile, lines) // 64), 64 * (lines % 64 > 0) / -(-lines // tile)
        found += (rows * c.row + short * c.short_row) / parts
    return found


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
    "conv/pointwise/tma_ws.h",
    "conv/pointwise/host.h",
    "TW_DEVICE_TMA_WS",
    "HostConvPointwise",
    _tma_ws,
    ("_repack",),
)
_SKINNY = Pipeline("conv/pointwise/skinny.h", "conv/pointwise/host.h", "TW_DEVICE_SKINNY", "HostConvPointwise", _skinny)
_MULTISTAGE = Pipeline(
    "conv/pointwise/multistage.h", "conv/pointwise/host.h", "TW_DEVICE_MULTISTAGE", "HostConvPointwise", _multistage
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
