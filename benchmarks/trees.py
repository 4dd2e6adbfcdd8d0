"""Two checkouts of Tilewright against each other on the CPU: did a change make anything slower?

    git worktree add /tmp/old COMMIT
    python benchmarks/trees.py /tmp/old --random SEED [--count 60] [--threads 2]

Problems are drawn by seed (`_gemm_shapes.random_shapes` states from what), for fp32, bf16, fp16 and int8.  Each tree
has a process of its own and a store of its own, compiles what it chooses, is checked against float64, and is timed
through `tw.gemm(a, b, out=out)`; they take turns, and one that is not in turn is stopped.  A ratio above 1 means this
tree is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

from _cpu_race import Entrant, Worker, race, ratio
from _gemm_shapes import Shape, as_message, random_shapes
from _machine import RESULTS, ROOT, provenance

WORKER = Path(__file__).parent / "_tree_worker.py"
DTYPES = ("fp32", "bf16", "fp16", "int8")


def start(tree: Path, threads: int, store: Path) -> Worker:
    variables = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    made = Worker(tree.name, threads, {"store": str(store / f"trees-{tree.name}")}, script=WORKER, variables=variables)
    if not Path(made.versions["place"]).is_relative_to(tree):
        raise SystemExit(f"{tree} was not what Python imported: {made.versions['place']}")
    return made


def measure(workers: dict[str, Worker], shape: Shape, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    request = {"do": "prepare", "key": "one", "shape": as_message(shape, dtype), "seed": options.random}
    kernels = {label: one.ask(request)["kernel"] for label, one in workers.items()}
    entrants = {label: Entrant(label, one, "one") for label, one in workers.items()}
    race(list(entrants.values()), options)
    for one in workers.values():
        one.ask({"do": "forget"})
    return {
        "shape": shape.name,
        "group": shape.group,
        "dtype": dtype,
        "kernels": kernels,
        "seconds": {label: one.median for label, one in entrants.items()},
        "old_over_new": ratio(entrants["old"], entrants["new"]),
    }


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("--random", type=int, required=True, metavar="SEED")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turn", type=float, default=0.03, help="seconds of one turn")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--output", type=Path, default=RESULTS / "trees.json")
    options = parser.parse_args()
    workers = {
        "old": start(options.old.absolute(), options.threads, options.store.absolute()),
        "new": start(ROOT, options.threads, options.store.absolute()),
    }
    rows = []
    try:
        for index, shape in enumerate(random_shapes(options.random, options.count)):
            row = measure(workers, shape, DTYPES[index % len(DTYPES)], options)
            rows.append(row)
            times = row["seconds"]
            print(
                f"{row['dtype']} {row['shape']:<22} old {times['old'] * 1e6:9.1f} us  new {times['new'] * 1e6:9.1f} us"
                f"  {row['old_over_new']['ratio']:.2f}",
                flush=True,
            )
    finally:
        for one in workers.values():
            one.end()
    ratios = [row["old_over_new"]["ratio"] for row in rows]
    summary = {"count": len(ratios), "geometric_mean": geometric_mean(ratios), "least": min(ratios)}
    summary["by_group"] = {
        group: geometric_mean([row["old_over_new"]["ratio"] for row in rows if row["group"] == group])
        for group in sorted({row["group"] for row in rows})
    }
    print(json.dumps(summary, indent=1))
    result = provenance(shlex.join(["python", "benchmarks/trees.py", *sys.argv[1:]]))
    options.output.write_text(json.dumps(result | {"seed": options.random, "summary": summary, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
