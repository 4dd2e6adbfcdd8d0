"""What a tma_ws convolution takes of a multiprocessor: what the matrix product it is does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.shared import sizes
from tilewright.backends.cuda.gemm.tma_ws.shape import K_BYTES, LINES, TmaView
from tilewright.dtypes import DTYPES
from tilewright.errors import counted
from tilewright.ops.base import Violation
from tilewright.ops.conv.spec import ConvSignature

Shape = tuple[int, int, int]
Pair = tuple[int, int]

PART_GRAIN = 8  # lines or k that a block of a cluster fetches are whole 8s
WGMMA_COLUMNS = (8, 16, 24, 32, *range(48, 257, 16))  # of the shapes the headers spell out
MAX_ACCUMULATORS = 168  # of the 232 registers a consumer thread has
MAX_STAGES = 16  # each has two barriers of 8 bytes in 256
MAX_CLUSTER = 8  # what every Hopper GPU can place


class Tiled(Protocol):
    """The fields of a schedule that count here."""

    @property
    def tile(self) -> Shape: ...
    @property
    def stages(self) -> int: ...
    @property
    def cluster(self) -> Pair: ...
    @property
    def grouping(self) -> str: ...
    @property
    def store(self) -> str: ...


def view(schedule: Tiled) -> TmaView:
    groups = 1 if schedule.grouping == "pingpong" else 2
    return TmaView(schedule.tile[0], schedule.tile[1], *schedule.cluster, groups, False)


def shared_bytes(variant: str, schedule: Tiled, available: int) -> int:
    """Columns of backward passes are lines that are contiguous."""
    return view(schedule).shared_bytes(schedule.stages, variant != "forward", schedule.store == "tma", available)


def most_stages(variant: str, schedule: Tiled, available: int) -> int:
    return view(schedule).most_stages(variant != "forward", available)


def rules(signature: ConvSignature, variant: str, schedule: Tiled, arch: Arch) -> Iterator[Violation]:
    """What tile, stages, cluster and store must be; `variant`: the direction whose matrix product it is."""
    if not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"tma_ws needs wgmma and TMA, which {arch.name} does not have", "use target sm_90a")
    (m, n, k), size, groups = schedule.tile, DTYPES[signature.dtype].bytes, view(schedule).groups
    if n not in WGMMA_COLUMNS:
        nearest = min(WGMMA_COLUMNS, key=lambda columns: abs(columns - n))
        yield Violation("nv-columns", f"tile_n {n} is not an n that one wgmma can have", f"use {nearest}")
    if k * size != K_BYTES:
        yield Violation(
            "nv-tile-k", f"tile_k {k} is not {K_BYTES} bytes of {signature.dtype}", f"use {K_BYTES // size}"
        )
    if m % (64 * groups) or m > 256:
        message = f"tile_m {m} with {schedule.grouping} warpgroups"
        yield Violation("nv-tile-m", message, f"use a multiple of {64 * groups} to 256")
    if schedule.store == "tma" and (n % 16 or DTYPES[signature.dtype_out].bytes != 2):
        message = f"TMA stores 16 columns of two-byte results, not tile_n {n} of {signature.dtype_out}"
        yield Violation("nv-tma-store", message, "use the direct store")
    yield from _cluster(variant, schedule)
    need = m // groups // 64 * (n // 2)
    if need > MAX_ACCUMULATORS:
        message = f"tile {sizes(schedule.tile)} keeps {need} accumulators per thread, over {MAX_ACCUMULATORS}"
        yield Violation("nv-registers", message, "use a smaller tile")
    if not 2 <= schedule.stages <= MAX_STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use 2 to {MAX_STAGES}")
    shared = shared_bytes(variant, schedule, arch.scratch_bytes)
    if shared > arch.scratch_bytes:
        most = most_stages(variant, schedule, arch.scratch_bytes)
        message = f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory"
        remedy = f"use {most} stages" if most >= 2 else "use a smaller tile"
        yield Violation("nv-shared-memory", f"{message}, {arch.name} has {arch.scratch_bytes}", remedy)


def _cluster(variant: str, schedule: Tiled) -> Iterator[Violation]:
    """Blocks of a cluster's row fetch parts of A for each other, those of a column parts of B."""
    along_m, along_n = schedule.cluster
    if along_m * along_n > MAX_CLUSTER:
        yield Violation("nv-cluster", f"cluster {sizes(schedule.cluster)}", f"use at most {MAX_CLUSTER} blocks")
        return
    for what, lines, parts, along_k in (
        ("A", schedule.tile[0], along_n, variant != "backward_weight"),
        ("B", schedule.tile[1], along_m, variant == "forward"),
    ):
        length, unit = (lines, "lines") if along_k else (LINES, "k")  # of which each block fetches a part
        if length % parts or length // parts % PART_GRAIN:
            message = f"{length} {unit} of {what} in {counted(parts, 'part')} are not multiples of {PART_GRAIN}"
            yield Violation("nv-cluster-part", message, f"use a cluster or tile that leaves multiples of {PART_GRAIN}")
