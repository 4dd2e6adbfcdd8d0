"""Module graphs drawn by a seed: tokens and images through linear layers, convolutions, attention and gated MLPs.

A graph is a module of PyTorch's own; `ours` is the same module with our layers, MLPs, attention and fused calls.  Both
have the same parameters, so that one float64 copy is the measure of both.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import torch

import tilewright as tw
from tilewright.torch import fuse_mlps, replace_modules, scaled_dot_product_attention

F: Any = torch.nn.functional
nn: Any = torch.nn
FUSED: dict[str, Any] = {
    "passthrough": lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "fastgelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
POINTWISE: tuple[Any, ...] = (torch.relu, F.gelu, F.silu, torch.tanh)


class Step(nn.Module):  # type: ignore[misc]
    """One node; `ours` says whose functions its plain calls are, where it makes any."""

    ours = False


class Fused(Step):
    """A product with bias, activation and residual as one call of ours."""

    def __init__(self, draw: random.Random, size: int, result: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, result) / size**0.5)
        self.bias = nn.Parameter(torch.randn(result)) if draw.random() < 0.6 else None
        self.epilogue = draw.choice(list(FUSED))
        self.residual = result == size and draw.random() < 0.3

    def forward(self, x: Any) -> Any:
        residual = x if self.residual else None
        if self.ours:
            return tw.gemm(x, self.weight, bias=self.bias, residual=residual, epilogue=self.epilogue)
        made = x @ self.weight
        made = made if self.bias is None else made + self.bias
        return FUSED[self.epilogue](made if residual is None else made + residual)


class Attention(Step):
    def __init__(self, draw: random.Random, size: int) -> None:
        super().__init__()
        self.head = draw.choice([8, 16, 24])
        self.heads = draw.choice([1, 2, 4])
        self.shared = draw.choice([one for one in (1, 2, 4) if self.heads % one == 0])
        self.causal, self.masked = draw.random() < 0.4, draw.random() < 0.3
        self.q = nn.Linear(size, self.heads * self.head, bias=draw.random() < 0.5)
        self.kv = nn.Linear(size, 2 * self.shared * self.head, bias=False)
        self.out = nn.Linear(self.heads * self.head, size)

    def forward(self, x: Any) -> Any:
        rows = x.shape[1]
        q = self.q(x).unflatten(-1, (self.heads, self.head)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.shared, self.head)).permute(2, 0, 3, 1, 4)
        mask = None
        if self.masked and not self.causal:
            places = torch.arange(rows, device=x.device)
            mask = (places[:, None] * 5 + places * 3) % 4 != 1
            mask = mask | (places[:, None] == places)
        function = scaled_dot_product_attention if self.ours else F.scaled_dot_product_attention
        made = function(q, k, v, attn_mask=mask, is_causal=self.causal, enable_gqa=self.shared != self.heads)
        return self.out(made.transpose(1, 2).flatten(2))


class Gated(Step):
    def __init__(self, draw: random.Random, size: int) -> None:
        super().__init__()
        inner = draw.choice([8, 24, 40])
        self.gate, self.up = (nn.Linear(size, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, size, bias=draw.random() < 0.5)
        self.act = draw.choice([nn.SiLU(), nn.GELU(), nn.GELU("tanh")])

    def forward(self, x: Any) -> Any:
        return self.down(self.act(self.gate(x)) * self.up(x))


class Pointwise(Step):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Conv1dOfTokens(Step):
    def __init__(self, draw: random.Random, size: int) -> None:
        super().__init__()
        taps = draw.choice([1, 3, 5])
        groups = draw.choice([1, 1, 2, size])
        self.conv = nn.Conv1d(size, size, taps, padding="same", groups=groups, bias=draw.random() < 0.5)

    def forward(self, x: Any) -> Any:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


class Graph(nn.Module):  # type: ignore[misc]
    """Steps in the order they are computed, each with the values it reads; the result is the sum of the last values."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.steps, self.sources = nn.ModuleList(), []
        self.images = draw.random() < 0.45
        size = draw.choice([8, 16, 24, 32])
        if self.images:
            self.shape: tuple[int, ...] = draw.choice([1, 2]), size, draw.randint(5, 11), draw.randint(5, 11)
        else:
            self.shape = draw.choice([1, 2, 3]), draw.randint(1, 17), size
        for at in range(draw.randint(2, 6)):
            residual = at if draw.random() < 0.35 else None
            source = draw.randint(max(0, at - 1), at)
            self.steps.append(self._image_step(draw, size) if self.images else self._token_step(draw, size))
            self.sources.append((source, residual))
        self.last = nn.Linear(size, draw.choice([1, 7, 16]))

    @staticmethod
    def _token_step(draw: random.Random, size: int) -> Any:
        kinds: list[Any] = [
            lambda: Fused(draw, size, size),
            lambda: nn.Linear(size, size, bias=draw.random() < 0.7),
            lambda: Attention(draw, size),
            lambda: Gated(draw, size),
            lambda: Conv1dOfTokens(draw, size),
            lambda: nn.LayerNorm(size),
            lambda: Pointwise(draw.choice(POINTWISE)),
        ]
        return draw.choice(kinds)()

    @staticmethod
    def _image_step(draw: random.Random, size: int) -> Any:
        taps, dilation = draw.choice([(1, 1), (3, 1), (3, 2), (5, 1)])
        groups = draw.choice([1, 1, 1, 2, size])
        conv = nn.Conv2d(
            size, size, taps, padding=dilation * (taps // 2), dilation=dilation, groups=groups,
            bias=draw.random() < 0.6,
        )  # fmt: skip
        kinds = [conv, conv, conv, nn.GroupNorm(2, size), Pointwise(draw.choice(POINTWISE))]
        return draw.choice(kinds)

    def forward(self, x: Any) -> Any:
        values = [x]
        for step, (source, residual) in zip(self.steps, self.sources, strict=True):
            made = step(values[source])
            values.append(made if residual is None else made + values[residual])
        made = values[-1] if len(values) < 3 else values[-1] + 0.5 * values[-2]
        return self.last(made.flatten(2).transpose(1, 2) if self.images else made)


def drawn(seed: int) -> tuple[Any, Any, Any]:
    """PyTorch's graph of a seed, the same as ours, and an input; parameters of both are equal."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    graph = Graph(draw)
    x = torch.randn(graph.shape)
    dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16])
    graph, x = graph.to(dtype), x.to(dtype)
    if graph.images and draw.random() < 0.4:
        x = x.to(memory_format=torch.channels_last)
    ours = copy.deepcopy(graph)
    for step in ours.modules():
        if isinstance(step, Step):
            step.ours = True
    replace_modules(ours)
    if draw.random() < 0.7:
        fuse_mlps(ours)
    return graph, ours, x


def results(graph: Any, x: Any, call: Any = None) -> list[Any]:
    """The result, and the gradients of the input and of every parameter, in float64."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    made = (graph if call is None else call)(x)
    weights = torch.linspace(-0.5, 1, made.numel(), dtype=torch.float64).reshape(made.shape).to(made.dtype)
    found = torch.autograd.grad((made * weights).sum(), [x, *graph.parameters()], allow_unused=True)
    return [one if one is None else one.detach().double() for one in (made, *found)]


def beyond(seed: int, compiled: str = "") -> float:
    """How far our graph of a seed is from float64, over what is allowed: over 1 is wrong.

    Allowed is what PyTorch itself loses, eight times (sums of other orders, activations fused before they are rounded),
    and 64 roundings of the largest number of a result; what cancels (a gradient of 0) is as large as a hundredth of the
    largest number of all, because its terms are.
    """
    graph, ours, x = drawn(seed)
    exact, theirs = results(copy.deepcopy(graph).double(), x.double()), results(graph, x)
    made = results(ours, x, torch.compile(ours, backend=compiled, fullgraph=True) if compiled else None)
    roundoff = torch.finfo(x.dtype).eps / 2
    worst, largest = 0.0, max(float(one.abs().max()) for one in exact if one is not None)
    for one, other, right in zip(made, theirs, exact, strict=True):
        if right is None:
            assert one is None
            continue
        assert one.shape == right.shape
        size = max(float(right.abs().max()), largest / 100)
        allowed = 8 * (other - right).abs().max() + 64 * roundoff * size
        worst = max(worst, float((one - right).abs().max() / allowed)) if torch.isfinite(one).all() else float("inf")
    return worst
