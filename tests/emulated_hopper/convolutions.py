"""One call of a convolution kernel under watch: operands between fences of poison, scratch memory too."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.backends.cpu.gemm.harness import POISON, Scratch
from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, aligned, apart
from tilewright.ops import KernelSpec, op
from tilewright.ops.conv import ConvProblem
from tilewright.runtime.bindings.conv import samples
from tilewright.runtime.bindings.conv.dense import sampled_ds, stage
from tilewright.runtime.bindings.conv.operands import PLACES
from tilewright.runtime.lines import extent
from tilewright.runtime.loader import Kernel

CONV = op("conv")


class Fenced:
    """An operand's memory in a copy between poison, aligned as TMA needs it and no more, then `off`."""

    def __init__(self, operand: Any, off: int = 0) -> None:
        steps = tuple(one // operand.itemsize for one in operand.strides)
        low, high = (int(operand.ctypes.data) + one for one in extent(operand.shape, steps, operand.itemsize))
        self.size = high - low
        self.memory, self.start = aligned(self.size + off, operand.itemsize)
        self.start += off
        self.memory[...] = POISON
        source = np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(low))
        self.memory[self.start : self.start + self.size] = source
        offset = self.start + int(operand.ctypes.data) - low
        self.view = np.ndarray(operand.shape, operand.dtype, self.memory.data, offset, operand.strides)

    @property
    def address(self) -> int:
        return int(self.view.ctypes.data)

    def intact(self) -> bool:
        outside = self.memory[: self.start], self.memory[self.start + self.size :]
        return all(bool((one == POISON).all()) for one in outside)


def launched(kernel: Kernel, args: Any, fenced: list[Fenced | None]) -> None:
    """Run it once: no refusal, and nothing written outside its operands and its scratch memory."""
    refused = kernel.refusal(args)
    assert not refused, refused
    scratch = Scratch(kernel.workspace_bytes(args, 1))
    zeros = scratch.memory[scratch.start : scratch.start + min(kernel.clear_bytes, scratch.size)]
    zeros[:] = 0
    assert kernel.launch(ctypes.addressof(args), scratch.address, None) == 0
    assert scratch.intact(), "launch left its workspace"
    assert not zeros.any(), "what must be zero is not"
    assert all(one is None or one.intact() for one in fenced), "launch wrote outside an operand"


def prove(kernel: Kernel, problem: ConvProblem, seed: int = 0, *, d_first: bool = False) -> None:
    """Run it through its table and compare with float64; `d_first`: D tensors as large as y are channels-first."""
    made, ds = samples.sample(problem, seed), sampled_ds(problem)
    if d_first:
        operands = list(made.operands)
        for at, one in enumerate(ds):
            if any(one.strides[:-1]):
                turned = np.moveaxis(np.ascontiguousarray(np.moveaxis(operands[one.slot], -1, 1)), 1, -1)
                operands[one.slot] = turned
                ds[at] = one._replace(strides=tuple(step // turned.itemsize for step in turned.strides))
        made = replace(made, operands=tuple(operands))
    odd = () if problem.aligned else PLACES[problem.variant].values()
    fenced = [
        None if one is None else Fenced(one, one.itemsize if slot in odd else 0)
        for slot, one in enumerate(made.operands)
    ]
    request = stage(problem, ds)
    args: Any = request.args
    at = ctypes.addressof(args)
    for pointer in request.pointers:
        operand = fenced[pointer.slot]
        ctypes.c_void_p.from_address(at + pointer.offset).value = operand.address if operand else None
    launched(kernel, args, fenced)
    result = replace(made, operands=tuple(None if one is None else one.view for one in fenced))
    check = samples.judge(problem, made)(result, (kernel.spec,))
    assert check.ok, check.detail


def disagreement(kernel: Kernel, problem: ConvProblem, odd: str = "") -> str:
    """What `supports` and the kernel's check in C say of a problem, where it differs; `odd`: the operand off 16 bytes.

    A problem does not say which that is: what is taken, the kernel takes whichever it is."""
    asked = replace(problem, aligned=not odd)
    request = stage(asked, sampled_ds(asked))
    args: Any = request.args
    for pointer in request.pointers:  # nothing is read
        place = (1 << 20) + (2 if odd and pointer.slot == PLACES[asked.variant][odd] else 0)
        ctypes.c_void_p.from_address(ctypes.addressof(args) + pointer.offset).value = place
    refused, violations = kernel.refusal(args), CONV.supports(kernel.spec, asked)
    agree = not (refused and not violations) if odd else bool(refused) == bool(violations)
    return "" if agree else f"{kernel.spec.name} {asked} odd {odd!r}: {refused!r}, {violations}"


def wrong(emulator: Emulator, spec: KernelSpec, *problems: ConvProblem, multiprocessors: int = 4) -> list[str]:
    """What is wrong with the kernel: each problem once with a landing of its own, and none may be refused."""
    kernel = emulator.kernel(spec)
    found = []
    for number, one in enumerate(problems):
        assert CONV.supports(spec, one) == [], (spec.name, one)
        mode = (LATE, CHANCE, EAGER)[number % 3]
        text = apart(kernel, partial(prove, kernel, one, number), mode, number, multiprocessors)
        if text:
            found.append(f"{spec.name} {one.describe()} mode {mode}: {text}")
    return found
