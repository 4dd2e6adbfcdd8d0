"""The shapes of the attention benchmark: those models have, and random ones by seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    group: str
    batch: int
    heads: int
    heads_kv: int
    rows: int
    keys: int
    size: int
    causal: str = ""  # "top_left" or "bottom_right"
    layout: str = "bhsd"

    @property
    def name(self) -> str:
        heads = str(self.heads) if self.heads == self.heads_kv else f"{self.heads}/{self.heads_kv}"
        text = f"{self.batch}x{heads} {self.rows}x{self.keys} d{self.size} {self.layout}"
        return text + (f" {self.causal}" if self.causal else "")

    @property
    def pairs(self) -> int:
        if not self.causal:
            return self.batch * self.heads * self.rows * self.keys
        shift = self.keys - self.rows if self.causal == "bottom_right" else 0
        seen = sum(max(0, min(self.keys, row + shift + 1)) for row in range(self.rows))
        return self.batch * self.heads * seen

    @property
    def cache_elements(self) -> int:
        return 2 * self.batch * self.heads_kv * self.keys * self.size


def _prefill(*values: int, causal: str = "", layout: str = "bhsd", group: str = "") -> Shape:
    batch, heads, heads_kv, length, size = values
    name = group or ("gqa" if heads != heads_kv else "causal" if causal else "prefill")
    return Shape(name, batch, heads, heads_kv, length, length, size, causal, layout)


# Language models' prompts and decoding, vision models, cross attention of diffusion, odd lengths.
FIXED = (
    _prefill(1, 16, 16, 512, 64),
    _prefill(1, 8, 8, 2048, 64),
    _prefill(2, 12, 12, 384, 64, layout="bshd"),
    _prefill(1, 8, 8, 1024, 128),
    _prefill(1, 16, 16, 512, 64, causal="top_left"),
    _prefill(1, 8, 8, 2048, 128, causal="top_left"),
    _prefill(1, 12, 12, 1024, 64, causal="top_left", layout="bshd"),
    _prefill(1, 4, 4, 4096, 64, causal="top_left"),
    _prefill(1, 16, 4, 1024, 128, causal="top_left"),
    _prefill(1, 32, 8, 512, 64, causal="top_left", layout="bshd"),
    _prefill(4, 16, 2, 256, 128, causal="top_left"),
    Shape("decode", 1, 32, 8, 1, 4096, 128),
    Shape("decode", 1, 16, 16, 1, 16384, 64),
    Shape("decode", 8, 32, 8, 1, 2048, 128),
    Shape("decode", 1, 32, 8, 1, 32768, 128),
    Shape("decode", 4, 32, 4, 4, 4096, 128, "bottom_right"),
    Shape("decode", 16, 12, 12, 1, 1024, 64),
    Shape("cross", 2, 8, 8, 1024, 77, 40),
    Shape("cross", 1, 8, 8, 4096, 77, 80, "", "bshd"),
    Shape("cross", 1, 6, 6, 333, 1009, 96),
    Shape("cross", 2, 16, 4, 127, 511, 112),
    Shape("vit", 8, 12, 12, 197, 197, 64, "", "bshd"),
    Shape("vit", 1, 16, 16, 577, 577, 64, "", "bshd"),
    Shape("vit", 2, 16, 16, 256, 256, 72),
    Shape("vit", 16, 3, 3, 197, 197, 64),
)
QUICK = tuple(FIXED[index].name for index in (0, 5, 8, 11, 17, 21))

FAMILIES = ("prefill", "causal", "gqa", "decode", "cross", "vit")
LEAST, MOST = 1e6, 8e8  # pairs of a row and a key times the size of a head, of a random problem
LEAST_CACHE, MOST_CACHE = 1 << 19, 1 << 27  # elements of keys and values, of a random decode


def _log(draw: random.Random, low: float, high: float, grain: int = 1) -> int:
    return max(grain, round(math.exp(draw.uniform(math.log(low), math.log(high))) / grain) * grain)


def _drawn(draw: random.Random, family: str) -> Shape:
    """Lengths log-uniform; heads of usual sizes, one in six any multiple of 8."""
    size = draw.choice((64, 64, 80, 96, 128, 128)) if draw.random() < 5 / 6 else 8 * draw.randint(2, 32)
    layout, batch = draw.choice(("bhsd", "bshd")), draw.choice((1, 1, 2, 4))
    heads_kv, group = draw.choice((1, 2, 4, 8)), draw.choice((2, 4, 8))
    heads, length = draw.randint(1, 16), _log(draw, 64, 4096)
    if family == "decode":
        rows, heads_kv = draw.choice((1, 1, 1, 2, 4, 8)), draw.choice((1, 4, 8, 16))
        group = draw.choice((1, 4, 8)) if rows <= 2 else draw.choice((1, 4))
        causal = "bottom_right" if rows > 1 else ""
        batch = draw.choice((1, 1, 4, 16))
        return Shape(family, batch, heads_kv * group, heads_kv, rows, _log(draw, 512, 65536), size, causal, layout)
    if family == "cross":
        rows, keys = _log(draw, 16, 4096), _log(draw, 16, 4096)
        return Shape(family, batch, heads, heads, rows, keys, size, "", layout)
    if family == "vit":
        length = draw.choice((49, 197, 256, 257, 577, 730, 1025))
        return Shape(family, draw.choice((1, 2, 4, 8)), heads, heads, length, length, size, "", layout)
    if family == "gqa":
        return Shape(family, batch, heads_kv * group, heads_kv, length, length, size, "top_left", layout)
    return Shape(family, batch, heads, heads, length, length, size, "top_left" if family == "causal" else "", layout)


def _fits(shape: Shape) -> bool:
    if shape.group == "decode":
        return LEAST_CACHE <= shape.cache_elements <= MOST_CACHE
    return LEAST <= shape.pairs * shape.size <= MOST


def random_shapes(seed: int, count: int) -> Iterator[Shape]:
    """Problems of the families in turn, drawn again until they are neither tiny nor endless."""
    draw = random.Random(seed)
    for index in range(count):
        while True:
            found = _drawn(draw, FAMILIES[index % len(FAMILIES)])
            if _fits(found):
                break
        yield found


def as_message(shape: Shape, dtype: str) -> dict[str, Any]:
    """What a worker needs to make the problem."""
    return {**asdict(shape), "dtype": dtype}
