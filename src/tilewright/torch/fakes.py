"""What the ops would make: shapes, strides and types of results from those of operands, symbolic sizes included.

The rules are those of `runtime.bindings`, which know addresses and targets too; `torch.library.opcheck` compares both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import ProblemError, counted
from tilewright.ops.attention.spec import default_output as attention_output
from tilewright.ops.conv.spec import default_output as conv_output
from tilewright.ops.fused import GATES_BY_ACTIVATION, epilogue_violations, normal_epilogue, unknown_gate
from tilewright.ops.gemm.problem import default_output as gemm_output
from tilewright.runtime import torch_arrays
from tilewright.runtime.bindings.conv.operands import FIRST, LAST, as_given, in_order, layout_of
from tilewright.torch.kernels import added, paddings
from tilewright.torch.required import torch


def _bad(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


def _name(what: str, tensor: Any) -> str:
    name = torch_arrays.name_of(tensor.dtype)
    if name is None:
        held = str(tensor.dtype).removeprefix("torch.")
        remedy = torch_arrays.conversion(what, held, f"{what}.to(torch.{{}})")
        raise _bad("array-dtype", f"{what} has elements of type {held}, which no kernel takes", held, remedy)
    return name


def _demand_epilogue(epilogue: str, count: int, gates: bool = False) -> None:
    kind = normal_epilogue(epilogue)
    for broken in epilogue_violations(kind, count, gates):
        raise _bad(broken.rule, broken.message, epilogue, broken.remedy)


# -- GEMM --------------------------------------------------------------------------------------------------------------


def _product(a: Any, b: Any, others: Sequence[Any], dtype: Any) -> Any:
    m, k, rows, n = a.shape[-2], a.shape[-1], b.shape[-2], b.shape[-1]
    if k != rows:
        message = f"a is {m}x{k} and b is {rows}x{n}: the inner sizes {k} and {rows} differ"
        raise _bad("shape-k", message, (k, rows), "give b with as many rows as a has columns")
    batches = [tensor.shape[:-2] for tensor in (a, b, *others) if tensor.dim() > 2]
    batch = torch.broadcast_shapes(*batches) if batches else ()
    return a.new_empty((*batch, m, n), dtype=dtype)


def _product_dtype(a: Any, b: Any, c: Any, out_dtype: Any) -> Any:
    if out_dtype is not None:
        return out_dtype
    if c is not None:
        return c.dtype
    return torch_arrays.dtype_of(gemm_output(_name("a", a), _name("b", b)))


def _demand_matrices(least: int, **tensors: Any) -> None:
    for what, tensor in tensors.items():
        if tensor.dim() < least:
            message = f"{what} has {counted(tensor.dim(), 'dimension')}, and a matrix has 2"
            raise _bad("array-rank", message, tuple(tensor.shape), "use matmul, which takes vectors")


def gemm(
    a: Any, b: Any, c: Any = None, d0: Any = None, d1: Any = None, *, alpha: Any = 1.0, beta: Any = None,
    epilogue: str = "passthrough", out_dtype: Any = None, math: str = "", target: str = "",
) -> Any:  # fmt: skip
    _demand_matrices(2, a=a, b=b)
    ds = added(d0, d1)
    _demand_epilogue(epilogue, len(ds), gates=True)
    others = ds if c is None else (c, *ds)
    return _product(a, b, others, _product_dtype(a, b, c, out_dtype))


def gated_gemm(
    a: Any, gate: Any, up: Any, *, activation: str = "silu", out_dtype: Any = None, math: str = "", target: str = "",
) -> Any:  # fmt: skip
    del math, target
    _demand_matrices(2, a=a, gate=gate, up=up)
    if activation not in GATES_BY_ACTIVATION:
        raise unknown_gate(activation)
    return _product(a, gate, (up,), _product_dtype(a, gate, None, out_dtype))


def matmul(a: Any, b: Any, *, out_dtype: Any = None, math: str = "", target: str = "") -> Any:
    _demand_matrices(1, a=a, b=b)
    row, column = a.dim() == 1, b.dim() == 1
    left = a.unsqueeze(0) if row else a
    right = b.unsqueeze(1) if column else b
    product = _product(left, right, (), _product_dtype(a, b, None, out_dtype))
    shape = list(product.shape)
    if column:
        del shape[-1]
    if row:
        del shape[-1 if column else -2]
    return product.new_empty(shape)


# -- convolution -------------------------------------------------------------------------------------------------------


def _numbers(values: Sequence[Any], rank: int) -> Sequence[Any]:
    return tuple(values) * rank if len(values) == 1 else tuple(values)


def _channels(tensor: Any, layout: str) -> str:
    """Where the channels of a tensor lie in memory: LAST, FIRST, or nothing where that is the same."""
    shape, strides = in_order(tensor.shape, layout), in_order(tensor.stride(), layout)
    if shape[-1] <= 1 or all(size <= 1 for size in shape[1:-1]) or 0 in shape:
        return ""
    return LAST if strides[-1] == 1 else FIRST


def _laid(shape: Sequence[Any], layout: str, read: Sequence[Any], like: Any, dtype: Any) -> Any:
    """A new result of a shape in the order of the layout: channels-last where that is the layout, or the operands are.
    """  # fmt: skip
    if layout == LAST:
        return like.new_empty(shape, dtype=dtype)
    memory = next(
        (memory_format for memory_format in (_channels(tensor, layout) for tensor in read) if memory_format), ""
    )
    if memory != LAST:
        return like.new_empty(shape, dtype=dtype)
    ours = in_order(shape, layout)
    strides: list[Any] = [1]
    for size in reversed(ours[1:]):
        strides.append(strides[-1] * torch.sym_max(size, 1))
    return torch.empty_strided(
        tuple(shape), as_given(tuple(reversed(strides)), layout), dtype=dtype, device=like.device
    )


def _conv_dtype(what: str, tensor: Any, out_dtype: Any) -> Any:
    return out_dtype if out_dtype is not None else torch_arrays.dtype_of(conv_output(_name(what, tensor)))


def _rank(what: str, tensor: Any) -> int:
    rank = tensor.dim() - 2
    if rank not in (1, 2, 3):
        message = f"{what} has {counted(tensor.dim(), 'dimension')}, and a convolution has 3 to 5"
        raise _bad("array-rank", message, tuple(tensor.shape), "give images, 1 to 3 spatial dimensions, channels")
    return int(rank)


def conv(
    x: Any, w: Any, bias: Any = None, d0: Any = None, d1: Any = None, *, stride: Any = (1,), padding: Any = (0,),
    dilation: Any = (1,), groups: int = 1, layout: str = "nhwc", epilogue: str = "passthrough", out_dtype: Any = None,
    target: str = "",
) -> Any:  # fmt: skip
    rank = _rank("x", x)
    layout = layout_of(layout, rank)
    normal_epilogue(epilogue)
    if w.dim() != x.dim():
        message = f"w has {w.dim()} dimensions and x has {x.dim()}"
        raise _bad("array-rank", message, tuple(w.shape), f"give both {x.dim()} dimensions")
    images, filters = in_order(x.shape, layout), in_order(w.shape, layout)
    if filters[-1] * groups != images[-1]:
        message = f"w has {filters[-1]} channels for each of {counted(groups, 'group')}, and x has {images[-1]} in all"
        raise _bad("shape-channels", message, tuple(w.shape), "give other weights, or other groups")
    pads = paddings(padding, rank)
    if not (isinstance(pads, tuple) and isinstance(pads[0], tuple)):
        pads = [(pad, pad) for pad in _numbers(padding, rank)]
    sizes = [
        (size + sum(pair) - step * (window - 1) - 1) // jump + 1
        for size, pair, step, window, jump in zip(
            images[1:-1], pads, _numbers(dilation, rank), filters[1:-1], _numbers(stride, rank), strict=True
        )
    ]
    shape = as_given((images[0], *sizes, filters[0]), layout)
    return _laid(shape, layout, (x, w), x, _conv_dtype("x", x, out_dtype))


def conv_backward_data(
    dy: Any, w: Any, input_shape: Sequence[Any], *, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,),
    groups: int = 1, layout: str = "nhwc", out_dtype: Any = None, deterministic: bool = False, target: str = "",
) -> Any:  # fmt: skip
    layout = layout_of(layout, _rank("dy", dy))
    return _laid(input_shape, layout, (w, dy), dy, _conv_dtype("dy", dy, out_dtype))


def conv_backward_weight(
    x: Any, dy: Any, weight_shape: Sequence[Any], *, stride: Any = (1,), padding: Any = (0,), dilation: Any = (1,),
    groups: int = 1, layout: str = "nhwc", out_dtype: Any = None, deterministic: bool = False, target: str = "",
) -> Any:  # fmt: skip
    layout = layout_of(layout, _rank("x", x))
    return _laid(weight_shape, layout, (x, dy), x, _conv_dtype("x", x, out_dtype))


# -- attention ---------------------------------------------------------------------------------------------------------


def _value_size(v: Any, options: dict[str, Any]) -> Any:
    vectorised = str(options.get("kv_layout", "")).lower() in ("vectorised", "vectorized")
    return v.shape[-2] if vectorised else v.shape[-1]


def attention(q: Any, k: Any, v: Any, *tensors: Any, **options: Any) -> Any:
    if q.dim() not in (3, 4):
        message = f"q has {counted(q.dim(), 'dimension')}"
        raise _bad("array-rank", message, tuple(q.shape), "give 4: sequences, rows, heads, elements")
    dtype = options.get("out_dtype")
    dtype = dtype if dtype is not None else torch_arrays.dtype_of(attention_output(_name("q", q)))
    return q.new_empty((*q.shape[:-1], _value_size(v, options)), dtype=dtype)


def attention_lse(q: Any, k: Any, v: Any, *tensors: Any, **options: Any) -> tuple[Any, Any]:
    *outer, first, second, _ = q.shape
    heads, rows = (first, second) if options.get("layout", "bshd") == "bhsd" else (second, first)
    return attention(q, k, v, *tensors, **options), q.new_empty((*outer, heads, rows), dtype=torch.float32)


attention_dynamic, attention_lse_dynamic = attention, attention_lse


def attention_backward(
    dout: Any, dlse: Any, out: Any, lse: Any, q: Any, k: Any, v: Any, mask: Any = None, bias: Any = None,
    alibi_slopes: Any = None, sink: Any = None, *_tables: Any, dbias: bool = False, dsink: bool = False,
    dalibi: bool = False, **_options: Any,
) -> tuple[Any, ...]:  # fmt: skip
    pairs = ((dbias, bias), (dsink, sink), (dalibi, alibi_slopes))
    more = (lse.new_empty(operand.shape if wanted else (0,)) for wanted, operand in pairs)
    return (*(tensor.new_empty(tensor.shape) for tensor in (q, k, v)), *more)


def nothing(*_tensors: Any, **_options: Any) -> None:
    """Of an op that only writes."""


def append_kv_q(cache_k: Any, cache_v: Any, k: Any, v: Any, q: Any, *tensors: Any, **options: Any) -> Any:
    return q.new_empty(q.shape)
