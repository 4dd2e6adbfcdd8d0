"""Random module graphs are what eager PyTorch makes of them: forward and backward, compiled and not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tilewright import settings

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)

from tests.torch.random_graphs import beyond, drawn  # noqa: E402

pytestmark = pytest.mark.usefixtures("needs_compiler")
CHUNK = 50


@pytest.fixture(autouse=True)
def kernels_at_hand() -> Iterator[None]:
    """What is built serves most graphs: a compile for each new size would take most of the time."""
    with settings.override(missing="best_built"):
        yield


@hypothesis_settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1999))
def test_graphs_are_those_of_eager_pytorch(seed: int) -> None:
    assert beyond(seed) <= 1, f"seed {seed}"


def test_a_wrong_graph_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.torch import random_graphs

    def scaled(seed: int) -> object:
        graph, ours, x = drawn(seed)
        with torch.no_grad():
            ours.last.weight.mul_(1.01)
        return graph, ours, x

    monkeypatch.setattr(random_graphs, "drawn", scaled)
    assert beyond(2) > 1


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_graphs_are_those_of_eager_pytorch(backend: str) -> None:
    torch.compiler.reset()
    assert beyond(11, backend) <= 1


@pytest.mark.proof
@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_two_thousand_graphs(first: int) -> None:
    found = {seed: beyond(seed) for seed in range(first, first + CHUNK)}
    assert not {seed: ratio for seed, ratio in found.items() if not ratio <= 1}


@pytest.mark.proof
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_two_thousand_compiled_graphs(first: int, backend: str) -> None:
    found = {}
    for seed in range(first, first + CHUNK):
        torch.compiler.reset()
        found[seed] = beyond(seed, backend)
    assert not {seed: ratio for seed, ratio in found.items() if not ratio <= 1}
