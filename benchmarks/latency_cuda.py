"""What a cached tw.gemm costs the host on CUDA tensors, beside torch.matmul, interleaved in one run.

    python benchmarks/latency_cuda.py              prints the numbers and writes benchmarks/results/latency_cuda.json
    python benchmarks/latency_cuda.py --quick      fewer rounds, nothing written
    python benchmarks/latency_cuda.py --dry-run    a rehearsal without a GPU: nothing of it means anything

A turn is some hundred calls that only queue work: the queue is empty when it begins and never full, so what is
timed is the host alone.  The problem is tiny, so that the device keeps up.  `long_paths` says how many calls of the
timed turns were not C's alone, `in_c` whether this PyTorch lets C read its tensors: the targets ask for 0 and yes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _machine import provenance

import tilewright as tw
from tilewright.runtime import calls, fast_path

RESULT = Path(__file__).parent / "results" / "latency_cuda.json"
TARGET_SECONDS = 8e-6
CALLS = 200  # a turn; a device's queue takes a thousand
WEIGHTS = 64  # what a loop over the layers of a model goes through
SIZES = {"16x64x64": (16, 64, 64), "1x4096x4096": (1, 4096, 4096), "64x2112x7168": (64, 2112, 7168)}


class LongPaths:
    """Counts the calls that were not C's alone."""

    def __init__(self) -> None:
        self.count = 0
        real = calls.Caller.run_slow

        def counted(*given: Any) -> Any:
            self.count += 1
            return real(*given)

        setattr(calls.Caller, "run_slow", counted)  # noqa: B010  a class type checkers would not let us change


def contestants(m: int, n: int, k: int, device: str) -> dict[str, Callable[[], object]]:
    """Everything that is timed, each a call that queues one GEMM (`gemm_weights`: on another weight each time)."""

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=device).to(torch.bfloat16)

    a, w, bias = random(m, k), random(n, k).T, random(n)
    out = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    many = [random(n, k).T for _ in range(WEIGHTS if n * k < 1 << 24 else 8)]
    turn: Iterator[Any] = iter(())

    def weights() -> None:
        nonlocal turn
        one = next(turn, None)
        if one is None:
            turn = iter(many)
            one = next(turn)
        tw.gemm(a, one, out=out)

    return {
        "gemm": lambda: tw.gemm(a, w),
        "gemm_out": lambda: tw.gemm(a, w, out=out),
        "gemm_weights": weights,
        "gemm_bias_relu_out": lambda: tw.gemm(a, w, ds=(bias,), epilogue="relu", out=out),
        "matmul": lambda: torch.matmul(a, w),
        "matmul_out": lambda: torch.matmul(a, w, out=out),
        "empty_alone": lambda: torch.empty(m, n, device=device, dtype=torch.bfloat16),
    }


def timed(calls: dict[str, Callable[[], object]], rounds: int, wait: Callable[[], object]) -> dict[str, Any]:
    """Medians of wall and CPU seconds a call, from interleaved turns."""
    wall: dict[str, list[float]] = {name: [] for name in calls}
    cpu: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, one in calls.items():
            wait()
            start, start_cpu = time.perf_counter(), time.thread_time()
            for _ in range(CALLS):
                one()
            end, end_cpu = time.perf_counter(), time.thread_time()
            wall[name].append((end - start) / CALLS)
            cpu[name].append((end_cpu - start_cpu) / CALLS)
    wait()
    return {
        name: {
            "seconds": statistics.median(wall[name]),
            "best_seconds": min(wall[name]),
            "cpu_seconds": statistics.median(cpu[name]),
        }
        for name in calls
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The host's time of a cached tw.gemm on CUDA tensors.")
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing written")
    parser.add_argument("--dry-run", action="store_true", help="tensors of the host; nothing written")
    parser.add_argument("--output", type=Path, help="result file; a whole run on a GPU has one by itself")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    options = parser.parse_args()
    device = "cpu" if options.dry_run else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch sees no CUDA device; --dry-run rehearses without one")
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    paths = LongPaths()
    found: dict[str, Any] = {}
    for label, (m, n, k) in SIZES.items():
        if options.dry_run and m * n * k > 1 << 20:
            continue
        calls = contestants(m, n, k, device)
        for one in calls.values():
            for _ in range(WEIGHTS + 2):
                one()
        before = paths.count
        found[label] = timed(calls, 3 if options.quick or options.dry_run else 31, wait)
        found[label]["long_paths"] = paths.count - before
        for name, times in found[label].items():
            if isinstance(times, dict):
                text = f"{times['seconds'] * 1e6:7.2f} us, best {times['best_seconds'] * 1e6:6.2f}"
                print(f"{label:<14} {name:<20} {text}, CPU {times['cpu_seconds'] * 1e6:6.2f}", flush=True)
        print(f"{label:<14} {found[label]['long_paths']} calls were not C's alone", flush=True)
    in_c = hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and fast_path.library() is not None
    worst = max(one["seconds"] for of in found.values() for name, one in of.items() if name.startswith("gemm"))
    met = {
        "gemm_seconds": worst <= TARGET_SECONDS,
        "long_paths": all(of["long_paths"] == 0 for of in found.values()),
        "in_c": in_c,
    }
    print(f"slowest gemm {worst * 1e6:.2f} us (at most {TARGET_SECONDS * 1e6:.0f}); in C: {'yes' if in_c else 'no'}")
    output = options.output or (None if options.quick or options.dry_run else RESULT)
    if output is not None:
        head = provenance(" ".join(["python", "benchmarks/latency_cuda.py", *sys.argv[1:]]))
        if device == "cuda":
            head["device"] = torch.cuda.get_device_name()
        result = {"benchmark": "latency_cuda", **head, "targets": {"gemm_seconds": TARGET_SECONDS}, "met": met, **found}
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written to {output}")
    if options.check and not all(met.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
