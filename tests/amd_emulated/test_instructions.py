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
    path = os.pathsep.join([str(checkout()), os.environ.get("PYTHONPATH", ""), str(ROOT)])
    asked = {"words": words, "registers": {str(source): values}, "target": "gfx950"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.amd_emulated.instruction"], input=json.dumps(asked), cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert callable(wanted)
    assert json.loads(done.stdout) == {str(target): [wanted(one) for one in values]}
