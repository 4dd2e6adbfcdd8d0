"""Operands of convolutions for the benchmarks of NVIDIA GPUs, PyTorch's call beside ours, and what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from _cuda_timing import Clock, Run
from _h200_operands import Wrong

from tilewright.ops.conv import ConvProblem

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SUM_ERROR, ROUNDING = 2e-5, {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-23}


class ConvOperands:
    """Fresh random operands of a problem in memory as its strides say, and its exact result with a tolerance."""

    def __init__(self, problem: ConvProblem, device: str, bias: bool = False) -> None:
        p = self.problem = problem
        self.rank = len(p.size)
        self.dtype = TYPES[p.dtype]
        self.x, self.w, self.y = (self._made(shape, device) for shape in (p.x_shape, p.w_shape, p.y_shape))
        self.bias = torch.randn(p.filters, device=device, dtype=self.dtype) if bias else None
        self.out = {"forward": self.y, "backward_data": self.x, "backward_weight": self.w}[p.variant].clone(
            memory_format=torch.preserve_format
        )
        self._exact: tuple[Any, Any] | None = None

    def _made(self, shape: Sequence[int], device: str) -> Any:
        """(N, C, spatial); channels last in memory, or first."""
        made = torch.randn(tuple(shape), device=device, dtype=torch.float32).to(self.dtype)
        seen = made.permute(0, len(shape) - 1, *range(1, len(shape) - 1))
        return seen if self.problem.channels_last else seen.contiguous()

    def _call(self, x: Any, w: Any, y: Any) -> Any:
        p = self.problem
        if p.variant == "forward":
            made = torch.ops.aten.convolution(
                x, w, None if self.bias is None else self.bias.to(x.dtype), p.stride, p.before, p.dilation, False,
                (0,) * self.rank, p.groups,
            )  # fmt: skip
            return made.relu_() if self.bias is not None else made
        mask = [p.variant == "backward_data", p.variant == "backward_weight", False]
        return torch.ops.aten.convolution_backward(
            y, x, w, None, p.stride, p.before, p.dilation, False, (0,) * self.rank, p.groups, mask
        )[mask.index(True)]

    def peer(self) -> Run:
        return lambda: self._call(self.x, self.w, self.y)

    def exact(self) -> tuple[Any, Any]:
        """In float64: of fp32, cuDNN may go Winograd's way, whose error is larger than ours where windows are wide."""
        if self._exact is None:
            torch.backends.cudnn.benchmark = False  # one call each: a search would take longer
            value = self._call(*(one.double() for one in (self.x, self.w, self.y))).float()
            bias, self.bias = self.bias, None if self.bias is None else self.bias.abs()
            tolerance = (
                self._call(*(one.float().abs() for one in (self.x, self.w, self.y)))
                .mul_(SUM_ERROR)
                .add_(value.abs(), alpha=ROUNDING[self.problem.dtype])
            )
            self.bias, torch.backends.cudnn.benchmark = bias, True
            self._exact = value, tolerance
        return self._exact

    def ours(self, kernel: Any) -> Run:
        p = self.problem
        first, second = {"forward": ("x", "w"), "backward_data": ("y", "w"), "backward_weight": ("x", "y")}[p.variant]
        given = {} if p.variant == "forward" else {"shape": tuple(self.out.shape)}
        pair = list(zip(p.before, p.after, strict=True))
        return lambda: kernel(
            getattr(self, first), getattr(self, second), self.bias, out=self.out, layout="nchw", stride=p.stride,
            padding=pair, dilation=p.dilation, groups=p.groups, **given,
        )  # fmt: skip

    def check(self, name: str, run: Run, clock: Clock) -> None:
        bad = self._wrong(run, clock)
        if not bool(bad.any()):
            return
        # What the next one asks: where, and whether it is so every time.
        again = [int(self._wrong(run, clock).sum()) for _ in range(3)]
        places = [f"{int(at.min())} to {int(at.max())} ({at.unique().numel()})" for at in bad.nonzero().T]
        raise Wrong(
            f"{name} is wrong on {self.problem.describe()}: {int(bad.sum())} of {bad.numel()} elements, "
            f"at {', '.join(places)}; in three more calls {again}"
        )

    def _wrong(self, run: Run, clock: Clock) -> Any:
        """Which elements of a call's result are beyond the tolerance; NaN is never within it."""
        self.out.fill_(float("nan"))
        clock.wait()
        run()
        clock.wait()
        value, tolerance = self.exact()
        return ~((self.out.float() - value).abs_() <= tolerance)
