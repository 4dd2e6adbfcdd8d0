"""How long a large store takes to answer: the fastest kernel of a problem, what dispatch looks up, what a sweep asks.

    python benchmarks/results_store.py [--rows 1000000] [--seed 20261115]

The store is made here: `--kernels` kernels, each measured on every problem, on `--devices` devices; times are drawn by
the seed, a twentieth of the rows have none, and the problems asked for are drawn by it too.  `best` is the fastest of
all that was measured, `winner` what dispatch looks up (the choice, its kernel, of how many it was the fastest),
`record` the same with all times, `measured` what a sweep asks before it begins a problem.  Each is asked for by op,
fields and device, so that hashing and reading JSON are in it.  `cold` is the first answer of a new process.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _machine import RESULTS, provenance

from tilewright.dispatch.records import Records
from tilewright.dispatch.results import OK, Choice, KernelRow, Result, Results, problem_digest

OP = "gemm"
ARCH = "sm_90a"


def kernel(at: int) -> KernelRow:
    """As large as a real one: the JSON of a spec is what makes rows heavy to read."""
    spec = {"schema": 2, "op": OP, "arch": ARCH, "signature": {"variant": "standard", "dtype_a": "bf16",
            "dtype_b": "bf16", "dtype_acc": "fp32", "dtype_c": "bf16", "layout": "rcr", "epilogue": "PassThrough"},
            "schedule": {"pipeline": "tma_ws", "tile": [128, 256, 64], "stages": 4, "cluster": [2, 1],
            "grouping": "cooperative", "turned": False, "dealing": "tiles", "store": "tma", "number": at}}  # fmt: skip
    return KernelRow(f"{at:064x}", f"{OP}_bf16_rcr_tma_ws_128x256x64_cluster2x1_stages4_{ARCH}_{at:08x}", ARCH, spec)


def problem(at: int) -> dict[str, Any]:
    return {"m": 1 + at, "n": 4096, "k": 4096, "batch": 1, "dtype_a": "bf16", "dtype_b": "bf16", "dtype_c": "bf16",
            "layout": "rcr", "epilogue": "PassThrough", "num_d": 0, "strides": [4096, 4096, 4096]}  # fmt: skip


def device(at: int) -> dict[str, Any]:
    return {"kind": "cuda", "model": "NVIDIA H200", "number": at, "fingerprint": f"{at:016x}"}


def rows(draw: random.Random, options: argparse.Namespace) -> Iterator[list[Result]]:
    """A list a problem and device, until there are enough rows."""
    kernels = [kernel(at) for at in range(options.kernels)]
    devices = [device(at) for at in range(options.devices)]
    method, versions = {"kind": "interleaved rounds, median", "rounds": 5}, {"tilewright": "0.1.0"}
    made = at = 0
    while made < options.rows:
        for place in devices:
            found = []
            for one in kernels[: options.rows - made]:
                ok = draw.random() >= 0.05
                found.append(
                    Result(OP, problem(at), place, 0, one, OK if ok else "refused", draw.uniform(1e-5, 1e-4) if ok else
                           None, 0.01, 0.1, 4096, None, "" if ok else "it would not", method, versions, 1.7e9 + made)
                )  # fmt: skip
                made += 1
            if found:
                yield found
        at += 1


def fill(store: Results, options: argparse.Namespace) -> tuple[int, float]:
    """The number of problems, and seconds it took."""
    draw = random.Random(options.seed)
    started = time.perf_counter()
    problems: set[int] = set()
    for found in rows(draw, options):
        best = min((one for one in found if one.status == OK), key=lambda one: one.seconds or 0.0)
        choice = Choice(OP, best.problem, best.device, 0, ARCH, best.kernel.digest, best.date)
        store.put(found, [choice])
        problems.add(found[0].problem["m"])
    return len(problems), time.perf_counter() - started


def timed(ask: Callable[[int], Any], wanted: list[int]) -> dict[str, float]:
    """Milliseconds of single answers, by the clock and of the processor: the clock counts what others do meanwhile."""
    ask(wanted[0])
    passed, used = [], []
    for at in wanted:
        started, before = time.perf_counter(), time.thread_time()
        answer = ask(at)
        used.append((time.thread_time() - before) * 1e3)
        passed.append((time.perf_counter() - started) * 1e3)
        assert answer, f"problem {at} has no answer"
    return {**_spread(passed, ""), **_spread(used, "cpu_"), "answers": len(passed)}


def _spread(found: list[float], name: str) -> dict[str, float]:
    ordered = sorted(found)
    return {f"{name}median_ms": round(statistics.median(ordered), 4), f"{name}worst_ms": round(ordered[-1], 4),
            f"{name}p99_ms": round(ordered[int(len(ordered) * 0.99)], 4)}  # fmt: skip


COLD = """
import sys, time, json
from pathlib import Path
from tilewright.dispatch.results import Results
from results_store import OP, device, problem
at = int(sys.argv[2])
started = time.perf_counter()
found = Results(Path(sys.argv[1])).best(OP, problem(at), device(0)["fingerprint"], 0)
assert found is not None
print((time.perf_counter() - started) * 1e3)
"""


def cold(path: Path, wanted: list[int]) -> float:
    """The median of new processes."""
    found = [
        float(
            subprocess.run(
                [sys.executable, "-c", COLD, str(path), str(at)], cwd=Path(__file__).parent, check=True,
                capture_output=True, text=True,
            ).stdout
        )
        for at in wanted
    ]  # fmt: skip
    return round(statistics.median(found), 3)


def _winner(records: Records, at: int, *, whole: bool) -> Any:
    """What dispatch does for a problem that was measured: the choice, its kernel, and how many it was fastest of."""
    (found, *_) = records.results.choices(
        "WHERE p.digest = ? AND h.target = ? ORDER BY h.date", (problem_digest(OP, problem(at)), ARCH)
    )
    record = records._record(found, whole=whole)
    return record is not None and (whole or bool(records.why(record)))


def measure(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    store = Results(path)
    problems, seconds = fill(store, options)
    draw = random.Random(options.seed + 1)
    wanted = [draw.randrange(problems) for _ in range(options.asked)]
    here = device(0)["fingerprint"]
    records = Records(path.parent, path.name)
    found = {
        "rows": store.count(),
        "problems": problems,
        "kernels": options.kernels,
        "devices": options.devices,
        "file_mb": round(sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*")) / 1e6, 1),
        "fill_seconds": round(seconds, 1),
        "best": timed(lambda at: store.best(OP, problem(at), here, 0), wanted),
        "best_of_archs": timed(lambda at: store.best(OP, problem(at), here, 0, (ARCH, "sm_80")), wanted),
        "choice": timed(lambda at: records.results.choices(
            "WHERE p.digest = ? AND h.target = ? ORDER BY h.date", (problem_digest(OP, problem(at)), ARCH)), wanted),
        "winner": timed(lambda at: _winner(records, at, whole=False), wanted),
        "record": timed(lambda at: _winner(records, at, whole=True), wanted[:100]),
        "measured": timed(lambda at: store.measured(here, 0, problem_digest(OP, problem(at))), wanted[:100]),
        "cold_best_ms": cold(path, wanted[:5]),
    }  # fmt: skip
    store.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kernels", type=int, default=500, help="measured on each problem")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--asked", type=int, default=1000, help="problems that are asked for")
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--output", type=Path, default=RESULTS / "results_store.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder) / "results.db", options)
    print(json.dumps(found, indent=1))
    result = provenance(shlex.join(["python", "benchmarks/results_store.py", *sys.argv[1:]]))
    options.output.write_text(json.dumps(result | {"seed": options.seed, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
