"""Views of arrays become a convolution's request: problem, argument template, shape of the result.

Channels first or last in memory is read from the strides, whatever order of dimensions the layout says.  A bias is a D
tensor that repeats everywhere but along the channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

from tilewright.dataclass import NamedTuple, dataclass
from tilewright.dtypes import DTYPES
from tilewright.errors import ProblemError, an, counted, shown
from tilewright.ops.conv.legality import problem_check
from tilewright.ops.conv.patches import joined_patches
from tilewright.ops.conv.problem import ConvProblem, Sizes, channels_first, dense_strides
from tilewright.ops.conv.spec import INPUTS, MAX_D, OP, VARIANTS, default_output
from tilewright.ops.fused import normal_epilogue
from tilewright.runtime.arrays import View, conversion_of, output_dtype
from tilewright.runtime.bindings.conv import dense
from tilewright.runtime.bindings.conv.operands import (
    BIAS,
    D0,
    LAST,
    OUT,
    PLACES,
    Operand,
    as_given,
    bad,
    in_order,
    layout_of,
    paddings,
    plain_strides,
    spatial_numbers,
)
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.devices import HOST
from tilewright.runtime.requests import Request, Result

# The two arrays of a direction, and what the third's shape is called where it cannot be known from them.
_READ = {"forward": "xw", "backward_data": "wy", "backward_weight": "xy"}
SHAPES = {"backward_data": "input_shape", "backward_weight": "weight_shape"}
_NAMES = {"x": "x", "w": "w", "y": "dy"}


class Attributes(NamedTuple):
    """What a convolution depends on beside its operands; numbers are ints and tuples of ints."""

    variant: str = "forward"
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1
    layout: Any = LAST
    shape: Any = None  # of the gradient that is asked for
    epilogue: Any = "passthrough"
    out_dtype: Any = None
    deterministic: bool = False


@dataclass(slots=True)
class _Call:
    """A call that becomes a request."""

    attributes: Attributes
    target: str
    views: Sequence[View | None]
    rank: int = 0  # spatial dimensions
    layout: str = LAST
    operands: dict[str, Operand] = field(default_factory=dict)  # x, w and y, the result only where it is given
    ds: list[Operand] = field(default_factory=list)
    epilogue: str = "PassThrough"
    dtype_out: str = ""

    @property
    def result(self) -> str:
        return next(name for name, slot in PLACES[self.attributes.variant].items() if slot == OUT)


def build(views: Sequence[Any], options: tuple[Any, ...], target: str) -> Request:
    """Shapes, strides and dtypes as one request, or the first contradiction as one error."""
    call = _Call(Attributes(*options), target, views)
    _read(call)
    _infer_dtypes(call)
    problem = _problem(call)
    _demand_legal(problem, target)
    _demand_shapes(call, problem)
    _lay_out_ds(call, problem)
    problem = _laid(call, problem)
    on_host = _view(call, _READ[problem.variant][0]).place is HOST
    ds = [dense.DTensor(d.slot, d.strides) for d in call.ds]
    request = dense.with_ds(dense.stage(joined_patches(problem)), ds, for_gpu=not on_host)
    for d in call.ds:
        if min(d.strides) < 0 and not on_host:  # only the host copies such memory
            raise copy_needed(d.what, f"{d.what} has negative strides", rule="array-strides", value=d.strides)
    return Request(OP, (request,), (_result(call, problem),))


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(call: _Call) -> None:
    """The arrays of the direction, in our order."""
    a = call.attributes
    if a.variant not in VARIANTS:
        raise bad("variant-name", f"{shown(a.variant)} is not a direction", shown(a.variant), f"use {VARIANTS}")
    places = PLACES[a.variant]
    for name in _READ[a.variant]:
        view = call.views[places[name]]
        if view is None:
            what = _NAMES[name]
            remedy = f"give a NumPy array (np.asarray({what}, dtype=np.float32)) or anything with DLPack"
            raise bad("array-type", f"{what} is None, not an array", "None", remedy)
    first = _view(call, _READ[a.variant][0])
    call.rank = len(first.shape) - 2
    if call.rank not in (1, 2, 3):
        message = f"{first.what} has {counted(len(first.shape), 'dimension')}, and a convolution has 3 to 5"
        raise bad("array-rank", message, first.shape, "give images (or filters), 1 to 3 spatial dimensions, channels")
    call.layout = layout_of(a.layout, call.rank)
    for name, slot in places.items():
        view = call.views[slot]
        if view is None:
            continue
        if len(view.shape) != call.rank + 2:
            message = f"{view.what} has {counted(len(view.shape), 'dimension')} and {first.what} has {len(first.shape)}"
            raise bad("array-rank", message, view.shape, f"give both {len(first.shape)} dimensions")
        call.operands[name] = Operand.of(slot, view, call.layout)


def _view(call: _Call, name: str) -> View:
    view = call.views[PLACES[call.attributes.variant][name]]
    assert view is not None
    return view


@lru_cache(maxsize=64)
def _possible(dtype: str, variant: str, target: str) -> tuple[str, ...]:
    """The element types that results can have on a target."""
    problems = (ConvProblem(1, 8, 8, (8, 8), (1, 1), variant=variant, dtype=dtype, dtype_out=name) for name in DTYPES)
    return tuple(problem.dtype_out for problem in problems if not problem_check(problem, target))


def _infer_dtypes(call: _Call) -> None:
    """Element types of operands, result and D tensors; what is fused."""
    a = call.attributes
    first, second = (_view(call, name) for name in _READ[a.variant])
    for view in (first, second):
        if view.dtype not in INPUTS:
            held = DTYPES[view.dtype].numpy_name
            message = f"{view.what} has elements of type {held}, which no kernel convolves"
            raise bad("array-dtype", message, held, conversion_of(view, held))
    if first.dtype != second.dtype:
        message = f"{first.what} holds {first.dtype} and {second.what} {second.dtype}"
        raise bad("dtype-mix", message, second.dtype, f"convert one: both have the same type, such as {first.dtype}")
    out = call.views[OUT]
    wanted = None
    if a.out_dtype is not None:
        wanted = output_dtype(a.out_dtype, _possible(first.dtype, a.variant, call.target))
    if out is not None and wanted is not None and wanted != out.dtype:
        message = f"out holds {out.dtype}, but out_dtype asks for {wanted}"
        raise bad("out-dtype", message, out.dtype, "give one of the two, or make them agree")
    call.dtype_out = out.dtype if out is not None else wanted or default_output(first.dtype)
    _infer_fused(call)


def _infer_fused(call: _Call) -> None:
    epilogue = call.attributes.epilogue
    if not isinstance(epilogue, str):
        message = f"epilogue is {an(type(epilogue).__name__)}, not a name"
        raise bad("epilogue-name", message, shown(epilogue), "give a name such as 'relu'")
    call.epilogue = normal_epilogue(epilogue)
    fused = [view for view in call.views[BIAS : D0 + MAX_D] if view is not None]
    if len(fused) > MAX_D:
        message = f"a bias and {len(fused) - 1} D tensors were given"
        raise bad("epilogue-d-count", message, len(fused), f"give at most {MAX_D} of them together")
    if call.views[BIAS] is not None and call.epilogue == "MultiDMultiply":
        message = "a bias is added, and MultiDMultiply multiplies by every tensor it is given"
        raise bad("epilogue-bias", message, call.epilogue, "leave the bias out, or give it as one of ds to multiply by")
    if fused and call.epilogue == "PassThrough":
        call.epilogue = "MultiDAdd"
    for view in fused:
        if view.dtype != fused[0].dtype:
            message = f"{view.what} holds {view.dtype}, {fused[0].what} {fused[0].dtype}"
            raise bad("d-dtype", message, view.dtype, "give bias and ds of one dtype")


# -- shapes ------------------------------------------------------------------------------------------------------------


def _result_shape(call: _Call) -> Sizes:
    """The shape of the gradient, in our order."""
    name = SHAPES[call.attributes.variant]
    shape = call.attributes.shape
    if not isinstance(shape, tuple) or len(shape) != call.rank + 2 or not all(type(size) is int for size in shape):
        message = f"{name} is {shown(shape)}"
        raise bad("conv-shape", message, shown(shape), f"give {call.rank + 2} sizes, in the order of the layout")
    return in_order(shape, call.layout)


def _problem(call: _Call) -> ConvProblem:
    """Sizes and types; strides come later."""
    a = call.attributes
    shapes = {name: call.operands[name].shape for name in _READ[a.variant]}
    if a.variant != "forward":
        shapes[call.result] = _result_shape(call)
    x, w = shapes["x"], shapes["w"]
    before, after = paddings(a.padding, call.rank)
    ds = [view for view in call.views[BIAS : D0 + MAX_D] if view is not None]
    problem = ConvProblem(
        batch=x[0],
        channels=x[-1],
        filters=w[0],
        size=x[1:-1],
        window=w[1:-1],
        groups=a.groups,
        stride=spatial_numbers("stride", a.stride, call.rank),
        dilation=spatial_numbers("dilation", a.dilation, call.rank),
        before=before,
        after=after,
        variant=a.variant,
        dtype=_view(call, _READ[a.variant][0]).dtype,
        dtype_out=call.dtype_out,
        dtype_d=ds[0].dtype if ds else "",
        epilogue=call.epilogue,
        num_d=len(ds),
        deterministic=a.deterministic,
    )
    if a.groups >= 1 and min(w[-1], x[-1]) >= 0 and w[-1] * a.groups != x[-1]:
        names = [SHAPES.get(a.variant, "w") if call.result == name else _NAMES[name] for name in "xw"]
        groups = counted(a.groups, "group")
        message = f"{names[1]} has {w[-1]} channels for each of {groups}, and {names[0]} has {x[-1]} in all"
        remedy = f"give weights of {x[-1] // a.groups} channels, or an x of {w[-1] * a.groups}, or other groups"
        if x[-1] % a.groups:
            remedy = f"use groups that divide {x[-1]}"
        if call.layout == LAST and w[1] * a.groups == x[1]:  # as PyTorch orders dimensions
            remedy = f'pass layout="nchw" if dimensions are ordered (N, C, ...); else {remedy}'
        raise bad("groups-divide" if x[-1] % a.groups else "shape-channels", message, (x[-1], w[-1]), remedy)
    return problem


def _demand_legal(problem: ConvProblem, target: str) -> None:
    for broken in problem_check(problem, target):
        raise ProblemError(
            f"{problem.describe()}: {broken.message}", rule=broken.rule, value=problem, remedy=broken.remedy
        )


def _demand_shapes(call: _Call, problem: ConvProblem) -> None:
    """What was given has the shapes that follow from the rest."""
    for name, operand in call.operands.items():
        expected: Sizes = getattr(problem, f"{name}_shape")
        if operand.shape == expected:
            continue
        shape, mine = as_given(expected, call.layout), as_given(operand.shape, call.layout)
        if operand.slot == OUT:
            raise bad("shape-out", f"out has shape {mine}, and the result has {shape}", mine, f"give shape {shape}")
        message = f"{operand.what} has shape {mine}, and a forward convolution of these sizes gives {shape}"
        remedy = f"give dy of shape {shape}, or fix {SHAPES[problem.variant]}, stride, padding or dilation"
        raise bad("shape-backward", message, mine, remedy)


def _lay_out_ds(call: _Call, problem: ConvProblem) -> None:
    """The bias and the D tensors over y's shape."""
    shape = problem.y_shape
    seen = as_given(shape, call.layout)
    bias = call.views[BIAS]
    if bias is not None:
        if bias.shape != (problem.filters,):
            message = f"bias has shape {bias.shape}, and there are {problem.filters} filters"
            raise bad("shape-bias", message, bias.shape, f"give shape ({problem.filters},)")
        strides = (*(0,) * (len(shape) - 1), plain_strides(bias.shape, bias.strides)[0])
        call.ds.append(Operand("bias", BIAS, shape, strides, bias.dtype))
    for slot, view in enumerate(call.views[D0 : D0 + MAX_D], D0):
        if view is None:
            continue
        missing = len(shape) - len(view.shape)
        sizes = (*(1,) * max(0, missing), *view.shape)
        if missing < 0 or any(mine not in (1, size) for mine, size in zip(sizes, seen, strict=True)):
            message = f"{view.what} has shape {view.shape}, which does not broadcast to the result's {seen}"
            raise bad("shape-d", message, view.shape, f"give shape {seen}, or sizes of 1 where it repeats")
        wide = replace(view, shape=sizes, strides=(*(0,) * missing, *view.strides))
        call.ds.append(Operand.of(slot, wide, call.layout).spread(shape))


# -- laying out --------------------------------------------------------------------------------------------------------


def _new_strides(call: _Call, shape: Sizes) -> Sizes:
    """Of a new result, in our order: dense as the layout says; of nchw channels-last where the operands are."""
    if call.layout != LAST:
        lie = [call.operands[name].memory for name in _READ[call.attributes.variant]]
        if next((memory for memory in lie if memory), "") != LAST:
            return plain_strides(shape, channels_first(shape))
    return dense_strides(shape)


def _laid(call: _Call, problem: ConvProblem) -> ConvProblem:
    """The problem with the strides of the arrays, and what of the D tensors is as large as y."""
    strides = {f"{name}_strides": operand.strides for name, operand in call.operands.items()}
    if call.result not in call.operands:
        shape: Sizes = getattr(problem, f"{call.result}_shape")
        strides[f"{call.result}_strides"] = _new_strides(call, shape)
    on_device = _view(call, _READ[problem.variant][0]).place is not HOST
    odd = on_device and any(operand.odd for operand in call.operands.values())
    full_d = sum(any(d.strides[:-1]) for d in call.ds)
    fields: dict[str, Any] = {**strides, "full_d": full_d, "aligned": not odd}
    if all(getattr(problem, name) == value for name, value in fields.items()):
        return problem
    return replace(problem, **fields)


def _result(call: _Call, problem: ConvProblem) -> Result:
    shape: Sizes = getattr(problem, f"{call.result}_shape")
    strides = _new_strides(call, shape)
    return Result(OUT, as_given(shape, call.layout), as_given(strides, call.layout), problem.dtype_out)
