"""A tma_ws schedule as its kernel sees it, and what that takes of shared memory (tma_ws/shape.h)."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.cuda.gemm.tma_ws.schedule import TmaWsSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.spec import GemmSignature

K_BYTES = 128  # of one swizzled row: the k of a stage
LINES = 64  # of a stage that are fetched together where they are contiguous


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
