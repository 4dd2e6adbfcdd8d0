"""The schedules worth proposing for NVIDIA GPUs, and the arithmetic of their resources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm import nvidia_multistage as multistage
from tilewright.ops.gemm.spec import GemmSchedule, GemmSignature

K_BYTES = 128  # of one swizzled row: the k of a stage
SKINNY_LINES = 8  # k elements of one 16-byte load


def chunk_columns(tile_n: int) -> int:
    """Columns of results that leave together."""
    return next(width for width in (64, 32, 16, 8) if tile_n % width == 0 or width == 8)


SHARED_LIMIT = 232448  # bytes of shared memory a block of an sm_90 GPU can have
_BESIDE = 1024 + 256  # alignment of the stages, and the barriers


@dataclass(frozen=True)
class TmaView:
    """A tma_ws schedule as its kernel sees it: turned, rows of the problem lie along the kernel's columns."""

    rows: int
    columns: int
    cluster_rows: int
    cluster_columns: int
    groups: int  # multiplying warpgroups that share a tile
    turned: bool

    @property
    def stage_bytes(self) -> int:
        return self.rows * K_BYTES + -(-self.columns * K_BYTES // 1024) * 1024

    @property
    def accumulators(self) -> int:
        """Sums each thread of a multiplying warpgroup keeps."""
        return self.rows // self.groups // 64 * (self.columns // 2)

    @property
    def warp_tile(self) -> tuple[int, int]:
        return (self.columns, 64) if self.turned else (64, self.columns)

    @property
    def warp_grid(self) -> tuple[int, int, int]:
        return (1, self.groups, 1) if self.turned else (self.groups, 1, 1)


def tma_view(schedule: GemmSchedule) -> TmaView:
    turned = "turned" in schedule.scheduler
    (m, n, _), (along_m, along_n, _) = schedule.tile, schedule.cluster
    groups = 1 if schedule.scheduler.startswith("pingpong") else 2
    if turned:
        return TmaView(n, m, along_n, along_m, groups, turned)
    return TmaView(m, n, along_m, along_n, groups, turned)


def store_buffers(schedule: GemmSchedule) -> int:
    """Buffers each multiplying warpgroup has for results; `TmaWs::buffers` in tma_ws_shape.h."""
    view = tma_view(schedule)
    width = chunk_columns(view.columns)
    needed = view.rows // view.groups // 64 * (view.columns // width)
    room = (SHARED_LIMIT - _BESIDE - schedule.prefetch * view.stage_bytes) // (2 * 64 * width * 2)
    return 2 if needed < 2 or schedule.store != "tma" or room < 2 else min(needed, room)


def shared_bytes(schedule: GemmSchedule) -> int:
    """As `TmaWs::shared_bytes` in tma_ws_shape.h."""
    view = tma_view(schedule)
    results = 2 * store_buffers(schedule) * 64 * chunk_columns(view.columns) * 2
    return schedule.prefetch * view.stage_bytes + results + _BESIDE


def most_stages(schedule: GemmSchedule, available: int) -> int:
    """How many stages fit, with two buffers for results."""
    view = tma_view(schedule)
    return (available - _BESIDE - 4 * 64 * chunk_columns(view.columns) * 2) // view.stage_bytes


def generic_schedule(signature: GemmSignature, arch: Arch) -> GemmSchedule:
    """The floor: 256 threads on a 64 x 64 tile, 16 k at a time, element by element; of a packed B, what reads it."""
    if signature.variant == "preshuffle":
        return tma_ws(signature, 128, 64, 4, (1, 1), store="direct")
    return GemmSchedule("generic", (64, 64, 16), (4, 4, 1), (16, 16, 1))


def tma_ws(
    signature: GemmSignature,
    m: int,
    n: int,
    stages: int,
    cluster: tuple[int, int],
    scheduler: str = "cooperative",
    store: str = "",
) -> GemmSchedule:
    size = DTYPES[signature.dtype_a].bytes
    if not store:
        whole = DTYPES[signature.dtype_c].bytes == 2 and n % 16 == 0 and "turned" not in scheduler
        small = m * n <= (64 if scheduler.startswith("pingpong") else 128) * 64  # these leave from the registers
        store = "tma" if whole and not small else "direct"
    bare = GemmSchedule(
        "tma_ws",
        (m, n, K_BYTES // size),
        (64, n, 32 // size),
        (1, 1, 1),
        scheduler,
        store,
        persistent=True,
        prefetch=stages,
        cluster=(*cluster, 1),
    )
    view = tma_view(bare)
    return replace(bare, warp_tile=(*view.warp_tile, 32 // size), warp_grid=view.warp_grid)


def skinny(row_tiles: int, token_tiles: int, warps: int, scheduler: str = "rows") -> GemmSchedule:
    few, many = token_tiles * 8, row_tiles * 16
    tile = (many, few, 64 * warps) if scheduler == "columns" else (few, many, 64 * warps)
    return GemmSchedule(
        "skinny", tile, (16, 8, 16) if scheduler == "columns" else (8, 16, 16), (1, 1, warps), scheduler, "direct"
    )


_C, _P, _CS, _PS = "cooperative", "pingpong", "cooperative_stream_k", "pingpong_stream_k"
_CK, _PK, _T = "cooperative_split_k", "pingpong_split_k", "pingpong_turned_split_k"

# Tile, stages, cluster and scheduler of kernels that won a shape on an H200 (bf16, rcr) or came close on many: chosen
# one after the other out of a hundred by what each adds (benchmarks/gemm_h200.py --sweep), the all-round ones first.
_WINNERS: tuple[tuple[int, int, int, tuple[int, int], str], ...] = (
    (128, 256, 4, (1, 1), _C),
    (128, 256, 4, (2, 1), _C),
    (256, 128, 4, (1, 2), _C),
    (128, 128, 6, (2, 1), _P),
    (64, 128, 7, (1, 1), _PK),
    (64, 64, 8, (1, 1), _P),
    (256, 160, 4, (1, 1), _C),
    (128, 160, 5, (2, 1), _P),
    (128, 192, 4, (2, 1), _C),
    (128, 176, 5, (2, 1), _C),
    (128, 224, 4, (1, 1), _CK),
    (128, 192, 4, (1, 1), _CK),
    (128, 144, 5, (1, 1), _CK),
    (128, 128, 6, (1, 1), _CK),
    (128, 112, 6, (1, 1), _CK),
    (128, 96, 6, (1, 1), _C),
    (128, 96, 6, (1, 1), _CK),
    (128, 64, 8, (1, 1), _C),
    (128, 64, 8, (1, 1), _CK),
    (128, 32, 10, (1, 1), _CK),
    (64, 64, 8, (1, 1), _PK),
    (64, 48, 12, (1, 1), _P),
    (64, 48, 12, (1, 1), _PK),
    (64, 32, 14, (1, 1), _P),
    (64, 128, 8, (2, 1), _P),
    (64, 128, 7, (1, 2), _P),
    (128, 256, 4, (2, 1), _CS),
    (128, 192, 4, (2, 1), _CS),
    (128, 128, 6, (1, 1), _CS),
    (16, 64, 16, (1, 1), _T),
    (32, 64, 14, (1, 1), _T),
    (64, 64, 12, (1, 1), _T),
    (128, 192, 4, (1, 2), _C),  # for layouts whose B cannot be fetched in parts of 96
)
_SKINNY = ((1, 1, 8), (1, 2, 8), (1, 1, 4), (1, 2, 4), (1, 1, 16), (1, 2, 16), (2, 2, 8), (2, 2, 16))


def _default(signature: GemmSignature, arch: Arch) -> Iterator[GemmSchedule]:
    if "wgmma" in arch.features:
        for m, n, stages, cluster, scheduler in _WINNERS:
            yield tma_ws(signature, m, n, stages, cluster, scheduler)
        if DTYPES[signature.dtype_c].bytes == 2:  # for an E the copy engine cannot write
            yield tma_ws(signature, 128, 256, 4, (2, 1), _C, "direct")
            yield tma_ws(signature, 128, 128, 6, (2, 1), _P, "direct")
    yield from multistage.default(signature, arch)
    for one in _SKINNY:
        yield skinny(*one)
    yield skinny(1, 1, 8, "columns")
    yield skinny(1, 2, 8, "columns")


def _swept(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[GemmSchedule]:
    """Every axis turned; `profiler` turns them further than `full`."""
    far = pool == "profiler"
    if "wgmma" in arch.features:
        columns = range(32, 257, 16) if far else (64, 96, 128, 160, 192, 224, 256)
        clusters = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1)) if far else ((1, 1), (2, 1), (1, 2))
        for m, n, cluster, scheduler in product((64, 128, 256), columns, clusters, (_C, _P, _CS, _PS, _CK, _PK)):
            for stages in range(2, 13) if far else (4, 6, 8):
                yield tma_ws(signature, m, n, stages, cluster, scheduler)
        for few, many, stages in product((8, 16, 32, 64), (64, 128), range(4, 21, 2) if far else (8, 12, 16)):
            for scheduler in (_T, "cooperative_turned", "pingpong_turned", "cooperative_turned_split_k"):
                yield tma_ws(signature, few, many, stages, (1, 1), scheduler)
    yield from multistage.swept(far, signature)
    for rows, tokens, warps in product((1, 2, 4), (1, 2), (2, 4, 8, 16)):
        for scheduler in ("rows", "columns"):
            yield skinny(rows, tokens, warps, scheduler)


def schedules(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[GemmSchedule]:
    """What the pool proposes for one signature; some of it may be illegal."""
    if pool in ("full", "profiler"):
        yield from _swept(pool, signature, arch)
    elif pool == "default":
        yield from _default(signature, arch)
        yield generic_schedule(signature, arch)
    elif pool == "tiny":
        if "wgmma" in arch.features and signature.dtype_a in ("bf16", "fp16"):
            yield tma_ws(signature, 128, 128, 4, (1, 1))
        else:
            yield generic_schedule(signature, arch)
    else:  # tests: one of everything the headers can do
        yield generic_schedule(signature, arch)
        yield skinny(1, 2, 4)
        yield skinny(2, 1, 8, "columns")
        yield from multistage.tests(signature)
        if "wgmma" in arch.features:
            for m, n, stages, cluster, scheduler in (
                (128, 128, 4, (1, 1), _C),
                (64, 64, 4, (1, 1), _P),
                (128, 128, 4, (2, 1), _CS),
                (64, 128, 4, (1, 2), _PS),
                (256, 64, 4, (2, 2), _C),
                (128, 64, 4, (2, 1), _CK),
                (64, 64, 4, (1, 1), _PK),
                (8, 64, 6, (1, 1), _T),
                (16, 128, 4, (1, 2), "cooperative_turned_split_k"),
            ):
                yield tma_ws(signature, m, n, stages, cluster, scheduler)
            yield tma_ws(signature, 128, 64, 4, (1, 1), _C, "direct")
