"""Predicted seconds of an exact fp32 kernel: what its warps issue counts, multiply-adds and the rest alike."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arch import all_archs
from tilewright.arch.rates import Cycles, Launch, Memory, UnitCache, UnitClock
from tilewright.backends.cuda.gemm import multistage
from tilewright.backends.cuda.gemm.schedules import MultistageSchedule
from tilewright.backends.cuda.split_k import Step, balanced, constants, up
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem

# Instructions of a step beside its multiply-adds and loads, of a copy of 16 bytes and of one of four.
PER_STEP, PER_PIECE, PER_SINGLE = 40, 4, 6
LONELY, LONELY_WIDE = 1.2, 2.0  # what four warps alone take, with up to 64 sums a thread and with more
STREAMED = 1.05  # what a step of stream_k takes, whose loop around the main one costs registers
ALONE = 1.2  # how much longer a step takes alone, as the host counts it (gpu/multistage_shape.h)


class Constants(NamedTuple):
    """`plain` of `gemm` of the fits in the arch table."""

    issue: UnitClock  # instructions a second that the warps of a multiprocessor issue
    fill: Launch  # until the first stage is there
    leave: Cycles  # of a result
    hand: Cycles  # stream-K: a flag seen...
    handed: UnitCache  # ...and bytes a second of sums that a block takes from another
    meet: Cycles  # split-K: all parts there...
    sums: Memory  # ...and bytes a second of sums that change hands


class PlainFacts(NamedTuple):
    issued: float  # instructions of a step of one block
    high: float  # blocks of the busiest multiprocessor, as long as they take together
    fills: float  # rounds of them
    steps: float
    streamed: float  # 1: stream_k
    results: float  # of the busiest multiprocessor
    meets: float
    sums: float  # bytes
    takes: float  # stream_k: tiles of sums that one block takes from others
    taken: float  # bytes of them
    moved: float  # bytes memory must move


def facts(spec: KernelSpec, problem: GemmProblem) -> PlainFacts:
    schedule: MultistageSchedule = spec.schedule
    (m, n, k), (along_m, along_n, _) = schedule.tile, schedule.warp_grid
    units, warps = all_archs()[spec.arch].compute_units, along_m * along_n
    tiles, steps = up(problem.m, m) * up(problem.n, n) * problem.batch, max(1, up(problem.k, k))
    held = multistage.plain_together(m * n // (32 * warps), 32 * warps)
    counts = constants(spec.arch)
    step = Step(m * n * k / counts.plain_macs, ALONE, m * n)
    parts = balanced(tiles, steps, units, units * held, step, counts) if schedule.dealing == "split_k" else 1
    blocks = up(tiles * parts, units)
    high, fills, deep, takes = _together(blocks, held, warps, m * n), up(blocks, held), up(steps, parts), 0
    if schedule.dealing == "stream_k":
        deep, takes = _streamed(tiles, steps, units * held)
        high, fills = min(held, up(tiles * steps, deep * units)), 1 + up(deep, steps)
    return PlainFacts(
        issued=_issued(schedule, problem) * warps,
        high=high,
        fills=fills,
        steps=deep,
        streamed=float(schedule.dealing == "stream_k"),
        results=m * n * blocks if schedule.dealing != "stream_k" else m * n * high * deep / steps,
        meets=float(parts > 1),
        sums=8.0 * m * n * tiles * parts * (parts > 1),
        takes=takes,
        taken=4.0 * m * n * takes,
        moved=problem.bytes,
    )


def _together(blocks: int, held: int, warps: int, sums: int) -> float:
    """How long the blocks of a multiprocessor take, of which `held` run at a time: few of them wait for themselves."""
    rounds, rest = divmod(blocks, held)
    if not rest or rest * warps > 4:
        return float(blocks)
    return rounds * held + (LONELY if sums <= 64 * 32 * warps else LONELY_WIDE)


def _streamed(tiles: int, steps: int, workers: int) -> tuple[int, int]:
    """Steps of the busiest block, and tiles of sums it takes from others, as schedulers/tile_scheduler.h deals them."""
    streamed = tiles % workers
    if streamed and streamed * 2 < workers and tiles > workers:
        streamed += workers
    share = max(4, up(streamed * steps, workers)) if streamed else 0
    takes = max(1, up(steps, share) - 1) if share % steps else 0
    return share + (tiles - streamed) // workers * steps, takes


def _issued(schedule: MultistageSchedule, problem: GemmProblem) -> float:
    """By one warp in a step."""
    (m, n, k), (along_m, along_n, _) = schedule.tile, schedule.warp_grid
    threads = 32 * along_m * along_n
    issued: float = k * (m * n // threads + m // along_m // 16 + n // along_n // 32) + PER_STEP
    for lines, vector, along_k in (
        (m, schedule.vector[0], problem.layout[0] == "r"),
        (n, schedule.vector[1], problem.layout[1] == "c"),
    ):
        issued += lines * k / threads * (PER_SINGLE if vector == 1 or along_k else PER_PIECE / vector)
    return issued


def seconds(c: Constants, f: PlainFacts) -> float:
    """Without a kernel's start; arithmetic alone, so that every field may also be an array."""
    steps = f.steps * f.issued / c.issue * f.high * (1.0 + (STREAMED - 1.0) * f.streamed)
    handed = c.meet * f.meets + f.sums / c.sums + c.hand * f.takes + f.taken / c.handed
    return steps + c.fill * f.fills + c.leave * f.results + handed
