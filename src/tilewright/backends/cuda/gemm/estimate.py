"""Predicted seconds of a CUDA kernel: enough to order candidates, never to report.

In two halves.  `facts` counts what a kernel does on a problem: steps of its busiest block, bytes, multiplications,
sums that change hands; no constant of the machine is in it.  `seconds_of` turns the counts into time with the
constants of the arch table, by arithmetic alone, so that benchmarks/fit_cuda.py can do it for all pairs of a sweep at
once.

tma_ws: a block works through its tiles one k step after the other.  A step takes as long as the slowest of
its multiply, its share of the second-level cache and what one multiprocessor takes in; all together they take no less
than memory needs.  Around the steps there are the filling of the ring and the way out of the results.  Whole tiles
are dealt out in rounds, so the busiest block counts; stream-K deals out steps, split-K parts of tiles, and both pay
for sums that change hands.  skinny: the bytes of the large matrix over a bandwidth that grows with the loads in
flight.  multistage: a step takes as long as the slowest of its multiply, its way through shared memory and its share
of the caches.

The constants were fitted to random problems on an H200 (bf16, cold caches), and judged on others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tilewright.arch import all_archs, fitted
from tilewright.arch.rates import Cache, Cycles, Fma, Launch, Memory, UnitCache, UnitClock, UnitMma, UnitWgmma
from tilewright.backends.cuda.gemm import estimate_plain as plain
from tilewright.backends.cuda.gemm import estimate_wide as wide
from tilewright.backends.cuda.gemm import multistage
from tilewright.backends.cuda.gemm.proposals import by_lines, tma_view
from tilewright.backends.cuda.gemm.schedules import MultistageSchedule, NvidiaSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import GemmSignature


class Constants(NamedTuple):
    """What seconds are made of: `gemm` of the fits in the arch table."""

    plain: plain.Constants
    wide: wide.Constants
    start: Launch  # an empty kernel, seen from outside
    memory: Memory  # bytes a second
    cache: Cache  # bytes a second from the second-level cache, all multiprocessors together
    astray: float  # how much more the cache moves of rows that start between its lines
    macs: UnitWgmma  # a second, of one multiprocessor at two bytes an element; one byte doubles it
    one_cache: UnitCache  # bytes a second that one multiprocessor takes in
    fill: Launch  # until the first stage is there
    leave: Cycles  # of a 128 x 256 tile: what is left to do after its last multiply
    leave_least: Cycles  # of any tile
    sheet: float  # how much longer results take through a sheet of shared memory than with the copy engine
    wide_sheet: float  # the same of results of four bytes, which no copy engine takes
    singles: float  # and how much longer straight from the registers, where rows of E begin between its pairs
    hidden: float  # of the way out that ping-pong still feels between two tiles
    hidden_least: float  # and of what any tile takes
    over: float  # of lines fetched beyond a tile, the part that comes from memory once more
    soft: float  # how sharply the slowest of several decides: the power in which they add
    per_step: Cycles
    per_neighbour: Cycles  # a step waits for the slowest block of its cluster
    turned: float  # how much longer a step takes with the problem turned
    rate_floor: float  # of narrow multiplies...
    rate_columns: float  # ...by the columns of one...
    rate_rows: float  # ...and of tiles of 64 rows
    hand_over: Cycles  # stream-K: sums written, flag seen, sums read, of a 128 x 256 tile
    exchange: Cycles  # cluster_k: all blocks there...
    neighbour: UnitClock  # ...and bytes a second of sums that a block reads
    meet: Cycles  # split-K: sums written, all parts there, sums read
    sums: Memory  # bytes a second of sums that change hands
    copy_start: Launch  # of operands that are copied first: a launch more...
    copy: Memory  # ...and bytes a second
    skinny_memory: Memory  # skinny: bytes a second
    skinny_latency: float  # seconds a load is under way
    skinny_registers: float  # registers beside the loads
    skinny_tail: float  # the part of a last round that is lost
    skinny_warp: Cycles  # what a warp's start costs...
    skinny_turn: Cycles  # ...a turn of its loop...
    skinny_gather: Cycles  # ...and a turn with eight of the few rows that lie by columns
    mma_macs: UnitMma  # multistage, of one multiprocessor: multiplications of mma.sync at two bytes a second...
    shared: UnitClock  # ...bytes through shared memory...
    copies: UnitClock  # ...and copies
    alone: float  # what a block alone reaches of it
    stage_turn: Cycles  # what a step costs in any case
    stages_fill: Launch  # until the first stage is there
    loops_macs: Fma  # a second, of the whole GPU
    loops_turn: Cycles  # a turn of its loop, however small


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("gemm", Constants, arch)


class TmaFacts(NamedTuple):
    """Of a tma_ws kernel on a problem."""

    macs: float  # of a step of one block, in units of two-byte elements
    columns: float  # of one multiply
    short: float  # 1: the tile has 64 rows; as all that can only be so or not
    fetched: float  # bytes all blocks together fetch from the cache in a step; of rows that start between lines...
    astray: float  # ...these are counted here
    taken: float  # bytes that reach one block in a step
    neighbours: float
    turned: float
    steps: float  # of the busiest block
    leaving: float  # its tiles, in units of 128 x 256, whose way out nothing hides
    hidden: float  # those during which another warpgroup multiplies
    hidden_tiles: float  # how many these are...
    tiles: float  # ...and how many of the others
    sheet: float
    wide_sheet: float
    singles: float
    handed: float  # stream-K: tiles of sums it hands over or takes, in the same units
    meets: float  # split-K
    sums: float  # bytes of sums all blocks hand in and take
    exchanges: float  # cluster_k: tiles of the busiest cluster
    exchanged: float  # bytes of sums that one of its blocks takes from the other
    copies: float
    copied: float  # bytes
    moved: float  # bytes memory must move
    over: float  # bytes of lines that are fetched beyond their tile, and once more with the next


class StagesFacts(NamedTuple):
    """Of a multistage kernel on a problem."""

    macs: float  # of a step of one block, as mma.sync multiplies two-byte elements
    few: float  # 1: no more than four warps run together on a multiprocessor
    issued: float  # copies of a step
    through: float  # bytes through shared memory
    taken: float  # bytes that reach one block in a step
    fetched: float  # bytes all blocks together fetch from the cache in a step
    together: float  # blocks that share a multiprocessor
    steps: float
    rounds: float
    leaving: float
    meets: float
    sums: float
    moved: float


class SkinnyFacts(NamedTuple):
    """Of a skinny kernel on a problem."""

    blocks: float
    registers: float  # for what is under way
    flight: float  # bytes one block has in flight
    warps: float
    turns: float
    gathered: float  # turns, for each eight of the few
    units: float
    moved: float


class LoopsFacts(NamedTuple):
    macs: float
    turns: float
    moved: float


Facts: TypeAlias = TmaFacts | StagesFacts | SkinnyFacts | LoopsFacts | plain.PlainFacts | wide.WideFacts


def _up(x: int, y: int) -> int:
    return -(-x // y)


def _most(x: float, y: float) -> float:
    return x if x > y else y


def _least(x: float, y: float) -> float:
    return x if x < y else y


def _slowest(c: Constants, x: float, y: float) -> float:
    """Of two things that go on at the same time, and are in each other's way where they take equally long."""
    return (x**c.soft + y**c.soft) ** (1.0 / c.soft)  # type: ignore[no-any-return]


def _memory(c: Constants, moved: float) -> float:
    return moved / c.memory


def _whole(x: float) -> float:
    """Rounded up."""
    return -(-x // 1)


def seconds(spec: KernelSpec, problem: GemmProblem) -> float:
    if 0 in (problem.m, problem.n, problem.batch):
        return constants(spec.arch).start  # there is nothing to do, and no count of tiles to divide by
    return seconds_of(facts(spec, problem), constants(spec.arch))


def facts(spec: KernelSpec, problem: GemmProblem) -> Facts:
    """What the kernel does on the problem."""
    schedule: NvidiaSchedule = spec.schedule
    units = all_archs()[spec.arch].compute_units
    if isinstance(schedule, TmaWsSchedule):
        return _tma_facts(schedule, problem, units)
    if isinstance(schedule, MultistageSchedule):
        if problem.dtype_a == "tf32":
            return wide.facts(spec, problem)
        return plain.facts(spec, problem) if problem.dtype_a == "fp32" else _stages_facts(spec, problem)
    if isinstance(schedule, SkinnySchedule):
        return _skinny_facts(schedule, problem, units)
    tiles = _up(problem.m, schedule.tile[0]) * _up(problem.n, schedule.tile[1]) * problem.batch
    turns = _up(tiles, units * 4) * _up(problem.k, schedule.tile[2])
    return LoopsFacts(problem.m * problem.n * problem.k * problem.batch, turns, problem.bytes)


def seconds_of(counted: Facts, c: Constants) -> float:
    """The counts as time; arithmetic alone, so that every field may also be an array."""
    if isinstance(counted, TmaFacts):
        return _tma_seconds(c, counted)
    if isinstance(counted, StagesFacts):
        return _stages_seconds(c, counted)
    if isinstance(counted, plain.PlainFacts):
        return c.start + _most(_memory(c, counted.moved), plain.seconds(c.plain, counted))
    if isinstance(counted, wide.WideFacts):
        return c.start + _slowest(c, _memory(c, counted.moved), wide.seconds(c.wide, counted, _most))
    if isinstance(counted, SkinnyFacts):
        return _skinny_seconds(c, counted)
    return c.start + _most(_memory(c, counted.moved), _most(counted.macs / c.loops_macs, counted.turns * c.loops_turn))


# -- tma_ws ------------------------------------------------------------------------------------------------------------


def _tma_facts(schedule: TmaWsSchedule, problem: GemmProblem, units: int) -> TmaFacts:
    view = tma_view(schedule)
    m, n, along_m, along_n = view.rows, view.columns, view.cluster_rows, view.cluster_columns
    size = DTYPES[problem.dtype_a].bytes
    pingpong = schedule.grouping == "pingpong"
    lines_m, lines_n = (problem.n, problem.m) if view.turned else (problem.m, problem.n)
    shared = schedule.cluster[0] * schedule.cluster[1] if schedule.dealing == "cluster_k" else 1
    clusters = _clusters(units, along_m * along_n * shared)
    tiles = _up(lines_m, m * along_m) * _up(lines_n, n * along_n) * problem.batch
    all_steps = max(1, _up(problem.k, schedule.tile[2]))
    parts = _parts(tiles, all_steps, clusters) if schedule.dealing == "split_k" else 1
    steps, rounds, handed = float(all_steps * _up(tiles, clusters)), float(_up(tiles, clusters)), 0.0
    busy, sums = min(clusters, tiles), 0.0
    if parts > 1:
        steps, rounds, busy = float(_up(all_steps, parts)), 0.0, tiles * parts
        sums = 8.0 * m * n * busy * along_m * along_n
    elif schedule.dealing == "stream_k":
        steps, handed = _streamed(tiles, all_steps, clusters)
        rounds, busy = steps / all_steps, min(clusters, max(1, tiles * all_steps // 4))
    elif shared > 1:
        steps = rounds * _up(all_steps, shared)
    blocks = busy * along_m * along_n * shared

    # Of lines beyond the matrix nothing is fetched.
    inside_m, inside_n = lines_m / (_up(lines_m, m) * m), lines_n / (_up(lines_n, n) * n)
    wide = view.fetched_columns(by_lines(problem.signature, schedule))
    fetched_a, fetched_b = 128.0 * m * inside_m / along_n * blocks, 128.0 * wide * inside_n / along_m * blocks
    stray_first, stray_second = (_strays(problem, one) for one in (("b", "a") if view.turned else ("a", "b")))
    copied = _copied(problem)
    part = m * n / (128 * 256)
    through_sheet = schedule.store == "direct" and not _from_registers(schedule) and not _anywhere(schedule, problem)
    return TmaFacts(
        macs=m * n * schedule.tile[2] * size / 2,
        columns=n,
        short=float(m == 64),
        fetched=fetched_a * (not stray_first) + fetched_b * (not stray_second),
        astray=fetched_a * stray_first + fetched_b * stray_second,
        taken=128.0 * (m + wide),
        neighbours=along_m * along_n - 1,
        turned=float(view.turned),
        steps=steps,
        leaving=part * (1.0 if pingpong else rounds if rounds > 1 else 1.0) * (parts == 1),
        hidden=part * max(0.0, rounds - 1) * pingpong,
        hidden_tiles=max(0.0, rounds - 1) * pingpong,
        tiles=(1.0 if pingpong else max(1.0, rounds)) * (parts == 1),
        sheet=float(through_sheet and DTYPES[problem.dtype_c].bytes <= 2),
        wide_sheet=float(through_sheet and DTYPES[problem.dtype_c].bytes > 2),
        singles=float(_from_registers(schedule) and problem.c_stride % 2 == 1),
        handed=handed * part,
        meets=float(parts > 1),
        sums=sums,
        exchanges=rounds if shared > 1 else 0.0,
        exchanged=4.0 * m * n * (shared - 1) / 2 * rounds,
        copies=float(copied > 0),
        copied=copied,
        moved=problem.bytes,
        over=(wide / n - 1.0) * lines_n * problem.k * size * problem.batch,
    )


def _tma_seconds(c: Constants, f: TmaFacts) -> float:
    rate = _least(1.0, c.rate_floor + f.columns / c.rate_columns) * (1.0 - (1.0 - c.rate_rows) * f.short)
    # What neighbours fetch for a block spares the cache, not the block: all of it comes in.
    flow = _slowest(c, (f.fetched + f.astray * c.astray) / c.cache, f.taken / c.one_cache)
    step = _slowest(c, f.macs / (c.macs * rate), flow) + c.per_step + c.per_neighbour * f.neighbours
    step = step * (1.0 + (c.turned - 1.0) * f.turned)
    longer = 1.0 + (c.sheet - 1.0) * f.sheet + (c.wide_sheet - 1.0) * f.wide_sheet + (c.singles - 1.0) * f.singles
    out = (
        c.leave * (f.leaving + c.hidden * f.hidden) + c.leave_least * (f.tiles + c.hidden_least * f.hidden_tiles)
    ) * longer
    met = (
        c.meet * f.meets
        + f.sums / c.sums
        + c.hand_over * f.handed
        + c.exchange * f.exchanges
        + f.exchanged / c.neighbour
    )
    copied = c.copy_start * f.copies + f.copied / c.copy
    memory = _memory(c, f.moved + c.over * f.over)
    return c.start + c.fill + _slowest(c, f.steps * step + out + met, memory) + copied


def _from_registers(schedule: TmaWsSchedule) -> bool:
    """Whether results are stored as they are: not by TMA, not through shared memory (gemm/tma_ws/epilogue_store.h)."""
    view = tma_view(schedule)
    return schedule.store == "direct" and view.rows == 64 * view.groups and view.columns <= 64 and not view.turned


def _anywhere(schedule: TmaWsSchedule, problem: GemmProblem) -> bool:
    """Whether results go from the registers: rows of E begin between 16-byte words (tma_ws/epilogue_store.h)."""
    size = DTYPES[problem.dtype_c].bytes
    plain = problem.epilogue == "PassThrough" and problem.num_d == 0 and problem.beta == 0
    return size == 2 and plain and not schedule.turned and (problem.c_stride * size % 16 != 0 or not problem.aligned)


def _streamed(tiles: int, steps: int, clusters: int) -> tuple[float, float]:
    """Steps of the busiest worker and tiles of sums it passes on, as schedulers/tile_scheduler.h deals them."""
    streamed = tiles % clusters
    if streamed and streamed * 2 < clusters and tiles > clusters:
        streamed += clusters
    share = max(4, _up(streamed * steps, clusters)) if streamed else 0
    handed = 0.0
    if share:
        takes = max(1, _up(steps, share) - 1)  # of one tile, from those who have its other parts
        handed = float(takes) if share % steps else 0.0
    return float(share + (tiles - streamed) // clusters * steps), handed


def _clusters(units: int, blocks: int) -> int:
    """Clusters that run at a time: multiprocessors lie in groups of 16 and 18, so larger clusters leave some idle."""
    return units // blocks if blocks <= 2 else max(1, units * 10 // (11 * blocks))


def _parts(tiles: int, steps: int, clusters: int) -> int:
    """As the host's half of a split_k kernel (`Dealing` in cuda/schedulers/tile_scheduler.h) decides."""
    wanted = clusters // tiles if tiles < clusters else 1
    if wanted > steps // 4:
        wanted = 1 if steps < 8 else steps // 4
    return _up(steps, _up(steps, wanted))


def _odd(problem: GemmProblem, which: str) -> bool:
    """Whether an operand is copied first: the copy engine cannot read it, or wgmma reads its type along k only."""
    if which == "b" and problem.preshuffled:
        return False
    stride, dtype = (problem.a_stride, problem.dtype_a) if which == "a" else (problem.b_stride, problem.dtype_b)
    along_k = problem.layout[0] == "r" if which == "a" else problem.layout[1] == "c"
    size = DTYPES[dtype].bytes
    return stride * size % 16 != 0 or not problem.aligned or (size != 2 and not along_k)


def _strays(problem: GemmProblem, which: str) -> bool:
    """Whether rows of an operand start between lines of the cache; copies are made so that they do not."""
    if _odd(problem, which) or (which == "b" and problem.preshuffled):
        return False
    stride, dtype = (problem.a_stride, problem.dtype_a) if which == "a" else (problem.b_stride, problem.dtype_b)
    return stride * DTYPES[dtype].bytes % 128 != 0


def _copied(problem: GemmProblem) -> float:
    """Bytes read and written by copies."""
    again = 0.0
    for which, lines, dtype in (("a", problem.m, problem.dtype_a), ("b", problem.n, problem.dtype_b)):
        if _odd(problem, which):
            again += 2.0 * lines * problem.k * problem.batch * DTYPES[dtype].bytes
    return again


# -- multistage --------------------------------------------------------------------------------------------------------


def _stages_facts(spec: KernelSpec, problem: GemmProblem) -> StagesFacts:
    schedule: MultistageSchedule = spec.schedule
    signature: GemmSignature = spec.signature
    arch = all_archs()[spec.arch]
    (m, n, k), (along_m, along_n, _) = schedule.tile, schedule.warp_grid
    size = DTYPES[problem.dtype_a].bytes
    # How many blocks a multiprocessor holds: by shared memory and by registers.
    sums = m * n // (along_m * along_n * 32)
    registers = 32 * along_m * along_n * min(256, 2 * sums + 64)
    held = max(1, min(arch.scratch_bytes // multistage.shared_bytes(signature, schedule), 65536 // registers))
    tiles, steps = _up(problem.m, m) * _up(problem.n, n) * problem.batch, max(1, _up(problem.k, k))
    parts = _parts(tiles, steps, arch.compute_units) if schedule.dealing == "split_k" else 1
    blocks = tiles * parts
    together = max(1, min(held, _up(blocks, arch.compute_units)))  # on the busiest multiprocessor at a time

    # int8 doubles the rate; fp8 is widened on the way, here or in the hardware.
    macs = m * n * k / (2.0 if problem.dtype_a == "int8" else 1.0)
    through = issued = 0.0  # bytes written to shared memory and read from it; copies
    for dtype, lines, repeated, along_k, vector in (
        (problem.dtype_a, m, along_n, signature.layout[0] == "r", schedule.vector[0]),
        (problem.dtype_b, n, along_m, signature.layout[1] == "c", schedule.vector[1]),
    ):
        moved = 2.7 if multistage.settled(dtype, along_k, vector) else 0.0
        narrow = 16 / (vector * DTYPES[dtype].bytes) if not moved else 1.0
        through += lines * k * size * (narrow + moved + repeated)
        issued += lines * k * size / 16 * narrow
    fetched = (m + n) * k * size
    return StagesFacts(
        macs=macs,
        few=float(along_m * along_n * together <= 4),
        issued=issued,
        through=through,
        taken=fetched,
        fetched=fetched * min(blocks, arch.compute_units * held) / together,
        together=together,
        steps=_up(steps, parts),
        rounds=_up(blocks, arch.compute_units * together),
        leaving=m * n / (128 * 256) * together,
        meets=float(parts > 1),
        sums=8.0 * m * n * blocks * (parts > 1),
        moved=problem.bytes,
    )


def _stages_seconds(c: Constants, f: StagesFacts) -> float:
    multiply = f.macs / c.mma_macs * (1.0 + (1.0 / c.alone - 1.0) * f.few) + f.issued / c.copies
    step = _most(_most(multiply, f.through / c.shared), _most(f.taken / c.one_cache, f.fetched / c.cache))
    turn = _most(step * f.together, c.stage_turn)
    out = (c.leave * f.leaving + c.leave_least) * c.sheet
    body = f.rounds * (f.steps * turn + out) + c.meet * f.meets + f.sums / c.sums
    return c.start + c.stages_fill + _slowest(c, body, _memory(c, f.moved))


# -- skinny ------------------------------------------------------------------------------------------------------------


def _skinny_facts(schedule: SkinnySchedule, problem: GemmProblem, units: int) -> SkinnyFacts:
    columns = schedule.few == "columns"
    many = problem.m if columns else problem.n
    few, lines = (schedule.tile[1], schedule.tile[0]) if columns else schedule.tile[:2]
    warps = schedule.warp_grid[2]
    # Two turns of 64 k (32 where lines are contiguous) for each row of both tiles wait in the registers of a warp.
    deep = 2 if problem.layout[0 if columns else 1] == ("r" if columns else "c") else 1
    turns = _up(_up(problem.k, 64), warps)
    return SkinnyFacts(
        blocks=_up(many, lines) * problem.batch,
        registers=deep * (lines + few),
        flight=warps * lines * 128.0 * deep,
        warps=warps,
        turns=turns,
        gathered=turns * (few / 8) * (problem.layout[1 if columns else 0] != ("c" if columns else "r")),
        units=units,
        moved=problem.bytes,
    )


def _skinny_seconds(c: Constants, f: SkinnyFacts) -> float:
    registers = c.skinny_registers + f.registers
    held = _most(1.0, _least(2048 / (32 * f.warps) // 1, 65536 / (registers * 32 * f.warps) // 1))
    rounds = _most(1.0, f.blocks / (f.units * held))
    idle = 1 + (_whole(f.blocks / (f.units * held)) - rounds) * c.skinny_tail / rounds
    flight = _least(f.blocks, f.units * held) * f.flight
    streamed = _slowest(c, f.moved / c.skinny_memory, f.moved * c.skinny_latency / flight)
    alone = c.skinny_warp * f.warps + c.skinny_turn * f.turns + c.skinny_gather * f.gathered
    return c.start + streamed * idle + _whole(rounds) * alone
