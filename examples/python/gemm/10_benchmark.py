"""A benchmark with validation: candidates are checked against float64, timed in turns, and the fastest is selected.

`--flush 1` times every call with cold caches, `--buffers 4` rotates through that many sets of operands, as CK's
profiler does. Selection then has the tier `measured` on this device.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import options

given = options(__doc__, size=128, rounds=3, kernels=2, flush=0, buffers=1)
problem = tw.GemmProblem(m=given.size, n=given.size, k=given.size)

# A cache of its own, so that the example changes no selection of yours; without it the record is kept.
with tempfile.TemporaryDirectory() as folder, tw.settings.override(cache_dir=folder):
    registry = tw.Registry()
    before = registry.select(problem)
    usable = [one.digest for one in registry.explain(problem).candidates if one.verdict != "refused"]
    specs = [spec for spec in registry.candidates(problem) if spec.digest in usable][: given.kernels]
    record = registry.measure(problem, specs, rounds=given.rounds, flush=bool(given.flush), buffers=given.buffers)
    after = registry.select(problem)

print(f"before  {before.tier}: {before.name}")
for timing in record.timings:
    speed = problem.flops / timing.seconds / 1e9
    print(f"  {timing.seconds * 1e6:8.1f} us {speed:7.1f} GFLOP/s  error/bound {timing.error:.3f}  {timing.name}")
    if timing.error > 1.0:
        sys.exit("WRONG: the error is larger than its bound")
print(f"after   {after.tier}: {after.name}")
print(f"measured on {record.machine.get('model') or record.target} with {record.versions['compiler']}")
if after.tier != "measured" or after.stages[0].spec.digest != record.choice:
    sys.exit("selection does not use the measurement")
