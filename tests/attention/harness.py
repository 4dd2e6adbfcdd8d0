"""One kernel call under watch: operands in fenced copies, results and scratch memory poisoned, all compared after.

A value that was never written, a byte written outside, an operand that changed and a wrong number all show.  What a
right result is, ops/attention/reference.py says.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np

from tests.backends.cpu.gemm.harness import POISON, Scratch
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime import host
from tilewright.runtime.bindings import binding
from tilewright.runtime.lines import extent
from tilewright.runtime.loader import Kernel

BINDING = binding("attention")
FENCE = 256


class Fenced:
    """An operand's memory in a copy between poison, its bytes between elements too."""

    def __init__(self, operand: Any) -> None:
        steps = tuple(one // operand.itemsize for one in operand.strides)
        low, high = (int(operand.ctypes.data) + one for one in extent(operand.shape, steps, operand.itemsize))
        self.size = high - low
        self.memory = np.full(self.size + 2 * FENCE + 64, POISON, np.uint8)
        self.start = FENCE - (int(self.memory.ctypes.data) + FENCE) % 64 + 64
        if self.size:
            source = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(low))
            self.memory[self.start : self.start + self.size] = source
        offset = self.start + (int(operand.ctypes.data) - low if self.size else 0)
        self.view = np.ndarray(operand.shape, operand.dtype, self.memory.data, offset, operand.strides)
        self.before = self.memory.copy()

    @property
    def address(self) -> int:
        return int(self.view.ctypes.data)

    def intact(self) -> bool:
        outside = self.memory[: self.start], self.memory[self.start + self.size :]
        return all(bool((one == POISON).all()) for one in outside)

    def unchanged(self) -> bool:
        return bool((self.memory == self.before).all())


def prove(kernel: Kernel, problem: AttentionProblem, seed: int = 0, threads: int = 1) -> None:
    """Run it through its table, look at every fence, compare with float64."""
    made = BINDING.sample(problem, seed)
    fenced = [None if one is None else Fenced(one) for one in made.operands]
    (stage,) = BINDING.dense(problem).stages
    args: Any = type(stage.args).from_buffer_copy(stage.args)
    start = ctypes.addressof(args)
    for pointer in stage.pointers:
        operand = fenced[pointer.slot]
        ctypes.c_void_p.from_address(start + pointer.offset).value = operand.address if operand else None
    for scalar in stage.scalars:
        ctypes.c_double.from_address(start + scalar.offset).value = made.scalars[scalar.index]
    refused = kernel.refusal(args)
    assert not refused, f"{kernel.name} {problem.describe()}: {refused}"
    scratch = Scratch(kernel.workspace_bytes(args, threads))
    scratch.memory[scratch.start : scratch.start + min(kernel.clear_bytes, scratch.size)] = 0
    assert kernel.launch(start, scratch.address, host.team(threads)) == 0
    assert scratch.intact(), f"{kernel.name} left its workspace"
    for slot, one in zip(BINDING.slots, fenced, strict=True):
        if one is not None:
            assert one.intact(), f"{kernel.name} {problem.describe()} wrote outside {slot.name}"
            assert slot.written or one.unchanged(), f"{kernel.name} {problem.describe()} changed {slot.name}"
    views = tuple(None if one is None else one.view for one in fenced)
    check = BINDING.check(problem, replace(made, operands=views))
    assert check.ok, f"{kernel.name} {problem.describe()}: {check.detail}"
