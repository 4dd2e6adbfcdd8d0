"""What a sweep costs beside compiling and running kernels, on a real sweep of GEMM on this machine's CPU.

    python benchmarks/sweep_overhead.py            prints the shares and writes benchmarks/results/sweep_overhead.json

The sweep is that of `tilewright bench gemm --problems validation` with the protocol of the command line: the kernels
dispatch would choose from, five rounds, batches of 20.  It is made twice: with nothing built, one compiler at a time,
and again into an empty store with every kernel built.  Everything is by the sweep's own account, in seconds of the
clock:

* compile: what the compilers took, by the build engine's events;
* run: calls of kernels, to check them and to time them, the warm-ups and repeats of the protocol included;
* all else is overhead: starting processes, planning, hashing, making operands, loading libraries, computing references
  and comparing with them, waiting for a quiet machine (patience 0 here: the wait is the other programs' cost), queues,
  pipes, the store.

Other programs on the machine slow both sides of the fraction alike; the processor time of the sweep's own process,
which runs no kernel and no compiler, is given beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _machine import RESULTS, provenance

from tilewright import events, ops, settings
from tilewright.arch import arch, best_host_arch
from tilewright.cli._sweep import problems
from tilewright.dispatch.results import Results
from tilewright.tune.sweep import Options, Sweep, candidates

TARGET_SHARE = 0.10


def one_sweep(asked: Sequence[Any], target: str, folder: Path, batch: int) -> dict[str, Any]:
    """A whole sweep, from the plan to its last row."""
    compiled: list[float] = []

    def on_build(event: events.Event) -> None:
        if isinstance(event, events.KernelBuilt) and not event.cached:
            compiled.append(event.seconds)

    gemm = ops.op("gemm")
    start, own = time.perf_counter(), time.process_time()
    sweep = Sweep(gemm, target, Results(folder / f"{time.time_ns()}.db"), Options(patience=0.0, jobs=1, batch=batch))
    work = sweep.plan(asked, candidates(gemm, target))
    done = sweep.run(work, on_build=on_build)
    total, own = time.perf_counter() - start, time.process_time() - own
    spent = dict(done.spent)
    kernels = sum(compiled) + spent.get("run", 0.0)
    parts = {
        "compile": sum(compiled), "building beside compilers": spent.pop("build", 0.0) - sum(compiled),
        **spent,
    }  # fmt: skip
    parts["all else"] = total - sum(parts.values())
    return {
        "problems": len(work.all_items), "rows": done.done, "failed": dict(done.failed), "compiled": len(compiled),
        "seconds": round(total, 2), "parts": {name: round(value, 2) for name, value in parts.items()},
        "overhead": round(1 - kernels / total, 4), "own_processor_seconds": round(own, 2),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", default="validation", help="a problem set of GEMM")
    parser.add_argument("--datatype", default="", help="instead of the set's own")
    parser.add_argument("--target", default="", help="instead of this CPU's best")
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS / "sweep_overhead.json")
    args = parser.parse_args()
    target = args.target or best_host_arch().name
    given = {"datatype": args.datatype or None}
    asked = problems(ops.op("gemm"), args.problems, given, arch(target))
    with tempfile.TemporaryDirectory() as folder, settings.override(cache_dir=Path(folder) / "cache"):
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(Path(folder) / "cache")
        first = one_sweep(asked, target, Path(folder), args.batch)
        again = one_sweep(asked, target, Path(folder), args.batch)
    words = [f"--problems {args.problems}"] + [f"--datatype {args.datatype}"] * bool(args.datatype)
    data = {
        **provenance(f"python benchmarks/sweep_overhead.py {' '.join(words)} --batch {args.batch}"),
        "sweep_target": target, "nothing_built": first, "all_built": again,
    }  # fmt: skip
    args.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({"nothing_built": first, "all_built": again}, indent=1))
    worst = max(first["overhead"], again["overhead"])
    print(f"overhead at most {worst:.1%}; the goal is {TARGET_SHARE:.0%}")
    return 0 if first["overhead"] < TARGET_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
