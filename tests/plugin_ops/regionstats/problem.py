"""A regionstats problem: the whole, or one of its two stages.

partial   chunks of positions become sums and maxima, (n, chunks, channels) fp32 each, in the workspace between
combine   the chunks of an entry become its mean and peak
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from regionstats.spec import DTYPES, OP, STAGES, CombineSignature, PartialSignature
from tilewright.dtypes import dtype
from tilewright.ops.base import Violation, settle

MOST_SIZE = 1 << 40
MOST_RANK = 3
CHUNK = 256  # positions
MOST_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class RegionstatsProblem:
    """An empty dilation means 1 along every dimension; `stage` is empty for the whole problem."""

    op: ClassVar[str] = OP

    n: int
    spatial: tuple[int, ...]
    channels: int
    dtype: str = "fp32"
    dilation: tuple[int, ...] = ()
    weight: bool = False
    shift: bool = False
    stage: str = ""

    def __post_init__(self) -> None:
        settle(self)
        if not self.dilation:
            object.__setattr__(self, "dilation", (1,) * len(self.spatial))

    @property
    def grid(self) -> tuple[int, ...]:
        """Positions along each dimension that take part where nothing is cut off."""
        return tuple(-(-size // step) for size, step in zip(self.spatial, self.dilation, strict=True))

    @property
    def positions(self) -> int:
        return prod(self.grid)

    @property
    def chunks(self) -> int:
        """The rule: one for every 256 positions of an entry, at least one and at most 64."""
        return max(1, min(MOST_CHUNKS, self.positions // CHUNK))

    @property
    def part_bytes(self) -> int:
        """Of the sums, and of the maxima, between the stages; each begins at a multiple of 64."""
        return -(-self.n * self.chunks * self.channels * 4 // 64) * 64

    @property
    def signature(self) -> PartialSignature | CombineSignature:
        if self.stage == "combine":
            return CombineSignature(dtype=self.dtype)
        return PartialSignature(dtype=self.dtype, weight=self.weight, shift=self.shift)

    @property
    def flops(self) -> int:
        reduced = self.n * self.positions * self.channels * (2 + self.weight + self.shift)
        combined = self.n * self.chunks * self.channels * 2
        return {"partial": reduced, "combine": combined}.get(self.stage, reduced + combined)

    @property
    def bytes(self) -> int:
        between = 2 * self.n * self.chunks * self.channels * 4
        read = self.n * self.positions * self.channels * dtype(self.dtype).bytes + 4 * self.n
        read += 4 * self.channels * (self.weight + self.shift)
        written = self.n * self.channels * (4 + dtype(self.dtype).bytes)
        return {"partial": read + between, "combine": between + written}.get(self.stage, read + 2 * between + written)

    def at(self, stage: str) -> RegionstatsProblem:
        return replace(self, stage=stage)

    def describe(self) -> str:
        size = "x".join(map(str, (self.n, *self.spatial, self.channels)))
        text = f"regionstats {size} {self.dtype}"
        if set(self.dilation) != {1}:
            text += " dilation=" + "x".join(map(str, self.dilation))
        text += " weight" * self.weight + " shift" * self.shift
        return text + (f" stage={self.stage}" if self.stage else "")


def violations(problem: RegionstatsProblem) -> list[Violation]:
    p, found = problem, []
    if not 1 <= len(p.spatial) <= MOST_RANK:
        message = f"{len(p.spatial)} spatial dimensions"
        found.append(Violation("spatial-rank", message, f"x has 1 to {MOST_RANK} of them between n and the channels"))
    if len(p.dilation) != len(p.spatial):
        message = f"{len(p.dilation)} dilations for {len(p.spatial)} spatial dimensions"
        found.append(Violation("dilation-rank", message, "give one for each"))
    if any(one < 1 for one in p.dilation):
        found.append(Violation("dilation", f"dilation {p.dilation}", "use 1 or more"))
    for name, size in (("n", p.n), ("channels", p.channels), *((f"spatial[{i}]", s) for i, s in enumerate(p.spatial))):
        if not 0 <= size <= MOST_SIZE:
            found.append(Violation("size", f"{name} is {size}", f"sizes are 0 to {MOST_SIZE}"))
    if p.spatial and p.spatial[0] >= 1 << 31:
        found.append(Violation("size", f"spatial[0] is {p.spatial[0]}", "lengths are int32: use less than 2^31"))
    if p.dtype not in DTYPES:
        found.append(Violation("dtype-name", f"regionstats of {p.dtype}", f"use {', '.join(DTYPES)}"))
    if p.stage not in ("", *STAGES):
        found.append(Violation("stage-name", f"stage {p.stage!r} is not known", f"use {' or '.join(STAGES)}"))
    if not found and p.n * prod(p.spatial) * p.channels >= 1 << 60:
        found.append(Violation("size", "x would need more than 2^60 elements", "split the problem"))
    return found
