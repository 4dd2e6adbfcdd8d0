"""Serving sizes that change: `tw.prepare` for a range, then calls of sizes drawn from it, none of which may compile.

    python benchmarks/prepared.py                           gemm, conv, attention on this CPU; 10,000 calls each
    python benchmarks/prepared.py --output benchmarks/results/prepared.json

Of each op: how many kernels cover the range and within which loss; then calls of sizes drawn by the seed, uniformly
from the range, with `missing="best_built"`.  Counted: kernels that a compiler made (must be none), the time of a call
less that in which its kernels run (`new`, the first call of a size; `new_cpu` counts only when the calling thread had a
processor, which is what a busy machine can tell), the whole of a later call (`again`), and the
process's memory after each tenth of the calls.  `cold`: processes of their own with the store filled: the time of
NumPy's import, of `import tilewright`, and of the first call, which imports all the rest; beside it what processors
spent on that call (`cpu`; the compiler, which is asked who it is, is another process).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from _machine import command_line, provenance

import tilewright as tw
from tilewright import events, settings
from tilewright.api import registry_for
from tilewright.runtime.plans import Plan

CALLS = 10_000
COLD = 9
Draw = Callable[[random.Random], tuple[Any, ...]]  # sizes of one call


def _ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _gemm(m: int, n: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    return tw.gemm, (_ones(m, 256), _ones(256, n)), {}


def _conv(batch: int, size: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    return tw.conv, (_ones(batch, size, size, 32), _ones(32, 3, 3, 32)), {"padding": 1}


def _attention(rows: int, keys: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    q, k = _ones(1, rows, 4, 64), _ones(1, keys, 4, 64)
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


def timed(stream: Stream, seed: int, count: int, memory: list[float]) -> Iterator[tuple[bool, float, float]]:
    """Of each call whether its size is new, and what it took: beyond its kernels if it is; the same of its thread."""
    r, running, busy, known = random.Random(seed), 0.0, 0.0, set[tuple[Any, ...]]()
    run = Plan.run

    def watched(plan: Plan, *given: Any) -> None:
        nonlocal running, busy
        start, began = time.perf_counter(), time.thread_time()
        run(plan, *given)
        running += time.perf_counter() - start
        busy += time.thread_time() - began

    with mock.patch.object(Plan, "run", watched):
        for index in range(count):
            sizes = stream.draw(r)
            call, operands, keywords = stream.call(*sizes)
            running, busy, start, began = 0.0, 0.0, time.perf_counter(), time.thread_time()
            result = call(*operands, **keywords)
            whole, mine = time.perf_counter() - start, time.thread_time() - began
            del result
            new = sizes not in known
            known.add(sizes)
            yield new, whole - running if new else whole, mine - busy
            if (index + 1) % max(1, count // 10) == 0:
                memory.append(round(rss_mib(), 1))


def measure(op: str, seed: int, count: int) -> dict[str, Any]:
    stream = STREAMS[op]
    report = tw.prepare(op, **stream.ranges)
    memory = [round(rss_mib(), 1)]
    built: list[str] = []
    substituted = 0

    def heard(event: events.Event) -> None:  # keeps none of them: the garbage collector would have to look at all
        nonlocal substituted
        substituted += isinstance(event, events.Substituted)
        if isinstance(event, events.KernelBuilt) and not event.cached:
            built.append(event.name)

    unsubscribe = events.subscribe(heard)
    with settings.override(missing="best_built"):
        rows = list(timed(stream, seed, count, memory))
        plans = len(registry_for("").plans())
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
        "again": figures([seconds for new, seconds, _ in rows if not new]),
        "memory_mib": memory,
        "plans": plans,
    }


_COLD = """
import sys, time
began = time.perf_counter()
import numpy as np
start = time.perf_counter()
import tilewright as tw
imported = time.perf_counter()
operands = [np.ones(shape, np.float32) for shape in {shapes!r}]
ready, spent = time.perf_counter(), time.process_time()
tw.{op}(*operands, **{keywords!r})
done = time.perf_counter() - ready, time.process_time() - spent
print(start - began, imported - start, *done)
"""


def cold(op: str, seed: int, rounds: int) -> dict[str, Any]:
    """First calls in processes of their own."""
    _, operands, keywords = STREAMS[op].call(*STREAMS[op].draw(random.Random(seed)))
    # Nothing else is imported there: what this module imports would be a part of the first call.
    code = _COLD.format(op=op, shapes=[operand.shape for operand in operands], keywords=keywords)
    environment = {**settings.environment(), "TILEWRIGHT_MISSING": "best_built"}
    found = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.append([1e3 * float(one) for one in done.stdout.split()])
    numpy_imports, imports, calls, cpu = zip(*found, strict=True)
    return {
        "numpy_import_ms": {"least": min(numpy_imports), "median": statistics.median(numpy_imports)},
        "import_ms": {"least": min(imports), "median": statistics.median(imports)},
        "first_call_ms": {"least": min(calls), "median": statistics.median(calls)},
        "first_call_cpu_ms": {"least": min(cpu), "median": statistics.median(cpu)},
        "rounds": rounds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", default=list(STREAMS), choices=list(STREAMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--cold", type=int, default=COLD, help="processes for first calls")
    parser.add_argument("--output", default="", help="a file for the numbers")
    given = parser.parse_args()
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
            f"them {again['median_us']:.0f} us (slowest {again['slowest_us']:.0f}); {memory[0]} to {memory[-1]} MiB, "
            f"{row['plans']} plans"
        )
        if row["cold"]:
            named = {
                name: row["cold"][f"{name}_ms"] for name in ("numpy_import", "import", "first_call", "first_call_cpu")
            }
            parts = [f"{name} {one['least']:.1f} ms (median {one['median']:.1f})" for name, one in named.items()]
            print(f"{'':10} cold process: {', '.join(parts)}")
    if given.output:
        text = json.dumps({**provenance(command_line()), "seed": given.seed, "rows": rows}, indent=1)
        Path(given.output).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
