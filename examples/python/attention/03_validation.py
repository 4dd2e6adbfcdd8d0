"""Validation with the package's own reference: an error bound for every element, derived from types and lengths.

This is what `tilewright run attention ... --verify` and every measurement do; 1.0 is the bound, above it a kernel is
wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import options

given = options(__doc__, rounds=2)
features: dict[str, dict[str, object]] = {
    "plain": {},
    "causal, GQA": {"window_right": 0, "heads_kv": 2},
    "soft cap, lse": {"softcap": True, "return_lse": True},
}
registry = tw.Registry()
for name, fields in features.items():
    problem = tw.AttentionProblem(2, 8, 96, 96, 64, **fields)  # type: ignore[arg-type]
    selected = registry.select(problem).stages[0].spec
    record = registry.measure(problem, [selected], rounds=given.rounds, save=False)  # checked first, then timed
    error = record.timings[0].error
    print(f"{name:<16} error/bound {error:.3f}  {record.timings[0].name}")
    if not error <= 1.0:
        sys.exit("WRONG: the error is larger than its bound")

# On the command line, for one kernel or for all: --verify, bench.
print(registry.explain(problem).replay.replace("explain", "run", 1) + " --verify")
