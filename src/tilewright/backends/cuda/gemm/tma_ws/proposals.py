"""The tma_ws schedules worth proposing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from tilewright.arch import Arch
from tilewright.backends.cuda.gemm.shared import tensor_tiles
from tilewright.backends.cuda.gemm.tma_ws.schedule import TmaWsSchedule
from tilewright.backends.cuda.gemm.tma_ws.shape import K_BYTES, most_stages
from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.spec import GemmSignature


class Way(NamedTuple):
    """How the warpgroups of a tma_ws kernel share tiles, whether they swap A and B, and how tiles are scheduled."""

    grouping: str = "cooperative"
    swap_ab: bool = False
    tile_scheduler: str = "data_parallel"

    @property
    def label(self) -> str:
        parts = [self.grouping, *(["swap_ab"] if self.swap_ab else [])]
        return "_".join([*parts, *([self.tile_scheduler] if self.tile_scheduler != "data_parallel" else [])])


# Every way, by its label.
WAYS = {
    way.label: way
    for way in (
        Way(grouping, swap_ab, tile_scheduler)
        for tile_scheduler in TmaWsSchedule.choices["tile_scheduler"]
        for swap_ab in (False, True)
        for grouping in TmaWsSchedule.choices["grouping"]
        if tile_scheduler != "cluster_k" or grouping == "cooperative"
    )
}
_C, _P = Way("cooperative"), Way("pingpong")


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
        whole = (
            DTYPES[signature.dtype_c].bytes == 2
            and n % 16 == 0
            and not way.swap_ab
            and way.tile_scheduler != "cluster_k"
        )
        small = m == (64 if way.grouping == "pingpong" else 128) and n <= 64  # these leave from the registers
        store = "tma" if whole and not small else "direct"
    return TmaWsSchedule(
        tile=(m, n, K_BYTES // DTYPES[signature.dtype_a].bytes),
        stages=stages,
        cluster=cluster,
        grouping=way.grouping,
        swap_ab=way.swap_ab,
        tile_scheduler=way.tile_scheduler,
        store=store,
    )


Row = tuple[int, int, int, tuple[int, int], Way]  # tile_m, tile_n, stages, cluster, way

_CS, _PS = _C._replace(tile_scheduler="stream_k"), _P._replace(tile_scheduler="stream_k")
_CK, _PK = _C._replace(tile_scheduler="split_k"), _P._replace(tile_scheduler="split_k")
_T, _TK = Way("pingpong", True, "split_k"), Way("cooperative", True, "split_k")
_TT, _TD = Way("pingpong", True), Way("cooperative", True)
_CC, _TC = _C._replace(tile_scheduler="cluster_k"), Way("cooperative", True, "cluster_k")

# Tile, stages, cluster and way of kernels that add something on random problems of an H200, listed by height: of 151 in
# all tables, measured on 4800 problems (benchmarks/results/sweeps), those whose absence costs least were left out one
# after the other, as long as that cost 0.04 % of the time in the mean and no problem of the newest sweep more than 2 %.
# Where no k is split, split_k runs whole tiles, so it stands for both.
_WINNERS: tuple[Row, ...] = (
    (64, 32, 14, (1, 1), _P),
    (64, 48, 12, (1, 1), _P),
    (64, 64, 8, (1, 1), _P),
    (64, 64, 8, (1, 1), _PK),
    (64, 64, 12, (1, 4), _P),
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
    (128, 96, 7, (4, 1), _P),
    (128, 112, 6, (1, 1), _CK),
    (128, 128, 6, (1, 1), _P),
    (128, 128, 6, (2, 1), _P),
    (128, 128, 6, (2, 2), _P),
    (128, 144, 5, (1, 1), _CK),
    (128, 160, 5, (1, 1), _P),
    (128, 160, 5, (2, 1), _P),
    (128, 160, 5, (2, 2), _P),
    (128, 176, 5, (2, 1), _P),
    (128, 192, 4, (1, 1), _P),
    (128, 192, 4, (2, 1), _P),
    (128, 192, 4, (1, 1), _CK),
    (128, 192, 4, (2, 1), _C),
    (128, 192, 4, (4, 2), _C),
    (128, 208, 4, (1, 1), _CK),
    (128, 224, 4, (1, 1), _CK),
    (128, 224, 4, (2, 1), _C),
    (128, 256, 4, (1, 1), _CK),
    (128, 256, 4, (2, 1), _C),
    (128, 256, 4, (2, 1), _CS),
    (192, 64, 6, (1, 1), _P),
    (192, 128, 4, (1, 1), _C),
    (192, 128, 4, (1, 2), _C),
    (192, 160, 4, (1, 1), _C),
    (192, 160, 4, (2, 1), _C),
    (192, 176, 4, (1, 2), _C),
    (192, 176, 4, (2, 1), _C),
    (192, 192, 3, (1, 2), _C),
    (256, 32, 5, (1, 1), _C),
    (256, 64, 4, (1, 1), _C),
    (256, 128, 4, (1, 1), _C),
    (256, 128, 4, (2, 1), _C),
    (256, 160, 4, (1, 1), _C),
    (256, 160, 4, (1, 2), _C),
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
    (32, 128, 10, (2, 1), _TC),
    (32, 128, 10, (4, 1), _TC),
    (48, 128, 9, (5, 1), _TC),
    (64, 128, 8, (2, 1), _TC),
    (80, 128, 8, (5, 1), _TC),
    (144, 128, 6, (2, 1), _TC),
    (144, 128, 6, (4, 1), _TC),
    (128, 64, 8, (2, 1), _CC),
)
# The same with swap_ab and the TMA store: their narrow side may be any multiple of 8, so that a round of tiles fills
# the multiprocessors.  Where A is contiguous along k:
_SWAPPED: tuple[Row, ...] = (
    (96, 64, 8, (1, 1), _TT),
    (136, 128, 6, (1, 2), _TT),
    (136, 256, 4, (2, 1), _TK),
    (144, 256, 4, (2, 1), _TK),
    (152, 192, 4, (2, 1), _TD),
    (160, 256, 4, (2, 1), _TD),
    (176, 128, 5, (1, 1), _TT),
    (176, 192, 4, (2, 1), _TD),
    (176, 256, 4, (2, 1), _TD),
    (184, 192, 4, (2, 1), _TD),
    (192, 128, 4, (1, 2), _TT),
    (192, 256, 3, (2, 1), _TD),
    (224, 128, 4, (1, 2), _TK),
)
# Where A is contiguous along m, 64 lines of which are fetched at a time:
_SWAPPED_COLUMNS: tuple[Row, ...] = (
    (152, 256, 3, (2, 1), _TK),
    (192, 64, 6, (2, 1), _TT),
    (192, 128, 4, (1, 2), _TT),
    (192, 128, 4, (2, 1), _TT),
)
# The same for an E TMA cannot write: its rows begin anywhere.
_ANYWHERE: tuple[Row, ...] = (
    (64, 96, 10, (1, 1), _P),
    (64, 128, 8, (1, 1), _P),
    (64, 256, 4, (1, 1), _P),
    (128, 128, 6, (1, 1), _P),
    (128, 128, 6, (2, 1), _P),
    (128, 160, 5, (1, 1), _P),
    (128, 192, 4, (1, 1), _C),
    (128, 256, 4, (2, 1), _C),
)
# One of everything the headers can do.
_TESTS: tuple[Row, ...] = (
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
    (16, 128, 4, (1, 2), _TK),
)


def fallback(signature: GemmSignature) -> TmaWsSchedule:
    """What reads a packed B, whatever its size."""
    return tma_ws(signature, 128, 64, 4, (1, 1), store="direct")


def _default(signature: GemmSignature, arch: Arch) -> Iterator[TmaWsSchedule]:
    tables: list[tuple[Sequence[Row], str]] = [(list(_of_two_bs()) if signature.dual else _WINNERS, "")]
    if DTYPES[signature.dtype_c].bytes == 2:
        tables.append((_ANYWHERE, "direct"))
        if not signature.num_d and not signature.dual:
            tables.append((_SWAPPED if signature.layout[0] == "r" else _SWAPPED_COLUMNS, "tma"))
    for table, store in tables:
        for m, n, stages, cluster, way in table:
            schedule = tma_ws(signature, m, n, stages, cluster, way, store)
            # Lines that are fetched 64 at a time take more room than there are of them.
            yield replace(schedule, stages=min(stages, most_stages(signature, schedule, arch.scratch_bytes)))


def _of_two_bs() -> Iterator[Row]:
    """Those that run whole tiles, or can: kernels of two B split no k."""
    rows = [
        (m, n, stages, cluster, way._replace(tile_scheduler="data_parallel"))
        for m, n, stages, cluster, way in _WINNERS
        if not way.swap_ab and way.tile_scheduler in ("data_parallel", "split_k")
    ]
    return iter(dict.fromkeys(rows))


def _swept(far: bool, signature: GemmSignature) -> Iterator[TmaWsSchedule]:
    """Every axis swept, or swept further."""
    columns = range(32, 257, 16) if far else (64, 96, 128, 160, 192, 224, 256)
    clusters = ((1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1)) if far else ((1, 1), (2, 1), (1, 2))
    for m, n, cluster, way in product((64, 128, 256), columns, clusters, (_C, _P, _CS, _PS, _CK, _PK)):
        for stages in range(2, 13) if far else (4, 6, 8):
            yield tma_ws(signature, m, n, stages, cluster, way)
    for m, n, parts, way in product((128, 256), columns, (2, 4), (_CC, _TC)):
        for stages in range(3, 9) if far else (4, 6):
            yield tma_ws(signature, *((n, m) if way.swap_ab else (m, n)), stages, (parts, 1), way)
    for few, many, stages in product((8, 16, 32, 64), (64, 128), range(4, 21, 2) if far else (8, 12, 16)):
        for way in (_T, _TD, _TT, _TK):
            yield tma_ws(signature, few, many, stages, (1, 1), way)


def proposals(pool: str, signature: GemmSignature, arch: Arch) -> Iterator[TmaWsSchedule]:
    packed = signature.variant == "preshuffle"
    if "wgmma" in arch.features:
        if pool in ("full", "profiler"):
            yield from _swept(pool == "profiler", signature)
        elif pool == "default":
            yield from _default(signature, arch)
        elif pool == "tests":
            yield from (tma_ws(signature, *row) for row in _TESTS)
            yield tma_ws(signature, 128, 64, 4, (1, 1), _C, "direct")
    if pool == "tiny" and tensor_tiles(signature, arch):
        yield tma_ws(signature, 128, 128, 4, (1, 1))
    elif packed and pool in ("default", "tiny", "tests"):
        yield fallback(signature)
