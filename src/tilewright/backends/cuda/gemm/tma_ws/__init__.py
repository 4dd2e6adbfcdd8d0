"""tma_ws, of sm_90a: TMA feeds wgmma; warp-specialized and persistent.

Consumer warpgroups are `cooperative` or `pingpong`.  `swap_ab` puts the rows of the problem on wgmma's narrow side, for
few rows.  The tile scheduler hands out whole tiles (`data_parallel`), equal shares of the k-blocks of all tiles
(`stream_k`), splits of k (`split_k`), or splits of k within a cluster (`cluster_k`); partial sums are added in a fixed
order.  Operands that TMA cannot read are copied first, and those that wgmma reads along k only (one- and four-byte
types) are transposed where k is not contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.gemm.shared import TENSOR_INPUTS, TILE_SCHEDULERS, CudaGemmFamily, flag, tile_numbers
from tilewright.backends.cuda.gemm.tma_ws import proposals
from tilewright.backends.cuda.gemm.tma_ws.schedule import TmaWsSchedule
from tilewright.backends.cuda.gemm.tma_ws.shape import K_BYTES, LINES, by_lines, most_stages, shared_bytes, tma_view
from tilewright.dtypes import DTYPES
from tilewright.errors import counted
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import sizes
from tilewright.ops.gemm.spec import GemmSignature

__all__ = ["FAMILY", "TmaWsSchedule"]

# Columns of the wgmma shapes the headers spell out.
WGMMA_COLUMNS = (8, 16, 24, 32, 48, *range(64, 208, 8), *range(208, 257, 16))
MAX_ACCUMULATORS = {1: 192, 2: 192, 3: 96}  # of the 232 or 240 registers of a consumer thread; of three, 152
MOST_D = 2  # operands beside the accumulators that a consumer reads ahead
MAX_STAGES = 16  # each has two barriers of 8 bytes in 256
MAX_CLUSTER = 8  # what every Hopper GPU can place
PART_GRAIN = 8  # lines or k of a part that a block of a cluster fetches: whole swizzled atoms


def _violations(signature: GemmSignature, schedule: TmaWsSchedule, arch: Arch) -> Iterator[Violation]:
    if not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"tma_ws needs wgmma and TMA, which {arch.name} does not have", "use target sm_90a")
    a, b = signature.dtype_a, signature.dtype_b
    if a != b or a not in TENSOR_INPUTS:
        yield Violation(
            "nv-inputs", f"wgmma does not multiply {a} by {b}", f"use one of {', '.join(TENSOR_INPUTS)} for both"
        )
        return
    size = DTYPES[a].bytes
    view = tma_view(schedule)
    field, side = ("tile_m", "tile_n") if view.swap_ab else ("tile_n", "tile_m")
    if view.columns not in WGMMA_COLUMNS:
        nearest = min(WGMMA_COLUMNS, key=lambda columns: abs(columns - view.columns))
        yield Violation("nv-columns", f"{field} {view.columns} is not an n that one wgmma can have", f"use {nearest}")
    if schedule.tile[2] * size != K_BYTES:
        yield Violation(
            "nv-tile-k", f"tile_k {schedule.tile[2]} is not {K_BYTES} bytes of {a}", f"use {K_BYTES // size}"
        )
    if view.rows % (64 * view.groups) or view.rows > 256:
        known = "64, 128, 192 or 256" if schedule.grouping == "pingpong" else "128, 192 or 256"
        rule = f"{side} {view.rows} with {schedule.grouping} warpgroups"
        yield Violation("nv-tile-m", rule, f"use {known}")
    if view.groups == 3 and schedule.tile_scheduler != "data_parallel":
        yield Violation(
            "nv-groups",
            f"{schedule.tile_scheduler} with {side} 192, which three warpgroups share",
            "use data_parallel, or 128",
        )
    if signature.dual:
        yield from _dual(signature, schedule)
    if signature.num_d > MOST_D:
        yield Violation(
            "nv-d-count",
            f"tma_ws kernels take {MOST_D} D tensors, and there are {signature.num_d}",
            "use multistage, or add tensors beforehand",
        )
    out_columns = view.columns // 2 if signature.dual else view.columns
    if schedule.store == "tma" and ((not view.swap_ab and out_columns % 16) or DTYPES[signature.dtype_c].bytes != 2):
        yield Violation(
            "nv-tma-store",
            f"TMA stores 16 columns of two-byte results, not {field} {view.columns} of {signature.dtype_c}",
            "use the direct store",
        )
    if schedule.store == "tma" and view.swap_ab and (signature.num_d or schedule.tile_scheduler == "cluster_k"):
        yield Violation(
            "nv-tma-store",
            f"the TMA store of swap_ab kernels fuses no D and splits no k in a cluster: {signature.num_d} D, "
            f"{schedule.tile_scheduler}",
            "use the direct store",
        )
    yield from _cluster(signature, schedule)
    if schedule.tile_scheduler == "cluster_k":
        yield from _cluster_k(signature, schedule)
    yield from _resources(signature, schedule, arch)


def _dual(signature: GemmSignature, schedule: TmaWsSchedule) -> Iterator[Violation]:
    """Half of a tile's columns are of either B."""
    if schedule.swap_ab or schedule.tile_scheduler != "data_parallel":
        yield Violation(
            "nv-dual",
            f"two B with the tile scheduler {schedule.tile_scheduler}{' and swap_ab' if schedule.swap_ab else ''}",
            "use data_parallel, without swap_ab",
        )
    if signature.layout[1] != "c" or DTYPES[signature.dtype_b].bytes != 2:
        yield Violation(
            "nv-dual",
            f"two B of {signature.dtype_b}, layout {signature.layout}",
            "use bf16 or fp16, and both B with k contiguous",
        )
    if schedule.tile[1] % 16:
        yield Violation("nv-dual", f"tile_n {schedule.tile[1]} for two B", "use a multiple of 16")


def _cluster(signature: GemmSignature, schedule: TmaWsSchedule) -> Iterator[Violation]:
    """Blocks of a cluster's row fetch parts of A for each other, those of a column parts of B."""
    along_m, along_n = schedule.cluster
    transposed = DTYPES[signature.dtype_a].bytes != 2  # by a copy, where they are not contiguous along k
    if along_m * along_n > MAX_CLUSTER:
        yield Violation("nv-cluster", f"cluster {sizes(schedule.cluster)}", f"use at most {MAX_CLUSTER} blocks")
        return
    if schedule.tile_scheduler == "cluster_k":  # they share no operand
        along_m = along_n = 1
    packed = signature.variant == "preshuffle"
    for what, line, parts, along_k in (
        ("A", schedule.tile[0], along_n, transposed or signature.layout[0] == "r"),
        (
            "B",
            schedule.tile[1] // (2 if signature.dual else 1),
            along_m,
            transposed or signature.layout[1] == "c" or packed,
        ),
    ):
        if along_k and not (packed and what == "B") and line // parts >= PART_GRAIN:
            continue  # where parts are no whole atoms, blocks alternate
        length, unit = (line, "lines") if along_k else (LINES, "k")  # of which each block fetches a part
        if length % parts or length // parts % PART_GRAIN:
            yield Violation(
                "nv-cluster-part",
                f"{length} {unit} of {what} in {counted(parts, 'part')} are not multiples of {PART_GRAIN}",
                f"use a cluster or tile that leaves multiples of {PART_GRAIN}",
            )


def _cluster_k(signature: GemmSignature, schedule: TmaWsSchedule) -> Iterator[Violation]:
    """Blocks of a cluster share the k of one tile, and its partial sums are in their stages in the end."""
    blocks, view = schedule.cluster[0] * schedule.cluster[1], tma_view(schedule)
    if blocks < 2:
        yield Violation("nv-cluster", f"cluster {sizes(schedule.cluster)} to share k", f"use 2 to {MAX_CLUSTER} blocks")
    if schedule.grouping != "cooperative" or schedule.store != "direct":
        yield Violation(
            "nv-cluster-k",
            f"a cluster that shares k is {schedule.grouping} with the {schedule.store} store",
            "use cooperative warpgroups and the direct store",
        )
    if 4 * view.rows * view.columns > schedule.stages * view.stage_bytes(by_lines(signature, schedule)):
        yield Violation(
            "nv-cluster-k",
            f"{schedule.stages} stages have no room for the accumulators of {sizes(schedule.tile)}",
            "use more stages or a smaller tile",
        )


def _resources(signature: GemmSignature, schedule: TmaWsSchedule, arch: Arch) -> Iterator[Violation]:
    view = tma_view(schedule)
    need, most_sums = view.accumulators, MAX_ACCUMULATORS[view.groups]
    if need > most_sums:
        yield Violation(
            "nv-registers",
            f"tile {sizes(schedule.tile)} keeps {need} accumulators per thread, over {most_sums}",
            "use a smaller tile",
        )
    if not 2 <= schedule.stages <= MAX_STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use 2 to {MAX_STAGES}")
    shared = shared_bytes(signature, schedule, arch.scratch_bytes)
    if shared > arch.scratch_bytes:
        most = most_stages(signature, schedule, arch.scratch_bytes)
        yield Violation(
            "nv-shared-memory",
            f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory, "
            f"{arch.name} has {arch.scratch_bytes}",
            f"use {most} stages" if most >= 2 else "use a smaller tile",
        )


class TmaWs(CudaGemmFamily):
    name = "tma_ws"
    schedules = (TmaWsSchedule,)
    reads_packed = True
    dual = True

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[TmaWsSchedule]:
        return proposals.proposals(pool, signature, arch)

    def violations(self, signature: GemmSignature, schedule: TmaWsSchedule, arch: Arch) -> Iterator[Violation]:
        return _violations(signature, schedule, arch)

    def serves_dual(self, problem: GemmProblem, arch: Arch) -> bool:
        p = problem
        two_bytes = p.dtype_a == p.dtype_b and p.dtype_a in ("bf16", "fp16")
        aligned = p.aligned and p.k > 0 and not (p.a_stride | p.b_stride) % 8
        return {"wgmma", "tma"} <= arch.features and two_bytes and p.layout[1] == "c" and aligned and p.m > 0

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: TmaWsSchedule = spec.schedule
        return tile_numbers(h.tile) | {
            "cluster_m": h.cluster[0], "cluster_n": h.cluster[1], "pingpong": int(h.grouping == "pingpong"),
            "swap_ab": int(h.swap_ab), "tile_scheduler": TILE_SCHEDULERS[h.tile_scheduler],
            "tma_store": int(h.store == "tma"),
        }  # fmt: skip

    def config(self, spec: KernelSpec) -> Mapping[str, object]:
        h: TmaWsSchedule = spec.schedule
        return {
            "tile_m": h.tile[0], "tile_n": h.tile[1], "stages": h.stages,
            "cluster_m": h.cluster[0], "cluster_n": h.cluster[1], "pingpong": flag(h.grouping == "pingpong"),
            "swap_ab": flag(h.swap_ab), "tile_scheduler": f"tw::TileScheduler::{h.tile_scheduler}",
            "tma_store": flag(h.store == "tma"),
        }  # fmt: skip

    def promises(self, spec: KernelSpec) -> Promises:
        """Operands come through TMA; results leave through it, where asked."""
        from tilewright.inspect import nvidia

        copies = ("UTMALDG", "UTMASTG") if spec.schedule.store == "tma" else ("UTMALDG",)
        available = arch_by_name(spec.arch).scratch_bytes
        return Promises(nvidia.WARPGROUP, copies, shared_bytes(spec.signature, spec.schedule, available))

    def residency(self, spec: KernelSpec) -> Residency:
        h: TmaWsSchedule = spec.schedule
        available = arch_by_name(spec.arch).scratch_bytes
        ring, (m, n) = shared_bytes(spec.signature, h, available), h.cluster
        small = h.tile[0] == 64 * h.warp_grid[0] and h.tile[1] <= 64 and not h.swap_ab
        store = (1 if small else 2) if h.store == "direct" else 0
        if h.tile_scheduler == "cluster_k":
            return Residency(shares_k=m * n, ring_bytes=ring, store=store)
        splits, streams = h.tile_scheduler == "split_k", h.tile_scheduler == "stream_k"
        return Residency(m, n, ring_bytes=ring, splits=splits, streams=streams, store=store)


FAMILY = TmaWs()
