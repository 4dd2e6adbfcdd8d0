"""One checkout of Tilewright in a process of its own, through its public calls; started by tree_calls.py, not by hand.

Takes requests as JSON lines and answers as JSON lines.  Nothing here may need more than the calls of the API with
arguments that every tree understands, so that old and new trees are asked the same.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], Any]


def arrays(shapes: list[list[int]], seed: int, device: str) -> list[Any]:
    generator = np.random.default_rng(seed)
    made = [generator.standard_normal(shape, dtype=np.float32) for shape in shapes]
    if device == "cpu":
        return made
    import torch

    return [torch.from_numpy(one).to("cuda", torch.bfloat16) for one in made]


def prepared(request: dict[str, Any]) -> tuple[Call, Any]:
    """The call, and its result as float32 on the host."""
    import tilewright as tw

    operands = arrays(request["shapes"], request["seed"], request["device"])
    function, keywords = getattr(tw, request["call"]), request["keywords"]

    def call() -> Any:
        return function(*operands, **keywords)

    result = call()
    return call, result if request["device"] == "cpu" else result.float().cpu().numpy()


def timed(call: Call, count: int, device: str) -> dict[str, float]:
    """Seconds a call: of the whole, and on a GPU between events around them all."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(count):
            call()
        return {"whole": (time.perf_counter() - start) / count}
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start = time.perf_counter()
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return {"whole": (time.perf_counter() - start) / count, "device": begin.elapsed_time(end) / 1e3 / count}


def main() -> None:
    import tilewright

    answers, sys.stdout = sys.stdout, sys.stderr
    call: Call | None = None
    print(json.dumps({"place": tilewright.__file__}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "prepare":
                call, result = prepared(request)
                flat = np.asarray(result, np.float64)
                answer: dict[str, Any] = {"sum": float(flat.sum()), "size": math.sqrt(float((flat**2).mean()))}
            else:
                assert call is not None
                answer = timed(call, request["count"], request["device"])
        except Exception as error:  # told to who asked, who decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
