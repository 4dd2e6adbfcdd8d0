"""outer: gradients of weights as sums of outer products, filters by channels, pixels go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import (
    WEIGHTS,
    CpuConvFamily,
    OfOneThread,
    Shape,
    about,
    block_numbers,
    default_blocks,
    sizes,
    swept_tiles,
    tile_rules,
    tiled_config,
)
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature

MAX_SPLIT_K = 64


@dataclass(frozen=True, slots=True)
class CpuOuterSchedule(OfOneThread):
    pipeline: str = field(default="outer", init=False)
    tile: Shape  # filters, channels, and pixels packed at a time
    warp_tile: Shape
    split_k: int = 1  # parts the pixels are summed in

    pipelines: ClassVar[tuple[str, ...]] = ("outer",)

    def label(self) -> str:
        split = f"_split_k{self.split_k}" if self.split_k > 1 else ""
        return f"outer_{sizes(self.tile)}_{sizes(self.warp_tile)}{split}"


def _schedule(arch: Arch, rows: int, vectors: int, blocks: Shape, split_k: int = 1) -> CpuOuterSchedule:
    width = lanes(arch)
    return CpuOuterSchedule(
        (rows * blocks[0], vectors * width * blocks[1], blocks[2]), (rows, vectors * width, 1), split_k
    )


class Outer(CpuConvFamily):
    name, work, variants = "outer", "ConvOuter", WEIGHTS
    schedules = (CpuOuterSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuOuterSchedule]:
        if signature.variant not in self.variants:
            return
        if pool == "default":
            blocks = default_blocks(arch)
            for (rows, vectors), split_k in (*((block, 1) for block in blocks), (blocks[0], 8)):
                shape = (about(64, rows), about(64, vectors * lanes(arch)), 256)
                yield _schedule(arch, rows, vectors, shape, split_k)
            return
        far = pool == "profiler"
        for rows, vectors, shape in swept_tiles(arch, far):
            for split_k in (1, 2, 8, 32) if far else (1, 8):
                yield _schedule(arch, rows, vectors, shape, split_k)

    def block_violations(self, signature: ConvSignature, schedule: CpuOuterSchedule, arch: Arch) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        yield from tile_rules(schedule)
        if schedule.split_k > MAX_SPLIT_K:
            message = f"split_k {schedule.split_k} is over {MAX_SPLIT_K}"
            yield Violation("cpu-split-k", message, f"use 1 to {MAX_SPLIT_K}")

    def config(self, schedule: CpuOuterSchedule) -> Mapping[str, object]:
        return {**tiled_config(schedule), **super().config(schedule), "split_k": schedule.split_k}

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuOuterSchedule = spec.schedule
        tile = dict(zip(("tile_m", "tile_n", "tile_k"), h.tile, strict=True))
        return {**block_numbers(h), **tile, "split_k": h.split_k}


FAMILY = Outer()
