"""Matrix products on arrays: `matmul` as NumPy means it, `gemm` with everything fused, `pack` for a B used often.

`tw.gemm(a, b)` multiplies NumPy arrays, PyTorch's tensors or anything with DLPack; `tw.gemm(a, w.T, bias=bias,
epilogue="relu")` reads the layout from the strides and fuses the rest; `tw.gemm(a, tw.pack(w.T))` packs B once for many
uses; `print(tw.explain(tw.GemmProblem(m=64, n=64, k=64)))` says what would run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.api import registry_of
from tilewright.api.tensors import public, seen, unseen
from tilewright.ops.fused import with_added
from tilewright.runtime.bindings.gemm import BINDING, counted, two
from tilewright.runtime.bindings.gemm.packed import PackedB
from tilewright.runtime.bindings.gemm.packing import pack_with
from tilewright.runtime.calls import NEVER, caller, scalar
from tilewright.runtime.torch_arrays import must_be_seen

_ndarray = np.ndarray
_CALLER = caller(BINDING.op)
_NOTHING: tuple[Any, ...] = ()
_NO_DS = (None, None)
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

    `a` is (..., m, k), `b` is (..., k, n) or what `pack` gave, the result (..., m, n); leading dimensions are a batch,
    and sizes of 1 or missing ones repeat.  Layouts are read from the strides: a transposed view costs nothing.  `c`
    broadcasts to the result and counts once where it is given and `beta` is not; with `beta=0` it is not read.
    `bias` (a vector of n, for every row) and `residual` are added before the activation; both broadcast.  `ds` says the
    same in the words of CK: up to two tensors, with those two, that the epilogue adds, or multiplies by ("multiply").
    An activation with D tensors is applied to the sum of all.

    No operand is copied: one that kernels cannot read as it lies (negative or odd strides, bytes in the other order) is
    an error, or with `copy="allow"` copied first.  `alpha` and `beta` are real numbers; truth values are none.

    The result has the dtype of `out`, else `out_dtype`, else of `c`, else of the inputs (int32 for int8, fp32 for fp8
    and mixed inputs).  Without `out` it is a new array: of the library `a` comes from where that takes DLPack
    (PyTorch, JAX, ...), of NumPy otherwise.  `out` may be `c` itself.

    A tensor of PyTorch's that requires grad is differentiated, and a traced call is one op of the graph
    (`tilewright.torch`).  Under `torch.autocast` tensors are converted to its type first, as PyTorch's own products do,
    unless `out` is given.

    float32 is multiplied exactly.  `math="tf32"` allows an NVIDIA GPU to round its inputs to 11 bits first, for several
    times the speed (`ops.gemm.reference.error_bound` says what that costs); elsewhere it changes nothing.
    """
    if type(alpha) is not float:
        alpha = scalar("alpha", alpha)
    if beta is None:
        beta = 0.0 if c is None else 1.0
    elif type(beta) is not float:
        beta = scalar("beta", beta)
    if bias is not None or residual is not None:
        epilogue, ds = with_added(epilogue, ds, bias=bias, residual=residual)
    d0, d1 = _NO_DS if ds is _NOTHING else two(ds)
    attributes = (epilogue, out_dtype, math, counted(beta) if beta else 0, "")
    registry, operands = registry_of(a, target), (a, b, c, d0, d1, out)
    if copy is NEVER:
        done = _CALLER.attempt(registry, operands, (alpha, beta), attributes)
        if done is not None:
            return done
    if must_be_seen(operands):
        return seen(
            "gemm", a, b, c, alpha=alpha, beta=beta, ds=ds, epilogue=epilogue, out=out, out_dtype=out_dtype, math=math,
            copy=copy, target=target,
        )  # fmt: skip
    return _CALLER.run_slow(registry, operands, (alpha, beta), attributes, copy)


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
    """The product of two arrays as `numpy.matmul` means it.

    Of more than two dimensions the last two are matrices, and the others broadcast.  A vector is a row on the left, a
    column on the right, and the result lacks that dimension.  Element types, `math` and `copy` are those of `gemm`.
    """
    registry = registry_of(a, target)
    attributes = (_PASS, out_dtype, math, 0, "matmul")
    operands = (a, b, None, None, None, out)
    result = _CALLER.attempt(registry, operands, _PLAIN, attributes) if copy is NEVER else None
    if result is None:
        if must_be_seen(operands):
            return seen("matmul", a, b, out=out, out_dtype=out_dtype, math=math, copy=copy, target=target)
        result = _CALLER.run_slow(registry, operands, _PLAIN, attributes, copy)
    if out is None and type(result) is _ndarray and not result.shape:
        return result[()]  # of two vectors NumPy gives a number
    return result


def pack(b: Any, *, m: int = 256, dtype_a: str | None = None, target: str | None = None) -> PackedB:
    """Pack B (k, n) once for preshuffle kernels; use the result in place of b in `gemm`.

    `m` is the number of rows A will typically have, `dtype_a` its element type (b's, if not given; "tf32" for
    calls with `math="tf32"`).  The packed bytes belong to this machine's target and are not meant to be stored.
    """
    return pack_with(registry_of(b, target), b, m, dtype_a)


public(gemm, matmul)
unseen(pack)
