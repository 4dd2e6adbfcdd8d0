"""The shapes of gemm_h200.py: (m, n, k), A by rows times the transposed view of an (n, k) weight array."""

from __future__ import annotations

Shape = tuple[int, int, int]

WEIGHTS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (2112, 7168), (7168, 2048))
ROWS = (1, 16, 64, 256, 1024, 4096, 8192)
GROUPS = {
    "square": "squares",
    "few": "weights, M = 1 and 16",
    "some": "weights, M = 64 and 256",
    "many": "weights, M = 1024 and more",
    "odd": "odd sizes",
    "edge": "long k, few columns, other extremes",
}
BY_GROUP: dict[str, tuple[Shape, ...]] = {
    "square": tuple((size, size, size) for size in (512, 1024, 2048, 4096, 8192)),
    "few": tuple((m, n, k) for m in ROWS[:2] for n, k in WEIGHTS),
    "some": tuple((m, n, k) for m in ROWS[2:4] for n, k in WEIGHTS),
    "many": tuple((m, n, k) for m in ROWS[4:] for n, k in WEIGHTS),
    "odd": ((4097, 4097, 4097), (1000, 1000, 1000), (333, 777, 555)),
    "edge": ((8192, 64, 8192), (64, 64, 65536), (128, 50304, 768), (16384, 1024, 256)),
}
SHAPES = tuple(dict.fromkeys(shape for group in BY_GROUP.values() for shape in group))  # one square is a weight too
QUICK: tuple[Shape, ...] = (
    *((size, size, size) for size in (512, 2048, 8192)),
    (1, 28672, 4096),
    (16, 4096, 4096),
    (64, 4096, 14336),
    (256, 6144, 4096),
    (1024, 2112, 7168),
    (4096, 7168, 2048),
    (4097, 4097, 4097),
    (333, 777, 555),
    (64, 64, 65536),
)
FP8: tuple[Shape, ...] = ((4096, 4096, 4096), (8192, 8192, 8192))
ODD = (4097, 4097, 4097)


def name_of(shape: Shape) -> str:
    return "x".join(map(str, shape))


def group_of(shape: Shape) -> str:
    return next((group for group, shapes in BY_GROUP.items() if shape in shapes), "other")
