"""tiled: grad of many rows; rows in lanes, blocks of keys whose dk and dv stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cpu.attention_backward.shared import SHAPES, CpuAttentionBackwardFamily, Pair, dot_step
from tilewright.backends.cpu.vectors import lanes
from tilewright.dataclass import dataclass
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature
from tilewright.ops.base import KernelSpec, Violation

INNER = 8  # blocks of `warp_tile_n` keys whose scores stay in the first-level cache
# Vectors of rows, and of elements of a gradient, and keys at once, of the register blocks worth having.
_WIDE = {4: (4, 6), 3: (3, 8), 2: (2, 12), 1: (1, 24)}
_NARROW = {2: (2, 6), 1: (1, 12)}  # with 16 registers
_PLAIN = {2: (2, 4), 1: (1, 8)}  # where products and sums are apart
_KEYS = (192, 384)


@dataclass(frozen=True, slots=True)
class CpuGradSchedule:
    """Tile is rows of a step by keys of a block, warp tile the register block: rows in lanes by keys at once."""

    pipeline: str = field(default="tiled", init=False)
    tile: Pair
    warp_tile: Pair
    vectors: int  # of elements of a gradient at once

    pipelines: ClassVar[tuple[str, ...]] = ("tiled",)
    serves: ClassVar[tuple[str, ...]] = ("grad",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES

    def label(self) -> str:
        return f"tiled_{self.tile[0]}x{self.tile[1]}_{self.warp_tile[0]}x{self.warp_tile[1]}_{self.vectors}"


def _blocks(arch: Arch) -> Mapping[int, Pair]:
    return _WIDE if arch.vector_registers >= 32 else _NARROW if "fma" in arch.features else _PLAIN


def _schedules(signature: AttentionBackwardSignature, arch: Arch, tiles: int, keys: int) -> Iterator[CpuGradSchedule]:
    """Blocks whose vectors fill heads, widest first."""
    width = lanes(arch)
    for vectors, (rows, deep) in _blocks(arch).items():
        if signature.head_dim % (vectors * width) == 0 == signature.head_dim_v % (vectors * width):
            lane_rows, inner = rows * width, INNER * deep
            yield CpuGradSchedule(
                (max(lane_rows, tiles // lane_rows * lane_rows), max(1, keys // inner) * inner),
                (lane_rows, deep),
                vectors,
            )


class Tiled(CpuAttentionBackwardFamily):
    name = "tiled"
    schedules = (CpuGradSchedule,)

    def proposals(self, pool: str, signature: AttentionBackwardSignature, arch: Arch) -> Iterator[CpuGradSchedule]:
        if signature.family != "grad":
            return
        if pool == "default":
            yield next(_schedules(signature, arch, 64, _KEYS[0]))
            return
        for tiles in (32, 64, 96) if pool == "profiler" else (64,):
            for keys in _KEYS:
                yield from _schedules(signature, arch, tiles, keys)

    def violations(
        self, signature: AttentionBackwardSignature, schedule: CpuGradSchedule, arch: Arch
    ) -> Iterator[Violation]:
        h, width = schedule, lanes(arch)
        (rows, keys), (lane_rows, deep) = h.tile, h.warp_tile
        if lane_rows % width or rows % lane_rows:
            message = f"tile_m {rows} and warp_tile_m {lane_rows} on vectors of {width} lanes"
            yield Violation("cpu-vector", message, f"use multiples of {width}, the first one of the second")
        if keys % (INNER * deep):
            message = f"tile_n {keys} is not a multiple of {INNER} warp tiles of {deep} keys"
            yield Violation("cpu-tile", message, f"use {max(1, keys // (INNER * deep)) * INNER * deep}")
        vectors = max(lane_rows // width, h.vectors)
        spare = 1 if "fma" in arch.features else 2  # what is broadcast; and a product, where it is not added at once
        need = deep * vectors + vectors + spare
        if need > arch.vector_registers:
            message = f"{deep} keys of {vectors} vectors need {need} vector registers, {arch.name} has "
            most = max(1, (arch.vector_registers - vectors - spare) // vectors)
            yield Violation("cpu-registers", f"{message}{arch.vector_registers}", f"use at most {most} for warp_tile_n")

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuGradSchedule = spec.schedule
        step = dot_step(spec.signature, arch_by_name(spec.arch))
        return {"rows": h.tile[0], "keys": h.tile[1], "deep": h.warp_tile[1], "vectors": h.vectors, "step": step}

    def work(self, spec: KernelSpec) -> str:
        return "AttentionGradTiled"

    def config(self, schedule: CpuGradSchedule) -> Mapping[str, int]:
        shapes = ("tile", schedule.tile), ("warp_tile", schedule.warp_tile)
        numbers = {f"{name}_{axis}": size for name, sizes in shapes for axis, size in zip("mn", sizes, strict=True)}
        return {**numbers, "warp_vectors": schedule.vectors}

    def promises(self, spec: KernelSpec) -> Promises:
        """Multiply-add instructions of the arch."""
        from tilewright.inspect.x86 import FMA

        arch = arch_by_name(spec.arch)
        if "fma" not in arch.features:
            return Promises()
        return Promises((*FMA, "vdpbf16ps") if dot_step(spec.signature, arch) == 2 else FMA)


FAMILY = Tiled()
