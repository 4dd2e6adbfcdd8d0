"""All the CUDA backend knows of convolution.

A pipeline is two headers of `cuda/` (`cuda/conv/conv.h` says what they have) and a function here that turns a schedule
into the constants of its Config.  Around most of them copies can be made (`cuda/conv/padded/host.h`): a pipeline each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.backends.cuda.arch_facts import arch_facts
from tilewright.backends.cuda.conv import estimate as conv_estimate
from tilewright.backends.cuda.conv import estimate_pointwise as conv_pointwise
from tilewright.backends.cuda.conv import space
from tilewright.backends.cuda.conv.copies import fills_up
from tilewright.backends.cuda.conv.gather_schedules import GatherSchedule, along_k
from tilewright.backends.cuda.conv.gather_schedules import shared_bytes as gather_shared_bytes
from tilewright.backends.cuda.conv.gather_schedules import sides as gather_sides
from tilewright.backends.cuda.conv.native import NATIVE
from tilewright.backends.cuda.conv.resources import IN_COPIES, shared_bytes
from tilewright.backends.cuda.conv.schedules import (
    BandSchedule,
    BandWeightSchedule,
    ConvTmaWsSchedule,
    DepthwiseMmaSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
    FirstWeightSchedule,
    band_shared_bytes,
)
from tilewright.backends.cuda.pipelines import COMPILE_MEMORY, Fields, Pipeline, flag
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem


def _tma_ws(spec: KernelSpec) -> Fields:
    h: ConvTmaWsSchedule = spec.schedule
    return {
        "tile_m": h.tile[0],
        "tile_n": h.tile[1],
        "stages": h.stages,
        "cluster_m": h.cluster[0],
        "cluster_n": h.cluster[1],
        "pingpong": flag(h.grouping == "pingpong"),
        "tma_store": flag(h.store == "tma"),
        "merged": flag(h.merged),
        "deal": f"tw::Deal::{h.dealing}",
    }


def _band(spec: KernelSpec) -> Fields:
    h: BandSchedule = spec.schedule
    twin = ConvTmaWsSchedule("tma_ws", h.tile, h.stages, grouping="pingpong", merged=h.merged)
    return {
        **_tma_ws(KernelSpec(spec.op, spec.signature, twin, spec.arch)),
        "deep": h.tile[2],
        "band": h.band,
        "taps": h.taps,
        "slice": h.slice,
        "sharing": h.sharing,
    }


def _band_weight(spec: KernelSpec) -> Fields:
    h: BandWeightSchedule = spec.schedule
    return {"pixels": h.pixels, "stages": h.stages, "band": h.band}


def _first_weight(spec: KernelSpec) -> Fields:
    h: FirstWeightSchedule = spec.schedule
    return {"window": h.window, "lines": h.lines, "stages": h.stages}


def _depthwise(spec: KernelSpec) -> Fields:
    h: DepthwiseSchedule = spec.schedule
    return {"window": h.window, "step": h.step, "pixels": h.pixels, "rows": h.rows, "vector": h.vector}


def _depthwise_mma(spec: KernelSpec) -> Fields:
    h: DepthwiseMmaSchedule = spec.schedule
    return {"stages": h.stages}


def _depthwise_tile(spec: KernelSpec) -> Fields:
    h: DepthwiseTileSchedule = spec.schedule
    names = ("window", "step", "spread", "pixels", "lines", "channels")
    return {name: getattr(h, name) for name in names}


def _gather(spec: KernelSpec) -> Fields:
    h: GatherSchedule = spec.schedule
    along_a, along_b = along_k(spec.signature.variant, h.pipeline)
    size = DTYPES[spec.signature.dtype].bytes
    return {
        "tile_m": h.tile[0],
        "tile_n": h.tile[1],
        "tile_k": h.tile[2],
        "warps_m": h.warp_grid[0],
        "warps_n": h.warp_grid[1],
        "unit_m": 16,
        "stages": h.stages,
        "along_a": flag(along_a),
        "along_b": flag(along_b),
        "vector_a": h.vectors[0] * size,
        "vector_b": h.vectors[1] * size,
    }


_TMA_WS = Pipeline(
    "conv/tma_ws/kernel.h", "conv/tma_ws/host.h", "TW_DEVICE_CONV_TMA_WS", "HostConvTmaWs", _tma_ws, ("_blocks",)
)
_GATHER = Pipeline("conv/gather/kernel.h", "conv/gather/host.h", "TW_DEVICE_CONV_GATHER", "HostConvGather", _gather)
PIPELINES = {
    "tma_ws": _TMA_WS,
    "band": _TMA_WS._replace(
        device_header="conv/band/kernel.h",
        host_header="conv/band/host.h",
        device="TW_DEVICE_CONV_BAND",
        host="HostConvBand",
        fields=_band,
    ),
    "band_weight": Pipeline(
        "conv/band_weight/kernel.h",
        "conv/band_weight/host.h",
        "TW_DEVICE_CONV_BAND_WEIGHT",
        "HostConvBandWeight",
        _band_weight,
        ("_add",),
    ),
    "first_weight": Pipeline(
        "conv/first_weight/kernel.h",
        "conv/first_weight/host.h",
        "TW_DEVICE_CONV_FIRST_WEIGHT",
        "HostConvFirstWeight",
        _first_weight,
        ("_add",),
    ),
    "folded": _TMA_WS._replace(
        device_header="conv/folded/kernel.h",
        host_header="conv/folded/host.h",
        device="TW_DEVICE_CONV_FOLDED",
        host="HostConvFolded",
        beside=("_pixels", "_weights"),
    ),
    "depthwise_tile": Pipeline(
        "conv/depthwise_tile/kernel.h",
        "conv/depthwise_tile/host.h",
        "TW_DEVICE_CONV_DEPTHWISE_TILE",
        "HostConvDepthwiseTile",
        _depthwise_tile,
        ("_add",),
    ),
    "depthwise_mma": Pipeline(
        "conv/depthwise_mma/kernel.h",
        "conv/depthwise_mma/host.h",
        "TW_DEVICE_CONV_DEPTHWISE_MMA",
        "HostConvDepthwiseMma",
        _depthwise_mma,
        ("_add",),
    ),
    "depthwise": Pipeline(
        "conv/depthwise/kernel.h",
        "conv/depthwise/host.h",
        "TW_DEVICE_CONV_DEPTHWISE",
        "HostConvDepthwise",
        _depthwise,
        ("_add",),
    ),
    "gather": _GATHER,
    "gather_planes": _GATHER,
    "loops": Pipeline(
        "conv/loops/kernel.h", "conv/loops/host.h", "TW_DEVICE_CONV_LOOPS", "HostConvLoops", lambda spec: {}
    ),
    **conv_pointwise.PIPELINES,
}


# Those in copies: what they have beside is what the pipeline in them has, and the copies.
PIPELINES |= {
    name: PIPELINES[inside]._replace(beside=(*PIPELINES[inside].beside, "_pad")) for name, inside in IN_COPIES.items()
}


class CudaConv(KernelsDefaults):
    space = space
    template = ("tilewright.backends.cuda", "templates/conv.cu.jinja")
    native = NATIVE

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        found, name = PIPELINES[spec.schedule.pipeline], spec.schedule.pipeline
        copies = "" if name not in IN_COPIES else flag(fills_up(name))
        return {**found._asdict(), "fields": found.fields(spec), "copies": copies, "arch": arch_facts(spec.arch)}

    def estimate(self, spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
        return conv_estimate.seconds(spec, problem)

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        h = spec.schedule
        if isinstance(h, BandSchedule):
            return Promises(nvidia.WARPGROUP, ("UTMALDG",), band_shared_bytes(spec.signature, h))
        if isinstance(h, BandWeightSchedule):
            return Promises(nvidia.WARPGROUP, ("UTMALDG",), h.shared_bytes)
        if h.pipeline in conv_pointwise.PIPELINES:
            return conv_pointwise.promises(spec)
        if isinstance(h, FirstWeightSchedule):
            return Promises(nvidia.WARPGROUP, ("UTMALDG",))
        if isinstance(h, DepthwiseMmaSchedule):
            return Promises(nvidia.WARP, ("UTMALDG",))
        if isinstance(h, DepthwiseTileSchedule):
            return Promises(copies=("UTMALDG",))
        if isinstance(h, ConvTmaWsSchedule):
            copies = ("UTMALDG", "UTMASTG") if h.store == "tma" else ("UTMALDG",)
            return Promises(
                nvidia.WARPGROUP, copies, shared_bytes(spec.signature, h, arch_by_name(spec.arch).scratch_bytes)
            )
        if isinstance(h, GatherSchedule):
            multiply = () if spec.signature.dtype == "fp32" else nvidia.WARP
            both = gather_sides(spec.signature, h)
            copied = ("LDGSTS",) if not all(one.held for one in both) else ()
            return Promises(multiply, copied, gather_shared_bytes(spec.signature, h))
        return Promises()

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return COMPILE_MEMORY


KERNELS = CudaConv()
