"""Predicted seconds of a CPU kernel: enough to order candidates, never to report.

The model counts cycles of the busiest thread: multiply-accumulates with their rounding up to whole
register blocks, words packed, lines streamed from the cache level they fit in, and what waking a
team costs.  The constants were fitted to single-thread runs on an AVX-512 server core (see
docs/architecture.md); only their proportions matter for a choice.
"""

from __future__ import annotations

from math import gcd

from tilewright.arch import all_archs
from tilewright.arch.host import l2_bytes
from tilewright.backends.cpu.gemm.schedules import (
    CpuDirectSchedule,
    CpuLoopsSchedule,
    CpuPackedSchedule,
    CpuSchedule,
    CpuStreamSchedule,
)
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem

CYCLES_PER_SECOND = 2.8e9
CALL = 1500.0  # cycles of any call
WAKE = 3500.0  # more when a team is woken
MEMORY = 8.5  # bytes a cycle one core gets from memory
PACK_A, PACK_A_FAR, TURN_A = 0.15, 0.8, 0.5  # cycles a word: rows copied (from beyond the cache), columns turned
PACK_B_NEAR, PACK_B_FAR, TURN_B = 0.35, 1.05, 0.45  # B in the second-level cache, or beyond it
FOLD, FOLD_TURNED = 11.5, 2.7  # cycles a sum: the lanes of one added up, and stored across rows
WAYS = 16  # of a second-level cache of today
SMALLEST_SHARE = 1 << 19  # as in gemm_packed.h: multiply-adds below which a thread is not woken


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def seconds(spec: KernelSpec, problem: GemmProblem, threads: int) -> float:
    schedule: CpuSchedule = spec.schedule
    macs = problem.m * problem.n * problem.k * problem.batch
    if isinstance(schedule, CpuLoopsSchedule):
        return (CALL + 4.0 * macs / max(1, threads)) / CYCLES_PER_SECOND
    team = max(1, min(threads, macs // SMALLEST_SHARE + 1))
    start = CALL + (WAKE if team > 1 else 0.0)
    floor = problem.bytes / (MEMORY * team)
    width = all_archs()[spec.arch].vector_bytes // 4
    if isinstance(schedule, CpuStreamSchedule):
        cycles = max(floor, _streamed(schedule, problem, team, width))
    elif isinstance(schedule, CpuDirectSchedule):
        cycles = max(floor, _direct(schedule, problem, team, width))
    else:
        cycles = max(floor, _packed(schedule, problem, team, width))
    return (start + cycles) / CYCLES_PER_SECOND


def _streamed(schedule: CpuStreamSchedule, problem: GemmProblem, team: int, width: int) -> float:
    words = width * schedule.warp_tile[2]
    few, many = (problem.m, problem.n) if problem.m <= schedule.tile[0] else (problem.n, problem.m)
    lines = _up(many, 16 * team) / team
    convert = 0.0 if problem.dtype_b == "fp32" else 0.8
    # Each vector of the matrix is loaded (and widened) once, then multiplied with every one of the few;
    # lines of k are folded in registers, lines across k add into sums in the first-level cache.
    turned = few != problem.m  # results leave across their rows
    folded = problem.layout[0] == "r" if turned else problem.layout[1] == "c"
    each = (0.68 * few + 3.0 if folded else 0.88 * few + 4.0) + (0.2 * few if few > 64 else 0.0) + convert
    fold = few * (FOLD + FOLD_TURNED * turned) if folded else 0.0
    penalty = 0.999 if schedule.pipeline == "gemv" else 1.0
    return penalty * lines * problem.batch * (-(-problem.k // words) * each + fold + 6.0)


def _direct(schedule: CpuDirectSchedule, problem: GemmProblem, team: int, width: int) -> float:
    rows_block, columns_block, step = schedule.warp_tile
    groups = -(-problem.k // step)
    share = -(-team // max(1, problem.batch))
    waves = -(-problem.batch * share // team)
    best = float("inf")
    for across in {1, share}:  # threads side by side, or below each other
        rows = -(-problem.m // (share // across))
        columns = _up(-(-problem.n // across), width)
        cycles = columns / columns_block * groups * _rows_direct(rows, rows_block, columns_block // width)
        tiles = (rows / rows_block + 0.5) * (columns / columns_block + 0.5)
        best = min(best, cycles + tiles * 45.0 + _reread(rows_block, problem, rows, columns, groups))
    return best * waves


def _packed(schedule: CpuPackedSchedule, problem: GemmProblem, team: int, width: int) -> float:
    rows_block, columns_block, step = schedule.warp_tile
    groups = -(-problem.k // step)
    share = -(-team // max(1, problem.batch * schedule.split_k))
    waves = -(-problem.batch * schedule.split_k * share // team)
    groups_here = -(-groups // schedule.split_k)
    blocks = -(-groups_here * step // schedule.tile[2]) or 1
    best = float("inf")
    for across in {1, share}:
        rows = _up(-(-problem.m // (share // across)), rows_block)
        columns = _up(-(-problem.n // across), width)
        cycles = rows * columns / width * groups_here / (1.91 if columns_block == 3 * width else 1.86)
        tiles = (rows / rows_block + 0.5) * (columns / columns_block + 0.5)
        cycles += tiles * blocks * (40.0 + 1.6 * rows_block * columns_block / width)
        cycles += _packing(schedule, problem, rows, columns, groups)
        best = min(best, cycles)
    if schedule.split_k > 1:
        return best * waves + WAKE + problem.batch * problem.m * problem.n * schedule.split_k * 0.5 / team
    return best * waves


def _packing(schedule: CpuPackedSchedule, problem: GemmProblem, rows: int, columns: int, groups: int) -> float:
    """Panels of A for every cache block along n, and of B once, unless they were packed beforehand."""
    groups_here = -(-groups // schedule.split_k)
    times = -(-columns // schedule.tile[1])
    far = columns <= 128 and rows * groups_here * 4 > l2_bytes() * 0.5
    each = TURN_A if problem.layout[0] != "r" else PACK_A_FAR if far else PACK_A
    cycles = rows * groups_here * times * each
    if schedule.pipeline == "preshuffle":
        return cycles
    near = columns * groups * 4 <= l2_bytes() * 0.8
    turn = problem.layout[1] != "r"
    return cycles + columns * groups_here * ((TURN_B if turn else PACK_B_NEAR) if near else PACK_B_FAR)


def _rows_direct(rows: int, block: int, vectors: int) -> float:
    """Cycles a k step: whole register blocks, then halves of them, which wait for their own sums."""
    whole, left = divmod(rows, block)
    cycles = whole * block * vectors / 1.94
    for part in (8, 4, 2, 1):
        if part < block:
            count, left = divmod(left, part)
            cycles += count * max(4.0, part * vectors / 1.94)
    return cycles


def _reread(block: int, problem: GemmProblem, rows: int, columns: int, groups: int) -> float:
    """A direct kernel reads its columns of B again for every row of register blocks."""
    bytes_b = DTYPES[problem.dtype_b].bytes
    size = columns * problem.k * bytes_b
    full = size / max(1, l2_bytes())
    # Rows a power of two apart share cache sets: a panel of many such rows does not stay, however small.
    sets, pitch = max(1, l2_bytes() // (64 * WAYS)), problem.b_stride * bytes_b
    if pitch % 64 == 0 and problem.k * gcd(pitch // 64, sets) > 0.75 * WAYS * sets:
        full = max(full, 2.0)
    cost = 0.0 if full <= 0.2 else 0.004 if full <= 0.35 else 0.014 if full <= 0.6 else 0.02 if full <= 1.3 else 0.06
    passes = rows / block
    extra = passes * size * cost
    written = rows * columns * DTYPES[problem.dtype_c].bytes
    if written > l2_bytes():
        extra += written * 0.05  # results leave in narrow columns, page after page
    if full > 1.3:
        extra += size * 0.25  # the first pass jumps from page to page, where nothing looks ahead
    if problem.dtype_b != "fp32":
        extra += passes * groups * columns / 16 * 1.2
    if problem.dtype_a != "fp32" or problem.layout[0] != "r":
        extra += rows * groups * (PACK_A if problem.layout[0] == "r" else TURN_A)
    return extra
