"""GEMM on NVIDIA GPUs as the selection library takes it (`include/tilewright/select/cuda_gemm*.h`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arch import Arch
from tilewright.backends.cuda import split_k
from tilewright.backends.cuda.gemm import multistage
from tilewright.backends.cuda.gemm.estimate import constants
from tilewright.backends.cuda.gemm.schedules import MultistageSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.native import Described
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.numbers import PROBLEM, problem_numbers
from tilewright.ops.gemm.problem import GemmProblem

_TILE = ("tile_m", "tile_n", "tile_k")
DEALING = {"tiles": 0, "stream_k": 1, "split_k": 2, "cluster_k": 3}  # `Dealing` of cuda_gemm.h


def tma_ws_fields(h: TmaWsSchedule) -> dict[str, int]:
    along_m, along_n = h.cluster
    return dict(zip(_TILE, h.tile, strict=True)) | {
        "cluster_m": along_m, "cluster_n": along_n, "pingpong": h.grouping == "pingpong", "turned": h.turned,
        "dealing": DEALING[h.dealing], "tma_store": h.store == "tma",
    }  # fmt: skip


class CudaGemmNative:
    set_name = "cuda_gemm"
    problem_names = PROBLEM
    undecided = False

    def problem(self, problem: GemmProblem) -> Sequence[int]:
        return problem_numbers(problem)

    def schedule(self, spec: KernelSpec) -> Described | None:
        h = spec.schedule
        if isinstance(h, TmaWsSchedule):
            return Described("tma_ws", tma_ws_fields(h))
        if isinstance(h, MultistageSchedule):
            more = {
                "warps_m": h.warp_grid[0], "warps_n": h.warp_grid[1], "vector_a": h.vector[0], "vector_b": h.vector[1],
                "dealing": DEALING[h.dealing], "shared_bytes": multistage.shared_bytes(spec.signature, h),
            }  # fmt: skip
            return Described("multistage", dict(zip(_TILE, h.tile, strict=True)) | more)
        if isinstance(h, SkinnySchedule):
            few = {"warps": h.warp_grid[2], "few_columns": h.few == "columns"}
            return Described("skinny", {"tile_m": h.tile[0], "tile_n": h.tile[1], **few})
        if isinstance(h, GpuLoopsSchedule):
            return Described("loops", dict(zip(_TILE, h.tile, strict=True)))
        return None

    def arch(self, arch: Arch) -> Mapping[str, int]:
        return {"compute_units": max(1, arch.compute_units), "scratch_bytes": arch.scratch_bytes}

    def rates(self, arch: Arch) -> Mapping[str, float]:
        whole = constants(arch.name)._asdict()
        parts = {name: whole.pop(name)._asdict() for name in ("plain", "wide")}
        parts["parts"] = split_k.constants(arch.name)._asdict()
        return whole | {f"{part}_{name}": value for part, each in parts.items() for name, value in each.items()}


NATIVE = CudaGemmNative()
