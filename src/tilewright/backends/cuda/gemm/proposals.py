"""The schedules worth proposing for NVIDIA GPUs, and the arithmetic of their resources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from tilewright.arch import Arch
from tilewright.backends.cuda.gemm import multistage
from tilewright.backends.cuda.gemm.schedules import NvidiaSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.spec import GemmSignature

K_BYTES = 128  # of one swizzled row: the k of a stage
LINES = 64  # of a stage that are fetched together where they are contiguous
SKINNY_LINES = 8  # k elements of one 16-byte load


def chunk_columns(tile_n: int) -> int:
    """Columns of results that leave together."""
    return next(width for width in (64, 32, 16, 8) if tile_n % width == 0 or width == 8)


SHARED_LIMIT = 232448  # bytes of shared memory a block of an sm_90 GPU can have
_BESIDE = 1024 + 320  # alignment of the stages, and the barriers


@dataclass(frozen=True)
class TmaView:
    """A tma_ws schedule as its kernel sees it: turned, rows of the problem lie along the kernel's columns."""

    rows: int
    columns: int
    cluster_rows: int
    cluster_columns: int
    groups: int  # multiplying warpgroups that share a tile
    turned: bool

    def fetched_columns(self, by_lines: bool) -> int:
        return -(-self.columns // LINES) * LINES if by_lines else self.columns

    @property
    def warpgroups(self) -> int:
        """Those that multiply: where they take turns, two."""
        return max(2, self.groups)

    def stage_bytes(self, by_lines: bool) -> int:
        return self.rows * K_BYTES + -(-self.fetched_columns(by_lines) * K_BYTES // 1024) * 1024

    @property
    def accumulators(self) -> int:
        """Sums each thread of a multiplying warpgroup keeps."""
        return self.rows // self.groups // 64 * (self.columns // 2)


def tma_view(schedule: TmaWsSchedule) -> TmaView:
    (m, n, _), (along_m, along_n) = schedule.tile, schedule.cluster if schedule.dealing != "cluster_k" else (1, 1)
    if schedule.turned:
        return TmaView(n, m, along_n, along_m, schedule.groups, True)
    return TmaView(m, n, along_m, along_n, schedule.groups, False)


def by_lines(signature: GemmSignature, schedule: TmaWsSchedule) -> bool:
    """Whether lines, not k, are contiguous along the kernel's columns; one- and four-byte types are copied before."""
    if DTYPES[signature.dtype_a].bytes != 2:
        return False
    if schedule.turned:
        return signature.layout[0] != "r"
    return signature.layout[1] == "r" and signature.variant != "preshuffle"


def store_buffers(signature: GemmSignature, schedule: TmaWsSchedule) -> int:
    """Buffers each multiplying warpgroup has for results; `TmaWs::buffers` in gemm/tma_ws/shape.h."""
    view = tma_view(schedule)
    width = chunk_columns(view.columns)
    needed = view.rows // view.groups // 64 * (view.columns // width)
    stages = schedule.stages * view.stage_bytes(by_lines(signature, schedule))
    room = (SHARED_LIMIT - _BESIDE - stages) // (view.warpgroups * 64 * width * 2)
    if needed < 2 or schedule.store != "tma" or room < 2:
        return 2
    return needed if needed <= room else min(room, 4)


def shared_bytes(signature: GemmSignature, schedule: TmaWsSchedule) -> int:
    """As `TmaWs::shared_bytes` in gemm/tma_ws/shape.h."""
    view = tma_view(schedule)
    results = view.warpgroups * store_buffers(signature, schedule) * 64 * chunk_columns(view.columns) * 2
    return schedule.stages * view.stage_bytes(by_lines(signature, schedule)) + results + _BESIDE


def most_stages(signature: GemmSignature, schedule: TmaWsSchedule, available: int) -> int:
    """How many stages fit, with two buffers for results."""
    view = tma_view(schedule)
    stage = view.stage_bytes(by_lines(signature, schedule))
    return (available - _BESIDE - view.warpgroups * 2 * 64 * chunk_columns(view.columns) * 2) // stage


class Way(NamedTuple):
    """How the warpgroups of a tma_ws kernel share tiles, which side rows lie along, and what blocks are dealt."""

    grouping: str = "cooperative"
    turned: bool = False
    dealing: str = "tiles"

    @property
    def label(self) -> str:
        parts = [self.grouping, *(["turned"] if self.turned else [])]
        return "_".join([*parts, *([self.dealing] if self.dealing != "tiles" else [])])


# Every way, by its label.
WAYS = {
    one.label: one
    for one in (
        Way(grouping, turned, dealing)
        for dealing in TmaWsSchedule.words["dealing"]
        for turned in (False, True)
        for grouping in TmaWsSchedule.words["grouping"]
        if dealing != "cluster_k" or grouping == "cooperative"
    )
}
_C, _P = Way("cooperative"), Way("pingpong")


def generic_schedule(signature: GemmSignature, arch: Arch) -> NvidiaSchedule:
    """The floor: plain loops; of a packed B, what reads it."""
    if signature.variant == "preshuffle":
        return tma_ws(signature, 128, 64, 4, (1, 1), store="direct")
    return GpuLoopsSchedule()


def tma_ws(
    signature: GemmSignature,
    m: int,
    n: int,
    stages: int,
    cluster: tuple[int, int],
    way: Way = _C,
    store: str = "",
) -> TmaWsSchedule:
    if not store:
        whole = DTYPES[signature.dtype_c].bytes == 2 and n % 16 == 0 and not way.turned and way.dealing != "cluster_k"
        small = m == (64 if way.grouping == "pingpong" else 128) and n <= 64  # these leave from the registers
        store = "tma" if whole and not small else "direct"
    return TmaWsSchedule(
        tile=(m, n, K_BYTES // DTYPES[signature.dtype_a].bytes),
        stages=stages,
        cluster=cluster,
        grouping=way.grouping,
        turned=way.turned,
        dealing=way.dealing,
        store=store,
    )


def skinny(row_tiles: int, token_tiles: int, warps: int, few: str = "rows") -> SkinnySchedule:
    tokens, many = token_tiles * 8, row_tiles * 16
    tile = (many, tokens, 64 * warps) if few == "columns" else (tokens, many, 64 * warps)
    return SkinnySchedule(tile, few)


def skinny_bytes(schedule: SkinnySchedule) -> int:
    """Of shared memory: the sums of every warp, a column more than there are (gemm/skinny/shape.h)."""
    few, many = (schedule.tile[1], schedule.tile[0]) if schedule.few == "columns" else schedule.tile[:2]
    return schedule.warp_grid[2] * many * (few + 1) * 4


_CS, _PS = _C._replace(dealing="stream_k"), _P._replace(dealing="stream_k")
_CK, _PK = _C._replace(dealing="split_k"), _P._replace(dealing="split_k")
_T, _TK = Way("pingpong", True, "split_k"), Way("cooperative", True, "split_k")
_TT = Way("pingpong", True)
_CC, _TC = _C._replace(dealing="cluster_k"), Way("cooperative", True, "cluster_k")

# Tile, stages, cluster and way of kernels that add something on random problems of an H200 (bf16, all layouts):
# chosen one after the other out of 130 by what each adds (benchmarks/gemm_h200.py --random --sweep), listed by height.
# Where no k is split, split_k deals whole tiles, so it stands for both.
_WINNERS: tuple[tuple[int, int, int, tuple[int, int], Way], ...] = (
    (64, 32, 14, (1, 1), _P),
    (64, 48, 12, (1, 1), _P),
    (64, 64, 8, (1, 1), _P),
    (64, 64, 8, (1, 1), _PK),
    (64, 96, 10, (1, 1), _PK),
    (64, 128, 7, (1, 1), _PK),
    (64, 128, 8, (2, 1), _P),
    (64, 160, 7, (1, 1), _P),
    (64, 192, 6, (1, 1), _PK),
    (64, 256, 4, (1, 1), _PK),
    (128, 16, 12, (1, 1), _P),
    (128, 32, 10, (1, 1), _P),
    (128, 32, 10, (4, 1), _P),
    (128, 64, 8, (1, 1), _P),
    (128, 64, 8, (1, 1), _C),
    (128, 64, 8, (4, 1), _P),
    (128, 112, 6, (1, 1), _CK),
    (128, 128, 6, (1, 1), _P),
    (128, 128, 6, (2, 1), _P),
    (128, 128, 6, (2, 2), _P),
    (128, 144, 5, (1, 1), _CK),
    (128, 160, 5, (1, 1), _P),
    (128, 160, 5, (2, 1), _P),
    (128, 160, 5, (2, 2), _P),
    (128, 176, 5, (1, 1), _CK),
    (128, 192, 4, (1, 1), _CK),
    (128, 192, 4, (2, 1), _C),
    (128, 192, 4, (4, 2), _C),
    (128, 208, 4, (1, 1), _CK),
    (128, 224, 4, (1, 1), _CK),
    (128, 224, 4, (2, 1), _C),
    (128, 240, 4, (2, 1), _C),
    (128, 256, 4, (1, 1), _CK),
    (128, 256, 4, (2, 1), _C),
    (128, 256, 4, (2, 1), _CS),
    (192, 64, 6, (1, 1), _P),
    (192, 128, 4, (1, 1), _C),
    (192, 128, 4, (1, 2), _C),
    (192, 160, 4, (1, 1), _C),
    (192, 160, 4, (2, 1), _C),
    (192, 192, 3, (1, 2), _C),
    (256, 32, 5, (1, 1), _C),
    (256, 64, 4, (1, 1), _C),
    (256, 64, 4, (4, 1), _C),
    (256, 112, 4, (1, 1), _C),
    (256, 128, 4, (1, 1), _C),
    (256, 128, 4, (1, 2), _C),
    (256, 128, 4, (2, 1), _C),
    (256, 144, 4, (1, 2), _C),
    (256, 160, 4, (1, 1), _C),
    (256, 160, 4, (1, 2), _C),
    (256, 160, 4, (4, 1), _C),
    (8, 64, 16, (1, 1), _T),
    (16, 64, 16, (1, 1), _T),
    (32, 64, 14, (1, 1), _T),
    (16, 64, 16, (2, 2), _TT),
    (32, 64, 16, (1, 4), _TT),
    (64, 64, 12, (1, 4), _TT),
    (96, 64, 10, (1, 4), _TT),
    (32, 128, 10, (1, 1), _TK),
    (32, 128, 10, (1, 4), _TK),
    (64, 128, 8, (1, 1), _TK),
    (128, 128, 6, (1, 1), _TK),
    (144, 128, 6, (1, 1), _TK),
    (160, 128, 5, (1, 1), _TK),
    (256, 128, 4, (1, 1), _TK),
    (96, 256, 4, (1, 1), _TK),
    (144, 256, 4, (1, 1), _TK),
    (32, 128, 10, (2, 1), _TC),
    (64, 128, 8, (2, 1), _TC),
    (96, 128, 7, (2, 1), _TC),
    (144, 128, 6, (2, 1), _TC),
    (144, 256, 4, (2, 1), _TC),
    (128, 64, 8, (2, 1), _CC),
)
# The same for an E the copy engine cannot write: its rows begin anywhere.
_ANYWHERE: tuple[tuple[int, int, int, tuple[int, int], Way], ...] = (
    (64, 96, 10, (1, 1), _P),
    (64, 128, 8, (1, 1), _P),
    (64, 256, 4, (1, 1), _P),
    (128, 128, 6, (1, 1), _P),
    (128, 128, 6, (2, 1), _P),
    (128, 160, 5, (1, 1), _P),
    (128, 192, 4, (1, 1), _C),
    (128, 256, 4, (2, 1), _C),
)
_SKINNY = ((1, 1, 8), (1, 2, 8), (1, 1, 4), (1, 2, 4), (1, 1, 16), (1, 2, 16), (2, 2, 8), (2, 2, 16))

# The same for a large matrix whose k is not contiguous: 32 or 64 of its lines at a time.
_SKINNY_BY_LINES = ((2, 1, 8), (2, 2, 8), (2, 1, 16), (2, 2, 16), (4, 1, 8), (4, 2, 8), (4, 1, 16))


def _default(signature: GemmSignature, arch: Arch) -> Iterator[NvidiaSchedule]:
    if "wgmma" in arch.features:
        for m, n, stages, cluster, way in _WINNERS:
            made = tma_ws(signature, m, n, stages, cluster, way)
            # Lines that are fetched 64 at a time take more room than there are of them.
            yield replace(made, stages=min(stages, most_stages(signature, made, arch.scratch_bytes)))
        if DTYPES[signature.dtype_c].bytes == 2:
            for m, n, stages, cluster, way in _ANYWHERE:
                made = tma_ws(signature, m, n, stages, cluster, way, "direct")
                yield replace(made, stages=min(stages, most_stages(signature, made, arch.scratch_bytes)))
    yield from multistage.default(signature, arch)
    for one in _SKINNY if signature.layout[1] == "c" else _SKINNY_BY_LINES:
        if signature.layout != "ccr" or one != (2, 2, 16):  # which has too few registers there
            yield skinny(*one)
    wide = 1 if signature.layout[0] == "r" else 2
    yield skinny(wide, 1, 8, "columns")
    yield skinny(wide, 2, 8, "columns")


def _swept(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[NvidiaSchedule]:
    """Every axis turned; `profiler` turns them further than `full`."""
    far = pool == "profiler"
    if "wgmma" in arch.features:
        columns = range(32, 257, 16) if far else (64, 96, 128, 160, 192, 224, 256)
        clusters = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1)) if far else ((1, 1), (2, 1), (1, 2))
        for m, n, cluster, way in product((64, 128, 256), columns, clusters, (_C, _P, _CS, _PS, _CK, _PK)):
            for stages in range(2, 13) if far else (4, 6, 8):
                yield tma_ws(signature, m, n, stages, cluster, way)
        for m, n, parts, way in product((128, 256), columns, (2, 4), (_CC, _TC)):
            for stages in range(3, 9) if far else (4, 6):
                yield tma_ws(signature, *((n, m) if way.turned else (m, n)), stages, (parts, 1), way)
        for few, many, stages in product((8, 16, 32, 64), (64, 128), range(4, 21, 2) if far else (8, 12, 16)):
            for way in (_T, Way("cooperative", True), Way("pingpong", True), Way("cooperative", True, "split_k")):
                yield tma_ws(signature, few, many, stages, (1, 1), way)
    yield from multistage.swept(far, signature)
    for rows, tokens, warps in product((1, 2, 4), (1, 2), (2, 4, 8, 16)):
        for few_of in ("rows", "columns"):
            yield skinny(rows, tokens, warps, few_of)


def schedules(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[NvidiaSchedule]:
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
            for m, n, stages, cluster, way in (
                (128, 128, 4, (1, 1), _C),
                (64, 64, 4, (1, 1), _P),
                (128, 128, 4, (2, 1), _CS),
                (64, 128, 4, (1, 2), _PS),
                (256, 64, 4, (2, 2), _C),
                (192, 128, 3, (1, 2), _C),
                (128, 64, 4, (2, 1), _CK),
                (64, 64, 4, (1, 1), _PK),
                (128, 64, 4, (2, 1), _CC),
                (48, 128, 4, (4, 1), _TC),
                (8, 64, 6, (1, 1), _T),
                (16, 128, 4, (1, 2), Way("cooperative", True, "split_k")),
            ):
                yield tma_ws(signature, m, n, stages, cluster, way)
            yield tma_ws(signature, 128, 64, 4, (1, 1), _C, "direct")
