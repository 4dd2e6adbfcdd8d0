"""PyTorch tensors without the detour of a DLPack capsule, which costs ten times the rest of a small call.

PyTorch is never imported here: a tensor can only come from a process that has it.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from tilewright.runtime.devices import ANY, HOST, Place, wrong_place
from tilewright.runtime.dlpack import refuse_export

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


def quick_key(tensor: Any, kind: str = "cpu") -> tuple[Any, ...] | None:
    """What a plan depends on, for a tensor that `parts` would take without complaint; None otherwise."""
    if tensor.requires_grad or tensor.is_neg():
        return None
    if kind == "cpu":
        return (tensor.shape, tensor.stride(), tensor.dtype) if tensor.is_cpu else None
    if not tensor.is_cuda or (sys.modules["torch"].version.hip is not None) != (kind == "hip"):
        return None
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device())


def empty_like_plan(example: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A new row-major tensor beside `example`, on its device."""
    kind = _tables()[1].get(dtype)
    return None if kind is None else example.new_empty(shape, dtype=kind)


def place_of(tensor: Any, kind: str = "cpu") -> Place:
    """Where a tensor is.  PyTorch calls AMD devices cuda too; pinned host memory is on every device of `kind`."""
    device = tensor.device
    if device.type == "cpu":
        return Place(kind, ANY) if kind != "cpu" and tensor.is_pinned() else HOST
    name = "hip" if device.type == "cuda" and sys.modules["torch"].version.hip is not None else device.type
    return Place(name, device.index or 0)


def parts(what: str, tensor: Any, kind: str = "cpu") -> tuple[int, tuple[int, ...], tuple[int, ...], str, Place] | None:
    """Address, shape, strides, element type and place; None when DLPack should give its own answer."""
    name = _tables()[0].get(tensor.dtype)
    if name is None or tensor.layout is not sys.modules["torch"].strided or tensor.is_neg():
        return None
    place = place_of(tensor, kind)
    if place.kind != kind:
        raise wrong_place(what, place, kind)
    if tensor.requires_grad:
        raise refuse_export(what, tensor, "it requires grad, and kernels record no gradients")
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), name, place


def empty(shape: tuple[int, ...], dtype: str, column_major: bool, place: Place = HOST) -> Any:
    """A new tensor for a result, or None where this PyTorch lacks the type."""
    kind = _tables()[1].get(dtype)
    if kind is None:
        return None
    torch = sys.modules["torch"]
    if place is HOST and not column_major:
        return torch.empty(shape, dtype=kind)
    where = "cpu" if place.kind == "cpu" else f"cuda:{place.ordinal}"
    if not column_major:
        return torch.empty(shape, dtype=kind, device=where)
    return torch.empty((*shape[:-2], shape[-1], shape[-2]), dtype=kind, device=where).transpose(-1, -2)
