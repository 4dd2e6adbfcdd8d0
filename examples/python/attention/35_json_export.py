"""Export as JSON: the kernels of a set, and the choice for a problem with every candidate and its reasons.

A spec is its JSON, and its digest the hash of that: read on another machine, it is the same kernel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import ops

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device

options(__doc__)
registry = tw.Registry().add_pool("attention", "tests", datatypes=("fp32",), heads=("64x64",))
exported = json.dumps({"target": registry.target, "kernels": [spec.to_dict() for spec in registry.specs()]}, indent=1)
print(f"{len(registry)} kernels, {len(exported)} bytes of JSON, the first:")
print(f"  {json.dumps(registry.specs()[0].to_dict()['schedule'])}")

# Back again.
data = json.loads(exported)
specs = [ops.op(one["op"]).spec_from_dict(one) for one in data["kernels"]]
imported = tw.Registry(data["target"], specs)
if [spec.digest for spec in imported.specs()] != [spec.digest for spec in registry.specs()]:
    sys.exit("a spec changed on its way through JSON")

# The choice: problem, candidates with verdicts and reasons, the kernel, its tier, a command that repeats it.
problem = tw.AttentionProblem(1, 4, 48, 48, 64, num_splits=1)
choice = json.loads(json.dumps(imported.explain(problem).to_dict()))
if choice["chosen"]["digest"] != registry.select(problem).stages[0].spec.digest:
    sys.exit("the imported registry selects another kernel")
print(f"chosen {choice['chosen']['kernel']} of {len(choice['candidates'])}, tier {choice['chosen']['tier']}")

rng = np.random.default_rng(32)
q, k, v = (normal(rng, 1, 48, 4, 64) for _ in range(3))
o = imported.run("attention", *to_device(q, k, v), num_splits=1)
check("run by the imported registry", o, _exact.attention(q, k, v).o)
