"""Host time of cached calls of torch.ops.tilewright.*, beside the plain calls and PyTorch's own, in one run.

    python benchmarks/torch_op_times.py            on a GPU where there is one, else on the CPU; prints a table

Least and median of interleaved turns of a hundred calls, in microseconds, under torch.inference_mode and torch.no_grad.
Problems are tiny, and the queue of a GPU is empty when a turn begins, so the clock sees the host alone.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
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


def turn(call: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--turns", type=int, default=30)
    given = options.parse_args()
    print(f"PyTorch {torch.__version__}, {given.device}; ops are served by {tilewright.torch.registration()}")
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            for name, calls in cases(given.device).items():
                for call in calls.values():
                    for _ in range(10):
                        call()
                times: dict[str, list[float]] = {what: [] for what in calls}
                for _ in range(given.turns):
                    for what, call in calls.items():
                        times[what].append(turn(call, given.device))
                shown = "   ".join(
                    f"{what} {min(of_call):6.1f} {statistics.median(of_call):6.1f}" for what, of_call in times.items()
                )
                print(f"{mode.__name__:15} {name:20} {shown}")
    print(tilewright.torch.native.counts())


if __name__ == "__main__":
    main()
