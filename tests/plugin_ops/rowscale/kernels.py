"""All that each backend knows of rowscale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rowscale.op import lanes
from rowscale.spec import BlockSchedule, LoopsSchedule, RowscaleProblem, VectorSchedule
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, OpKernels, Promises
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec

HERE = Path(__file__).parent


class _Kernels(KernelsDefaults):
    def include_dirs(self) -> tuple[Path, ...]:
        return (HERE / "include",)


class Cpu(_Kernels):
    template = ("rowscale", "templates/rowscale.cpp.jinja")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        h = spec.schedule if isinstance(spec.schedule, VectorSchedule) else VectorSchedule(unroll=0, rows=16)
        return {"unroll": h.unroll, "rows": h.rows, "edge": h.edge}

    def estimate(self, spec: KernelSpec, problem: RowscaleProblem, threads: int) -> float:
        """Turns of the loop, what is left over of each row, and the tasks of the busiest thread."""
        rows = problem.rows
        if isinstance(spec.schedule, LoopsSchedule):
            return 1e-6 + 5e-9 * rows * problem.columns
        h: VectorSchedule = spec.schedule
        width = lanes(arch_by_name(spec.arch))
        turns, left = divmod(problem.columns, h.unroll * width)
        row = turns * (1 + 0.6 * h.unroll) + -(-left // width) * 2 + 4  # nanoseconds, about
        tasks = -(-rows // h.rows)
        busiest = min(rows, -(-tasks // max(1, threads)) * h.rows)
        return 1e-6 + 1e-9 * (busiest * row + 20 * tasks)

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiplications of whole vectors; AVX's alone have a name of their own."""
        vector = isinstance(spec.schedule, VectorSchedule) and "fma" in arch_by_name(spec.arch).features
        return Promises(("vmulps",)) if vector else Promises()


class Gpu(_Kernels):
    def __init__(self, file: str, *products: str) -> None:
        self.template = ("rowscale", f"templates/{file}")
        self._products = products  # beginnings of the mnemonics of a product of floats

    def promises(self, spec: KernelSpec) -> Promises:
        return Promises(self._products)

    def estimate(self, spec: KernelSpec, problem: RowscaleProblem, threads: int) -> float:
        """Memory's time, and that of threads which find no element in a short row."""
        h: BlockSchedule = spec.schedule
        covered = -(-max(1, problem.columns) // (h.threads * h.items)) * h.threads * h.items
        moved = 2 * problem.rows * covered * DTYPES[problem.dtype].bytes
        return 3e-6 + moved / 2e12 * (1.0 if h.items > 1 else 1.1)


CPU: OpKernels = Cpu()
CUDA: OpKernels = Gpu("rowscale.cu.jinja", "FMUL", "FFMA")
HIP: OpKernels = Gpu("rowscale.hip.jinja", "v_mul_f32", "v_dual_mul_f32", "v_pk_mul_f32")
