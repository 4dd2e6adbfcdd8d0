"""A benchmark with validation: the candidates of a problem are checked against float64, timed in turns, and the
fastest is selected from then on (tier `measured`). Each stage of a problem is measured by itself.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import options

given = options(__doc__, rows=4, keys=256, rounds=3, flush=0)
problem = tw.AttentionProblem(1, 8, given.rows, given.keys, 64, heads_kv=2)

# A cache of its own, so that the example changes no selection of yours; without it the record is kept.
with tempfile.TemporaryDirectory() as folder, tw.settings.override(cache_dir=folder):
    registry = tw.Registry()
    before = registry.select(problem)
    measured = registry.measure(problem, rounds=given.rounds, flush=bool(given.flush))
    after = registry.select(problem)

print(f"before  {before.tier}: {before.name}")
records = measured if isinstance(measured, tuple) else (measured,)
for record, stage in zip(records, after.stages, strict=True):
    for timing in record.timings:
        speed = problem.flops / timing.seconds / 1e9
        print(f"  {timing.seconds * 1e6:8.1f} us {speed:7.1f} GFLOP/s  error/bound {timing.error:.3f}  {timing.name}")
        if timing.error > 1.0:
            sys.exit("WRONG: the error is larger than its bound")
    if stage.spec.digest != record.choice:
        sys.exit("selection does not use the measurement")
print(f"after   {after.tier}: {after.name}")
