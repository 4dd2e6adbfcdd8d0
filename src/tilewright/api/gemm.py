"""Matrix products: `matmul` with NumPy's semantics, `gemm` with a fused epilogue, `gated_gemm` of two B, `pack` for a B
that is used often.

`tw.gemm(a, b)` multiplies NumPy arrays, PyTorch tensors or any DLPack arrays; `tw.gemm(a, w.T, bias=bias,
epilogue="relu")` infers the layout from the strides and fuses the rest; `tw.gemm(a, tw.pack(w.T))` packs B once for
many calls; `print(tw.explain(tw.GemmProblem(m=64, n=64, k=64)))` shows which kernel would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.api import registry_of
from tilewright.api.tensors import public, recorded, seen, unseen
from tilewright.errors import ProblemError
from tilewright.ops.fused import GATES_BY_ACTIVATION, called_as_given, unknown_gate, with_added
from tilewright.runtime.bindings.gemm import BINDING, NO_DS, counted, filled
from tilewright.runtime.bindings.gemm.packed import PackedB
from tilewright.runtime.calls import NEVER, caller, scalar
from tilewright.runtime.torch_arrays import must_be_seen

_ndarray = np.ndarray
_CALLER = caller(BINDING.op)
_NOTHING: tuple[Any, ...] = ()
_PASS = "passthrough"
_PLAIN = (1.0, 0.0)  # alpha and beta of a plain product


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    residual: Any = None,
    ds: Sequence[Any] = _NOTHING,
    epilogue: str = _PASS,
    out: Any = None,
    out_dtype: Any = None,
    math: str = "",
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """E = epilogue(alpha * A.B + beta * C + bias + residual), or epilogue(alpha * A.B + beta * C, D0, D1).

    `a` is (..., m, k), `b` is (..., k, n) or the result of `pack`, the result is (..., m, n).  Leading dimensions are
    batch dimensions and broadcast.  Layouts are inferred from the strides, so a transposed view costs nothing.  `c`
    broadcasts to the result; `beta` is 1 if only `c` is given, and with `beta=0` c is not read.  `bias` (n values, one
    per column) and `residual` broadcast and are added before the activation.  `ds` is the general form (CK's D
    tensors): up to four tensors in all, which the epilogue adds, or multiplies by ("multiply"); an activation is
    applied to the sum.

    No operand is copied: one that kernels cannot read in place (negative strides, no contiguous dimension, foreign byte
    order) raises an error, or is copied first with `copy="allow"`.  `alpha` and `beta` are real numbers, not booleans.

    The result has the dtype of `out`, else `out_dtype`, else that of `c`, else that of the inputs (int32 for int8, fp32
    for fp8 and mixed inputs).  Without `out` it is a new array of the library of `a` if that imports DLPack (PyTorch,
    JAX, ...), else of NumPy.  `out` may be `c`.

    PyTorch tensors that require grad are differentiated, and a traced call is one op of the graph (`tilewright.torch`).
    Under `torch.autocast`, tensors are converted to its dtype first, as for PyTorch's own products, unless `out` is
    given.

    fp32 operands are multiplied in full fp32 precision.  `math="tf32"` lets NVIDIA GPUs round the inputs to 11 bits
    first, which is several times faster (error bound: `ops.gemm.reference.error_bound`); elsewhere it has no effect.
    """
    done = _GEMM.call(
        a, b, c, alpha, beta, bias, residual, ds, epilogue, out, out_dtype, math, copy, target
    )  # fmt: skip
    if done is None and (record := recorded.get("gemm")):
        done = record(a, b, c, alpha, beta, bias, residual, ds, epilogue, out, out_dtype, math, copy, target)
    if done is not None:
        return done
    if type(alpha) is not float:
        alpha = scalar("alpha", alpha)
    if beta is None:
        beta = 0.0 if c is None else 1.0
    elif type(beta) is not float:
        beta = scalar("beta", beta)
    if bias is not None or residual is not None:
        epilogue, ds = with_added(epilogue, ds, bias=bias, residual=residual)
    all_ds = NO_DS if ds is _NOTHING else filled(ds)
    attributes = (epilogue, out_dtype, math, counted(beta) if beta else 0, "")
    registry, operands = registry_of(a, target), (a, b, c, *all_ds, out, None)
    if copy is NEVER:
        done = _CALLER.attempt(registry, operands, (alpha, beta), attributes)
        if done is not None:
            return _GEMM.keep(done)
    if must_be_seen(operands):
        return seen(
            "gemm", a, b, c, alpha=alpha, beta=beta, ds=ds, epilogue=epilogue, out=out, out_dtype=out_dtype, math=math,
            copy=copy, target=target,
        )  # fmt: skip
    try:
        return _CALLER.run_slow(registry, operands, (alpha, beta), attributes, copy)
    except ProblemError as error:
        raise called_as_given(error, bias=bias, residual=residual) from None


def gated_gemm(
    a: Any,
    gate: Any,
    up: Any,
    *,
    activation: str = "silu",
    out: Any = None,
    out_dtype: Any = None,
    math: str = "",
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """E = activation(A.gate) * (A.up): the first half of a gated MLP (SwiGLU, GeGLU), as one call.

    `gate` and `up` are two (..., k, n) of one shape and dtype, such as `gate_proj.weight.T` and `up_proj.weight.T`, or
    the halves of a merged weight.  `activation` is "silu", "gelu" (erf) or "fastgelu" (tanh).  Where the target has
    kernels that read both (NVIDIA GPUs: bf16 and fp16, both of one layout, k contiguous) nothing but E is written;
    elsewhere A.up is computed first, rounded to the dtype of E, and the product with it is fused into the other GEMM.
    The rest is as for `gemm`.
    """
    kind = GATES_BY_ACTIVATION.get(activation) if isinstance(activation, str) else None
    if kind is None:
        raise unknown_gate(activation)
    attributes = (kind, out_dtype, math, 0, "")
    registry, operands = registry_of(a, target), (a, gate, None, *NO_DS, out, up)
    if copy is NEVER:
        done = _CALLER.attempt(registry, operands, _PLAIN, attributes)
        if done is not None:
            return done
    if must_be_seen(operands):
        return seen(
            "gated_gemm", a, gate, up, activation=activation, out=out, out_dtype=out_dtype, math=math, copy=copy,
            target=target,
        )  # fmt: skip
    return _CALLER.run_slow(registry, operands, _PLAIN, attributes, copy)


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    out_dtype: Any = None,
    math: str = "",
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """Matrix product with the semantics of `numpy.matmul`.

    The last two dimensions are matrices, the others broadcast.  A vector is a row on the left and a column on the
    right; the result lacks that dimension.  Dtypes, `math` and `copy` are those of `gemm`.
    """
    registry = registry_of(a, target)
    attributes = (_PASS, out_dtype, math, 0, "matmul")
    operands = (a, b, None, *NO_DS, out, None)
    result = _CALLER.attempt(registry, operands, _PLAIN, attributes) if copy is NEVER else None
    if result is None:
        if must_be_seen(operands):
            return seen("matmul", a, b, out=out, out_dtype=out_dtype, math=math, copy=copy, target=target)
        result = _CALLER.run_slow(registry, operands, _PLAIN, attributes, copy)
    if out is None and type(result) is _ndarray and not result.shape:
        return result[()]  # of two vectors NumPy gives a number
    return result


def pack(b: Any, *, m: int = 256, dtype_a: str | None = None, target: str | None = None) -> PackedB:
    """Pack B (k, n) once for preshuffle kernels; pass the result as `b` of `gemm`.

    `m` is the typical number of rows of A, `dtype_a` its element type (default: that of b; "tf32" for calls with
    `math="tf32"`).  The packed bytes depend on the target and on the version of Tilewright: do not save them.
    """
    from tilewright.runtime.bindings.gemm.packing import pack_with

    return pack_with(registry_of(b, target), b, m, dtype_a)


_ADDED = ("ds[0]", "ds[1]")
_GEMM = _CALLER.front(
    gemm, a="a", b="b", c="c", bias=_ADDED, residual=_ADDED, ds=None, out="out", copy=None, target=None
)  # fmt: skip
_CALLER.front(matmul, a="a", b="b", out="out", copy=None, target=None)
public(gemm, gated_gemm, matmul)
unseen(pack)
