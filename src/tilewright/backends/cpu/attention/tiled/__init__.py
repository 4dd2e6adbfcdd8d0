"""tiled: many rows; queries in lanes, keys block by block with a running softmax."""

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

# Vectors of rows, and keys at once, of the register blocks worth having, best first: with 32 registers, with 16, and
# where products and sums are apart.
_WIDE, _NARROW, _PLAIN = ((3, 8), (2, 8), (2, 12), (1, 8)), ((3, 4), (2, 4), (1, 8)), ((2, 4), (1, 8))
_DEFAULT_KEYS = 128
_SET = 8  # tiles of rows that share what is packed


@dataclass(frozen=True, slots=True)
class CpuTiledSchedule:
    """Tile is the cache block (rows by keys), warp tile the register block; threads take items from a queue."""

    pipeline: str = field(default="tiled", init=False)
    tile: Pair  # rows that share what is packed of keys and values; keys of a block
    warp_tile: Pair  # rows in lanes; keys, or elements of a result, at once

    pipelines: ClassVar[tuple[str, ...]] = ("tiled",)
    serves: ClassVar[tuple[str, ...]] = ("forward",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES

    def label(self) -> str:
        return f"tiled_{self.tile[0]}x{self.tile[1]}_{self.warp_tile[0]}x{self.warp_tile[1]}"


def _schedule(arch: Arch, vectors: int, deep: int, keys: int, tiles: int = _SET) -> CpuTiledSchedule:
    rows = vectors * lanes(arch)
    return CpuTiledSchedule((rows * tiles, keys // deep * deep), (rows, deep))


class Tiled(CpuAttentionFamily):
    name = "tiled"
    schedules = (CpuTiledSchedule,)

    def proposals(self, pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[CpuTiledSchedule]:
        """Asked for `default`, `full` and `profiler`; the other pools are rules over these (`pools.py`)."""
        if signature.family != "forward":
            return
        blocks = _WIDE if arch.vector_registers >= 32 else _NARROW if "fma" in arch.features else _PLAIN
        if pool == "default":
            yield _schedule(arch, *blocks[0], _DEFAULT_KEYS)
            return
        far = pool == "profiler"
        for vectors, deep in blocks:
            for keys in (32, 64, 96, 128, 192, 256) if far else (64, 128, 256):
                for tiles in (2, 4, 8, 16) if far else (8,):
                    yield _schedule(arch, vectors, deep, keys, tiles)

    def violations(self, signature: AttentionSignature, schedule: CpuTiledSchedule, arch: Arch) -> Iterator[Violation]:
        yield from left_to_loops(schedule.pipeline, signature)
        yield from _registers(schedule, arch)
        for name, size, block in zip("mn", schedule.tile, schedule.warp_tile, strict=True):
            if size % block:
                message = f"tile_{name} {size} is not a multiple of warp_tile_{name} {block}"
                yield Violation("cpu-tile", message, f"use {max(1, size // block) * block}")
        if schedule.tile[1] % 2:
            yield Violation(
                "cpu-pairs", f"tile_n {schedule.tile[1]} is odd: keys are multiplied in pairs", "use an even number"
            )
        if schedule.tile[1] * schedule.warp_tile[0] * 4 > BLOCK_BYTES:
            message = f"{schedule.tile[1]} keys of {schedule.warp_tile[0]} rows do not fit into the cache"
            yield Violation("cpu-cache-block", message, f"use at most {BLOCK_BYTES // 4 // schedule.warp_tile[0]} keys")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuTiledSchedule = spec.schedule
        step = dot_step(spec.signature, arch_by_name(spec.arch))
        return {"set": h.tile[0], "rows": h.warp_tile[0], "deep": h.warp_tile[1], "step": step}

    def work(self, spec: KernelSpec) -> str:
        return "AttentionTiled"

    def config(self, schedule: CpuTiledSchedule) -> Mapping[str, int]:
        shapes = ("tile", schedule.tile), ("warp_tile", schedule.warp_tile)
        return {f"{name}_{axis}": size for name, sizes in shapes for axis, size in zip("mn", sizes, strict=True)}


def _registers(schedule: CpuTiledSchedule, arch: Arch) -> Iterator[Violation]:
    width, (rows, deep) = lanes(arch), schedule.warp_tile
    if rows % width:
        below = rows // width * width
        message = f"warp_tile_m {rows} is not a multiple of the {width} lanes of a {arch.name} vector"
        yield Violation("cpu-vector", message, f"use {below or width} or {below + width}")
        return
    vectors = rows // width
    spare = 1 if "fma" in arch.features else 2  # what is broadcast; and a product, where it is not added at once
    need = deep * vectors + vectors + spare
    if need > arch.vector_registers:
        most = (arch.vector_registers - vectors - spare) // vectors
        yield Violation(
            "cpu-registers",
            f"warp tile {rows}x{deep} needs {need} vector registers, {arch.name} has {arch.vector_registers}",
            f"use at most {most} for warp_tile_n" if most > 0 else f"use fewer than {rows} for warp_tile_m",
        )


FAMILY = Tiled()
