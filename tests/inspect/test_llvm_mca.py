"""What the model says of matrix and vector units is what llvm-mca's has, where it knows the arch."""

from __future__ import annotations

import re

import pytest

from tests.inspect import llvm_mca
from tests.inspect.amd_listings import MAIN_LOOP, code
from tilewright.inspect.amd_rates import matrix_cost

OPERANDS = {
    "f16": "v[32:33], v[34:35]",
    "bf16": "v32, v34",
    "i8": "v32, v34",
    "f32": "v32, v34",
    "bf16_1k": "v[32:33], v[34:35]",
}
SUMS = {4: 4, 16: 4, 32: 16}  # registers of a result of one block
INSTRUCTIONS = [
    ("gfx90a", "v_mfma_f32_32x32x8f16"),
    ("gfx90a", "v_mfma_f32_16x16x16f16"),
    ("gfx90a", "v_mfma_f32_32x32x8bf16_1k"),
    ("gfx90a", "v_mfma_f32_16x16x16bf16_1k"),
    ("gfx90a", "v_mfma_f32_4x4x4f16"),
    ("gfx90a", "v_mfma_f32_16x16x4f32"),
    ("gfx90a", "v_mfma_f32_32x32x2f32"),
    ("gfx90a", "v_mfma_i32_32x32x8i8"),
    ("gfx908", "v_mfma_f32_32x32x8f16"),
    ("gfx908", "v_mfma_f32_16x16x8bf16"),
    ("gfx908", "v_mfma_i32_16x16x16i8"),
]


def tool_of(arch: str) -> str:
    tool = llvm_mca.models(arch)
    if not tool:
        pytest.skip(f"no llvm-mca here knows {arch}")
    return tool


@pytest.mark.parametrize(("arch", "mnemonic"), INSTRUCTIONS)
def test_a_matrix_instruction_takes_as_long_as_llvm_has_it(arch: str, mnemonic: str) -> None:
    tool, ours = tool_of(arch), matrix_cost(mnemonic, arch)
    side = int(re.findall(r"_(\d+)x", mnemonic)[0])
    kind = next(kind for kind in sorted(OPERANDS, key=len, reverse=True) if mnemonic.endswith(kind))
    sums = f"a[0:{SUMS[side] - 1}]"
    theirs, unread = llvm_mca.clocks([f"{mnemonic} {sums}, {OPERANDS[kind]}, {sums}"], arch, tool)
    assert ours is not None
    assert not unread
    assert theirs["HWXDL"] == ours.clocks


def test_what_llvm_cannot_read_is_counted_and_left_out() -> None:
    tool = tool_of("gfx90a")
    theirs, unread = llvm_mca.clocks(["v_add_f32 v0, v1, v2", "v_nothing_of_the_kind v0, v1"], "gfx90a", tool)
    assert unread == 1
    assert theirs["HWVALU"] == llvm_mca.CYCLE


def test_a_main_loop_has_one_row() -> None:
    listing = [line.replace("32x32x8_f16", "32x32x8f16") for line in MAIN_LOOP]  # as gfx90a has it
    row = llvm_mca.compared(code(listing), "gfx90a", tool_of("gfx90a"))
    assert row is not None
    _, matrix, theirs, vector, also, unread = row.split(" | ")
    assert (matrix, vector, unread) == (theirs, also, "0")
