"""Two checkouts of Tilewright against each other through the public calls of all three ops: did a change cost anything?

    git worktree add /tmp/old COMMIT
    python benchmarks/tree_calls.py /tmp/old --random SEED [--count 30] [--device cuda]

Problems are drawn by seed: GEMM with sizes log-uniform in 1 to 4096, convolutions and attention as `new_shapes.py`
draws them; bf16 on a GPU, fp32 on the CPU.  Each tree has a process and a store of its own, compiles what it chooses,
and its result must be the other's within rounding.  Then they take turns; a ratio above 1: this tree is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import new_shapes
from _machine import RESULTS, ROOT, command_line, provenance

WORKER = Path(__file__).parent / "_call_worker.py"
TURN = 0.02  # seconds


class Tree:
    def __init__(self, root: Path, store: Path) -> None:
        others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = [str(root / "src"), *(one for one in others if one and Path(one).resolve() != ROOT / "src")]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TILEWRIGHT_CACHE_DIR": str(store)}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, text=True
        )
        place = Path(self._answer()["place"])
        if not place.is_relative_to(root):
            raise SystemExit(f"{root} was not what Python imported: {place}")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return self._answer()


def gemm(r: random.Random) -> dict[str, Any]:
    m, n, k = (round(2 ** r.uniform(0, 12)) for _ in range(3))
    n, k = 8 * math.ceil(n / 8), 8 * math.ceil(k / 8)
    return {"call": "matmul", "shapes": [[m, k], [k, n]], "keywords": {}}


def conv(r: random.Random, most: int) -> dict[str, Any]:
    p = new_shapes.conv(r, "", most)
    shapes = [[p["batch"], *p["size"], p["channels"]], [p["filters"], *p["window"], p["channels"]]]
    return {"call": "conv", "shapes": shapes, "keywords": {"stride": p["stride"], "padding": p["padding"],
                                                           "layout": "nhwc"}}  # fmt: skip


def attention(r: random.Random, most: int) -> dict[str, Any]:
    p = new_shapes.attention(r, "", most)
    q = [p["batch"], p["seqlen_q"], p["heads_q"], p["head_dim"]]
    kv = [p["batch"], p["seqlen_kv"], p["heads_kv"], p["head_dim"]]
    return {"call": "attention", "shapes": [q, kv, kv], "keywords": {"causal": p["causal"]}}


def measured(trees: dict[str, Tree], problem: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    told = {
        name: tree.ask(do="prepare", seed=options.random, device=options.device, **problem)
        for name, tree in trees.items()
    }
    if wrong := [one["error"] for one in told.values() if "error" in one]:
        return {**problem, "error": wrong}
    size = max(1e-30, *(one["size"] for one in told.values()))
    assert abs(told["new"]["size"] - told["old"]["size"]) <= 0.01 * size, (problem, told)
    for tree in trees.values():
        tree.ask(do="time", count=2, device=options.device)
    alone = max(tree.ask(do="time", count=1, device=options.device)["whole"] for tree in trees.values())
    count = max(1, min(400, round(TURN / alone)))
    times: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for turn in range(options.rounds):
        for name in sorted(trees, reverse=turn % 2 == 1):
            times[name].append(trees[name].ask(do="time", count=count, device=options.device))
    row: dict[str, Any] = dict(problem)
    for what in times["new"][0]:
        old, new = ([one[what] for one in times[name]] for name in ("old", "new"))
        row[what] = {"new_us": 1e6 * statistics.median(new), "old_us": 1e6 * statistics.median(old),
                     "ratio": statistics.median(a / b for a, b in zip(old, new, strict=True))}  # fmt: skip
    return row


def summary(rows: list[dict[str, Any]], what: str) -> str:
    ratios = sorted(row[what]["ratio"] for row in rows if what in row)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    low, high = ratios[len(ratios) // 10], ratios[9 * len(ratios) // 10]
    return f"{mean:.3f} (P10 {low:.3f}, P90 {high:.3f}, {len(ratios)} problems)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("--random", type=int, required=True, metavar="SEED")
    parser.add_argument("--count", type=int, default=30, help="problems of an op")
    parser.add_argument("--ops", nargs="+", default=["gemm", "conv", "attention"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--output", type=Path, default=RESULTS / "tree_calls.json")
    options = parser.parse_args()
    roots = {"new": ROOT, "old": options.old.resolve()}
    trees = {name: Tree(root, options.store / f"calls-{name}") for name, root in roots.items()}
    r, most = random.Random(options.random), 512 if options.device == "cpu" else 4096
    draws: dict[str, Callable[[], dict[str, Any]]] = {
        "gemm": lambda: gemm(r), "conv": lambda: conv(r, most), "attention": lambda: attention(r, most),
    }  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {}
    for op in options.ops:
        rows[op] = []
        for _ in range(options.count):
            rows[op].append(row := measured(trees, draws[op](), options))
            if "error" in row:
                print("left out:", row["shapes"], row["error"], flush=True)
        for what in ("device", "whole"):
            if any(what in row for row in rows[op]):
                print(f"{op:10}{what:7} new over old {summary(rows[op], what)}", flush=True)
    made = {**provenance(command_line()), "seed": options.random, "device": options.device, "rows": rows}
    options.output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
