"""Attention's gradients on the CPU beside the backward pass of PyTorch's scaled_dot_product_attention, in one process.

    python benchmarks/attention_backward_cpu.py                 drawn with a new seed, which is told
    python benchmarks/attention_backward_cpu.py --seed 7 --count 24 --rounds 9
    python benchmarks/attention_backward_cpu.py --output FILE   writes what was measured

Whole calls: `tw.attention_backward` of tensors, and `torch.autograd.grad` through SDPA with its graph kept.
Both have the same number of threads, take turns, and the ratio of a shape is that of the medians of their times; where
query heads share keys PyTorch is timed with its own sharing and with keys repeated, and the faster counts.  The first
results are compared with float64 before a shape is timed.  `--cpu-time` counts the process's CPU seconds with one
thread instead of the wall clock's: the way to look at a machine that others use too.  fp32 and bf16 take turns, and no
shape is begun after --most-seconds.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _cpu_race import geometric_mean, written
from _machine import provenance

import tilewright as tw
from tilewright import settings
from tilewright.errors import counted
from tilewright.ops.attention_backward.engine import drawn

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
TARGET = 1.2
SDPA = torch.nn.functional.scaled_dot_product_attention


def shapes(seed: int, count: int) -> list[dict[str, Any]]:
    """Problems that PyTorch has a call for: one length for all sequences, rows that see everything or are causal."""
    kept: list[dict[str, Any]] = []
    for one in drawn(seed, 40 * count, "cpu"):
        window = one.get("window", "")
        causal = window == "-1,0"
        if one.get("varlen") or (window and not causal) or (causal and one["seqlen_q"] != one["seqlen_k"]):
            continue
        kept.append({**one, "causal": causal})
        if len(kept) == count:
            break
    return kept


def timed(call: Callable[[], object], clock: Callable[[], float], least: float) -> float:
    """Seconds of one call, of as many as take `least` together."""
    times, start = 0, clock()
    while True:
        call()
        times += 1
        taken = clock() - start
        if taken >= least:
            return taken / times


def measured(one: dict[str, Any], dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(options.seed)
    kind, size = DTYPES[dtype], one["head_dim"]

    def made(heads: int, rows: int) -> Any:
        shape = (one["batch"], heads, rows, size)
        return torch.randn(shape, generator=generator).to(kind).requires_grad_()

    q, k, v = made(one["heads_q"], one["seqlen_q"]), *(made(one["heads_kv"], one["seqlen_k"]) for _ in range(2))
    causal, group = one["causal"], one["heads_q"] // one["heads_kv"]
    with torch.no_grad():
        out, lse = tw.attention(q, k, v, causal=causal, layout="bhsd", return_lse=True)
    dout = torch.randn(out.shape, generator=generator).to(kind)
    plain = [each.detach() for each in (q, k, v)]

    def ours() -> Any:
        return tw.attention_backward(dout, plain[0], plain[1], plain[2], out, lse, causal=causal, layout="bhsd")

    def theirs(repeated: bool) -> Callable[[], Any]:
        keys = [each.repeat_interleave(group, 1).detach().requires_grad_() if repeated else each for each in (k, v)]
        result = SDPA(q, *keys, is_causal=causal, enable_gqa=not repeated and group > 1)
        return lambda: torch.autograd.grad(result, (q, *keys), dout, retain_graph=True)

    demand_right(ours(), (q, k, v), dout, causal)
    peers = {"sdpa": theirs(False), **({"sdpa, keys repeated": theirs(True)} if group > 1 else {})}
    clock = time.process_time if options.cpu_time else time.perf_counter
    found: dict[str, list[float]] = {"tilewright": [], **{name: [] for name in peers}}
    for _ in range(options.rounds):
        for name, call in (("tilewright", ours), *peers.items()):
            found[name].append(timed(call, clock, options.turn))
    middle = {name: (min if options.least else statistics.median)(times) for name, times in found.items()}
    peer = min(peers, key=lambda name: middle[name])
    flops = 10 * one["batch"] * one["heads_q"] * one["seqlen_q"] * one["seqlen_k"] * size / (2 if causal else 1)
    return {
        "shape": {name: one[name] for name in ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim")},
        "causal": causal, "dtype": dtype, "seconds": middle, "peer": peer, "gflops": flops / middle["tilewright"] / 1e9,
        "over_torch": middle[peer] / middle["tilewright"],
    }  # fmt: skip


def demand_right(found: Any, operands: Any, dout: Any, causal: bool) -> None:
    """No further from float64 than twice PyTorch's own path in the type, or a little."""
    wide = [each.detach().double().requires_grad_() for each in operands]
    group = wide[0].shape[1] // wide[1].shape[1]
    exact = torch.autograd.grad(SDPA(*wide, is_causal=causal, enable_gqa=group > 1), wide, dout.double())
    own = torch.autograd.grad(SDPA(*operands, is_causal=causal, enable_gqa=group > 1), operands, dout)
    for name, mine, theirs, right in zip(("dq", "dk", "dv"), found, own, exact, strict=True):
        off, other = ((each.double() - right).abs().max() for each in (mine, theirs))
        if not off <= 2 * other + 1e-6 * right.abs().max():
            sizes = ", ".join(str(tuple(each.shape)) for each in operands)
            raise SystemExit(f"{name} of {sizes}, causal {causal}: {off:.2g} from float64, and PyTorch's {other:.2g}")


def digest(rows: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [row["over_torch"] for row in rows]
    return {"shapes": len(rows), "geometric_mean": geometric_mean(ratios), "least": min(ratios), "target": TARGET,
            "met": geometric_mean(ratios) >= TARGET}  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Attention's gradients beside PyTorch's, on the CPU.")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=16, help="shapes of each type")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--turn", type=float, default=0.05, help="seconds of a turn, at least")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most-seconds", type=float, default=150.0, help="no shape is begun after so many")
    parser.add_argument("--cpu-time", action="store_true", help="CPU seconds of one thread")
    parser.add_argument("--least", action="store_true", help="the least time of a shape instead of the median")
    parser.add_argument("--output", type=Path, default=None, help="a file for what was measured")
    options = parser.parse_args()
    options.seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    options.threads = 1 if options.cpu_time else options.threads
    return options


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    head = provenance(shlex.join(["python", "benchmarks/attention_backward_cpu.py", *sys.argv[1:]]))
    print(f"seed {options.seed}, {counted(options.threads, 'thread')}")
    rows, left_out, begun = [], 0, time.perf_counter()
    drawn_shapes = [
        shapes(random.Random(f"{options.seed} {dtype}").randrange(2**31), options.count) for dtype in DTYPES
    ]
    with settings.override(threads=options.threads):
        for pair in zip(*drawn_shapes, strict=True):
            for dtype, shape in zip(DTYPES, pair, strict=True):
                if time.perf_counter() - begun > options.most_seconds:
                    left_out += 1
                    continue
                row = measured(shape, dtype, options)
                rows.append(row)
                sizes = " ".join(f"{name}={value}" for name, value in row["shape"].items())
                print(f"{dtype} {'causal ' if row['causal'] else ''}{sizes}: {row['gflops']:.0f} GFLOP/s, "
                      f"{row['over_torch']:.2f} of {row['peer']}", flush=True)  # fmt: skip
    if left_out:
        print(f"{left_out} shapes were left out after {options.most_seconds:.0f} s")
    found = {"all": digest(rows), **{dtype: digest([row for row in rows if row["dtype"] == dtype]) for dtype in DTYPES}}
    for name, each in found.items():
        means = f"geometric mean {each['geometric_mean']:.2f}, least {each['least']:.2f}"
        print(f"{name}: {each['shapes']} shapes, {means}, goal {TARGET}: {'met' if each['met'] else 'MISSED'}")
    if options.output:
        method = {"seed": options.seed, "threads": options.threads, "rounds": options.rounds, "turn": options.turn,
                  "clock": "cpu" if options.cpu_time else "wall"}  # fmt: skip
        head["versions"] |= {"torch": torch.__version__}
        record = {"benchmark": "attention_backward_cpu", **head, "method": method, "summary": found, "rows": rows}
        written(options.output, record)


if __name__ == "__main__":
    main()
