"""Predicted seconds of a tf32 kernel of the multistage pipeline.

Several blocks share a multiprocessor.  A step of theirs takes as long as the slowest of the multiplications of all,
what they fetch from the second-level cache, and the wait for the copies of one, which is the same however many wait.
The constants were fitted to 46 random problems on an H200 (rrr, crr and ccr, cold caches), and judged on
76 others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.arch import all_archs
from tilewright.arch.rates import Cycles, Launch, Memory, UnitCache, UnitClock, UnitMmaTf32
from tilewright.backends.cuda import split_k as parts
from tilewright.backends.cuda.gemm import multistage
from tilewright.backends.cuda.gemm.schedules import MultistageSchedule
from tilewright.backends.cuda.split_k import Step, up
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem

ALONE = 1.5  # how much longer a step takes alone, as the host counts it (gpu/multistage_shape.h)


class Constants(NamedTuple):
    """`wide` of `gemm` of the fits in the arch table."""

    macs: UnitMmaTf32  # a second, of one multiprocessor
    issue: UnitClock  # bytes a second of fragments and copies through its shared memory
    cache: UnitCache  # bytes a second that one multiprocessor takes in where all do
    turn: Cycles  # a step of a block alone
    fill: Launch  # until the first stage is there
    leave: UnitCache  # bytes a second of results of one multiprocessor
    meet: Cycles  # split-K: all parts there...
    sums: Memory  # ...and bytes a second of sums that change hands


class WideFacts(NamedTuple):
    macs: float  # of a step of all blocks that share a multiprocessor
    through: float  # bytes of that step through its shared memory
    fetched: float  # bytes of that step from the cache
    steps: float
    rounds: float
    results: float  # bytes of the busiest multiprocessor
    meets: float
    sums: float  # bytes
    moved: float  # bytes memory must move


def held(spec: KernelSpec) -> int:
    """Blocks that a multiprocessor holds at a time."""
    shared = multistage.shared_bytes(spec.signature, spec.schedule)
    room = all_archs()[spec.arch].scratch_bytes + 1024
    return max(1, min(multistage.wide_together(spec.schedule), room // (shared + 1024)))


def facts(spec: KernelSpec, problem: GemmProblem) -> WideFacts:
    schedule: MultistageSchedule = spec.schedule
    (m, n, k), (along_m, along_n, _) = schedule.tile, schedule.warp_grid
    units, most = all_archs()[spec.arch].compute_units, held(spec)
    tiles, steps = up(problem.m, m) * up(problem.n, n) * problem.batch, max(1, up(problem.k, k))
    cut = balanced(tiles, steps, units, units * most, spec) if schedule.dealing == "split_k" else 1
    blocks = up(tiles * cut, units)
    together = min(most, blocks)
    through = 0.0
    for lines, repeated, vector in ((m, along_n, schedule.vector[0]), (n, along_m, schedule.vector[1])):
        through += 4.0 * lines * k * (repeated + 4 / vector)
    # Rows and columns beyond the matrix are not fetched.
    fetched = 4.0 * k * (min(m, problem.m) + min(n, problem.n))
    return WideFacts(
        macs=m * n * k * together,
        through=through * together,
        fetched=fetched * together,
        steps=up(steps, cut),
        rounds=blocks / together,
        results=4.0 * min(m, problem.m) * min(n, problem.n) * blocks,
        meets=float(cut > 1),
        sums=8.0 * m * n * tiles * cut * (cut > 1),
        moved=problem.bytes,
    )


def balanced(tiles: int, steps: int, units: int, room: int, spec: KernelSpec) -> int:
    """Parts of k that the host deals out."""
    (m, n, k), c = spec.schedule.tile, parts.constants(spec.arch)
    step = Step(max(m * n * k / c.wide_macs, (m + n) * k * 4 / c.wide_bytes), ALONE, m * n)
    return parts.balanced(tiles, steps, units, room, step, c)


def seconds(c: Constants, f: WideFacts, most: Callable[[float, float], float]) -> float:
    """Without a kernel's start and memory; `most` of two numbers, or of two arrays where every field is one."""
    step = most(most(f.macs / c.macs, f.through / c.issue), most(f.fetched / c.cache, c.turn))
    body = f.rounds * (f.steps * step + c.fill) + f.results / c.leave
    return body + c.meet * f.meets + f.sums / c.sums
