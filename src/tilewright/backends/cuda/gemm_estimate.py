"""Predicted seconds of a CUDA kernel: enough to order candidates, never to report.

tma_ws: a block works through its tiles one k step after the other.  A step takes as long as the slowest of
its multiply, its share of the second-level cache and its share of memory; around the steps there are the
filling of the ring and the way out of the results.  Whole tiles are dealt out in rounds, so the busiest block
counts; stream-K deals out steps, split-K parts of tiles, and both pay for sums that change hands. skinny: the bytes
of the large matrix over a bandwidth that grows with the loads in flight. multistage: a step takes as long as the
slowest of its multiply, its way through shared memory and its share of the caches.  The constants were fitted to
which kernel was fastest on an H200 (bf16, cold caches: benchmarks/fit_cuda.py), so they are good for choosing, and
their single values mean less than their names say.
"""

from __future__ import annotations

from tilewright.arch import all_archs
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import nvidia_multistage as multistage
from tilewright.ops.gemm.nvidia_schedules import tma_view
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import MultistageSchedule, NvidiaSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.ops.gemm.spec import GemmSignature

START = 2.73e-06  # an empty kernel, seen from outside
MACS = 3.23e12  # a second, of one multiprocessor at two bytes an element; one byte doubles it
CACHE = 1.1e13  # bytes a second from the second-level cache, all multiprocessors together
MEMORY = 6.83e12
ONE_CACHE = 8.59e10  # bytes a second that one multiprocessor takes in
FILL = 5.1e-06  # until the first stage is there
LEAVE = 4.81e-08  # what is left to do after the last multiply, of a 128 x 256 tile
TURN = 9.71e-09  # between two tiles of one block, where nothing else multiplies meanwhile
HAND_OVER = 1.57e-05  # stream-K: sums written, flag seen, sums read
MEET = 3.24e-06  # split-K: sums written, all parts there, sums read
SUMS = 2.53e12  # bytes a second of sums that change hands
EXCHANGE, NEIGHBOUR = 1.5e-06, 4e10  # cluster_k: all blocks there, and bytes a second of sums that a block reads
COPY_START, COPY = 2.52e-06, 2.75e12  # of operands that are copied first: a launch more, and bytes a second
PER_STEP = 2.74e-10
TURNED = 1.49  # how much longer a step takes with the problem turned
PER_NEIGHBOUR = 2.41e-08  # a step waits for the slowest block of its cluster
RATE_FLOOR, RATE_COLUMNS, RATE_ROWS = 0.341, 193, 0.892  # of narrow and of short multiplies
PINGPONG_TURN = 0.00728  # of the turn that ping-pong still feels
# skinny: registers beside the loads, the part of a last round that is lost, the bandwidth of one lonely load, bytes
# in flight that fill it, and what a warp's start and a turn of its loop cost.
SKINNY_REGISTERS, SKINNY_TAIL, SKINNY_LEAST, SKINNY_FLIGHT = 37.4, 0.86, 0.022, 1.02e07
SKINNY_WARP, SKINNY_TURN, SKINNY_REREAD = 4.52e-07, 2.01e-09, 1.13e16
# multistage: a second, of one multiprocessor: multiplications of mma.sync at two bytes, bytes through shared memory,
# copies; what a block alone reaches of it, and what a step costs in any case.
MMA_MACS, SHARED, COPIES, ALONE, STAGE_TURN = 1.92e12, 2.26e11, 9.28e10, 0.878, 1.5e-07
# Exact fp32: instructions a second that the warps of a multiprocessor issue, those of a step beside its multiply-adds
# and loads, of a copy of 16 bytes and of one of four, of 16 bytes that are turned; what four warps alone take.
ISSUE, PER_PLAIN_STEP, PER_PIECE, PER_SINGLE, PER_TURNED, FEW_WARPS = 6.6e09, 40, 4, 6, 7, 1.2
PLAIN_FILL, PLAIN_LEAVE = 3e-06, 1.5e-11  # until the first stage is there; of a result
UNFITTED = 1.36  # multistage: what it takes beyond all that
LOOPS_MACS = 8.66e12  # a second, of the whole GPU
LOOPS_TURN = 1.98e-06  # a turn of its loop, however small


def _up(x: int, y: int) -> int:
    return -(-x // y)


def _rate(rows: int, columns: int) -> float:
    """The share of the peak a warpgroup's multiply reaches: narrow ones wait for shared memory."""
    return min(1.0, RATE_FLOOR + columns / RATE_COLUMNS) * (1.0 if rows >= 128 else RATE_ROWS)


def seconds(spec: KernelSpec, problem: GemmProblem) -> float:
    schedule: NvidiaSchedule = spec.schedule
    units = all_archs()[spec.arch].compute_units
    floor = START + problem.bytes / MEMORY
    if 0 in (problem.m, problem.n, problem.batch):
        return floor  # there is nothing to do, and no count of tiles to divide by
    if isinstance(schedule, TmaWsSchedule):
        return max(floor, START + _tma_ws(schedule, problem, units))
    if isinstance(schedule, MultistageSchedule):
        plain = spec.signature.dtype_a == "fp32"
        return max(floor, START + (_plain if plain else _multistage)(spec, problem))
    if isinstance(schedule, SkinnySchedule):
        return START + _skinny(schedule, problem, units)
    tiles = _up(problem.m, schedule.tile[0]) * _up(problem.n, schedule.tile[1]) * problem.batch
    turns = _up(tiles, units * 4) * _up(problem.k, schedule.tile[2])
    work = problem.m * problem.n * problem.k * problem.batch / LOOPS_MACS
    return max(floor, START + max(work, turns * LOOPS_TURN))


def _tma_ws(schedule: TmaWsSchedule, problem: GemmProblem, units: int) -> float:
    view = tma_view(schedule)
    m, n, along_m, along_n, k = view.rows, view.columns, view.cluster_rows, view.cluster_columns, schedule.tile[2]
    lines_m, lines_n = (problem.n, problem.m) if view.turned else (problem.m, problem.n)
    size = DTYPES[problem.dtype_a].bytes
    pingpong = schedule.grouping == "pingpong"
    stream, split = schedule.dealing == "stream_k", schedule.dealing == "split_k"
    shared = schedule.cluster[0] * schedule.cluster[1] if schedule.dealing == "cluster_k" else 1
    clusters = _clusters(units, along_m * along_n * shared)
    tiles = _up(lines_m, m * along_m) * _up(lines_n, n * along_n) * problem.batch
    steps = _up(problem.k, k)
    parts = _parts(tiles, steps, clusters) if split else 1
    busy = min(clusters, tiles * steps // 4 if stream else tiles * parts) or 1
    blocks = busy * along_m * along_n * shared

    multiply = m * n * k * size / 2 / (MACS * _rate(m if pingpong else m // 2, n))
    fetched = 128 * (m / along_n + n / along_m)  # by one block; its neighbours fetch the rest
    # What all blocks read from memory, spread over the steps of the whole run.
    once = (problem.bytes - problem.m * problem.n * DTYPES[problem.dtype_c].bytes * problem.batch) / MEMORY
    # What neighbours fetch for a block spares the cache, not the block: all of it comes in.
    step = (
        max(multiply, fetched * blocks / CACHE, 128 * (m + n) / ONE_CACHE)
        + PER_STEP
        + PER_NEIGHBOUR * (along_m * along_n - 1)
    ) * (TURNED if view.turned else 1.0)
    leave = LEAVE * (m * n) / (128 * 256)

    if stream:
        streamed = tiles % clusters
        if streamed and streamed * 2 < clusters and tiles > clusters:
            streamed += clusters
        share = max(4, _up(streamed * steps, clusters)) if streamed else 0
        hand = HAND_OVER + leave * 1.5 if share % steps else 0.0
        more = max(0, _up(steps, share) - 1) * leave * 0.7 if 0 < share < steps else 0.0
        all_steps = share + (tiles - streamed) // clusters * steps
        rounds = all_steps / steps
        body = (
            max(all_steps * step, once)
            + max(0.0, rounds - 1) * (PINGPONG_TURN if pingpong else 1.0) * (TURN + leave * 0.5)
            + hand
            + more
        )
    elif shared > 1:  # each cluster makes one tile and ends
        rounds = _up(tiles, clusters)
        exchange = EXCHANGE + 4.0 * m * n * (shared - 1) / shared / NEIGHBOUR
        body = max(rounds * _up(steps, shared) * step, once) + rounds * (exchange + leave) + (rounds - 1) * FILL
    elif parts > 1:
        body = max(_up(steps, parts) * step, once) + MEET + 8.0 * m * n * blocks / SUMS
    else:
        rounds = _up(tiles, clusters)
        body = max(rounds * steps * step, once) + (rounds - 1) * (PINGPONG_TURN if pingpong else 1.0) * (
            TURN + leave * 0.5
        )
    return FILL + body + leave + _copies(problem)


def _clusters(units: int, blocks: int) -> int:
    """Clusters that run at a time: multiprocessors lie in groups of 16 and 18, so larger clusters leave some idle."""
    return units // blocks if blocks <= 2 else max(1, units * 10 // (11 * blocks))


def _parts(tiles: int, steps: int, clusters: int) -> int:
    """As the host's half of a split_k kernel (`Dealing` in cuda/deal.h) decides."""
    wanted = clusters // tiles if tiles < clusters else 1
    if wanted > steps // 4:
        wanted = 1 if steps < 8 else steps // 4
    return _up(steps, _up(steps, wanted))


def _copies(problem: GemmProblem) -> float:
    """Operands the copy engine cannot read are copied first; those wgmma reads along k only are turned by that."""
    again = 0.0
    a = (problem.a_stride, problem.m, problem.dtype_a, problem.layout[0] == "r")
    b = (problem.b_stride, problem.n, problem.dtype_b, problem.layout[1] == "c")
    for stride, lines, dtype, along_k in (a,) if problem.preshuffled else (a, b):
        size = DTYPES[dtype].bytes
        if stride * size % 16 or not problem.aligned or (size != 2 and not along_k):
            again += 2.0 * lines * problem.k * problem.batch * size
    return COPY_START + again / COPY if again else 0.0


def _multistage(spec: KernelSpec, problem: GemmProblem) -> float:
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
    macs = MMA_MACS * {"int8": 2.0, "tf32": 0.5}.get(problem.dtype_a, 1.0)
    multiply = m * n * k / (macs * (1.0 if along_m * along_n * together > 4 else ALONE))
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
    busy = min(blocks, arch.compute_units * held)
    multiply += issued / COPIES
    step = max(multiply, through / SHARED, fetched / ONE_CACHE, fetched * busy / CACHE / together)
    turn = max(step * together, STAGE_TURN)
    rounds = _up(blocks, arch.compute_units * together)
    leave = LEAVE * (m * n) / (128 * 256) * together
    meet = (MEET + parts * m * n * 8 * tiles / SUMS) if parts > 1 else 0.0
    return (FILL + rounds * (_up(steps, parts) * turn + leave) + meet) * UNFITTED


def _plain(spec: KernelSpec, problem: GemmProblem) -> float:
    """Exact fp32: what is issued counts, multiply-adds and the rest alike."""
    schedule: MultistageSchedule = spec.schedule
    (m, n, k), (along_m, along_n, _) = schedule.tile, schedule.warp_grid
    units = all_archs()[spec.arch].compute_units
    threads, sums = 32 * along_m * along_n, m * n // (32 * along_m * along_n)
    issued: float = k * (sums + m // along_m // 16 + n // along_n // 32) + PER_PLAIN_STEP
    for lines, vector, along_k in (
        (m, schedule.vector[0], problem.layout[0] == "r"),
        (n, schedule.vector[1], problem.layout[1] == "c"),
    ):
        if along_k:
            each = PER_TURNED / 4 if vector == 4 else PER_SINGLE
        else:
            each = PER_PIECE / vector if vector > 1 else PER_SINGLE
        issued += lines * k / threads * each
    step = issued * along_m * along_n / ISSUE
    tiles, steps = _up(problem.m, m) * _up(problem.n, n) * problem.batch, max(1, _up(problem.k, k))
    held = multistage.plain_together(sums, threads)
    parts = _balanced(tiles, steps, units, units * held, (m, n, k)) if schedule.dealing == "split_k" else 1
    high = _up(tiles * parts, units)
    # Blocks beyond those held at a time start anew.
    fills = PLAIN_FILL * _up(high, held) + PLAIN_LEAVE * m * n * high
    meet = MEET + 8.0 * m * n * tiles * parts / SUMS if parts > 1 else 0.0
    busy = high if high * along_m * along_n > 4 else FEW_WARPS
    return fills + _up(steps, parts) * step * busy + meet


def _balanced(tiles: int, steps: int, units: int, room: int, tile: tuple[int, int, int]) -> int:
    """As `Dealing::balanced` in cuda/deal.h."""
    m, n, k = tile
    best, least = 1, float("inf")
    for parts in range(1, 17):
        if parts > 1 and (tiles * parts > room or parts * 4 > steps):
            break
        high = _up(tiles * parts, units)
        seconds = _up(steps, parts) * (m * n * k / 1.7e11) * (high if high > 1 else 1.2)
        if parts > 1:
            seconds += 3e-6 + tiles * parts * m * n * 8 / 2.5e12
        if seconds < least:
            best, least = parts, seconds
    return _up(steps, _up(steps, best))


def _skinny(schedule: SkinnySchedule, problem: GemmProblem, units: int) -> float:
    columns = schedule.few == "columns"
    many = problem.m if columns else problem.n
    few, lines = (schedule.tile[1], schedule.tile[0]) if columns else schedule.tile[:2]
    warps = schedule.warp_grid[2]
    blocks = _up(many, lines) * problem.batch
    # Two turns of 64 k for each row of both tiles wait in the registers of a warp.
    registers = SKINNY_REGISTERS + 2 * (lines + few)
    held = max(1, min(2048 // (32 * warps), int(65536 / (registers * 32 * warps))))
    rounds = max(1.0, blocks / (units * held))
    idle = 1 + (_up(blocks, units * held) - rounds) * SKINNY_TAIL / rounds
    flight = min(blocks, units * held) * warps * lines * 256
    speed = MEMORY * min(1.0, SKINNY_LEAST + flight / SKINNY_FLIGHT)
    turns = _up(_up(problem.k, 64), warps)
    shared = _up(problem.k, 64) * few * 128 * blocks / SKINNY_REREAD  # every block reads the few rows again
    return problem.bytes / speed * idle + SKINNY_WARP * warps + SKINNY_TURN * turns + shared
