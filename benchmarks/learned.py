"""What asking a shipped model costs: features and forest for the kernels of one selection, and for hundreds.

    python benchmarks/learned.py [--output benchmarks/results/learned.json]

Microseconds, the median of many questions of random problems; LightGBM is not imported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _machine import RESULTS, provenance

from tilewright import ops
from tilewright.backends.base import backend
from tilewright.dispatch import model as models
from tilewright.dispatch import model_files
from tilewright.ops.engine import engine

MANY = 300


def asked(one: models.Model, seed: int, count: int, least: int) -> dict[str, Any]:
    """Questions of random problems; kernels are repeated until there are `least` of them."""
    op, target = ops.op(one.card.op), one.card.targets[0]
    kind = "cpu" if target.startswith("x86") else "cuda"
    given = {"datatype": "bf16"} if op.name == "gemm" or kind == "cuda" else {}
    device, taken, sizes = dict(one.card.devices[0]), [], []
    for values in engine(op).random(seed, count, kind):
        problem = op.problem({**values, **given})
        specs = [spec for spec in op.candidates(op.signature_of(problem), target) if not op.supports(spec, problem)]
        if not specs:  # of a kind that only the floor serves
            continue
        specs = (specs * (1 + least // len(specs)))[: max(least, len(specs))]
        guesses = [backend(kind).estimate(spec, problem, 2) for spec in specs]
        units = int(one.high[-1])
        told = models.ask([one], specs, problem, units, guesses, device)
        if told.seconds is None:
            continue
        sizes.append((len(specs), int(np.isfinite(told.seconds).sum())))
        rounds = []
        for _ in range(9):
            start = time.perf_counter()
            models.ask([one], specs, problem, units, guesses, device)
            rounds.append(time.perf_counter() - start)
        taken.append(statistics.median(rounds) * 1e6)
    return {
        "questions": len(taken),
        "kernels": statistics.fmean(one for one, _ in sizes),
        "scored": statistics.fmean(near for _, near in sizes),
        "median_us": statistics.median(taken),
        "p90_us": statistics.quantiles(taken, n=10)[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--output", type=Path, default=RESULTS / "learned.json")
    options = parser.parse_args()
    found = {}
    for one in model_files._shipped():
        for word, least in (("a selection", 1), ("hundreds", MANY)):
            found[f"{one.card.name}, {word}"] = numbers = asked(one, options.seed, options.count, least)
            print(f"{one.card.name}, {word}: {numbers['median_us']:.0f} us for {numbers['kernels']:.0f} kernels, "
                  f"of which {numbers['scored']:.0f} are scored")  # fmt: skip
    assert "lightgbm" not in sys.modules
    command = f"python benchmarks/learned.py --seed {options.seed}"
    options.output.write_text(
        json.dumps(provenance(command) | {"seed": options.seed, "models": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
