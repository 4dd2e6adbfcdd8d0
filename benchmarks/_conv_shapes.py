"""The shapes of the convolution benchmark: those networks have, and random ones by seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

DIRECTIONS = ("forward", "backward_data", "backward_weight")


def _each(numbers: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    return numbers if isinstance(numbers, tuple) else (numbers,) * rank


@dataclass(frozen=True, slots=True)
class Shape:
    group: str
    batch: int
    channels: int
    filters: int
    size: tuple[int, ...]
    window: int | tuple[int, ...] = 3
    stride: int = 1
    padding: int | tuple[int, ...] = 1
    dilation: int = 1
    groups: int = 1

    @property
    def windows(self) -> tuple[int, ...]:
        return _each(self.window, len(self.size))

    @property
    def paddings(self) -> tuple[int, ...]:
        return _each(self.padding, len(self.size))

    @property
    def out(self) -> tuple[int, ...]:
        """0 or less where the window does not fit."""
        return tuple(
            (size + 2 * padding - (window - 1) * self.dilation - 1) // self.stride + 1
            for size, window, padding in zip(self.size, self.windows, self.paddings, strict=True)
        )

    @property
    def name(self) -> str:
        window = "x".join(map(str, self.windows if isinstance(self.window, tuple) else [self.window]))
        text = f"{self.batch}x{self.channels}>{self.filters} {'x'.join(map(str, self.size))} w{window}"
        for letter, value, plain in (("s", self.stride, 1), ("d", self.dilation, 1), ("g", self.groups, 1)):
            text += f" {letter}{value}" if value != plain else ""
        return text

    @property
    def products(self) -> int:
        made = self.batch * math.prod(self.out) * self.filters
        return int(made * self.channels // self.groups * math.prod(self.windows))


# The kinds of ../shared peers' tables: residual networks, first layers, groups, depthwise, diffusion, video.
FIXED = (
    Shape("dense", 1, 64, 64, (56, 56)),
    Shape("dense", 4, 64, 256, (56, 56), 1, padding=0),
    Shape("dense", 8, 64, 64, (56, 56)),
    Shape("dense", 8, 128, 128, (28, 28)),
    Shape("dense", 8, 256, 256, (14, 14)),
    Shape("dense", 8, 512, 512, (7, 7)),
    Shape("dense", 1, 512, 512, (7, 7)),
    Shape("dense", 4, 256, 512, (56, 56), 1, 2, 0),
    Shape("first", 4, 3, 64, (224, 224), 7, 2, 3),
    Shape("grouped", 4, 128, 128, (56, 56), groups=32),
    Shape("grouped", 4, 1024, 1024, (14, 14), groups=32),
    Shape("depthwise", 4, 96, 96, (56, 56), 7, padding=3, groups=96),
    Shape("depthwise", 8, 384, 384, (14, 14), groups=384),
    Shape("dense", 1, 256, 256, (64, 64), padding=2, dilation=2),
    Shape("dense", 1, 512, 512, (64, 64)),
    Shape("dense", 1, 320, 320, (128, 128)),
    Shape("3d", 1, 64, 64, (32, 64, 64)),
    Shape("3d", 1, 128, 128, (16, 32, 32)),
    Shape("3d", 1, 32, 64, (64, 128, 128), stride=2),
    Shape("3d", 1, 64, 128, (16, 56, 56), groups=4),
)
QUICK = ("1x64>64 56x56 w3", "4x64>256 56x56 w1", "8x384>384 14x14 w3 g384", "4x128>128 56x56 w3 g32")

SPECIAL = ("grouped", "depthwise", "3d")  # held to a target of their own
FAMILIES = ("dense", "pointwise", "strided", "first", "grouped", "depthwise", "3d")
RARE = ("audio", "separable", "large", "dilated", "tiny", "single")  # what networks have now and then
LEAST, MOST = 2e6, 2.5e9  # products of a random problem
RARE_LEAST = 1e5


def _log(draw: random.Random, low: float, high: float, grain: int = 1) -> int:
    return max(grain, round(math.exp(draw.uniform(math.log(low), math.log(high))) / grain) * grain)


def _drawn(draw: random.Random, family: str) -> Shape:
    """Sizes log-uniform; channels are multiples of 8, one in eight any number."""
    grain = 1 if draw.random() < 0.125 else 8
    batch, size = draw.choice((1, 1, 2, 4, 8)), _log(draw, 7, 96)
    channels, filters = (_log(draw, 16, 512, grain) for _ in range(2))
    window = draw.choice((3, 3, 3, 5, 7))
    sizes = (size, max(3, round(size * draw.choice((1.0, 1.0, 0.6, 1.6)))))
    if family == "pointwise":
        return Shape(family, batch, channels, filters, sizes, 1, draw.choice((1, 1, 2)), 0)
    if family == "strided":
        return Shape(family, batch, channels, filters, sizes, draw.choice((3, 3, 5)), 2, 1)
    if family == "first":
        return Shape(family, batch, draw.randint(1, 4), _log(draw, 16, 96, 8), tuple(3 * one for one in sizes),
                     window, draw.choice((1, 2, 4)), window // 2)  # fmt: skip
    if family == "grouped":
        groups, each = draw.choice((2, 4, 8, 16, 32, 64)), draw.choice((2, 3, 4, 8, 12, 16, 32))
        return Shape(family, batch, groups * each, groups * each * draw.choice((1, 1, 1, 2)), sizes, 3,
                     draw.choice((1, 1, 2)), 1, groups=groups)  # fmt: skip
    if family == "depthwise":
        return Shape(family, batch, channels, channels * draw.choice((1, 1, 1, 2)), sizes, window,
                     draw.choice((1, 1, 2)), window // 2, groups=channels)  # fmt: skip
    if family == "3d":
        size = _log(draw, 7, 40)
        return Shape(family, draw.choice((1, 1, 2)), _log(draw, 8, 128, grain), _log(draw, 8, 128, grain),
                     (_log(draw, 4, 32), size, size), 3, draw.choice((1, 1, 2)), 1)  # fmt: skip
    dilation = draw.choice((1, 1, 1, 2))
    return Shape(family, batch, channels, filters, sizes, window, 1, window // 2 * dilation, dilation)


def _rare(draw: random.Random, family: str) -> Shape:
    """One dimension, windows that are long or large, gaps between taps, hardly any pixels, one channel."""
    grain = 1 if draw.random() < 0.25 else 8
    batch, size = draw.choice((1, 1, 2, 4, 8)), _log(draw, 7, 96)
    channels, filters = (_log(draw, 8, 512, grain) for _ in range(2))
    if family == "audio":
        window, dilation = draw.choice((1, 3, 3, 5, 7, 11, 15)), draw.choice((1, 1, 1, 2, 4, 9))
        groups = draw.choice((1, 1, 1, channels))
        return Shape(family, batch, channels, filters if groups == 1 else channels, (_log(draw, 64, 16000),), window,
                     draw.choice((1, 1, 1, 2, 4)), window // 2 * dilation, dilation, groups)  # fmt: skip
    if family == "separable":
        taps = draw.choice((3, 5, 7, 9, 15, 21))
        long, groups = draw.choice(((1, taps), (taps, 1))), draw.choice((1, 1, channels))
        return Shape(family, batch, channels, filters if groups == 1 else channels, (size, size), long,
                     padding=tuple(one // 2 for one in long), groups=groups)  # fmt: skip
    if family == "large":
        window = draw.choice((9, 11, 13, 17, 21, 31))
        return Shape(family, batch, channels, channels, (size, size), window, padding=window // 2, groups=channels)
    if family == "dilated":
        window, dilation = draw.choice((3, 3, 5, 7)), draw.choice((2, 3, 4, 6, 12, 18))
        groups = draw.choice((1, 1, channels))
        return Shape(family, batch, channels, filters if groups == 1 else channels, (size, size), window, 1,
                     window // 2 * dilation, dilation, groups)  # fmt: skip
    if family == "tiny":
        sizes = (draw.randint(1, 6), draw.randint(1, 6))
        return Shape(family, 1, 2 * channels, 2 * filters, sizes, 3, draw.choice((1, 1, 2)))
    window, alone = draw.choice((3, 5, 7, 9)), draw.random() < 0.5
    few = draw.choice((1, 1, 8, 16))
    return Shape(family, batch, 1 if alone else few, few if alone else 1, (3 * size, 3 * size), window,
                 draw.choice((1, 1, 2)), window // 2)  # fmt: skip


def random_shapes(seed: int, count: int, families: tuple[str, ...] = FAMILIES) -> Iterator[Shape]:
    """Problems of the families in turn, drawn again until they have between LEAST and MOST products."""
    draw = random.Random(seed)
    rare = families == RARE
    for index in range(count):
        while True:
            found = (_rare if rare else _drawn)(draw, families[index % len(families)])
            fits = min(found.out) > 0
            if fits and (RARE_LEAST if rare else LEAST) <= found.products <= MOST:
                break
        yield found


def as_message(shape: Shape, direction: str, dtype: str, layout: str = "nhwc") -> dict[str, Any]:
    """What a worker needs to make the problem."""
    more = {"direction": direction, "dtype": dtype, "layout": layout}
    return {**asdict(shape), "window": shape.windows, "padding": shape.paddings, **more}
