"""What tests ask of the CPU's GEMM families, under one roof."""

from __future__ import annotations

from typing import TypeAlias

from tilewright.backends.cpu.gemm import FLOATS, KERNELS
from tilewright.backends.cpu.gemm.direct import CpuDirectSchedule
from tilewright.backends.cpu.gemm.loops import CpuLoopsSchedule
from tilewright.backends.cpu.gemm.packed import MAX_SPLIT_K, MAX_UNROLL, CpuPackedSchedule
from tilewright.backends.cpu.gemm.shared import dot_step
from tilewright.backends.cpu.gemm.stream import MOST_VECTORS, CpuStreamSchedule
from tilewright.ops.gemm.schedule import Shape

__all__ = [
    "FLOATS",
    "GEMV_MAX",
    "MAX_SPLIT_K",
    "MAX_UNROLL",
    "PIPELINES",
    "STREAMS",
    "STREAM_MAX",
    "CpuDirectSchedule",
    "CpuLoopsSchedule",
    "CpuPackedSchedule",
    "CpuSchedule",
    "CpuStreamSchedule",
    "dot_step",
    "grains",
]

CpuSchedule: TypeAlias = CpuPackedSchedule | CpuDirectSchedule | CpuStreamSchedule | CpuLoopsSchedule
PIPELINES = ("packed", "direct", "gemv", "stream", "preshuffle", "loops")
STREAMS = CpuStreamSchedule.pipelines  # that read one operand as a handful of vectors
GEMV_MAX, STREAM_MAX = MOST_VECTORS["gemv"], MOST_VECTORS["stream"]


def grains(schedule: CpuSchedule) -> Shape:
    """What sizes must be multiples of."""
    answer: Shape = KERNELS.family_of(schedule).grains(schedule)
    return answer
