"""What GEMM asks of a kernel family beyond `ops.families.FamilyRules`, with the plain answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.arch import Arch
from tilewright.errors import shown
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.copies import CopiedSizes
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import MNK, ONE, Shape
from tilewright.ops.gemm.spec import GemmSignature


class GemmFamily:
    dual = False  # whether its kernels can multiply by two B (`GemmSignature.dual`)
    schedule_members: tuple[str, ...] = ("tile", "warp_tile", "warp_grid")  # read of every schedule

    def limits(self, spec: KernelSpec, problem: GemmProblem) -> Iterable[Violation]:
        """Sizes that are no multiples of the grains; a family with more limits yields these first."""
        sizes = problem.m, problem.n, problem.k
        for axis, size, grain in zip(MNK, sizes, self.grains(spec.schedule), strict=True):
            if size % grain:
                message = f"{axis} = {size} is not a multiple of {grain}"
                yield Violation(f"grain-{axis}", message, "use another kernel, or pad the operands")

    def serves_dual(self, problem: GemmProblem, arch: Arch) -> bool:
        """Of a family with kernels for two B: whether one of them is worth running such a problem on."""
        return False

    def grains(self, schedule: Any) -> Shape:
        """What m, n and k must be multiples of: 1 where the kernel has edge code."""
        return ONE

    def wrong_schedule(self, schedule: Any) -> str:
        """What is wrong with the answers about a schedule of another package; empty where nothing is."""
        grains = self.grains(schedule)
        if type(grains) is tuple and len(grains) == 3 and all(type(grain) is int and grain > 0 for grain in grains):
            return ""
        return f"grains() gives {shown(grains)} for it, where three positive integers are meant"

    def copied_sizes(self, schedule: Any, signature: GemmSignature) -> CopiedSizes:
        """How m, n and k grow in copies, in which a kernel serves a problem that it refuses in place."""
        return CopiedSizes()

    def pack_format(self, schedule: Any) -> tuple[object, ...]:
        """What the bytes of a packed B depend on beyond arch and types."""
        return ()
