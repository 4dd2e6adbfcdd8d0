"""Convolution on NVIDIA GPUs: what is legal, and what a legal kernel was not made for.

tma_ws   sm_90a: an implicit GEMM.  The copy engine walks over pixels (im2col maps) and feeds wgmma; channels side by
         side in multiples of 16 bytes; groups of few channels `merged` into one, block-diagonal
band     the same of a window that moves pixel by pixel: bands of pixels are fetched once for all its taps
band_weight  backward_weight of such windows: k is pixels, whose bands serve all taps of a plane
padded   the same in copies: of channels or filters that are no whole 8s, memory that is not aligned, channels apart
folded   the same of few channels (images): pixels of a row fold into channels, in a copy
depthwise_tile  a filter for each channel, warps slide square windows over tiles that the copy engine brings
depthwise  the same of any window: threads slide it over pixels in registers; channels in whole vectors
loops    the floor: any size, stride and element type
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tilewright.arch import Arch
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv import nvidia_resources as resources
from tilewright.ops.conv.nvidia_schedules import (
    DEPTHWISE_STEPS,
    DEPTHWISE_WINDOWS,
    BandSchedule,
    BandWeightSchedule,
    ConvTmaWsSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
    band_shared_bytes,
    schedules,
)
from tilewright.ops.conv.problem import ConvProblem, Sizes
from tilewright.ops.conv.schedule import ConvSchedule, LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules

__all__ = ["RULES", "SCHEDULES", "generic_schedule", "limits", "merged_groups", "schedules", "signature_rules"]

USUAL = "bf16"
SCHEDULES: tuple[type[ConvSchedule], ...] = (
    ConvTmaWsSchedule,
    BandSchedule,
    BandWeightSchedule,
    DepthwiseTileSchedule,
    DepthwiseSchedule,
    LoopsSchedule,
)
LINE_BYTES = 16  # what the copy engine asks of addresses and strides
MOST_STRIDE = 8  # from pixel to pixel of a walk
MOST_TAPS, MOST_CLASSES = 343, 27  # cuda/conv_tma_ws_shape.h
MOST = 1 << 31


def signature_rules(signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from dtype_rules(signature)


def _signature(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


def _tma_ws(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    """Those of the matrix product, and what the directions add."""
    if not isinstance(schedule, ConvTmaWsSchedule):
        return
    if signature.variant != "forward" and DTYPES[signature.dtype].bytes != 2:
        message = f"{signature.variant} of {signature.dtype}: wgmma reads only two-byte elements across k"
        yield Violation("nv-inputs", message, "use bf16 or fp16, or the loops pipeline")
        return
    if signature.dtype == "fp32":
        yield Violation("nv-inputs", "wgmma does not multiply fp32 exactly", "use the loops pipeline")
        return
    yield from resources.rules(signature, schedule, arch)
    if schedule.by_rows(signature) and schedule.tile[1] % 16:
        yield Violation("nv-columns", f"tile_n {schedule.tile[1]}: rows leave 16 columns at a time", "use whole 16s")
    if signature.variant == "backward_weight" and schedule.tile[1] // schedule.cluster[0] % 64:
        message = f"tile_n {schedule.tile[1]} of a cluster of {schedule.cluster[0]}: columns come 64 at a time"
        yield Violation("nv-columns", message, "use whole 64s of each block")


def _depthwise(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, DepthwiseSchedule):
        return
    weight = signature.variant == "backward_weight"
    if signature.dtype == "int8":
        yield Violation("nv-inputs", "the depthwise pipeline multiplies floats", "use the loops pipeline")
    if schedule.window not in (*DEPTHWISE_WINDOWS, *(() if weight else (0,))) or schedule.step not in DEPTHWISE_STEPS:
        message = f"a window of width {schedule.window} that moves {schedule.step} pixels"
        yield Violation("nv-depthwise", message, f"use a width of {DEPTHWISE_WINDOWS} and a step of {DEPTHWISE_STEPS}")
    if schedule.vector not in (2, 4):
        yield Violation("nv-vector", f"{schedule.vector} channels of a thread", "use 2 or 4")
    if schedule.rows and (schedule.window == 0 or schedule.step != 1):
        yield Violation("nv-depthwise", "only a window that moves pixel by pixel rolls", "use step 1, or rows 0")
    reach = (schedule.pixels - 1) * schedule.step + schedule.window
    if schedule.pixels > 8 or reach > 31:
        yield Violation("nv-registers", f"strips of {schedule.pixels} pixels that meet {reach}", "use shorter strips")
    if schedule.step > 1 and (schedule.window == 0 or signature.variant == "backward_data"):
        yield Violation("nv-depthwise", "only a window that slides forward has a step", "use step 1")


def _depthwise_tile(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
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
    if h.step > 1 and signature.variant == "backward_data":
        yield Violation("nv-depthwise", "only a window that slides forward has a step", "use step 1")
    if h.spread > 2:
        yield Violation("nv-depthwise", f"a dilation of {h.spread}", "use 1 or 2, or the depthwise pipeline")
    if h.channels not in (32, 64):
        yield Violation("nv-vector", f"{h.channels} channels of a tile", "use 32 or 64")
    kept = h.window**2 if signature.variant == "backward_weight" else 0
    if not (h.pixels <= 8 and h.lines <= 4 and h.pixels * h.lines + kept <= 72):
        yield Violation("nv-registers", f"units of {h.lines}x{h.pixels} of window {h.window}", "use smaller units")


def _folded(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, ConvTmaWsSchedule) or schedule.pipeline == "tma_ws":
        return
    if DTYPES[signature.dtype].bytes != 2:
        message = f"{schedule.pipeline} pixels are of two-byte elements, not {signature.dtype}"
        yield Violation("nv-inputs", message, "use bf16 or fp16")
    if schedule.merged and schedule.pipeline == "folded":
        yield Violation("nv-groups", "folded kernels have one group", "leave merged out")


def _band(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, BandSchedule):
        return
    if not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"band needs wgmma and TMA, which {arch.name} has not", "use target sm_90a")
    if signature.variant == "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} over bands"
        yield Violation("nv-inputs", message, "use forward or backward_data of bf16 or fp16, or another pipeline")
    elif DTYPES[signature.dtype_out].bytes != 2:
        yield Violation("nv-outputs", f"bands leave as two bytes, not {signature.dtype_out}", "use bf16 or fp16")
    m, n, k = schedule.tile
    if m not in (64, 128, 192, 256) or n % 16 or n > 256 or k != 64 or m // 64 * n // 2 > resources.MAX_ACCUMULATORS:
        yield Violation("nv-tile-m", f"tile {m}x{n}x{k}", "use 64, 128 or 192 rows, whole 16s of columns, 64 of k")
    if n not in resources.WGMMA_COLUMNS:
        yield Violation("nv-columns", f"tile_n {n} is not one wgmma wide", "use 64")
    if schedule.band % 8 or schedule.band <= m or schedule.band > MOST_BAND:
        yield Violation("nv-band", f"a band of {schedule.band} rows", f"use whole 8s over {m}, at most {MOST_BAND}")
    if schedule.slice and not (
        schedule.merged and schedule.slice in resources.WGMMA_COLUMNS and schedule.slice * 4 == n * schedule.sharing
    ):
        message = f"slices of {schedule.slice} columns, {schedule.sharing} the same, in {n}"
        yield Violation("nv-slice", message, "use merged groups, and slices that four 16s of k fill the tile with")
    if 16 * (schedule.stages + schedule.taps) > 640:
        yield Violation("nv-stages", f"{schedule.stages} bands and {schedule.taps} taps", "use at most 40 together")
    shared = band_shared_bytes(signature, schedule)
    if shared > arch.scratch_bytes:
        yield Violation("nv-shared-memory", f"bands and taps take {shared} bytes of shared memory", "use fewer")


def _band_weight(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, BandWeightSchedule):
        return
    h = schedule
    if not {"wgmma", "tma"} <= arch.features:
        yield Violation("nv-arch", f"band_weight needs wgmma and TMA, which {arch.name} has not", "use target sm_90a")
    if signature.variant != "backward_weight" or signature.dtype not in ("bf16", "fp16"):
        message = f"{signature.variant} of {signature.dtype} over bands"
        yield Violation("nv-inputs", message, "use backward_weight of bf16 or fp16, or another pipeline")
    if h.pixels % 64 or not 64 <= h.pixels <= 256 or not 2 <= h.stages <= 8:
        yield Violation("nv-stages", f"{h.stages} stages of {h.pixels} pixels", "use 2 to 8 of 64, 128, 192 or 256")
    if h.band % 8 or not h.pixels < h.band <= MOST_BAND:
        yield Violation("nv-band", f"a band of {h.band} rows", f"use whole 8s over {h.pixels}, at most {MOST_BAND}")
    if h.shared_bytes > arch.scratch_bytes:
        yield Violation("nv-shared-memory", f"bands take {h.shared_bytes} bytes of shared memory", "use fewer")


MOST_BAND = 1024  # pixels of one walk
RULES = (_signature, _tma_ws, _folded, _band, _band_weight, _depthwise_tile, _depthwise)


def merged_groups(problem: ConvProblem, schedule: ConvTmaWsSchedule | BandSchedule) -> int:
    """Of how many groups one is made: as few as fill whole stages, two or more; 0 where no number does."""
    if not schedule.merged:
        return 1
    deep = problem.group_filters if problem.variant == "backward_data" else problem.group_channels
    fitting = (n for n in range(2, problem.groups + 1) if problem.groups % n == 0 and n * deep % schedule.tile[2] == 0)
    return next(fitting, 0)


def limits(schedule: ConvSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    if problem.batch == 0 and problem.variant != "backward_weight":
        return
    if isinstance(schedule, ConvTmaWsSchedule):
        if schedule.pipeline == "folded":
            broken = list(_folded_limits(problem))
            yield from broken
            if broken:
                return
            problem = folded(problem)
        if schedule.pipeline == "padded":
            broken = list(_padded_limits(problem))
            yield from broken
            if broken:
                return
            problem = padded(problem)
        yield from _layout(schedule, problem)
        yield from _groups(schedule, problem)
        yield from _walk(schedule, problem)
    if isinstance(schedule, BandSchedule):
        twin = ConvTmaWsSchedule("tma_ws", schedule.tile, 2, merged=schedule.merged)
        yield from _layout(twin, problem)
        yield from _groups(twin, problem)
        yield from _band_limits(schedule, problem)
    if isinstance(schedule, BandWeightSchedule):
        yield from _band_weight_limits(schedule, problem)
    if isinstance(schedule, DepthwiseTileSchedule):
        yield from _depthwise_tile_limits(schedule, problem)
    if isinstance(schedule, DepthwiseSchedule):
        yield from _depthwise_limits(schedule, problem)


def _depthwise_tile_limits(schedule: DepthwiseTileSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_depthwise_tile.h."""
    p, h = problem, schedule
    if p.batch == 0:
        yield _violation("nv-walk", "there are no images")
    if p.group_channels != 1 or p.group_filters != 1:
        yield _violation("nv-groups", "groups are of more than one channel or filter")
        return
    if p.channels % PIECE:
        yield _violation("nv-groups", f"{p.channels} channels are no whole {PIECE}s")
    if p.x_strides[-1] != 1 or p.y_strides[-1] != 1:
        yield _violation("nv-channels-last", "channels do not lie side by side")
    if not _dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield _violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if len(p.size) == 3 and p.batch > 1:
        for depth, strides in ((p.size[0], p.x_strides), (p.out[0], p.y_strides)):
            if depth > 1 and strides[0] != strides[1] * depth:
                yield _violation("nv-dense", "the planes of images do not lie at equal distances")
    slides = len(p.window) > 1 and p.window[-2:] == (h.window,) * 2 and p.stride[-2:] == (h.step,) * 2
    if not slides or p.dilation[-2:] != (h.spread,) * 2:
        yield _violation("nv-depthwise", "this kernel has another window, stride or dilation")
    if p.variant == "backward_data" and any(one != 1 for one in p.stride):
        yield _violation("nv-depthwise", "strides over 1: this kernel slides one pixel at a time")
    planes = p.window[0] if len(p.window) == 3 else 1
    if planes > MOST_PLANES:
        yield _violation("nv-depthwise", f"the window is more than {MOST_PLANES} deep")
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*p.x_strides[:-1], *p.y_strides[:-1])):
        yield _violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    shape = p.x_shape if p.variant == "backward_data" else p.y_shape
    if prod(shape[:-1]) >= MOST // 2 or prod(p.window) * p.channels >= MOST // 2:
        yield _violation("nv-walk", "2^30 or more pixels or weights")
    if h.least_bytes(p.variant == "backward_weight", planes) > TILE_SHARED:
        yield _violation("nv-shared-memory", "a tile of rows does not fit into shared memory")


MOST_PLANES, TILE_SHARED = 7, 227 * 1024


def _depthwise_limits(schedule: DepthwiseSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_depthwise.h."""
    p, h = problem, schedule
    weight = p.variant == "backward_weight"
    if p.batch == 0:
        yield _violation("nv-walk", "there are no images")
    if p.group_channels != 1 or p.group_filters != 1:
        yield _violation("nv-groups", "groups are of more than one channel or filter")
        return
    if p.channels % h.vector:
        yield _violation("nv-groups", f"{p.channels} channels are no whole vectors of {h.vector}")
    if p.x_strides[-1] != 1 or p.y_strides[-1] != 1:
        yield _violation("nv-channels-last", "channels do not lie side by side")
    if not _dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield _violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if h.window and (p.window[-1] != h.window or p.stride[-1] != h.step or p.dilation[-1] != 1):
        yield _violation("nv-depthwise", "this kernel has another width, stride or dilation of the window")
    height = (p.window[-2], p.stride[-2], p.dilation[-2]) if len(p.window) > 1 else (1, 1, 1)
    if h.rows and height != (h.window, 1, 1):
        yield _violation("nv-depthwise", "this kernel rolls over square windows, row by row")
    if p.variant == "backward_data" and h.window and any(one != 1 for one in p.stride):
        yield _violation("nv-depthwise", "strides over 1: this kernel slides one pixel at a time")
    taps, vecs = prod(p.window), depthwise_vectors(schedule, problem)
    shared = 4 * vecs * h.vector * (h.window * (DEPTHWISE_THREADS // vecs) if weight else taps)
    if shared > DEPTHWISE_SHARED:
        yield _violation("nv-shared-memory", "a window has more taps than shared memory holds")
    if not p.aligned or any(one % h.vector for one in (*p.x_strides[:-1], *p.y_strides[:-1])):
        yield _violation("nv-alignment", "an address or a stride is not a multiple of a vector of channels")
    shape = p.x_shape if p.variant == "backward_data" else p.y_shape
    if prod(shape[:-2]) * -(-shape[-2] // h.pixels) >= MOST // 2 or taps * p.channels >= MOST // 2:
        yield _violation("nv-walk", "2^30 or more strips or weights")


DEPTHWISE_THREADS, DEPTHWISE_SHARED = 128, 48 * 1024


def depthwise_vectors(schedule: DepthwiseSchedule, problem: ConvProblem) -> int:
    """Vectors of channels of a block, as even as possible."""
    count = max(1, problem.channels // schedule.vector)
    blocks = -(-count // 32)
    return -(-count // blocks)


def _violation(rule: str, message: str) -> Violation:
    return Violation(rule, message, "use another kernel of the pool")


def _dense_pixels(strides: Sizes, shape: Sizes) -> bool:
    """Whether pixels lie at equal distances, images too; a stride along one pixel says nothing."""
    step = apart = strides[-2]
    for stride, size, more in zip(reversed(strides[1:-2]), reversed(shape[2:-1]), reversed(shape[1:-2]), strict=True):
        apart *= size
        if more > 1 and stride != apart:
            return False
    return shape[0] == 1 or strides[0] == step * prod(shape[1:-1])


def _layout(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    p = problem
    if not p.channels_last:
        yield _violation("nv-channels-last", "channels do not lie side by side")
        return
    # Taps of one filter, as pixels of one image.
    if not _dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield _violation("nv-dense", "the taps of a filter do not lie at equal distances")
    by_classes = schedule.store == "direct" and schedule.dealing == "tiles"
    if p.variant != "backward_data" and not _dense_pixels(p.y_strides, p.y_shape):
        yield _violation("nv-dense", "the pixels of y do not lie at equal distances")
    if p.variant == "backward_data" and not by_classes and not _dense_pixels(p.x_strides, p.x_shape):
        yield _violation("nv-dense", "the pixels of x do not lie at equal distances")
    yield from _aligned(schedule, problem)


def _aligned(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """What the copy engine reads, and what it writes."""
    p, size, result = problem, DTYPES[problem.dtype].bytes, DTYPES[problem.dtype_out].bytes
    read: list[int] = []
    if p.variant != "backward_data":
        read += p.x_strides[:-1]
    if p.variant != "forward":
        read += p.y_strides[:-1]
    if p.variant != "backward_weight" and not schedule.merged:
        read += (p.w_strides[0], p.w_strides[-2])
    written: tuple[int, ...] = ()
    merged = merged_groups(problem, schedule)
    apart = p.variant == "backward_weight" and (merged > 1 or p.group_channels % 64 > 0)  # in a place of its own
    by_rows = schedule.by_rows(p.signature)
    if (schedule.store == "tma" and not apart) or by_rows:
        written = {
            "forward": (p.y_strides[-2], p.group_filters * merged),
            "backward_data": (*(p.x_strides[:-1] if by_rows else p.x_strides[-2:-1]), p.group_channels * merged),
            "backward_weight": (p.w_strides[0],),
        }[p.variant]
    if (
        not p.aligned
        or any(one * size % LINE_BYTES or one < 1 for one in read)
        or any(one * result % LINE_BYTES for one in written)
    ):
        yield _violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")


def _groups(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    p, merged = problem, merged_groups(problem, schedule)
    if merged == 0:
        yield _violation("nv-groups", "no number of groups has channels that fill whole stages")
        return
    deep = p.group_filters if p.variant == "backward_data" else p.group_channels
    if p.variant != "backward_weight" and p.groups > merged and deep * merged % schedule.tile[2]:
        yield _violation("nv-groups", f"the {deep} channels of a group are no whole stages of {schedule.tile[2]}")
    # A walk may begin at whole 16 bytes of channels only: an H200 stops at others.
    each = (p.group_channels * merged, p.group_filters * merged)
    if p.variant == "backward_weight" and p.groups > merged and any(one * 2 % LINE_BYTES for one in each):
        yield _violation("nv-groups", f"the channels or filters of a group are no whole {LINE_BYTES} bytes")
    if merged > 1 and p.filters * prod(p.window) * p.group_channels * merged >= MOST:
        yield _violation("nv-groups", "2^31 or more weights of merged groups")


def _axes(problem: ConvProblem) -> Iterator[tuple[int, int, int, int, int, int]]:
    """Size, window, output, stride, dilation and padding before, of each dimension."""
    p = problem
    yield from zip(p.size, p.window, p.out, p.stride, p.dilation, p.before, strict=True)


def _walk(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """cuda/conv_walk.h."""
    p, data = problem, problem.variant == "backward_data"
    if p.batch == 0:
        yield _violation("nv-walk", "there are no images to walk over")
    if prod(p.window) > MOST_TAPS:
        yield _violation("nv-walk", f"a filter has more than {MOST_TAPS} taps")
    if any(one > MOST_STRIDE for one in p.stride):
        yield _violation("nv-walk", f"a stride is over {MOST_STRIDE}")
        return
    reach, farthest = (16, 31) if len(p.size) == 3 else (128, 255)
    walked = [(_class_axis if data else _pixel_axis)(*axis) for axis in _axes(p)]
    if any(far > farthest for _, _, far, _ in walked):
        yield _violation("nv-walk", "taps lie farther apart than the copy engine moves pixels")
    if any(not -reach <= edge < reach for first, last, _, _ in walked for edge in (first, last)):
        yield _violation("nv-walk", "padding or size of an edge is more than the copy engine walks over")
    classes = prod(min(stride, size) for size, _, _, stride, _, _ in _axes(p)) if data else 1
    if classes > MOST_CLASSES:
        yield _violation("nv-walk", f"strides make more than {MOST_CLASSES} classes of pixels")
    if classes > 1 and (schedule.store == "tma" or schedule.dealing != "tiles"):
        yield _violation("nv-walk", "strides over 1: results of this kernel must lie side by side")
    pixels = p.batch * prod(count for _, _, _, count in walked)
    if max(pixels, p.batch * prod(p.size if data else p.out)) >= MOST // 2 or max(p.channels, p.filters) >= MOST:
        yield _violation("nv-walk", "a size is 2^30 or more")


def _pixel_axis(size: int, window: int, out: int, stride: int, dilation: int, before: int) -> tuple[int, int, int, int]:
    """First pixel, how far the last lies behind the tensor's, how far taps move it, and how many there are."""
    return -before, -before + (out - 1) * stride - (size - 1), (window - 1) * dilation, out


def _class_axis(size: int, window: int, out: int, stride: int, dilation: int, before: int) -> tuple[int, int, int, int]:
    """The same of backward_data."""
    reads = [
        (rest + before - tap * dilation) // stride
        for rest in range(min(stride, size))
        for tap in range(window)
        if (rest + before - tap * dilation) % stride == 0
    ] or [0]
    pixels = -(-size // stride)
    return min(reads), min(reads) + pixels - 1 - (out - 1), max(reads) - min(reads), pixels


def _band_limits(schedule: BandSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_band.h."""
    p, data = problem, problem.variant == "backward_data"
    strides, merged = p.x_strides if data else p.y_strides, merged_groups(p, schedule)
    columns = (p.group_channels if data else p.group_filters) * merged
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*strides[:-1], columns)):
        yield _violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    if p.full_d:
        yield _violation("nv-band", "a D tensor is not one number a channel")
    if any(one != 1 for one in p.stride):
        yield _violation("nv-band", "a stride is over 1")
        return
    if prod(p.window[-2:]) == 1:
        yield _violation("nv-band", "there is one tap: no band is read twice")
    reach, farthest = (16, 31) if len(p.size) == 3 else (128, 255)
    walked = p.batch
    for axis, (size, window, out, _, dilation, before) in enumerate(reversed(list(_axes(p)))):
        far = (window - 1) * dilation
        first, count = (before - far, size) if data else (-before, out)
        count += far if axis < 2 else 0
        last = first + count - 1 - ((out if data else size) - 1)
        walked *= count
        if axis == 2 and far > farthest:
            yield _violation("nv-walk", "taps lie farther apart than the copy engine moves pixels")
        if not (-reach <= first < reach and -reach <= last < reach):
            yield _violation("nv-walk", "padding or size of an edge is more than the copy engine walks over")
    if walked >= MOST // 2 or max(p.channels, p.filters) >= MOST:
        yield _violation("nv-walk", "a size is 2^30 or more")
    if schedule.slice and not _sliced(schedule, p):
        yield _violation("nv-slice", "this kernel has slices of other groups")
    if band_rows(p) + schedule.tile[0] > schedule.band:
        yield _violation("nv-band", f"taps reach over more rows than a band of {schedule.band} has")


def side_by_side(problem: ConvProblem) -> int:
    """Groups that lie in 64 channels and in 64 filters together, in whole 16 bytes; 0: none do."""
    p, c, f = problem, problem.group_channels, problem.group_filters
    for merged in range(min(p.groups, 64), 0, -1):
        whole = p.groups == merged or not (merged * c % PIECE or merged * f % PIECE)
        if p.groups % merged == 0 and whole and (merged == 1 or (merged * c <= 64 and merged * f <= 64)):
            return merged
    return 0


def _band_weight_limits(schedule: BandWeightSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_band_weight.h."""
    p, h = problem, schedule
    if p.batch == 0:
        yield _violation("nv-walk", "there are no images to walk over")
    if not p.channels_last:
        yield _violation("nv-channels-last", "channels do not lie side by side")
        return
    if not _dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield _violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*p.x_strides[:-1], *p.y_strides[:-1])):
        yield _violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    merged = side_by_side(p)
    if not merged:
        yield _violation("nv-groups", f"the channels or filters of groups are no whole {LINE_BYTES} bytes")
        return
    if any(one != 1 for one in p.stride):
        yield _violation("nv-band", "a stride is over 1")
        return
    taps = prod(p.window[-2:])
    if not 1 < taps <= 9:
        yield _violation("nv-band", "a plane of the window has one tap, or more than nine")
    reach, farthest = (16, 31) if len(p.size) == 3 else (128, 255)
    walked = p.batch
    for axis, (size, window, out, _, dilation, before) in enumerate(reversed(list(_axes(p)))):
        far = (window - 1) * dilation
        count = out + (far if axis < 2 else 0)
        last = count - before - size
        walked *= count
        if axis == 2 and far > farthest:
            yield _violation("nv-walk", "taps lie farther apart than the copy engine moves pixels")
        if not (-reach <= -before < reach and -reach <= last < reach) or (axis < 2 and far >= reach):
            yield _violation("nv-walk", "padding or size of an edge is more than the copy engine walks over")
    if walked >= MOST // 2 or max(p.channels, p.filters) >= MOST:
        yield _violation("nv-walk", "a size is 2^30 or more")
    blocks = -(-merged * p.group_filters // 64) * -(-merged * p.group_channels // 64) * (p.groups // merged)
    planes = p.window[0] if len(p.window) == 3 else 1
    if prod(p.w_shape) >= MOST or blocks * planes * MOST_PROCESSORS >= MOST:
        yield _violation("nv-walk", "2^31 or more weights")
    if band_rows(p) + h.pixels > h.band:
        yield _violation("nv-band", f"taps reach over more rows than a band of {h.band} has")


MOST_PROCESSORS = 144  # that kernels count on at most


def _sliced(schedule: BandSchedule, problem: ConvProblem) -> bool:
    """Whether the slices of the kernel are those of the groups."""
    deep, wide = problem.group_channels, problem.group_filters
    if problem.variant == "backward_data":
        deep, wide = wide, deep
    merged = merged_groups(problem, schedule)
    if merged < 2 or deep * merged != 64 or wide * merged != schedule.tile[1] or (deep % 16 and 16 % deep):
        return False
    sharing, columns = (1, 16 // deep * wide) if deep <= 16 else (deep // 16, wide)
    return (sharing, columns) == (schedule.sharing, schedule.slice)


def band_rows(problem: ConvProblem) -> int:
    """Rows that the taps of a plane reach beyond a tile."""
    p = problem
    width = (p.size if p.variant == "backward_data" else p.out)[-1] + (p.window[-1] - 1) * p.dilation[-1]
    height = (p.window[-2] - 1) * p.dilation[-2] if len(p.window) > 1 else 0
    return (p.window[-1] - 1) * p.dilation[-1] + height * width


PIECE = 8  # channels of a padded copy are whole 8s


def _padded_limits(problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_padded.h."""
    p = problem
    if p.batch == 0:
        yield _violation("nv-walk", "there are no images to walk over")
        return
    if p.groups != 1 and (p.group_channels % PIECE or p.group_filters % PIECE):
        yield _violation("nv-groups", f"the channels or filters of a group are no whole {PIECE}s")
        return
    if min((*p.x_strides, *p.w_strides, *p.y_strides)) < 1:
        yield _violation("nv-padded", "a stride is below 1")
        return
    if p.num_d and p.filters % PIECE:
        yield _violation("nv-padded", "D tensors are not copied, and filters are no whole 8s")
    if p.full_d and p.y_strides[-1] != 1:
        yield _violation("nv-padded", "D tensors are not copied, and channels lie apart")
    copied = padded_copies(p)
    if not copied:
        yield _violation("nv-padded", "nothing is there to be copied")
    larger = padded(p)
    if any(prod(getattr(larger, f"{one}_shape")) >= MOST for one in copied):
        yield _violation("nv-walk", "2^31 or more elements to copy")


def padded_copies(problem: ConvProblem) -> str:
    """Which of x, w and y are copied: their channels or filters are no whole 8s, or they are not aligned."""
    p, found = problem, ""
    result = {"forward": "y", "backward_data": "x", "backward_weight": "w"}[p.variant]
    for one, odd in (
        ("x", p.channels % PIECE),
        ("w", p.channels % PIECE or p.filters % PIECE),
        ("y", p.filters % PIECE),
    ):
        size = DTYPES[p.dtype_out if one == result else p.dtype].bytes
        *strides, channel = getattr(p, f"{one}_strides")
        if odd or not p.aligned or channel != 1 or any(stride * size % LINE_BYTES for stride in strides):
            found += one
    return found


def padded(problem: ConvProblem) -> ConvProblem:
    """The convolution of aligned copies."""
    p, copied = problem, padded_copies(problem)
    x, w, y = (() if one in copied else getattr(p, f"{one}_strides") for one in "xwy")
    channels, filters = (-(-one // PIECE) * PIECE for one in (p.channels, p.filters))
    return replace(p, channels=channels, filters=filters, aligned=True, x_strides=x, w_strides=w, y_strides=y)


FOLDED_PIXEL, FOLDED_WIDTH, FOLDED_COLUMNS = 8, 64, 64  # cuda/conv_folded_shape.h


def _folded_limits(problem: ConvProblem) -> Iterator[Violation]:
    """conv_host_folded.h."""
    p, data = problem, problem.variant == "backward_data"
    if p.batch == 0:
        yield _violation("nv-walk", "there are no images to walk over")
        return
    if p.groups != 1:
        yield _violation("nv-groups", "there are groups")
    if p.channels * prod(p.stride) > FOLDED_COLUMNS if data else p.channels > FOLDED_PIXEL:
        yield _violation("nv-folded", "there are too many channels to fold")
    if not data and (p.window[-1] > FOLDED_WIDTH // FOLDED_PIXEL or p.dilation[-1] != 1):
        yield _violation("nv-folded", "the window is too wide to fold")
    if not p.channels_last:
        yield _violation("nv-channels-last", "channels do not lie side by side")
        return
    if not _dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield _violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if max(folded_elements(p)) * 2 >= MOST or p.batch * prod(p.size) >= MOST // 2:
        yield _violation("nv-walk", "2^30 or more elements to copy")


def folded_elements(problem: ConvProblem) -> tuple[int, int, int]:
    """Of the copies of pixels, weights and results."""
    p = problem
    if p.variant == "backward_data":
        inner = folded(p)
        return 0, prod(inner.w_shape), prod(inner.y_shape)
    wide = (p.out[-1] - 1) * p.stride[-1] + FOLDED_WIDTH // FOLDED_PIXEL
    return p.batch * prod(p.size[:-1]) * wide * FOLDED_PIXEL, p.filters * prod(p.window[:-1]) * FOLDED_WIDTH, 0


def folded(problem: ConvProblem) -> ConvProblem:
    """The convolution of many channels that a folded one is computed as."""
    p = problem
    if p.variant == "backward_data":
        return _folded_data(p)
    starts = (p.out[-1] - 1) * p.stride[-1] + 1
    strides = [FOLDED_PIXEL, (starts + FOLDED_WIDTH // FOLDED_PIXEL - 1) * FOLDED_PIXEL]
    for size in reversed(p.size[:-1]):
        strides.append(strides[-1] * size)
    return replace(
        p,
        channels=FOLDED_WIDTH,
        size=(*p.size[:-1], starts),
        window=(*p.window[:-1], 1),
        dilation=(*p.dilation[:-1], 1),
        before=(*p.before[:-1], 0),
        after=(*p.after[:-1], 0),
        x_strides=(*reversed(strides), 1),
        w_strides=(),
        aligned=True,
    )


def _folded_data(p: ConvProblem) -> ConvProblem:
    """Over y, with the pixels of x that lie in one stride as filters."""
    axes = [_class_axis(max(size, stride), w, o, stride, d, b) for size, w, o, stride, d, b in _axes(p)]
    before, window = tuple(-first for first, _, _, _ in axes), tuple(far + 1 for _, _, far, _ in axes)
    out = (-(-size // stride) for size, stride in zip(p.size, p.stride, strict=True))
    after = tuple(o - 1 + w - y - b for o, w, y, b in zip(out, window, p.out, before, strict=True))
    return ConvProblem(
        batch=p.batch,
        channels=p.filters,
        filters=-(-p.channels * prod(p.stride) // 8) * 8,
        size=p.out,
        window=window,
        before=before,
        after=after,
        dtype=p.dtype,
        dtype_out=p.dtype_out,
        x_strides=p.y_strides,
        aligned=p.aligned,
    )


def generic_schedule(signature: ConvSignature, arch: Arch) -> ConvSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()
