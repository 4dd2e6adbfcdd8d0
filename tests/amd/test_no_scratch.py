"""Kernels of the pools keep everything in registers: what the rules let pass, drawn by seed, does not spill."""

from __future__ import annotations

import pytest

from tests.amd_emulated.survey import draw, measure

pytestmark = pytest.mark.amd

SEED, COUNT = 20261115, 3  # an eighth of a minute each


@pytest.mark.parametrize("index", range(COUNT))
def test_a_legal_kernel_has_no_scratch(index: int) -> None:
    archs = ("gfx90a", "gfx942", "gfx950")
    found = measure(draw(f"scratch {SEED} {index}", [archs[index % 3]]))
    assert found.get("scratch") == 0, found
