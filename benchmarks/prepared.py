"""Serving sizes that change: `tw.prepare` for a range, then calls of sizes drawn from it, none of which may compile.

    python benchmarks/prepared.py                           gemm, conv, attention on this CPU; 10,000 calls each
    python benchmarks/prepared.py --device cuda             the same of bf16 on a GPU, with PyTorch
    python benchmarks/prepared.py --output benchmarks/results/prepared.json

Of each op: how many kernels cover the range and within which loss; then calls of sizes drawn by the seed, uniformly
from the range, with `missing="best_built"`.  Counted: kernels that a compiler made (must be none), the time of a call
less that in which its kernels run (`new`, the first call of a size; `new_cpu` counts only when the calling thread had a
processor, which is what a busy machine can tell), the whole of a later call (`again`), and the process's memory after
the first call and after each tenth of all.  `cold`: first calls in processes of their own, with the store filled, part
by part (`_cold_process.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import _cold_process
import numpy as np
from _machine import command_line, provenance

import tilewright as tw
from tilewright import events, settings
from tilewright.api import registry_for
from tilewright.runtime.plans import Plan

CALLS = 10_000
COLD = 9
Draw = Callable[[random.Random], tuple[Any, ...]]  # sizes of one call


_device = "cpu"


def _ones(*shape: int) -> Any:
    if _device == "cpu":
        return np.ones(shape, np.float32)
    import torch

    return torch.ones(shape, dtype=torch.bfloat16, device=_device)


def _wait() -> None:
    if _device != "cpu":
        import torch

        torch.cuda.synchronize()


def _gemm(m: int, n: int, k: int = 256) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    return tw.gemm, (_ones(m, k), _ones(k, n)), {}


def _conv(batch: int, size: int, channels: int = 32) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    operands = _ones(batch, size, size, channels), _ones(channels, 3, 3, channels)
    return tw.conv, operands, {"padding": 1, "layout": "nhwc"}


def _attention(
    rows: int, keys: int, heads: int = 4, size: int = 64
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    q, k = _ones(1, rows, heads, size), _ones(1, keys, heads, size)
    return tw.attention, (q, k, k), {"causal": "bottom_right"}


@dataclass(frozen=True)
class Stream:
    """A range, what is drawn from it, and how sizes become a call."""

    ranges: dict[str, Any]
    draw: Draw
    call: Callable[..., tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]


STREAMS = {
    "gemm": Stream(
        {"m": (1, 512), "n": (8, 512), "k": 256},
        lambda r: (r.randint(1, 512), r.randint(8, 512)),
        _gemm,
    ),
    "conv": Stream(
        {"batch": (1, 8), "channels": 32, "filters": 32, "size": "7..28x7..28", "window": 3, "padding": 1},
        lambda r: (r.randint(1, 8), r.randint(7, 28)),
        _conv,
    ),
    "attention": Stream(
        {"batch": 1, "heads_q": 4, "seqlen_q": (1, 128), "seqlen_k": (128, 512), "head_dim": 64,
         "causal": "bottom_right"},
        lambda r: (r.randint(1, 128), r.randint(128, 512)),
        _attention,
    ),
}  # fmt: skip
# Of a GPU: sizes of a model's layers, rows and pictures as they come.
ON_GPU = {
    "gemm": Stream(
        {"m": (1, 2048), "n": [1024, 2048, 3072, 4096], "k": 4096, "datatype": "bf16"},
        lambda r: (r.randint(1, 2048), 1024 * r.randint(1, 4), 4096),
        _gemm,
    ),
    "conv": Stream(
        {"batch": (1, 16), "channels": 128, "filters": 128, "size": "14..56x14..56", "window": 3, "padding": 1,
         "datatype": "bf16"},
        lambda r: (r.randint(1, 16), r.randint(14, 56), 128),
        _conv,
    ),
    "attention": Stream(
        {"batch": 1, "heads_q": 16, "seqlen_q": (1, 2048), "seqlen_k": (2048, 4096), "head_dim": 128,
         "causal": "bottom_right", "datatype": "bf16"},
        lambda r: (r.randint(1, 2048), r.randint(2048, 4096), 16, 128),
        _attention,
    ),
}  # fmt: skip


def streams() -> dict[str, Stream]:
    return STREAMS if _device == "cpu" else ON_GPU


def rss_mib() -> float:
    """Memory of this process now, not at its peak."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds) or [0.0]
    return {
        "median_us": 1e6 * statistics.median(ordered),
        "p99_us": 1e6 * ordered[int(0.99 * (len(ordered) - 1))],
        "slowest_us": 1e6 * ordered[-1],
        "count": len(seconds),
    }


def timed(
    stream: Stream, seed: int, count: int, memory: list[float], first: list[float]
) -> Iterator[tuple[bool, float, float]]:
    """Of each call but the first whether its size is new, and what it took beyond its kernels if so; of its thread."""
    r, running, busy, known = random.Random(seed), 0.0, 0.0, set[tuple[Any, ...]]()
    run = Plan.run

    def watched(plan: Plan, *given: Any) -> None:
        nonlocal running, busy
        start, began = time.perf_counter(), time.thread_time()
        run(plan, *given)
        _wait()
        running += time.perf_counter() - start
        busy += time.thread_time() - began

    with mock.patch.object(Plan, "run", watched):
        for index in range(count):
            sizes = stream.draw(r)
            call, operands, keywords = stream.call(*sizes)
            running, busy, start, began = 0.0, 0.0, time.perf_counter(), time.thread_time()
            result = call(*operands, **keywords)
            _wait()
            whole, mine = time.perf_counter() - start, time.thread_time() - began
            del result
            new = sizes not in known
            known.add(sizes)
            if index == 0:  # of the process, and told apart: it loads what every later one has
                first.append(whole)
                memory.append(round(rss_mib(), 1))
                continue
            yield new, whole - running if new else whole, mine - busy
            if (index + 1) % max(1, count // 10) == 0:
                memory.append(round(rss_mib(), 1))


def measure(op: str, seed: int, count: int) -> dict[str, Any]:
    stream = streams()[op]
    if (
        _device != "cpu"
    ):  # PyTorch and the device's context are half a gigabyte, and a program has them before it serves
        _ones(8, 8)
        _wait()
    report = tw.prepare(op, target=None if _device == "cpu" else _device, **stream.ranges)
    memory, first = list[float](), list[float]()
    built: list[str] = []
    substituted = 0

    def heard(event: events.Event) -> None:  # keeps none of them: the garbage collector would have to look at all
        nonlocal substituted
        substituted += isinstance(event, events.Substituted)
        if isinstance(event, events.KernelBuilt) and not event.cached:
            built.append(event.name)

    unsubscribe = events.subscribe(heard)
    with settings.override(missing="best_built"):
        rows = list(timed(stream, seed, count, memory, first))
        plans = len(registry_for("" if _device == "cpu" else report.target).plans())
    unsubscribe()
    return {
        "op": op,
        "range": {name: str(value) for name, value in stream.ranges.items()},
        "prepared": {name: value for name, value in report.to_dict().items() if name != "kernels"},
        "kernels": [one.name for one in report.kernels],
        "calls": count,
        "compiled": built,
        "substituted": substituted,
        "new": figures([seconds for new, seconds, _ in rows if new]),
        "new_cpu": figures([seconds for new, _, seconds in rows if new]),
        "first_us": 1e6 * first[0],
        "again": figures([seconds for new, seconds, _ in rows if not new]),
        "memory_mib": memory,
        "plans": plans,
    }


def cold(op: str, seed: int, rounds: int) -> dict[str, Any]:
    """First calls in processes of their own."""
    _, operands, keywords = streams()[op].call(*streams()[op].draw(random.Random(seed)))
    return _cold_process.measure(op, [operand.shape for operand in operands], keywords, _device, rounds)


def main() -> None:
    global _device
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--cold", type=int, default=COLD, help="processes for first calls")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", default="", help="a file for the numbers")
    given = parser.parse_args()
    _device = given.device
    rows = []
    for op in given.ops:
        row = measure(op, given.seed, given.calls)
        row["cold"] = cold(op, given.seed, given.cold) if given.cold else {}
        rows.append(row)
        told, new, again, memory = row["prepared"], row["new"], row["again"], row["memory_mib"]
        cpu = row["new_cpu"]
        print(
            f"{op:10} {len(row['kernels'])} kernels, loss worst {told['worst']:.1%} mean {told['mean']:.2%}; "
            f"{row['calls']} calls: {len(row['compiled'])} compiled; beyond its kernels a new size takes "
            f"{new['median_us']:.0f} us (P99 {new['p99_us']:.0f}, slowest {new['slowest_us']:.0f}; of its thread "
            f"{cpu['median_us']:.0f}, {cpu['p99_us']:.0f}, {cpu['slowest_us']:.0f}), a known one with "
            f"them {again['median_us']:.0f} us (slowest {again['slowest_us']:.0f}), the first of all "
            f"{row['first_us']:.0f} us; {memory[0]} to {memory[-1]} MiB, "
            f"{row['plans']} plans"
        )
        if row["cold"]:
            print(f"{'':10} {_cold_process.told(row['cold'])}")
    if given.output:
        head = {**provenance(command_line()), "seed": given.seed, "device": given.device}
        text = json.dumps({**head, "rows": rows}, indent=1)
        Path(given.output).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
