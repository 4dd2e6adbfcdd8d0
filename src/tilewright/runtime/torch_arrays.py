"""PyTorch tensors without the detour of a DLPack capsule, which costs ten times the rest of a small call.

PyTorch is never imported here: a tensor can only come from a process that has it.  Kernels read and write memory behind
PyTorch's back, so whatever PyTorch would have to know of them is refused here, in one place: gradients, tangents,
transforms (vmap and its like), tracing, lazily negated views, storage that is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

from tilewright.dataclass import NamedTuple
from tilewright.dtypes import BY_TORCH_NAME, DTYPES
from tilewright.errors import ProblemError, an
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.devices import ANY, HOST, HOST_KIND, Place, kind_of_torch, torch_device, wrong_place

_STORAGE = (
    "give the tensor its storage back (a sharded parameter must be gathered first), or give a copy that has its own"
)


@lru_cache(maxsize=4)
def _tables_of(torch: Any) -> tuple[dict[Any, str], dict[str, Any]]:
    names = {getattr(torch, spelled): name for spelled, name in BY_TORCH_NAME.items() if hasattr(torch, spelled)}
    return names, {name: kind for kind, name in names.items()}


def _tables() -> tuple[dict[Any, str], dict[str, Any]]:
    return _tables_of(sys.modules["torch"])


def loaded() -> bool:
    """Whether there can be tensors at all."""
    return sys.modules.get("torch") is not None


def is_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return kind is not None and isinstance(array, kind)


def is_dtype(value: Any) -> bool:
    kind = getattr(sys.modules.get("torch"), "dtype", None)
    return kind is not None and isinstance(value, kind)


def kinds() -> tuple[type[Any], type[Any]]:
    """The types that C reads, once there is PyTorch."""
    torch = sys.modules["torch"]
    return torch.Tensor, torch.nn.Parameter


def dtype_of(name: str) -> Any:
    """PyTorch's type for one of ours; None where it has none."""
    return _tables()[1].get(name)


def name_of(dtype: Any) -> str | None:
    """Our name of a torch.dtype; None where it is none, or none of ours."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(dtype, getattr(torch, "dtype", ())):
        return None
    return _tables()[0].get(dtype)


# -- what PyTorch is doing at the moment -------------------------------------------------------------------------------


class Questions(NamedTuple):
    """What C asks in every call on tensors, made of the cheapest questions there are."""

    unusual: tuple[Callable[[], Any], ...]  # a yes of any of them sends the call down the slow path
    forward: Any  # its `_current_level` is negative where no forward-mode gradient is made
    records: Callable[[], bool]  # whether gradients are recorded
    inference: Callable[[], bool]  # whether this is inference mode


@lru_cache(maxsize=4)
def questions(torch: Any) -> Questions:
    c = torch._C
    modes, tracing = getattr(c, "_len_torch_dispatch_stack", _no), getattr(c, "_is_tracing", _no)
    transforms = getattr(getattr(c, "_functorch", None), "peek_interpreter_stack", _no)
    autocast = getattr(c, "_is_any_autocast_enabled", _no)
    unusual = (modes, tracing, transforms, autocast)
    return Questions(unusual, torch.autograd.forward_ad, torch.is_grad_enabled, torch.is_inference_mode_enabled)


def _no() -> int:
    return 0


def _records(torch: Any) -> bool:
    """Whether gradients are recorded: not below autograd, which is done with the call by then, nor in inference mode,
    whatever `enable_grad` says inside of it."""
    if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
        return False
    c = torch._C
    return not c._dispatch_tls_is_dispatch_key_excluded(c.DispatchKey.AutogradCPU)


def _traced(c: Any) -> bool:
    """Whether PyTorch records operations instead of (or beside) running them."""
    if getattr(c, "_is_tracing", _no)():
        return True
    if not getattr(c, "_len_torch_dispatch_stack", _no)():
        return False
    keys = c._TorchDispatchModeKey
    return any(c._get_dispatch_mode(key) is not None for key in (keys.PROXY, keys.FAKE, keys.FUNCTIONAL))


def must_be_seen(operands: Sequence[Any]) -> bool:
    """Whether PyTorch must see a call on these operands: a gradient is recorded, or the call is traced, batched or
    otherwise transformed.  Asked only of calls that C does not know."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    tensors = [operand for operand in operands if isinstance(operand, kind)] if kind is not None else []
    if torch is None or not tensors:
        return False
    functorch = torch._C._functorch
    if _traced(torch._C) or functorch.peek_interpreter_stack() is not None:
        return True
    records = _records(torch)
    fake = torch._subclasses.fake_tensor.FakeTensor
    return any(
        (records and tensor.requires_grad)
        or isinstance(tensor, fake)
        or functorch.is_functorch_wrapped_tensor(tensor)
        or torch._is_functional_tensor(tensor)
        for tensor in tensors
    )


def run_as_they_are(*functions: Any) -> None:
    """Tell PyTorch's compiler that the frames of functions, and all they call, are none of its business.

    That is a mark of their code: it costs calls nothing, and imports nothing of the compiler.
    """
    dynamo = getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None)
    frames: Any = getattr(dynamo, "eval_frame", None)
    mark = getattr(frames, "set_code_exec_strategy", None)
    if mark is None:
        return
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in functions:
        mark(function.__code__, skip)


@lru_cache(maxsize=4)
def toucher(torch: Any) -> Callable[[tuple[Any, ...]], object]:
    """What notifies autograd that tensors were written: what saved them for a gradient must not use them any more."""
    raw = getattr(torch._C, "_increment_version", None)
    with torch.inference_mode(False):
        probe = torch.zeros(1, device="cpu")
    before = probe._version
    try:
        if raw is not None:
            raw((probe,))
    except TypeError:  # it takes something else in this release
        raw = None
    if raw is not None and probe._version > before:
        return cast("Callable[[tuple[Any, ...]], object]", raw)
    public = getattr(torch.autograd.graph, "increment_version", None)
    return _no_touch if public is None else cast("Callable[[tuple[Any, ...]], object]", public)


def _no_touch(_tensors: tuple[Any, ...]) -> None:
    """For releases without such a function."""


def watched() -> tuple[Questions, Callable[[tuple[Any, ...]], object]]:
    torch = sys.modules["torch"]
    return questions(torch), toucher(torch)


def touched(tensor: Any) -> None:
    """Tell autograd that a tensor was written; one made in inference mode has no version to raise."""
    if not tensor.is_inference():
        toucher(sys.modules["torch"])((tensor,))


def autocast(operands: Sequence[Any], cast: Sequence[bool]) -> tuple[str, list[Any]] | None:
    """The device that torch.autocast is in force for and the operands as it wants them; None where it changes nothing.

    As PyTorch does with its own products: tensors of that device that hold floats of 16 or 32 bits, where `cast` says
    that an operand is one of a product.  A call that has memory for its result is not its own there either.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_autocast_dtype") or not questions(torch).unusual[-1]():
        return None
    device = next((operand.device.type for operand in operands if is_tensor(operand)), "")
    if not device or not torch.is_autocast_enabled(device):
        return None
    kind = torch.get_autocast_dtype(device)
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    changed = [
        operand.to(kind)
        if wanted and is_tensor(operand) and operand.device.type == device and operand.dtype in narrow
        else operand
        for operand, wanted in zip(operands, cast, strict=True)
    ]
    return device, changed


def without_autocast(device: str) -> Any:
    return sys.modules["torch"].autocast(device, enabled=False)


def demand_written(what: str, tensor: Any) -> None:
    """PyTorch writes no tensor of inference mode outside of it, and neither do we."""
    torch = sys.modules["torch"]
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        raise _refuse(
            what,
            tensor,
            "was made in inference mode, and is written outside of it",
            f"call it within torch.inference_mode(), or give {what}.clone()",
            "torch-inference",
        )


def _refuse(what: str, tensor: Any, why: str, remedy: str, rule: str = "array-torch") -> ProblemError:
    return ProblemError(f"{what} {why}", rule=rule, value=type(tensor).__name__, remedy=remedy)


def _demand_untraced(what: str, tensor: Any, torch: Any) -> None:
    """Refuse what happens while PyTorch records operations instead of (or beside) running them."""
    c = torch._C
    eager = "call it outside, or wrap it in an operator of your own (torch.library.custom_op)"
    if getattr(c, "_is_tracing", _no)():
        raise _refuse(
            what, tensor, "is met while torch.jit traces, which sees no kernels of ours", eager, "torch-trace"
        )
    keys = getattr(c, "_TorchDispatchModeKey", None)
    get = getattr(c, "_get_dispatch_mode", None)
    if keys is not None and get is not None and getattr(c, "_len_torch_dispatch_stack", _no)():
        for key in (keys.PROXY, keys.FAKE, keys.FUNCTIONAL):
            if get(key) is not None:
                message = "is met while PyTorch traces (make_fx, compile, export), which sees no kernels of ours"
                raise _refuse(what, tensor, message, eager, "torch-trace")


def _demand_untransformed(what: str, tensor: Any, torch: Any) -> None:
    wrapped = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
    if (wrapped is not None and wrapped(tensor)) or torch._is_functional_tensor(tensor):
        raise _refuse(
            what,
            tensor,
            "stands for other tensors inside a transform (vmap, grad, jvp, functionalize)",
            "call it outside of the transform; a batch is a leading dimension here",
            "torch-transform",
        )
    forward = torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(tensor).tangent is not None:
        raise _refuse(
            what,
            tensor,
            "carries a forward-mode tangent, which kernels would drop",
            "give the primal: torch.autograd.forward_ad.unpack_dual(tensor).primal",
            "torch-transform",
        )


def _demand_no_gradient(what: str, tensor: Any, torch: Any) -> None:
    if tensor.requires_grad and _records(torch):
        raise _refuse(
            what,
            tensor,
            "requires grad, and kernels record no gradients",
            f"give {what}.detach(), or call under torch.no_grad()",
            "array-grad",
        )


def demand_constant(name: str, value: Any) -> None:
    """Refuse a scalar whose gradient would be lost."""
    if is_tensor(value):
        _demand_no_gradient(name, value, sys.modules["torch"])


def _plain(what: str, tensor: Any, torch: Any) -> Any:
    """The tensor as one of PyTorch's own type; subclasses that compute in their own way are refused."""
    kind = type(tensor)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        return tensor
    if kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        raise _refuse(
            what,
            tensor,
            f"is {an(kind.__name__)}, a kind of tensor with a memory of its own making",
            "give the plain tensor it stands for (DTensor: .to_local(), FakeTensor: none has values)",
            "array-type",
        )
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


def _demand_strided(what: str, tensor: Any, torch: Any) -> None:
    if tensor.is_nested:
        raise _refuse(
            what, tensor, "is a nested tensor", "give its parts, or torch.nested.to_padded_tensor", "array-type"
        )
    if tensor.layout is not torch.strided:
        raise _refuse(what, tensor, f"is laid out as {tensor.layout}", f"give {what}.to_dense()", "array-type")
    for lazy, meaning, resolved in ((tensor.is_neg, "negated", "neg"), (tensor.is_conj, "conjugated", "conj")):
        if lazy():  # what is in memory is something else
            message, how = f"{what} is {meaning} lazily", f"{what}.resolve_{resolved}()"
            raise copy_needed(what, message, rule="array-lazy", value=type(tensor).__name__, how=how)


def _demand_storage(what: str, tensor: Any, reach: int) -> None:
    """Memory may be gone (`untyped_storage().resize_(0)`), smaller than it was, or never have been."""
    if not reach:
        return
    there = tensor.untyped_storage().nbytes()
    needed = tensor.storage_offset() * tensor.element_size() + reach
    if tensor._is_zerotensor() or not tensor.data_ptr() or there < needed:
        held = 0 if not tensor.data_ptr() else there
        raise _refuse(
            what,
            tensor,
            f"has {held} bytes of storage, and its elements reach to byte {needed}",
            _STORAGE,
            "array-null",
        )


def _dtype_name(what: str, tensor: Any) -> str:
    name = _tables()[0].get(tensor.dtype)
    if name is not None:
        return name
    held = str(tensor.dtype).removeprefix("torch.")
    raise ProblemError(
        f"{what} has elements of type {held}, which no kernel takes",
        rule="array-dtype",
        value=held,
        remedy=_tensor_conversion(what, held, tensor),
    )


def _tensor_conversion(what: str, held: str, tensor: Any) -> str:
    if tensor.is_quantized:
        fits = held == "qint8" and _has_one_scale(tensor)
        whole = f", or {what}.int_repr(), and scale the result by {what}.q_scale()" if fits else ""
        return f"give {what}.dequantize(){whole}"
    if not tensor.is_complex() and not _converts(tensor.dtype):  # to convert complex numbers is to be warned
        return f"PyTorch converts {held} to nothing: unpack {what} into numbers of another type yourself"
    return conversion(what, held, f"{what}.to(torch.{{}})")


def _has_one_scale(tensor: Any) -> bool:
    """Whether a quantized tensor holds plain multiples of one number; memory that was never quantized says nothing."""
    try:
        return str(tensor.qscheme()) == "torch.per_tensor_affine" and tensor.q_zero_point() == 0
    except RuntimeError:
        return False


@lru_cache(maxsize=64)
def _converts(dtype: Any) -> bool:
    """Whether PyTorch makes float32 of a type: of some it only stores the bits."""
    torch = sys.modules["torch"]
    try:
        torch.empty(1, dtype=dtype, device="cpu").to(torch.float32)
    except (RuntimeError, TypeError):  # a NotImplementedError is the first
        return False
    return True


def number_like(tensor: Any, number: float) -> Any:
    """A number as a tensor of fp32 without dimensions, on the device of another."""
    return tensor.new_full((), number, dtype=sys.modules["torch"].float32)


def conversion(what: str, held: str, spelled: str, *, bytes_too: bool = True) -> str:
    """How elements of a type that kernels lack become some they take (8-bit integers too, unless said otherwise);
    `spelled` is how a conversion is written."""
    if held.startswith("complex"):
        return f"kernels know no complex numbers: multiply {what}.real and {what}.imag apart"
    if held.startswith(("int", "uint")) and bytes_too:
        exact = f"{spelled.format('int8')} where every value fits in 8 bits"
        return f"convert it: {exact}, else {spelled.format('float32')} (exact up to 2^24)"
    if held.startswith(("float", "bfloat", "int", "uint")):
        return f"convert it, for example {spelled.format('float32')}"
    return f"give numbers, for example {spelled.format('float32')}"


def place_of(tensor: Any, kind: str = HOST_KIND) -> Place:
    """Where a tensor is; pinned host memory is on every device of `kind`."""
    where = tensor.device
    if where.type == HOST_KIND:
        return Place(kind, ANY) if kind != HOST_KIND and tensor.is_pinned() else HOST
    return Place(kind_of_torch(sys.modules["torch"], where.type), where.index or 0)


def parts(what: str, tensor: Any, kind: str = HOST_KIND) -> tuple[int, tuple[int, ...], tuple[int, ...], str, Place]:
    """Address, shape, strides, element type and place of a tensor that kernels of a kind may read."""
    torch = sys.modules["torch"]
    _demand_untraced(what, tensor, torch)
    tensor = _plain(what, tensor, torch)
    _demand_untransformed(what, tensor, torch)
    _demand_strided(what, tensor, torch)
    place = place_of(tensor, kind)
    if place.kind != kind:
        raise wrong_place(what, place, kind)
    name = _dtype_name(what, tensor)
    _demand_no_gradient(what, tensor, torch)
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    reach = 0
    if 0 not in shape:
        reach = (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * DTYPES[name].bytes
    _demand_storage(what, tensor, reach)
    return tensor.data_ptr(), shape, strides, name, place


def copied(what: str, tensor: Any) -> Any:
    """The same values in memory of their own, one after the other."""
    torch = sys.modules["torch"]
    _demand_no_gradient(what, tensor, torch)
    with torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def allocator(place: Place) -> Any:
    """What makes a tensor of a shape, strides and dtype at a place, whatever device is the default one."""
    torch = sys.modules["torch"]
    guards = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "guards", None)
    name = "_empty_strided_cpu" if place is HOST else "_empty_strided_cuda"
    allocate = getattr(guards, name, None)
    # The device's one makes tensors on the current device; C sees where a result is not where it should be.
    if allocate is not None and (place is HOST or torch.cuda.device_count() == 1):
        return allocate
    where = torch.device(torch_device(place))

    def make(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        return torch.empty_strided(shape, strides, dtype=dtype, device=where)

    return make


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, place: Place = HOST) -> Any:
    """A new tensor for a result, or None where this PyTorch lacks the type."""
    kind = _tables()[1].get(dtype)
    if kind is None:
        return None
    torch = sys.modules["torch"]
    tensor = torch.empty_strided(shape, strides, dtype=kind, device=torch_device(place))
    _demand_plain(torch, tensor)
    return tensor


def _demand_plain(torch: Any, tensor: Any) -> None:
    """Inside a transform even a tensor made of nothing may be a wrapper without memory."""
    functorch = getattr(torch._C, "_functorch", None)
    wrapped = getattr(functorch, "is_functorch_wrapped_tensor", None)
    functional = getattr(torch, "_is_functional_tensor", None)
    if (wrapped is not None and wrapped(tensor)) or (functional is not None and functional(tensor)):
        raise _refuse(
            "the result",
            tensor,
            "would be made inside a transform (torch.func), which wraps it",
            "call it outside, or wrap it in an operator of your own (torch.library.custom_op)",
            "torch-transform",
        )
