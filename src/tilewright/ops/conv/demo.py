"""The convolutions of `tilewright demo`: layers of the usual kinds, and the gradients of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ops.demo import Demo, torch_call, torch_device


def _numpy(problem: Any, kind: str) -> Callable[[], object] | None:
    """NumPy has no convolution: the filter's positions are gathered (im2col) and multiplied."""
    if kind != "cpu" or problem.variant != "forward" or problem.groups != 1:
        return None
    import numpy as np

    x = np.ones((problem.batch, *problem.size, problem.channels), np.float32)
    w = np.ones((problem.channels * problem.window[0] * problem.window[1], problem.filters), np.float32)
    edges = [(0, 0), *zip(problem.before, problem.after, strict=True), (0, 0)]
    rows, columns = problem.stride

    def im2col() -> object:
        padded = np.pad(x, edges)
        positions = np.lib.stride_tricks.sliding_window_view(padded, problem.window, axis=(1, 2))
        return positions[:, ::rows, ::columns].reshape(-1, w.shape[0]) @ w

    return im2col


def _torch(problem: Any, kind: str) -> Callable[[], object]:
    """PyTorch on the same memory: channels last."""
    import torch
    from torch.nn import functional

    device, layout = torch_device(kind), torch.channels_last
    image = (problem.batch, problem.channels, *problem.size)
    filters = (problem.filters, problem.channels // problem.groups, *problem.window)
    x = torch.ones(image, device=device).to(memory_format=layout)
    w = torch.ones(filters, device=device).to(memory_format=layout)
    options = {"stride": problem.stride, "padding": problem.before, "groups": problem.groups}
    if problem.variant == "forward":
        return torch_call(lambda: functional.conv2d(x, w, **options), kind)
    dy = functional.conv2d(x, w, **options)
    if problem.variant == "backward_data":
        return torch_call(lambda: torch.nn.grad.conv2d_input(image, w, dy, **options), kind)
    return torch_call(lambda: torch.nn.grad.conv2d_weight(x, filters, dy, **options), kind)


_LAYER = {"batch": 1, "channels": 64, "filters": 64, "size": "56x56", "window": "3", "padding": "1"}

DEMO = Demo(
    problems={
        "3x3, 64 to 64, 56x56": _LAYER,
        "1x1, 64 to 256, 56x56": {**_LAYER, "filters": 256, "window": "1", "padding": "0"},
        "3x3 depthwise, 64, 56x56": {**_LAYER, "groups": 64},
        "7x7 stride 2, 3 to 64, 112x112": {
            **_LAYER, "channels": 3, "size": "112x112", "window": "7", "stride": "2", "padding": "3",
        },
        "3x3 dgrad, 64 to 64, 56x56": {**_LAYER, "variant": "backward_data"},
        "3x3 wgrad, 64 to 64, 56x56": {**_LAYER, "variant": "backward_weight"},
    },
    peers={"NumPy": _numpy, "PyTorch": _torch},
    peer_notes={"NumPy": "a convolution by im2col, in fp32"},
)  # fmt: skip
