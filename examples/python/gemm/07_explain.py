"""Why this kernel? An answer in a few lines, every candidate on request, and all of it as JSON. Nothing is compiled."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tilewright as tw
from tilewright import ops

sys.path.append(str(Path(__file__).parents[1]))
from _common import options

given = options(__doc__, m=3, n=500, k=700)
problem = tw.GemmProblem(m=given.m, n=given.n, k=given.k)
explanation = tw.explain(problem)
print(explanation)  # the kernel, its tier, the reason, its time, the runners-up, what was excluded
print(f"{len(explanation.full().splitlines())} lines with every candidate")

# For tools: explanations, selections and specs are plain data.
data = json.loads(json.dumps(explanation.to_dict()))
chosen = data["chosen"]["digest"]
verdicts = {candidate["digest"]: candidate["verdict"] for candidate in data["candidates"]}
if verdicts[chosen] != "chosen" or list(verdicts.values()).count("chosen") != 1:
    sys.exit("the explanation contradicts itself")

# A spec is its JSON: exported here, imported on another machine, it is the same kernel.
registry = tw.Registry()
exported = json.dumps([spec.to_dict() for spec in registry.candidates(problem)])
imported = tw.Registry(specs=[ops.op(one["op"]).spec_from_dict(one) for one in json.loads(exported)])
if {spec.digest for spec in imported.specs()} != {spec.digest for spec in registry.candidates(problem)}:
    sys.exit("a spec changed on its way through JSON")
print(f"{len(imported)} specs exported and imported, {len(exported)} bytes of JSON")

# Strict mode refuses the last two tiers, with a reason for each kernel: here no kernel of the set has the layout.
small = tw.Registry(specs=[spec for spec in registry.candidates(problem) if spec.signature.layout == "rrr"][:1])
other = tw.GemmProblem(m=given.m, n=given.n, k=given.k, layout="ccr")
print(f"without strict mode: tier {small.select(other).tier}")
try:
    small.select(other, strict=True)
except tw.errors.NoKernelError as error:
    print(f"strict: [{error.rule}] {error.message.splitlines()[0][:100]}")
else:
    sys.exit("strict mode accepted a fallback kernel")
