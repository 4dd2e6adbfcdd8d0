"""A tma_ws schedule as its kernel sees it, and what that takes of shared memory: `tma_ws/memory.h` says how much."""

from __future__ import annotations

from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cuda.gemm.tma_ws.schedule import TmaWsSchedule
from tilewright.dataclass import dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.spec import GemmSignature

MEMORY = Arithmetic("tilewright.backends.cuda.gemm.tma_ws", "tilewright/cuda/gemm/tma_ws/memory.h")
K_BYTES = MEMORY("tma_ws_k_bytes")  # of one swizzled row: the k of a stage
LINES = MEMORY("tma_ws_lines")  # of a stage that are fetched together where they are contiguous


@dataclass(frozen=True)
class TmaView:
    """A tma_ws schedule as its kernel sees it: with swap_ab, rows of the problem are the kernel's columns."""

    rows: int
    columns: int
    cluster_rows: int
    cluster_columns: int
    groups: int  # consumer warpgroups that share a tile
    swap_ab: bool

    dual: bool = False  # half of the columns are of a second B

    @property
    def out_columns(self) -> int:
        """Results of a row of a tile."""
        return self.columns // 2 if self.dual else self.columns

    @property
    def warpgroups(self) -> int:
        """Consumer warpgroups: where they alternate, two."""
        return max(2, self.groups)

    def stage_bytes(self, by_lines: bool) -> int:
        return MEMORY("tma_ws_stage_bytes", self.rows, self.columns, by_lines)

    @property
    def accumulators(self) -> int:
        """Accumulators of each thread of a consumer warpgroup."""
        return self.rows // self.groups // 64 * (self.columns // 2)

    def shared_bytes(self, stages: int, by_lines: bool, tma_store: bool, available: int) -> int:
        """Stages, and buffers for results: as many as a tile needs, or as fit."""
        stage, columns = self.stage_bytes(by_lines), self.out_columns
        needed = MEMORY("tma_ws_needed_buffers", self.rows // self.groups, columns)
        room = MEMORY("tma_ws_room", available, stages, stage, self.warpgroups, columns)
        buffers = MEMORY("tma_ws_buffers", needed, room, tma_store, columns)
        return MEMORY("tma_ws_shared_bytes", stages, stage, self.warpgroups, buffers, columns)

    def most_stages(self, by_lines: bool, available: int) -> int:
        """How many stages fit, with the fewest buffers for results."""
        return MEMORY("tma_ws_most_stages", available, self.stage_bytes(by_lines), self.warpgroups, self.out_columns)


def tma_view(schedule: TmaWsSchedule, dual: bool = False) -> TmaView:
    (m, n, _), (along_m, along_n) = (
        schedule.tile,
        schedule.cluster if schedule.tile_scheduler != "cluster_k" else (1, 1),
    )
    if schedule.swap_ab:
        return TmaView(n, m, along_n, along_m, schedule.groups, True)
    return TmaView(m, n, along_m, along_n, schedule.groups, False, dual)


def by_lines(signature: GemmSignature, schedule: TmaWsSchedule) -> bool:
    """Whether lines, not k, are contiguous along the kernel's columns; one- and four-byte types are copied before."""
    if DTYPES[signature.dtype_a].bytes != 2:
        return False
    if schedule.swap_ab:
        return signature.layout[0] != "r"
    return signature.layout[1] == "r" and signature.variant != "preshuffle"


def shared_bytes(signature: GemmSignature, schedule: TmaWsSchedule, available: int) -> int:
    """`available`: what a block of the arch may have."""
    lines = by_lines(signature, schedule)
    view = tma_view(schedule, signature.dual)
    return view.shared_bytes(schedule.stages, lines, schedule.store == "tma", available)


def most_stages(signature: GemmSignature, schedule: TmaWsSchedule, available: int) -> int:
    return tma_view(schedule, signature.dual).most_stages(by_lines(signature, schedule), available)
