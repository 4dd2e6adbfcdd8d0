"""The process that emulates: a line of JSON in, a line of JSON out.

A process of its own because the module path holds the checkout here, and because code that reads where it
must not ends the process: the test then says so and goes on with a fresh one.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.amd_emulated import execution
from tests.amd_emulated.proof import Call, Result, prove
from tests.amd_emulated.proving import proving
from tests.amd_emulated.session import Session
from tilewright.inspect.amdgpu import code_target
from tilewright.ops import op
from tilewright.runtime.loader import Kernel, load_kernel

MEMORY = 12 << 30  # what goes beyond is an error of one problem, not the machine's
UNITS = 2  # compute units the fake device claims: persistent kernels then have several tiles a block


def answer(request: dict[str, Any], sessions: dict[str, Session]) -> dict[str, Any]:
    spec = op(request["spec"]["op"]).spec_from_dict(request["spec"])
    if spec.arch not in sessions:
        if sessions:
            raise RuntimeError("one arch a worker: the fake runtime has one device")
        sessions[spec.arch] = Session(code_target(spec.arch), request["seed"])
        sessions[spec.arch].runtime.tw_fake_hip_device(UNITS, 64)
    session = sessions[spec.arch]
    kernel = load_kernel(Path(request["library"]), spec)
    if "drawn" in request:
        return _drawn(kernel, request["drawn"], session, request["must_serve"])
    results = []
    for index, one in enumerate(request["calls"]):
        call = Call(**one)
        try:
            results.append(prove(kernel, call, request["seed"] + index, session))
        except Exception as error:  # said in the result: the other calls still tell something
            results.append(Result(call.why, "", False, detail=f"{type(error).__name__}: {error}"))
    return {"results": [asdict(one) for one in results], "instructions": dict(session.instructions)}


def _drawn(kernel: Kernel, data: dict[str, Any], session: Session, must_serve: bool) -> dict[str, Any]:
    of_op = proving(kernel.spec.op)
    problem = of_op.problem(data)
    session.device.random.seed(problem.seed)
    try:
        found = execution.run(kernel, of_op.prepare(kernel.spec, problem), problem.label(), session, must_serve)
    except Exception as error:
        found = execution.Outcome(problem.label(), execution.WRONG, f"{type(error).__name__}: {error}")
    return asdict(found)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sessions: dict[str, Session] = {}
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line), sessions)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
