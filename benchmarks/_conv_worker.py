"""One library in a process of its own, for conv_cpu.py; see _gemm_worker.py.

python benchmarks/_conv_worker.py torch|tilewright     started by conv_cpu.py, not by hand
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from _gemm_worker import Call, serve

from tilewright.ops.conv import ConvProblem
from tilewright.runtime.bindings import binding
from tilewright.runtime.samples import poison_results, runner


def problem_of(shape: dict[str, Any]) -> ConvProblem:
    rank = len(shape["size"])
    return ConvProblem(
        batch=shape["batch"],
        channels=shape["channels"],
        filters=shape["filters"],
        groups=shape["groups"],
        size=tuple(shape["size"]),
        window=(shape["window"],) * rank,
        stride=(shape["stride"],) * rank,
        dilation=(shape["dilation"],) * rank,
        before=(shape["padding"],) * rank,
        variant=shape["direction"],
        dtype=shape["dtype"],
    )


class TorchPeer:
    """PyTorch in both memory formats: `last` has channels last, `first` the format of its tensors by default."""

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
        last = torch.channels_last if rank == 2 else torch.channels_last_3d
        found: dict[str, Call] = {}
        for name, form in (("last", last), ("first", torch.contiguous_format)):
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


class Tilewright:
    """Ours, in two forms: `call` is the kernel with everything prepared, `conv` the call a user makes."""

    def __init__(self, threads: int, options: dict[str, Any]) -> None:
        import tilewright as tw

        self._tw, self._threads, self._mode = tw, threads, options["mode"]
        tw.settings.configure(threads=threads, cache_dir=options["store"], measure=self._mode == "measured")
        from tilewright.dispatch.registry import default_registry

        self._registry = default_registry()

    def versions(self) -> dict[str, str]:
        return {"tilewright": self._tw.__version__}

    def calls(self, shape: dict[str, Any], seed: int) -> dict[str, Call]:
        from tilewright.runtime import host
        from tilewright.runtime.calls import NEVER, caller

        problem, conv = problem_of(shape), binding("conv")
        if self._mode == "measured":
            self._registry.measure(problem)
        self.chosen = self._registry.select(problem)
        sample = conv.sample(problem, seed)
        kernel = self._registry.kernel(self.chosen.spec)
        found: dict[str, Call] = {
            "call": runner(conv, kernel, problem, sample, host.device(), self._threads),
            "conv": partial(caller("conv").run, self._registry, sample.operands, (), sample.attributes, NEVER),
        }
        for form, call in found.items():
            poison_results(conv, sample)
            call()
            check = conv.check(problem, sample)
            if not check.ok:
                raise ArithmeticError(f"{form} of {self.chosen.name}: {check.detail}")
        return found

    def about(self) -> dict[str, str]:
        return {"kernel": self.chosen.name, "tier": self.chosen.tier}


PEERS: dict[str, Callable[[int, dict[str, Any]], Any]] = {"torch": TorchPeer, "tilewright": Tilewright}

if __name__ == "__main__":
    serve(sys.argv[1], PEERS)
