"""Each matrix instruction that kernels use, executed by the emulator's C, against an independent statement of it."""

from __future__ import annotations

import ctypes
import struct
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.amd_emulated.emulator import FNUZ, HERE, TYPES, MfmaShape, Wave, compile_c
from tests.amd_emulated.matrix_layouts import INSTRUCTIONS, MatrixInstruction, operand_places, result_place
from tests.amd_emulated.test_parts import needs_c

BYTES = {"F16": 2, "BF16": 2, "F32": 4, "I8": 1, "FP8": 1, "BF8": 1}
# -2 to 2 in each type: (bits of the fraction, bias); FNUZ ones have a bias that is larger by one.
FLOATS = {"F16": (10, 15), "BF16": (7, 127), "F32": (23, 127), "FP8": (3, 7), "BF8": (2, 15)}
A, B, C, D = 0, 32, 64, 128  # first registers


@pytest.fixture(scope="module")
def ops() -> Any:
    return ctypes.CDLL(str(compile_c(HERE / "cdna_ops.c")))


def bits_of(value: int, kind: str, fnuz: bool) -> int:
    size = BYTES[kind] * 8
    if kind == "I8":
        return value & 0xFF
    fraction, bias = FLOATS[kind]
    bias += int(fnuz and size == 8)
    magnitude = 0 if value == 0 else (bias + abs(value) - 1) << fraction  # 1 and 2
    return magnitude | (int(value < 0) << (size - 1))


def put(registers: np.ndarray[Any, Any], first: int, lane: int, index: int, bits: int, size: int) -> None:
    word, shift = divmod(index * size, 4)
    registers[first + word, lane] |= bits << (8 * shift)


def execute(ops: Any, one: MatrixInstruction, registers: np.ndarray[Any, Any], fnuz: bool) -> None:
    """vdst v128, src0 v0, src1 v32, src2 v64; words of f8f6f4 name the formats."""
    code = D | 0x1A7 << 23 | (256 + A) << 32 | (256 + B) << 41 | (256 + C) << 50
    if one.name.startswith("gfx950") and BYTES[one.type_a] == 1 and one.type_a != "I8":
        code |= (one.type_a == "BF8") << 8 | (one.type_b == "BF8") << 61
    program = ctypes.create_string_buffer(struct.pack("<Q", code))
    scalars = np.zeros(260, np.uint32)
    at = ctypes.addressof(program)
    scalars[256], scalars[257] = at & 0xFFFFFFFF, at >> 32
    wave = Wave(scalars.ctypes.data, registers.ctypes.data, registers.ctypes.data, 0, 0)
    types = [TYPES[kind] for kind in (one.type_a, one.type_b)]
    types = [FNUZ.get(kind, kind) if fnuz else kind for kind in types]
    if one.kind == "mfma":
        shape = MfmaShape(one.m, one.n, one.k, one.blocks, *types)
        assert ops.tw_mfma(ctypes.byref(wave), ctypes.byref(shape)) == 0
    else:
        assert ops.tw_wmma(ctypes.byref(wave), ctypes.byref((ctypes.c_int32 * 3)(*types, one.kind == "rdna3"))) == 0


@needs_c
@pytest.mark.parametrize("one", INSTRUCTIONS, ids=lambda one: one.name)
def test_the_emulator_agrees_with_the_calculator(ops: Any, one: MatrixInstruction) -> None:
    """D = A B + C of numbers whose sums are exact, laid out and read back by the independent statement."""
    rng, fnuz = np.random.default_rng(len(one.name)), one.name.startswith("cdna3")
    a, b = (rng.integers(-2, 3, (one.blocks, side, one.k)) for side in (one.m, one.n))
    c = rng.integers(-5, 6, (one.blocks, one.m, one.n))
    registers = np.zeros((256, 64 if one.kind == "mfma" else 32), np.uint32)
    for block, k in product(range(one.blocks), range(one.k)):
        for first, values, dim, kind in ((A, a, one.m, one.type_a), (B, b, one.n, one.type_b)):
            for line in range(dim):
                bits = bits_of(int(values[block, line, k]), kind, fnuz)
                for place in operand_places(one, dim, line, k, block):
                    put(registers, first, place.lane, place.at, bits, BYTES[kind])
    number = np.int32 if one.type_a == "I8" else np.float32
    for block, row, column in np.ndindex(c.shape):
        lane, register = result_place(one, row, column, block)
        registers[C + register, lane] = np.array([c[block, row, column]], number).view(np.uint32)[0]
    execute(ops, one, registers, fnuz)
    wanted = np.einsum("bik,bjk->bij", a, b) + c
    for block, row, column in np.ndindex(c.shape):
        lane, register = result_place(one, row, column, block)
        found = registers[D + register : D + register + 1, lane].copy().view(number)[0]
        assert found == wanted[block, row, column], (block, row, column)


def test_every_place_is_taken_once() -> None:
    """What no statement can be right without: elements share no place, and fill registers whole."""
    for one in INSTRUCTIONS:
        lanes = 64 if one.kind == "mfma" else 32
        places = [
            place
            for block, line, k in product(range(one.blocks), range(one.m), range(one.k))
            for place in operand_places(one, one.m, line, k, block)
        ]
        assert len(set(places)) == len(places) == lanes * (max(place.at for place in places) + 1), one.name
        results = {
            result_place(one, *at, block) for block in range(one.blocks) for at in product(range(one.m), range(one.n))
        }
        assert len(results) == one.m * one.n * one.blocks == lanes * (1 + max(place.at for place in results))
