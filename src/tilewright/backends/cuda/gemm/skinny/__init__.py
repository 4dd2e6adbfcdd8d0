"""skinny: few rows or few columns against a large matrix, at the speed of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import Promises
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.gemm.shared import CudaGemmFamily, flag
from tilewright.dataclass import dataclass
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import SHAPES, Shape, sizes
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.renames import renamed_fields

_MOST_DUAL = 16  # rows of A of the kernels that the default pool has
MOST_FEW = 32  # rows of A (or columns of B) a kernel may hold


@renamed_fields({"few": "skinny_dim"}, {"skinny_dim": {"rows": "m", "columns": "n"}})
@dataclass(frozen=True, slots=True)
class SkinnySchedule:
    """Few rows or few columns against a large matrix, at the speed of memory; the warps share k."""

    pipeline: str = field(default="skinny", init=False)
    tile: Shape  # 64 of k a warp
    skinny_dim: str = "m"  # the side of the product that has few lines; none: both are tiled, of small products

    pipelines: ClassVar[tuple[str, ...]] = ("skinny",)
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {"skinny_dim": ("m", "n", "none")}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = SHAPES

    @property
    def warp_tile(self) -> Shape:
        return (16, 8, 16) if self.skinny_dim == "n" else (8, 16, 16)

    @property
    def warp_grid(self) -> Shape:
        return (1, 1, self.tile[2] // 64)

    def label(self) -> str:
        return f"skinny_{sizes(self.tile)}_{self.skinny_dim}"


def skinny(row_tiles: int, token_tiles: int, warps: int, skinny_dim: str = "m") -> SkinnySchedule:
    tokens, many = token_tiles * 8, row_tiles * 16
    tile = (many, tokens, 64 * warps) if skinny_dim == "n" else (tokens, many, 64 * warps)
    return SkinnySchedule(tile, skinny_dim)


MEMORY = Arithmetic("tilewright.backends.cuda.gemm.skinny", "tilewright/cuda/gemm/skinny/memory.h")


def shared_bytes(schedule: SkinnySchedule) -> int:
    few, many = (schedule.tile[1], schedule.tile[0]) if schedule.skinny_dim == "n" else schedule.tile[:2]
    return MEMORY("skinny_shared_bytes", schedule.warp_grid[2], many, few)


_SKINNY = ((1, 1, 8), (1, 2, 8), (1, 1, 4), (1, 2, 4), (1, 1, 16), (1, 2, 16), (2, 2, 8), (2, 2, 16))

# The same for a large matrix whose k is not contiguous: 32 or 64 of its lines at a time.
_SKINNY_BY_LINES = ((2, 1, 8), (2, 2, 8), (2, 1, 16), (2, 2, 16), (4, 1, 8), (4, 2, 8), (4, 1, 16))

# Both sides tiled, for small products (measured on an H200): all loads of a block are under way at once.
_TILED = ((1, 1, 8), (1, 2, 4), (1, 2, 8), (2, 2, 8))
_TILED_BY_LINES = ((2, 1, 4), (2, 1, 8), (2, 1, 16), (2, 2, 4), (2, 2, 8))


def _default(signature: GemmSignature, arch: Arch) -> Iterator[SkinnySchedule]:
    for shape in _SKINNY if signature.layout[1] == "c" else _SKINNY_BY_LINES:
        if signature.layout != "ccr" or shape != (2, 2, 16):  # which has too few registers there
            yield skinny(*shape)
    wide = 1 if signature.layout[0] == "r" else 2
    yield skinny(wide, 1, 8, "n")
    yield skinny(wide, 2, 8, "n")
    if "wgmma" in arch.features and not signature.dual:
        for shape in _TILED if signature.layout[1] == "c" else _TILED_BY_LINES:
            yield skinny(*shape, "none")


def _violations(signature: GemmSignature, schedule: SkinnySchedule) -> Iterator[Violation]:
    if signature.dtype_a != signature.dtype_b or signature.dtype_a not in ("bf16", "fp16"):
        yield Violation(
            "nv-inputs",
            f"the skinny pipeline multiplies bf16 or fp16, not {signature.dtype_a} by {signature.dtype_b}",
            "use bf16 or fp16 for both, or another pipeline",
        )
    lines_first = signature.layout[0] != "r" if schedule.skinny_dim == "n" else signature.layout[1] != "c"
    few, many = (schedule.tile[1], schedule.tile[0]) if schedule.skinny_dim == "n" else schedule.tile[:2]
    warps, rest = divmod(schedule.tile[2], 64)
    if rest or warps not in (2, 4, 8, 16):
        yield Violation(
            "nv-tile-k",
            f"tile_k {schedule.tile[2]}: the warps share k, 64 each, and there are 2, 4, 8 or 16",
            "use 128, 256, 512 or 1024",
        )
    if few > MOST_FEW or few % 8 or many not in (16, 32, 48, 64):
        yield Violation(
            "nv-skinny-tile",
            f"tile {sizes(schedule.tile)} with skinny_dim {schedule.skinny_dim}",
            f"use 8 to {MOST_FEW} along skinny_dim in steps of 8, and 16 to 64 along the other side in steps of 16",
        )
    elif lines_first and many not in (32, 64):
        yield Violation(
            "nv-skinny-layout",
            f"skinny reads {many} lines of the large matrix at a time, of layout {signature.layout}",
            "use 32 or 64 where k of the large matrix is not contiguous",
        )
    if signature.dual and (schedule.skinny_dim != "m" or signature.layout[1] != "c"):
        yield Violation(
            "nv-skinny-dual",
            f"the skinny pipeline reads two B of layout {signature.layout} with skinny_dim {schedule.skinny_dim}",
            "use skinny_dim m, and both B with k contiguous",
        )
    static = shared_bytes(schedule)
    if static > 48 * 1024:
        yield Violation(
            "nv-shared-memory",
            f"the accumulators of {warps} warps take {static} bytes of shared memory, over {48 * 1024}",
            "use fewer warps or a smaller tile",
        )


class Skinny(CudaGemmFamily):
    name = "skinny"
    schedules = (SkinnySchedule,)
    dual = True

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[SkinnySchedule]:
        if pool in ("full", "profiler"):
            for rows, tokens, warps in product((1, 2, 4), (1, 2), (2, 4, 8, 16)):
                for skinny_dim in ("m", "n"):
                    yield skinny(rows, tokens, warps, skinny_dim)
        elif pool == "default":
            yield from _default(signature, arch)
        elif pool == "tests":
            yield skinny(1, 2, 4)
            yield skinny(2, 1, 8, "n")
            if not signature.dual:
                yield skinny(2, 2, 4, "none")

    def violations(self, signature: GemmSignature, schedule: SkinnySchedule, arch: Arch) -> Iterator[Violation]:
        yield from self.unpacked(signature)
        yield from _violations(signature, schedule)

    def serves_dual(self, problem: GemmProblem, arch: Arch) -> bool:
        p = problem
        two_bytes = p.dtype_a == p.dtype_b and p.dtype_a in ("bf16", "fp16")
        few = 0 < p.m <= _MOST_DUAL and p.k > 0 and not p.k % 8 and p.aligned and not (p.a_stride | p.b_stride) % 8
        return two_bytes and p.layout[1] == "c" and few

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: SkinnySchedule = spec.schedule
        few = {"warps": h.warp_grid[2], "few_columns": int(h.skinny_dim == "n"), "tiled": int(h.skinny_dim == "none")}
        return {"tile_m": h.tile[0], "tile_n": h.tile[1], **few}

    def config(self, spec: KernelSpec) -> Mapping[str, object]:
        h: SkinnySchedule = spec.schedule
        few = {
            "warps": h.warp_grid[2],
            "few_columns": flag(h.skinny_dim == "n"),
            "tiled": flag(h.skinny_dim == "none"),
        }
        return {"tile_m": h.tile[0], "tile_n": h.tile[1], **few}

    def promises(self, spec: KernelSpec) -> Promises:
        from tilewright.inspect import nvidia

        return Promises(nvidia.WARP, (), shared_bytes(spec.schedule))

    def residency(self, spec: KernelSpec) -> Residency:
        h: SkinnySchedule = spec.schedule
        warps, lines = h.warp_grid[2], sum(h.tile[:2])
        deep = 2 if spec.signature.layout[1 if h.skinny_dim == "m" else 0] != "r" else 1
        held = max(1, min(64 // warps, 65536 // (32 * warps * (36 + deep * lines))))
        return Residency(held=held, ring_bytes=warps * h.tile[1 if h.skinny_dim == "m" else 0] * 128 * deep)


FAMILY = Skinny()
