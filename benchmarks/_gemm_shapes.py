"""The shapes of the GEMM benchmark.  Layout letters: A, B, result; r by rows, c by columns.

`rcr` is what a linear layer has: B is the transposed view of an (n, k) weight array.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    group: str
    m: int
    n: int
    k: int
    layout: str = "rrr"

    @property
    def name(self) -> str:
        return f"{self.layout} {self.m}x{self.n}x{self.k}"


def _square(size: int, layout: str = "rrr") -> Shape:
    return Shape("square", size, size, size, layout)


FP32 = (
    *(_square(size) for size in (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)),
    *(_square(size, "rcr") for size in (256, 1024)),
    _square(512, "crr"),
    _square(512, "ccr"),
    *(Shape("skinny", m, 4096, 4096, "rcr") for m in (1, 2, 4, 8, 16, 32, 64, 128, 256)),
    *(Shape("skinny", m, 4096, 4096) for m in (1, 16, 64, 256)),
    Shape("tall", 4096, 64, 64),
    Shape("tall", 16384, 32, 128),
    Shape("tall", 8192, 256, 64),
    Shape("deep", 64, 64, 8192),
    Shape("deep", 128, 512, 2048),
    Shape("odd", 33, 65, 17),
    Shape("odd", 127, 131, 137),
    Shape("odd", 257, 509, 251),
    Shape("odd", 997, 1009, 1013),
    Shape("odd", 1000, 1000, 1000),
    Shape("odd", 63, 1, 4095),
    Shape("odd", 511, 513, 512),
)

# For the other types: where they are used, and where they are hard.
NARROW = (
    *(_square(size) for size in (64, 128, 256, 512, 1024, 2048)),
    _square(1024, "rcr"),
    *(Shape("skinny", m, 4096, 4096, "rcr") for m in (1, 8, 32, 128)),
    Shape("tall", 4096, 64, 64),
    Shape("odd", 257, 509, 251),
    Shape("odd", 997, 1009, 1013),
)

QUICK = ("rrr 64x64x64", "rrr 256x256x256", "rcr 1x4096x4096", "rrr 257x509x251")


def shapes_for(dtype: str) -> tuple[Shape, ...]:
    return FP32 if dtype == "fp32" else NARROW


def as_message(shape: Shape, dtype: str) -> dict[str, Any]:
    """What a worker needs to make the problem."""
    return {"m": shape.m, "n": shape.n, "k": shape.k, "layout": shape.layout, "dtype": dtype}


# What random problems are drawn from: the range of each size, log-uniform, family by family in turn.
FAMILIES = {
    "large": ((256, 1536), (256, 1536), (256, 1536)),
    "decode": ((1, 16), (512, 4096), (512, 4096)),
    "mid": ((17, 256), (256, 2048), (256, 2048)),
    "tall": ((4096, 20000), (16, 256), (32, 256)),
    "small": ((4, 96), (4, 96), (4, 96)),
    "odd": ((3, 700), (3, 700), (3, 700)),
}
LAYOUTS = ("rcr", "rrr", "crr", "ccr")


def random_shapes(seed: int, count: int) -> Iterator[Shape]:
    """Problems of the families in turn, sizes log-uniform in their range, layouts uniform; odd ones have odd sizes."""
    draw = random.Random(seed)
    for index in range(count):
        group = list(FAMILIES)[index % len(FAMILIES)]
        m, n, k = (
            round(math.exp(draw.uniform(math.log(low), math.log(high)))) | (group == "odd")
            for low, high in FAMILIES[group]
        )
        yield Shape(group, m, n, k, draw.choice(LAYOUTS))
