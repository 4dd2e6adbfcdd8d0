"""What a user waits for a kernel that nobody has built: first calls of drawn problems, one process, an empty store.

    python benchmarks/first_calls.py --seed SEED --device cuda     on a GPU; writes results/first_calls_cuda.json
    python benchmarks/first_calls.py --seed SEED                   on the CPU; writes results/first_calls_cpu.json
    python benchmarks/first_calls.py --seed SEED --quick           one problem an op, nothing written

The whole public call is timed, its result waited for: selection, rendering, compilers, checks of the code, loading,
launch.  A problem whose kernel an earlier one has built does not count, and its line says so.  The first of all calls,
which also loads the package's libraries, is in the table but not in the median.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import new_shapes
import numpy as np
from _machine import RESULTS, command_line, provenance

from tilewright import events, settings

COUNT = 12  # problems of an op


def tensors(arrays: tuple[Any, ...], device: str) -> tuple[Any, ...]:
    if device == "cpu":
        return arrays
    import torch

    return tuple(torch.from_numpy(array).to(device, torch.bfloat16) for array in arrays)


def first_call(problem: Any, device: str) -> dict[str, Any]:
    call, arrays, keywords = new_shapes.operands(problem)
    rng = np.random.default_rng(1)
    inputs = tensors(tuple(rng.standard_normal(array.shape, dtype=np.float32) for array in arrays), device)
    with events.recorded() as heard:
        start = time.perf_counter()
        call(*inputs, **keywords)
        if device != "cpu":
            import torch

            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    built = [event for event in heard if isinstance(event, events.KernelBuilt) and not event.cached]
    longest = max((event.seconds for event in built), default=0.0)  # several are compiled at once
    return {
        "problem": str(problem),
        "seconds": seconds,
        "compiler_seconds": longest,
        "built": [event.name for event in built],
    }


def measure(op: str, seed: int, count: int, device: str) -> list[dict[str, Any]]:
    dtype, most = ("fp32", 512) if device == "cpu" else ("bf16", 4096)
    draw = random.Random(f"first calls {seed} {op}")
    problems = new_shapes.stream(op, dtype, most, draw.randrange(1 << 30), count)
    rows = []
    for problem in problems:
        rows.append(row := first_call(problem, device))
        of_compilers = f"(compilers {row['compiler_seconds']:.2f})" if row["built"] else ""
        print(f"{op:10}{row['seconds']:7.2f} s {of_compilers}  {', '.join(row['built']) or 'built before'}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=COUNT, help="problems of an op")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    count = 1 if options.quick else options.count
    with tempfile.TemporaryDirectory() as folder, settings.override(cache_dir=Path(folder)):
        rows = {op: measure(op, options.seed, count, options.device) for op in new_shapes.DRAWS}
    medians: dict[str, float] = {}
    for op, measured in rows.items():
        waits = [row["seconds"] for row in measured[op == "gemm" :] if row["built"]]
        if waits:
            medians[op] = statistics.median(waits)
            print(f"{op:10}median {medians[op]:.2f} s, most {max(waits):.2f} s, {len(waits)} kernels built")
    if not options.quick:
        head = {**provenance(command_line()), "seed": options.seed, "device": options.device}
        result = {**head, "median_seconds": medians, "rows": rows}
        path = RESULTS / f"first_calls_{options.device}.json"
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
