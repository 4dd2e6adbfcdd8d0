"""One vector instruction in the emulator: words and registers as JSON in, the registers it wrote out.

Runs with the checkout first on the module path, as the worker does.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from typing import Any

import numpy as np

from tests.amd_emulated.emulator import EXEC, LANES, Checkout, Step, Wave

CONSTANTS, PC, NOP = 128, 256, 0xBF800000


def run(words: list[int], registers: dict[int, list[int]], target: str) -> dict[int, list[int]]:
    """Registers that changed; whole numbers from 0 to 64 are there as inline constants."""
    scalars, vectors = np.zeros(1024, np.uint32), np.zeros((512, LANES), np.uint32)
    scalars[CONSTANTS : CONSTANTS + 65] = np.arange(65)
    scalars[EXEC : EXEC + 2] = 0xFFFFFFFF
    for one, values in registers.items():
        vectors[one] = values
    before = vectors.copy()
    code = ctypes.create_string_buffer(struct.pack(f"<{len(words) + 8}I", *words, *[NOP] * 8))
    at = ctypes.addressof(code)
    scalars[PC], scalars[PC + 1] = at & 0xFFFFFFFF, at >> 32
    step, checkout = Step(), Checkout()
    checkout.fill(step, at, target)
    if step.native:  # one of our own
        wave = Wave(scalars.ctypes.data, vectors.ctypes.data, vectors.ctypes.data, None, 0)
        ours = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(step.native)
        assert ours(ctypes.addressof(wave), step.data) == 0
        return _changed(before, vectors)
    buffers: list[Any] = [scalars.ctypes.data, vectors.ctypes.data, None, None, None, vectors.ctypes.data]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6)(step.compiled)
    given = [buffers[step.arguments[index]] for index in range(step.argument_count)]
    function(*given, *[None] * (6 - len(given)))
    return _changed(before, vectors)


def _changed(before: Any, after: Any) -> dict[int, list[int]]:
    changed = np.nonzero((after != before).any(axis=1))[0]
    return {int(one): after[one].tolist() for one in changed}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(json.dumps(run(asked["words"], {int(k): v for k, v in asked["registers"].items()}, asked["target"])))
