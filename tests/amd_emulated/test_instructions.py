"""Instructions the checkout's emulator reads otherwise than the hardware, one by one; skipped without a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.amd_emulated.conftest import checkout
from tests.amd_emulated.workers import ROOT

LANES = range(64)


def run(words: list[int], registers: dict[int, list[int]]) -> dict[int, list[int]]:
    """Registers that one instruction changed on gfx950."""
    path = os.pathsep.join([str(checkout()), os.environ.get("PYTHONPATH", ""), str(ROOT)])
    asked = {"words": words, "registers": registers, "target": "gfx950"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.amd_emulated.instruction"], input=json.dumps(asked), cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {int(register): lanes for register, lanes in json.loads(done.stdout).items()}


@pytest.mark.parametrize(
    ("words", "source", "target", "wanted"),
    [
        # v_add_u16 v0, 0x100, v157: above v127 an operand is a register, not half of another one
        ([0x4C013AFF, 0x100], 157, 0, lambda x: (x + 0x100) & 0xFFFF),
        # v_lshlrev_b16 v146, 2, v0
        ([0x55240082], 0, 146, lambda x: (x << 2) & 0xFFFF),
        # v_mul_lo_u16 v146, 48, v1
        ([0x532402B0], 1, 146, lambda x: (x * 48) & 0xFFFF),
    ],
    ids=["a literal", "a shift", "a product"],
)
def test_sixteen_bits_of_high_registers(words: list[int], source: int, target: int, wanted: object) -> None:
    values = [7 * one + 3 for one in LANES]
    changed = run(words, {source: values})
    assert callable(wanted)
    assert changed == {target: [wanted(one) for one in values]}


@pytest.mark.parametrize(("word", "rows"), [(0x7E24B513, 32), (0x7E24B313, 16)], ids=["halves", "quarters"])
def test_rows_of_lanes_that_change_places(word: int, rows: int) -> None:
    """v_permlane32_swap_b32 and v_permlane16_swap_b32 v18, v19, as AMD's ISA document has them: of each two rows the
    upper one of the destination and the lower one of the source."""
    to, source = list(LANES), [1000 + lane for lane in LANES]
    changed = run([word], {18: to, 19: source})
    lower = [lane for lane in LANES if lane // rows % 2 == 0]
    for lane in lower:
        to[lane + rows], source[lane] = source[lane], to[lane + rows]
    assert changed == {18: to, 19: source}
