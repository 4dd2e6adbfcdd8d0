"""PyTorch tensors without the detour of a DLPack capsule, which costs ten times the rest of a small call.

PyTorch is never imported here: a tensor can only come from a process that has it.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from tilewright.runtime.dlpack import refuse_device, refuse_export

# Our element types by the name PyTorch gives them.
_NAMES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "int8": "int8",
    "int32": "int32",
}


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[Any, str], dict[str, Any]]:
    torch = sys.modules["torch"]
    names = {getattr(torch, spelled): name for spelled, name in _NAMES.items() if hasattr(torch, spelled)}
    return names, {name: kind for kind, name in names.items()}


def is_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    kind = type(array)
    return torch is not None and (kind is torch.Tensor or kind is torch.nn.Parameter)


def parts(what: str, tensor: Any) -> tuple[int, tuple[int, ...], tuple[int, ...], str] | None:
    """Address, shape, strides and element type; None when DLPack should give its own answer."""
    name = _tables()[0].get(tensor.dtype)
    if name is None or tensor.layout is not sys.modules["torch"].strided or tensor.is_neg():
        return None
    device = tensor.device
    if device.type != "cpu":
        raise refuse_device(what, device.type, device.index or 0)
    if tensor.requires_grad:
        raise refuse_export(what, tensor, "it requires grad, and kernels record no gradients")
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), name


def empty(shape: tuple[int, ...], dtype: str, column_major: bool) -> Any:
    """A new tensor for a result, or None where this PyTorch lacks the type."""
    kind = _tables()[1].get(dtype)
    if kind is None:
        return None
    torch = sys.modules["torch"]
    if not column_major:
        return torch.empty(shape, dtype=kind)
    return torch.empty((*shape[:-2], shape[-1], shape[-2]), dtype=kind).transpose(-1, -2)
