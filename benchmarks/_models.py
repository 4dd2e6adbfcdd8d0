"""Models of known shapes with random weights, for models_cpu.py and models_h200.py: each forward is written once, in
the words of a kit.

A kit says who computes linear layers, convolutions and attention.  `Plain` asks the modules and PyTorch's attention,
`DropIn` the same modules after `replace_modules` and our `scaled_dot_product_attention`: the two lines a user writes.
`Calls` is what one writes by hand: `tw.*` calls on the weights, with activations and residuals fused, and rotary
embedding in the call that appends keys to the cache.  `Exact` is for references: attention in parts that fit a memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

import tilewright as tw
import tilewright.torch

EPS = 1e-5  # the default depends on the type, so float64 would compute another function
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
}


class Place(NamedTuple):
    """Where rows are appended: behind `at` others of every sequence, which `lengths` says too; and tables of the rotary
    embedding."""

    cos: Any
    sin: Any
    lengths: Any
    at: int


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

    def gated(self, x: Any, gate: Any, up: Any) -> Any:
        """silu(gate(x)) * up(x)."""
        return self.layer(x, gate, "silu") * self.layer(x, up)

    def appended(self, q: Any, k: Any, v: Any, keys: Any, values: Any, place: Place) -> Any:
        """The queries after rotary embedding; keys, embedded too, and values go into the cache."""
        rows = slice(place.at, place.at + k.shape[2])
        cos, sin = place.cos[rows], place.sin[rows]
        keys[:, :, rows] = turned(k, cos, sin)
        values[:, :, rows] = v
        return turned(q, cos, sin)


class Exact(Plain):
    """PyTorch's in the type of the queries, which the cache need not have; one part of the batch after the other."""

    MOST_BYTES = 1 << 31  # of the keys, and of the scores, of a part

    def attention(self, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        heads, group = k.shape[1], q.shape[1] // k.shape[1]
        made = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype, device=q.device)
        each = 8 * k.shape[2] * max(k.shape[3], group * q.shape[2])  # bytes of a head's keys, or of its scores
        step = max(1, self.MOST_BYTES // each)
        for one in range(q.shape[0]):
            for head in range(0, heads, step):
                mine, theirs = slice(head, head + step), slice(head * group, (head + step) * group)
                parts = k[one : one + 1, mine].to(q.dtype), v[one : one + 1, mine].to(q.dtype)
                made[one : one + 1, theirs] = self.attend(
                    q[one : one + 1, theirs], *parts, is_causal=causal, enable_gqa=group > 1
                )
        return made


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

    def gated(self, x: Any, gate: Any, up: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        y = tw.gated_gemm(rows, gate.weight.T, up.weight.T)
        return y.view(*x.shape[:-1], y.shape[-1])

    def appended(self, q: Any, k: Any, v: Any, keys: Any, values: Any, place: Place) -> Any:
        tables = (place.cos, place.sin, "half")
        return tw.append_kv(
            keys, values, k, v, cache_seqlens=place.lengths, rotary=tables, q=q, layout="bhsd"
        ).q  # fmt: skip


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

    def __init__(self, width: int, heads: int, layers: int, mels: int = 80, rows: int = 1500) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(mels, width, 3, padding=1), nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.place = nn.Parameter(0.02 * torch.randn(1, rows, width))
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


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Of ResNet-50: 1x1, 3x3 and 1x1, four times as wide behind as within."""

    def __init__(self, narrow: int, wide: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        within = wide // 4
        self.first, self.second = nn.Conv2d(narrow, within, 1), nn.Conv2d(within, within, 3, stride=stride, padding=1)
        self.third = nn.Conv2d(within, wide, 1)
        self.beside = nn.Conv2d(narrow, wide, 1, stride=stride) if stride > 1 or narrow != wide else None
        self.norms = nn.ModuleList(norm(one) for one in (within, within, wide, wide)[: 3 + (self.beside is not None)])
        self.folded = isinstance(self.norms[0], nn.Identity)

    def forward(self, x: Any, kit: Plain) -> Any:
        beside = x if self.beside is None else kit.layer(x, self.beside)
        if self.folded:
            y = kit.layer(kit.layer(x, self.first, "relu"), self.second, "relu")
            return kit.layer(y, self.third, "relu", residual=beside)
        beside = beside if self.beside is None else self.norms[3](beside)
        y = functional.relu(self.norms[0](kit.layer(x, self.first)))
        y = functional.relu(self.norms[1](kit.layer(y, self.second)))
        return functional.relu(self.norms[2](kit.layer(y, self.third)) + beside)


RESNET18 = (64, 64, 128, 128, 256, 256, 512, 512)
RESNET50 = (*(256,) * 3, *(512,) * 4, *(1024,) * 6, *(2048,) * 3)


class ResNet(nn.Module):  # type: ignore[misc]
    """By the widths behind its blocks, of which the first of each width but the first halves the image."""

    def __init__(
        self, folded: bool, widths: tuple[int, ...] = RESNET18, block: Callable[..., nn.Module] = Block
    ) -> None:
        super().__init__()
        norm: Callable[[int], nn.Module] = nn.Identity if folded else nn.BatchNorm2d
        self.stem, self.norm = nn.Conv2d(3, 64, 7, stride=2, padding=3), norm(64)
        self.blocks = nn.ModuleList(
            block(narrow, wide, 1 + (narrow != wide and wide != widths[0]), norm)
            for narrow, wide in pairwise((64, *widths))
        )
        self.head = nn.Linear(widths[-1], 1000)
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


@dataclass(frozen=True)
class Decoder:
    """The shape of a layer: Llama-8B by default."""

    width: int = 4096
    heads: int = 32
    heads_kv: int = 8
    hidden: int = 14336
    bias: bool = False  # of queries, keys and values


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """RMS norms, rotary embedding, grouped heads, gate and up projections: a layer of Llama and of Qwen."""

    def __init__(self, shape: Decoder, batch: int, context: int, cached: Any) -> None:
        super().__init__()
        self.shape, width, size = shape, shape.width, shape.width // shape.heads
        self.before, self.between = nn.RMSNorm(width, EPS), nn.RMSNorm(width, EPS)
        self.qkv = nn.Linear(width, (shape.heads + 2 * shape.heads_kv) * size, bias=shape.bias)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, shape.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.hidden, width, bias=False)
        self.register_buffer("keys", torch.randn(batch, shape.heads_kv, context, size, dtype=cached))
        self.register_buffer("values", torch.randn(batch, shape.heads_kv, context, size, dtype=cached))

    def forward(self, x: Any, kit: Plain, place: Place) -> Any:
        heads, heads_kv = self.shape.heads, self.shape.heads_kv
        rows, size = x.shape[1], x.shape[2] // heads
        q, k, v = kit.layer(self.before(x), self.qkv).split([heads * size, heads_kv * size, heads_kv * size], dim=-1)
        q, k, v = heads_of(q, heads), heads_of(k, heads_kv), heads_of(v, heads_kv)
        q = kit.appended(q, k, v, self.keys, self.values, place)
        keys, values = (one[:, :, : place.at + rows] for one in (self.keys, self.values))
        seen = kit.attention(q, keys, values, causal=rows > 1).transpose(1, 2).reshape(x.shape)
        x = kit.layer(seen, self.out, residual=x)
        return kit.layer(kit.gated(self.between(x), self.gate, self.up), self.down, residual=x)


class Llama(nn.Module):  # type: ignore[misc]
    """A decoder: prompts from the beginning, or one token of each sequence behind `context - 1` others.  `cached` is
    the type its cache is made in."""

    def __init__(
        self, shape: Decoder, layers: int, context: int, batch: int = 1, rows: int = 1, cached: Any = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(shape, batch, context, cached) for _ in range(layers))
        self.norm, self.at = nn.RMSNorm(shape.width, EPS), 0 if rows > 1 else context - 1
        half = shape.width // shape.heads // 2
        angles = torch.arange(context, dtype=torch.float32)[:, None] / 10000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("lengths", torch.full((batch,), self.at, dtype=torch.int32))

    def forward(self, kit: Plain, x: Any) -> Any:
        place = Place(self.cos, self.sin, self.lengths, self.at)
        for layer in self.layers:
            x = layer(x, kit, place)
        return self.norm(x)


@dataclass(frozen=True)
class Case:
    """A model by its name, what makes it, the shape of its input, and what it is of."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    about: str


SMALL = Decoder(1024, 16, 4, 2816)

CASES = (
    Case("vit", lambda: ViT(384, 6, 4), (8, 3, 224, 224), "ViT-S/16, four layers, batch 8"),
    Case("resnet18", lambda: ResNet(folded=False), (4, 3, 224, 224), "ResNet-18, batch 4, channels_last"),
    Case("resnet18 folded", lambda: ResNet(folded=True), (4, 3, 224, 224), "the same, batch norms folded"),
    Case("unet block", lambda: UNetBlock(320, 8), (1, 320, 32, 32), "320 channels, 32 x 32, channels_last"),
    Case("whisper", lambda: Whisper(384, 6, 4), (1, 80, 3000), "encoder of Whisper tiny, 30 seconds of sound"),
    Case("llama prefill", lambda: Llama(SMALL, 4, 256, rows=256), (1, 256, 1024), "four layers, 256 tokens"),
    Case("llama decode", lambda: Llama(SMALL, 4, 1024), (1, 1, 1024), "four layers, context 1024"),
)


def built(case: Case, seed: int, dtype: torch.dtype, device: str = "cpu") -> tuple[nn.Module, Any]:
    """The model with weights by the seed, and an input."""
    torch.manual_seed(seed)
    with torch.device(device):
        model, x = case.make().eval(), torch.randn(case.shape)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):  # as after training: neither 0 nor 1
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return model.to(dtype), x.to(dtype)
