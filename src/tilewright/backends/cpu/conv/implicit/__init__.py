"""implicit: implicit GEMM, positions of the result by its channels; weights are packed, the rest is read in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cpu.conv.shared import (
    PIXELS,
    CpuConvFamily,
    OfOneThread,
    Shape,
    about,
    block_numbers,
    default_blocks,
    dot_step,
    sizes,
    swept_tiles,
    tile_rules,
    tiled_config,
)
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.spec import ConvSignature


@dataclass(frozen=True, slots=True)
class CpuImplicitSchedule(OfOneThread):
    pipeline: str = field(default="implicit", init=False)
    tile: Shape  # positions, channels, and elements of k between two saves of the accumulators
    warp_tile: Shape  # positions, channels, and elements of k a dot step eats

    pipelines: ClassVar[tuple[str, ...]] = ("implicit",)

    def label(self) -> str:
        return f"implicit_{sizes(self.tile)}_{sizes(self.warp_tile)}"


def _schedule(signature: ConvSignature, arch: Arch, rows: int, vectors: int, blocks: Shape) -> CpuImplicitSchedule:
    """Its cache block is `blocks` register blocks by m and n, and words by k."""
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuImplicitSchedule(
        (rows * blocks[0], vectors * width * blocks[1], blocks[2] * step), (rows, vectors * width, step)
    )


class Implicit(CpuConvFamily):
    name, work, variants = "implicit", "ConvImplicit", PIXELS
    schedules = (CpuImplicitSchedule,)

    def step(self, signature: ConvSignature, arch: Arch) -> int:
        return dot_step(signature, arch)

    def proposals(self, pool: str, signature: ConvSignature, arch: Arch) -> Iterator[CpuImplicitSchedule]:
        if signature.variant not in self.variants:
            return
        if pool == "default":
            for rows, vectors in default_blocks(arch):
                blocks = (about(128, rows), about(256, vectors * lanes(arch)), 1152)
                yield _schedule(signature, arch, rows, vectors, blocks)
            return
        for rows, vectors, shape in swept_tiles(arch, pool == "profiler"):
            yield _schedule(signature, arch, rows, vectors, shape)

    def block_violations(
        self, signature: ConvSignature, schedule: CpuImplicitSchedule, arch: Arch
    ) -> Iterator[Violation]:
        yield from super().block_violations(signature, schedule, arch)
        yield from tile_rules(schedule)

    def config(self, schedule: CpuImplicitSchedule) -> Mapping[str, object]:
        return {**tiled_config(schedule), **super().config(schedule)}

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuImplicitSchedule = spec.schedule
        return {**block_numbers(h), "tile_k": h.tile[2], "step": h.warp_tile[2]}

    def promises(self, spec: KernelSpec) -> Promises:
        """Dot products of bytes and bf16 too, where the arch has them."""
        from tilewright.inspect.x86 import FMA

        arch = arch_by_name(spec.arch)
        if "fma" not in arch.features:
            return Promises()
        if spec.signature.dtype == "int8":
            return Promises(("vpdp",)) if "vnni" in arch.features else Promises()
        return Promises((*FMA, "vdpbf16ps") if dot_step(spec.signature, arch) == 2 else FMA)


FAMILY = Implicit()
