"""Modules of PyTorch's with our kernels: the same parameters, state and arguments.

`Linear` and `Conv1d` to `Conv3d` are PyTorch's classes with another forward.  What kernels do not take (float64, other
devices, sparse and nested tensors, tensors of classes of their own) PyTorch computes.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tilewright import settings
from tilewright.api import conv as conv_api
from tilewright.api import gemm as gemm_api
from tilewright.runtime.copies import CopyNeeded
from tilewright.torch import recorded
from tilewright.torch.required import torch

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Linear", "PackedLinear", "conv", "linear"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_PACKED_ROWS = 8  # with fewer the weight is read once, and as it lies is as good
_F = torch.nn.functional
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def _served(x: Any, weight: Any) -> bool:
    """Whether kernels take these: floats of one type (autocast makes them that) on the CPU or a CUDA device."""
    mine, other = x.dtype, weight.dtype
    if mine not in _FLOATS or not (x.is_cpu or x.is_cuda):
        return False
    if x.layout is not torch.strided or weight.layout is not torch.strided or x.is_nested:
        return False
    if mine != other and (other not in _FLOATS or not torch.is_autocast_enabled(x.device.type)):
        return False
    return bool((type(x) in _PLAIN and type(weight) in _PLAIN) or torch.compiler.is_compiling())


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """`torch.nn.functional.linear`."""
    dims = x.dim()
    if dims == 0 or not _served(x, weight):
        return _F.linear(x, weight, bias)
    if not torch.compiler.is_compiling():
        done = recorded.linear(x, weight, bias)
        if done is not None:
            return done
    # A plain call folds leading dimensions itself.  The gradient of a weight is one product only of rows that are
    # folded before, and graphs are written so.
    folded = dims == 1 or (dims > 2 and (torch.is_grad_enabled() or torch.compiler.is_compiling()))
    rows = x.reshape(-1, x.shape[-1]) if folded else x
    try:
        result = gemm_api.gemm(rows, weight.T, bias=bias)
    except CopyNeeded:
        result = gemm_api.gemm(rows, weight.T, bias=bias, copy="allow")
    return result.view(*x.shape[:-1], result.shape[-1]) if folded else result


def _paddings(padding: Any, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]) -> Any:
    """Numbers, or pairs (before, after) for "same"."""
    if not isinstance(padding, str):
        return tuple(padding)
    if padding == "valid":
        return (0,) * len(kernel)
    totals = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def conv(
    x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Any:
    """`torch.nn.functional.conv1d`, `conv2d` or `conv3d`, by the dimensions of the weight; padding="same" too."""
    rank = weight.dim() - 2
    stride, dilation = _each(stride, rank), _each(dilation, rank)
    padding = padding if isinstance(padding, str) else _each(padding, rank)
    if not _served(x, weight) or x.dim() not in (rank + 1, rank + 2) or (padding == "same" and max(stride) > 1):
        theirs = (_F.conv1d, _F.conv2d, _F.conv3d)[rank - 1]
        return theirs(x, weight, bias, stride, padding, dilation, groups)
    images = x if x.dim() == rank + 2 else x.unsqueeze(0)
    last = _CHANNELS_LAST.get(rank)
    if last is not None and not weight.is_contiguous() and weight.is_contiguous(memory_format=last):
        images = images.contiguous(memory_format=last)  # as in PyTorch, filters of that format make a result of it
    options = {
        "stride": stride, "padding": _paddings(padding, weight.shape[2:], dilation, stride), "dilation": dilation,
        "groups": groups, "layout": "nchw",
    }  # fmt: skip
    try:
        result = None if torch.compiler.is_compiling() else recorded.images(images, weight, bias, options)
        if result is None:
            result = conv_api.conv(images, weight, bias, **options)
    except CopyNeeded:
        result = conv_api.conv(images, weight, bias, copy="allow", **options)
    return result if x.dim() == rank + 2 else result.squeeze(0)


# Modules of torch.nn are leaves of `torch.fx.symbolic_trace`, and these are not: their calls are.
torch.fx.wrap("linear")
torch.fx.wrap("conv")


class Linear(torch.nn.Linear):  # type: ignore[misc]
    """`torch.nn.Linear`."""

    def forward(self, input: Any) -> Any:
        return linear(input, self.weight, self.bias)


class _OptimizerSteps:
    """Steps of all optimizers of this process since somebody asked."""

    def __init__(self) -> None:
        self.count = 0
        importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(self._stepped)

    def _stepped(self, *_: Any) -> None:
        self.count += 1


@lru_cache(maxsize=1)
def _optimizer_steps() -> _OptimizerSteps:
    return _OptimizerSteps()


class PackedLinear(Linear):
    """`Linear` with a weight that changes rarely: on the CPU it is packed once, for calls that record no gradient.

    The packed copy is as large as the weight, is made in the first call that uses it, and is made anew when the weight
    was written to: its version changed, an optimizer stepped (fused ones raise no version), or a call recorded a
    gradient.  Writes that PyTorch does not see, through `weight.data` or a NumPy array of the same memory, go unseen.
    A weight made in inference mode has no version and is not packed.  The copy is no part of the state_dict, and not
    copied or pickled with the module.
    """

    def forward(self, input: Any) -> Any:
        weight = self.weight
        if torch.compiler.is_compiling() or isinstance(input, torch.fx.Proxy):
            return linear(input, weight, self.bias)
        if torch.is_grad_enabled():
            self.__dict__.pop("_packed", None)  # whoever trains is about to write the weight, by whatever means
            return linear(input, weight, self.bias)
        plain = torch.is_autocast_enabled("cpu") or weight.is_inference()
        if plain or not weight.is_cpu or input.dim() < 2 or not _served(input, weight):
            return linear(input, weight, self.bias)
        if input.numel() < _PACKED_ROWS * weight.shape[1]:
            return linear(input, weight, self.bias)
        try:
            return gemm_api.gemm(input, self._packed_weight(), bias=self.bias)
        except CopyNeeded:
            return linear(input, weight, self.bias)

    def _packed_weight(self) -> Any:
        weight = self.weight
        steps = _optimizer_steps()
        now = weight.data_ptr(), weight.dtype, weight.shape, weight._version, steps.count, settings.current()
        packed = self.__dict__.get("_packed")
        if packed is None or packed[0] != now:
            packed = self.__dict__["_packed"] = now, gemm_api.pack(weight.T)
        return packed[1]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}


class _Conv:
    """The forward of PyTorch's convolutions: `padding_mode` is theirs, and the rest ours."""

    def _conv_forward(self: Any, input: Any, weight: Any, bias: Any) -> Any:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = _F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return conv(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv, torch.nn.Conv1d):  # type: ignore[misc]
    """`torch.nn.Conv1d`."""


class Conv2d(_Conv, torch.nn.Conv2d):  # type: ignore[misc]
    """`torch.nn.Conv2d`."""


class Conv3d(_Conv, torch.nn.Conv3d):  # type: ignore[misc]
    """`torch.nn.Conv3d`."""
