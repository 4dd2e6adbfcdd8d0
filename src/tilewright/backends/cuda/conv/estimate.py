"""How long a convolution takes on an NVIDIA GPU, about: enough to order kernels that nobody measured.

tma_ws: the matrix product that it is, as gemm_estimate.py says, with the convolution's own bytes, or the walk over its
pixels, which come one by one; folded, padded: of the larger convolution, and the copies that make it.  Bands: what they
multiply, padding included, and the pixels of their walks.  pointwise: what gemm_estimate.py says.  depthwise: the
slower of memory and multiply-adds, of which strips that reach over the edge do some in vain.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from tilewright.arch import fitted
from tilewright.arch.rates import (
    ComputeUnits,
    Cycles,
    Fma,
    Launch,
    Memory,
    UnitCache,
    UnitMemory,
    Units,
    UnitWgmma,
)
from tilewright.backends.cuda.conv import (
    estimate_gather as conv_estimate_gather,
)
from tilewright.backends.cuda.conv import (
    estimate_pointwise as conv_pointwise,
)
from tilewright.backends.cuda.conv.bands import band_kinds, band_rows, side_by_side
from tilewright.backends.cuda.conv.copies import folded, folded_elements, padded, padded_elements, without_copies
from tilewright.backends.cuda.conv.depthwise import mma_tiles
from tilewright.backends.cuda.conv.first import laid
from tilewright.backends.cuda.conv.gather_schedules import GatherSchedule
from tilewright.backends.cuda.conv.places import merged_groups, odd_columns, ragged
from tilewright.backends.cuda.conv.resources import IN_COPIES
from tilewright.backends.cuda.conv.schedules import (
    BandSchedule,
    BandWeightSchedule,
    ConvTmaWsSchedule,
    DepthwiseMmaSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
    FirstWeightSchedule,
)
from tilewright.backends.cuda.gemm import estimate as gemm_estimate
from tilewright.backends.cuda.gemm.schedules import TmaWsSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.gemm.problem import GemmProblem

# How A and B of the matrix product lie that a direction is (cuda/conv/tma_ws/shape.h).
LAYOUTS = {"forward": "rcr", "backward_data": "rrr", "backward_weight": "crr"}
BAND_BESIDE = 0.1  # of what is hidden behind the longest of walk, product and bytes
TWO_STAGES = 1.25  # how much longer gradients of weights by bands take where only one stage comes meanwhile
SLICED = 0.8  # slices of merged groups take at least so much of all columns
ODD_PIXEL = 1.3  # how much longer a pixel takes that is no whole 32 bytes
SHORT_WALK = 1.2  # and where tiles have few
BESIDE = 0.3  # of what is hidden behind the longer of walk and product
AHEAD = 0.85  # of a matrix product of GEMM: pixels that taps share are near
STREAMED = 1.15  # gradients of weights whose steps are dealt out evenly: walks begin anywhere
STRIPS = 0.7  # of memory's rate, that strips of pixels reach: each thread waits for its own
TILE_BESIDE = 0.3  # of what is hidden behind the longer of multiplications and memory
TAP = 3.0  # how much longer a multiply-add takes where nothing slides
ROLLED = 0.8  # and how much of it where a row is read once
ONE_CHANNEL = 2.0  # how much longer where a thread has no vector of channels
ONE_WEIGHT = 3.5  # and of gradients of weights
FILLED_UP = 600  # rows of weights that are worth a copy (conv/tma_ws/host.h)


class Constants(NamedTuple):
    """What depends on the device: `conv` of the fits in the arch table."""

    units: ComputeUnits
    start: Launch
    loop_rate: Fma  # products of the loops a second, where there are elements enough for all threads
    loop_step: Cycles  # a product, one after another on one thread
    band_macs: UnitWgmma  # a second, of one multiprocessor
    band_weight_macs: UnitWgmma
    one_cache: UnitCache  # bytes a second into one of them, all at once
    first_cycle: Cycles  # of first layers: as their host counts them
    first_fill: Launch
    band_fill: Launch
    band_tile: Cycles
    diagonal: Cycles  # to ask for the weights of one of merged groups
    pixel: tuple[Cycles, ...]  # a pixel of a walk, of images of one, two and three dimensions
    band_pixel: tuple[Cycles, ...]
    band_row: Cycles  # a row of weights that does not stay
    few_taps: Cycles  # a band of strides is soon read, and the next not there: with two stages
    few_taps_of_three: Cycles  # and with three
    memory: Memory  # bytes a second
    through: Memory  # of them, where about as many are written as read, and the cache is full of others'
    fmas: Fma  # multiply-adds a second beside the loads and conversions they need
    tile_fmas: Fma  # of windows over tiles
    mma_bytes: UnitMemory  # a second into one multiprocessor, of tiles that matrix instructions read
    enough: Units  # threads that keep all multiprocessors busy
    turned: Memory  # bytes a second of a copy that turns pixels and channels, read and written
    add_start: Launch  # of a second launch
    sums: Memory  # bytes a second of sums of parts that leave and are added by a kernel of few threads
    short_row: Cycles  # a row of weights that ends before its 128 bytes do, where no copy fills it up


@lru_cache(maxsize=64)
def constants(arch: str) -> Constants:
    return fitted("conv", Constants, arch)


def seconds(spec: KernelSpec, problem: ConvProblem) -> float:
    c = constants(spec.arch)
    if not problem.batch:
        return c.start  # nothing to walk over: kernels for other shapes take it too
    if spec.schedule.pipeline in IN_COPIES:
        return _padded(spec, problem)
    if isinstance(spec.schedule, ConvTmaWsSchedule):
        if spec.schedule.pipeline == "folded":
            return _folded(spec, spec.schedule, problem)
        return _tma_ws(spec, spec.schedule, problem)
    if isinstance(spec.schedule, BandSchedule):
        return _band(c, spec.schedule, problem)
    if isinstance(spec.schedule, BandWeightSchedule):
        return _band_weight(c, spec.schedule, problem)
    if isinstance(spec.schedule, FirstWeightSchedule):
        return _first_weight(c, spec.schedule, problem)
    if isinstance(spec.schedule, DepthwiseTileSchedule):
        return _depthwise_tile(c, spec.schedule, problem)
    if isinstance(spec.schedule, DepthwiseMmaSchedule):
        return _depthwise_mma(c, spec.schedule, problem)
    if isinstance(spec.schedule, DepthwiseSchedule):
        return _depthwise(c, spec.schedule, problem)
    if spec.schedule.pipeline in conv_pointwise.PIPELINES:
        ahead = AHEAD if problem.variant == "forward" and not spec.schedule.planes else 1.0
        return conv_pointwise.seconds(spec, problem, c.start, ahead)
    if isinstance(spec.schedule, GatherSchedule):
        return conv_estimate_gather.seconds(spec, spec.schedule, problem)
    return c.start + max(problem.flops / 2 / c.loop_rate, problem.gemm[2] * c.loop_step)


def _depthwise(c: Constants, schedule: DepthwiseSchedule, p: ConvProblem) -> float:
    """Strips reach over edges, rows are read again, and threads must be enough."""
    sizes, window, step = (p.size if p.variant == "backward_data" else p.out), schedule.window, schedule.step
    idle = _whole(sizes[-1], schedule.pixels) / sizes[-1]
    if not window:
        each = TAP
    elif schedule.rows:
        idle *= _whole(sizes[-2] if len(sizes) > 1 else 1, schedule.rows) / (sizes[-2] if len(sizes) > 1 else 1)
        each = ROLLED * (1.0 + (window - 1) / schedule.rows * 0.5)
    else:
        each = 1.0 + ((schedule.pixels - 1) * step + window) / schedule.pixels / window
    bands = -(-sizes[-2] // schedule.rows) if schedule.rows and len(sizes) > 1 else prod(sizes[-2:-1])
    threads = p.batch * prod(sizes[:-2]) * bands * -(-sizes[-1] // schedule.pixels) * (p.channels // schedule.vector)
    idle *= max(1.0, c.enough / max(1, threads))
    return (
        c.start
        + max(p.flops / 2 * idle * each / c.fmas, p.bytes / (STRIPS * c.through))
        * (1 if schedule.vector > 1 else ONE_WEIGHT if p.variant == "backward_weight" else ONE_CHANNEL)
        + c.add_start * (p.variant == "backward_weight")
    )


def _depthwise_tile(c: Constants, schedule: DepthwiseTileSchedule, p: ConvProblem) -> float:
    """Units reach over edges, and so do tiles' channels."""
    data = p.variant == "backward_data"
    sizes, up = p.size if data else p.out, schedule.step if data else 1
    idle = _whole(sizes[-1], schedule.pixels * up) / sizes[-1] * _whole(sizes[-2], schedule.lines * up) / sizes[-2]
    idle *= _whole(p.channels, schedule.channels) / p.channels
    parts = max(1, c.units // -(-p.channels // schedule.channels))
    sums = c.add_start + 8.0 * parts * prod(p.w_shape) / c.sums if p.variant == "backward_weight" else 0.0
    again = 1.0 + 0.05 * (schedule.channels == 32)  # each pixel is asked for in more pieces
    moved = p.bytes / c.through * again
    multiply = p.flops / 2 * idle / c.tile_fmas
    return c.start + max(multiply, moved) + TILE_BESIDE * min(multiply, moved) + sums


def _depthwise_mma(c: Constants, schedule: DepthwiseMmaSchedule, p: ConvProblem) -> float:
    """Whole rows of images, in tiles that overlap by the rows of the window; products hide behind their reads."""
    tiles = mma_tiles(schedule, p, c.units)
    assert tiles is not None, "a problem that the kernel does not take"
    blocks = -(-p.channels // 32) * (p.window[0] if len(p.window) == 3 else 1)
    rounds = -(-blocks * tiles.parts // c.units) * -(-tiles.tiles // tiles.parts)
    sums = 8.0 * tiles.parts * prod(p.w_shape) / c.sums
    return c.start + max(rounds * tiles.nbytes / c.mma_bytes, p.bytes / c.through) + c.add_start + sums


def _whole(x: int, y: int) -> int:
    return -(-x // y) * y


def _band(c: Constants, schedule: BandSchedule, p: ConvProblem) -> float:
    """Multiplications of pixels and padding, and the bands and taps that come in for them."""
    merged, taps = max(1, merged_groups(p, schedule)), prod(p.window)
    data = p.variant == "backward_data"
    deep, columns = p.group_channels * merged, p.group_filters * merged
    if data:
        deep, columns = columns, deep
    sizes = p.size if data else p.out
    grid = [size + (w - 1) * d // s for size, w, d, s in zip(sizes, p.window, p.dilation, p.stride, strict=True)]
    if len(grid) == 3:
        grid[0] = sizes[0]
    m, n, blocks = schedule.tile[0], schedule.tile[1], -(-deep // 64)
    tiles = -(-p.batch * prod(grid) // m) * -(-columns // n) * (p.groups // merged)
    rounds = -(-tiles // c.units)
    sliced = max(SLICED, schedule.slice / n) if schedule.slice else 1.0  # pixels are read whole for each slice
    multiply = m * n * schedule.tile[2] * taps * blocks / c.band_macs * sliced
    planes = band_kinds(p)
    resident = taps * blocks <= schedule.taps and tiles // max(1, -(-p.batch * prod(grid) // m)) <= c.units
    diagonal = merged > 1 and blocks == 1 and not (p.group_channels % 8 or p.group_filters % 8)
    pixel = 2.0 * max(32, min(64, deep)) * blocks  # and a row of weights: bytes
    fetched = pixel * (planes * (m + band_rows(p)) + (0 if resident else taps * n)) / c.one_cache
    walk = planes * blocks * (m + band_rows(p)) * c.band_pixel[len(grid) - 1]
    if merged == 1 and not resident:
        walk += taps * blocks * n * c.band_row
    if diagonal and not resident:
        walk += taps * merged * c.diagonal
    short, again = _short_rows(c, p, schedule, taps * blocks * n * (1 if resident else rounds))
    walk += short / rounds
    again += c.add_start if merged > 1 and not diagonal else 0.0
    longest = max(multiply, fetched, walk)
    step = longest + BAND_BESIDE * (multiply + fetched + walk - longest) + c.band_tile
    if max(p.stride[-2:]) > 1:
        step += planes * blocks * (c.few_taps if schedule.stages == 2 else c.few_taps_of_three)
    return c.start + c.band_fill + max(rounds * step, p.bytes / c.through) + again


def _short_rows(
    c: Constants, p: ConvProblem, schedule: BandSchedule | ConvTmaWsSchedule, rows: float
) -> tuple[float, float]:
    """Seconds that rows of weights cost which end before their 128 bytes do, or the copy that fills them up."""
    if schedule.merged or p.group_channels % 64 == 0:
        return 0.0, 0.0
    return (0.0, c.add_start) if rows >= FILLED_UP else (rows * c.short_row, 0.0)


def _band_weight(c: Constants, schedule: BandWeightSchedule, p: ConvProblem) -> float:
    """Nine taps are multiplied, however many there are; sums of parts leave and are added."""
    merged = max(1, side_by_side(p))
    blocks = -(-merged * p.group_filters // 64) * -(-merged * p.group_channels // 64) * (p.groups // merged)
    items = blocks * (p.window[0] if len(p.window) == 3 else 1)
    grid = [size + (w - 1) * d for size, w, d in zip(p.out, p.window, p.dilation, strict=True)]
    if len(grid) == 3:
        grid[0] = p.out[0]
    chunks = -(-p.batch * prod(grid) // schedule.pixels)
    parts = max(1, min(c.units // items, chunks))
    rounds = -(-items * parts // c.units) * -(-chunks // parts)
    multiply = 64 * 64 * 9 * schedule.pixels / c.band_weight_macs
    walk = (2 * schedule.pixels + band_rows(p)) * c.band_pixel[len(grid) - 1]
    sums = 8.0 * parts * prod(p.w_shape)
    few = TWO_STAGES if schedule.stages == 2 else 1.0  # a stage comes while one is multiplied, and no other
    body = rounds * (max(multiply, walk) * few + c.band_tile)
    return c.start + c.band_fill + max(body, p.bytes / c.memory) + c.add_start + sums / c.memory


def _first_weight(c: Constants, schedule: FirstWeightSchedule, p: ConvProblem) -> float:
    """What the host counts on when it cuts images into stages."""
    stage = laid(schedule, p, c.units)
    assert stage is not None, "a problem that the kernel does not take"
    sums = 8.0 * stage.parts * prod(p.w_shape)
    return (
        c.start + max(stage.cycles * c.first_cycle, p.bytes / c.memory) + c.first_fill + c.add_start + sums / c.memory
    )


def _padded(spec: KernelSpec, p: ConvProblem) -> float:
    """Copies, and the convolution of them."""
    c = constants(spec.arch)
    larger, copied = padded(p, spec.schedule), padded_elements(p, spec.schedule)
    moved = 0.0
    for one, elements in copied.items():
        apart = getattr(p, f"{one}_strides")[-1] != 1
        moved += 2.0 * DTYPES[p.dtype].bytes * elements / (c.turned if apart else c.memory)
    if "y" in copied and p.full_d:
        moved += 2.0 * DTYPES[p.dtype_d].bytes * p.full_d * copied["y"] / c.turned
    inner = KernelSpec(spec.op, larger.signature, without_copies(spec.schedule), spec.arch)
    return seconds(inner, larger) + c.add_start * len(copied) + moved


def _folded(spec: KernelSpec, schedule: ConvTmaWsSchedule, p: ConvProblem) -> float:
    """Copies, and the convolution of many channels."""
    c = constants(spec.arch)
    inner = folded(p)
    copied = 2.0 * sum(folded_elements(p)) + p.bytes
    twin = KernelSpec(spec.op, inner.signature, schedule, spec.arch)
    return _tma_ws(twin, schedule, inner) + 2 * c.add_start + copied / c.memory


def _tma_ws(spec: KernelSpec, schedule: ConvTmaWsSchedule, p: ConvProblem) -> float:
    c = constants(spec.arch)
    merged = max(1, merged_groups(p, schedule))
    channels, filters, taps = p.group_channels * merged, p.group_filters * merged, prod(p.window)
    weight = p.variant == "backward_weight"
    groups, deep = p.groups // merged, schedule.tile[2]
    pixels = p.batch * prod(p.out)
    if p.variant == "forward":
        m, n, k = pixels, filters, taps * _whole(channels, deep)
    elif p.variant == "backward_data":  # classes of pixels share the taps
        classes = prod(min(one, size) for one, size in zip(p.stride, p.size, strict=True))
        m, n, k = p.batch * prod(p.size) // classes, channels, _whole(taps * _whole(filters, deep) // classes, deep)
        groups *= classes
    else:
        m, n, k = filters, taps * _whole(channels, 64), pixels
    product = _product(p, max(1, m), n, max(1, k), groups)
    store = "tma" if schedule.by_rows(spec.signature) else schedule.store
    twin = TmaWsSchedule(
        schedule.tile, schedule.stages, schedule.cluster, schedule.grouping, False, schedule.dealing, store
    )
    counted = gemm_estimate.facts(KernelSpec("gemm", product.signature, twin, spec.arch), product)
    assert isinstance(counted, gemm_estimate.TmaFacts)
    # The copy engine delivers pixel by pixel, whatever they hold.
    walked = schedule.tile[1] / schedule.cluster[0] if weight else schedule.tile[0] / schedule.cluster[1]
    pixel = c.pixel[len(p.size) - 1] * (SHORT_WALK if schedule.tile[0] < 256 else 1.0)
    if (p.filters if p.variant == "backward_data" else p.channels) % 16:
        pixel *= ODD_PIXEL
    short, filled = (0.0, 0.0) if weight else _short_rows(c, p, schedule, counted.steps * schedule.tile[1])
    walk = c.start + c.band_fill + counted.steps * walked * pixel + short
    again = float(p.filters * taps * channels * DTYPES[p.dtype].bytes)
    apart = merged > 1 or (weight and odd_columns(p) and not ragged(p))
    copied = 2 * again if apart else 0.0
    product_time = gemm_estimate.seconds_of(
        counted._replace(moved=_moved(p), copies=float(apart), copied=copied), gemm_estimate.constants(spec.arch)
    )
    if p.variant == "forward":
        product_time = c.start + AHEAD * (product_time - c.start)
    streamed = STREAMED if weight and schedule.dealing == "stream_k" else 1.0
    longer, shorter = max(product_time, walk), min(product_time, walk)
    return (longer + BESIDE * (shorter - c.start)) * streamed + filled


def _moved(p: ConvProblem) -> float:
    """Bytes: of x only the pixels that some tap meets, where it is read."""
    if p.variant == "backward_data":
        return float(p.bytes)
    met = prod(min(1.0, w / s) for w, s in zip(p.window, p.stride, strict=True))
    return p.bytes - (1.0 - met) * prod(p.x_shape) * DTYPES[p.dtype].bytes


def _product(p: ConvProblem, m: int, n: int, k: int, batch: int) -> GemmProblem:
    return GemmProblem(
        m=m,
        n=n,
        k=k,
        batch=batch,
        dtype_a=p.dtype,
        dtype_b=p.dtype,
        dtype_c=p.dtype_out,
        dtype_d=p.dtype_d,
        layout=LAYOUTS[p.variant],
        epilogue=p.epilogue,
        num_d=p.num_d,
        a_stride=_whole(m if p.variant == "backward_weight" else k, 64),
        b_stride=_whole(k if p.variant == "forward" else n, 64),
    )
