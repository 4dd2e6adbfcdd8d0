"""fp32 attention and its gradients are at most twice as far from float64 as PyTorch's own path, on drawn problems."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)

from tests.torch.attention_errors import allowed, draw, errors  # noqa: E402

pytestmark = pytest.mark.usefixtures("needs_compiler")

SEED = int(os.environ.get("ERRORS_SEED", "20261117"))  # of the proof
PROOF, PART = 320, 20


def demand(seed: str, **limits: Any) -> None:
    problem = draw(seed, **limits)
    for name, error in errors(problem).items():
        usual, largest = allowed(problem, error)
        assert error.ours <= usual, f"{name} of {problem}: {error}"
        assert error.ours_largest <= largest, f"{name} of {problem}: {error}"


@pytest.mark.parametrize("index", range(6))
def test_short_problems(index: int) -> None:
    demand(f"quick {index}", most_keys=512, most_pairs=2e5)


@pytest.mark.proof
@pytest.mark.parametrize("part", range(PROOF // PART))
def test_three_hundred_problems(part: int) -> None:
    for index in range(PART):
        demand(f"{SEED} {part * PART + index}")
