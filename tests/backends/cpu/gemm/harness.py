"""One kernel call under watch.

Inputs lie in buffers whose padding is poison (NaN bytes), outputs and scratch memory are poisoned and
fenced: a value that was never written, a padding element that was used and a byte written outside
all show.  What a right result is, ops/gemm/reference.py alone says.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.reference import verify
from tilewright.runtime import host
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.loader import Kernel
from tilewright.runtime.numpy_types import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]
Values = Callable[[np.random.Generator, tuple[int, ...], str], Array]
Allocate = Callable[[int, int], tuple[Array, int]]

POISON = 0xFF  # NaN in every float type
INT_POISON = 0x5B  # a number that spoils a sum: -1 would be too modest
FENCE = 256  # bytes kept around every buffer


def poison_of(dtype: str) -> int:
    return INT_POISON if DTYPES[dtype].kind == "int" else POISON


def heap(size: int, itemsize: int) -> tuple[Array, int]:
    """A buffer with fences and the offset at which `size` bytes begin: aligned to the element, to no vector."""
    return np.empty(size + 2 * FENCE + itemsize, np.uint8), FENCE + itemsize


@dataclass(slots=True)
class Block:
    """Matrices in fenced memory: `lines` lines of `length` elements, `ld` apart, a batch of them."""

    memory: Array
    offset: int
    shape: tuple[int, int, int]
    strides: tuple[int, int, int]  # in elements
    dtype: str

    @staticmethod
    def make(batch: int, lines: int, length: int, ld: int, gap: int, dtype: str, allocate: Allocate = heap) -> Block:
        size = DTYPES[dtype].bytes
        apart = lines * ld + gap
        reach = (batch - 1) * apart + (lines - 1) * ld + length if batch and lines and length else 0
        memory, offset = allocate(reach * size, size)
        memory[...] = poison_of(dtype)
        return Block(memory, offset, (batch, lines, length), (apart, ld, 1), dtype)

    def view(self, memory: Array | None = None, dtype: Any = None) -> Array:
        size = DTYPES[self.dtype].bytes
        kind = numpy_dtype(self.dtype) if dtype is None else dtype
        buffer = self.memory if memory is None else memory
        if 0 in self.shape:
            return np.empty(self.shape, kind)
        return np.ndarray(self.shape, kind, buffer.data, self.offset, tuple(one * size for one in self.strides))

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data) + self.offset

    def untouched_around(self) -> bool:
        """Whether every byte outside the matrices is still poison."""
        copy = self.memory.copy()
        if 0 not in self.shape:
            self.view(copy, f"u{DTYPES[self.dtype].bytes}").view(np.uint8)[...] = poison_of(self.dtype)
        return bool((copy == poison_of(self.dtype)).all())


def ordinary(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of order one, or the whole range of an integer type."""
    if dtype == "int8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if dtype == "int32":
        return rng.integers(-100000, 100000, shape).astype(np.int32)
    return rng.standard_normal(shape).astype(np.float32).astype(numpy_dtype(dtype))


@dataclass(frozen=True, slots=True)
class Call:
    """A problem and everything about a call that is not in the problem."""

    problem: GemmProblem
    alpha: float = 1.0
    beta: float = 0.0
    alias: bool = False  # E is C itself
    d_kinds: tuple[str, ...] = ()  # full, row (a bias of n), column (a bias of m), one
    gap: int = 0  # elements between the matrices of a batch
    broadcast_c: bool = False
    d_gap: int = 3  # elements between the rows of a D
    threads: int = 1
    seed: int = 0


@dataclass(slots=True)
class Outcome:
    arrays: dict[str, Any]  # as the reference takes them
    result: Array


def _inputs(call: Call, rng: np.random.Generator, values: Values, allocate: Allocate) -> dict[str, Block]:
    p = call.problem
    blocks: dict[str, Block] = {}

    def put(name: str, batch: int, lines: int, length: int, ld: int, dtype: str) -> None:
        block = Block.make(batch, lines, length, ld, call.gap, dtype, allocate)
        block.view()[...] = values(rng, block.shape, dtype)
        blocks[name] = block

    by_rows_a, by_rows_b = p.layout[0] == "r", p.layout[1] == "r"
    put("a", 1 if p.broadcast_a else p.batch, *((p.m, p.k) if by_rows_a else (p.k, p.m)), p.a_stride, p.dtype_a)
    put("b", 1 if p.broadcast_b else p.batch, *((p.k, p.n) if by_rows_b else (p.n, p.k)), p.b_stride, p.dtype_b)
    if p.dual:
        put("b_up", 1 if p.broadcast_b else p.batch, *((p.k, p.n) if by_rows_b else (p.n, p.k)), p.b_stride, p.dtype_b)
    if call.beta != 0:
        batch = 1 if call.broadcast_c and not call.alias else p.batch
        put("c", batch, p.m, p.n, p.c_stride, p.dtype_c)
    for index, kind in enumerate(call.d_kinds):
        shape = {"full": (p.batch, p.m, p.n), "row": (1, 1, p.n), "column": (p.batch, p.m, 1), "one": (1, 1, 1)}[kind]
        put(f"d{index}", *shape, shape[2] + call.d_gap, p.dtype_d)
    return blocks


def _fill(args: GemmArgs, call: Call, blocks: dict[str, Block], e: Block) -> None:
    p = call.problem
    args.m, args.n, args.k, args.batch = p.m, p.n, p.k, p.batch
    args.alpha, args.beta = call.alpha, call.beta
    args.a, args.a_stride = blocks["a"].address, p.a_stride
    args.b, args.b_stride = blocks["b"].address, p.b_stride
    args.a_batch_stride = 0 if p.broadcast_a else blocks["a"].strides[0]
    args.b_batch_stride = 0 if p.broadcast_b else blocks["b"].strides[0]
    if "b_up" in blocks:
        args.b_up = blocks["b_up"].address
    if "c" in blocks:
        args.c, args.c_stride = blocks["c"].address, p.c_stride
        args.c_batch_stride = 0 if blocks["c"].shape[0] == 1 else blocks["c"].strides[0]
    args.e, args.e_stride, args.e_batch_stride = e.address, e.strides[1], e.strides[0]
    for index, kind in enumerate(call.d_kinds):
        block = blocks[f"d{index}"]
        args.d[index] = block.address
        args.d_row_stride[index] = block.strides[1] if kind in ("full", "column") else 0
        args.d_col_stride[index] = 1 if kind in ("full", "row") else 0
        args.d_batch_stride[index] = block.strides[0] if kind in ("full", "column") else 0


class Scratch:
    """Poisoned memory aligned to 64 with a fence behind it; where `allocate` aligns it so, in its memory."""

    def __init__(self, size: int, allocate: Allocate | None = None) -> None:
        self.size = size
        if allocate is not None:
            self.memory, self.start = allocate(-(-size // 64) * 64, 64)
            self.memory[...] = POISON
            if self.address % 64 == 0:
                return
        self.memory = np.full(size + 2 * FENCE + 64, POISON, np.uint8)
        start = int(self.memory.ctypes.data) + FENCE
        self.start = -(-start // 64) * 64 - int(self.memory.ctypes.data)

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data) + self.start

    def intact(self) -> bool:
        outside = self.memory[: self.start], self.memory[self.start + self.size :]
        return all(bool((one == POISON).all()) for one in outside)


def run(kernel: Kernel, call: Call, values: Values = ordinary, allocate: Allocate = heap) -> Outcome:
    """Make operands, call the kernel through its table, check every fence."""
    p, rng = call.problem, np.random.default_rng(call.seed)
    blocks = _inputs(call, rng, values, allocate)
    if call.alias:
        e = blocks["c"]
    else:
        e = Block.make(p.batch, p.m, p.n, p.c_stride + call.gap % 3, call.gap, p.dtype_c, allocate)
    arrays: dict[str, Any] = {
        "a": blocks["a"].view() if p.layout[0] == "r" else blocks["a"].view().swapaxes(1, 2),
        "b": blocks["b"].view() if p.layout[1] == "r" else blocks["b"].view().swapaxes(1, 2),
        "c": blocks["c"].view().copy() if "c" in blocks else None,
        "ds": tuple(blocks[f"d{index}"].view() for index in range(p.num_d)),
        "alpha": call.alpha,
        "beta": call.beta,
    }
    if "b_up" in blocks:
        arrays["b_up"] = blocks["b_up"].view() if p.layout[1] == "r" else blocks["b_up"].view().swapaxes(1, 2)
    args = GemmArgs()
    _fill(args, call, blocks, e)
    at, team = ctypes.addressof(args), host.team(call.threads)
    before = {name: block.memory.copy() for name, block in blocks.items() if block is not e}
    if kernel.pack is not None:
        packed = Scratch(kernel.packed_bytes(args), allocate)
        assert kernel.pack(at, packed.address, team) == 0
        assert packed.intact(), "pack wrote past its buffer"
        args.b, args.b_stride = packed.address, 0
    refused = kernel.refusal(args)
    assert not refused, refused
    scratch = Scratch(kernel.workspace_bytes(args, call.threads))
    zeros = scratch.memory[scratch.start : scratch.start + min(kernel.clear_bytes, scratch.size)]
    zeros[:] = 0
    assert kernel.launch(at, scratch.address, team) == 0
    assert scratch.intact(), f"launch left its workspace: {call}"
    assert not zeros.any(), f"what must be zero is not: {call}"
    assert e.untouched_around(), f"launch wrote outside E: {call}"
    for name, memory in before.items():
        assert np.array_equal(memory, blocks[name].memory), f"launch changed {name}: {call}"
    return Outcome(arrays, e.view())


def prove(kernel: Kernel, call: Call, values: Values = ordinary, allocate: Allocate = heap) -> Outcome:
    """Run and compare with the reference."""
    outcome = run(kernel, call, values, allocate)
    check = verify(call.problem, outcome.arrays, outcome.result)
    assert check.ok, f"{kernel.name}: {check.detail}\n{call}"
    return outcome
