"""The schedules worth proposing.  A pool proposes; legality disposes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.arch import Arch
from tilewright.backends.hip.ck_tile_rules import ck_tile_rules
from tilewright.backends.hip.gemm.tiled.schedule import TiledSchedule
from tilewright.backends.hip.gemm.tiled.shape import lds_bytes, multiplied
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

# Tile, its k in bytes, and waves along m and n: of 64 lanes (CDNA), and of 32 (RDNA).
_CDNA: tuple[tuple[int, int, int, Shape], ...] = (
    (128, 128, 64, (2, 2, 1)),
    (64, 64, 128, (2, 2, 1)),
    (16, 64, 128, (1, 4, 1)),
    (64, 16, 128, (4, 1, 1)),
)
_RDNA: tuple[tuple[int, int, int, Shape], ...] = (
    (128, 128, 64, (4, 2, 1)),
    (64, 64, 128, (2, 2, 1)),
    (16, 64, 128, (1, 4, 1)),
    (64, 16, 128, (4, 1, 1)),
)
# Where CK Tile has nothing.
_CDNA_MORE: tuple[tuple[int, int, int, Shape], ...] = ((256, 128, 64, (4, 2, 1)), (128, 64, 128, (2, 2, 1)))
_RDNA_MORE: tuple[tuple[int, int, int, Shape], ...] = ((128, 256, 64, (2, 4, 1)), (128, 64, 64, (4, 2, 1)))
_SPLITS = ((0, 4), (1, 8))  # of the tiles above, and parts


def _schedule(
    size: int, m: int, n: int, deep_bytes: int, grid: Shape, split_k: int = 1, stages: int = 2
) -> TiledSchedule:
    return TiledSchedule((m, n, deep_bytes // size), grid, stages, split_k)


def _places(schedule: TiledSchedule, size: int, arch: Arch) -> TiledSchedule:
    """One place in LDS where two would let in a single block of one wave a SIMD, whose waits nothing fills.

    By the model of main loops (no measurement) a tile of 128x128 keeps gfx942's matrix units busy for 0.56 of the time
    with two places, and all of it with one.
    """
    waves = schedule.warp_grid[0] * schedule.warp_grid[1]
    lonely = "mfma" in arch.features and waves <= arch.simds and 2 * lds_bytes(schedule, size) > arch.scratch_bytes
    return replace(schedule, stages=1) if lonely else schedule


def _default(size: int, arch: Arch, alone: bool) -> Iterator[TiledSchedule]:
    cdna = "mfma" in arch.features
    tiles = _CDNA if cdna else _RDNA
    more = (_CDNA_MORE if cdna else _RDNA_MORE) if alone else ()
    proposed = [*(_schedule(size, *tile) for tile in (*tiles, *more))]
    proposed += [_schedule(size, *tiles[index], split_k=parts) for index, parts in _SPLITS]
    for schedule in proposed:
        yield _places(schedule, size, arch)


def _swept(pool: str, size: int, arch: Arch) -> Iterator[TiledSchedule]:
    far = pool == "profiler"
    sides = (16, 32, 64, 128, 256)
    grids = ((1, 2, 1), (2, 1, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1), (4, 2, 1), (2, 4, 1))
    deep = (32, 64, 128, 256) if far else (64, 128)
    splits = (1, 2, 4, 8, 16) if far else (1, 4)
    for m, n, k, grid in product(sides, sides, deep, grids):
        if m % (grid[0] * 16) or n % (grid[1] * 16):
            continue
        for stages, parts in product((1, 2), splits):
            yield _schedule(size, m, n, k, grid, parts, stages)


def small(signature: GemmSignature, arch: Arch) -> Iterator[TiledSchedule]:
    """The tiles that are not large, for any size of a problem; the last fits wherever there is an instruction."""
    kinds = multiplied(signature, arch)
    assert kinds is not None
    for tile in (_CDNA if "mfma" in arch.features else _RDNA)[1:]:
        yield _schedule(DTYPES[kinds[0]].bytes, *tile)


def proposals(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[TiledSchedule]:
    kinds = multiplied(signature, arch)
    assert kinds is not None
    size = DTYPES[kinds[0]].bytes
    alone = next(ck_tile_rules(signature, arch), None) is not None
    if signature.variant == "preshuffle" and not alone:
        return  # buffers that were packed are for one family's kernels: CK Tile's, where it has some
    if pool in ("full", "profiler"):
        yield from _swept(pool, size, arch)
    elif pool != "tiny":
        yield from _default(size, arch, alone)
    elif alone:
        yield _schedule(size, *(_CDNA if "mfma" in arch.features else _RDNA)[1])
