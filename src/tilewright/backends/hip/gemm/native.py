"""GEMM on AMD GPUs as the selection library takes it (`include/tilewright/select/hip_gemm*.h`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arch import Arch
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.gemm import estimate
from tilewright.backends.hip.gemm.schedules import CkTileSchedule
from tilewright.backends.native import Described
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.numbers import PROBLEM, problem_numbers
from tilewright.ops.gemm.problem import GemmProblem

_TILE = ("tile_m", "tile_n", "tile_k")
_PIPELINES = ("compv3", "compv4", "compv5", "mem", "preshuffle")  # `Pipeline` of hip_gemm_ck_tile.h


class HipGemmNative:
    set_name = "hip_gemm"
    problem_names = PROBLEM
    undecided = False

    def problem(self, problem: GemmProblem) -> Sequence[int]:
        return problem_numbers(problem)

    def schedule(self, spec: KernelSpec) -> Described | None:
        h = spec.schedule
        tile = dict(zip(_TILE, h.tile, strict=True))
        if isinstance(h, CkTileSchedule):
            edges = dict(zip(("edge_m", "edge_n", "edge_k"), map(int, h.pad), strict=True))
            more = {
                "pipeline": _PIPELINES.index(h.pipeline), "warp_tile_n": h.warp_tile[1], "split_k": h.split_k,
                "threads": shape.threads(h), "width_a": shape.width_a(spec.signature, h),
                "width_b": shape.width_b(spec.signature, h),
            }  # fmt: skip
            return Described("ck_tile", {**tile, **edges, **more})
        return Described("loops", tile) if isinstance(h, GpuLoopsSchedule) else None

    def arch(self, arch: Arch) -> Mapping[str, int]:
        return {"compute_units": max(1, arch.compute_units)}

    def rates(self, arch: Arch) -> Mapping[str, float]:
        return {
            "clock": estimate.CLOCK, "loops_macs": estimate.LOOPS_MACS_A_CLOCK, "memory": estimate.MEMORY,
            "start": estimate.START, **{f"macs_{size}": each for size, each in estimate.MACS_A_CLOCK.items()},
            **{f"share_{name}": share for name, share in estimate._SHARE.items()},
            **{f"ramp_{name}": turns for name, turns in estimate._RAMP.items()},
        }  # fmt: skip


NATIVE = HipGemmNative()
