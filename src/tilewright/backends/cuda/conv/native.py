"""Convolutions on NVIDIA GPUs as the selection library takes them (`include/tilewright/select/cuda_conv*.h`).

Gradients of weights by bands and first layers are Python's, and so is what kernels in copies, folded, depthwise and
pointwise multistage ones cost: the library refuses what these plainly do not take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arch import Arch
from tilewright.backends.cuda.conv import estimate, estimate_gather, estimate_pointwise
from tilewright.backends.cuda.conv.copies import fills_up, needs
from tilewright.backends.cuda.conv.gather_schedules import GatherSchedule, along_k, together
from tilewright.backends.cuda.conv.pointwise import SCHEDULES as POINTWISE
from tilewright.backends.cuda.conv.pointwise import twin
from tilewright.backends.cuda.conv.resources import IN_COPIES
from tilewright.backends.cuda.conv.schedules import (
    BandSchedule,
    ConvTmaWsSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
)
from tilewright.backends.cuda.gemm.native import DEALING
from tilewright.backends.cuda.gemm.native import NATIVE as GEMM
from tilewright.backends.native import Described
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.numbers import PROBLEM, problem_numbers
from tilewright.ops.conv.problem import ConvProblem

_TILE = ("tile_m", "tile_n", "tile_k")
_OWN = (
    "units", "start", "band_fill", "add_start", "short_row", "band_macs", "one_cache", "band_tile", "diagonal",
    "band_row", "few_taps", "few_taps_of_three", "through",
)  # fmt: skip
_GATHER = ("start", "fill", "macs_1", "macs_2", "macs_4", "issued", "fetched", "setup", "meet", "memory")


def _pointwise(spec: KernelSpec) -> Described:
    """As the GEMM kernel that it is."""
    described = GEMM.schedule(twin(spec.signature, spec.schedule, spec.arch))
    if described is None or described.family not in ("tma_ws", "skinny"):
        return Described("pointwise_multistage", {"none": 0})
    return Described(f"pointwise::{described.family}", {**described.fields, "planes": spec.schedule.planes})


class CudaConvNative:
    set_name = "cuda_conv"
    problem_names = PROBLEM
    undecided = True

    def problem(self, problem: ConvProblem) -> Sequence[int]:
        return problem_numbers(problem)

    def schedule(self, spec: KernelSpec) -> Described | None:
        h = spec.schedule
        if h.pipeline in IN_COPIES:
            return Described("copies", {"fills_up": fills_up(h.pipeline), **needs(h)._asdict()})
        if isinstance(h, ConvTmaWsSchedule) and h.pipeline == "folded":
            return Described("folded", {"none": 0})
        if isinstance(h, ConvTmaWsSchedule):
            more = {
                "cluster_m": h.cluster[0], "cluster_n": h.cluster[1], "pingpong": h.grouping == "pingpong",
                "dealing": DEALING[h.dealing], "tma_store": h.store == "tma", "merged": h.merged,
            }  # fmt: skip
            return Described("tma_ws", dict(zip(_TILE, h.tile, strict=True)) | more)
        if isinstance(h, BandSchedule):
            more = {name: int(getattr(h, name)) for name in ("stages", "band", "taps", "slice", "sharing", "merged")}
            return Described("band", dict(zip(_TILE, h.tile, strict=True)) | more)
        if isinstance(h, GatherSchedule):
            along = along_k(spec.signature.variant, h.pipeline)
            more = {
                "vector_a": h.vectors[0], "vector_b": h.vectors[1], "along_a": along[0], "along_b": along[1],
                "together": together(spec.signature, h),
            }  # fmt: skip
            return Described("gather", dict(zip(_TILE, h.tile, strict=True)) | more)
        if isinstance(h, DepthwiseTileSchedule | DepthwiseSchedule):
            return Described("depthwise", {"none": 0})
        return _pointwise(spec) if isinstance(h, POINTWISE) else None

    def arch(self, arch: Arch) -> Mapping[str, int]:
        return {**GEMM.arch(arch), "wgmma": "wgmma" in arch.features}

    def rates(self, arch: Arch) -> Mapping[str, float]:
        own, gather = estimate.constants(arch.name), estimate_gather.constants(arch.name)
        pointwise = estimate_pointwise.constants(arch.name)
        pixels = {
            f"conv_{name}_{dims}": each
            for name in ("pixel", "band_pixel")
            for dims, each in enumerate(getattr(own, name), start=1)
        }
        return {
            **GEMM.rates(arch), **pixels, **{f"conv_{name}": float(getattr(own, name)) for name in _OWN},
            **{f"conv_pointwise_{name}": each for name, each in pointwise._asdict().items()},
            **{f"gather_{name}": float(getattr(gather, name)) for name in _GATHER},
        }  # fmt: skip


NATIVE = CudaConvNative()
