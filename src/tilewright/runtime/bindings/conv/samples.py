"""Operands made up for a convolution: random values, poisoned results, memory laid out as the problem says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem, Sizes
from tilewright.ops.conv.reference import filters, judgement
from tilewright.ops.numerics import Check
from tilewright.runtime import lines
from tilewright.runtime.bindings.conv.dense import sampled_ds, written_shape
from tilewright.runtime.bindings.conv.operands import LAST, PLACES, SLOTS
from tilewright.runtime.bindings.conv.request import Attributes
from tilewright.runtime.lines import extent
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.random_values import random_values
from tilewright.runtime.requests import Sample
from tilewright.runtime.samples import poison

Array = np.ndarray[Any, np.dtype[Any]]


def _strided(memory: Array, start: int, shape: Sizes, strides: Sizes) -> Array:
    steps = tuple(stride * memory.itemsize for stride in strides)
    return np.lib.stride_tricks.as_strided(memory[start:], shape, steps)


def _random_operand(generator: np.random.Generator, shape: Sizes, strides: Sizes, dtype: str) -> Array:
    low, high = extent(shape, strides, 1)
    return _strided(lines.lined(random_values(generator, high - low, dtype)), -low, shape, strides)


def sample(problem: ConvProblem, seed: int = 0, exact: bool = False) -> Sample:
    """Operands as a call takes them; a result full of NaN (or -1 bits).  The bound holds for any values: `exact` has
    nothing to change."""
    p, generator = problem, np.random.default_rng(seed)
    name, _ = written_shape(p)
    operands: list[Any] = [None] * len(SLOTS)
    for operand, slot in PLACES[p.variant].items():
        shape, strides = getattr(p, f"{operand}_shape"), getattr(p, f"{operand}_strides")
        if operand == name:
            low, high = extent(shape, strides, 1)
            memory = lines.empty((high - low,), numpy_dtype(p.dtype_out))
            poison(memory)
            operands[slot] = _strided(memory, -low, shape, strides)
        else:
            operands[slot] = _random_operand(generator, shape, strides, p.dtype)
    for d in sampled_ds(p):
        shape = tuple(1 if step == 0 else size for size, step in zip(p.y_shape, d.strides, strict=True))
        operands[d.slot] = _random_operand(generator, shape, d.strides, p.dtype_d)
    pairs = tuple(zip(p.before, p.after, strict=True))
    shape_option = None if p.variant == "forward" else getattr(p, f"{name}_shape")
    attributes = Attributes(
        p.variant, p.stride, pairs, p.dilation, p.groups, LAST, shape_option, p.epilogue, None, p.deterministic
    )
    return Sample(tuple(operands), (), tuple(attributes))


def named(problem: ConvProblem, sample: Sample) -> dict[str, Any]:
    """What the reference takes: x, w, y and ds."""
    arrays: dict[str, Any] = {name: sample.operands[slot] for name, slot in PLACES[problem.variant].items()}
    arrays["ds"] = tuple(sample.operands[d.slot] for d in sampled_ds(problem))
    return arrays


def judge(problem: ConvProblem, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Check]:
    """What is asked of results of `kernels`: of those that filter by Winograd less than of the others."""
    name, _ = written_shape(problem)
    slot = PLACES[problem.variant][name]
    ask = judgement(problem, {**named(problem, sample), name: None})
    return lambda result, kernels: ask(result.operands[slot], any(filters(kernel) for kernel in kernels))
