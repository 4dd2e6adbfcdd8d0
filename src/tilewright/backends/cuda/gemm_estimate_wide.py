"""Predicted seconds of a tf32 kernel of the multistage pipeline.

Several blocks share a multiprocessor.  A step of theirs takes as long as the slowest of the multiplications of all,
what they fetch from the second-level cache, and the wait for the copies of one, which is the same however many wait.
The constants were fitted to 46 random problems on an H200 (rrr, crr and ccr, cold caches), and judged on
76 others.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.arch import all_archs
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import nvidia_multistage as multistage
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import MultistageSchedule

MACS = 4.07e11  # a second, of one multiprocessor
ISSUE = 3.7e11  # bytes a second of fragments and copies through its shared memory
CACHE = 7.5e10  # bytes a second that one multiprocessor takes in where all do
TURN = 2.9e-07  # a step of a block alone
FILL = 3.5e-06  # until the first stage is there
LEAVE = 1.75e11  # bytes a second of results of one multiprocessor
MEET, SUMS = 3.2e-06, 8.4e12  # split-K: all parts there, and bytes a second of sums that change hands
STEP_MACS, STEP_BYTES, ALONE = 6e11, 4.5e10, 1.5  # what the host counts with as it deals out parts


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


def _up(x: int, y: int) -> int:
    return -(-x // y)


def held(spec: KernelSpec) -> int:
    """Blocks that a multiprocessor holds at a time."""
    shared = multistage.shared_bytes(spec.signature, spec.schedule)
    room = all_archs()[spec.arch].scratch_bytes + 1024
    return max(1, min(multistage.wide_together(spec.schedule), room // (shared + 1024)))


def facts(spec: KernelSpec, problem: GemmProblem) -> WideFacts:
    schedule: MultistageSchedule = spec.schedule
    (m, n, k), (along_m, along_n, _) = schedule.tile, schedule.warp_grid
    units, most = all_archs()[spec.arch].compute_units, held(spec)
    tiles, steps = _up(problem.m, m) * _up(problem.n, n) * problem.batch, max(1, _up(problem.k, k))
    parts = balanced(tiles, steps, units, units * most, schedule) if schedule.dealing == "split_k" else 1
    blocks = _up(tiles * parts, units)
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
        steps=_up(steps, parts),
        rounds=blocks / together,
        results=4.0 * min(m, problem.m) * min(n, problem.n) * blocks,
        meets=float(parts > 1),
        sums=8.0 * m * n * tiles * parts * (parts > 1),
        moved=problem.bytes,
    )


def balanced(tiles: int, steps: int, units: int, room: int, schedule: MultistageSchedule) -> int:
    """Parts of k as `Dealing::balanced` in cuda/deal.h has them."""
    m, n, k = schedule.tile
    step = max(m * n * k / STEP_MACS, (m + n) * k * 4 / STEP_BYTES)
    best, least = 1, float("inf")
    for parts in range(1, 17):
        if parts > 1 and (tiles * parts > room or parts * 4 > steps):
            break
        high = _up(tiles * parts, units)
        taken = _up(steps, parts) * step * (high if high > 1 else ALONE)
        if parts > 1:
            taken += 3e-6 + tiles * parts * m * n * 8 / 2.5e12
        if taken < least:
            best, least = parts, taken
    return _up(steps, _up(steps, best))


def seconds(f: WideFacts) -> float:
    """Without a kernel's start and memory; arithmetic alone, so that every field may also be an array."""
    step = _most(_most(f.macs / MACS, f.through / ISSUE), _most(f.fetched / CACHE, TURN))
    body = f.rounds * (f.steps * step + FILL) + f.results / LEAVE
    return body + MEET * f.meets + f.sums / SUMS


def _most(x: float, y: float) -> float:
    return x if x > y else y
