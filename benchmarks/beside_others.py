"""Our calls right behind another library's, whose threads may still spin on our cores, beside the same calls alone.

    python benchmarks/beside_others.py                 writes results/beside_others.json
    python benchmarks/beside_others.py --seed 7 --count 4
    python benchmarks/beside_others.py --quick         one problem an op, few calls, nothing written

Problems of all three ops are drawn by a seed: 0.1 to 6 ms on a core or two.  `alone` is a call behind calls of the
same; `behind NumPy` one right behind a product of 512x512 of NumPy's, `behind PyTorch` the same of PyTorch's, where it
is installed.  A problem takes turns: some calls of each kind, then the next kind, until all have theirs.  `x` is the
median behind the other over the median alone: 1 is peace, 2 on two cores means that our call had one of them.
`behind ours` is the yardstick: the same product by `tw.gemm`.  It leaves no thread of anybody's spinning, but caches
full of other things, behind which a small convolution takes 1.5 times as long (twice behind a copy of 32 MB on one
thread): only what a call takes beyond that is the other library's doing.
`PyTorch's x` says what happens to PyTorch's own product of 512x512 behind NumPy's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _machine import RESULTS, command_line, provenance

import tilewright as tw
from tilewright.runtime import host

Call = Callable[[], object]
SIDE = 512  # of the other's product: about a millisecond
TURN = 8  # calls of a kind in a turn


def drawn(seed: int, count: int) -> Iterator[tuple[str, str, Call]]:
    """Op, problem and call."""
    rng = np.random.default_rng(seed)

    def values(*sizes: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(sizes, np.float32)

    def size(least: int, most: int, step: int = 1) -> int:
        return round(math.exp(rng.uniform(math.log(least), math.log(most))) / step) * step

    for _ in range(count):
        m, n, k = (size(128, 640) for _ in range(3))
        a, b = values(m, k), values(n, k).T
        yield "gemm", f"{m}x{n}x{k}", partial(tw.gemm, a, b)
        side, channels, filters, window = size(14, 56), size(32, 128, 8), size(32, 128, 8), int(rng.choice([1, 3]))
        x, w = values(1, side, side, channels), values(filters, window, window, channels)
        shape = f"{side}x{side}x{channels} to {filters}, {window}x{window}"
        yield "conv", shape, partial(tw.conv, x, w, padding=window // 2)
        heads, rows = size(4, 16), size(128, 512)
        q = values(1, heads, rows, 64)
        yield "attention", f"{heads} heads of {rows}x64", partial(tw.attention, q, q, q, layout="bhsd")


def others() -> dict[str, Call]:
    a = np.ones((SIDE, SIDE), np.float32)
    calls: dict[str, Call] = {"ours": partial(tw.gemm, a, a), "NumPy": lambda: a @ a}
    if importlib.util.find_spec("torch") is not None:
        import torch

        t = torch.ones((SIDE, SIDE))
        calls["PyTorch"] = lambda: t @ t
    return calls


def seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def behind(call: Call, before: dict[str, Call], calls: int) -> dict[str, list[float]]:
    """Times of a call alone and behind others, in turns."""
    times: dict[str, list[float]] = {name: [] for name in ("alone", *before)}
    for _ in range(20):
        call()
    while len(times["alone"]) < calls:
        for name, into in times.items():
            time.sleep(0.05)  # whoever spins from the turn before goes to sleep
            call()
            for _ in range(TURN):
                if name != "alone":
                    before[name]()
                into.append(seconds(call))
    return times


def told(times: dict[str, list[float]]) -> dict[str, float]:
    row = {f"{name} us": statistics.median(some) * 1e6 for name, some in times.items()}
    row |= {f"{name} p90 us": statistics.quantiles(some, n=10)[-1] * 1e6 for name, some in times.items()}
    return row | {f"x behind {name}": row[f"{name} us"] / row["alone us"] for name in times if name != "alone"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--count", type=int, default=4, help="problems an op")
    parser.add_argument("--calls", type=int, default=64, help="of each kind")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "beside_others.json")
    options = parser.parse_args()
    count, calls = (1, TURN) if options.quick else (options.count, options.calls)
    before, rows = others(), []
    for op, shape, call in drawn(options.seed, count):
        row: dict[str, Any] = {"op": op, "shape": shape, **told(behind(call, before, calls))}
        rows.append(row)
        ratios = ", ".join(f"{row[f'x behind {name}']:.2f} behind {name}" for name in before)
        print(f"{op:10} {shape:28} {row['alone us']:8.0f} us alone, x {ratios}", flush=True)
    summary: dict[str, float] = {}
    for name in before:
        for op in ("gemm", "conv", "attention"):
            some = [math.log(row[f"x behind {name}"]) for row in rows if row["op"] == op]
            summary[f"{op} behind {name}"] = math.exp(statistics.mean(some))
    if "PyTorch" in before:
        theirs = told(behind(before["PyTorch"], {"NumPy": before["NumPy"]}, calls))
        summary["PyTorch's product behind NumPy"] = theirs["x behind NumPy"]
    for name, value in summary.items():
        print(f"{name}: {value:.2f}")
    if not options.quick:
        report = {**provenance(command_line()), "seed": options.seed, "threads": host.thread_count()}
        text = json.dumps({**report, "summary": summary, "rows": rows}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
