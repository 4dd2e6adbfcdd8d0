"""The ops under `torch.func`: nodes that its transforms can take apart, and rules for a batch dimension.

A batch of products is a product with one more leading dimension, and a batch of convolutions with the same filters has
a larger batch.  What no batch dimension serves (filters of their own for each, say) is computed one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import ProblemError
from tilewright.torch import library
from tilewright.torch.required import torch


def transformed() -> bool:
    """Whether a call is made inside of grad, vmap or another transform."""
    return torch._C._functorch.peek_interpreter_stack() is not None


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node(name: str) -> Any:
    """An autograd.Function for an op, with its own gradient formula."""
    backward_of, overload = library.BACKWARD[name], library.op(name)

    class Node(torch.autograd.Function):  # type: ignore[misc]
        generate_vmap_rule = True

        @staticmethod
        def forward(options: library.Options, *operands: Any) -> Any:
            return overload(*operands, **options.values)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            options, *operands = inputs
            library.keep(ctx, operands, options.values, output)
            ctx.count = len(operands)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            gradient = gradients[0] if len(gradients) == 1 else gradients
            return None, *backward_of(ctx, gradient, ctx.needs_input_grad[1:])

        @staticmethod
        def jvp(_ctx: Any, *_tangents: Any) -> Any:
            raise library.tangent_dropped()

    return Node


_NODES: dict[str, Any] = {}


def requires_grad(tensor: Any) -> bool:
    """Whether a gradient is recorded at any level: vmap hides what the tensor that it batches requires."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if tensor.requires_grad:
            return True
        tensor = functorch.get_unwrapped(tensor)
    return bool(tensor.requires_grad)


def call(name: str, *operands: Any, **options: Any) -> Any:
    """An op inside of a transform: a node where its gradient is recorded."""
    library.demand_no_tangents(operands)
    if not torch.is_grad_enabled() or not transformed():
        return library.op(name)(*operands, **options)
    if not any(isinstance(operand, torch.Tensor) and requires_grad(operand) for operand in operands):
        return library.op(name)(*operands, **options)
    if name not in _NODES:
        _NODES[name] = _node(name)
    defaults = {
        argument.name: argument.default_value for argument in library.op(name)._schema.arguments if argument.kwarg_only
    }
    return _NODES[name].apply(library.Options({**defaults, **options}), *operands)


# -- batches -----------------------------------------------------------------------------------------------------------


def _first(tensor: Any, axis: int | None) -> Any:
    return tensor if tensor is None or axis is None else tensor.movedim(axis, 0)


def _one_by_one(name: str) -> Callable[..., Any]:
    """The rule for what no batch dimension serves."""

    def rule(info: Any, axes: Sequence[Any], *operands: Any, **options: Any) -> Any:
        results = []
        for index in range(info.batch_size):
            each = [
                operand if axis is None or not isinstance(operand, torch.Tensor) else operand.select(axis, index)
                for operand, axis in zip(operands, _filled(axes, operands), strict=True)
            ]
            results.append(library.op(name)(*each, **options))
        if isinstance(results[0], tuple):
            return tuple(torch.stack(column) for column in zip(*results, strict=True)), (0,) * len(results[0])
        return torch.stack(results), 0

    return rule


def _filled(axes: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """An axis for each operand; lists of sizes have none."""
    known = [axis if isinstance(axis, int) else None for axis in axes]
    return [*known, *[None] * (len(operands) - len(known))]


def _gemm(info: Any, axes: Sequence[Any], *operands: Any, **options: Any) -> Any:
    """Every batched operand gets the batch in front, and ones behind it up to the most dimensions any of them has."""
    axes = _filled(axes, operands)
    ranks = [
        operand.dim() - (axis is not None) for operand, axis in zip(operands, axes, strict=True) if operand is not None
    ]
    most = max(2, *ranks)
    batched = []
    for operand, axis in zip(operands, axes, strict=True):
        if operand is not None and axis is not None:
            operand = _first(operand, axis)
            operand = operand.reshape(operand.shape[0], *(1,) * (most - operand.dim() + 1), *operand.shape[1:])
        batched.append(operand)
    return library.op("gemm")(*batched, **options), 0


def _matmul(info: Any, axes: Sequence[Any], a: Any, b: Any, **options: Any) -> Any:
    """Vectors become matrices first: with a batch in front they would be taken for some."""
    row, column = a.dim() == 1 + (axes[0] is not None), b.dim() == 1 + (axes[1] is not None)
    a, b = _first(a, axes[0]), _first(b, axes[1])
    a = a.unsqueeze(-2) if row else a
    b = b.unsqueeze(-1) if column else b
    product, axis = _gemm(info, [None if each is None else 0 for each in axes[:2]], a, b, **options)
    if column:
        product = product.squeeze(-1)
    if row:
        product = product.squeeze(-1 if column else -2)
    return product, axis


def _gated(info: Any, axes: Sequence[Any], a: Any, gate: Any, up: Any, **options: Any) -> Any:
    """Rows of all batches with the same weights are more rows; batches of weights are taken one by one."""
    if axes[0] is None or axes[1] is not None or axes[2] is not None:
        return _one_by_one("gated_gemm")(info, axes, a, gate, up, **options)
    a = _first(a, axes[0])
    result = library.op("gated_gemm")(a.reshape(-1, a.shape[-1]), gate, up, **options)
    return result.reshape(*a.shape[:-1], result.shape[-1]), 0


def _conv(info: Any, axes: Sequence[Any], x: Any, w: Any, *others: Any, **options: Any) -> Any:
    """Images of all batches with the same filters are more images."""
    axes = _filled(axes, (x, w, *others))
    if (
        axes[0] is None
        or any(axis is not None for axis in axes[1:])
        or any(operand is not None for operand in others[1:])
    ):
        return _one_by_one("conv")(info, axes, x, w, *others, **options)
    x = _first(x, axes[0])
    result = library.op("conv")(x.flatten(0, 1), w, *others, **options)
    return result.unflatten(0, x.shape[:2]), 0


def _attention(name: str) -> Callable[..., Any]:
    def rule(info: Any, axes: Sequence[Any], *operands: Any, **options: Any) -> Any:
        axes = _filled(axes, operands)
        plain = all(operand is None for operand in operands[3:]) and all(axis is not None for axis in axes[:3])
        if not plain:
            return _one_by_one(name)(info, axes, *operands, **options)
        q, k, v = (_first(operand, axis) for operand, axis in zip(operands[:3], axes[:3], strict=True))
        result = library.op(name)(*(tensor.flatten(0, 1) for tensor in (q, k, v)), **options)
        if isinstance(result, tuple):
            return tuple(part.unflatten(0, q.shape[:2]) for part in result), (0,) * len(result)
        return result.unflatten(0, q.shape[:2]), 0

    return rule


def demand_none() -> None:
    """Refuse a call that writes: inside of a transform nobody would know what it wrote."""
    if transformed():
        raise ProblemError(
            "a call that writes (out=, append_kv) is made inside of a transform of torch.func",
            rule="torch-transform",
            value="out",
            remedy="call it outside of the transform, or leave out out=; a batch is a leading dimension here",
        )


def _register() -> None:
    rules: dict[str, Callable[..., Any]] = {
        "gemm": _gemm, "gated_gemm": _gated, "matmul": _matmul, "conv": _conv, "attention": _attention("attention"),
        "attention_lse": _attention("attention_lse"), "attention_backward": _one_by_one("attention_backward"),
        "conv_backward_data": _one_by_one("conv_backward_data"),
        "conv_backward_weight": _one_by_one("conv_backward_weight"),
        **{name: _attention(name) for name in ("attention_dynamic", "attention_lse_dynamic")},
    }  # fmt: skip
    for name, rule in rules.items():
        torch.library.register_vmap(f"tilewright::{name}", rule, lib=library.LIBRARY)


_register()
