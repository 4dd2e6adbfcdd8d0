"""One kernel call under watch, as tests/backends/cpu/gemm/harness.py has it for GEMM.

Operands lie in buffers whose gaps are poison, results and scratch memory are poisoned and fenced: a value that was
never written, a gap that was used and a byte written outside all show.  What a right result is,
ops/conv/reference.py says.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.backends.cpu.gemm.harness import FENCE, Allocate, Scratch, heap, ordinary, poison_of
from tilewright.dtypes import DTYPES
from tilewright.ops.conv.problem import ConvProblem, Sizes
from tilewright.ops.conv.reference import filters, verify
from tilewright.runtime import host
from tilewright.runtime.bindings.conv.dense import sampled_ds, stage, written_shape
from tilewright.runtime.lines import extent
from tilewright.runtime.loader import Kernel
from tilewright.runtime.numpy_types import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class Block:
    """An array in fenced memory."""

    memory: Array
    offset: int
    shape: Sizes
    strides: Sizes
    dtype: str

    @classmethod
    def make(cls, shape: Sizes, strides: Sizes, dtype: str, allocate: Allocate = heap) -> Block:
        size = DTYPES[dtype].bytes
        low, high = extent(shape, strides, size)
        memory, offset = allocate(high - low, size)
        memory[...] = poison_of(dtype)
        return cls(memory, offset - low, shape, strides, dtype)

    def view(self, memory: Array | None = None, dtype: Any = None) -> Array:
        kind = numpy_dtype(self.dtype) if dtype is None else dtype
        if 0 in self.shape:
            return np.empty(self.shape, kind)
        buffer = self.memory if memory is None else memory
        steps = tuple(one * DTYPES[self.dtype].bytes for one in self.strides)
        return np.ndarray(self.shape, kind, buffer.data, self.offset, steps)

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data) + self.offset

    def untouched_around(self) -> bool:
        copy = self.memory.copy()
        if 0 not in self.shape:
            number = int.from_bytes(bytes([poison_of(self.dtype)]) * DTYPES[self.dtype].bytes, "little")
            self.view(copy, f"u{DTYPES[self.dtype].bytes}")[...] = number
        return bool((copy == poison_of(self.dtype)).all())


def gapped(problem: ConvProblem, gap: int = 3) -> ConvProblem:
    """The same problem with elements that belong to nobody behind every row of channels."""
    strides = {}
    for name in "xwy":
        shape: Sizes = getattr(problem, f"{name}_shape")
        found, step = [1], shape[-1] + gap
        for size in reversed(shape[:-1]):
            found.append(step)
            step = step * max(1, size) + gap
        strides[f"{name}_strides"] = tuple(reversed(found))
    return problem.laid(**strides)


def prove(kernel: Kernel, problem: ConvProblem, seed: int = 0, threads: int = 1, allocate: Allocate = heap) -> None:
    """Make operands, call the kernel through its table, look at every fence, compare with the reference."""
    p, rng = problem, np.random.default_rng(seed)
    name, _ = written_shape(p)
    blocks: dict[str, Block] = {}
    for one in "xwy":
        dtype = p.dtype_out if one == name else p.dtype
        blocks[one] = Block.make(getattr(p, f"{one}_shape"), getattr(p, f"{one}_strides"), dtype, allocate)
        if one != name:
            blocks[one].view()[...] = ordinary(rng, blocks[one].shape, dtype)
    ds = sampled_ds(p)
    for index, d in enumerate(ds):
        shape = tuple(1 if step == 0 else size for size, step in zip(p.y_shape, d.strides, strict=True))
        blocks[f"d{index}"] = Block.make(shape, d.strides, p.dtype_d, allocate)
        blocks[f"d{index}"].view()[...] = ordinary(rng, shape, p.dtype_d)
    args = stage(p, ds).args
    for one in "xwy":
        setattr(args, one, blocks[one].address)
    for index in range(len(ds)):
        args.d[index] = blocks[f"d{index}"].address
    _launch(kernel, args, threads, blocks, name)
    arrays: dict[str, Any] = {one: blocks[one].view() for one in "xwy"}
    arrays |= {name: None, "ds": tuple(blocks[f"d{index}"].view() for index in range(len(ds)))}
    check = verify(p, arrays, blocks[name].view(), filters(kernel.spec))
    assert check.ok, f"{kernel.name} {p.describe()}: {check.detail}"


def _launch(kernel: Kernel, args: Any, threads: int, blocks: dict[str, Block], name: str) -> None:
    before = {one: block.memory.copy() for one, block in blocks.items() if one != name}
    refused = kernel.refusal(args)
    assert not refused, refused
    scratch = Scratch(kernel.workspace_bytes(args, threads))
    scratch.memory[scratch.start : scratch.start + min(kernel.clear_bytes, scratch.size)] = 0
    assert kernel.launch(ctypes.addressof(args), scratch.address, host.team(threads)) == 0
    assert scratch.intact(), f"{kernel.name} left its workspace"
    assert blocks[name].untouched_around(), f"{kernel.name} wrote outside {name}"
    for one, memory in before.items():
        assert np.array_equal(memory, blocks[one].memory), f"{kernel.name} changed {one}"


__all__ = ["FENCE", "gapped", "prove"]
