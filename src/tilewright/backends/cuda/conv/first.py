"""Gradients of weights of first layers on NVIDIA GPUs: what is legal, and what a legal kernel was not made for."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from tilewright.arch import Arch
from tilewright.backends.cuda.conv.bands import MOST_PROCESSORS
from tilewright.backends.cuda.conv.places import LINE_BYTES, MOST, dense_pixels, violation
from tilewright.backends.cuda.conv.schedules import FIRST_WINDOWS, FirstWeightSchedule
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import ConvSignature

MOST_CHANNELS, MOST_WIDTH, MOST_STRIDE, MOST_HIGH, MOST_SEGMENT = 8, 64, 8, 16, 256
SHARED, BESIDE = 227 * 1024, 256 + 1024  # cuda/conv/first_weight/shape.h
LATENCY = 1500  # cycles


def rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, FirstWeightSchedule):
        return
    h = schedule
    if not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"first_weight needs wgmma and TMA, which {arch.name} has not", "use target sm_90a")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} by lines of 16 bytes"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if h.window not in FIRST_WINDOWS:
        yield Violation("nv-first", f"a window of {h.window} rows", f"use one of {FIRST_WINDOWS}")
    if not 1 <= h.lines * h.window <= 28:
        message = f"{h.lines} lines of {h.window} rows are more than the registers of a warpgroup hold"
        yield Violation("nv-registers", message, "use at most 28 lines and rows together")
    if not 2 <= h.stages <= 8:
        yield Violation("nv-stages", f"{h.stages} stages", "use 2 to 8")


class Stage(NamedTuple):
    """Results of a stage, across and down, how many blocks share the stages, and about how many cycles all take."""

    segment: int
    high: int
    parts: int
    cycles: int


def narrow(p: ConvProblem) -> bool:
    """Whether two pixels of four channels make a line of 16 bytes."""
    return p.channels <= 4 and p.stride[-1] % 2 == 0


def lines(p: ConvProblem) -> int:
    """Of a row of the window."""
    return -(-p.window[-1] * (4 if narrow(p) else 8) // 8)


def _over(x: int, y: int) -> int:
    return -(-x // y)


def laid(schedule: FirstWeightSchedule, p: ConvProblem, processors: int) -> Stage | None:
    """conv/first_weight/host.h; whether there is one does not depend on the number of multiprocessors."""
    out_h, step, apart = (p.out[-2], p.stride[-2], p.dilation[-2]) if len(p.out) > 1 else (1, 1, 1)
    phases = p.stride[-1] // 2 if narrow(p) else p.stride[-1]
    segments = _over(_over(p.out[-1], 16) * 16, MOST_SEGMENT)
    segment = _over(_over(p.out[-1], segments), 16) * 16
    row = segment + (lines(p) - 1) // phases
    items, each = _over(p.filters, 64) * (p.window[0] if len(p.window) == 3 else 1), 8 * schedule.window
    best = None
    for high in range(1, min(MOST_HIGH, max(1, out_h)) + 1):
        rows = (high - 1) * step + (schedule.window - 1) * apart + 1
        met, read = rows * phases * row, min(high * step, rows) * phases * row  # others are in the stage before
        nbytes = segment * high * 128 + -(-met * 16 // 1024) * 1024
        if schedule.stages * nbytes + BESIDE > SHARED:
            break
        chunks = -(-out_h // high)
        stages = _over(p.out[-1], segment) * chunks * prod(p.out[:-2]) * p.batch
        parts = min(max(1, processors // items), stages)
        products = segment * high // 16 * 2 * schedule.lines * max(each // 2, 16 + each // 4)
        longest = max(products, LATENCY + 4 * read + (met - read) // 2, segment * high * 15 // 2)
        rounds = _over(stages, parts) * _over(items * parts, processors)
        cycles = (rounds - 1) * longest + LATENCY + 4 * met + products
        if best is None or cycles < best.cycles:
            best = Stage(segment, high, parts, cycles)
    return best


def limits(schedule: FirstWeightSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/first_weight/host.h."""
    p, h = problem, schedule
    if p.batch == 0:
        yield violation("nv-walk", "there are no images")
        return
    if p.groups != 1:
        yield violation("nv-groups", "there are groups")
    if p.channels > MOST_CHANNELS:
        yield violation("nv-first", f"there are more than {MOST_CHANNELS} channels")
    if not p.channels_last:
        yield violation("nv-channels-last", "channels do not lie side by side")
        return
    if not dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if len(p.out) == 3 and p.out[0] > 1 and p.batch > 1 and p.y_strides[0] != p.y_strides[1] * p.out[0]:
        yield violation("nv-dense", "the planes of images do not lie at equal distances")
    if (p.window[-2] if len(p.window) > 1 else 1) != h.window:
        yield violation("nv-first", "this kernel has a window of other rows")
    if p.dilation[-1] != 1:
        yield violation("nv-first", "taps of a row do not lie side by side")
    if p.window[-1] > MOST_WIDTH or lines(p) > 2 * h.lines:
        yield violation("nv-first", "the window is wider than the lines of this kernel")
    if p.stride[-1] > MOST_STRIDE:
        yield violation("nv-first", f"a stride is over {MOST_STRIDE}")
        return
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in p.y_strides[:-1]):
        yield violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    weights = prod(p.w_shape)
    if p.batch * prod(p.out) >= MOST // 2 or p.filters >= MOST // 2 or weights * MOST_PROCESSORS >= MOST:
        yield violation("nv-walk", "2^30 or more pixels or weights")
    if laid(schedule, problem, 1) is None:
        yield violation("nv-shared-memory", "rows of pixels do not fit into shared memory")
