"""PyTorch tensors without the detour of a DLPack capsule, which costs ten times the rest of a small call.

PyTorch is never imported here: a tensor can only come from a process that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tilewright.runtime import quick
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


@lru_cache(maxsize=4)
def _tables_of(torch: Any) -> tuple[dict[Any, str], dict[str, Any]]:
    names = {getattr(torch, spelled): name for spelled, name in _NAMES.items() if hasattr(torch, spelled)}
    return names, {name: kind for kind, name in names.items()}


def _tables() -> tuple[dict[Any, str], dict[str, Any]]:
    return _tables_of(sys.modules["torch"])


def is_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    kind = type(array)
    return torch is not None and (kind is torch.Tensor or kind is torch.nn.Parameter)


def kinds() -> tuple[type[Any], type[Any]]:
    """The types that `is_tensor` knows, once there is PyTorch."""
    torch = sys.modules["torch"]
    return torch.Tensor, torch.nn.Parameter


def reader() -> Callable[..., tuple[Any, ...] | None]:
    """`read(*tensors)`: a key of what plans depend on and the addresses; None for what `parts` would not take,
    or what else needs a longer look."""
    known = kinds()

    def read(*tensors: Any) -> tuple[Any, ...] | None:
        key: list[Any] = []
        at: list[Any] = [None]
        try:
            for one in tensors:
                if type(one) not in known or one.requires_grad or one.is_neg():
                    return None
                address = one.data_ptr()
                key += (one.shape, one.stride(), one.dtype, one.device, not address & 15)
                at.append(address)
        except (RuntimeError, TypeError, NotImplementedError):  # no strides, no memory
            return None
        at[0] = tuple(key)
        return tuple(at)

    return read


def native_reader() -> tuple[Callable[..., tuple[Any, ...] | None], Callable[..., Any]] | None:
    """The same in C, and the call beside it (see `quick.reader`), where this PyTorch lets C read its tensors."""
    return quick.reader(sys.modules["torch"], kinds())


def allocator(place: Place) -> Callable[[tuple[int, ...], tuple[int, ...], Any], Any]:
    """What makes a tensor of a shape, strides and dtype on a device; possibly on the current one instead."""
    torch = sys.modules["torch"]
    guards = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "guards", None)
    found: Callable[..., Any] | None = getattr(guards, "_empty_strided_cuda", None)
    if found is not None and torch.cuda.is_available():
        return found

    def make(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=f"cuda:{place.ordinal}")

    return make


def dtype_of(name: str) -> Any:
    """PyTorch's type for one of ours; None where it has none."""
    return _tables()[1].get(name)


def current_stream() -> Callable[[int], int] | None:
    """PyTorch's own function that gives the current stream of the device with an index."""
    return getattr(getattr(sys.modules["torch"], "_C", None), "_cuda_getCurrentRawStream", None)


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
    if name is None or tensor.layout is not sys.modules["torch"].strided:
        return None
    place = place_of(tensor, kind)
    if place.kind != kind:
        raise wrong_place(what, place, kind)
    if tensor.requires_grad:
        raise refuse_export(what, tensor, "it requires grad, and kernels record no gradients")
    if tensor.is_neg():  # what is in memory has the other sign, and DLPack says nothing of it
        raise refuse_export(what, tensor, "it is negated lazily; give the tensor that .resolve_neg() makes")
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
