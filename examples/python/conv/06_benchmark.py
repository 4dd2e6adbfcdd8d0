"""A benchmark with validation: implicit GEMM beside other algorithms for one layer, all checked, timed and exported as
JSON.

The same as `tilewright bench conv ... --save`: the fastest is selected from then on (tier `measured`).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import tilewright as tw
from tilewright import ops

sys.path.append(str(Path(__file__).parents[1]))
from _common import options

given = options(__doc__, batch=1, channels=32, filters=32, size=16, rounds=3, kernels=2)
problem = tw.ConvProblem(given.batch, given.channels, given.filters, (given.size,) * 2, (3, 3), before=(1, 1))

# A cache of its own: the example changes no selection of yours.
with tempfile.TemporaryDirectory() as folder, tw.settings.override(cache_dir=folder):
    registry = tw.Registry()
    kernels: dict[str, tw.KernelSpec] = {}
    usable = {one.digest for one in registry.explain(problem).candidates if one.verdict != "refused"}
    for spec in registry.candidates(problem):
        if spec.digest in usable:
            kernels.setdefault(spec.schedule.pipeline, spec)  # one of each algorithm
    record = registry.measure(problem, list(kernels.values())[: given.kernels], rounds=given.rounds)
    after = registry.select(problem)

for timing in record.timings:
    speed = problem.flops / timing.seconds / 1e9
    print(f"{timing.seconds * 1e6:8.1f} us {speed:7.1f} GFLOP/s  error/bound {timing.error:.3f}  {timing.name}")
    if timing.error > 1.0:
        sys.exit("WRONG: the error is larger than its bound")
if after.tier != "measured" or after.stages[0].spec.digest != record.choice:
    sys.exit("selection does not use the measurement")

# The record as JSON: problem, kernels with their specs, times, machine, compiler.
data = json.loads(json.dumps(record.to_dict()))
winner = next(one for one in data["timings"] if one["digest"] == record.choice)
if ops.op("conv").spec_from_dict(winner["spec"]).digest != record.choice:
    sys.exit("the exported spec is another kernel")
print(f"selected: {after.name}; the record has {len(json.dumps(data))} bytes of JSON")
