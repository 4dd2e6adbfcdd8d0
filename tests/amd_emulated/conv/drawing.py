"""Convolutions drawn by seed: kernels from the pools as users have them, problems of every kind there is.

Kernels: the arch whose turn it is (`random_run.in_turn`; of CDNA some are gfx908's, compiled for
the arch that was drawn), the pool evenly among default, full
and exhaustive; direction, dimensions, element types, fused work and output evenly or as the weights below say; of what
the pool proposes for them a pipeline, then a schedule evenly.  The plain loops are kept where a pool has nothing else,
and one time in ten beside others.

Problems: one to three dimensions (one runs as two of height 1); one group, several, depthwise and depth multipliers;
channels and filters in multiples of anything from 1 to 32, up to three tiles of the kernel, but few of a group where it
merges groups; windows of 1 to 5, strides
and dilations of 1 to 3, padding of none, of what keeps the size, or anything on either side, also more than the window
is wide; pixels at the end that no window reaches; batches of none to three; up to three tiles of pixels.  Memory:
channels-last two times in three, else channels-first or dimensions in any order, with gaps, sometimes backwards or
repeated, at addresses off the allocator's alignment.  D tensors as large as y, one number a channel, an image, a pixel,
or one at all.  Numbers of every kind.  The op's `supports` says which of them a kernel serves; some of the others are
kept, to be refused by the kernel too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from math import ceil, prod
from typing import Any

from tests.amd_emulated.conv.sums import DATA, FORWARD, READ, WEIGHT, WRITTEN, Geometry, count
from tests.amd_emulated.number_formats import FORMATS, KINDS, LARGEST, ONE_HOT, ORDINARY, SMALL, WHOLE, ZEROS
from tests.amd_emulated.proving import Entry, drawn_entry, drawn_kernel, modelled
from tilewright.arch import all_archs
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts

Numbers = tuple[int, ...]

POOLS = ("default", "full", "exhaustive")
VARIANTS = (FORWARD, FORWARD, DATA, WEIGHT)
INPUTS = ("fp16", "fp16", "bf16", "bf16", "fp32", "int8")
OUTPUTS = {"float": ("fp16", "bf16", "fp32"), "int": ("int32", "int32", "int8", "fp32")}
GROUPINGS = ("one",) * 4 + ("several",) * 3 + ("depthwise", "multiplier")
D_KINDS = ("full", "full", "channel", "channel", "image", "pixel", "one")
SMALL_TILE = (48, 12, 24)  # of kernels without one
MOST_WORK = 1 << 25  # products of one problem: a few seconds of emulation
MOST_LOOPED = 1 << 19  # of the loops
EXECUTED, REFUSED = 6, 4  # problems of a kernel
TRIES = 60
AS_OF_GFX908 = 0.15  # kernels of gfx908, which is not emulated, compiled for an arch of CDNA that is


@dataclass(frozen=True, slots=True)
class Lie:
    """How an operand lies in memory."""

    order: Numbers = ()  # its dimensions (image or filter, spatial, channel) from the outermost on; dense if empty
    gaps: Numbers = ()  # elements behind each run of the dimensions, in that order
    backwards: Numbers = ()  # dimensions with negative strides
    repeats: bool = False  # one image (or filter) for all
    off: int = 0  # elements off an aligned address

    def strides(self, shape: Numbers) -> Numbers:
        """In elements; sizes of 1 have what dense memory would have."""
        rank = len(shape)
        order, gaps = self.order or tuple(range(rank)), self.gaps or (0,) * rank
        found, step = [0] * rank, 1
        for place, axis in reversed(list(enumerate(order))):
            found[axis] = -step if axis in self.backwards else step
            step = step * max(1, shape[axis]) + gaps[place]
        if self.repeats and shape[0] > 1:
            found[0] = 0
        for axis in range(rank - 1, -1, -1):
            inner = 1 if axis == rank - 1 else abs(found[axis + 1] * shape[axis + 1]) or 1
            if shape[axis] == 1:
                found[axis] = inner
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A problem: everything about one call, as plain values.  Channels and filters are those of one group."""

    batch: int
    groups: int
    channels: int
    filters: int
    size: Numbers
    window: Numbers
    stride: Numbers
    dilation: Numbers
    before: Numbers
    after: Numbers
    lies: dict[str, Lie] = field(default_factory=dict)  # of x, w, y; d0 and d1 that are as large as y
    d_kinds: tuple[str, ...] = ()  # full, channel, image (and channel), pixel, one
    values: dict[str, str] = field(default_factory=dict)  # kinds of numbers, of what is read and d
    seed: int = 0

    @property
    def out(self) -> Numbers:
        sides = zip(self.size, self.before, self.after, self.window, self.dilation, self.stride, strict=True)
        return tuple((n + b + a - (w - 1) * d - 1) // s + 1 for n, b, a, w, d, s in sides)

    @property
    def geometry(self) -> Geometry:
        return Geometry(
            self.batch, self.groups, self.channels, self.filters, self.size, self.window, self.out, self.stride,
            self.dilation, self.before,
        )  # fmt: skip

    def lie(self, name: str) -> Lie:
        return self.lies.get(name, Lie())

    def strides(self, name: str) -> Numbers:
        return self.lie(name).strides(self.geometry.shapes[name])

    def d_strides(self, index: int) -> Numbers:
        """Over y's shape, 0 where a D tensor repeats."""
        shape, kind = self.geometry.shapes["y"], self.d_kinds[index]
        if kind == "full":
            return self.lie(f"d{index}").strides(shape)
        rank, channels = len(shape), shape[-1]
        if kind == "pixel":
            return (0, *Lie().strides(shape[1:-1]), 0)
        return (channels if kind == "image" else 0, *(0,) * (rank - 2), 0 if kind == "one" else 1)

    def label(self) -> str:
        def text(sizes: Numbers) -> str:
            return "x".join(map(str, sizes))

        words = [
            f"n{self.batch} g{self.groups} c{self.channels} k{self.filters} {text(self.size)} by {text(self.window)}"
        ]
        for name, plain_value in (("stride", 1), ("dilation", 1), ("before", 0), ("after", 0)):
            given = getattr(self, name)
            words += [f"{name} {text(given)}"] if any(one != plain_value for one in given) else []
        return " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def from_dict(data: dict[str, Any]) -> Drawn:
    def held(values: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    return Drawn(**{**held(data), "lies": {name: Lie(**held(one)) for name, one in data["lies"].items()}})


def draw(seed: int, index: int) -> Entry:
    return drawn_entry(f"conv {seed} {index}", index, _kernel, _problems)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _kernel(rng: random.Random, rules: Counter[str]) -> tuple[str, KernelSpec]:
    def propose() -> tuple[str, Iterable[KernelSpec]]:
        arch, pool = rng.choice(modelled(rdna=2)), rng.choice(POOLS)
        if all_archs()[arch].family == "cdna" and rng.random() < AS_OF_GFX908:
            proposed = op("conv").proposals(pool, "gfx908", **draw_axes(rng))
            return pool, (replace(spec, arch=arch) for spec in proposed)
        return pool, op("conv").proposals(pool, arch, **draw_axes(rng))

    def vary(spec: KernelSpec) -> KernelSpec:
        if spec.signature.num_d and rng.random() < 0.3:  # D tensors of another type than the result
            return replace(spec, signature=replace(spec.signature, dtype_d="fp32"))
        return spec

    return drawn_kernel(rng, rules, propose, vary)


def draw_axes(rng: random.Random) -> dict[str, Any]:
    """What the kernel computes."""
    dtype, variant = rng.choice(INPUTS), rng.choice(VARIANTS)
    if dtype == "int8":
        variant = FORWARD  # there are no gradients of whole numbers
    output = rng.choice(OUTPUTS["int"]) if dtype == "int8" else rng.choice((dtype, dtype, *OUTPUTS["float"]))
    axes: dict[str, Any] = {
        "variants": (variant,),
        "spatial": (rng.choice((2, 2, 3)),),
        "datatypes": (dtype,),
        "outputs": (output,),
    }
    if variant == FORWARD and rng.random() < 0.5:
        epilogue = rng.choice(EPILOGUES[1:])
        axes.update(epilogues=(epilogue,), num_d=(rng.choice(epilogue_d_counts(epilogue)),))
    return axes


# -- problems ----------------------------------------------------------------------------------------------------------


def _problems(rng: random.Random, spec: KernelSpec) -> tuple[list[Drawn], list[Drawn]]:
    conv = op("conv")
    served: list[Drawn] = []
    refused: list[Drawn] = []
    for one in attempts(rng, spec):
        if conv.supports(spec, product_problem(spec, one)):
            refused.append(one)
        else:
            served.append(one)
        if len(served) == EXECUTED:
            break
    return served or [plain(spec)], rng.sample(refused, min(REFUSED, len(refused)))


def attempts(rng: random.Random, spec: KernelSpec) -> Iterator[Drawn]:
    yield plain(spec, rng.randrange(1 << 31))
    most = MOST_WORK if hasattr(spec.schedule, "tile") else MOST_LOOPED
    for _ in range(TRIES):
        one = _drawn(rng, spec)
        s, g = spec.signature, one.geometry
        if prod(g.shapes[WRITTEN[s.variant]]) * count(g, s.variant) <= most:
            yield one


def plain(spec: KernelSpec, seed: int = 0) -> Drawn:
    """Two images, a window of 3 that keeps their size (or of 1), channels in whole accesses."""
    s, pointwise = spec.signature, _pointwise(spec)
    merged = getattr(spec.schedule, "merged", 1)
    wide, side = 32 if merged == 1 else max(4, spec.schedule.vectors[1]), 4 if s.spatial == 3 else 6
    ones, window, around = (1,) * s.spatial, (1 if pointwise else 3,) * s.spatial, (0 if pointwise else 1,) * s.spatial
    values = {**dict.fromkeys(READ[s.variant], ORDINARY), "d": ORDINARY}
    kinds = ("channel",) * s.num_d
    return Drawn(
        2, merged, wide, wide, (side,) * s.spatial, window, ones, ones, around, around, {}, kinds, values, seed
    )


def _pointwise(spec: KernelSpec) -> bool:
    """Whether the kernel is for windows of one tap alone."""
    return getattr(spec.schedule, "special", "") == "pointwise"


def _size(rng: random.Random, step: int, times: int, fine: int) -> int:
    """`times` steps, a bit more or less of them, or next to nothing, in multiples of `fine`."""
    way = rng.random()
    if way < 0.35:
        return max(fine, step * times // fine * fine)
    if way < 0.85:
        return max(fine, (step * (times - 1) + rng.randint(1, step)) // fine * fine)
    return fine * rng.randint(1, 3)


def _drawn(rng: random.Random, spec: KernelSpec) -> Drawn:
    s = spec.signature
    tile = getattr(spec.schedule, "tile", SMALL_TILE)
    fine = rng.choice((1, 2, 4, 8, 8, 16, 16, 32))
    rank = 3 if s.spatial == 3 else rng.choice((1, 2, 2, 2))
    simple = _pointwise(spec) and rng.random() < 0.8
    window = (
        (1,) * rank if simple or rng.random() < 0.2 else tuple(rng.choice((1, 2, 3, 3, 3, 4, 5)) for _ in range(rank))
    )
    if rank == 3:
        window = tuple(min(one, 3) for one in window)
    taps = prod(window)
    pixels, inner, outer = (
        _size(rng, side, rng.choice((1, 1, 2, 3)), grain)
        for side, grain in zip(_sides(s.variant, tile), (1, fine, fine), strict=True)
    )
    channels, filters = (inner, outer) if s.variant != DATA else (outer, inner)
    if s.variant == DATA:
        filters = max(fine, filters // taps // fine * fine)
    else:
        channels = max(fine, channels // taps // fine * fine)
    groups, channels, filters = _grouped(rng, channels, filters, getattr(spec.schedule, "merged", 1))
    space = _space(rng, window, max(1, pixels), simple)
    batch, images = space.pop("batch"), rng.random()
    one = Drawn(0 if images < 0.02 else batch, groups, channels, filters, window=window, **space)
    kinds = tuple(rng.choice(D_KINDS) for _ in range(s.num_d))
    one = replace(one, d_kinds=kinds, values=_values(rng, spec), seed=rng.randrange(1 << 31))
    return replace(one, lies=_lies(rng, spec, one, fine))


def _sides(variant: str, tile: Any) -> tuple[int, int, int]:
    """Of a tile m by n by k: what it has of pixels, and of the two channels (`inner` times the window)."""
    m, n, k = tile
    return {FORWARD: (m, k, n), DATA: (m, k, n), WEIGHT: (k, n, m)}[variant]


def _grouped(rng: random.Random, channels: int, filters: int, merged: int) -> tuple[int, int, int]:
    kind = rng.choice(GROUPINGS)
    if merged > 1 and rng.random() < 0.85:  # groups that the kernel takes together, mostly of few channels
        few = rng.choice((1, 2, 4, 4, 8, 8, 16))
        return merged * rng.randint(1, 2), few, rng.choice((few, few, rng.randint(1, 12)))
    if kind == "depthwise":
        return rng.choice((channels, filters, rng.randint(1, 40))), 1, 1
    if kind == "multiplier":
        return rng.randint(1, 16), 1, rng.randint(2, 3)
    return (1 if kind == "one" else rng.randint(2, 4)), channels, filters


def _space(rng: random.Random, window: Numbers, pixels: int, simple: bool) -> dict[str, Any]:
    """Sizes, strides, dilation and padding of about so many output pixels; no strides and padding where `simple`."""
    rank = len(window)
    stride = (1,) * rank if simple or rng.random() < 0.5 else tuple(rng.choice((1, 2, 2, 3)) for _ in range(rank))
    dilation = (1,) * rank if rng.random() < 0.7 else tuple(rng.randint(1, 3) for _ in range(rank))
    batch = rng.choice((1, 1, 2, 3))
    left, out = max(1, ceil(pixels / batch)), []
    for axis in range(rank - 1, 0, -1):
        side = max(1, min(left, round(left ** (1 / (axis + 1)) * rng.choice((0.5, 1, 1, 2)))))
        out.append(side)
        left = ceil(left / side)
    out.append(left)
    rng.shuffle(out)
    how = "none" if simple else rng.choice(("none", "same", "same", "any", "any"))
    size, before, after = [], [], []
    for axis in range(rank):
        reach = (window[axis] - 1) * dilation[axis]
        b, a = (0, 0) if how == "none" else (reach // 2, reach - reach // 2)
        if how == "any":
            b, a = rng.randint(0, reach + 1), rng.randint(0, reach + 1)
        n = (out[axis] - 1) * stride[axis] + reach + 1 - a - b + rng.randrange(stride[axis])
        if n < 1:  # all of it would be padding
            b, a, n = 0, 0, n + a + b
        size.append(n)
        before.append(b)
        after.append(a)
    return {"batch": batch, "size": tuple(size), "stride": stride, "dilation": dilation, "before": tuple(before),
            "after": tuple(after)}  # fmt: skip


def _lies(rng: random.Random, spec: KernelSpec, one: Drawn, fine: int) -> dict[str, Lie]:
    """One way for all operands most times, and each its own gaps."""
    rank, s = len(one.size) + 2, spec.signature
    last, first = tuple(range(rank)), (0, rank - 1, *range(1, rank - 1))
    usual = rng.choice((last,) * 4 + (first,))
    odd, flips = rng.random() < 0.1, rng.random() < 0.06
    gap = rng.choice((0, 0, fine, 3 * fine, 16))
    found: dict[str, Lie] = {}
    for name in ("x", "w", "y", *(f"d{index}" for index, kind in enumerate(one.d_kinds) if kind == "full")):
        order = usual
        if name[0] != "d" and rng.random() < 0.15:
            order = rng.choice((last, first, tuple(rng.sample(last, rank))))
        if name[0] == "d":
            order = found["y"].order  # where channels of y lie side by side, those of D do
        gaps = tuple(rng.choice((0, 0, gap)) if place else 0 for place in range(rank))
        repeats = name in READ[s.variant] and name != "w" and rng.random() < 0.05
        backwards = tuple(axis for axis in range(rank) if flips and name[0] != "d" and rng.random() < 0.3)
        found[name] = Lie(order, gaps, backwards, repeats, rng.choice((1, 2, 8)) if odd else 0)
    return found


def _values(rng: random.Random, spec: KernelSpec) -> dict[str, str]:
    s = spec.signature
    one, other = READ[s.variant]
    if rng.random() < 0.35:  # every element exact
        return {one: rng.choice((WHOLE, ONE_HOT)), other: WHOLE, "d": WHOLE}
    found = {name: rng.choice((ORDINARY, ORDINARY, *KINDS)) for name in (one, other, "d")}
    widest = FORMATS[s.dtype].exponent == 8
    for first, second in ((one, other), (other, one)):  # as of GEMM: else all would be open
        if found[first] == LARGEST and (widest or found[second] == LARGEST):
            found[second] = rng.choice((SMALL, ZEROS, ONE_HOT))
    if s.epilogue == "MultiDMultiply" and found["d"] == LARGEST:
        found["d"] = ORDINARY
    return found


# -- what the product is told ------------------------------------------------------------------------------------------


def product_problem(spec: KernelSpec, one: Drawn) -> ConvProblem:
    """The call as the product's dispatcher would describe it."""
    s = spec.signature
    written = WRITTEN[s.variant]
    bytes_of = {name: FORMATS[s.dtype_out if name == written else s.dtype].bytes for name in "xwy"}
    return ConvProblem(
        batch=one.batch,
        channels=one.groups * one.channels,
        filters=one.groups * one.filters,
        size=one.size,
        window=one.window,
        groups=one.groups,
        stride=one.stride,
        dilation=one.dilation,
        before=one.before,
        after=one.after,
        variant=s.variant,
        dtype=s.dtype,
        dtype_out=s.dtype_out,
        dtype_d=s.dtype_d,
        epilogue=s.epilogue,
        num_d=s.num_d,
        full_d=sum(0 not in one.d_strides(index) for index in range(s.num_d)),
        x_strides=one.strides("x"),
        w_strides=one.strides("w"),
        y_strides=one.strides("y"),
        aligned=not any(one.lie(name).off * bytes_of[name] % 16 for name in "xwy"),
    )
