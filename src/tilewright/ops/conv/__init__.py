"""Grouped convolution: y = epilogue(conv(x, w), D0, D1), and its gradients for x and for w."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tilewright import lazy
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import legality, pools
from tilewright.ops.conv.patches import joined_patches
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import OP, ConvSignature
from tilewright.ops.modular import ModularOp

if TYPE_CHECKING:
    from tilewright.ops.demo import Demo

__all__ = ["CONV", "ConvProblem", "ConvSignature"]


class ConvOp(ModularOp):
    """Convolution behind the generic contract of `tilewright.ops.base.Op`."""

    name = OP
    summary = "y = epilogue(conv(x, w), D0, D1) in groups, and its gradients for x and for w"
    problem_class = ConvProblem

    @cached_property
    def demo(self) -> Demo:
        from tilewright.ops.conv.demo import DEMO

        return DEMO

    def padded(self, spec: KernelSpec, problem: ConvProblem) -> ConvProblem | None:
        return legality.padded(spec, problem)

    def copied_grains(self, spec: KernelSpec) -> tuple[int, ...] | None:
        return legality.copied_grains(spec)

    def measured_as(self, problem: ConvProblem) -> ConvProblem:
        """Gaps between rows hardly matter; channels first or last does."""
        return problem.dense() if problem.channels_last else problem

    def stages(self, problem: ConvProblem, arch: str) -> Sequence[ConvProblem]:
        return (joined_patches(problem),)

    def remarks(self, spec: KernelSpec, problem: ConvProblem) -> list[str]:
        return legality.remarks(spec, problem)


CONV = ConvOp(legality, pools, lazy.module("tilewright.ops.conv.options"))
