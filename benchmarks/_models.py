"""Models of known shapes with random weights, for models_cpu.py: each forward is written once, in the words of a kit.

A kit says who computes linear layers, convolutions and attention.  `Plain` asks the modules and PyTorch's attention,
`DropIn` the same modules after `replace_modules` and our `scaled_dot_product_attention`: the two lines a user writes.
`Calls` is what one writes by hand: `tw.*` calls on the weights, with activations and residuals fused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import tilewright as tw
import tilewright.torch

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class Plain:
    """PyTorch's own: modules as they are."""

    attend = staticmethod(functional.scaled_dot_product_attention)

    def layer(self, x: Any, module: Any, activation: str = "", residual: Any = None) -> Any:
        """activation(module(x) + residual)."""
        y = module(x)
        return ACTIVATIONS[activation](y if residual is None else y + residual)

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        """Of (batch, heads, seqlen, head_dim); keys may have fewer heads."""
        return self.attend(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


class DropIn(Plain):
    """Modules that `replace_modules` changed, and the attention with PyTorch's signature."""

    attend = staticmethod(tilewright.torch.scaled_dot_product_attention)


class Calls(Plain):
    """Plain calls with everything fused that they take."""

    def layer(self, x: Any, module: Any, activation: str = "", residual: Any = None) -> Any:
        epilogue, weight = activation or "passthrough", module.weight
        if not isinstance(module, nn.Linear):
            stride, padding = module.stride, module.padding
            return tw.conv(
                x, weight, module.bias, stride=stride, padding=padding, layout="nchw", epilogue=epilogue,
                residual=residual,
            )  # fmt: skip
        rows = x.reshape(-1, x.shape[-1])
        added = None if residual is None else residual.reshape(-1, residual.shape[-1]).contiguous()
        y = tw.gemm(rows, weight.T, bias=module.bias, residual=added, epilogue=epilogue)
        return y.view(*x.shape[:-1], y.shape[-1])

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        return tw.attention(q, k, v, causal=causal, layout="bhsd")


def heads_of(x: Any, heads: int) -> Any:
    """(batch, rows, features) as (batch, heads, rows, head_dim): a view."""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class EncoderLayer(nn.Module):  # type: ignore[misc]
    """Attention and a GELU network behind layer norms: a layer of ViT and of Whisper's encoder."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, kit: Plain) -> Any:
        q, k, v = (heads_of(one, self.heads) for one in kit.layer(self.before(x), self.qkv).chunk(3, dim=-1))
        seen = kit.attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = kit.layer(seen, self.out, residual=x)
        return kit.layer(kit.layer(self.between(x), self.up, "gelu"), self.down, residual=x)


class ViT(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.place = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, kit: Plain, image: Any) -> Any:
        x = kit.layer(image, self.patches).flatten(2).transpose(1, 2)
        x = functional.pad(x, (0, 0, 1, 0)) + self.place
        for layer in self.layers:
            x = layer(x, kit)
        return kit.layer(self.norm(x)[:, 0], self.head)


class Whisper(nn.Module):  # type: ignore[misc]
    """The encoder."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.place = nn.Parameter(0.02 * torch.randn(1, 1500, width))
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, kit: Plain, sound: Any) -> Any:
        x = kit.layer(kit.layer(sound, self.first, "gelu"), self.second, "gelu").transpose(1, 2) + self.place
        for layer in self.layers:
            x = layer(x, kit)
        return self.norm(x)


class Block(nn.Module):  # type: ignore[misc]
    """Of ResNet-18, its batch norms folded into the convolutions, as for inference, or as they are trained."""

    def __init__(self, narrow: int, wide: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Conv2d(narrow, wide, 3, stride=stride, padding=1)
        self.second = nn.Conv2d(wide, wide, 3, padding=1)
        self.beside = nn.Conv2d(narrow, wide, 1, stride=stride) if stride > 1 or narrow != wide else None
        self.norms = nn.ModuleList(norm(wide) for _ in range(3 if self.beside is not None else 2))
        self.folded = isinstance(self.norms[0], nn.Identity)

    def forward(self, x: Any, kit: Plain) -> Any:
        beside = x if self.beside is None else kit.layer(x, self.beside)
        if self.folded:
            return kit.layer(kit.layer(x, self.first, "relu"), self.second, "relu", residual=beside)
        beside = beside if self.beside is None else self.norms[2](beside)
        y = functional.relu(self.norms[0](kit.layer(x, self.first)))
        return functional.relu(self.norms[1](kit.layer(y, self.second)) + beside)


class ResNet(nn.Module):  # type: ignore[misc]
    def __init__(self, folded: bool) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.Identity if folded else nn.BatchNorm2d
        self.stem, self.norm = nn.Conv2d(3, 64, 7, stride=2, padding=3), norm(64)
        widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
        self.blocks = nn.ModuleList(
            Block(narrow, wide, 1 + (narrow != wide), norm) for narrow, wide in pairwise(widths)
        )
        self.head = nn.Linear(512, 1000)
        self.folded = folded

    def forward(self, kit: Plain, image: Any) -> Any:
        x = (
            kit.layer(image, self.stem, "relu")
            if self.folded
            else functional.relu(self.norm(kit.layer(image, self.stem)))
        )
        x = functional.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            x = block(x, kit)
        return kit.layer(x.mean((2, 3)), self.head)


class UNetBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions behind group norms with a residual, then attention over all places, as in diffusion models."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for _ in range(3))
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, kit: Plain, x: Any) -> Any:
        y = kit.layer(functional.silu(self.norms[0](x)), self.first)
        x = kit.layer(functional.silu(self.norms[1](y)), self.second, residual=x)
        rows = self.norms[2](x).flatten(2).transpose(1, 2)
        q, k, v = (heads_of(one, self.heads) for one in kit.layer(rows, self.qkv).chunk(3, dim=-1))
        seen = kit.attention(q, k, v).transpose(1, 2).reshape(rows.shape)
        return kit.layer(seen, self.out, residual=x.flatten(2).transpose(1, 2))


def turned(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding, halves turned."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """RMS norms, rotary embedding, grouped heads, gate and up projections: a layer of Llama."""

    def __init__(self, width: int, heads: int, heads_kv: int, hidden: int, context: int) -> None:
        super().__init__()
        self.heads, self.heads_kv, size = heads, heads_kv, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * heads_kv) * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.register_buffer("keys", torch.randn(1, heads_kv, context, size))
        self.register_buffer("values", torch.randn(1, heads_kv, context, size))

    def forward(self, x: Any, kit: Plain, cos: Any, sin: Any, at: int) -> Any:
        rows, size = x.shape[1], x.shape[2] // self.heads
        mine = [self.heads * size, self.heads_kv * size, self.heads_kv * size]
        q, k, v = kit.layer(self.before(x), self.qkv).split(mine, dim=-1)
        q, k = (turned(heads_of(one, n), cos, sin) for one, n in ((q, self.heads), (k, self.heads_kv)))
        self.keys[:, :, at : at + rows] = k
        self.values[:, :, at : at + rows] = heads_of(v, self.heads_kv)
        keys, values = self.keys[:, :, : at + rows], self.values[:, :, : at + rows]
        seen = kit.attention(q, keys, values, causal=rows > 1).transpose(1, 2).reshape(x.shape)
        x = kit.layer(seen, self.out, residual=x)
        y = self.between(x)
        return kit.layer(kit.layer(y, self.gate, "silu") * kit.layer(y, self.up), self.down, residual=x)


class Llama(nn.Module):  # type: ignore[misc]
    """A decoder: a prompt from the beginning, or one token behind `context - 1` others."""

    def __init__(self, width: int, heads: int, heads_kv: int, hidden: int, layers: int, context: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(width, heads, heads_kv, hidden, context) for _ in range(layers))
        self.norm, self.context = nn.RMSNorm(width), context
        half = width // heads // 2
        angles = torch.arange(context)[:, None] / 10000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, kit: Plain, x: Any) -> Any:
        at = 0 if x.shape[1] > 1 else self.context - 1
        cos, sin = (one[at : at + x.shape[1]] for one in (self.cos, self.sin))
        for layer in self.layers:
            x = layer(x, kit, cos, sin, at)
        return self.norm(x)


@dataclass(frozen=True)
class Case:
    """A model by its name, what makes it, the shape of its input, and what it is of."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    about: str


CASES = (
    Case("vit", lambda: ViT(384, 6, 4), (8, 3, 224, 224), "ViT-S/16, four layers, batch 8"),
    Case("resnet18", lambda: ResNet(folded=False), (4, 3, 224, 224), "ResNet-18, batch 4, channels_last"),
    Case("resnet18 folded", lambda: ResNet(folded=True), (4, 3, 224, 224), "the same, batch norms folded"),
    Case("unet block", lambda: UNetBlock(320, 8), (1, 320, 32, 32), "320 channels, 32 x 32, channels_last"),
    Case("whisper", lambda: Whisper(384, 6, 4), (1, 80, 3000), "encoder of Whisper tiny, 30 seconds of sound"),
    Case("llama prefill", lambda: Llama(1024, 16, 4, 2816, 4, 256), (1, 256, 1024), "four layers, 256 tokens"),
    Case("llama decode", lambda: Llama(1024, 16, 4, 2816, 4, 1024), (1, 1, 1024), "four layers, context 1024"),
)


def built(case: Case, seed: int, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    """The model with weights by the seed, and an input."""
    torch.manual_seed(seed)
    model, x = case.make().eval(), torch.randn(case.shape)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: neither 0 nor 1
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return model.to(dtype), x.to(dtype)
