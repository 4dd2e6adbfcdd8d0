"""GEMM on AMD GPUs: what is legal, and what a legal kernel was not made for.

CK Tile's templates multiply with matrix instructions on CDNA.  Under them, and on every GPU, are the plain loops that
CUDA has too, which take any element types, strides and alignment.

Which of its instances are legal ops/ck_tile_rules.py says; here is what a packed B adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.arch import Arch
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.backends.hip import ck_tile_shape as shape
from tilewright.backends.hip.ck_tile_rules import (
    MAX_BYTES,
    MAX_THREADS,
    PERSISTENT,
    ck_tile_rules,
    instance_rules,
    is_whole,
)
from tilewright.backends.hip.gemm.preselected import SETS
from tilewright.backends.hip.gemm.proposals import generic_schedule, schedules
from tilewright.backends.hip.gemm.schedules import SCHEDULES, AmdSchedule, CkTileSchedule
from tilewright.backends.hip.gemm.signature import signature_rules
from tilewright.ops.base import Violation
from tilewright.ops.gemm.copies import whole_rows
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import Shape
from tilewright.ops.gemm.spec import GemmSignature

__all__ = [
    "PERSISTENT",
    "RULES",
    "SCHEDULES",
    "SETS",
    "copied_sizes",
    "generic_schedule",
    "grains",
    "limits",
    "pack_format",
    "schedules",
    "signature_rules",
]

# What CK Tile's dispatcher takes where a configuration says nothing.
CONFIG_DEFAULTS: Mapping[str, Any] = {
    "tile_m": 128, "tile_n": 128, "tile_k": 32, "warp_grid_m": 2, "warp_grid_n": 2, "warp_grid_k": 1,
    "warp_tile_m": 32, "warp_tile_n": 32, "warp_tile_k": 16, "pipeline": "compv4", "scheduler": "intrawave",
    "store": "cshuffle", "pad_m": False, "pad_n": False, "pad_k": False, "persistent": False,
}  # fmt: skip
USUAL = ("fp16", "rcr")  # datatype and layout where nobody says, as users of CK Tile expect
PIPELINES = CkTileSchedule.pipelines
STORES = CkTileSchedule.words["store"]


def _signature(signature: GemmSignature, schedule: AmdSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)
    if isinstance(schedule, GpuLoopsSchedule):
        if signature.variant == "preshuffle":
            yield Violation("amd-packed", "the loops read B as it is, not packed", "give b unpacked")
    elif signature.variant != "preshuffle":  # there they are rules of the signature
        yield from ck_tile_rules(signature, arch)


def _packed(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if (signature.variant == "preshuffle") != (schedule.pipeline == "preshuffle"):
        yield Violation(
            "amd-preshuffle",
            f"variant {signature.variant} with pipeline {schedule.pipeline}",
            "variant and pipeline preshuffle go together",
        )
    if schedule.split_k > 1 and signature.variant == "preshuffle":
        yield Violation(
            "amd-split-k",
            f"split_k {schedule.split_k} with a packed B, which has no offset for parts",
            "use another variant, or split_k 1",
        )


def _preshuffle(signature: GemmSignature, schedule: CkTileSchedule, arch: Arch) -> Iterator[Violation]:
    if schedule.pipeline != "preshuffle" or not is_whole(schedule):
        return
    size = shape.bytes_of(signature.dtype_a)
    m, _, k = schedule.tile
    waves = shape.threads(schedule) // shape.WAVE
    if signature.layout != "rcr":
        yield Violation("amd-preshuffle", f"layout {signature.layout} with a preshuffled B", "use rcr")
    if schedule.store != "cshuffle":
        yield Violation("amd-preshuffle", f"the {schedule.store} store with a preshuffled B", "use cshuffle")
    if schedule.warp_tile[1] not in (16, 32):
        yield Violation(
            "amd-preshuffle",
            f"warp_tile_n {schedule.warp_tile[1]} has no packed order",
            "use a 16- or 32-wide warp tile",
        )
    if schedule.pad[2]:
        yield Violation("amd-preshuffle", "a packed B ends with k: there is no edge code along k", "use pad_k false")
    share = schedule.warp_tile[0] * schedule.warp_tile[2] * size * shape.repeat(schedule)[0] // shape.WAVE
    if share % shape.NATIVE_BYTES:
        yield Violation(
            "amd-preshuffle", f"a lane's share of A is {share} bytes, not a multiple of 16", "use a larger tile_m"
        )
    across = k * size // shape.NATIVE_BYTES
    if across < 1 or shape.WAVE % across:
        yield Violation(
            "amd-preshuffle", f"a row of A takes {across} lanes, which does not divide 64", "use a smaller tile_k"
        )
        return
    if m % (shape.WAVE // across * waves):
        yield Violation(
            "amd-preshuffle",
            f"tile_m {m} is not a multiple of the {shape.WAVE // across * waves} rows of A the lanes load at once",
            "use a larger tile_m or fewer waves",
        )
    loads = m * k // shape.threads(schedule) // (shape.NATIVE_BYTES // size)
    reads = shape.repeat(schedule)[0] * (k // schedule.warp_tile[2])
    if schedule.warp_tile[1] == 16 and reads < loads:
        yield Violation(
            "amd-preshuffle",
            f"{loads} loads of A but {reads} reads from LDS: the schedule of 16-wide warp tiles needs as many reads",
            "use more waves along n",
        )


def _schedule(signature: GemmSignature, schedule: AmdSchedule, arch: Arch) -> Iterator[Violation]:
    if isinstance(schedule, GpuLoopsSchedule) or "wmma" in arch.features or not arch.warp_tiles:
        return  # the loops take everything; where CK Tile has nothing there is one reason, and no schedule mends it
    yield from _packed(signature, schedule, arch)
    yield from instance_rules(signature, schedule, arch)
    yield from _preshuffle(signature, schedule, arch)


RULES = (_signature, _schedule)


def _spans(schedule: CkTileSchedule, problem: GemmProblem) -> Iterator[tuple[str, int]]:
    """Bytes of A and B, with the rows that the last turns of the k loop reach for; all else has 64-bit offsets."""
    turns = -(-problem.k // (schedule.tile[2] * schedule.split_k)) * schedule.tile[2] * schedule.split_k
    a_rows = problem.m if problem.layout[0] == "r" else turns
    b_rows = turns if problem.layout[1] == "r" else problem.n
    yield "A", a_rows * problem.a_stride * shape.bytes_of(problem.dtype_a)
    if problem.preshuffled:
        yield "B", problem.n * problem.k * shape.bytes_of(problem.dtype_b)
    else:
        yield "B", b_rows * problem.b_stride * shape.bytes_of(problem.dtype_b)


def limits(schedule: AmdSchedule, problem: GemmProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's C check says the same."""
    if isinstance(schedule, GpuLoopsSchedule):
        return
    signature = problem.signature
    if not problem.m or not problem.n or not problem.batch:
        return
    for what, extent, stride, width in _contiguous(schedule, problem, signature):
        if width > 1 and not problem.aligned:
            yield Violation(
                "amd-alignment",
                f"an operand's address or batch stride is not a multiple of 16 bytes, and {what} is read {width} "
                "elements at a time",
                "align it, or use a kernel with narrower accesses",
            )
        if extent % width or stride % width:
            yield Violation(
                "amd-alignment",
                f"{what}: its contiguous extent {extent} and stride {stride} must be multiples of {width} elements, "
                "edge code or not",
                f"pad them to multiples of {width}, or use a kernel with narrower accesses",
            )
    for what, span in _spans(schedule, problem):
        if span >= MAX_BYTES:
            yield Violation(
                "amd-operand-size", f"{what} spans {span} bytes, and offsets are 32-bit", "split the problem"
            )
    tiles = -(-problem.m // schedule.tile[0]) * -(-problem.n // schedule.tile[1])
    if tiles * schedule.split_k * shape.threads(schedule) >= MAX_THREADS:
        yield Violation(
            "amd-tiles", f"{tiles} tiles make a launch of 2^32 threads or more", "use a kernel with a larger tile"
        )
    turns, least = shape.loops(schedule, problem.k), shape.least_loops(schedule)
    if turns < least:
        yield Violation(
            "amd-k-loops",
            f"k = {problem.k} gives {turns} turns of the k loop, {schedule.pipeline} needs {least}",
            "use a kernel with a smaller tile_k, or compv3",
        )
    if schedule.pipeline == "preshuffle" and problem.n % schedule.warp_tile[1]:
        yield Violation(
            "amd-preshuffle-columns",
            f"n = {problem.n} is not a multiple of warp_tile_n {schedule.warp_tile[1]}, the columns of a packed panel",
            f"pad n to {-(-problem.n // schedule.warp_tile[1]) * schedule.warp_tile[1]}, or give b unpacked",
        )


def _contiguous(
    schedule: CkTileSchedule, problem: GemmProblem, signature: GemmSignature
) -> Iterator[tuple[str, int, int, int]]:
    """Name, contiguous extent, stride and access width of what is loaded in whole accesses only."""
    yield (
        "A",
        (problem.k if problem.layout[0] == "r" else problem.m),
        problem.a_stride,
        shape.width_a(signature, schedule),
    )
    if not problem.preshuffled:
        yield (
            "B",
            (problem.n if problem.layout[1] == "r" else problem.k),
            problem.b_stride,
            shape.width_b(signature, schedule),
        )


def grains(schedule: AmdSchedule) -> Shape:
    """What each size must be a multiple of: 1 where the kernel has edge code."""
    if isinstance(schedule, GpuLoopsSchedule):
        return (1, 1, 1)
    m, n, k = schedule.tile
    # The preshuffle pipeline takes its k tiles in pairs.
    whole = m, n, k * schedule.split_k * (2 if schedule.pipeline == "preshuffle" else 1)
    m, n, k = (1 if edge else step for edge, step in zip(schedule.pad, whole, strict=True))
    return m, n, k


def copied_sizes(schedule: AmdSchedule, problem: GemmProblem) -> Shape:
    """m, n and k of copies in which the kernel serves the problem: whole accesses, a k long enough."""
    if isinstance(schedule, GpuLoopsSchedule):
        return (problem.m, problem.n, problem.k)
    p, signature = problem, problem.signature
    k, step = p.k, schedule.tile[2] * schedule.split_k
    if shape.loops(schedule, k) < shape.least_loops(schedule):
        k = step * shape.least_loops(schedule)
    return whole_rows(p, k, (1, 1, 1), (shape.width_a(signature, schedule), shape.width_b(signature, schedule), 1))


def pack_format(schedule: AmdSchedule) -> tuple[object, ...]:
    """A packed B is panels of warp_tile_n columns, each in the order the lanes load warp_tile_k of it."""
    return schedule.warp_tile[1:]
