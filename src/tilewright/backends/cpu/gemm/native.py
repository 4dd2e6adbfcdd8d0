"""GEMM on the CPU as the selection library takes it (`include/tilewright/select/cpu_gemm*.h`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.arch import Arch
from tilewright.backends.cpu.gemm import estimate as gemm_estimate
from tilewright.backends.cpu.gemm.schedules import (
    CpuDirectSchedule,
    CpuLoopsSchedule,
    CpuPackedSchedule,
    CpuStreamSchedule,
)
from tilewright.backends.native import Described
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.numbers import PROBLEM, problem_numbers
from tilewright.ops.gemm.problem import GemmProblem

RATES = (
    "cycles_per_second", "call", "wake", "memory", "pack_a", "pack_a_far", "turn_a", "pack_b_near", "pack_b_far",
    "turn_b", "fold", "fold_turned", "ways", "smallest_share",
)  # fmt: skip


class CpuGemmNative:
    set_name = "cpu_gemm"
    problem_names = PROBLEM
    undecided = False

    def problem(self, problem: GemmProblem) -> Sequence[int]:
        return problem_numbers(problem)

    def schedule(self, spec: KernelSpec) -> Described | None:
        h = spec.schedule
        if isinstance(h, CpuPackedSchedule):
            rows, columns, step = h.warp_tile
            edges = dict(zip(("edge_m", "edge_n", "edge_k"), map(int, h.pad), strict=True))
            block = {"tile_n": h.tile[1], "tile_k": h.tile[2], "rows": rows, "columns": columns, "step": step}
            return Described("packed", {**block, **edges, "split_k": h.split_k, "b_packed": h.pipeline == "preshuffle"})
        if isinstance(h, CpuDirectSchedule):
            return Described("direct", dict(zip(("rows", "columns", "step"), h.warp_tile, strict=True)))
        if isinstance(h, CpuStreamSchedule):
            fields = {"most": h.tile[0], "step": h.warp_tile[2], "gemv": h.pipeline == "gemv"}
            return Described("stream", fields)
        return Described("loops", {"none": 0}) if isinstance(h, CpuLoopsSchedule) else None

    def arch(self, arch: Arch) -> Mapping[str, int]:
        return {"vector_bytes": arch.vector_bytes}

    def rates(self, arch: Arch) -> Mapping[str, float]:
        return {name: float(getattr(gemm_estimate, name.upper())) for name in RATES}


NATIVE = CpuGemmNative()
