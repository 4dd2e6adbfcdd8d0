"""Convolutions of gathered operands on NVIDIA GPUs: what is legal, and what a legal kernel was not made for."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.gather_schedules import (
    STAGES,
    GatherSchedule,
    Side,
    shared_bytes,
    sides,
    together,
    unit_columns,
)
from tilewright.backends.cuda.conv.places import MOST, violation
from tilewright.backends.cuda.conv.resources import sizes
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem, Sizes
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import ConvSignature

MOST_SUMS = 128  # of a thread; of elements that come through registers there are at most HELD beside them
HELD, HELD_SUMS = 64, 64
MOST_SIDES, MOST_STRIDE = 30, 8  # taps of all axes have a bit each; classes of pixels of an axis
LEAST_PRODUCTS = 32  # of a pixel in a group: with fewer, tiles are all but empty
UNIT_ROWS = 16
PARTS_STEPS = 4  # of a part of k, at least


def rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    """What tile, warps, stages and vectors must be."""
    if not isinstance(schedule, GatherSchedule):
        return
    (m, n, k), (along_m, along_n, along_k) = schedule.tile, schedule.warp_grid
    size, columns = DTYPES[signature.dtype].bytes, unit_columns(signature.dtype)
    if along_k != 1 or along_m * along_n > 16:
        message = f"warps {sizes(schedule.warp_grid)}"
        yield Violation("nv-warps", message, "use warps along m and n only, at most 16")
        return
    if k * size not in (64, 128):
        yield Violation("nv-tile-k", f"tile_k {k} is not 64 or 128 bytes of {signature.dtype}", f"use {64 // size}")
        return
    if m % (along_m * UNIT_ROWS) or n % (along_n * columns):
        message = (
            f"tile {sizes(schedule.tile)} over {along_m}x{along_n} warps is not whole units of {UNIT_ROWS}x{columns}"
        )
        yield Violation("nv-warp-part", message, "use a tile that each warp gets whole units of")
        return
    for what, side in zip("AB", sides(signature, schedule), strict=True):
        yield from _copies(signature, schedule, what, side)
    held = sum(one.lines * one.deep // schedule.threads for one in sides(signature, schedule) if one.held)
    most = HELD_SUMS if held and signature.dtype != "fp32" else MOST_SUMS
    if schedule.sums > most or held > HELD:
        message = f"tile {sizes(schedule.tile)} keeps {schedule.sums} sums a thread and {held} elements on their way"
        yield Violation("nv-registers", message, f"use more warps: at most {most} sums and {HELD} elements")
    if schedule.stages not in STAGES:
        yield Violation("nv-stages", f"{schedule.stages} stages", f"use {STAGES[0]} to {STAGES[-1]}")
    shared = shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        message = f"{schedule.stages} stages of {sizes(schedule.tile)} take {shared} bytes of shared memory"
        yield Violation("nv-shared-memory", f"{message}, {arch.name} has {arch.scratch_bytes}", "use fewer stages")


def _copies(signature: ConvSignature, schedule: GatherSchedule, what: str, side: Side) -> Iterator[Violation]:
    """What a vector may be, and that pieces are dealt out evenly."""
    vector, size = side.vector, side.size
    if vector != 1 and vector * size not in (4, 8, 16):
        message = f"{vector} elements of {what} at a time are {vector * size} bytes"
        yield Violation("nv-vector", message, f"use {16 // size}, {8 // size}, {4 // size}, or 1 for any alignment")
        return
    if vector not in (1, 4) and side.plain and side.along_k:
        message = f"{vector} floats of {what} at a time, which are turned on the way"
        yield Violation("nv-vector", message, "use a vector of 4, or 1")
    if vector != 1 and size == 1 and not side.along_k:
        message = f"{vector} bytes of {what} at a time, and mma.sync reads them along k only"
        yield Violation("nv-vector", message, "use a vector of 1")
    if side.across == 0 or schedule.threads % side.across:
        message = f"{side.across} pieces of {what} side by side over {schedule.threads} threads"
        yield Violation("nv-pieces", message, "use a tile, vector or number of warps that deals them out evenly")


def limits(schedule: GatherSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/gather/host.h."""
    p, data, weight = problem, problem.variant == "backward_data", problem.variant == "backward_weight"
    if sum(p.window) + 3 - len(p.window) > MOST_SIDES:
        yield violation("nv-gather", f"the sides of the window are together over {MOST_SIDES}")
    if data and max(p.stride) > MOST_STRIDE:
        yield violation("nv-gather", f"a stride is over {MOST_STRIDE}")
    if not weight and prod(p.window) * p.group_channels * p.group_filters < LEAST_PRODUCTS:
        yield violation("nv-gather", "a pixel has so few products in a group that plain loops take less")
    half = MOST // 2
    each = [*p.size, *p.out, *p.before, p.group_channels, p.group_filters]
    each += [one * apart for one, apart in zip((*p.window, *p.out), (*p.dilation, *p.stride), strict=True)]
    places = p.batch * prod(-(-size // step) for size, step in zip(p.size, p.stride, strict=True))
    each.append(places if data else p.batch * prod(p.out))
    each.append(prod(p.window) * (p.group_filters if data else p.group_channels))
    if max(each) >= half:
        yield violation("nv-gather", "a size is 2^30 or more")
    elif tiles(schedule, p) >= half:
        yield violation("nv-gather", "2^30 or more tiles")
    shapes = (p.x_shape, p.group_channels), ((p.group_filters, *p.w_shape[1:]), p.group_channels)
    for (shape, channels), strides in zip(
        (*shapes, (p.y_shape, p.group_filters)), (p.x_strides, p.w_strides, p.y_strides), strict=True
    ):
        if (
            sum((one - 1) * abs(apart) for one, apart in zip((*shape[:-1], channels), strides, strict=True) if one)
            >= MOST
        ):
            yield violation("nv-gather", "elements of one operand lie 2^31 or more apart")
    x, y, w = ((getattr(p, f"{one}_strides"), p.group_filters if one == "y" else p.group_channels) for one in "xyw")
    for vector, (strides, channels) in zip(
        schedule.vectors, (y if data or weight else x, x if weight else w), strict=True
    ):
        if vector > 1 and not _readable(p, strides, channels, vector):
            yield violation("nv-alignment", f"an operand is not aligned to the {vector} elements copied at a time")


def _readable(p: ConvProblem, strides: Sizes, channels: int, vector: int) -> bool:
    return p.aligned and strides[-1] == 1 and not any(one % vector for one in (*strides[:-1], channels))


def tiles(schedule: GatherSchedule, p: ConvProblem) -> int:
    """Of all groups and classes."""
    data, weight = p.variant == "backward_data", p.variant == "backward_weight"
    lines, classes = p.batch * prod(p.out), 1
    if data:
        lines = p.batch * prod(-(-size // step) for size, step in zip(p.size, p.stride, strict=True))
        classes = prod(min(size, step) for size, step in zip(p.size, p.stride, strict=True))
    columns = p.group_channels if data else p.group_filters
    if weight:
        lines, columns = p.group_filters, p.group_channels * prod(p.window)
    return -(-lines // schedule.tile[0]) * -(-columns // schedule.tile[1]) * classes * p.groups


def parts_of_k(signature: ConvSignature, schedule: GatherSchedule, tiles_: int, steps: int, processors: int) -> int:
    """Blocks that share a tile; `deal` in conv/gather/host.h."""
    (m, n, k), size = schedule.tile, DTYPES[signature.dtype].bytes
    step, sums = m * n * k / (1.7e11 if size == 4 else 8e11), m * n * 8 / 2.5e12
    best, least = 1, 0.0
    for full in range(together(signature, schedule) + 1):
        parts = max(1, min(processors * full // tiles_ if full else 1, steps // PARTS_STEPS))
        high = -(-tiles_ * parts // processors)
        seconds = -(-steps // parts) * step * (high if high > 1 else 1.3)
        if parts > 1:
            seconds += 3e-6 + tiles_ * parts * sums
        if full == 0 or seconds < least:
            best, least = parts, seconds
    return -(-steps // -(-steps // best))
