"""Gradients of attention as PyTorch knows them: an op of its own, and what eager, traced and compiled calls share.

The tensors of a call are those of the op `attention`, in its order (`TENSORS`).  The forward call keeps its result and
lse; the op `attention` gives no lse, so that its gradient computes the forward pass once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import plugins
from tilewright.errors import ProblemError
from tilewright.torch import kernels
from tilewright.torch.gradients import demand_floats, dense
from tilewright.torch.required import torch

TENSORS = ("q", "k", "v", "mask", "bias", "alibi_slopes", "sink", "seqlens_q", "seqlens_k", "cu_seqlens_q",
           "cu_seqlens_k", "block_table", "page_indptr", "page_last", "q_scale", "k_scale", "v_scale",
           "seeds")  # fmt: skip
_AT = {name: index for index, name in enumerate(TENSORS)}
_SOURCES = {"dbias": "bias", "dsink": "sink", "dalibi": "alibi_slopes"}
_OPTIONS = ("causal", "window_left", "window_right", "window_from", "sink_tokens", "scale", "softcap", "dropout_p",
            "seed", "max_seqlen_q", "max_seqlen_k", "kv_layout", "layout", "target")  # fmt: skip

SCHEMA = (
    "(Tensor dout, Tensor? dlse, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor? mask=None, "
    "Tensor? bias=None, Tensor? alibi_slopes=None, Tensor? sink=None, Tensor? seqlens_q=None, Tensor? seqlens_k=None, "
    "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, Tensor? seeds=None, *, "
    'str causal="", int window_left=-1, int window_right=-1, str window_from="", int sink_tokens=0, float? scale=None, '
    "float? softcap=None, float dropout_p=0.0, int[]? seed=None, SymInt max_seqlen_q=0, SymInt max_seqlen_k=0, "
    'str kv_layout="", str layout="bshd", bool deterministic=False, bool dbias=False, bool dsink=False, '
    'bool dalibi=False, str target="") -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)'
)


# Asked once, here: the compiler traces `served`, and does not follow a search for packages.
_BACKENDS = frozenset(
    backend
    for backend in ("cpu", "cuda", "hip")
    if "attention_backward" in plugins.names(f"tilewright.kernels.{backend}")
)


def served(device: Any) -> bool:
    """Whether there are kernels for gradients on a device of PyTorch's."""
    return ("cpu" if device.type == "cpu" else "hip" if torch.version.hip else "cuda") in _BACKENDS


# -- gradients ---------------------------------------------------------------------------------------------------------


def of_attention(
    call: Callable[..., Any], tensors: Sequence[Any], results: tuple[Any, Any], gradients: tuple[Any, Any],
    needed: Sequence[bool], options: dict[str, Any],
) -> tuple[Any, ...]:  # fmt: skip
    """Gradients of the tensors of a call, in their order; `call` computes them."""
    (out, lse), (dout, dlse) = results, gradients
    tensors = (*tensors, *(None,) * (len(TENSORS) - len(tensors)))
    wanted = dict(zip(TENSORS, (*needed, *(False,) * len(TENSORS)), strict=False))
    demand_differentiable(tensors, out)
    if dout is None:
        dout = torch.zeros_like(out)
    switches = {name: wanted[operand] for name, operand in _SOURCES.items()}
    kept = [tensors[_AT[name]] for name in (*TENSORS[:11], "seeds")]
    dq, dk, dv, *more = call(
        dense(dout), None if dlse is None else dense(dlse), out, lse, *kept, **switches,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        **{name: options[name] for name in _OPTIONS if name in options},
    )  # fmt: skip
    all_gradients: list[Any] = [dq, dk, dv, *(None,) * (len(TENSORS) - 3)]
    for (name, operand), gradient in zip(_SOURCES.items(), more, strict=True):
        if switches[name]:
            all_gradients[_AT[operand]] = gradient.to(tensors[_AT[operand]].dtype)
    return tuple(gradient if want else None for gradient, want in zip(all_gradients, (*needed,), strict=False))


def demand_differentiable(tensors: Sequence[Any], out: Any) -> None:
    for name in ("block_table", "q_scale", "k_scale", "v_scale"):
        if len(tensors) > _AT[name] and tensors[_AT[name]] is not None:
            raise ProblemError(
                f"{name} is given, and a gradient is recorded: pages and fp8 have none",
                rule="array-grad",
                value=name,
                remedy="give k and v as tensors of float32, float16 or bfloat16, or call under torch.no_grad()",
            )
    for name, tensor in zip(TENSORS[:3], tensors, strict=False):
        demand_floats(name, tensor)
    if out.dtype != tensors[0].dtype:
        held = str(out.dtype).removeprefix("torch.")
        raise ProblemError(
            f"the result holds {held}, and a gradient is recorded: it is computed in the type of q",
            rule="array-grad",
            value=held,
            remedy="leave out_dtype out, or convert the result",
        )


class Attention(torch.autograd.Function):  # type: ignore[misc]
    """An eager call that records its gradient; (out, lse)."""

    @staticmethod
    def forward(ctx: Any, options: dict[str, Any], *tensors: Any) -> Any:
        results = kernels.attention_lse(*tensors, **options)
        demand_differentiable(tensors, results[0])
        ctx.save_for_backward(*tensors, *results)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        *tensors, out, lse = ctx.saved_tensors
        from tilewright.torch.library import CALLS

        needed, call = ctx.needs_input_grad[1:], CALLS.attention_backward
        operand_gradients = of_attention(call, tensors, (out, lse), (dout, dlse), needed, ctx.options)
        return None, *operand_gradients


def no_second_gradient(_ctx: Any, *_gradients: Any) -> Any:
    raise ProblemError(
        "a gradient of attention's gradient is requested",
        rule="array-grad",
        value="attention_backward",
        remedy="differentiate once (create_graph=False), or use PyTorch's own scaled_dot_product_attention",
    )
