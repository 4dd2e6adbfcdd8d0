"""One library in a process of its own, for conv_cpu.py; see _cpu_worker.py.

python benchmarks/_conv_worker.py torch|tilewright     started by conv_cpu.py, not by hand
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import Any

from _cpu_worker import Call, OwnSide, Peers, serve

from tilewright.ops.conv.problem import ConvProblem, dense_strides


def problem_of(shape: dict[str, Any]) -> ConvProblem:
    rank = len(shape["size"])
    problem = ConvProblem(
        batch=shape["batch"],
        channels=shape["channels"],
        filters=shape["filters"],
        groups=shape["groups"],
        size=tuple(shape["size"]),
        window=tuple(shape["window"]),
        stride=(shape["stride"],) * rank,
        dilation=(shape["dilation"],) * rank,
        before=tuple(shape["padding"]),
        variant=shape["direction"],
        dtype=shape["dtype"],
    )
    return problem if shape["layout"] == "nhwc" else _channels_first(problem)


def _channels_first(problem: ConvProblem) -> ConvProblem:
    """The same in memory as PyTorch lays it out by default."""
    strides = {}
    for name in "xwy":
        outer, *pixels, channels = getattr(problem, f"{name}_shape")
        first, apart, *steps = dense_strides((outer, channels, *pixels))
        strides[f"{name}_strides"] = (first, *steps, apart if channels > 1 else 1)
    return problem.laid(**strides)


class TorchPeer:
    """PyTorch in its memory formats: `first` is that of its tensors by default, `last` (not where our own operands are
    channels-first, nor of one dimension, which has no such format) has channels last."""

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        self._torch: Any = import_module("torch")
        self._torch.set_num_threads(threads)
        self._torch.set_grad_enabled(False)

    def versions(self) -> dict[str, str]:
        return {"torch": self._torch.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        torch, p = self._torch, problem_of(shape)
        rank = len(p.size)
        torch.manual_seed(seed)
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[p.dtype]
        forms = {"first": torch.contiguous_format}
        if rank > 1 and shape["layout"] == "nhwc":
            forms["last"] = torch.channels_last if rank == 2 else torch.channels_last_3d
        found: dict[str, Call] = {}
        for name, form in forms.items():
            x = torch.randn(p.batch, p.channels, *p.size).to(kind).to(memory_format=form)
            w = torch.randn(p.filters, p.group_channels, *p.window).to(kind).to(memory_format=form)
            y = torch.randn(p.batch, p.filters, *p.out).to(kind).to(memory_format=form)
            common = (list(p.stride), list(p.before), list(p.dilation), False, [0] * rank, p.groups)
            if p.variant == "forward":
                found[name] = partial(torch.convolution, x, w, None, *common)
            else:
                mask = [p.variant == "backward_data", p.variant == "backward_weight", False]
                found[name] = partial(torch.ops.aten.convolution_backward, y, x, w, None, *common, mask)
        return found


class Tilewright(OwnSide):
    op = "conv"

    def problem_of(self, shape: dict[str, Any]) -> ConvProblem:
        return problem_of(shape)

    def bare_call(self, problem: ConvProblem, sample: Any) -> Call:
        """Kernels that need copies have no call without them."""
        if self.chosen.padded is not None:
            return self.user_call(problem, sample)
        return super().bare_call(problem, sample)

    def user_call(self, problem: ConvProblem, sample: Any) -> Call:
        from tilewright.runtime.calls import NEVER, caller

        return partial(caller("conv").run, self._registry, sample.operands, (), sample.attributes, NEVER)


PEERS: Peers = {"torch": TorchPeer, "tilewright": Tilewright}

if __name__ == "__main__":
    serve(sys.argv[1], PEERS)
