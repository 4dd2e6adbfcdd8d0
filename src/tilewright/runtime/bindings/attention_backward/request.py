"""Views of arrays become a request for the gradients of an attention: problem, stages, shapes of the results.

What the operands of the forward pass say is read as a forward call reads it (`bindings.attention.request`); here is
what is added: the forward result, its gradient, and the gradients that are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.dataclass import NamedTuple
from tilewright.errors import ProblemError
from tilewright.ops.attention_backward.legality import problem_check
from tilewright.ops.attention_backward.plans import dot_clears, split_plans
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_terms import FLOATS, Sizes
from tilewright.runtime.arrays import View, conversion_of
from tilewright.runtime.bindings.attention import request as forward
from tilewright.runtime.bindings.attention.common import dense_strides, lse_strides
from tilewright.runtime.bindings.attention.operands import Rows, bad, not_an_array, rows_of
from tilewright.runtime.bindings.attention.stages import SLOTS as FORWARD_SLOTS
from tilewright.runtime.bindings.attention_backward import stages
from tilewright.runtime.bindings.attention_backward.stages import AT, OperandLayout
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.devices import HOST
from tilewright.runtime.requests import Request, Result

ASKED = ("dbias", "dsink", "dalibi")
_NEEDS = {"dbias": "bias", "dsink": "sink", "dalibi": "alibi_slopes"}
_SHARED = ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v", "align", "window_left",
           "window_right", "sink_tokens", "bias", "dtype_aux", "bias_shape", "mask_shape", "softcap", "dropout",
           "varlen", "total_q", "total_k", "seqlens_q", "seqlens_k")  # fmt: skip


class Attributes(NamedTuple):
    """What the gradients depend on beside their operands."""

    problem: Any = None  # of operands that were made up: it says the rest
    layout: str = "bshd"
    kv_layout: str = ""
    align: str = "top_left"
    window: tuple[int, int] = (-1, -1)
    sink_tokens: int = 0
    scaled: bool = False
    softcap: bool = False
    dropout: bool = False
    longest: tuple[int, int] = (0, 0)  # rows and keys, of packed sequences
    more_gradients: tuple[str, ...] = ()  # of ASKED
    deterministic: bool = False


def build(views: Sequence[Any], options: tuple[Any, ...], target: str) -> Request:
    """Shapes, strides and dtypes as one request, or the first contradiction as one error."""
    a = Attributes(*options)
    if a.problem is not None:
        return made_up(a.problem, target)
    by_name = dict(zip(stages.NAMES, views, strict=True))
    # As a forward call has them; its result is an operand here.
    operands = [None if slot.name in ("out", "lse") else by_name.get(slot.name) for slot in FORWARD_SLOTS]
    call = forward.Call(_forward_attributes(a), target, operands)
    _demand_floats(by_name)
    for name in a.more_gradients:
        if by_name[_NEEDS[name]] is None:
            message = f"{name} is requested, and {_NEEDS[name]} is not given"
            raise bad("gradient-of", message, name, f"give {_NEEDS[name]}, or do not request {name}")
    lie = forward.described(call)
    fields = {name: call.problem[name] for name in _SHARED if name in call.problem}
    shared = ("mask", "bias", "alibi", "seeded", "scaled")
    layout: dict[str, Any] = {name: call.layout[name] for name in shared if name in call.layout}
    if "dbias" in a.more_gradients:
        _room_for_bias(fields, by_name)
    results = _gradients(by_name, lie, a.layout, a.kv_layout or a.layout)
    _forward_result(by_name, lie, a.layout)
    fields |= {f"{name}_strides": each.strides for name, each in lie.items()}
    fields |= {name: name in a.more_gradients for name in ASKED}
    problem = AttentionBackwardProblem(
        **fields, dtype=by_name["q"].dtype, dlse=by_name["dlse"] is not None,
        deterministic=a.deterministic, aligned=not _odd(by_name),
    )  # fmt: skip
    for broken in problem_check(problem, target):
        raise ProblemError(f"{problem.describe()}: {broken.message}", rule=broken.rule, value=problem,
                           remedy=broken.remedy)  # fmt: skip
    for name in ("lse", "dlse"):
        if by_name[name] is not None:
            layout[name] = _sums_of_rows(by_name[name], problem)
    results += [_more_gradient(name, by_name, problem, layout) for name in a.more_gradients]
    return _whole(problem, target, OperandLayout(**layout), tuple(results))


def _forward_attributes(a: Attributes) -> forward.Attributes:
    return forward.Attributes(
        layout=a.layout, kv_layout=a.kv_layout, align=a.align, window=a.window, sink_tokens=a.sink_tokens,
        scaled=a.scaled, softcap=a.softcap, dropout=a.dropout, longest=a.longest,
    )  # fmt: skip


def made_up(problem: AttentionBackwardProblem, target: str) -> Request:
    """The request of operands that `samples` made: dense, or as the problem says."""
    if problem.family:
        return stages.alone(problem)
    results = (*stages.gradients(problem, ("dq", "dk", "dv")), *stages.more_results(problem))
    return _whole(problem, target, OperandLayout(), results)


def _whole(
    problem: AttentionBackwardProblem, target: str, layout: OperandLayout, results: tuple[Result, ...]
) -> Request:
    """The call in the stages the backend takes, and how to have it in others."""
    first, *others = split_plans(problem, target).values()
    clears = dot_clears(target)
    request = stages.whole(first, layout, results, clears)
    if not others:
        return request
    return replace(request, others=lambda: [stages.whole(each, layout, results, clears) for each in others])


# -- operands ----------------------------------------------------------------------------------------------------------


def _demand_floats(views: dict[str, View | None]) -> None:
    """All of one type, which has gradients."""
    q = views["q"]
    for name in ("q", "k", "v", "out", "dout"):
        view = views[name]
        if view is None or q is None:
            raise not_an_array(name, None)
        if view.dtype not in FLOATS:
            remedy = (
                conversion_of(view, view.dtype, bytes_too=False) if name != "dout" else f"give {' or '.join(FLOATS)}"
            )
            raise bad("array-dtype", f"{name} holds {view.dtype}, which has no gradients", view.dtype, remedy)
        if view.dtype != q.dtype:
            message = f"{name} holds {view.dtype} and q {q.dtype}"
            raise bad("dtype-mix", message, view.dtype, f"give q, k, v, out and dout of one type, such as {q.dtype}")


def _forward_result(views: dict[str, Any], lie: dict[str, Rows], layout: str) -> None:
    """`out` and its gradient are of the shape that these operands have a result of."""
    shape = forward.as_given((*lie["q"].outer, lie["q"].heads, lie["v"].size), layout)
    for name, operand in (("o", "out"), ("do", "dout")):
        view = views[operand]
        if view.shape != shape:
            message = f"{operand} has shape {view.shape}, and attention of these operands gives {shape}"
            raise bad("forward-result", message, view.shape, "give out and lse of the call with these q, k and v")
        lie[name] = rows_of(view, layout, lie["q"].packed)


def _sums_of_rows(view: View, p: AttentionBackwardProblem) -> tuple[int, int]:
    """Strides of sequences and heads of lse or of its gradient."""
    if view.dtype != "fp32" or view.shape != p.lse_shape:
        message = f"{view.what} is {view.dtype} of shape {view.shape}, and attention of these operands gives fp32 of "
        remedy = "give lse of the same call (return_lse=True), and a gradient of its shape"
        raise bad("forward-result", f"{message}{p.lse_shape}", view.shape, remedy)
    if view.shape[-1] > 1 and 0 not in view.shape and view.strides[-1] != 1:
        message = f"the last dimension of {view.what} has a stride of {view.strides[-1]}"
        raise copy_needed(view.what, message, rule="array-strides", value=view.strides)
    if 0 in view.shape:
        return lse_strides(p)
    return (0, view.strides[0]) if p.varlen else (view.strides[0], view.strides[1])


# -- results -----------------------------------------------------------------------------------------------------------


def _gradients(views: dict[str, Any], lie: dict[str, Rows], layout: str, kv_layout: str) -> list[Result]:
    """dq, dk and dv: those given, or new ones."""
    results = []
    for name in ("dq", "dk", "dv"):
        like, view = lie[name[1]], views[name]
        order, mine = (*like.outer, like.heads, like.size), layout if name == "dq" else kv_layout
        shape = forward.as_given(order, mine)
        if view is None:
            lie[name] = Rows.dense(order, mine)
        else:
            _demand_result(view, shape, views["q"].dtype)
            lie[name] = rows_of(view, mine, like.packed)
        results.append(Result(AT[name], shape, dense_strides(shape), views["q"].dtype))
    return results


def _room_for_bias(fields: dict[str, Any], views: dict[str, Any]) -> None:
    """A bias may be as long as a bound that no sequence here reaches (`max_seqlen`): its gradient is 0 there, which a
    kernel writes for the lengths that it is called with."""
    for name in ("bias", "mask"):
        if views[name] is not None:
            shape = views[name].shape
            fields[f"{name}_shape"] = (*(1,) * (4 - len(shape)), *shape)
    for name, size in zip(("seqlen_q", "seqlen_k"), fields["bias_shape"][2:], strict=True):
        fields[name] = max(fields[name], size)


def _demand_result(view: View, shape: Sizes, dtype: str) -> None:
    if view.shape != shape:
        raise bad("shape-out", f"{view.what} has shape {view.shape}, and the gradient has {shape}", view.shape,
                  f"give shape {shape}")  # fmt: skip
    if view.dtype != dtype:
        raise bad("out-dtype", f"{view.what} holds {view.dtype}, and the gradient is {dtype}", view.dtype,
                  f"give an array of {dtype}")  # fmt: skip


def _more_gradient(name: str, views: dict[str, Any], p: AttentionBackwardProblem, layout: dict[str, Any]) -> Result:
    """The gradient of a bias, of sink logits or of slopes."""
    source, view = views[_NEEDS[name]], views[name]
    if view is not None:
        _demand_result(view, source.shape, "fp32")
    strides = dense_strides(source.shape) if view is None else view.strides
    if name == "dbias":
        four = (*(0,) * (4 - len(strides)), *strides)
        layout[name] = tuple(0 if size == 1 else step for size, step in zip(p.bias_shape, four, strict=True))
    elif name == "dalibi":
        layout[name] = (0, strides[0]) if len(source.shape) == 1 else (strides[0], strides[1])
    return Result(AT[name], source.shape, dense_strides(source.shape), "fp32")


def _odd(views: dict[str, Any]) -> bool:
    """Whether an operand on a device begins at no multiple of 16 bytes."""
    there = [views[name] for name in ("q", "k", "v", "out", "dout", "dq", "dk", "dv") if views[name] is not None]
    return there[0].place is not HOST and any(view.address % 16 for view in there)
