"""Convolutions over bands of pixels on NVIDIA GPUs: what is legal, and what a legal kernel was not made for."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tilewright.arch import Arch
from tilewright.backends.cuda.conv import resources
from tilewright.backends.cuda.conv.places import LINE_BYTES, MOST, PIECE, axes, dense_pixels, merged_groups, violation
from tilewright.backends.cuda.conv.schedules import BandSchedule, BandWeightSchedule, band_shared_bytes
from tilewright.dtypes import DTYPES
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule
from tilewright.ops.conv.spec import ConvSignature

MOST_BAND = 1024  # pixels of one walk
MOST_STRIDE = 8  # from pixel to pixel of a walk
MOST_KINDS = 343  # cuda/conv/tma_ws/shape.h
MOST_PROCESSORS = 144  # that kernels count on at most


def rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
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
    if (
        m not in (64, 128, 192, 256)
        or n % 16
        or n > 256
        or k not in (32, 64)
        or m // 64 * n // 2 > resources.MAX_ACCUMULATORS
    ):
        yield Violation(
            "nv-tile-m", f"tile {m}x{n}x{k}", "use 64, 128 or 192 rows, whole 16s of columns, 32 or 64 of k"
        )
    if k == 32 and schedule.merged:
        yield Violation("nv-band", "merged groups fill a stage, which has 64 channels", "use 64 of k")
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


def weight_rules(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
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


def limits(schedule: BandSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/band/host.h."""
    p, data = problem, problem.variant == "backward_data"
    strides, merged = p.x_strides if data else p.y_strides, merged_groups(p, schedule)
    columns = (p.group_channels if data else p.group_filters) * merged
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*strides[:-1], columns)):
        yield violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    if p.full_d:
        yield violation("nv-band", "a D tensor is not one number a channel")
    deep = p.filters if data else p.channels
    if schedule.tile[2] < 64 and (p.groups > 1 or deep > schedule.tile[2]):
        yield violation("nv-band", f"more channels than the {schedule.tile[2]} that this kernel multiplies")
    if any(one != 1 for one in p.stride) and data:
        yield violation("nv-band", "a stride is over 1")
        return
    if any(one > MOST_STRIDE for one in p.stride):
        yield violation("nv-band", f"a stride is over {MOST_STRIDE}")
        return
    if any(step > 1 and apart > 1 for step, apart in zip(p.stride[-2:], p.dilation[-2:], strict=True)):
        yield violation("nv-band", "a stride and a dilation are over 1")
        return
    if taps_of_band(p) == 1:
        yield violation("nv-band", "there is one tap: no band is read twice")
    if band_kinds(p) > MOST_KINDS:
        yield violation("nv-band", "strides make more kinds of bands than this kernel counts")
    reach, farthest = (16, 31) if len(p.size) == 3 else (128, 255)
    walked = p.batch
    for axis, (size, window, out, step, dilation, before) in enumerate(reversed(list(axes(p)))):
        far = (window - 1) * dilation
        first, count = (before - far, size) if data else (-before, out)
        count += far // step if axis < 2 else 0
        last = first + (count - 1) * step - ((out if data else size) - 1)
        walked *= count
        if axis == 2 and far > farthest:
            yield violation("nv-walk", "taps lie farther apart than the copy engine moves pixels")
        if not (-reach <= first < reach and -reach <= last < reach):
            yield violation("nv-walk", "padding or size of an edge is more than the copy engine walks over")
    if walked >= MOST // 2 or max(p.channels, p.filters) >= MOST:
        yield violation("nv-walk", "a size is 2^30 or more")
    if schedule.slice and band_kinds(p) > 1:
        yield violation("nv-slice", "slices take one band a tile: warpgroups that take no turns would meet there")
    if schedule.slice and not _sliced(schedule, p):
        yield violation("nv-slice", "this kernel has slices of other groups")
    if band_rows(p) + schedule.tile[0] > schedule.band:
        yield violation("nv-band", f"taps reach over more rows than a band of {schedule.band} has")


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
    """Rows that the taps of a band reach beyond a tile."""
    p = problem
    far = [(w - 1) * d // s for w, d, s in zip(p.window[-2:], p.dilation[-2:], p.stride[-2:], strict=True)]
    width = (p.size if p.variant == "backward_data" else p.out)[-1] + far[-1]
    return far[-1] + (far[-2] * width if len(far) > 1 else 0)


def taps_of_band(problem: ConvProblem) -> int:
    """At most: those that lie whole strides apart in a plane."""
    return prod(-(-w // s) for w, s in zip(problem.window[-2:], problem.stride[-2:], strict=True))


def band_kinds(problem: ConvProblem) -> int:
    """Planes of taps, and residues in each."""
    p = problem
    return prod(p.window[:-2]) * prod(min(w, s) for w, s in zip(p.window[-2:], p.stride[-2:], strict=True))


def side_by_side(problem: ConvProblem) -> int:
    """Groups that lie in 64 channels and in 64 filters together, in whole 16 bytes; 0: none do."""
    p, c, f = problem, problem.group_channels, problem.group_filters
    for merged in range(min(p.groups, 64), 0, -1):
        whole = p.groups == merged or not (merged * c % PIECE or merged * f % PIECE)
        if p.groups % merged == 0 and whole and (merged == 1 or (merged * c <= 64 and merged * f <= 64)):
            return merged
    return 0


def weight_limits(schedule: BandWeightSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """conv/band_weight/host.h."""
    p, h = problem, schedule
    if p.batch == 0:
        yield violation("nv-walk", "there are no images to walk over")
    if not p.channels_last:
        yield violation("nv-channels-last", "channels do not lie side by side")
        return
    if not dense_pixels(p.w_strides, (1, *p.w_shape[1:])):
        yield violation("nv-dense", "the taps of a filter do not lie at equal distances")
    if not p.aligned or any(one * 2 % LINE_BYTES or one < 1 for one in (*p.x_strides[:-1], *p.y_strides[:-1])):
        yield violation("nv-alignment", f"an address or a stride is not a multiple of {LINE_BYTES} bytes")
    merged = side_by_side(p)
    if not merged:
        yield violation("nv-groups", f"the channels or filters of groups are no whole {LINE_BYTES} bytes")
        return
    if any(one != 1 for one in p.stride):
        yield violation("nv-band", "a stride is over 1")
        return
    taps = prod(p.window[-2:])
    if not 1 < taps <= 9:
        yield violation("nv-band", "a plane of the window has one tap, or more than nine")
    reach, farthest = (16, 31) if len(p.size) == 3 else (128, 255)
    walked = p.batch
    for axis, (size, window, out, _, dilation, before) in enumerate(reversed(list(axes(p)))):
        far = (window - 1) * dilation
        count = out + (far if axis < 2 else 0)
        last = count - before - size
        walked *= count
        if axis == 2 and far > farthest:
            yield violation("nv-walk", "taps lie farther apart than the copy engine moves pixels")
        if not (-reach <= -before < reach and -reach <= last < reach) or (axis < 2 and far >= reach):
            yield violation("nv-walk", "padding or size of an edge is more than the copy engine walks over")
    if walked >= MOST // 2 or max(p.channels, p.filters) >= MOST:
        yield violation("nv-walk", "a size is 2^30 or more")
    blocks = -(-merged * p.group_filters // 64) * -(-merged * p.group_channels // 64) * (p.groups // merged)
    planes = p.window[0] if len(p.window) == 3 else 1
    if prod(p.w_shape) >= MOST or blocks * planes * MOST_PROCESSORS >= MOST:
        yield violation("nv-walk", "2^31 or more weights")
    if band_rows(p) + h.pixels > h.band:
        yield violation("nv-band", f"taps reach over more rows than a band of {h.band} has")
