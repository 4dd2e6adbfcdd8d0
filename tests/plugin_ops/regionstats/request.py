"""Arrays to the two stages of a call."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from regionstats.args import RANK, CombineArgs, PartialArgs, Region
from regionstats.problem import MOST_RANK, RegionstatsProblem, violations
from regionstats.spec import OP
from tilewright.errors import ProblemError
from tilewright.runtime.arrays import View
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.requests import BETWEEN, Pointer, Request, Result, Scalar, Slot, StageRequest

# What the stages hand on has slots too, for a stage that is called by itself: written by one, read by the other.
SLOTS = (
    Slot("x", optional=True),  # stage combine does without
    Slot("lengths", holds="0 to the first spatial size"),
    Slot("weight", optional=True),
    Slot("shift", optional=True),
    Slot("mean", written=True, optional=True),
    Slot("peak", written=True, optional=True),
    Slot("sums", written=True, optional=True),
    Slot("peaks", written=True, optional=True),
    Slot("given_sums", optional=True),
    Slot("given_peaks", optional=True),
)
X, LENGTHS, WEIGHT, SHIFT, MEAN, PEAK, SUMS, PEAKS, GIVEN_SUMS, GIVEN_PEAKS = range(len(SLOTS))
_PARTIAL: Any = PartialArgs
_COMBINE: Any = CombineArgs
_AT_LENGTHS: int = getattr(Region, "lengths").offset  # noqa: B009  (a descriptor, which mypy takes for the field)


def _region(problem: RegionstatsProblem) -> Region:
    behind = (1,) * (RANK - len(problem.spatial))
    region = Region(n=problem.n, channels=problem.channels, chunks=problem.chunks)
    region.size[:], region.step[:] = (*problem.spatial, *behind), (*problem.dilation, *behind)
    return region


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[one + 1 :]) for one in range(len(shape)))


def partial(problem: RegionstatsProblem, strides: Sequence[int] = (), between: bool = False) -> StageRequest:
    """Sums and maxima go into the workspace between the stages, or into slots where the stage is alone."""
    p = problem.at("partial")
    strides = strides or _dense((p.n, *p.spatial, p.channels))
    args = PartialArgs(region=_region(p), x_stride=strides[0])
    args.x_spatial_stride[:] = (*strides[1:-1], *(0,) * (RANK - len(p.spatial)))
    sums, peaks = (BETWEEN, BETWEEN) if between else (SUMS, PEAKS)
    pointers = [
        Pointer(_PARTIAL.region.offset + _AT_LENGTHS, LENGTHS),
        Pointer(_PARTIAL.x.offset, X),
        Pointer(_PARTIAL.sums.offset, sums),
        Pointer(_PARTIAL.peaks.offset, peaks, shift=p.part_bytes if between else 0),
    ]
    pointers += [Pointer(_PARTIAL.weight.offset, WEIGHT)] * p.weight + [Pointer(_PARTIAL.shift.offset, SHIFT)] * p.shift
    return StageRequest(p, args, tuple(pointers), (Scalar(_PARTIAL.scale.offset, 0),))


def combine(problem: RegionstatsProblem, strides: tuple[int, int] = (0, 0), between: bool = False) -> StageRequest:
    p = problem.at("combine")
    mean, peak = (max(1, one or p.channels) for one in strides)
    args = CombineArgs(region=_region(p), mean_stride=mean, peak_stride=peak)
    sums, peaks = (BETWEEN, BETWEEN) if between else (GIVEN_SUMS, GIVEN_PEAKS)
    pointers = (
        Pointer(_COMBINE.region.offset + _AT_LENGTHS, LENGTHS),
        Pointer(_COMBINE.sums.offset, sums),
        Pointer(_COMBINE.peaks.offset, peaks, shift=p.part_bytes if between else 0),
        Pointer(_COMBINE.mean.offset, MEAN),
        Pointer(_COMBINE.peak.offset, PEAK),
    )
    return StageRequest(p, args, pointers)


def _results(problem: RegionstatsProblem) -> tuple[Result, Result]:
    shape, strides = (problem.n, problem.channels), (max(1, problem.channels), 1)
    return Result(MEAN, shape, strides, "fp32"), Result(PEAK, shape, strides, problem.dtype)


def alone(problem: RegionstatsProblem) -> Request:
    """A stage by itself, on dense operands."""
    p = problem
    if p.stage == "combine":
        return Request(OP, (combine(p),), _results(p))
    shape = (p.n, p.chunks, p.channels)
    results = tuple(Result(slot, shape, _dense(shape), "fp32") for slot in (SUMS, PEAKS))
    return Request(OP, (partial(p),), results)


def both(problem: RegionstatsProblem, x: Sequence[int] = (), results: tuple[int, int] = (0, 0)) -> Request:
    """The two stages with the workspace between them; `x` and `results` are strides where they are not dense."""
    stages = partial(problem, x, between=True), combine(problem, results, between=True)
    return Request(OP, stages, _results(problem), between_bytes=2 * problem.part_bytes)


def _wrong(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


def _vector(what: str, view: View | None, size: int, dtype: str) -> None:
    if view is None:
        return
    if view.shape != (size,) or view.dtype != dtype:
        message = f"{what} is {view.dtype} of shape {view.shape}"
        raise _wrong(f"regionstats-{what}", message, view.shape, f"give {size} numbers of {dtype}")
    if size > 1 and view.strides[0] != 1:
        message = f"{what} has a stride of {view.strides[0]}"
        raise copy_needed(what, message, rule="regionstats-strides", value=view.strides)


def _row_stride(what: str, view: View | None, problem: RegionstatsProblem, dtype: str) -> int:
    if view is None:
        return 0
    shape = (problem.n, problem.channels)
    if view.shape != shape or view.dtype != dtype:
        message = f"{what} is {view.dtype} of shape {view.shape}, the result {dtype} of shape {shape}"
        raise _wrong("regionstats-out", message, view.shape, "give one like the result, or none")
    if 0 in shape or (shape[0] == 1 and (shape[1] == 1 or view.strides[1] == 1)):
        return 0
    if (shape[1] > 1 and view.strides[1] != 1) or view.strides[0] < shape[1]:
        message = f"the rows of {what} do not follow each other: its strides are {view.strides}"
        raise _wrong("regionstats-out", message, view.strides, "give a result with contiguous rows")
    return view.strides[0]


def request(views: Sequence[Any], dilation: object) -> Request:
    """Two stages for these arrays, or the first contradiction."""
    x, lengths, weight, shift, mean, peak, *_ = views
    if x is None:
        raise _wrong("array-type", "x is None, not an array", "None", "give (n, spatial sizes, channels)")
    if not 1 <= len(x.shape) - 2 <= MOST_RANK:
        remedy = f"give (n, 1 to {MOST_RANK} spatial sizes, channels)"
        raise _wrong("regionstats-rank", f"x has shape {x.shape}", x.shape, remedy)
    n, *spatial, channels = x.shape
    if not isinstance(dilation, tuple) or not all(type(one) is int for one in dilation):
        raise _wrong(
            "regionstats-dilation", f"dilation is {dilation!r}", str(dilation), "give a tuple of whole numbers"
        )
    problem = RegionstatsProblem(n, tuple(spatial), channels, x.dtype, dilation, weight is not None, shift is not None)
    for broken in violations(problem):
        raise _wrong(broken.rule, f"{problem.describe()}: {broken.message}", broken.rule, broken.remedy)
    _vector("lengths", lengths, n, "int32")
    _vector("weight", weight, channels, "fp32")
    _vector("shift", shift, channels, "fp32")
    if channels > 1 and 0 not in x.shape and x.strides[-1] != 1:
        message = f"the channels of x are not contiguous: its strides are {x.strides}"
        raise copy_needed("x", message, rule="regionstats-strides", value=x.strides)
    strides = (_row_stride("mean", mean, problem, "fp32"), _row_stride("peak", peak, problem, x.dtype))
    return both(problem, x.strides, strides)
