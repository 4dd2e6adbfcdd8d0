"""How long a convolution takes on an NVIDIA GPU, about: enough to order kernels that nobody measured.

tma_ws: the matrix product that it is, as gemm_estimate.py says, with the convolution's own bytes, or the walk over its
pixels, which come one by one; folded, padded: of the larger convolution, and the copies that make it.  Bands: what they
multiply, padding included, and the pixels of their walks.  depthwise: the slower of memory and multiply-adds, of which
strips that reach over the edge do some in vain.
"""

from __future__ import annotations

from math import prod

from tilewright.backends.cuda import gemm_estimate
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.nvidia_bands import band_rows, side_by_side
from tilewright.ops.conv.nvidia_copies import folded, folded_elements, padded, padded_copies
from tilewright.ops.conv.nvidia_places import merged_groups
from tilewright.ops.conv.nvidia_schedules import (
    BandSchedule,
    BandWeightSchedule,
    ConvTmaWsSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
)
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.schedule import TmaWsSchedule

# How A and B of the matrix product lie that a direction is (cuda/conv_tma_ws_shape.h).
LAYOUTS = {"forward": "rcr", "backward_data": "rrr", "backward_weight": "crr"}
START = 4e-6
LOOP_RATE = 5e11  # products of the loops a second, where there are elements enough for all threads
LOOP_STEP = 2e-8  # a product, one after another on one thread


UNITS = 132
BAND_MACS = 3.0e12  # a second, of one multiprocessor
BAND_WEIGHT_MACS, TWO_STAGES = 2.5e12, 1.2
ONE_CACHE = 4.5e10  # bytes a second into one of them, all at once
BAND_FILL, COPY_START = 3e-6, 3e-6
PIXEL = 1.8e-9  # a pixel of a walk
SHORT_WALK = 1.2  # and so many times that where tiles have few
BESIDE = 0.3  # of what is hidden behind the longer of walk and product
BAND_TILE = 1e-7
STREAMED = 1.15  # gradients of weights whose steps are dealt out evenly: walks begin anywhere
MEMORY = 4e12  # bytes a second
FMAS = 1.6e13  # multiply-adds a second beside the loads and conversions they need
TILE_FMAS = 2.2e13  # of windows over tiles
STRIPS = 0.65  # of memory's rate, that strips of pixels reach: each thread waits for its own
TILE_BESIDE = 0.4  # of what is hidden behind the longer of multiplications and memory
TAP = 3.0  # how much longer one takes where nothing slides
ROLLED = 0.8  # and how much of it where a row is read once
ENOUGH = 4e4  # threads that keep all multiprocessors busy
TURNED = 1.5  # how much longer a copy takes that turns pixels and channels
ADD_START = 3e-6  # of a second launch


def seconds(spec: KernelSpec, problem: ConvProblem) -> float:
    if isinstance(spec.schedule, ConvTmaWsSchedule):
        if spec.schedule.pipeline == "folded":
            return _folded(spec, spec.schedule, problem)
        if spec.schedule.pipeline == "padded":
            return _padded(spec, spec.schedule, problem)
        return _tma_ws(spec, spec.schedule, problem)
    if isinstance(spec.schedule, BandSchedule):
        return _band(spec, spec.schedule, problem)
    if isinstance(spec.schedule, BandWeightSchedule):
        return _band_weight(spec.schedule, problem)
    if isinstance(spec.schedule, DepthwiseTileSchedule):
        return _depthwise_tile(spec.schedule, problem)
    if isinstance(spec.schedule, DepthwiseSchedule):
        return _depthwise(spec.schedule, problem)
    return START + max(problem.flops / 2 / LOOP_RATE, problem.gemm[2] * LOOP_STEP)


def _depthwise(schedule: DepthwiseSchedule, p: ConvProblem) -> float:
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
    idle *= max(1.0, ENOUGH / max(1, threads))
    return (
        START
        + max(p.flops / 2 * idle * each / FMAS, p.bytes / (STRIPS * MEMORY))
        + ADD_START * (p.variant == "backward_weight")
    )


def _depthwise_tile(schedule: DepthwiseTileSchedule, p: ConvProblem) -> float:
    """Units reach over edges, and so do tiles' channels."""
    sizes = p.size if p.variant == "backward_data" else p.out
    idle = _whole(sizes[-1], schedule.pixels) / sizes[-1] * _whole(sizes[-2], schedule.lines) / sizes[-2]
    idle *= _whole(p.channels, schedule.channels) / p.channels
    weight = p.variant == "backward_weight"
    again = 1.0 + 0.05 * (schedule.channels == 32)  # each pixel is asked for in more pieces
    moved = p.bytes / MEMORY * again
    multiply = p.flops / 2 * idle / TILE_FMAS
    return START + max(multiply, moved) + TILE_BESIDE * min(multiply, moved) + ADD_START * weight


def _whole(x: int, y: int) -> int:
    return -(-x // y) * y


def _band(spec: KernelSpec, schedule: BandSchedule, p: ConvProblem) -> float:
    """Multiplications of pixels and padding, and the bands and taps that come in for them."""
    merged, taps = max(1, merged_groups(p, schedule)), prod(p.window)
    data = p.variant == "backward_data"
    deep, columns = p.group_channels * merged, p.group_filters * merged
    if data:
        deep, columns = columns, deep
    sizes = p.size if data else p.out
    grid = [size + (w - 1) * d for size, w, d in zip(sizes, p.window, p.dilation, strict=True)]
    if len(grid) == 3:
        grid[0] = sizes[0]
    m, n, blocks = schedule.tile[0], schedule.tile[1], -(-deep // 64)
    tiles = -(-p.batch * prod(grid) // m) * -(-columns // n) * (p.groups // merged)
    rounds = -(-tiles // UNITS)
    sliced = max(0.5, schedule.slice / n) if schedule.slice else 1.0  # pixels are read whole for each slice
    multiply = m * n * 64 * taps * blocks / BAND_MACS * sliced
    planes = taps // prod(p.window[-2:])
    resident = taps * blocks <= schedule.taps
    fetched = 128.0 * blocks * (planes * (m + band_rows(p)) + (0 if resident else taps * n))
    walk = planes * blocks * (m + band_rows(p)) * PIXEL
    step = max(multiply, fetched / ONE_CACHE, walk) + BAND_TILE
    again = COPY_START if merged > 1 and (blocks > 1 or p.group_channels % 8 or p.group_filters % 8) else 0.0
    return START + BAND_FILL + max(rounds * step, p.bytes / MEMORY) + again


def _band_weight(schedule: BandWeightSchedule, p: ConvProblem) -> float:
    """Nine taps are multiplied, however many there are; sums of parts leave and are added."""
    merged = max(1, side_by_side(p))
    blocks = -(-merged * p.group_filters // 64) * -(-merged * p.group_channels // 64) * (p.groups // merged)
    items = blocks * (p.window[0] if len(p.window) == 3 else 1)
    grid = [size + (w - 1) * d for size, w, d in zip(p.out, p.window, p.dilation, strict=True)]
    if len(grid) == 3:
        grid[0] = p.out[0]
    chunks = -(-p.batch * prod(grid) // schedule.pixels)
    parts = max(1, min(UNITS // items, chunks))
    rounds = -(-items * parts // UNITS) * -(-chunks // parts)
    multiply = 64 * 64 * 9 * schedule.pixels / BAND_WEIGHT_MACS
    walk = (2 * schedule.pixels + band_rows(p)) * PIXEL
    sums = 8.0 * parts * prod(p.w_shape)
    few = TWO_STAGES if schedule.stages == 2 else 1.0  # a stage comes while one is multiplied, and no other
    body = rounds * (max(multiply, walk) * few + BAND_TILE)
    return START + BAND_FILL + max(body, p.bytes / MEMORY) + ADD_START + sums / MEMORY


def _padded(spec: KernelSpec, schedule: ConvTmaWsSchedule, p: ConvProblem) -> float:
    larger, copied = padded(p), padded_copies(p)
    moved = 0.0
    for one in copied:
        apart = getattr(p, f"{one}_strides")[-1] != 1
        moved += 4.0 * prod(getattr(larger, f"{one}_shape")) * (TURNED if apart else 1.0)
    return _tma_ws(spec, schedule, larger) + ADD_START * len(copied) + moved / MEMORY


def _folded(spec: KernelSpec, schedule: ConvTmaWsSchedule, p: ConvProblem) -> float:
    """Copies, and the convolution of many channels."""
    inner = folded(p)
    copied = 2.0 * sum(folded_elements(p)) + p.bytes
    twin = KernelSpec(spec.op, inner.signature, schedule, spec.arch)
    return _tma_ws(twin, schedule, inner) + 2 * ADD_START + copied / MEMORY


def _tma_ws(spec: KernelSpec, schedule: ConvTmaWsSchedule, p: ConvProblem) -> float:
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
    walk = START + BAND_FILL + counted.steps * walked * PIXEL * (SHORT_WALK if schedule.tile[0] < 256 else 1.0)
    again = float(p.filters * taps * channels * DTYPES[p.dtype].bytes)
    apart = merged > 1 or (weight and p.group_channels % 64 > 0)
    copied = 2 * again if apart else 0.0
    product_time = gemm_estimate.seconds_of(counted._replace(moved=float(p.bytes), copies=float(apart), copied=copied))
    streamed = STREAMED if weight and schedule.dealing == "stream_k" else 1.0
    return (max(product_time, walk) + BESIDE * min(product_time, walk)) * streamed


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
