"""`scaled_dot_product_attention` with PyTorch's own signature and meaning, on our kernels where they serve it."""

from __future__ import annotations

from typing import Any

from tilewright.api import attention as attention_api
from tilewright.runtime.copies import CopyNeeded
from tilewright.runtime.torch_arrays import must_be_seen
from tilewright.torch import recorded
from tilewright.torch.attention_gradients import served
from tilewright.torch.required import torch

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_DEVICES = ("cpu", "cuda")
_MOST_HEAD = 256  # the largest head that kernels of every target have
# Kernels multiply masks by log2(e): this is finite then, and a score is rounded away beside it as beside finfo.min.
_LOWEST = -1e38
# PyTorch's own, also where a program has put ours in the place of `torch.nn.functional.scaled_dot_product_attention`.
_THEIRS = torch._C._nn.scaled_dot_product_attention


def _plain(tensor: Any) -> bool:
    return bool(torch.compiler.is_compiling() or type(tensor) in (torch.Tensor, torch.nn.Parameter))


def _why_not_shapes(query: Any, key: Any, value: Any, enable_gqa: bool) -> str:
    if query.dim() not in (3, 4) or key.dim() != query.dim() or value.dim() != query.dim():
        return "tensors have 3 or 4 dimensions, all the same number"
    if key.shape[:-1] != value.shape[:-1] or query.shape[-1] != key.shape[-1] or query.shape[0] != key.shape[0]:
        return "batches, keys or heads are of different sizes"
    if query.dim() == 4 and query.shape[1] != key.shape[1]:
        heads, shared = query.shape[1], key.shape[1]
        if not enable_gqa or shared == 0 or heads % shared:
            return "query heads are no multiple of key heads, or enable_gqa is not given"
    if query.shape[-1] > _MOST_HEAD or value.shape[-1] > _MOST_HEAD:
        return f"a head has more than {_MOST_HEAD} elements"
    if query.numel() == 0 or key.numel() == 0 or value.numel() == 0:
        return "a tensor is empty"
    return ""


def _why_not_mask(query: Any, key: Any, mask: Any, is_causal: bool) -> str:
    if mask is None:
        return ""
    if is_causal:
        return "attn_mask and is_causal are both given"
    if mask.dtype not in (torch.bool, torch.float32, query.dtype) or mask.dim() > query.dim() or mask.dim() < 2:
        return "the mask is of another type, or has other dimensions"
    full = (*query.shape[:-1], key.shape[-2])
    for size, whole in zip(reversed(mask.shape), reversed(full), strict=False):
        if size not in (1, whole):
            return "the mask does not broadcast to the scores"
    return ""


def why_not(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> str:  # fmt: skip
    """The reason why a call is forwarded to PyTorch; empty if our kernels compute it.  Arguments are SDPA's."""
    del scale  # any serves
    tensors = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    if not all(_plain(tensor) for tensor in tensors):
        return "a tensor is of a class of its own"
    if any(tensor.is_nested or tensor.layout is not torch.strided for tensor in tensors):
        return "a tensor is sparse or nested"
    if query.dtype not in _FLOATS or key.dtype != query.dtype or value.dtype != query.dtype:
        return "tensors are all of float32, float16 or bfloat16"
    if query.device.type not in _DEVICES or not all(tensor.device == query.device for tensor in tensors):
        return "tensors are all on the CPU, or on one CUDA device"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors) and not served(query.device):
        return "a gradient is recorded, and there are no kernels for it on this device"
    if dropout_p and not 0 < dropout_p < 1:
        return "dropout_p is not below 1"
    return _why_not_shapes(query, key, value, enable_gqa) or _why_not_mask(query, key, attn_mask, is_causal)


def _surely_served(query: Any, key: Any, value: Any, enable_gqa: bool) -> bool:
    """Whether a call without mask and dropout is one of ours: `why_not` for the usual case, in less time."""
    if not (type(query) is type(key) is type(value) is torch.Tensor):
        return False
    dtype, device = query.dtype, query.device
    if dtype not in _FLOATS or key.dtype != dtype or value.dtype != dtype or device.type not in _DEVICES:
        return False
    if query.is_nested or key.is_nested or value.is_nested:
        return False
    shape, shape_k = query.shape, key.shape
    same = key.device == device == value.device and value.shape == shape_k and len(shape) == len(shape_k) == 4
    if not same or shape[3] != shape_k[3] or shape[3] > _MOST_HEAD or 0 in shape or 0 in shape_k:
        return False
    heads, shared = shape[1], shape_k[1]
    return shape[0] == shape_k[0] and (heads == shared or (enable_gqa and heads % shared == 0))


def finite_rows(mask: Any) -> Any:
    """The float mask with rows that kernels do not take for hidden ones, where PyTorch does not.

    A row of nothing but `torch.finfo(torch.float32).min` (models write padding so) is the mean of v in PyTorch: the
    scores are rounded away.  To kernels, whose powers are of 2, it is minus infinity, and its result 0.
    """
    if mask is None or mask.dtype not in (torch.float32, torch.bfloat16):  # float16 has no such numbers
        return mask
    largest = mask.detach().amax(-1, keepdim=True)
    odd = (largest < _LOWEST) & (largest > -torch.inf)
    # Whether there is such a row costs little on the CPU; elsewhere the device would have to be waited for.
    known = mask.device.type == "cpu" and not torch.compiler.is_compiling() and not must_be_seen((mask,))
    if known and not bool(odd.any()):
        return mask
    return torch.where(odd & (mask > -torch.inf), _LOWEST, mask)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """`torch.nn.functional.scaled_dot_product_attention`, with the same signature and semantics.

    Masks are boolean (True: visible) or floats that are added; `is_causal` is aligned top-left.  Calls that our kernels
    do not support are forwarded to PyTorch: `why_not` returns the reason.  Gradients are computed by our kernels too.
    `dropout_p` is seeded by PyTorch's generator, but drops other entries than PyTorch does.
    """
    usual = attn_mask is None and not dropout_p and not torch.compiler.is_compiling()
    if usual and _surely_served(query, key, value, enable_gqa):
        options = {"causal": is_causal, "scale": scale}
        if not torch.is_grad_enabled():
            return attention(query, key, value, options)
        done = attention(query, key, value, options, recorded.attention) if served(query.device) else None
        if done is not None:
            return done
    if why_not(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
        return _THEIRS(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    seed = torch.randint(0, 2**62, (2,), device=query.device) if dropout_p else None
    options = {"causal": is_causal, "scale": scale, "dropout_p": dropout_p, "seed": seed}
    if attn_mask is not None:
        attn_mask = finite_rows(attn_mask)
        options["attn_mask"] = attn_mask.unsqueeze(1) if attn_mask.dim() == query.dim() == 3 else attn_mask
    if query.dim() == 4:
        return attention(query, key, value, options)
    return attention(query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), options).squeeze(1)


def attention(query: Any, key: Any, value: Any, options: dict[str, Any], call: Any = None) -> Any:
    """`tw.attention` (or `call`) of heads before rows, whose result lies in memory as the queries do.

    Models make heads of `x.view(batch, rows, heads, size).transpose(1, 2)`.  As with PyTorch's own SDPA they get back
    what `transpose(1, 2)` makes contiguous again: `view` takes it, and no copy is made of it.
    """
    call = call or _copying
    if not _rows_before_heads(query):
        return call(query, key, value, {**options, "layout": "bhsd"})
    done = call(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), {**options, "layout": "bshd"})
    return None if done is None else done.transpose(1, 2)


def _rows_before_heads(query: Any) -> bool:
    """Whether the memory of (batch, heads, rows, elements) has rows before heads; of one row or head it is the same."""
    shape, stride = query.shape, query.stride()
    return bool(stride[1] < stride[2] and shape[1] > 1 and shape[2] > 1)


def _copying(query: Any, key: Any, value: Any, options: dict[str, Any]) -> Any:
    """`tw.attention` that copies operands where kernels cannot read them in place."""
    try:
        return attention_api.attention(query, key, value, **options)
    except CopyNeeded:
        return attention_api.attention(query, key, value, copy="allow", **options)
