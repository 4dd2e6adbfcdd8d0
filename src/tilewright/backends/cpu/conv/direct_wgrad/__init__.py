"""direct_wgrad: gradients of weights of few channels, taps and channels by filters in lanes; no patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import (
    BLOCKS,
    WEIGHTS,
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
from tilewright.renames import renamed_fields


@renamed_fields({}, {"pipeline": {"direct_weight": "direct_wgrad"}})
@dataclass(frozen=True, slots=True)
class CpuDirectWgradSchedule(OfOneThread):
    pipeline: str = field(default="direct_wgrad", init=False)
    tile: Pair  # filters done at a time, and pixels packed at a time
    warp_tile: Shape  # taps and channels by filters

    pipelines: ClassVar[tuple[str, ...]] = ("direct_wgrad",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "tile": ("n", "k")}

    def label(self) -> str:
        return f"direct_wgrad_{sizes(self.tile)}_{sizes(self.warp_tile)}"


def _schedule(arch: Arch, rows: int, vectors: int, filters: int = 64, pixels: int = 256) -> CpuDirectWgradSchedule:
    width = vectors * lanes(arch)
    return CpuDirectWgradSchedule((width * about(filters, width), pixels), (rows, width, 1))


class DirectWgrad(CpuConvFamily):
    name, work, variants = "direct_wgrad", "ConvDirectWgrad", WEIGHTS
    schedules = (CpuDirectWgradSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuDirectWgradSchedule]:
        if signature.variant not in self.variants:
            return
        if pool == "default":
            yield _schedule(arch, *BLOCKS[arch.vector_registers][0])
            return
        far = pool == "profiler"
        for rows, vectors in BLOCKS[arch.vector_registers][: None if far else 3]:
            for filters, pixels in product((32, 64, 128) if far else (64,), (128, 256, 512) if far else (256,)):
                yield _schedule(arch, rows, vectors, filters, pixels)

    def block_violations(
        self, signature: ConvSignature, schedule: CpuDirectWgradSchedule, arch: Arch
    ) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        yield from tile_rules(schedule)

    def config(self, schedule: CpuDirectWgradSchedule) -> Mapping[str, object]:
        return {**tiled_config(schedule), **super().config(schedule)}

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuDirectWgradSchedule = spec.schedule
        return {**block_numbers(h), "tile_n": h.tile[0], "tile_k": h.tile[1]}


FAMILY = DirectWgrad()
