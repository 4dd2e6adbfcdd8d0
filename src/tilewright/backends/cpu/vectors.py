"""CPU vectors, as every op with host kernels counts them: lanes, what a multiply eats, registers of a block.

A register block (warp tile) is rows by columns by k: accumulators are vectors along the columns, and k is what one
multiply-accumulate instruction eats at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.ops.base import Violation


def lanes(arch: Arch) -> int:
    """32-bit accumulators in one vector."""
    return arch.vector_bytes // 4


def dot_step_of(arch: Arch, dtype: str, *others: str) -> int:
    """k elements that one multiply-accumulate instruction of these element types eats."""
    if dtype == "int8":
        return 4 if "vnni" in arch.features else 2 if "fma" in arch.features else 1
    return 2 if {dtype, *others} == {"bf16"} and "bf16" in arch.features else 1


def block_rules(block: tuple[int, int, int], step: int, what: str, arch: Arch) -> Iterator[Violation]:
    """A block is whole vectors, eats `step` elements of k at once, and fits the registers.

    `what` names the work, for people: "bf16", "implicit of bf16".
    """
    rows, columns, deep = block
    width = lanes(arch)
    if columns % width:
        below = columns // width * width
        yield Violation(
            "cpu-vector",
            f"warp_tile_n {columns} is not a multiple of the {width} lanes of a {arch.name} vector",
            f"use {below or width} or {below + width}",
        )
        return
    if deep != step:
        yield Violation(
            "cpu-dot-step",
            f"warp_tile_k {deep}, but {what} on {arch.name} multiplies {step} k elements at once",
            f"use warp_tile_k {step}",
        )
    yield from block_fits(rows, columns, arch)


def block_fits(rows: int, columns: int, arch: Arch) -> Iterator[Violation]:
    """The accumulators of a block, a row of the operand beside it and what is broadcast fit the registers."""
    vectors = columns // lanes(arch)
    # One more register holds what is broadcast where the ISA cannot fold it into the multiply.
    spare = 1 if "avx512" in arch.features else 2
    need = rows * vectors + vectors + spare
    if need > arch.vector_registers:
        most = (arch.vector_registers - vectors - spare) // vectors
        yield Violation(
            "cpu-registers",
            f"warp tile {rows}x{columns} needs {need} vector registers, {arch.name} has {arch.vector_registers}",
            f"use at most {most} rows of {columns}" if most > 0 else f"use fewer than {columns} columns",
        )
