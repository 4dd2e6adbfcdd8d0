"""direct_wgrad: gradients of weights of few channels, taps and channels by filters in lanes; no patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.conv.shared import (
    BLOCKS,
    CpuPassingFamily,
    OfOneThread,
    Pair,
    Shape,
    about,
    block_numbers,
    dot_step,
    sizes,
)
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.schedule import SHAPES
from tilewright.ops.conv.spec import ConvSignature
from tilewright.renames import renamed_fields


@renamed_fields({}, {"pipeline": {"direct_weight": "direct_wgrad"}})
@dataclass(frozen=True, slots=True)
class CpuDirectWgradSchedule(OfOneThread):
    pipeline: str = field(default="direct_wgrad", init=False)
    tile: Pair  # filters done at a time, and pixels packed at a time
    warp_tile: Shape  # taps and channels by filters, and pixels a dot step eats

    pipelines: ClassVar[tuple[str, ...]] = ("direct_wgrad",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "tile": ("n", "k")}

    def label(self) -> str:
        return f"direct_wgrad_{sizes(self.tile)}_{sizes(self.warp_tile)}"


def _schedule(
    signature: ConvSignature, arch: Arch, rows: int, vectors: int, filters: int = 64, pixels: int = 256
) -> CpuDirectWgradSchedule:
    width, step = vectors * lanes(arch), dot_step(signature, arch)
    return CpuDirectWgradSchedule((width * about(filters, width), pixels), (rows, width, step))


class DirectWgrad(CpuPassingFamily):
    name, work = "direct_wgrad", "ConvDirectWgrad"
    schedules = (CpuDirectWgradSchedule,)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuDirectWgradSchedule]:
        if signature.variant not in self.variants:
            return
        if pool == "default":
            yield _schedule(signature, arch, *BLOCKS[arch.vector_registers][0])
            return
        far = pool == "profiler"
        for rows, vectors in BLOCKS[arch.vector_registers][: None if far else 3]:
            for filters, pixels in product((32, 64, 128) if far else (64,), (128, 256, 512) if far else (256,)):
                yield _schedule(signature, arch, rows, vectors, filters, pixels)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuDirectWgradSchedule = spec.schedule
        return {**block_numbers(h), "tile_n": h.tile[0], "tile_k": h.tile[1], "step": h.warp_tile[2]}


FAMILY = DirectWgrad()
