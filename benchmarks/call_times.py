"""Host time of cached calls of all three ops beside PyTorch's own, interleaved in one run, as a user writes them.

    python benchmarks/call_times.py                 on a GPU; writes results/call_times_h200.json
    python benchmarks/call_times.py --device cpu    on the CPU; writes results/call_times_cpu.json
    python benchmarks/call_times.py --quick         few rounds, nothing written

A turn is a hundred calls that only queue work on a GPU: its queue is empty when the turn begins and never full, so the
clock sees the host alone.  Problems are tiny, so that the device keeps up; on the CPU the kernel's time is in the
figure on both sides.  Everything runs under `torch.inference_mode`.  `slow_path` counts the calls of the timed turns
that C did not serve alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _machine import command_line, provenance
from torch.nn import functional

import tilewright as tw
from tilewright.runtime import calls

RESULTS = Path(__file__).parent / "results"
CALLS = 100
GOALS = {"gemm": 9e-6, "conv": 10e-6, "attention": 12e-6, "attention+": 15e-6}  # on the H200's machine

Calls = dict[str, Callable[[], object]]


class SlowPath:
    """Counts the calls that C did not serve alone."""

    def __init__(self) -> None:
        self.count = 0
        run_slow = calls.Caller.run_slow

        def counted(*operands: Any) -> Any:
            self.count += 1
            return run_slow(*operands)

        setattr(calls.Caller, "run_slow", counted)  # noqa: B010  a class type checkers would not let us change


def gemm(random: Callable[..., Any]) -> Calls:
    a, w, bias = random(16, 256), random(128, 256), random(128)
    out = random(16, 128)
    return {
        "gemm": lambda: tw.gemm(a, w.T),
        "gemm out=": lambda: tw.gemm(a, w.T, out=out),
        "gemm bias relu": lambda: tw.gemm(a, w.T, bias=bias, epilogue="relu"),
        "torch.matmul": lambda: torch.matmul(a, w.T),
        "torch.addmm": lambda: torch.addmm(bias, a, w.T),
    }


def conv(random: Callable[..., Any]) -> Calls:
    x = random(1, 64, 14, 14).to(memory_format=torch.channels_last)
    w = random(64, 64, 3, 3).to(memory_format=torch.channels_last)
    out = functional.conv2d(x, w, padding=1)
    return {
        "conv": lambda: tw.conv(x, w, padding=1, layout="nchw"),
        "conv out=": lambda: tw.conv(x, w, padding=1, layout="nchw", out=out),
        "torch conv2d": lambda: functional.conv2d(x, w, padding=1),
    }


def attention(random: Callable[..., Any]) -> Calls:
    device = random(1).device
    q, k, v = (random(1, 8, 128, 64) for _ in range(3))
    one, keys, values = random(4, 8, 1, 64), random(4, 2, 512, 64), random(4, 2, 512, 64)
    lengths = torch.tensor([512, 300, 17, 400], dtype=torch.int32, device=device)
    pages = random(128, 64, 2, 64)
    table = torch.arange(32, dtype=torch.int32, device=device).reshape(4, 8)
    query = random(4, 1, 8, 64)
    out = torch.empty_like(q)
    sdpa = functional.scaled_dot_product_attention
    return {
        "attention prefill": lambda: tw.attention(q, k, v, causal=True, layout="bhsd"),
        "attention prefill out=": lambda: tw.attention(q, k, v, causal=True, layout="bhsd", out=out),
        "attention decode": lambda: tw.attention(one, keys, values, layout="bhsd"),
        "attention+ num_splits=4": lambda: tw.attention(one, keys, values, layout="bhsd", num_splits=4),
        "attention+ seqlens_k": lambda: tw.attention(one, keys, values, layout="bhsd", seqlens_k=lengths),
        "attention+ block_table": lambda: tw.attention(query, pages, pages, seqlens_k=lengths, block_table=table),
        "attention+ return_lse": lambda: tw.attention(q, k, v, causal=True, layout="bhsd", return_lse=True),
        "torch SDPA prefill": lambda: sdpa(q, k, v, is_causal=True),
        "torch SDPA decode": lambda: sdpa(one, keys, values, enable_gqa=True),
    }


def timed(contestants: Calls, rounds: int, wait: Callable[[], object]) -> dict[str, dict[str, float]]:
    """Least and median seconds of a call, over interleaved turns."""
    turns: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            turns[name].append((time.perf_counter() - start) / CALLS)
    wait()
    return {
        name: {"least": min(seconds), "median": statistics.median(seconds), "most": max(seconds)}
        for name, seconds in turns.items()
    }


def goal(name: str) -> float | None:
    return GOALS.get(name.split(maxsplit=1)[0])


def measure(device: str, rounds: int) -> dict[str, Any]:
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    slow = SlowPath()
    table: dict[str, Any] = {}
    for contestants in (make(lambda *shape: torch.randn(*shape, device=device).to(dtype)) for make in OPS):
        for call in contestants.values():
            for _ in range(3):
                call()
        before = slow.count
        found = timed(contestants, rounds, wait)
        for name, times in found.items():
            most = goal(name) if device == "cuda" else None
            verdict = (
                "" if most is None else f"  goal {most * 1e6:4.0f}: {'met' if times['median'] <= most else 'missed'}"
            )
            print(
                f"{name:<26} least {times['least'] * 1e6:7.2f} us  median {times['median'] * 1e6:7.2f}{verdict}",
                flush=True,
            )
        print(f"calls that C did not serve alone: {slow.count - before}", flush=True)
        table |= found
    return {"calls": table, "slow_path": slow.count - 3 * sum(not name.startswith("torch") for name in table)}


OPS = (gemm, conv, attention)


def main() -> None:
    parser = argparse.ArgumentParser(description="Host time of cached calls beside PyTorch's own.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing written")
    parser.add_argument("--output", type=Path, help="result file")
    options = parser.parse_args()
    with torch.inference_mode():
        found = measure(options.device, 3 if options.quick else 31)
    place = options.output or RESULTS / f"call_times_{'h200' if options.device == 'cuda' else 'cpu'}.json"
    if not options.quick:
        head = provenance(command_line())
        if options.device == "cuda":
            head["device"] = torch.cuda.get_device_name()
        text = json.dumps({"benchmark": "call_times", **head, "goals": GOALS, **found}, indent=1)
        place.write_text(text + "\n", encoding="utf-8")
        print(f"written to {place}")


if __name__ == "__main__":
    main()
