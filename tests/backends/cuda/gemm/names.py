"""What tests ask of the CUDA families of GEMM, under one roof."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tilewright.arch import Arch, all_archs
from tilewright.backends.cuda import split_k
from tilewright.backends.cuda.gemm import KERNELS
from tilewright.backends.cuda.gemm.multistage import FAMILY as MULTISTAGE
from tilewright.backends.cuda.gemm.multistage import MultistageSchedule
from tilewright.backends.cuda.gemm.multistage.proposals import WIDE
from tilewright.backends.cuda.gemm.multistage.shape import multistage
from tilewright.backends.cuda.gemm.skinny import SkinnySchedule, skinny
from tilewright.backends.cuda.gemm.tma_ws import TmaWsSchedule
from tilewright.backends.cuda.gemm.tma_ws.proposals import WAYS, tma_ws
from tilewright.backends.cuda.gemm.tma_ws.shape import most_stages, shared_bytes
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.spec import GemmSignature

__all__ = [
    "PIPELINES",
    "WAYS",
    "WIDE",
    "GpuLoopsSchedule",
    "MultistageSchedule",
    "NvidiaSchedule",
    "SkinnySchedule",
    "TmaWsSchedule",
    "fallback_schedule",
    "most_stages",
    "multistage",
    "multistage_tests",
    "parts_of_tf32",
    "schedules",
    "shared_bytes",
    "skinny",
    "tma_ws",
]

NvidiaSchedule: TypeAlias = TmaWsSchedule | MultistageSchedule | SkinnySchedule | GpuLoopsSchedule
PIPELINES = tuple(family.name for family in KERNELS.own)
fallback_schedule = KERNELS.fallback_schedule


def schedules(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[NvidiaSchedule]:
    return KERNELS.schedules(pool, signature, arch)


def multistage_tests(signature: GemmSignature, arch: Arch) -> list[MultistageSchedule]:
    """One of everything the headers of multistage can do."""
    return list(MULTISTAGE.proposals("tests", signature, arch))


def parts_of_tf32(spec: KernelSpec, tiles: int, steps: int, held: int) -> int:
    """Parts of k that the host deals out where a multiprocessor holds so many blocks: those that take least time."""
    (m, n, k), c, units = spec.schedule.tile, split_k.constants(spec.arch), all_archs()[spec.arch].compute_units
    step = max(m * n * k / c.wide_macs, (m + n) * k * 4 / c.wide_bytes)

    def taken(parts: int) -> float:
        high = -(-tiles * parts // units)
        walked = -(-steps // parts) * step * (high if high > 1 else 1.5)
        return float(walked + (c.sync + tiles * parts * m * n * 8 / c.sums if parts > 1 else 0.0))

    possible = [parts for parts in range(2, 17) if tiles * parts <= units * held and parts * 4 <= steps]
    best = min((1, *possible), key=taken)
    return -(-steps // -(-steps // best))
