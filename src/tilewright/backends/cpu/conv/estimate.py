"""How long a convolution takes on the CPU, about: enough to order kernels that nobody measured.

The model counts cycles of the busiest thread: vector multiply-adds with their rounding up to whole register blocks,
words packed, pointers made, sums saved between blocks of k, and what waking a team costs.  The constants were fitted to
single-thread runs on an AVX-512 server core that starts one such multiply-add a cycle; only their proportions matter.
"""

from __future__ import annotations

from math import gcd, prod

from tilewright.arch import all_archs
from tilewright.backends.cpu.conv.schedules import (
    CpuDirectWeightSchedule,
    CpuImplicitSchedule,
    CpuLanesSchedule,
    CpuOuterSchedule,
    CpuPlanarSchedule,
    CpuSchedule,
    CpuWinogradSchedule,
)
from tilewright.backends.cpu.conv.space import turned
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import LoopsSchedule

CYCLES_PER_SECOND = 3.7e9
CALL = 1500.0  # cycles of any call
WAKE = 3500.0  # more when a team is woken
MEMORY = 6.0  # bytes a cycle one core gets from memory
LOOP = 6.0  # cycles of a product in plain loops
TURN, COPY = 0.5, 0.3  # a weight packed across its lines, or along them; a word of an operand copied
POINT = 4.0  # a pointer to a pixel
BLOCK = 60.0  # a call of a register block
LEAVE = 25.0  # a row of results through a scratch block
SAVE = 2.0  # a vector of sums saved and loaded
STRIP = 128 << 10  # bytes of a strip that takes twice as long as one in the first-level cache
SPREAD = 2.5  # a vector of a strip
SMALL = 1 << 19  # multiply-adds below which a thread is not woken
FAR = 1 << 18  # words beyond which packed weights come from memory
FAR_RESULTS = 4 << 20  # bytes of results that leave every cache
NARROW = 16.0  # a row of fewer than four vectors written there
TORN = 14.0  # a vector of results there that is no whole line
LINE = 60.0  # a line of a vector of channels turned into planes, whatever its length
TOGETHER = 48  # channels of groups that are done together
TURNED = 0.55  # cycles an element whose channels lie apart
FEW = 16  # channels below which a row of the window is one


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def seconds(spec: KernelSpec, problem: ConvProblem, threads: int) -> float:
    schedule: CpuSchedule = spec.schedule
    macs = problem.flops // 2
    if isinstance(schedule, LoopsSchedule):
        return (CALL + LOOP * macs / max(1, threads)) / CYCLES_PER_SECOND
    team = max(1, min(threads, macs // SMALL + 1))
    width = all_archs()[spec.arch].vector_bytes // 4
    if isinstance(schedule, CpuImplicitSchedule):
        cycles = _implicit(schedule, problem, team, width)
    elif isinstance(schedule, CpuWinogradSchedule):
        cycles = _winograd(schedule, problem, team, width)
    elif isinstance(schedule, CpuOuterSchedule):
        cycles = _outer(schedule, problem, team, width)
    elif isinstance(schedule, CpuPlanarSchedule):
        cycles = _planar(schedule, problem, width) / team
    elif isinstance(schedule, CpuDirectWeightSchedule):
        cycles = _direct_weight(schedule, problem, width) / team
    elif schedule.pipeline == "lanes":
        cycles = _lanes(schedule, problem, width) / team
    else:
        cycles = _lanes_weight(schedule, problem, width) / team
    cycles += 0.6 * problem.bytes / (MEMORY * team)  # part of it hides behind the products
    cycles += TURNED * _turned(schedule, problem) / team
    return (CALL + (WAKE if team > 1 else 0.0) + cycles) / CYCLES_PER_SECOND


def _turned(schedule: CpuSchedule, problem: ConvProblem) -> int:
    """Elements that a kernel turns because their channels lie apart."""
    return sum(prod(getattr(problem, f"{one}_shape")) for one in turned(schedule, problem))


def _gathering(problem: ConvProblem) -> tuple[int, int, int]:
    """Channels of a group summed over, channels that come out, and positions of the result that count."""
    p = problem
    if p.variant == "backward_data":  # a class of residues has its part of the taps: together as many as outputs
        return p.group_filters, p.group_channels, p.batch * prod(p.out)
    return p.group_channels, p.group_filters, p.batch * prod(p.out)


def _implicit(schedule: CpuImplicitSchedule, problem: ConvProblem, team: int, width: int) -> float:
    rows_block, columns_block, step = schedule.warp_tile
    depth, columns, positions = _gathering(problem)
    taps, bundle = prod(problem.window), 1
    if columns < columns_block:
        bundle = next(
            one for one in range(min(problem.groups, columns_block // columns), 0, -1) if problem.groups % one == 0
        )
    words = -(-depth * bundle // step)
    joined = depth < FEW and problem.groups == 1 and problem.variant == "forward" and step == 1
    panels = problem.groups // bundle * -(-columns * bundle // columns_block)
    half = max(1, rows_block // 2)
    best = float("inf")
    for across in {1, team}:
        rows = _up(-(-positions // (team // across)), half)
        here = -(-panels // across)
        blocks = rows / rows_block * here
        saves = max(1, -(-taps * words * step // schedule.tile[2]))
        vectors = columns_block // width
        cycles = blocks * taps * words * rows_block * vectors * (1.05 + 0.004 * rows_block)
        cycles += blocks * saves * (BLOCK + SAVE * rows_block * vectors)
        cycles += rows * (taps / (problem.window[-1] if joined else 1)) * POINT
        cycles += blocks * taps * 1.2 * rows_block
        if vectors < 4 and _far(problem):
            cycles += rows * here * NARROW
        best = min(best, cycles)
    # Results that lie apart, or do not fill a panel, leave through a scratch block, a row at a time.
    apart = problem.variant == "backward_data" and max(problem.stride) > 1
    if apart or columns * bundle % columns_block:
        rows = problem.batch * prod(problem.size if problem.variant == "backward_data" else problem.out)
        best += rows * (panels if apart else panels / max(1, columns // columns_block)) * LEAVE / team
    weights = panels * columns_block * taps * words
    packing = weights * (TURN if problem.variant == "forward" else COPY) * (1.0 if weights < FAR else 2.5)
    if problem.dtype != "fp32" and not (step == 2 and depth * bundle % 2 == 0):
        packing += COPY * prod(problem.x_shape if problem.variant == "forward" else problem.y_shape)
    elif _shared_sets(problem, rows_block):
        packing += 1.0 * prod(problem.x_shape if problem.variant == "forward" else problem.y_shape)
    return best + packing / team


def _far(problem: ConvProblem) -> bool:
    """Whether results leave every cache."""
    return 4 * prod(problem.x_shape if problem.variant == "backward_data" else problem.y_shape) >= FAR_RESULTS


def _shared_sets(problem: ConvProblem, rows: int) -> bool:
    """Whether pixels lie so that a kernel copies them apart; as in conv_words.h."""
    p = problem
    channels, step = (p.channels, p.stride[-1]) if p.variant == "forward" else (p.filters, 1)
    return rows > 8 * 4096 // gcd(channels * 4 * step, 4096) * 3 // 4


def _winograd(schedule: CpuWinogradSchedule, problem: ConvProblem, team: int, width: int) -> float:
    rows_block, columns_block, _ = schedule.warp_tile
    depth, columns, _ = _gathering(problem)
    p, results, points = problem, schedule.results, (schedule.results + 2) ** 2
    deep = p.window[0] if len(p.window) == 3 else 1
    made = p.size if p.variant == "backward_data" else p.out
    tiles = p.batch * prod(made[:-2])
    for size, dilation in zip(made[-2:], p.dilation[-2:], strict=True):
        each = -(-size // dilation)
        tiles *= dilation * -(-each // results)
    panels, vectors = -(-columns // columns_block), columns_block // width
    here, parts = -(-tiles // team), 1
    if here < 2 * rows_block and p.groups == 1:  # too few tiles: parts of the channels instead
        here, parts = tiles, min(team, panels)
    here = _up(here, max(1, rows_block // 2))
    blocks = here / rows_block * -(-panels // parts) * p.groups
    cycles = blocks * points * (deep * depth * rows_block * vectors * 1.05 + BLOCK + SAVE * rows_block)
    cycles += p.groups * here * deep * (-(-depth // width) * points * 6.0 + 400.0)
    cycles += p.groups * here * (-(-panels // parts)) * vectors * (points * 3.0 + results * results * 8.0)
    cycles += p.groups * here * 300.0
    weights = p.groups * panels * columns_block * deep * depth
    # Weights that fit no cache are read from memory for every block of tiles.
    reread = max(1.0, here / schedule.tile[0]) * weights * points * 4 / parts
    cycles += reread * (0.02 if weights * points * 4 < 1 << 20 else 0.08 if weights * points * 4 < 12 << 20 else 0.25)
    return cycles + weights * (9 * TURN + points * 0.35) / team


def _met(problem: ConvProblem, axis: int) -> float:
    """The part of an axis' taps that meet a pixel: what meets padding is not multiplied."""
    p, met = problem, 0
    size, stride, before, out = p.size[axis], p.stride[axis], p.before[axis], p.out[axis]
    for tap in range(p.window[axis]):
        first = tap * p.dilation[axis] - before  # the pixel of output 0
        met += max(0, min(out - 1, (size - 1 - first) // stride) - max(0, -(first // stride)) + 1)
    return met / (out * p.window[axis])


def _outer(schedule: CpuOuterSchedule, problem: ConvProblem, team: int, width: int) -> float:
    rows_block, columns_block, _ = schedule.warp_tile
    p, taps = problem, prod(problem.window)
    patches = p.group_channels < FEW and taps > 1
    columns, places = (taps * p.group_channels, 1) if patches else (p.group_channels, taps)
    filters = _up(p.group_filters, rows_block)
    wide, pixels = _up(columns, width), p.batch * prod(p.out)
    runs = (
        p.batch * prod(p.out[:-1]) / max(1, min(p.out[-2] if len(p.out) > 1 else 1, schedule.tile[2] // p.out[-1] or 1))
    )
    panels = -(-columns // columns_block)
    # A pixel of a block: its multiply-adds, and going on to the next.
    each = rows_block * wide / width * 1.15 + panels
    cycles = p.groups * filters / rows_block * places * pixels * each
    if not patches:
        cycles *= prod(_met(p, axis) for axis in range(len(p.size)))
    blocks = p.groups * (filters / rows_block) * panels * places * runs
    cycles += blocks * (BLOCK / 2 + SAVE * 1.5 * rows_block * columns_block / width)
    tiles_n = max(1, -(-columns // schedule.tile[1]))
    tiles_m = max(1, -(-p.group_filters // schedule.tile[0]))
    packed = prod(p.out if prod(p.window[-2:]) == 1 else p.size)  # under one tap, the pixels that are met
    cycles += p.groups * tiles_m * (pixels * columns * 1.3 if patches else p.batch * packed * wide * 0.5)
    cycles += p.groups * tiles_n * pixels * filters * COPY
    items = p.groups * (filters // rows_block) * panels * schedule.split_k
    cycles /= min(team, items)
    if schedule.split_k > 1:
        cycles += WAKE + schedule.split_k * prod(p.w_shape) * 0.6 / team
    return cycles


def _planar(schedule: CpuPlanarSchedule, problem: ConvProblem, width: int) -> float:
    rows_block, columns_block, _ = schedule.warp_tile
    depth, columns, _ = _gathering(problem)
    p, taps = problem, prod(problem.window)
    pieces, vectors = -(-columns // rows_block), columns_block // width
    # A line's vectors run on into the next over what is read beside it.
    made = p.size if p.variant == "backward_data" else p.out
    classes = prod(p.stride) if p.variant == "backward_data" else 1
    lines, along = prod(made[:-1]), made[-1]
    wide = -(-along // p.stride[-1]) if p.variant == "backward_data" else along
    beside = (p.window[-1] - 1) * p.dilation[-1] // p.stride[-1]
    per_class = p.batch * p.groups * lines / (classes / (p.stride[-1] if p.variant == "backward_data" else 1))
    places = per_class * (wide + beside)
    # A step of a block: its multiply-adds, what it loads (twice where it lies across lines), and going on.
    step = max(columns * vectors, pieces * vectors * 2.0) + pieces * 1.5
    cycles = places / columns_block * taps * depth * step * 1.15
    cycles += classes * places / columns_block * pieces * (BLOCK + SAVE * min(rows_block, columns) * vectors)
    source = p.y_shape if p.variant == "backward_data" else p.x_shape
    deep = p.window[0] if len(p.window) == 3 else 1
    bundle = max(1, min(p.groups, TOGETHER // max(depth, columns)))
    bundles = -(-p.groups // bundle)
    turned = bundles * -(-depth * bundle // width) * prod(source[:-1]) * deep
    cycles += turned * (8.0 + LINE / source[-2]) * min(classes, taps)
    out = bundles * -(-columns * bundle // width) * p.batch * prod(made)
    torn = columns * p.groups % width > 0 and _far(p)  # lines of a cache are written in parts, and fetched for it
    cycles += out * ((5.0 if classes == 1 else 9.0) + (TORN if torn else 0.0)) + taps * depth * columns * p.groups * 1.2
    return cycles + (0.07 * p.bytes if p.bytes > FAR_RESULTS else 0.0)  # what is turned passes through caches once more


def _direct_weight(schedule: CpuDirectWeightSchedule, problem: ConvProblem, width: int) -> float:
    rows_block, columns_block, _ = schedule.warp_tile
    p, taps = problem, prod(problem.window)
    joined = p.window[-1] if p.dilation[-1] == 1 else 1
    entries = joined * p.group_channels
    chunks, rows = -(-entries // rows_block), taps // joined
    vectors = -(-p.group_filters // width)
    blocks = -(-p.group_filters // columns_block)
    items = p.groups * -(-p.group_filters // schedule.tile[0])
    pixels = p.batch * prod(p.out)
    # A pixel of a block: its multiply-adds, its vectors of gradients, and going on to the next.
    each = entries * vectors * 1.04 + chunks * (vectors * 1.75 + blocks * 2.0)
    cycles = p.groups * rows * pixels * each * prod(_met(p, axis) for axis in range(len(p.size) - 1))
    runs = pixels / min(p.out[-1] * (p.out[-2] if len(p.out) > 1 else 1), max(p.out[-1], schedule.tile[1]))
    cycles += p.groups * rows * runs * (blocks * chunks * BLOCK / 2 + 1.5 * SAVE * entries * vectors)
    cycles += p.groups * pixels * vectors * 2.0  # gradients packed
    dense = p.groups == 1
    lines = p.batch * prod(p.size) * (p.window[0] if len(p.window) == 3 else 1)
    cycles += items * lines * (p.group_channels / width + 0.1 if dense else -(-p.group_channels // width) + 2.0) * 2.0
    bands = min(16, max(1, 16 // items))
    return cycles + items * schedule.tile[0] * taps * p.group_channels * (0.4 + 0.15 * bands)


def _vectors(problem: ConvProblem, columns: int, width: int) -> int:
    return -(-columns * problem.groups // width)


def _crowded(problem: ConvProblem, depth: int) -> float:
    """How much longer a strip takes that leaves the first-level cache."""
    height = 1 << max(0, (problem.window[-2] - 1).bit_length()) if len(problem.window) > 1 else 1
    deep = problem.window[0] if len(problem.window) == 3 else 1
    return 1.0 + min(2.0, deep * height * depth * (problem.out[-1] + 8) * 64 / STRIP)


def _spread(depth: int, columns: int, width: int) -> float:
    """A pixel's channels laid out for one vector of results: a plain load, permutes of one, or of several."""
    if depth == columns == 1:
        return SPREAD
    reach = (-(-width // columns) + 1) * depth if columns < width else depth  # channels that lanes read from
    return depth * (SPREAD if reach <= width else -(-reach // width) * 1.5)


def _lanes(schedule: CpuLanesSchedule, problem: ConvProblem, width: int) -> float:
    depth, columns, _ = _gathering(problem)
    p, taps, block = problem, prod(problem.window), schedule.warp_tile[0]
    vectors, back = _vectors(p, columns, width), problem.variant == "backward_data"
    # With strides a gradient is a sum of classes: each has its part of the pixels and taps, and spreads anew.
    classes = prod(p.stride) if back else 1
    made = p.size if back else p.out
    apart = min(p.stride[-1], p.size[-1]) if back else 1
    lines = p.batch * prod(made[:-1]) * apart
    half = max(1, block // 2)
    line = _up(-(-made[-1] // apart), half)
    each = 1.2 if depth == 1 and classes == 1 and p.stride[-1] == 1 else 1.6
    cycles = (
        vectors * lines * (line * taps / classes * depth * each * _crowded(p, depth) + (line / block + 0.5) * BLOCK)
    )
    source = prod(p.y_shape[:-1]) if back else prod(p.x_shape[:-1])
    deep = p.window[0] if len(p.window) == 3 else 1
    cycles += vectors * source * deep * min(classes, taps) * _spread(depth, columns, width)
    return cycles + vectors * lines * 150.0


def _lanes_weight(schedule: CpuLanesSchedule, problem: ConvProblem, width: int) -> float:
    p, taps = problem, prod(problem.window) * problem.group_channels
    vectors, lines = _vectors(p, p.group_filters, width), p.batch * prod(p.out[:-1])
    calls = -(-taps // schedule.warp_tile[0])
    cycles = (
        vectors
        * lines
        * (
            p.out[-1] * (taps * 1.2 * _crowded(p, p.group_channels) + calls)
            + calls * (BLOCK + SAVE * schedule.warp_tile[0])
        )
    )
    deep = p.window[0] if len(p.window) == 3 else 1
    spread = prod(p.x_shape[:-1]) * deep * _spread(p.group_channels, p.group_filters, width)
    return (
        cycles
        + vectors * (spread + prod(p.y_shape[:-1]) * SPREAD)
        + vectors * lines * 150.0
        + vectors * taps * width * 3.0
    )
