"""How arrays become calls of rowscale, behind the contract of `tilewright.runtime.bindings.Binding`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rowscale.reference import error_bound, exact
from rowscale.spec import ACTIVATIONS, OP, RowscaleProblem
from tilewright.dtypes import DTYPES
from tilewright.errors import ProblemError, UnknownNameError, nearest
from tilewright.ops.base import KernelSpec
from tilewright.ops.numerics import Check, compare
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings import Binding, BindingDefaults
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.requests import Copy, Pointer, Request, Result, Sample, Scalar, Slot, StageRequest


class RowscaleArgs(ctypes.Structure):
    """tw_rowscale_args of rowscale/args.h."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("x", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64),
        ("scale_stride", ctypes.c_int64),
        ("y_stride", ctypes.c_int64),
        ("alpha", ctypes.c_double),
    )


X, SCALE, Y = range(3)  # the slots


def _wrong(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


def _rows(view: View) -> int:
    """The leading stride of a matrix with contiguous rows, one after another."""
    rows, columns = view.shape
    if not rows or not columns:
        return max(1, columns)
    if (columns > 1 and view.strides[1] != 1) or (rows > 1 and view.strides[0] < columns):
        message = f"the rows of {view.what} do not follow each other: its strides are {view.strides}"
        raise copy_needed(view.what, message, rule="rowscale-strides", value=view.strides)
    return view.strides[0] if rows > 1 else columns


def stage(problem: RowscaleProblem, scale_stride: int = 1) -> StageRequest:
    """The one kernel of a call: sizes and strides, and where pointers and alpha go."""
    args = RowscaleArgs(rows=problem.rows, columns=problem.columns)
    args.x_stride, args.scale_stride, args.y_stride = problem.x_stride, scale_stride, problem.y_stride
    fields: Any = RowscaleArgs
    return StageRequest(
        problem,
        args,
        (Pointer(fields.x.offset, X), Pointer(fields.scale.offset, SCALE), Pointer(fields.y.offset, Y)),
        (Scalar(fields.alpha.offset, 0),),
    )


def whole(problem: RowscaleProblem, scale_stride: int = 1) -> Request:
    result = Result(Y, (problem.rows, problem.columns), (max(1, problem.columns), 1), problem.dtype)
    return Request(OP, (stage(problem, scale_stride),), (result,))


class RowscaleBinding(BindingDefaults):
    op = OP
    slots: tuple[Slot, ...] = (Slot("x"), Slot("scale"), Slot("out", written=True, optional=True, twin="x"))
    scalars: tuple[str, ...] = ("alpha",)

    def bind(
        self, x: Any, scale: Any, *, alpha: float = 1.0, activation: str = "PassThrough", out: Any = None
    ) -> tuple[tuple[Any, Any, Any], tuple[float], tuple[str]]:
        return (x, scale, out), (alpha,), (activation,)

    def bind_kernel(self, spec: KernelSpec, *operands: Any, **keywords: Any) -> Any:
        return self.bind(*operands, **keywords, activation=spec.signature.activation)

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        (x, scale, out), (activation,) = views, attributes
        if activation not in ACTIVATIONS:
            raise UnknownNameError(
                f"{activation!r} is not an activation of rowscale",
                rule="activation-name",
                value=str(activation),
                remedy=nearest(str(activation), list(ACTIVATIONS)),
            )
        if len(x.shape) != 2:
            raise _wrong("rowscale-rank", f"x has shape {x.shape}", x.shape, "give a matrix")
        if scale.shape != x.shape[:1] or scale.dtype != "fp32":
            message = f"scale is {scale.dtype} of shape {scale.shape}, and x has {x.shape[0]} rows"
            raise _wrong("rowscale-scale", message, scale.shape, f"give {x.shape[0]} numbers of fp32")
        if out is not None and (out.shape != x.shape or out.dtype != x.dtype):
            message = f"out is {out.dtype} of shape {out.shape}, x is {x.dtype} of shape {x.shape}"
            raise _wrong("rowscale-out", message, out.shape, "give one like x")
        y_stride = 0 if out is None else _rows(out)
        rows, columns = x.shape
        return whole(RowscaleProblem(rows, columns, x.dtype, activation, _rows(x), y_stride), scale.strides[0])

    def copies(self, stage_: StageRequest, larger: RowscaleProblem) -> StageRequest:
        """x and y in copies with longer rows; scale is read as it is."""
        p, size = stage_.problem, DTYPES[larger.dtype].bytes
        shape, padded = (p.rows, p.columns), (larger.rows, larger.columns)
        made = stage(larger, stage_.args.scale_stride)
        return replace(
            made,
            copies=(
                Copy(X, shape, (p.x_stride * size, size), padded, size),
                Copy(Y, shape, (p.y_stride * size, size), padded, size, read=False, written=True),
            ),
        )

    # -- operands that are made up -----------------------------------------------------------------

    def sample(self, problem: RowscaleProblem, seed: int = 0, exact: bool = False) -> Sample:
        p, generator = problem, np.random.default_rng(seed)
        x = generator.standard_normal((p.rows, p.x_stride), np.float32).astype(numpy_dtype(p.dtype))
        scale = generator.standard_normal(p.rows, np.float32)
        out = np.empty((p.rows, p.y_stride), numpy_dtype(p.dtype))
        out.view(np.uint8)[...] = 0xFF
        return Sample((x[:, : p.columns], scale, out[:, : p.columns]), (1.0,), (p.activation,))

    def dense(self, problem: RowscaleProblem) -> Request:
        return whole(problem)

    def check(self, problem: RowscaleProblem, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
        x, scale, out = sample.operands
        value, before = exact(problem, x, scale, sample.scalars[0])
        return compare(out, value, error_bound(problem, value, before), problem.dtype)


BINDING: Binding = RowscaleBinding()
