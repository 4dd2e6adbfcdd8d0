"""The CK Tile schedules worth proposing.  A pool proposes; legality disposes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from tilewright.arch import Arch
from tilewright.backends.hip.ck_tile_pipelines import PIPELINES
from tilewright.backends.hip.ck_tile_rules import ck_tile_rules, tile_key
from tilewright.backends.hip.gemm.ck_tile.schedule import CkTileSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

NO_PADDING = (False, False, False)


def warp_tile(signature: GemmSignature, arch: Arch, width: int, deep: bool = True) -> Shape:
    """The matrix instruction of a width with the longest k up to 32 bytes, or the shortest of all."""
    all_tiles = (arch.warp_tiles or {}).get(tile_key(signature)) or ((width, width, 16),)
    tiles = [tile for tile in all_tiles if tile[0] == tile[1] == width] or [all_tiles[0]]
    size = DTYPES[signature.dtype_a].bytes
    fitting = sorted(tile for tile in tiles if tile[2] * size <= (32 if width == 32 else 64)) or sorted(tiles)
    return fitting[-1] if deep else fitting[0]


def _schedule(
    signature: GemmSignature,
    arch: Arch,
    pipeline: str,
    tile: Shape,
    grid: Shape,
    width: int,
    **more: object,
) -> CkTileSchedule:
    """A schedule with a tile whose k is given for two-byte elements: one-byte ones take twice as many."""
    step = warp_tile(signature, arch, width)
    deep = tile[2] * 2 // DTYPES[signature.dtype_a].bytes
    fields: dict[str, object] = {"scheduler": "intrawave", "store": "cshuffle", **more}
    if PIPELINES[pipeline].packed_b:
        fields.update(scheduler="default", pad=(True, True, False))
    return CkTileSchedule(pipeline, (tile[0], tile[1], deep), step, grid, **fields)  # type: ignore[arg-type]


def fallback(signature: GemmSignature, arch: Arch) -> CkTileSchedule:
    """What reads a packed B, whatever its size."""
    return next(_preshuffle(signature, arch))


def narrow_schedule(signature: GemmSignature, arch: Arch) -> CkTileSchedule:
    """For any size and alignment: so small a tile on four waves that every access is one element, edge code around."""
    step = warp_tile(signature, arch, 16, deep=False)
    grid = (2, 2, 1)
    fused = signature.variant == "multi_d"
    transposed = "lds-transpose" in arch.features and signature.layout != "rcr"  # there compv3 has a wrong tail
    return CkTileSchedule(
        "compv4" if signature.dtype_a != signature.dtype_b else "mem" if transposed else "compv3",
        (grid[0] * step[0], grid[1] * step[1], max(step[2], 16)),
        step,
        grid,
        scheduler="intrawave",
        store="cshuffle" if fused else "direct",
        store_width=1 if fused else 0,
    )


def _preshuffle(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    yield _schedule(signature, arch, "preshuffle", (128, 128, 64), (1, 4, 1), 16)
    yield _schedule(signature, arch, "preshuffle", (64, 128, 64), (1, 4, 1), 16)
    yield _schedule(signature, arch, "preshuffle", (128, 256, 64), (1, 4, 1), 32)
    yield _schedule(signature, arch, "preshuffle", (128, 128, 64), (1, 4, 1), 16, persistent=True)


def _default(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """One kernel for each kind of problem: large, middle, few rows or columns, long k, odd sizes."""
    if signature.variant == "preshuffle":
        yield from _preshuffle(signature, arch)
        return

    def make(pipeline: str, tile: Shape, grid: Shape, width: int, **more: object) -> CkTileSchedule:
        return _schedule(signature, arch, pipeline, tile, grid, width, **more)

    yield make("compv4", (128, 128, 32), (2, 2, 1), 32)
    if (
        arch.name != "gfx950"
    ):  # there its one wave a SIMD multiplies 0.72 of the time by the model of its code, 256x128 always
        yield make("compv3", (256, 256, 32), (2, 2, 1), 32)
    yield make("compv3", (256, 128, 32), (2, 2, 1), 32)
    yield make("compv3", (128, 256, 32), (2, 2, 1), 32)
    yield make("compv3", (128, 128, 64), (2, 2, 1), 32)
    yield make("compv3", (128, 128, 64), (2, 2, 1), 32, persistent=True)
    yield make("mem", (64, 64, 64), (2, 2, 1), 16, scheduler="interwave")
    yield make("mem", (16, 64, 64), (1, 4, 1), 16)
    yield make("mem", (64, 16, 64), (4, 1, 1), 16)
    yield make("compv5", (64, 64, 32), (1, 1, 2), 32)
    yield make("compv3", (128, 128, 64), (2, 2, 1), 32, split_k=4)
    yield make("mem", (64, 64, 64), (2, 2, 1), 16, split_k=8)
    yield narrow_schedule(signature, arch)


@lru_cache(maxsize=64)
def _geometries(
    m_sizes: tuple[int, ...], n_sizes: tuple[int, ...], k_sizes: tuple[int, ...],
    grids: tuple[Shape, ...], tiles: tuple[Shape, ...],
) -> tuple[tuple[Shape, Shape, Shape], ...]:  # fmt: skip
    """Tile, warp grid and warp tile that divide each other: all others need no asking."""
    return tuple(
        ((m, n, k), grid, step)
        for m, n, k in product(m_sizes, n_sizes, k_sizes)
        for grid in grids
        for step in tiles
        if m % (grid[0] * step[0]) == 0 and n % (grid[1] * step[1]) == 0 and k % (grid[2] * step[2]) == 0
    )


def _traits(pool: str, signature: GemmSignature) -> list[tuple[str, str, str, bool, int]]:
    """Pipeline, scheduler, store, persistence and split-K of a sweep, those that exist."""
    if signature.variant == "preshuffle":
        return [("preshuffle", "default", "cshuffle", persistent, 1) for persistent in (False, True)]
    stores = ("cshuffle", "direct") if signature.variant == "standard" else ("cshuffle",)
    known = (("compv3", "intrawave"), ("compv4", "intrawave"), ("mem", "intrawave"), ("mem", "interwave"),
             ("compv5", "intrawave"))  # fmt: skip
    traits = [
        (pipeline, scheduler, store, persistent, 1)
        for pipeline, scheduler in known
        for store in stores
        for persistent in ((False, True) if pipeline in ("compv3", "mem") else (False,))
    ]
    if pool == "profiler":
        traits += [(pipeline, "intrawave", "cshuffle", False, split)
                   for pipeline in ("compv3", "compv4", "mem") for split in (2, 4, 8, 16)]  # fmt: skip
    return traits


def _swept(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """Every axis varied; `profiler` varies them further than `full`, and with edge code too.

    `full` leaves out what never won: blocks of fewer than four waves on large tiles, the 4x64 and 64x4
    matrix instructions, and a persistent grid with the direct store.
    """
    far = pool == "profiler"
    size = DTYPES[signature.dtype_a].bytes
    tiles = (arch.warp_tiles or {}).get(tile_key(signature)) or ((16, 16, 16),)
    deep = tuple(row_bytes // size for row_bytes in ((32, 64, 128, 256, 512) if far else (64, 128, 256)))
    sides = (16, 32, 64, 128, 192, 256) if far else (64, 128, 192, 256)
    both = (NO_PADDING, (True, True, True)) if far else (NO_PADDING,)
    for pipeline, scheduler, store, persistent, split in _traits(pool, signature):
        two_waves = PIPELINES[pipeline].wave_groups > 1
        if (two_waves and signature.layout != "rcr") or (persistent and store == "direct" and not far):
            continue
        grids = tuple(
            grid for grid in arch.warp_grids if (grid == (1, 1, 2)) == two_waves and (two_waves or grid[2] == 1)
        )
        used = tuple(tile for tile in tiles if far or tile[0] == tile[1])
        for tile, grid, step in _geometries(sides, sides, deep, grids, used):
            if not far and not two_waves and tile[0] * tile[1] > 64 * 128 and grid[0] * grid[1] < 4:
                continue
            for pad in ((True, True, False),) if PIPELINES[pipeline].packed_b and far else both:
                yield CkTileSchedule(pipeline, tile, step, grid, scheduler, store, pad, persistent, split)


def proposals(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    if pool == "tiny" or next(ck_tile_rules(signature, arch), None) is not None:
        if signature.variant == "preshuffle":
            yield fallback(signature, arch)
        return
    if pool in ("full", "profiler"):
        yield from _swept(pool, signature, arch)
        return
    yield from _default(signature, arch)
    if pool == "tests" and signature.variant != "preshuffle":
        # Without edge code, the other warp tiles and small tiles: what default does not exercise.
        yield _schedule(signature, arch, "compv3", (64, 64, 64), (2, 2, 1), 32, pad=NO_PADDING)
        yield _schedule(signature, arch, "compv3", (64, 64, 32), (2, 2, 1), 16, pad=NO_PADDING)
        yield _schedule(signature, arch, "compv4", (64, 64, 64), (2, 2, 1), 16, pad=NO_PADDING)
        yield _schedule(signature, arch, "mem", (64, 64, 32), (2, 2, 1), 32, scheduler="interwave", pad=NO_PADDING)
        if signature.variant == "standard":
            yield _schedule(signature, arch, "mem", (64, 64, 64), (2, 2, 1), 16, store="direct", pad=NO_PADDING)
            yield _schedule(signature, arch, "compv4", (64, 64, 64), (2, 2, 1), 32, store="direct", pad=NO_PADDING)
