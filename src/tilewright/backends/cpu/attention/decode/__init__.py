"""decode: few rows; the cache is read once, in its own order, and its keys are shared among threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cpu.attention.shared import (
    BLOCK_BYTES,
    SHAPES,
    CpuAttentionFamily,
    Pair,
    dot_step,
    left_to_loops,
)
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.attention.spec import AttentionSignature
from tilewright.ops.base import KernelSpec, Violation

MOST_ROWS = 64  # whose scores of a block are kept: `kMostRows` of limits.h
MOST_PASS = 8  # rows whose accumulators of values are in registers at once


@dataclass(frozen=True, slots=True)
class CpuDecodeSchedule:
    """Elements of a head in lanes, or rows where there are more."""

    pipeline: str = field(default="decode", init=False)
    tile: Pair  # rows of a pass, keys of a block

    pipelines: ClassVar[tuple[str, ...]] = ("decode",)
    serves: ClassVar[tuple[str, ...]] = ("forward",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {"tile": SHAPES["tile"]}

    def label(self) -> str:
        return f"decode_{self.tile[0]}x{self.tile[1]}"


class Decode(CpuAttentionFamily):
    name = "decode"
    schedules = (CpuDecodeSchedule,)

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CpuDecodeSchedule]:
        if signature.family != "forward":
            return
        most = min(MOST_PASS, lanes(arch))
        if pool == "default":
            yield CpuDecodeSchedule((most, 64))
            return
        far = pool == "profiler"
        for rows in [rows for rows in (1, 2, 4, 8) if rows <= most] if far else (most // 2, most):
            for keys in (16, 32, 64, 128, 256) if far else (32, 64, 128):
                yield CpuDecodeSchedule((rows, keys))

    def violations(self, signature: AttentionSignature, schedule: CpuDecodeSchedule, arch: Arch) -> Iterator[Violation]:
        yield from left_to_loops(schedule.pipeline, signature)
        rows, keys = schedule.tile
        most = min(MOST_PASS, lanes(arch))
        if rows > most or rows & (rows - 1):
            message = f"passes of {rows} rows on {arch.name}"
            yield Violation("cpu-pass", message, f"use a power of two up to {most}")
        if keys % lanes(arch):
            message = f"a block of {keys} keys is not a multiple of the {lanes(arch)} lanes of a {arch.name} vector"
            yield Violation("cpu-vector", message, f"use {max(1, keys // lanes(arch)) * lanes(arch)}")
        if keys * MOST_ROWS * 4 > BLOCK_BYTES:
            message = f"a block of {keys} keys does not fit into the cache"
            yield Violation("cpu-cache-block", message, f"use at most {BLOCK_BYTES // 4 // MOST_ROWS}")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        rows, keys = spec.schedule.tile
        return {"rows": rows, "keys": keys, "step": dot_step(spec.signature, arch_by_name(spec.arch))}

    def work(self, spec: KernelSpec) -> str:
        return "AttentionDecode"

    def config(self, schedule: CpuDecodeSchedule) -> Mapping[str, int]:
        return dict(zip(("tile_m", "tile_n"), schedule.tile, strict=True))


FAMILY = Decode()
