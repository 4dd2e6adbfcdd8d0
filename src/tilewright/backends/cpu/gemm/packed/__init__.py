"""packed and preshuffle: panels of A and B are packed into cache blocks, B perhaps beforehand; for large problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.cpu.gemm.shared import BLOCKS, CpuGemmFamily, dot_step
from tilewright.backends.cpu.vectors import block_rules, lanes
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.schedule import ALL_EDGES, MNK, ONE, SHAPES, Edges, Shape, edges, joined, sizes
from tilewright.ops.gemm.spec import GemmSignature

MAX_SPLIT_K = 64
MAX_UNROLL = 8
PACK_LIMIT = 8 << 20  # bytes of one packed block: what an L2 of today may hold


@dataclass(frozen=True, slots=True)
class CpuPackedSchedule:
    """tile is the cache block, warp tile the register block."""

    pipeline: str
    tile: Shape
    warp_tile: Shape  # rows, columns, and k elements a dot step eats
    pad: Edges = ALL_EDGES  # edge code for sizes that are no multiple, along m, n, k
    split_k: int = 1
    unroll: int = 1  # k iterations in one round of the inner loop
    prefetch: int = 0  # how many k iterations ahead; 0 is none

    pipelines: ClassVar[tuple[str, ...]] = ("packed", "preshuffle")
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"pipeline": pipelines}
    may_be_zero: ClassVar[tuple[str, ...]] = ("prefetch",)
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {**SHAPES, "pad": MNK}
    warp_grid: ClassVar[Shape] = ONE  # threads are laid over the tiles at launch

    def label(self) -> str:
        return joined(
            self.pipeline,
            sizes(self.tile),
            sizes(self.warp_tile),
            self.split_k > 1 and f"split_k{self.split_k}",
            self.unroll > 1 and f"unroll{self.unroll}",
            self.prefetch and f"prefetch{self.prefetch}",
            not all(self.pad) and edges(self.pad),
        )


def _packed_bytes(signature: GemmSignature, arch: Arch) -> int:
    """Bytes of one packed element: int8 stays int8 for VNNI, is widened otherwise; floats become fp32."""
    if signature.dtype_a == "int8":
        return {4: 1, 2: 2, 1: 4}[dot_step(signature, arch)]
    return 2 if dot_step(signature, arch) == 2 else 4


def _schedule(
    signature: GemmSignature,
    arch: Arch,
    rows: int,
    vectors: int,
    blocks: Shape,
    unroll: int = 1,
    prefetch: int = 0,
    split_k: int = 1,
) -> CpuPackedSchedule:
    """A schedule whose cache block is `blocks` register blocks by m and n, and words by k."""
    width, step = lanes(arch), dot_step(signature, arch)
    return CpuPackedSchedule(
        "preshuffle" if signature.variant == "preshuffle" else "packed",
        (rows * blocks[0], vectors * width * blocks[1], blocks[2] * step),
        (rows, vectors * width, step),
        unroll=unroll,
        prefetch=prefetch,
        split_k=split_k,
    )


def _default(signature: GemmSignature, arch: Arch) -> Iterator[CpuPackedSchedule]:
    """For large problems, and for long k."""
    wide = arch.vector_registers >= 32
    (rows, vectors), (other_rows, other_vectors) = BLOCKS[arch.vector_registers][:2]
    deep = 384 if wide else 256
    yield _schedule(signature, arch, rows, vectors, (12, 48 if wide else 32, deep), unroll=2, prefetch=8 * wide)
    if wide:
        yield _schedule(signature, arch, other_rows, other_vectors, (32, 32, 384), unroll=2, prefetch=8)
    else:
        yield _schedule(signature, arch, other_rows, other_vectors, (12, 16, 256), unroll=2)
    if signature.variant != "preshuffle":
        yield _schedule(signature, arch, rows, vectors, (12, 16, deep), unroll=2, split_k=4)
        yield _schedule(signature, arch, rows, vectors, (12, 16, deep), unroll=2, split_k=16)


def _swept(far: bool, signature: GemmSignature, arch: Arch) -> Iterator[CpuPackedSchedule]:
    """Every axis varied, or varied further."""
    for rows, vectors in BLOCKS[arch.vector_registers]:
        for words in (128, 192, 256, 320, 384, 448, 512, 768) if far else (256, 384, 512):
            for m_blocks in (4, 8, 12, 16, 24, 32) if far else (8, 12, 24):
                for n_blocks in (4, 8, 16, 32, 48) if far else (8, 16, 48):
                    for unroll in (1, 2, 4):
                        for prefetch in (0, 8):
                            for split_k in (1, 2, 4, 8, 16) if far else (1, 4):
                                yield _schedule(
                                    signature, arch, rows, vectors, (m_blocks, n_blocks, words),
                                    unroll=unroll, prefetch=prefetch, split_k=split_k,
                                )  # fmt: skip


class Packed(CpuGemmFamily):
    name = "packed"
    schedules = (CpuPackedSchedule,)

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CpuPackedSchedule]:
        if pool in ("full", "profiler"):
            yield from _swept(pool == "profiler", signature, arch)
            return
        for number, schedule in enumerate(_default(signature, arch)):
            if pool != "tiny" or number == 0:
                yield schedule
        if pool == "tests" and signature.variant != "preshuffle":
            # Without edge code, and with small tiles: what default does not exercise.
            rows, vectors = BLOCKS[arch.vector_registers][1]
            small = _schedule(signature, arch, rows, vectors, (2, 2, 64))
            yield from (small, replace(small, pad=(False, False, False)))

    def violations(self, signature: GemmSignature, schedule: CpuPackedSchedule, arch: Arch) -> Iterator[Violation]:
        if (signature.variant == "preshuffle") != (schedule.pipeline == "preshuffle"):
            message = f"variant {signature.variant} with pipeline {schedule.pipeline}"
            yield Violation("cpu-preshuffle", message, "variant and pipeline preshuffle go together")
        yield from block_rules(schedule.warp_tile, dot_step(signature, arch), signature.dtype_a, arch)
        for name, value, most in (("unroll", schedule.unroll, MAX_UNROLL), ("split_k", schedule.split_k, MAX_SPLIT_K)):
            if value > most:
                rule = f"cpu-{name.replace('_', '-')}"
                yield Violation(rule, f"{name} {value} is over {most}", f"use 1 to {most}")
        m, n, k = schedule.tile
        size = _packed_bytes(signature, arch)
        for what, count in (("A", m * k), ("B", n * k)):
            if count * size > PACK_LIMIT:
                yield Violation(
                    "cpu-cache-block",
                    f"the packed block of {what} takes {count * size} bytes, over {PACK_LIMIT}",
                    f"use tile_k {PACK_LIMIT // size // (count // k)} or less",
                )

    def grains(self, schedule: CpuPackedSchedule) -> Shape:
        m, n, k = (1 if edge else step for edge, step in zip(schedule.pad, schedule.warp_tile, strict=True))
        return m, n, k

    def pack_format(self, schedule: CpuPackedSchedule) -> tuple[object, ...]:
        """A packed B is panels of warp_tile_n columns, k running in steps of warp_tile_k."""
        return schedule.warp_tile[1:]

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: CpuPackedSchedule = spec.schedule
        rows, columns, step = h.warp_tile
        grains = dict(zip(("grain_m", "grain_n", "grain_k"), self.grains(h), strict=True))
        block = {"tile_n": h.tile[1], "tile_k": h.tile[2], "rows": rows, "columns": columns, "step": step}
        return {**block, **grains, "split_k": h.split_k, "b_packed": int(h.pipeline == "preshuffle")}

    def work(self, spec: KernelSpec) -> str:
        return f"GemmPacked<Config, {'true' if spec.schedule.pipeline == 'preshuffle' else 'false'}>"

    def config(self, schedule: CpuPackedSchedule) -> Mapping[str, int]:
        h = schedule
        return {"pad_n": int(h.pad[1]), "split_k": h.split_k, "unroll": h.unroll, "prefetch": h.prefetch}


FAMILY = Packed()
