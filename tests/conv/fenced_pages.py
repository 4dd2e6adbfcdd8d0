"""CPU kernels on operands that end (or begin) at a page nobody may touch; ends with 0 if none was touched.

A program of its own, for a kernel that reads one byte too far ends the process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm.fenced_pages import Pages
from tests.conv.harness import prove
from tests.conv.test_cpu_kernels import SPECS, drawings
from tests.proofs import spread
from tilewright.dispatch.kernels import kernels as loaded
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem


def problems(spec: KernelSpec) -> Iterator[ConvProblem]:
    """Drawn ones; and a gradient read where it lies, whose pixels have the filters of two groups, together as many as a
    register block has rows."""
    yield from drawings(spec, count=6, seed=500)
    if spec.schedule.pipeline == "outer" and spec.signature.dtype == "fp32":
        yield ConvProblem(1, 6, spec.schedule.warp_tile[0], (1, 3, 5), (1, 1, 1), 2, variant="backward_weight")


def main(kernels: int) -> None:
    count = 0
    here = [spec for spec in spread(SPECS, kernels) if spec.arch in catalog.runnable()]
    for spec, kernel in zip(here, loaded(here), strict=True):
        for at_end in (True, False):
            for seed, problem in enumerate(problems(spec)):
                print(spec.name, at_end, problem.describe(), file=sys.stderr)  # the last line tells which call it was
                prove(kernel, problem, seed, allocate=Pages(at_end))
                count += 1
    print(f"{count} calls stayed inside their operands")


if __name__ == "__main__":
    main(int(sys.argv[1]))
