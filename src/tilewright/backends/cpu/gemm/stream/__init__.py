"""gemv and stream: one operand is streamed past a handful of vectors of the other; for few rows or columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.gemm.shared import CpuGemmFamily, dot_step, preshuffled_alone
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.schedule import ONE, SHAPES, Shape, joined, sizes
from tilewright.ops.gemm.spec import GemmSignature

MOST_VECTORS = {"gemv": 4, "stream": 256}  # rows (or columns) of a kernel


@dataclass(frozen=True, slots=True)
class CpuStreamSchedule:
    """gemv holds up to four vectors, stream more."""

    pipeline: str
    tile: Shape  # vectors at most, accumulators of one kept at a time, k elements between two saves
    warp_tile: Shape
    prefetch: int = 0

    pipelines: ClassVar[tuple[str, ...]] = ("gemv", "stream")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("prefetch",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES
    warp_grid: ClassVar[Shape] = ONE

    def label(self) -> str:
        ahead = self.prefetch and f"prefetch{self.prefetch}"
        return joined(self.pipeline, sizes(self.tile), sizes(self.warp_tile), ahead)


def _schedule(
    pipeline: str, signature: GemmSignature, arch: Arch, most: int, words: int, ahead: int
) -> CpuStreamSchedule:
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuStreamSchedule(pipeline, (most, 2048, words * step), (1, width, step), prefetch=ahead)


class Stream(CpuGemmFamily):
    name = "stream"
    schedules = (CpuStreamSchedule,)

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CpuStreamSchedule]:
        if pool == "tiny" or signature.variant == "preshuffle":
            return
        if pool not in ("full", "profiler"):
            for pipeline in ("stream", "gemv"):
                yield _schedule(pipeline, signature, arch, MOST_VECTORS[pipeline], 512, 8)
            return
        for words in (256, 512, 768, 1024):
            for ahead in (0, 4, 8, 16):
                yield _schedule("gemv", signature, arch, MOST_VECTORS["gemv"], words, ahead)
                for most in (16, 64, MOST_VECTORS["stream"]):
                    yield _schedule("stream", signature, arch, most, words, ahead)

    def violations(self, signature: GemmSignature, schedule: CpuStreamSchedule, arch: Arch) -> Iterator[Violation]:
        yield from preshuffled_alone(signature)
        most = MOST_VECTORS[schedule.pipeline]
        if schedule.tile[0] > most:
            yield Violation(
                "cpu-stream-rows",
                f"tile_m {schedule.tile[0]}: a {schedule.pipeline} kernel takes at most {most} rows (or columns)",
                f"use tile_m {most} or less",
            )
        width, step = lanes(arch), dot_step(signature, arch)
        if schedule.warp_tile != (1, width, step):
            yield Violation(
                "cpu-stream-warp-tile",
                f"warp tile {schedule.warp_tile}, but a {schedule.pipeline} kernel works on single vectors",
                f"use 1x{width}x{step}",
            )
        if schedule.tile[2] % (width * step):
            yield Violation(
                "cpu-stream-k",
                f"tile_k {schedule.tile[2]} is not a multiple of {width} words of {step}",
                f"use {-(-schedule.tile[2] // (width * step)) * width * step}",
            )

    def pack_format(self, schedule: CpuStreamSchedule) -> tuple[object, ...]:
        return schedule.warp_tile[1:]

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuStreamSchedule = spec.schedule
        return {"most": h.tile[0], "step": h.warp_tile[2], "gemv": int(h.pipeline == "gemv")}

    def work(self, spec: KernelSpec) -> str:
        return "GemmStream<Config>"

    def config(self, schedule: CpuStreamSchedule) -> Mapping[str, int]:
        return {"prefetch": schedule.prefetch}


FAMILY = Stream()
