"""Host time of cached calls of torch.ops.tilewright.*, beside the plain calls and PyTorch's own, in one run.

    python benchmarks/torch_op_times.py               on a GPU where there is one, else on the CPU; prints a table
    python benchmarks/torch_op_times.py --training    forward and backward of modules and SDPA that record gradients

Least and median of interleaved turns of a hundred calls, in microseconds, under torch.inference_mode and torch.no_grad.
Problems are tiny, and the queue of a GPU is empty when a turn begins, so the clock sees the host alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import tilewright as tw
import tilewright.torch

CALLS = 100


def cases(device: str) -> dict[str, dict[str, Callable[[], Any]]]:
    kind = torch.bfloat16 if device == "cuda" else torch.float32

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=device).to(kind)

    ops, functional = torch.ops.tilewright, torch.nn.functional
    a, b, bias = random(16, 64), random(64, 64), random(64)
    x, w = random(1, 8, 8, 32), random(32, 3, 3, 32)
    last = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
    q, heads = random(1, 16, 4, 64), random(1, 4, 16, 64)
    product, seen, row = random(16, 64), random(1, 16, 4, 64), random(1, 1, 4, 64)
    caches, lengths = [random(1, 32, 4, 64) for _ in range(2)], torch.full((1,), 5, dtype=torch.int32, device=device)

    def assigned() -> None:
        for cache in caches:
            cache[:, 5:6] = row

    return {
        "gemm": {"op": lambda: ops.gemm(a, b), "tw": lambda: tw.gemm(a, b), "torch": lambda: torch.mm(a, b)},
        "gemm, bias and relu": {
            "op": lambda: ops.gemm(a, b, None, bias, epilogue="relu"),
            "tw": lambda: tw.gemm(a, b, bias=bias, epilogue="relu"),
            "torch": lambda: torch.addmm(bias, a, b).relu(),
        },
        "conv": {
            "op": lambda: ops.conv(x, w, padding=[1]),
            "tw": lambda: tw.conv(x, w, padding=1),
            "torch": lambda: functional.conv2d(*last, padding=1),
        },
        "attention": {
            "op": lambda: ops.attention(q, q, q),
            "tw": lambda: tw.attention(q, q, q),
            "torch": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        },
        "gemm, out": {
            "op": lambda: ops.gemm.out(a, b, out=product),
            "tw": lambda: tw.gemm(a, b, out=product),
            "torch": lambda: torch.mm(a, b, out=product),
        },
        "attention, out": {
            "op": lambda: ops.attention.out(q, q, q, out=seen),
            "tw": lambda: tw.attention(q, q, q, out=seen),
            "torch": lambda: functional.scaled_dot_product_attention(heads, heads, heads),
        },
        "append_kv": {
            "op": lambda: ops.append_kv(*caches, row, row, lengths),
            "tw": lambda: tw.append_kv(caches[0], caches[1], row, row, cache_seqlens=lengths),
            "torch": assigned,
        },
    }


def trained(call: Callable[[], Any], gradient: Any) -> Callable[[], None]:
    def both() -> None:
        call().backward(gradient)

    return both


def training_cases(device: str) -> dict[str, dict[str, Callable[[], Any]]]:
    """Forward passes, and with the backward pass behind them; gradients are accumulated, as without an optimizer."""
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    nn, ours = torch.nn, tilewright.torch.nn
    last = {"device": device, "dtype": kind, "memory_format": torch.channels_last}
    x = torch.randn(16, 64, device=device).to(kind).requires_grad_()
    image = torch.randn(1, 16, 8, 8, device=device).to(**last).requires_grad_()
    q = torch.randn(1, 4, 16, 64, device=device).to(kind).requires_grad_()
    linear = [each(64, 64).to(device, kind) for each in (ours.Linear, nn.Linear)]
    conv = [each(16, 16, 3, padding=1).to(**last) for each in (ours.Conv2d, nn.Conv2d)]
    attention = [tilewright.torch.scaled_dot_product_attention, nn.functional.scaled_dot_product_attention]
    table: dict[str, dict[str, Callable[[], Any]]] = {}
    for name, (mine, theirs), operands in (
        ("linear", linear, (x,)), ("conv", conv, (image,)), ("attention", attention, (q, q, q)),
    ):  # fmt: skip
        forward: dict[str, Callable[[], Any]] = {"tw": partial(mine, *operands), "torch": partial(theirs, *operands)}
        gradient = torch.randn_like(forward["torch"]().detach())
        table[f"{name}, forward"] = forward
        table[f"{name}, both"] = {what: trained(call, gradient) for what, call in forward.items()}
    return table


def turn(call: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS * 1e6


def show(mode: str, table: dict[str, dict[str, Callable[[], Any]]], given: argparse.Namespace) -> None:
    for name, calls in table.items():
        for call in calls.values():
            for _ in range(10):
                call()
        times: dict[str, list[float]] = {what: [] for what in calls}
        for _ in range(given.turns):
            for what, call in calls.items():
                times[what].append(turn(call, given.device))
        shown = "   ".join(f"{what} {min(each):6.1f} {statistics.median(each):6.1f}" for what, each in times.items())
        print(f"{mode:15} {name:20} {shown}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--turns", type=int, default=30)
    options.add_argument("--training", action="store_true", help="calls that record gradients instead")
    given = options.parse_args()
    print(f"PyTorch {torch.__version__}, {given.device}; ops are served by {tilewright.torch.registration()}")
    for mode in (torch.enable_grad,) if given.training else (torch.inference_mode, torch.no_grad):
        with mode():
            show(mode.__name__, (training_cases if given.training else cases)(given.device), given)
    print(tilewright.torch.native.counts())


if __name__ == "__main__":
    main()
