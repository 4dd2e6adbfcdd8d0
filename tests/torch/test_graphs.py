"""Graphs of modules drawn at random: ours beside PyTorch's, forward and backward, eager and compiled.

Both are measured against the same graph in float64.  `make test-proofs` draws 2,000 of them.
"""

from __future__ import annotations

import copy
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import tilewright as tw

torch: Any = pytest.importorskip("torch")
tilewright_torch: Any = pytest.importorskip("tilewright.torch", exc_type=ImportError)
F: Any = torch.nn.functional

WIDTHS = (4, 8, 12)
ACTIVATIONS: dict[str, Any] = {
    "relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
    "passthrough": lambda z: z,
}  # fmt: skip
KINDS = ("linear", "fused", "conv", "attention", "product", "scores", "activation")


class Step(NamedTuple):
    """A node: its kind, the node it reads, another one where it needs two, its width, and an activation."""

    kind: str
    first: int
    second: int
    width: int
    activation: str


class Graph(torch.nn.Module):  # type: ignore[misc]
    """Nodes of shape (batch, rows, width); the sum of what each says is the result."""

    def __init__(self, steps: list[Step], ours: bool) -> None:
        super().__init__()
        self.steps, self.ours = steps, ours
        self.parts = torch.nn.ModuleList()
        widths = [8]
        for step in steps:
            read = widths[step.first % len(widths)]
            part, width = self._part(step, read)
            self.parts.append(part)
            widths.append(width)

    def _part(self, step: Step, read: int) -> tuple[Any, int]:
        if step.kind in ("linear", "fused"):
            return torch.nn.Linear(read, step.width), step.width
        if step.kind == "conv":
            return torch.nn.Conv1d(read, step.width, 3, padding="same"), step.width
        return torch.nn.Identity(), read

    def forward(self, x: Any) -> Any:
        nodes = [x]
        for step, part in zip(self.steps, self.parts, strict=True):
            read = nodes[step.first % len(nodes)]
            alike = [one for one in nodes if one.shape == read.shape]
            nodes.append(self._node(step, part, read, alike[step.second % len(alike)]))
        return sum((one.mean(-1) for one in nodes[1:]), torch.zeros_like(x[..., 0]))

    def _node(self, step: Step, part: Any, read: Any, other: Any) -> Any:
        act = ACTIVATIONS[step.activation]
        if step.kind == "linear":
            return act(part(read))
        if step.kind == "fused":
            residual = other if other.shape[-1] == part.out_features else None
            if self.ours:
                return tw.gemm(read, part.weight.T, bias=part.bias, residual=residual, epilogue=step.activation)
            sums = part(read)
            return act(sums if residual is None else sums + residual)
        if step.kind == "conv":
            return act(part(read.transpose(1, 2)).transpose(1, 2))
        if step.kind == "product":
            return torch.tanh(read) * other
        if step.kind == "scores":
            scores = tw.matmul(read, other.transpose(1, 2)) if self.ours else read @ other.transpose(1, 2)
            return torch.softmax(scores / 4, -1) @ other
        if step.kind == "attention":
            attend = tilewright_torch.scaled_dot_product_attention if self.ours else F.scaled_dot_product_attention
            return attend(read, other, other, is_causal=step.activation == "relu")
        return act(read)


@st.composite
def graphs(draw: Any) -> tuple[list[Step], int, int]:
    one = st.builds(
        Step, st.sampled_from(KINDS), st.integers(0, 6), st.integers(0, 6), st.sampled_from(WIDTHS),
        st.sampled_from(sorted(ACTIVATIONS)),
    )  # fmt: skip
    return draw(st.lists(one, min_size=1, max_size=6)), draw(st.integers(1, 3)), draw(st.integers(2, 6))


def gradients(model: Any, x: Any) -> tuple[Any, list[Any]]:
    x = x.clone().requires_grad_()
    made = model(x)
    wanted = [x, *model.parameters()]
    found = torch.autograd.grad(made.square().sum(), wanted, allow_unused=True)
    filled = [torch.zeros_like(one) if got is None else got for one, got in zip(wanted, found, strict=True)]
    return made.detach(), filled


def close(found: Any, exact: Any, largest: float) -> bool:
    return bool((found.double() - exact).abs().max() <= 2e-5 * max(largest, float(exact.abs().max())))


def compare(drawn: tuple[list[Step], int, int], compiled: bool) -> None:
    steps, batch, rows = drawn
    torch.manual_seed(len(steps))
    theirs, ours = Graph(steps, False), Graph(steps, True)
    ours.load_state_dict(theirs.state_dict())
    tilewright_torch.replace_modules(ours)
    x = torch.randn(batch, rows, 8)
    exact, exact_gradients = gradients(copy.deepcopy(theirs).double(), x.double())
    call = ours
    if compiled:
        torch._dynamo.reset()
        call = torch.compile(ours, backend="aot_eager", fullgraph=True)
    found, found_gradients = gradients(call, x)
    assert close(found, exact, 1.0)
    largest = max(float(one.abs().max()) for one in exact_gradients)
    for one, other in zip(found_gradients, exact_gradients, strict=True):
        assert close(one, other, largest)
    with torch.no_grad():
        assert close(call(x), exact, 1.0)


CALM = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=25, suppress_health_check=CALM)
@given(graphs())
def test_drawn_graphs(drawn: tuple[list[Step], int, int]) -> None:
    compare(drawn, compiled=False)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch.compile follows new Pythons late")
@settings(max_examples=4, suppress_health_check=CALM)
@given(graphs())
def test_drawn_graphs_compiled(drawn: tuple[list[Step], int, int]) -> None:

    compare(drawn, compiled=True)


@pytest.mark.proof
@pytest.mark.parametrize("part", range(8))
def test_two_thousand_graphs(part: int) -> None:

    @seed(part)
    @settings(max_examples=250, suppress_health_check=CALM, derandomize=False, database=None)
    @given(graphs())
    def both(drawn: tuple[list[Step], int, int]) -> None:
        compare(drawn, compiled=False)
        compare(drawn, compiled=True)

    both()
