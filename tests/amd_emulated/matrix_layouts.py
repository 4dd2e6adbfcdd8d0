"""Where matrix instructions have the elements of A, B and D, by AMD's matrix instruction calculator.

An independent statement of what `cdna_ops.c` does: written from that tool's formulas, which it prints for every
instruction (`--detail-instruction`), and compared with all its answers for those of `INSTRUCTIONS` but gfx950's own,
which it lacks: these go on as the others do.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    lane: int
    at: int  # of an operand: among the elements that a lane holds; of D: the register


class MatrixInstruction(NamedTuple):
    name: str
    m: int
    n: int
    k: int
    blocks: int
    type_a: str  # as the emulator's TYPES, with the FNUZ ones as it has them
    type_b: str
    kind: str = "mfma"  # or rdna3, rdna4


def _mfma(arch: str, m: int, k: int, kind: str, other: str = "", blocks: int = 1) -> MatrixInstruction:
    return MatrixInstruction(f"{arch} {m}x{m}x{k} {kind} {other}".strip(), m, m, k, blocks, kind, other or kind)


_FP8 = (("FP8", "FP8"), ("FP8", "BF8"), ("BF8", "FP8"), ("BF8", "BF8"))
# What kernels of ours and of CK Tile are compiled to.
INSTRUCTIONS = (
    _mfma("cdna1", 16, 8, "BF16"),
    _mfma("cdna1", 16, 16, "I8"), _mfma("cdna1", 32, 8, "I8"),
    _mfma("cdna2", 16, 16, "F16"), _mfma("cdna2", 32, 8, "F16"),
    _mfma("cdna2", 16, 16, "BF16"), _mfma("cdna2", 32, 8, "BF16"),
    _mfma("cdna2", 16, 4, "F32"), _mfma("cdna2", 32, 2, "F32"),
    _mfma("cdna3", 4, 4, "F16", blocks=16), _mfma("cdna3", 4, 4, "BF16", blocks=16),
    _mfma("cdna3", 16, 32, "I8"), _mfma("cdna3", 32, 16, "I8"),
    *(_mfma("cdna3", 16, 32, a, b) for a, b in _FP8), *(_mfma("cdna3", 32, 16, a, b) for a, b in _FP8),
    _mfma("gfx950", 16, 32, "F16"), _mfma("gfx950", 32, 16, "F16"),
    _mfma("gfx950", 16, 32, "BF16"), _mfma("gfx950", 32, 16, "BF16"),
    _mfma("gfx950", 16, 64, "I8"), _mfma("gfx950", 32, 32, "I8"),
    *(_mfma("gfx950", 16, 128, a, b) for a, b in _FP8), *(_mfma("gfx950", 32, 64, a, b) for a, b in _FP8),
    *(MatrixInstruction(f"rdna3 {kind}", 16, 16, 16, 1, kind, kind, "rdna3") for kind in ("F16", "BF16")),
    *(MatrixInstruction(f"rdna4 {kind}", 16, 16, 16, 1, kind, kind, "rdna4") for kind in ("F16", "BF16")),
    *(MatrixInstruction(f"rdna4 {a} {b}", 16, 16, 16, 1, a, b, "rdna4") for a, b in _FP8),
)  # fmt: skip


def operand_places(one: MatrixInstruction, dim: int, line: int, k: int, block: int = 0) -> list[Place]:
    """Of element k of row `line` of A (dim: m), or of column `line` of B (dim: n); RDNA 3 has it twice."""
    if one.kind == "rdna3":
        return [Place(line, k), Place(line + 16, k)]
    if one.kind == "rdna4" and one.type_a in ("F16", "BF16"):  # fours of k go to either half of the wave in turns
        return [Place(line + 16 * (k // 4 % 2), k % 4 + k // 8 * 4)]
    if one.kind == "rdna4":
        return [Place(line + 16 * (k // 8), k % 8)]
    groups = 64 // (dim * one.blocks)  # of lanes, with parts of a line each
    held = one.k // groups
    return [Place(line + dim * (block + one.blocks * (k // held)), k % held)]


def result_place(one: MatrixInstruction, row: int, column: int, block: int = 0) -> Place:
    if one.kind == "rdna3":
        return Place(column + 16 * (row % 2), row // 2)
    if one.kind == "rdna4":
        return Place(column + 16 * (row // 8), row % 8)
    together = max(1, 64 * 4 // (one.m * one.n))  # blocks that share registers
    groups = 64 // one.n // together  # of lanes, with runs of four rows each
    register = block // together * (one.m * one.n // 64) + row // (4 * groups) * 4 + row % 4
    lane = column + one.n * (block % together + together * (row // 4 % groups))
    return Place(lane, register)
