"""What a convolution is asked on a GPU, once for all kernels that serve the problem: operands there, and the bound.

The sums of the reference are computed with PyTorch in float64, on the device: on the host they took most of the suite's
time.  What is made of them, the bound and the comparison are the package's; tests/conv/test_gpu_suite.py holds the sums
against those of `tilewright.ops.conv.reference`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.gpu.torch_here import torch
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.reference import filters, judgement, rows_of
from tilewright.runtime.bindings.conv import samples
from tilewright.runtime.bindings.conv.dense import written_shape

READ = {"forward": ("x", "w"), "backward_data": ("y", "w"), "backward_weight": ("x", "y")}


def _places(p: ConvProblem) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Places of the window, and which pixels of the padded image they meet, one for each of the output."""
    for number, place in enumerate(product(*(range(one) for one in p.window))):
        first = [at * step for at, step in zip(place, p.dilation, strict=True)]
        each = zip(first, p.stride, p.out, strict=True)
        yield number, (slice(None), *(slice(at, at + step * (out - 1) + 1, step) for at, step, out in each))


def sums(p: ConvProblem, x: Any, w: Any, y: Any, rows: Any = slice(None), *, device: str) -> Any:
    """`tilewright.ops.conv.reference.sums` by slices of the padded image."""
    x, w, y = (torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in (x, w, y))
    padded = [a + size + b for a, size, b in zip(p.before, p.size, p.after, strict=True)]
    image = torch.zeros((p.batch, *padded, p.channels), dtype=torch.float64, device=device)
    inner = (slice(None), *(slice(a, a + size) for a, size in zip(p.before, p.size, strict=True)))
    if p.variant != "backward_data":
        image[inner] = x
    image = image.unflatten(-1, (p.groups, p.group_channels))
    by_group = (p.groups, p.group_filters)
    if p.variant == "backward_weight":
        y = y.unflatten(-1, by_group).flatten(0, -3)
        taps = [torch.einsum("pgk,pgc->gkc", y, image[at].flatten(0, -3)) for _, at in _places(p)]
        return rows_of(p, torch.stack(taps, 2).reshape(p.w_shape).cpu().numpy(), rows)
    w = w.unflatten(0, by_group).flatten(2, -2)  # groups, filters, places, channels
    if p.variant == "forward":
        total = torch.zeros((*p.y_shape[:-1], *by_group), dtype=torch.float64, device=device)
        for number, at in _places(p):
            total += torch.einsum("...gc,gkc->...gk", image[at], w[:, :, number])
        return rows_of(p, total.flatten(-2).cpu().numpy(), rows)
    y = y.unflatten(-1, by_group)
    for number, at in _places(p):
        image[at] += torch.einsum("...gk,gkc->...gc", y, w[:, :, number])
    return rows_of(p, image[inner].flatten(-2).cpu().numpy(), rows)


def on_device(array: Any, device: str) -> Any:
    """A strided NumPy array of any element type, with its strides."""
    steps = [one // array.itemsize for one in array.strides]
    made = torch.empty_strided(array.shape, steps, dtype=_torch_type(array), device=device)
    whole = np.ascontiguousarray(array).view({1: np.int8, 2: np.int16, 4: np.int32}[array.itemsize])
    made.copy_(torch.from_numpy(whole).view(made.dtype).reshape(array.shape))
    return made


def _torch_type(array: Any) -> Any:
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(array.dtype.name) or getattr(
        torch, array.dtype.name
    )


class Question:
    """One problem on random operands; each answer is written to a poisoned result."""

    def __init__(self, problem: ConvProblem, seed: int, device: str = "cuda") -> None:
        self._problem, made = problem, samples.sample(problem, seed)
        self._blank = made.operands[-1]
        self._device = device
        arrays = {**samples.named(problem, made), written_shape(problem)[0]: None}
        self._ask = judgement(problem, arrays, partial(sums, device=device))
        self._read = tuple(on_device(arrays[one], device) for one in READ[problem.variant])
        self._ds = tuple(on_device(one, device) for one in arrays["ds"])

    def answer(self, kernel: Any) -> str:
        """What is wrong with a kernel's result; nothing where it is right."""
        p, out = self._problem, on_device(self._blank, self._device)
        more = {} if p.variant == "forward" else {"shape": tuple(out.shape)}
        kernel(
            *self._read, out=out, ds=self._ds, stride=p.stride, dilation=p.dilation, groups=p.groups,
            padding=tuple(zip(p.before, p.after, strict=True)), **more,
        )  # fmt: skip
        bits = {1: torch.int8, 2: torch.int16, 4: torch.int32}[out.element_size()]
        back = out.contiguous().view(bits).cpu().numpy()
        check = self._ask(back.view(self._blank.dtype).reshape(out.shape), filters(kernel.spec))
        return "" if check.ok else check.detail
