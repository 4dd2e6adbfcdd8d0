"""Convolution's part of the tile engine: problem sets of real networks and by seed, families, neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tilewright import lazy
from tilewright.dataclass import dataclass
from tilewright.ops.conv import features
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.spec import OP, VARIANTS, ConvSignature
from tilewright.ops.engine import ForeignWords, ProblemSet, Values
from tilewright.ops.held_out import HeldOut, Spelling, drawn_in_turn

if TYPE_CHECKING:
    import random

    from tilewright.ops.conv import networks, options
else:
    networks, options = lazy.modules("tilewright.ops.conv", "networks", "options")

HOLDOUT_SEED = 20261116
HOLDOUT_2D, HOLDOUT_3D = 250, 50

SHORT = {"forward": "forward", "backward_data": "bwd_data", "backward_weight": "bwd_weight"}
BATCHES = (1, 8, 32)


# -- random ones ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Range:
    """What random problems of a family are drawn from: ranges are log-uniform, tuples are choices."""

    channels: tuple[int, int]  # of one group
    filters: tuple[int, int]
    groups: tuple[int, int] = (1, 1)
    windows: tuple[int, ...] = (3,)
    strides: tuple[int, ...] = (1,)
    dilations: tuple[int, ...] = (1,)
    odd: bool = False  # sizes that nothing divides; others are multiples of 8 where they are over 16


# The families, which alternate; the same for every device, whose sizes of images and batches differ.
FAMILIES: Mapping[str, Range] = {
    "window": Range((32, 512), (32, 512), windows=(3, 3, 3, 5)),
    "pointwise": Range((32, 1024), (32, 1024), windows=(1,), strides=(1, 1, 2)),
    "strided": Range((32, 512), (32, 512), windows=(3, 3, 5), strides=(2,)),
    "grouped": Range((4, 64), (4, 64), (2, 32), windows=(3,), strides=(1, 1, 2)),
    "depthwise": Range((1, 1), (1, 1), (32, 1024), windows=(3, 3, 5, 7), strides=(1, 1, 2)),
    "first": Range((1, 4), (16, 128), windows=(3, 4, 7), strides=(1, 2, 4)),
    "dilated": Range((32, 512), (32, 512), windows=(3,), dilations=(2, 4)),
    "odd": Range((3, 300), (3, 300), (1, 3), windows=(1, 2, 3, 5), strides=(1, 2, 3), dilations=(1, 2), odd=True),
}
# Batch, and pixels along a dimension; products over `MOST` are brought down to it, first in the batch.
IMAGES = {("cpu", 2): ((1, 8), (7, 112)), ("gpu", 2): ((1, 128), (7, 128)),
          ("cpu", 3): ((1, 2), (4, 28)), ("gpu", 3): ((1, 8), (4, 64))}  # fmt: skip
MOST = {"cpu": 4e9, "gpu": 4e11}  # operations


def _size(draw: random.Random, low: int, high: int, odd: bool) -> int:
    size = round(math.exp(draw.uniform(math.log(low), math.log(high))))
    if odd:
        return min(high, size | 1) if high > 1 else size
    return max(low, size // 8 * 8) if size > 16 else size


def _drawn(draw: random.Random, family: str, device: str, rank: int) -> Values:
    shapes = FAMILIES[family]
    (least, most), (small, large) = IMAGES[device, rank]
    batch = _size(draw, least, most, shapes.odd)
    groups = _size(draw, *shapes.groups, shapes.odd)
    channels, filters = (_size(draw, *bounds, shapes.odd) for bounds in (shapes.channels, shapes.filters))
    if family == "depthwise":
        filters = draw.choice((1, 1, 1, 2))  # depth multipliers
    window, stride, dilation = draw.choice(shapes.windows), draw.choice(shapes.strides), draw.choice(shapes.dilations)
    reach = (window - 1) * dilation + 1
    low = math.log(max(small, reach))
    sizes = [max(reach, round(math.exp(draw.uniform(low, max(low, math.log(large)))))) for _ in range(rank)]
    if not shapes.odd and draw.random() < 0.7:
        sizes[1:] = sizes[:1] * (rank - 1)
    padding = draw.choice((0, (reach - 1) // 2)) if shapes.odd else (reach - 1) // 2
    work = 2 * channels * filters * groups * window**rank / stride**rank
    while batch > 1 and work * batch * math.prod(sizes) > MOST[device]:
        batch = (batch + 1) // 2
    while work * batch * math.prod(sizes) > MOST[device] and max(sizes) > max(reach, 4):
        sizes = [max(reach, 4, size * 3 // 4) for size in sizes]
    return {
        "batch": batch, "channels": channels * groups, "filters": filters * groups, "size": "x".join(map(str, sizes)),
        "window": _text(window, rank), "groups": groups, "stride": _text(stride, rank),
        "padding": _text(padding, rank), "dilation": _text(dilation, rank),
    }  # fmt: skip


def _text(number: int, rank: int) -> str:
    return "x".join([str(number)] * rank)


def drawn(seed: int, count: int, device: str, rank: int = 2) -> Iterator[Values]:
    """The families alternate; the direction is not fixed."""
    return drawn_in_turn(seed, count, tuple(FAMILIES), lambda draw, family: _drawn(draw, family, device, rank))


# -- sets ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _holdout() -> list[Values]:
    """Half for each kind of device; 250 of two dimensions, 50 of three."""
    problems: list[Values] = []
    for rank, count in ((2, HOLDOUT_2D), (3, HOLDOUT_3D)):
        half = count // 2
        problems += drawn(HOLDOUT_SEED + rank, half, "cpu", rank)
        problems += drawn(HOLDOUT_SEED + 10 + rank, count - half, "gpu", rank)
    return [{**values, "variant": "forward"} for values in problems]


def _spellings(p: ConvProblem) -> tuple[Spelling, ...]:
    """Neighbours have window, strides, dilation and groups in common: as it is, and as the plainest of the same.

    A window one wide has no dilation, a result one wide no stride, and a dimension of one element that only a window of
    one looks at is none.
    """
    dimensions = tuple(zip(p.size, p.window, p.stride, p.dilation, p.before, p.after, p.out, strict=True))
    plain = [(size, window, stride if out > 1 else 1, dilation if window > 1 else 1)
             for size, window, stride, dilation, before, after, out in dimensions
             if (size, window, before, after) != (1, 1, 0, 0)]  # fmt: skip
    shapes = [tuple(dimension[:4] for dimension in dimensions), tuple(plain)]
    return tuple(
        ((p.groups, *(axis[1:] for axis in each)), (p.batch, p.channels, p.filters, *(axis[0] for axis in each)))
        for each in dict.fromkeys(shapes)
    )


def _problem_of(values: Values) -> ConvProblem:
    return options.problem(values)


_HELD_OUT = HeldOut(_holdout, _problem_of, _spellings)
_apart = _HELD_OUT.apart


def _batches(layer: networks.Layer) -> tuple[int, ...]:
    return BATCHES if len(layer.size) == 2 else BATCHES[:2]


def _network(name: str) -> Callable[[], list[Values]]:
    return lambda: [layer.values(batch) for layer in networks.NETWORKS[name] for batch in _batches(layer)]


def _direction(variant: str, rank: int) -> Callable[[], list[Values]]:
    def make() -> list[Values]:
        problems = [layer.values(batch) for layer in networks.layers(rank) for batch in _batches(layer)]
        seed = 8_000 + 10 * VARIANTS.index(variant) + rank
        for device in ("cpu", "gpu"):
            problems += drawn(seed, 200 if rank == 2 else 80, device, rank)
        return [{**values, "variant": variant} for values in problems]

    return make


def _validation(variant: str, rank: int) -> Callable[[], list[Values]]:
    """Quick to measure, and drawn apart from everything else."""
    seed = 8_500 + 10 * VARIANTS.index(variant) + rank
    return lambda: [{**values, "variant": variant} for values in drawn(seed, 16, "cpu", rank)]


def _sets() -> Iterator[ProblemSet]:
    for variant in VARIANTS:
        for rank in (2, 3):
            key = f"{SHORT[variant]}_{rank}d"
            yield ProblemSet(key, f"{variant} of every network's {rank}D layers, and random ones by seed",
                             _apart(_direction(variant, rank)))  # fmt: skip
            yield ProblemSet(f"{key}_validation", f"Sixteen of all kinds of {key}, quick to measure, by seed",
                             _apart(_validation(variant, rank)))  # fmt: skip
    for name in networks.NETWORKS:
        yield ProblemSet(name, f"Layers of {name} at batches of {', '.join(map(str, BATCHES))}; say which --variant",
                         _apart(_network(name)))  # fmt: skip
    purpose = f"{HOLDOUT_2D} of two and {HOLDOUT_3D} of three dimensions by seed: no model is trained on them"
    yield ProblemSet("holdout", purpose, _holdout, holdout=True)


class ConvEngine(ForeignWords):
    """Convolution behind the contract of `tilewright.ops.engine.Engine`."""

    op = OP
    columns = ("variant", "batch", "channels", "filters", "groups", "size", "window", "stride", "dilation", "before",
               "after", "dtype", "dtype_out", "epilogue", "num_d")  # fmt: skip

    @cached_property
    def problem_sets(self) -> Mapping[str, ProblemSet]:
        return {problem_set.key: problem_set for problem_set in _sets()}

    @cached_property
    def configs(self) -> Any:
        from importlib import resources

        return resources.files(__package__).joinpath("configs")

    def random(self, seed: int, count: int, device: str) -> Sequence[Values]:
        """Three of two dimensions, then one of three."""
        kind = "cpu" if device == "cpu" else "gpu"
        flat, deep = drawn(seed, count, kind, 2), drawn(seed + 1, count, kind, 3)
        return [next(deep) if index % 4 == 3 else next(flat) for index in range(count)]

    def family(self, problem: ConvProblem) -> str:
        """By the numbers alone, so that a problem from anywhere has one."""
        p = problem
        if p.groups > 1:
            return "depthwise" if p.group_channels == 1 else "grouped"
        if p.channels <= 4:
            return "first"
        if p.channels % 2 and p.filters % 2:
            return "odd"
        if max(p.dilation) > 1:
            return "dilated"
        if max(p.window) == 1:
            return "pointwise"
        return "strided" if max(p.stride) > 1 else "window"

    def near(self, problem: ConvProblem, other: ConvProblem) -> bool:
        """Whatever the direction, the types and the fused work, and however it is spelled."""
        return _HELD_OUT.near(problem, other)

    foreign_module = "tilewright.ops.conv.ck_words"
    problem_feature_names = features.PROBLEM
    problem_words = features.PROBLEM_WORDS
    interaction_names = features.INTERACTION

    def problem_features(self, problem: ConvProblem) -> Sequence[Any]:
        return features.problem_features(problem)

    def signature_words(self, signature: ConvSignature) -> tuple[str, ...]:
        return features.signature_words(signature)

    def kernel_terms(self, kernels: Mapping[str, Any], units: int) -> Mapping[str, Any]:
        return features.kernel_terms(kernels, units)

    def interactions(self, problem: ConvProblem, kernels: Mapping[str, Any], units: int) -> Any:
        return features.interactions(problem, kernels, units)


ENGINE = ConvEngine()
