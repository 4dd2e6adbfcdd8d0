"""Depthwise convolutions on NVIDIA GPUs: what is legal, and what a legal kernel was not made for."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.places import LINE_BYTES, MOST, PIECE, dense_pixels, violation
from tilewright.backends.cuda.conv.schedules import (
    DEPTHWISE_STEPS,
    DEPTHWISE_WINDOWS,
    DepthwiseMmaSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
)
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import ConvSignature

DEPTHWISE_THREADS, DEPTHWISE_SHARED = 128, 48 * 1024
MOST_PLANES, TILE_SHARED = 7, 227 * 1024
MMA_CHANNELS, MMA_PIXEL, MMA_DEEP, MMA_MARGIN, MMA_LINES, MMA_BESIDE = 32, 64, 16, 8, 32, 2048
MMA_ROWS, MMA_COLUMNS, MMA_TAPS, MMA_LATENCY, MOST_BOX = 7, 8, 16, 4096, 256


def rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, DepthwiseSchedule):
        return
    weight = signature.variant == "backward_weight"
    if signature.dtype == "int8":
        yield Violation("nv-inputs", "the depthwise pipeline multiplies floats", "use the loops pipeline")
    if schedule.window not in (*DEPTHWISE_WINDOWS, *(() if weight else (0,))) or schedule.step not in DEPTHWISE_STEPS:
        message = f"a window of width {schedule.window} that moves {schedule.step} pixels"
        yield Violation("nv-depthwise", message, f"use a width of {DEPTHWISE_WINDOWS} and a step of {DEPTHWISE_STEPS}")
    if schedule.vector not in (1, 2, 4):
        yield Violation("nv-vector", f"{schedule.vector} channels of a thread", "use 2 or 4, or 1 of an odd number")
    if schedule.rows and (schedule.window == 0 or schedule.step != 1):
        yield Violation("nv-depthwise", "only a window that moves pixel by pixel rolls", "use step 1, or rows 0")
    reach = (schedule.pixels - 1) * schedule.step + schedule.window
    if schedule.pixels > 8 or reach > 31:
        yield Violation("nv-registers", f"strips of {schedule.pixels} pixels that meet {reach}", "use shorter strips")
    if schedule.step > 1 and (schedule.window == 0 or signature.variant == "backward_data"):
        yield Violation("nv-depthwise", "only a window that slides forward has a step", "use step 1")


def tile_rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, DepthwiseTileSchedule):
        return
    h = schedule
    if "tma" not in arch.features:
        yield Violation("nv-arch", f"depthwise_tile needs TMA, which {arch.name} has not", "use target sm_90a")
    if DTYPES[signature.dtype].bytes != 2:
        message = f"tiles are of two-byte elements, not {signature.dtype}"
        yield Violation("nv-inputs", message, "use bf16 or fp16, or the depthwise pipeline")
    if h.window not in DEPTHWISE_WINDOWS or h.step not in DEPTHWISE_STEPS:
        message = f"a window of {h.window} that moves {h.step} pixels"
        yield Violation("nv-depthwise", message, f"use a window of {DEPTHWISE_WINDOWS} and a step of {DEPTHWISE_STEPS}")
    strided = h.step if signature.variant == "backward_data" else 1  # results along a stride are made together
    if strided > 1 and h.spread > 1:
        yield Violation("nv-depthwise", "gradients of strides and a dilation", "use step 1 or spread 1")
    if h.spread > 2:
        yield Violation("nv-depthwise", f"a dilation of {h.spread}", "use 1 or 2, or the depthwise pipeline")
    if h.channels not in (32, 64):
        yield Violation("nv-vector", f"{h.channels} channels of a tile", "use 32 or 64")
    kept = h.window**2 if signature.variant == "backward_weight" else 0
    if not (h.pixels <= 8 and h.lines <= 4 and h.pixels * h.lines * strided**2 + kept <= (72 if strided == 1 else 32)):
        yield Violation("nv-registers", f"units of {h.lines}x{h.pixels} of window {h.window}", "use smaller units")


def _tiles(p: ConvProblem) -> Iterator[Violation]:
    """What the copy engine wants of tiles of x and y, and sums of taps of w."""
    if p.channels % PIECE:
        yield violation("nv-groups", f"{p.channels} channels are no whole {PIECE}s")
    if p.x_strides[-1] != 1 or p.y_strides[-1] != 1:
        yield violation("nv-channels-last", "channels do not lie side by side")
    if not dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if len(p.size) == 3 and p.batch > 1:
        for depth, strides in ((p.size[0], p.x_strides), (p.out[0], p.y_strides)):
            if depth > 1 and strides[0] != strides[1] * depth:
                yield violation("nv-dense", "the planes of images do not lie at equal distances")


def tile_limits(schedule: DepthwiseTileSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/depthwise_tile/host.h."""
    p, h = problem, schedule
    if p.batch == 0:
        yield violation("nv-walk", "there are no images")
    if p.group_channels != 1 or p.group_filters != 1:
        yield violation("nv-groups", "groups are of more than one channel or filter")
        return
    yield from _tiles(p)
    slides = len(p.window) > 1 and p.window[-2:] == (h.window,) * 2 and p.stride[-2:] == (h.step,) * 2
    if not slides or p.dilation[-2:] != (h.spread,) * 2:
        yield violation("nv-depthwise", "this kernel has another window, stride or dilation")
    planes = p.window[0] if len(p.window) == 3 else 1
    if p.variant == "backward_data" and len(p.stride) == 3 and p.stride[0] != 1:
        yield violation("nv-depthwise", "strides over 1: this kernel slides one plane at a time")
    if p.variant == "backward_data" and h.step > 1 and (planes > 1 or sum(p.before[-2:]) % 2):
        yield violation("nv-depthwise", "strides over 1: the window is deep, or the padding odd on one side only")
    if planes > MOST_PLANES:
        yield violation("nv-depthwise", f"the window is more than {MOST_PLANES} deep")
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*p.x_strides[:-1], *p.y_strides[:-1])):
        yield violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    shape = p.x_shape if p.variant == "backward_data" else p.y_shape
    if prod(shape[:-1]) >= MOST // 2 or prod(p.window) * p.channels >= MOST // 2:
        yield violation("nv-walk", "2^30 or more pixels or weights")
    if h.least_bytes(p.variant == "backward_weight", planes) > TILE_SHARED:
        yield violation("nv-shared-memory", "a tile of rows does not fit into shared memory")


def limits(schedule: DepthwiseSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/depthwise/host.h."""
    p, h = problem, schedule
    weight = p.variant == "backward_weight"
    if p.batch == 0:
        yield violation("nv-walk", "there are no images")
    if p.group_channels != 1 or p.group_filters != 1:
        yield violation("nv-groups", "groups are of more than one channel or filter")
        return
    if p.channels % h.vector:
        yield violation("nv-groups", f"{p.channels} channels are no whole vectors of {h.vector}")
    if h.vector == 1 and p.channels % 2 == 0:
        yield violation("nv-groups", f"{p.channels} channels are whole vectors, and this kernel has none")
    if p.x_strides[-1] != 1 or p.y_strides[-1] != 1:
        yield violation("nv-channels-last", "channels do not lie side by side")
    if not dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if h.window and (p.window[-1] != h.window or p.stride[-1] != h.step or p.dilation[-1] != 1):
        yield violation("nv-depthwise", "this kernel has another width, stride or dilation of the window")
    height = (p.window[-2], p.stride[-2], p.dilation[-2]) if len(p.window) > 1 else (1, 1, 1)
    if h.rows and height != (h.window, 1, 1):
        yield violation("nv-depthwise", "this kernel rolls over square windows, row by row")
    if p.variant == "backward_data" and h.window and any(one != 1 for one in p.stride):
        yield violation("nv-depthwise", "strides over 1: this kernel slides one pixel at a time")
    taps, vecs = prod(p.window), depthwise_vectors(schedule, problem)
    shared = 4 * vecs * h.vector * (h.window * (DEPTHWISE_THREADS // vecs) if weight else taps)
    if shared > DEPTHWISE_SHARED:
        yield violation("nv-shared-memory", "a window has more taps than shared memory holds")
    apart = any(one % h.vector for one in (*p.x_strides[:-1], *p.y_strides[:-1]))
    if apart or not (p.aligned or h.vector == 1):
        yield violation("nv-alignment", "an address or a stride is not a multiple of a vector of channels")
    shape = p.x_shape if p.variant == "backward_data" else p.y_shape
    if prod(shape[:-2]) * -(-shape[-2] // h.pixels) >= MOST // 2 or taps * p.channels >= MOST // 2:
        yield violation("nv-walk", "2^30 or more strips or weights")


def depthwise_vectors(schedule: DepthwiseSchedule, problem: ConvProblem) -> int:
    """Vectors of channels of a block, as even as possible."""
    count = max(1, problem.channels // schedule.vector)
    blocks = -(-count // 32)
    return -(-count // blocks)


def mma_rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, DepthwiseMmaSchedule):
        return
    if "tma" not in arch.features:
        yield Violation("nv-arch", f"depthwise_mma needs TMA, which {arch.name} has not", "use target sm_90a")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} by matrix instructions of channels"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if not 1 <= schedule.stages <= 4:
        yield Violation("nv-stages", f"{schedule.stages} stages", "use 1 to 4")


class MmaTiles(NamedTuple):
    """Rows of results of a tile and 16s of pixels of a row, its bytes, how many tiles, and who shares them."""

    lines: int
    segments: int
    nbytes: int
    tiles: int
    parts: int


def mma_tiles(schedule: DepthwiseMmaSchedule, p: ConvProblem, processors: int) -> MmaTiles | None:
    """conv/depthwise_mma/host.h; whether there are any does not depend on the number of multiprocessors."""

    def whole(nbytes: int) -> int:
        return -(-nbytes // 1024) * 1024

    out_h, window_h = (p.out[-2], p.window[-2]) if len(p.out) > 1 else (1, 1)
    planes = p.window[0] if len(p.window) == 3 else 1
    share = processors // (-(-p.channels // MMA_CHANNELS) * planes)
    segments = -(-(p.out[-1] + p.window[-1] - 1) // MMA_DEEP)
    if segments * MMA_DEEP + MMA_MARGIN > MOST_BOX:
        return None
    best, least = None, 0
    for lines in range(2, min(MMA_LINES, max(2, out_h + 1)) + 1, 2):
        stage = whole((lines + window_h - 1) * (segments * MMA_DEEP + 4) * MMA_PIXEL)
        stage += whole(lines * (segments * MMA_DEEP + MMA_MARGIN) * MMA_PIXEL)
        if schedule.stages * stage + MMA_BESIDE > TILE_SHARED:
            break
        tiles = -(-out_h // lines) * prod(p.out[:-2]) * p.batch
        parts = max(1, min(share, tiles))
        nbytes = -(-tiles // parts) * (stage + MMA_LATENCY) + stage
        if best is None or nbytes < least:
            best, least = MmaTiles(lines, segments, stage, tiles, parts), nbytes
    return best


def mma_limits(schedule: DepthwiseMmaSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/depthwise_mma/host.h."""
    p = problem
    if p.batch == 0:
        yield violation("nv-walk", "there are no images")
        return
    if p.group_channels != 1 or p.group_filters != 1:
        yield violation("nv-groups", "groups are of more than one channel or filter")
        return
    yield from _tiles(p)
    if prod(p.window[-2:]) < MMA_TAPS:
        yield violation("nv-depthwise", f"the window has fewer than {MMA_TAPS} taps a plane")  # tiles are faster
    if p.window[-1] > MMA_COLUMNS or (p.window[-2] if len(p.window) > 1 else 1) > MMA_ROWS:
        yield violation("nv-depthwise", f"the window has more than {MMA_ROWS} rows of {MMA_COLUMNS} taps")
    if any(one != 1 for one in (*p.stride[-2:], *p.dilation[-2:])):
        yield violation("nv-depthwise", "a stride or a dilation is over 1")
    if len(p.window) == 3 and p.window[0] > MOST_PLANES:
        yield violation("nv-depthwise", f"the window is more than {MOST_PLANES} deep")
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*p.x_strides[:-1], *p.y_strides[:-1])):
        yield violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    if p.batch * prod(p.out) >= MOST // 2 or prod(p.w_shape) >= MOST // 2 or p.channels >= MOST // 2:
        yield violation("nv-walk", "2^30 or more pixels or weights")
    if mma_tiles(schedule, problem, 1) is None:
        yield violation("nv-shared-memory", "rows of an image do not fit into shared memory")
