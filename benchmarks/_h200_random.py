"""The distribution random GEMM problems for a GPU are drawn from, by seed: nobody can have tuned for them.

Families take turns, element types too.  Within a family each size is log-uniform in its range.  Sizes are rounded to a
grain: 8 elements (16 of one-byte types) for n, k and the leading size of A, so that every row starts at a multiple of
16 bytes; weights (`decode`, `mid`) have n and k in steps of 64.  m is any number where A lies by rows.  `odd` has odd
sizes only: no row is aligned to anything.  `batched`, which is drawn only when asked for, has many small matrices.  The
layout of A and B is uniform over the four there are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Range = tuple[int, int]

FAMILIES: dict[str, tuple[Range, Range, Range]] = {
    "large": ((1024, 8192), (1024, 8192), (512, 8192)),
    "decode": ((1, 16), (1024, 28672), (1024, 16384)),
    "mid": ((17, 512), (1024, 28672), (1024, 16384)),
    "tall": ((10000, 100000), (16, 512), (64, 2048)),
    "small": ((64, 1024), (64, 1024), (64, 1024)),
    "odd": ((257, 4095), (257, 4095), (257, 4095)),
}
BATCHED = ((16, 256), (16, 256), (16, 256))
BATCHES = (8, 1024)
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
WEIGHT_GRAIN = 64
ONE_BYTE = ("int8", "fp8_e4m3")


@dataclass(frozen=True)
class Drawn:
    family: str
    m: int
    n: int
    k: int
    layout: str
    dtype: str
    batch: int = 1

    @property
    def name(self) -> str:
        return f"{self.m}x{self.n}x{self.k}" + (f" x{self.batch}" if self.batch > 1 else "")


def _grained(value: int, grain: int) -> int:
    return max(grain, round(value / grain) * grain)


def draw_one(draw: random.Random, family: str, dtype: str, layouts: Sequence[str], shrink: int) -> Drawn:
    """`shrink` divides the ranges, for rehearsals on a CPU."""
    sizes = BATCHED if family == "batched" else FAMILIES[family]
    ranges = [(max(1, low // shrink), max(2, high // shrink)) for low, high in sizes]
    m, n, k = (round(math.exp(draw.uniform(math.log(low), math.log(high)))) for low, high in ranges)
    layout = draw.choice(list(layouts))
    batch = round(math.exp(draw.uniform(*map(math.log, BATCHES)))) if family == "batched" else 1
    if family == "odd":
        return Drawn(family, m | 1, n | 1, k | 1, layout, dtype)
    grain = 16 if dtype in ONE_BYTE else 8
    wide = WEIGHT_GRAIN if family in ("decode", "mid") else grain
    m = _grained(m, grain) if layout[0] == "c" else m
    return Drawn(family, m, _grained(n, wide), _grained(k, wide), layout, dtype, batch)


def random_problems(
    seed: int,
    count: int,
    dtypes: Sequence[str] = ("bf16", "fp16"),
    families: Sequence[str] = tuple(FAMILIES),
    layouts: Sequence[str] = LAYOUTS,
    shrink: int = 1,
) -> list[Drawn]:
    """`count` problems: family after family, and with each turn of the families the next type."""
    draw = random.Random(seed)
    return [
        draw_one(draw, families[index % len(families)], dtypes[index // len(families) % len(dtypes)], layouts, shrink)
        for index in range(count)
    ]
