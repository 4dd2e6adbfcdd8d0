"""Convolution on NVIDIA GPUs: what is legal, and what a legal kernel was not made for.

tma_ws   sm_90a: an implicit GEMM.  The copy engine walks over pixels (im2col maps) and feeds wgmma; channels side by
         side in multiples of 16 bytes; groups of few channels `merged` into one, block-diagonal
band     the same of a window that moves pixel by pixel: bands of pixels are fetched once for all its taps
band_weight  backward_weight of such windows: k is pixels, whose bands serve all taps of a plane
folded   the same of few channels (images): pixels of a row fold into channels, in a copy
first_weight  backward_weight of few channels: lines of a row of x are operands as they lie, spread out by warps
pointwise_*  windows of one pixel by GEMM's kernels: tma_ws, the same turned, multistage, few rows or columns
depthwise_tile  a filter for each channel, warps slide square windows over tiles that the copy engine brings
depthwise_mma  backward_weight of such windows of up to 7x8 taps, pixel by pixel, by matrix instructions
depthwise  the same of any window: threads slide it over pixels in registers; channels in whole vectors
gather   whatever else: an implicit GEMM whose operands cp.async gathers piece by piece, wherever they lie
loops    the floor: any size, stride and element type

padded   tma_ws in copies: of channels or filters that are no whole 8s, memory that is not aligned, channels apart;
         padded_band and so on are the others, where channels lie apart; depthwise, where they are no whole 8s, too
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.arch import Arch
from tilewright.backends.cuda.conv import bands, depthwise, first, gather, pointwise, resources
from tilewright.backends.cuda.conv.copies import (
    copies_told,
    folded,
    folded_limits,
    padded,
    padded_limits,
    without_copies,
)
from tilewright.backends.cuda.conv.gather_schedules import GatherSchedule
from tilewright.backends.cuda.conv.places import (
    LINE_BYTES,
    MOST,
    axes,
    class_axis,
    dense_pixels,
    merged_groups,
    odd_columns,
    pixel_axis,
    violation,
)
from tilewright.backends.cuda.conv.schedules import (
    BandSchedule,
    BandWeightSchedule,
    ConvTmaWsSchedule,
    DepthwiseMmaSchedule,
    DepthwiseSchedule,
    DepthwiseTileSchedule,
    FirstWeightSchedule,
)
from tilewright.backends.cuda.conv.schedules import schedules as own_schedules
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule, LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules

__all__ = ["RULES", "SCHEDULES", "generic_schedule", "limits", "remarks", "schedules", "signature_rules"]

USUAL = "bf16"
SCHEDULES: tuple[type[ConvSchedule], ...] = (
    ConvTmaWsSchedule,
    BandSchedule,
    BandWeightSchedule,
    DepthwiseTileSchedule,
    DepthwiseSchedule,
    LoopsSchedule,
    FirstWeightSchedule,  # these last: shipped models know the features in this order
    DepthwiseMmaSchedule,
    *pointwise.SCHEDULES,
    GatherSchedule,
)
MOST_STRIDE = 8  # from pixel to pixel of a walk
MOST_TAPS, MOST_CLASSES = 343, 27  # cuda/conv/tma_ws/shape.h


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


def _folded(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    if not isinstance(schedule, ConvTmaWsSchedule) or resources.inside(schedule.pipeline) != "folded":
        return
    if DTYPES[signature.dtype].bytes != 2:
        message = f"{schedule.pipeline} pixels are of two-byte elements, not {signature.dtype}"
        yield Violation("nv-inputs", message, "use bf16 or fp16")
    if schedule.store == "tma" and signature.variant == "backward_data":
        yield Violation("nv-tma-store", "folded sums of backward_data leave as floats", "use the direct store")
    if schedule.merged:
        yield Violation("nv-groups", "folded kernels have one group", "leave merged out")


RULES = (
    _signature,
    _tma_ws,
    _folded,
    bands.rules,
    bands.weight_rules,
    first.rules,
    depthwise.tile_rules,
    depthwise.mma_rules,
    depthwise.rules,
    pointwise.rules,
    gather.rules,
)


def limits(schedule: ConvSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    if problem.batch == 0 and problem.variant != "backward_weight":
        return
    if schedule.pipeline in resources.IN_COPIES:
        broken = list(padded_limits(problem, schedule))
        yield from broken
        if broken:
            return
        schedule, problem = without_copies(schedule), padded(problem, schedule)
    if isinstance(schedule, ConvTmaWsSchedule):
        if schedule.pipeline == "folded":
            broken = list(folded_limits(problem))
            yield from broken
            if broken:
                return
            problem = folded(problem)
        yield from _layout(schedule, problem)
        yield from _groups(schedule, problem)
        yield from _walk(schedule, problem)
    if isinstance(schedule, BandSchedule):
        twin = ConvTmaWsSchedule("tma_ws", schedule.tile, 2, merged=schedule.merged)
        yield from _layout(twin, problem)
        yield from _groups(twin, problem)
        yield from bands.limits(schedule, problem)
    if isinstance(schedule, BandWeightSchedule):
        yield from bands.weight_limits(schedule, problem)
    if isinstance(schedule, FirstWeightSchedule):
        yield from first.limits(schedule, problem)
    if isinstance(schedule, DepthwiseTileSchedule):
        yield from depthwise.tile_limits(schedule, problem)
    if isinstance(schedule, DepthwiseMmaSchedule):
        yield from depthwise.mma_limits(schedule, problem)
    if isinstance(schedule, DepthwiseSchedule):
        yield from depthwise.limits(schedule, problem)
    if isinstance(schedule, pointwise.SCHEDULES):
        yield from pointwise.limits(schedule, problem)
    if isinstance(schedule, GatherSchedule):
        yield from gather.limits(schedule, problem)


def _layout(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    p = problem
    if not p.channels_last:
        yield violation("nv-channels-last", "channels do not lie side by side")
        return
    # Taps of one filter, as pixels of one image.
    if not dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield violation("nv-dense", "the taps of a filter do not lie at equal distances")
    by_classes = schedule.store == "direct" and schedule.dealing == "tiles"
    if p.variant != "backward_data" and not dense_pixels(p.y_strides, p.y_shape):
        yield violation("nv-dense", "the pixels of y do not lie at equal distances")
    if p.variant == "backward_data" and not by_classes and not dense_pixels(p.x_strides, p.x_shape):
        yield violation("nv-dense", "the pixels of x do not lie at equal distances")
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
    apart = p.variant == "backward_weight" and (merged > 1 or odd_columns(p))  # in a place of its own
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
        yield violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")


def _groups(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    p, merged = problem, merged_groups(problem, schedule)
    if merged == 0:
        yield violation("nv-groups", "no number of groups has channels that fill whole stages")
        return
    deep = p.group_filters if p.variant == "backward_data" else p.group_channels
    if p.variant != "backward_weight" and p.groups > merged and deep * merged % schedule.tile[2]:
        yield violation("nv-groups", f"the {deep} channels of a group are no whole stages of {schedule.tile[2]}")
    # A walk may begin at whole 16 bytes of channels only: an H200 stops at others.
    each = (p.group_channels * merged, p.group_filters * merged)
    if p.variant == "backward_weight" and p.groups > merged and any(one * 2 % LINE_BYTES for one in each):
        yield violation("nv-groups", f"the channels or filters of a group are no whole {LINE_BYTES} bytes")
    if merged > 1 and p.filters * prod(p.window) * p.group_channels * merged >= MOST:
        yield violation("nv-groups", "2^31 or more weights of merged groups")


def _walk(schedule: ConvTmaWsSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """cuda/conv/traversal.h."""
    p, data = problem, problem.variant == "backward_data"
    if p.batch == 0:
        yield violation("nv-walk", "there are no images to walk over")
    if prod(p.window) > MOST_TAPS:
        yield violation("nv-walk", f"a filter has more than {MOST_TAPS} taps")
    if any(one > MOST_STRIDE for one in p.stride):
        yield violation("nv-walk", f"a stride is over {MOST_STRIDE}")
        return
    reach, farthest = (16, 31) if len(p.size) == 3 else (128, 255)
    walked = [(class_axis if data else pixel_axis)(*axis) for axis in axes(p)]
    if any(far > farthest for _, _, far, _ in walked):
        yield violation("nv-walk", "taps lie farther apart than the copy engine moves pixels")
    if any(not -reach <= edge < reach for first, last, _, _ in walked for edge in (first, last)):
        yield violation("nv-walk", "padding or size of an edge is more than the copy engine walks over")
    classes = prod(min(stride, size) for size, _, _, stride, _, _ in axes(p)) if data else 1
    if classes > MOST_CLASSES:
        yield violation("nv-walk", f"strides make more than {MOST_CLASSES} classes of pixels")
    if classes > 1 and (schedule.store == "tma" or schedule.dealing != "tiles"):
        yield violation("nv-walk", "strides over 1: results of this kernel must lie side by side")
    pixels = p.batch * prod(count for _, _, _, count in walked)
    if max(pixels, p.batch * prod(p.size if data else p.out)) >= MOST // 2 or max(p.channels, p.filters) >= MOST:
        yield violation("nv-walk", "a size is 2^30 or more")


def remarks(schedule: ConvSchedule, problem: ConvProblem) -> list[str]:
    """Which copies a kernel makes."""
    if schedule.pipeline not in resources.IN_COPIES or problem.batch == 0:
        return []
    return [copies_told(problem, schedule)]


def schedules(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[ConvSchedule]:
    """What a pool proposes for a signature."""
    yield from own_schedules(pool, signature, arch)
    yield from pointwise.schedules(signature, arch)


def generic_schedule(signature: ConvSignature, arch: Arch) -> ConvSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()
