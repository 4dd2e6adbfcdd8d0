"""outer: gradients of weights as sums of outer products, filters by channels, pixels go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import (
    CpuPassingFamily,
    OfOneThread,
    Shape,
    about,
    block_numbers,
    default_blocks,
    dot_step,
    sizes,
    swept_tiles,
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
    warp_tile: Shape  # filters, channels, and pixels a dot step eats
    split_k: int = 1  # parts the pixels are summed in

    pipelines: ClassVar[tuple[str, ...]] = ("outer",)

    def label(self) -> str:
        split = f"_split_k{self.split_k}" if self.split_k > 1 else ""
        return f"outer_{sizes(self.tile)}_{sizes(self.warp_tile)}{split}"


def _schedule(
    signature: ConvSignature, arch: Arch, rows: int, vectors: int, blocks: Shape, split_k: int = 1
) -> CpuOuterSchedule:
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuOuterSchedule(
        (rows * blocks[0], vectors * width * blocks[1], blocks[2]), (rows, vectors * width, step), split_k
    )


class Outer(CpuPassingFamily):
    name, work = "outer", "ConvOuter"
    schedules = (CpuOuterSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuOuterSchedule]:
        if signature.variant not in self.variants:
            return
        if pool == "default":
            blocks = default_blocks(arch)
            for (rows, vectors), split_k in (*((block, 1) for block in blocks), (blocks[0], 8)):
                shape = (about(64, rows), about(64, vectors * lanes(arch)), 256)
                yield _schedule(signature, arch, rows, vectors, shape, split_k)
            return
        far = pool == "profiler"
        for rows, vectors, shape in swept_tiles(arch, far):
            for split_k in (1, 2, 8, 32) if far else (1, 8):
                yield _schedule(signature, arch, rows, vectors, shape, split_k)

    def block_violations(self, signature: ConvSignature, schedule: CpuOuterSchedule, arch: Arch) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        if schedule.split_k > MAX_SPLIT_K:
            message = f"split_k {schedule.split_k} is over {MAX_SPLIT_K}"
            yield Violation("cpu-split-k", message, f"use 1 to {MAX_SPLIT_K}")

    def config(self, schedule: CpuOuterSchedule) -> Mapping[str, object]:
        return {**super().config(schedule), "split_k": schedule.split_k}

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuOuterSchedule = spec.schedule
        tile = dict(zip(("tile_m", "tile_n", "tile_k"), h.tile, strict=True))
        return {**block_numbers(h), **tile, "split_k": h.split_k, "step": h.warp_tile[2]}


FAMILY = Outer()
