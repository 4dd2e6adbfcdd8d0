"""Convolutions that conv_h200.py times: those of known networks, and random ones by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tilewright.ops.conv import ConvProblem

Sizes = tuple[int, ...]
VARIANTS = ("forward", "backward_data", "backward_weight")


@dataclass(frozen=True)
class Shape:
    batch: int
    channels: int
    filters: int
    groups: int
    size: Sizes
    window: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    @property
    def group(self) -> str:
        """What the goals tell apart."""
        if self.groups == self.channels and self.groups > 1:
            return "depthwise"
        if self.groups > 1:
            return "grouped"
        return "few channels" if self.channels <= 4 else "dense"

    @property
    def name(self) -> str:
        size = "x".join(map(str, self.size))
        text = f"n{self.batch}c{self.channels}k{self.filters}g{self.groups}_{size}_w{self.window}s{self.stride}"
        return text + f"p{self.padding}" + (f"d{self.dilation}" if self.dilation > 1 else "")

    def problem(self, variant: str, dtype: str = "bf16") -> ConvProblem:
        rank = len(self.size)
        return ConvProblem(
            batch=self.batch,
            channels=self.channels,
            filters=self.filters,
            size=self.size,
            window=(self.window,) * rank,
            groups=self.groups,
            stride=(self.stride,) * rank,
            dilation=(self.dilation,) * rank,
            before=(self.padding,) * rank,
            variant=variant,
            dtype=dtype,
        )


# Of ResNet-50, ResNeXt, ConvNeXt, MobileNet, a segmentation net, diffusion UNets and 3D ones.
SHAPES = (
    Shape(32, 64, 64, 1, (56, 56), 3, 1, 1),
    Shape(32, 64, 256, 1, (56, 56), 1),
    Shape(128, 64, 64, 1, (56, 56), 3, 1, 1),
    Shape(128, 128, 128, 1, (28, 28), 3, 1, 1),
    Shape(128, 256, 256, 1, (14, 14), 3, 1, 1),
    Shape(128, 512, 512, 1, (7, 7), 3, 1, 1),
    Shape(128, 256, 512, 1, (56, 56), 1, 2),
    Shape(128, 3, 64, 1, (224, 224), 7, 2, 3),
    Shape(32, 128, 128, 32, (56, 56), 3, 1, 1),
    Shape(32, 1024, 1024, 32, (14, 14), 3, 1, 1),
    Shape(64, 96, 96, 96, (56, 56), 7, 1, 3),
    Shape(64, 384, 384, 384, (14, 14), 3, 1, 1),
    Shape(16, 256, 256, 1, (64, 64), 3, 1, 2, 2),
    Shape(1, 512, 512, 1, (64, 64), 3, 1, 1),
    Shape(8, 320, 320, 1, (128, 128), 3, 1, 1),
    Shape(2, 64, 64, 1, (32, 64, 64), 3, 1, 1),
    Shape(4, 128, 128, 1, (16, 32, 32), 3, 1, 1),
    Shape(1, 32, 64, 1, (64, 128, 128), 3, 2, 1),
    Shape(4, 64, 128, 4, (16, 56, 56), 3, 1, 1),
)

MOST_FLOPS, LEAST_FLOPS = 2e11, 2e8
FAMILIES = ("dense", "pointwise", "volume", "grouped", "depthwise", "few")


def drawn(seed: int, count: int) -> list[Shape]:
    """Of every family in turn: sizes by powers of two and a jitter, so that few of them are round."""
    rng = random.Random(seed)
    found: list[Shape] = []
    while len(found) < count:
        one = _draw(rng, FAMILIES[len(found) % len(FAMILIES)])
        p = one.problem("forward")
        if min(p.out) > 0 and LEAST_FLOPS <= p.flops <= MOST_FLOPS and p.bytes < 1 << 30:
            found.append(one)
    return found


def _draw(rng: random.Random, family: str) -> Shape:
    def about(low: int, high: int, grain: int = 1) -> int:
        value = 2 ** rng.uniform(low, high)
        return max(grain, round(value / grain) * grain)

    rank = 3 if family == "volume" else 2
    size = tuple(about(3, 5.5 if rank == 3 else 7.5) for _ in range(rank))  # type: ignore[arg-type]
    window = 1 if family == "pointwise" else rng.choice((3, 3, 3, 5, 7) if family == "depthwise" else (3, 3, 3, 5))
    stride = rng.choice((1, 1, 1, 2))
    dilation = rng.choice((1, 1, 1, 1, 2)) if window > 1 else 1
    padding = rng.choice((0, (window - 1) * dilation // 2, (window - 1) * dilation // 2))
    channels, filters = about(4, 9, 8), about(4, 9, 8)
    one = Shape(about(0, 7), channels, filters, 1, size, window, stride, padding, dilation)
    if family == "grouped":
        groups, each = rng.choice((2, 4, 8, 16, 32)), rng.choice((4, 8, 16, 32, 64))
        one = replace(one, groups=groups, channels=groups * each, filters=groups * each * rng.choice((1, 1, 2)))
    elif family == "depthwise":
        one = replace(one, groups=channels, filters=channels)
    elif family == "few":
        one = replace(one, channels=rng.choice((1, 3, 3, 4)), window=rng.choice((3, 5, 7)), dilation=1)
        one = replace(one, padding=one.window // 2, filters=about(4, 7, 8))
    return one
