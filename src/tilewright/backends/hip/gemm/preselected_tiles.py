"""Preselected GEMM sets for CDNA, under the names users of CK Tile's dispatcher know.

Where an entry of old was illegal its nearest legal neighbour stands here:
* waves 4x4x1, 4x2x1 and 2x4x1 are no warp grid of these archs: 2x2x1 computes the same tile;
* on four waves compv4 spills with 256x256 (202 registers when built): compv3 does not;
* 256x256x64 needs 128 KB of LDS with compv4 and spills with compv3: 256x128x64 is the largest of its k;
* where the inputs have one byte or the result is bf16, 256x256 spills with any k worth having: 256x128x64 does not;
* compv4 knows no persistence: the persistent kernel uses compv3, on 256x128 since walking over tiles of 256x256 spills;
* the preshuffle pair asked for compv4, which reads no packed B: the preshuffle pipeline does, on waves
  1x4x1 and with the tiles its loads can cover;
* a unary op cannot take D tensors: here activations add them first;
* MI200 has no warp grids below four waves, where the small tiles of the memory sets grow along the
  side with the waves;
* `mixed_precision` says what its name promises: bf16 in, fp32 out.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.backends.hip.gemm.ck_tile.proposals import warp_tile
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature


def _make(
    pipeline: str, tile: Shape, grid: Shape, step: Shape, scheduler: str = "intrawave", **more: object
) -> CkTileSchedule:
    fields: dict[str, object] = {"store": "cshuffle", **more}
    return CkTileSchedule(pipeline, tile, step, grid, scheduler, **fields)  # type: ignore[arg-type]


WIDE: Shape = (32, 32, 16)
NARROW: Shape = (16, 16, 16)


def compute(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """Large products, where the matrix units are the limit."""
    for tile in ((256, 256, 32), (256, 128, 64)):
        yield _make("compv3", tile, (2, 2, 1), WIDE)
    for tile in ((256, 128, 32), (128, 256, 32), (128, 128, 32), (128, 128, 64)):
        yield _make("compv4", tile, (2, 2, 1), WIDE)
    yield _make("compv3", (256, 128, 64), (2, 2, 1), WIDE, pad=(False, False, False), persistent=True)


def _small(
    arch: Arch, sizes: tuple[tuple[Shape, Shape, Shape], ...], scheduler: str, store: str
) -> Iterator[CkTileSchedule]:
    """Small tiles with their waves; on an arch with four waves a block they grow along the waves."""
    seen: set[CkTileSchedule] = set()
    for tile, grid, step in sizes:
        if grid not in arch.warp_grids:
            along_n = tile[1] >= tile[0]
            grid = (1, 4, 1) if along_n else (4, 1, 1)
            longer = 4 * step[0]
            tile = (tile[0], max(tile[1], longer), tile[2]) if along_n else (max(tile[0], longer), tile[1], tile[2])
            tile = (*tile[:2], 64) if step == NARROW else tile  # four waves share a row: enough of it for each lane
        schedule = _make("mem", tile, grid, step, scheduler, store=store)
        if schedule not in seen:
            seen.add(schedule)
            yield schedule


def memory(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """Few rows or columns, where memory is the limit."""
    sizes = (
        ((16, 32, 32), (1, 1, 1), NARROW), ((32, 16, 32), (1, 1, 1), NARROW),
        ((16, 64, 32), (1, 2, 1), NARROW), ((64, 16, 32), (2, 1, 1), NARROW),
        ((32, 64, 32), (1, 1, 1), WIDE), ((64, 32, 32), (1, 1, 1), WIDE),
        ((32, 128, 32), (1, 2, 1), WIDE), ((128, 32, 32), (2, 1, 1), WIDE),
    )  # fmt: skip
    yield from _small(arch, sizes, "interwave", "cshuffle")


def latency(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """The shortest way from memory to a small result."""
    sizes = (((16, 32, 32), (1, 1, 1), NARROW), ((32, 16, 32), (1, 1, 1), NARROW))
    yield from _small(arch, sizes, "intrawave", "direct")


def fused(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    yield _make("compv4", (128, 128, 32), (2, 2, 1), WIDE)


def preshuffle(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """B packed beforehand: for weights that are used many times."""
    for tile in ((128, 256, 64), (128, 128, 64)):
        yield _make("preshuffle", tile, (1, 4, 1), (16, 16, 32), "default", pad=(True, True, False))


def everything(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    if signature.variant == "preshuffle":
        yield from preshuffle(signature, arch)
    elif signature.variant == "multi_d":
        yield from fused(signature, arch)
    else:
        yield from compute(signature, arch)
        yield from memory(signature, arch)
        yield from latency(signature, arch)


def essential(signature: GemmSignature, arch: Arch) -> Iterator[CkTileSchedule]:
    """Two for large problems; for standard fp16 also two for few rows or columns."""
    if signature.variant == "multi_d":
        yield from fused(signature, arch)
        return
    one_byte = signature.dtype_a == "int8" or signature.dtype_a.startswith("fp8")
    deep, step = (64, warp_tile(signature, arch, 32, deep=False)) if one_byte else (32, WIDE)
    spills = one_byte or signature.dtype_c == "bf16"
    yield _make("compv3", (256, 128, 64) if spills else (256, 256, deep), (2, 2, 1), step)
    yield _make("compv4", (128, 128, deep), (2, 2, 1), step)
    if signature.dtype_a == "fp16":
        sizes = (((32, 64, 32), (1, 1, 1), WIDE), ((64, 32, 32), (1, 1, 1), WIDE))
        yield from _small(arch, sizes, "interwave", "cshuffle")
