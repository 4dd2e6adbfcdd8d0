"""winograd: minimal filtering of 3 x 3 windows, squares of results as products of transformed matrices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import (
    BLOCKS,
    PIXELS,
    CpuConvFamily,
    OfOneThread,
    Pair,
    Shape,
    about,
    block_numbers,
    sizes,
    tile_rules,
    tiled_config,
)
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature

SQUARES = (2, 4)  # sides of squares of results there are transforms for


@dataclass(frozen=True, slots=True)
class CpuWinogradSchedule(OfOneThread):
    pipeline: str = field(default="winograd", init=False)
    results: int  # the side of a square of results
    tile: Pair  # squares and channels done at a time
    warp_tile: Shape

    pipelines: ClassVar[tuple[str, ...]] = ("winograd",)
    minimal_filtering: ClassVar[bool] = True  # whose error bound is wider (`ops.conv.reference`)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "tile": ("m", "n")}

    def label(self) -> str:
        return f"winograd{self.results}_{sizes(self.tile)}_{sizes(self.warp_tile)}"


def _schedule(arch: Arch, results: int, rows: int, vectors: int, blocks: Pair) -> CpuWinogradSchedule:
    width = lanes(arch)
    return CpuWinogradSchedule(results, (rows * blocks[0], vectors * width * blocks[1]), (rows, vectors * width, 1))


class Winograd(CpuConvFamily):
    name, work, variants = "winograd", "ConvWinograd", PIXELS
    schedules = (CpuWinogradSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuWinogradSchedule]:
        if signature.variant not in self.variants:
            return
        width, far = lanes(arch), pool == "profiler"
        if pool == "default":
            rows, vectors = BLOCKS[arch.vector_registers][0]
            for results in SQUARES:
                blocks = (about(112 // results, rows), about(128, vectors * width))
                yield _schedule(arch, results, rows, vectors, blocks)
            yield _schedule(arch, 4, 2 * rows, 1, (1, 4))  # narrow groups
            return
        for results, m, n in product(SQUARES, (14, 28, 56) if far else (28, 56), (64, 128, 256) if far else (128,)):
            for rows, vectors in BLOCKS[arch.vector_registers][:2]:
                yield _schedule(arch, results, rows, vectors, (about(m, rows), about(n, vectors * width)))

    def block_violations(
        self, signature: ConvSignature, schedule: CpuWinogradSchedule, arch: Arch
    ) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        yield from tile_rules(schedule)
        if schedule.results not in SQUARES:
            yield Violation(
                "cpu-winograd",
                f"there is no Winograd transform F({schedule.results}x{schedule.results}, 3x3)",
                "use 2 or 4",
            )
        if signature.dtype == "int8":
            yield Violation("cpu-winograd-type", "transforms of int8 are not exact", "use implicit")

    def config(self, schedule: CpuWinogradSchedule) -> Mapping[str, object]:
        return {**tiled_config(schedule), **super().config(schedule), "results": schedule.results}

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuWinogradSchedule = spec.schedule
        return {**block_numbers(h), "tile_m": h.tile[0], "results": h.results}


FAMILY = Winograd()
