"""All that the CPU backend knows of regionstats."""

from __future__ import annotations

from pathlib import Path

from regionstats.problem import RegionstatsProblem
from regionstats.spec import CombineSchedule, LoopsSchedule, PartialSchedule
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, OpKernels, Promises
from tilewright.ops.base import KernelSpec


class Cpu(KernelsDefaults):
    template = ("regionstats", "templates/regionstats.cpp.jinja")

    def include_dirs(self) -> tuple[Path, ...]:
        return (Path(__file__).parent / "include",)

    def estimate(self, spec: KernelSpec, problem: RegionstatsProblem, threads: int) -> float:
        """Vectors walked by the busiest thread, nanoseconds each; a vector behind the last channel costs too."""
        h, width = spec.schedule, arch_by_name(spec.arch).vector_bytes // 4
        p, vectors = problem, -(-problem.channels // width)
        if isinstance(h, LoopsSchedule):
            return 1e-6 + 4e-9 * p.n * p.channels * (p.positions if p.stage == "partial" else p.chunks)
        if isinstance(h, CombineSchedule):
            tasks = -(-p.n // h.entries)
            entries = min(p.n, -(-tasks // max(1, threads)) * h.entries)
            return 1e-6 + 1e-9 * (20 * tasks + entries * vectors * (p.chunks + 4))
        assert isinstance(h, PartialSchedule)
        tasks = p.n * p.chunks
        walks = -(-vectors // h.vectors)
        each = p.positions / p.chunks * walks * (2 + h.vectors)
        return 1e-6 + 1e-9 * -(-tasks // max(1, threads)) * (each + 30)

    def promises(self, spec: KernelSpec) -> Promises:
        """Sums of whole vectors, where AVX gives them a name of their own."""
        plain = isinstance(spec.schedule, LoopsSchedule) or "fma" not in arch_by_name(spec.arch).features
        return Promises() if plain else Promises(("vaddps", "vfmadd"))


CPU: OpKernels = Cpu()
