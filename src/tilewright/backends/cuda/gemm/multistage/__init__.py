"""multistage, of sm_80 and up: stages filled by cp.async feed mma.sync (exact fp32: multiply-adds).

Any size, and any alignment with a `vector` of one element; `split_k` as in tma_ws, `stream_k` of exact fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import Promises
from tilewright.backends.cuda.gemm.multistage import proposals, shape
from tilewright.backends.cuda.gemm.multistage.schedule import MultistageSchedule
from tilewright.backends.cuda.gemm.shared import TILE_SCHEDULERS, CudaGemmFamily, tile_numbers
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.gemm.features import Residency
from tilewright.ops.gemm.schedule import sizes
from tilewright.ops.gemm.spec import GemmSignature

__all__ = ["FAMILY", "MultistageSchedule"]

MAX_STAGES = 8


def _violations(signature: GemmSignature, schedule: MultistageSchedule, arch: Arch) -> Iterator[Violation]:
    a, b = signature.dtype_a, signature.dtype_b
    if not (a == b or (a in shape.FP8 and b in shape.FP8)):
        yield Violation("nv-inputs", f"mma.sync does not multiply {a} by {b}", "use one type for both, or two of fp8")
        return
    if schedule.tile_scheduler == "split_k" and signature.dtype_acc != "fp32":
        yield Violation(
            "nv-split-sums", "splits of k are added as fp32, which does not hold int32 sums", "use data_parallel"
        )
    if schedule.tile_scheduler == "stream_k" and a != "fp32":
        yield Violation(
            "nv-stream", f"multistage has stream_k of exact fp32 only, not of {a}", "use data_parallel or split_k"
        )
    size, (m, n, k), (along_m, along_n, along_k) = DTYPES[a].bytes, schedule.tile, schedule.warp_grid
    expected = shape.warp_tile(a)
    if schedule.warp_tile != expected or along_k != 1:
        yield Violation(
            "nv-warp",
            f"warp tile {sizes(schedule.warp_tile)} of a warp grid {sizes(schedule.warp_grid)}",
            f"use warp tile {sizes(expected)}, and warps along m and n only",
        )
        return
    if along_m * along_n > 16:
        yield Violation("nv-warps", f"{along_m * along_n} warps in a block", "use at most 16")
    short, long = shape.k_bytes(a)
    if k * size not in (short, long):
        rule = f"tile_k {k} is not {short} or {long} bytes of {a}"
        yield Violation("nv-tile-k", rule, f"use {short // size} or {long // size}")
        return
    if m % (along_m * expected[0]) or n % (along_n * shape.unit_columns(a)):
        yield Violation(
            "nv-warp-part",
            f"tile {sizes(schedule.tile)} over {along_m}x{along_n} warps is not a multiple of "
            f"{expected[0]}x{shape.unit_columns(a)}",
            "use a tile that divides evenly among warps",
        )
        return
    yield from _copies(signature, schedule)
    sums = shape.sums(schedule)
    most = shape.most_sums(signature, min(schedule.vector))
    if schedule.tile_scheduler == "stream_k":
        most = min(most, shape.streamed_sums(signature, schedule, arch))
    if sums > most:
        yield Violation(
            "nv-registers",
            f"tile {sizes(schedule.tile)} keeps {sums} accumulators per thread, over {most}",
            "use more warps or a smaller tile",
        )
    if not 2 <= schedule.stages <= MAX_STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use 2 to {MAX_STAGES}")
    shared = shape.shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        yield Violation(
            "nv-shared-memory",
            f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory, "
            f"{arch.name} has {arch.scratch_bytes}",
            "use fewer stages or a smaller tile",
        )


def _copies(signature: GemmSignature, schedule: MultistageSchedule) -> Iterator[Violation]:
    """What `vector` may say, and that the pieces of a row are dealt out evenly."""
    threads = 32 * schedule.warp_grid[0] * schedule.warp_grid[1]
    for what, operand in zip("AB", shape.operands(signature, schedule), strict=True):
        length = operand.deep if operand.along_k else operand.lines
        size, vector = operand.size, operand.vector
        if vector != 1 and vector * size not in (4, 8, 16):
            yield Violation(
                "nv-vector",
                f"{vector} elements of {what} at a time are {vector * size} bytes",
                f"use {16 // size}, {8 // size}, {4 // size}, or 1 for any alignment",
            )
            continue
        pieces = operand.pieces
        if pieces == 0 or threads % pieces:
            yield Violation(
                "nv-copies",
                f"{threads} threads copy rows of {what} of {length * size} bytes in {pieces} pieces",
                "use a power of two of warps and tile sizes, and as many threads as a row has pieces",
            )


class Multistage(CudaGemmFamily):
    name = "multistage"
    schedules = (MultistageSchedule,)

    def proposals(self, pool: str, signature: GemmSignature, arch: Arch) -> Iterator[MultistageSchedule]:
        return proposals.proposals(pool, signature, arch)

    def violations(self, signature: GemmSignature, schedule: MultistageSchedule, arch: Arch) -> Iterator[Violation]:
        yield from self.unpacked(signature)
        yield from _violations(signature, schedule, arch)

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        h: MultistageSchedule = spec.schedule
        return tile_numbers(h.tile) | {
            "warps_m": h.warp_grid[0], "warps_n": h.warp_grid[1], "vector_a": h.vector[0], "vector_b": h.vector[1],
            "tile_scheduler": TILE_SCHEDULERS[h.tile_scheduler], "shared_bytes": shape.shared_bytes(spec.signature, h),
        }  # fmt: skip

    def config(self, spec: KernelSpec) -> Mapping[str, object]:
        h, s = spec.schedule, spec.signature
        return tile_numbers(h.tile) | {
            "warps_m": h.warp_grid[0], "warps_n": h.warp_grid[1], "unit_m": h.warp_tile[0], "stages": h.stages,
            "vector_a": h.vector[0] * DTYPES[s.dtype_a].bytes, "vector_b": h.vector[1] * DTYPES[s.dtype_b].bytes,
            "tile_scheduler": f"tw::TileScheduler::{h.tile_scheduler}",
        }  # fmt: skip

    def promises(self, spec: KernelSpec) -> Promises:
        """Tensor cores, but for exact fp32, which none computes."""
        from tilewright.inspect import nvidia

        multiply = () if spec.signature.dtype_a == "fp32" else nvidia.WARP
        return Promises(multiply, (), shape.shared_bytes(spec.signature, spec.schedule))

    def residency(self, spec: KernelSpec) -> Residency:
        h: MultistageSchedule = spec.schedule
        ring = shape.shared_bytes(spec.signature, h)
        threads = 32 * h.warp_grid[0] * h.warp_grid[1]
        registers = threads * min(256, 2 * h.tile[0] * h.tile[1] // threads + 64)
        held = max(1, min(arch_by_name(spec.arch).scratch_bytes // ring, 65536 // registers))
        scheduler = h.tile_scheduler
        return Residency(held=held, ring_bytes=ring, splits=scheduler == "split_k", streams=scheduler == "stream_k")


FAMILY = Multistage()
