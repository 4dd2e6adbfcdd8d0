"""A convolution's problem as a request, and a call's operands in copies for kernels that want other memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.conv.patches import joined_patches
from tilewright.ops.conv.problem import ConvProblem, Sizes, dense_strides
from tilewright.ops.conv.spec import OP
from tilewright.runtime.bindings.conv.args import SPATIAL, ConvArgs
from tilewright.runtime.bindings.conv.operands import D0, OUT, PLACES, SLOTS
from tilewright.runtime.requests import Copy, Pointer, Request, Result, Span, StageRequest

_FIELDS: Any = ConvArgs


class DTensor(NamedTuple):
    """A D tensor: its slot and its strides over y's shape, 0 where it repeats."""

    slot: int
    strides: Sizes


def _three(sizes: Sizes, missing: int) -> Sizes:
    """Spatial numbers of three dimensions; the leading ones are added."""
    return (*(missing,) * (SPATIAL - len(sizes)), *sizes)


def _five(shape: Sizes, strides: Sizes) -> Sizes:
    """Strides of three spatial dimensions: those added, of size 1, have what dense memory has."""
    outer = strides[1] * max(1, shape[1])
    return (strides[0], *(outer,) * (SPATIAL + 2 - len(strides)), *strides[1:])


def _five_of_d(strides: Sizes) -> Sizes:
    return (strides[0], *(0,) * (SPATIAL + 2 - len(strides)), *strides[1:])


def stage(problem: ConvProblem, ds: Sequence[DTensor] = ()) -> StageRequest:
    """The one kernel of a call: sizes and strides of one group's problem, and where pointers go."""
    p = problem
    args = ConvArgs(batch=p.batch, groups=p.groups, channels=p.group_channels, filters=p.group_filters)
    for name, missing in (("size", 1), ("window", 1), ("out", 1), ("stride", 1), ("dilation", 1), ("before", 0)):
        getattr(args, name)[:] = _three(getattr(p, name), missing)
    places = PLACES[p.variant]
    pointers = []
    for name in "xwy":
        getattr(args, f"{name}_strides")[:] = _five(getattr(p, f"{name}_shape"), getattr(p, f"{name}_strides"))
        pointers.append(Pointer(getattr(_FIELDS, name).offset, places[name]))
    for index, d in enumerate(ds):
        args.d_strides[index][:] = _five_of_d(d.strides)
        pointers.append(Pointer(_FIELDS.d.offset + 8 * index, d.slot))
    return StageRequest(p, args, tuple(pointers))


def written_shape(problem: ConvProblem) -> tuple[str, Sizes]:
    """Which of x, w and y is the result, and its shape in our order."""
    name = next(operand for operand, slot in PLACES[problem.variant].items() if slot == OUT)
    shape: Sizes = getattr(problem, f"{name}_shape")
    return name, shape


def sampled_ds(problem: ConvProblem) -> list[DTensor]:
    """The D tensors of made-up operands: first those of one number a channel, then those as large as y."""
    rank, p = len(problem.size) + 2, problem
    vectors = p.num_d - p.full_d
    return [
        DTensor(D0 + index, (*(0,) * (rank - 1), 1) if index < vectors else dense_strides(p.y_shape))
        for index in range(p.num_d)
    ]


def dense(problem: ConvProblem) -> Request:
    """The request of operands laid out exactly as the problem says."""
    name, shape = written_shape(problem)
    result = Result(OUT, shape, dense_strides(shape), problem.dtype_out)
    sizes = dict.fromkeys(range(len(SLOTS)), 0)
    if not problem.aligned:
        for operand, slot in PLACES[problem.variant].items():
            sizes[slot] = DTYPES[problem.dtype_out if operand == name else problem.dtype].bytes
    spans = tuple(Span(probe=64 + sizes[slot]) for slot in range(len(SLOTS)))
    return Request(OP, (stage(joined_patches(problem), sampled_ds(problem)),), (result,), spans=spans)


def _by_group(problem: ConvProblem, name: str, strides: Sizes) -> tuple[Sizes, Sizes]:
    """Shape and strides of x, w or y with the groups as a dimension of their own."""
    p, groups = problem, problem.groups
    if name == "w":
        shape = (groups, p.group_filters, *p.window, p.group_channels)
        return shape, (strides[0] * p.group_filters, *strides)
    pixels, each = (p.size, p.group_channels) if name == "x" else (p.out, p.group_filters)
    return (p.batch, *pixels, groups, each), (*strides[:-1], strides[-1] * each, strides[-1])


def _even(shape: Sizes, strides: Sizes) -> bool:
    """Whether pixels have one stride, images too."""
    apart = strides[-2] * shape[-2]
    for size, stride in zip(reversed(shape[:-2]), reversed(strides[:-2]), strict=True):
        if size > 1 and stride != apart:
            return False
        apart *= size
    return True


def _as_gpus_read(shape: Sizes, strides: Sizes) -> bool:
    """Kernels of GPUs take D tensors of one number a channel, and those with the layout of y: contiguous channels,
    pixels of one stride."""
    return strides[-1] == 1 and _even(shape, strides)


def _d_copy(
    problem: ConvProblem, larger: ConvProblem, pointer: int, strides: Sizes, for_gpu: bool
) -> tuple[Copy, Sizes]:
    """A D tensor in dense channels-last memory, filled up where the larger problem has more filters; its strides.
    What repeats stays so, where the kernel takes that."""
    size, repeats = DTYPES[problem.dtype_d].bytes, [step == 0 for step in strides]
    if for_gpu:
        repeats = [not any(strides[:-1]) and index < len(strides) - 1 for index in range(len(strides))]
    kept = tuple(1 if again else count for count, again in zip(problem.y_shape, repeats, strict=True))
    shape = (*kept[:-1], problem.groups, problem.group_filters)
    steps = (*strides[:-1], strides[-1] * problem.group_filters, strides[-1])
    padded = (*kept[:-1], larger.groups, larger.group_filters)
    new = dense_strides((*kept[:-1], larger.filters))
    copy = Copy(pointer, shape, tuple(step * size for step in steps), padded, size)
    return copy, tuple(0 if again else step for again, step in zip(repeats, new, strict=True))


def with_ds(
    request: StageRequest, ds: Sequence[DTensor], before: ConvProblem | None = None, *, for_gpu: bool = False
) -> StageRequest:
    """A stage (made without) with its D tensors, in copies where kernels read another layout: where
    channels of y are contiguous, so are theirs.  `before`: the problem whose D tensors they are."""
    p = request.problem
    if not ds:
        return request
    before = before or p
    copies, laid = list(request.copies), []
    for index, d in enumerate(ds, len(request.pointers)):
        step = d.strides[-1]
        otherwise = (step and step != 1) or (for_gpu and not _as_gpus_read(before.y_shape, d.strides))
        if (otherwise and p.y_strides[-1] == 1) or (step and before.filters != p.filters):
            copy, strides = _d_copy(before, p, index, d.strides, for_gpu)
            copies.append(copy)
            d = DTensor(d.slot, strides)
        laid.append(d)
    return replace(stage(p, laid), copies=tuple(copies))


def _without_added(five: Sequence[int], rank: int) -> Sizes:
    return (five[0], *five[len(five) - rank + 1 :])


def _ds_of(request: StageRequest) -> list[DTensor]:
    """The D tensors of a stage as the user gave them, whether they are copied or not."""
    rank, ds = len(request.problem.size) + 2, []
    for index in range(request.problem.num_d):
        known = next((copy for copy in request.copies if copy.pointer == len("xwy") + index), None)
        strides = _without_added(list(request.args.d_strides[index]), rank)
        if known is not None:
            steps = (*known.strides[:-2], known.strides[-1])
            strides = tuple(0 if old == 0 else step // known.itemsize for old, step in zip(strides, steps, strict=True))
        ds.append(DTensor(request.pointers[len("xwy") + index].slot, strides))
    return ds


def copies(request: StageRequest, larger: ConvProblem) -> StageRequest:
    """The stage on dense channels-last copies; channels and filters of a group may be more, and are then 0.

    What has the layout of the larger problem is not copied.
    """
    p, q = request.problem, larger
    name, _ = written_shape(p)
    operand_copies = []
    for index, operand in enumerate("xwy"):
        shape, strides = _by_group(p, operand, getattr(p, f"{operand}_strides"))
        padded, wanted = _by_group(q, operand, getattr(q, f"{operand}_strides"))
        if p.aligned and (shape, strides) == (padded, wanted):
            continue
        written = operand == name
        size = DTYPES[p.dtype_out if written else p.dtype].bytes
        steps = tuple(step * size for step in strides)
        operand_copies.append(Copy(index, shape, steps, padded, size, read=not written, written=written))
    # Of a GPU's stage all of them have the layout that GPUs read.
    laid = [_without_added(list(five), len(p.y_shape)) for five in request.args.d_strides[: p.num_d]]
    for_gpu = all(_as_gpus_read(p.y_shape, strides) for strides in laid)
    return with_ds(replace(stage(q), copies=tuple(operand_copies)), _ds_of(request), p, for_gpu=for_gpu)
