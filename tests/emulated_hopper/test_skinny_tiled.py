"""Skinny kernels on more than a tile of the few."""

from __future__ import annotations

import pytest

from tests.backends.cpu.gemm.harness import Call
from tests.backends.cuda.gemm import names as make
from tests.emulated_hopper.emulator import GEMM, Emulator
from tests.emulated_hopper.test_skinny import wrong
from tests.emulated_hopper.test_tma_ws import problem, signature
from tilewright.ops import KernelSpec


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("tiles", [(2, 2, 4), (2, 4, 4)])
def test_many_tiles_of_the_few(emulator: Emulator, layout: str, tiles: tuple[int, int, int]) -> None:
    one = signature("bf16", layout, "bf16")
    spec = KernelSpec("gemm", one, make.skinny(*tiles, "none"), "sm_90a")
    assert GEMM.check(spec) == []
    assert wrong(emulator, spec, Call(problem(one, 72, 88, 136)), Call(problem(one, 100, 40, 264, batch=2))) == []
