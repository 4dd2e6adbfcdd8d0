"""Regionstats behind the contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regionstats import reference, request
from regionstats.problem import RegionstatsProblem
from regionstats.spec import OP
from tilewright.errors import ProblemError
from tilewright.ops.base import KernelSpec
from tilewright.ops.numerics import Check, compare
from tilewright.runtime.bindings import Binding, BindingDefaults
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.requests import Request, Sample, Slot

Array = np.ndarray[Any, np.dtype[Any]]


def _poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    made = np.empty(shape, numpy_dtype(dtype))
    made.view(np.uint8)[...] = 0xFF
    return made


class RegionstatsBinding(BindingDefaults):
    op = OP
    slots: tuple[Slot, ...] = request.SLOTS
    scalars: tuple[str, ...] = ("scale",)

    def bind(
        self,
        x: Any,
        lengths: Any,
        *,
        weight: Any = None,
        shift: Any = None,
        scale: float = 1.0,
        dilation: Sequence[int] = (),
        out: tuple[Any, Any] = (None, None),
    ) -> tuple[tuple[Any, ...], tuple[float], tuple[Any, None]]:
        if not isinstance(out, tuple) or len(out) != 2:
            raise ProblemError(
                f"out is a {type(out).__name__}",
                rule="regionstats-out",
                value=type(out).__name__,
                remedy="give (mean, peak); either may be None",
            )
        handed_on = (None,) * 4
        return (x, lengths, weight, shift, *out, *handed_on), (scale,), (tuple(dilation), None)

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        dilation, stage = attributes  # a stage by itself is known by its problem
        return request.request(views, dilation) if stage is None else request.alone(stage)

    # -- operands that are made up -----------------------------------------------------------------

    def sample(self, problem: RegionstatsProblem, seed: int = 0, exact: bool = False) -> Sample:
        p, generator = problem, np.random.default_rng(seed)
        operands: list[Any] = [None] * len(self.slots)
        lengths = generator.integers(0, p.spatial[0], p.n, np.int32, endpoint=True)
        lengths[1:2] = 0  # one without positions, where there are several entries
        operands[request.LENGTHS] = lengths
        between = (p.n, p.chunks, p.channels)
        if p.stage == "combine":
            operands[request.GIVEN_SUMS] = generator.standard_normal(between, np.float32)
            operands[request.GIVEN_PEAKS] = generator.standard_normal(between, np.float32)
        else:
            shape = (p.n, *p.spatial, p.channels)
            operands[request.X] = generator.standard_normal(shape, np.float32).astype(numpy_dtype(p.dtype))
            if p.weight:
                operands[request.WEIGHT] = generator.standard_normal(p.channels, np.float32)
            if p.shift:
                operands[request.SHIFT] = generator.standard_normal(p.channels, np.float32)
        if p.stage == "partial":
            operands[request.SUMS], operands[request.PEAKS] = _poisoned(between, "fp32"), _poisoned(between, "fp32")
        else:
            operands[request.MEAN] = _poisoned((p.n, p.channels), "fp32")
            operands[request.PEAK] = _poisoned((p.n, p.channels), p.dtype)
        return Sample(tuple(operands), (1.0,), (p.dilation, p if p.stage else None))

    def dense(self, problem: RegionstatsProblem) -> Request:
        return request.alone(problem) if problem.stage else request.both(problem)

    def check(self, problem: RegionstatsProblem, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
        x, lengths, weight, shift, mean, peak, sums, peaks, given_sums, given_peaks = sample.operands
        if problem.stage == "combine":
            found, results = reference.combine(problem, given_sums, given_peaks, lengths), (mean, peak)
        else:
            whole = (problem, x, lengths, weight, shift, sample.scalars[0])
            if problem.stage == "partial":
                found, results = reference.partial(*whole), (sums, peaks)
            else:
                found, results = reference.whole(*whole), (mean, peak)
        checks = [compare(one, want.value, want.bound, want.dtype) for one, want in zip(results, found, strict=True)]
        return max(checks, key=lambda one: one.bound_ratio)


BINDING: Binding = RegionstatsBinding()
