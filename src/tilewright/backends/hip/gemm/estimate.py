"""A guess at seconds, for choosing among kernels that were never measured on the device.

Three costs: the matrix units over whole rounds of blocks, the bytes that must come from memory, and
starting.  The peaks are the data sheets'; only the order of the answers matters.
"""

from __future__ import annotations

from typing import Any

from tilewright.arch import Arch, all_archs
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.ops.base import KernelSpec

CLOCK = 2.0e9
MACS_A_CLOCK = {4: 128, 2: 1024, 1: 2048}  # of one compute unit, by the bytes of an element
LOOPS_MACS_A_CLOCK = 16  # of what vector units could, most goes into feeding them
MEMORY = 3.0e12  # bytes a second
START = 4.0e-6
# What a pipeline reaches of the peak once it runs, and turns of the k loop before it does.
_SHARE = {"compv4": 0.70, "compv3": 0.62, "preshuffle": 0.62, "mem": 0.40, "compv5": 0.25}
_RAMP = {"compv4": 2.0, "compv3": 1.5, "preshuffle": 1.5, "mem": 1.0, "compv5": 1.0}


def _loops(arch: Arch, problem: Any) -> float:
    m, n, k = GpuLoopsSchedule.tile
    blocks = -(-problem.m // m) * -(-problem.n // n) * max(1, problem.batch)
    rounds = -(-blocks // (2 * max(1, arch.compute_units)))  # two blocks of a compute unit hide each other's waiting
    turns = -(-problem.k // k) + 1
    compute = rounds * turns * 2 * m * n * k / (LOOPS_MACS_A_CLOCK * CLOCK)
    return float(START + max(compute, problem.bytes / MEMORY))


def seconds(spec: KernelSpec, problem: Any) -> float:
    arch, h = all_archs()[spec.arch], spec.schedule
    if isinstance(h, GpuLoopsSchedule):
        return _loops(arch, problem)
    size = shape.bytes_of(problem.dtype_a)
    m, n, k = h.tile
    blocks = -(-problem.m // m) * -(-problem.n // n) * h.split_k * max(1, problem.batch)
    turns = shape.loops(h, problem.k) + _RAMP[h.pipeline]
    waves = shape.threads(h) // shape.WAVE
    # Four SIMDs share a compute unit's matrix units: fewer waves than that leave some idle.
    together = max(1, 4 // waves)
    rounds = -(-blocks // (arch.compute_units * together))
    # Small tiles are fed from LDS too often; narrow accesses feed it too slowly.
    reuse = min(1.0, (m * n / (m + n)) / 48)
    narrow = min(shape.width_a(spec.signature, h), shape.width_b(spec.signature, h)) * size / shape.NATIVE_BYTES
    peak = MACS_A_CLOCK[size] * CLOCK * min(1, waves / 4)
    speed = peak * _SHARE[h.pipeline] * max(0.1, reuse) * max(0.2, narrow)
    compute = rounds * turns * m * n * k / speed
    moved = problem.bytes + (2 * h.split_k * problem.m * problem.n * problem.batch * 4 if h.split_k > 1 else 0)
    return float(START * (2 if h.split_k > 1 else 1) + max(compute, moved / MEMORY))
