"""One checkout of Tilewright in a process of its own, through its public calls only; started by trees.py, not by hand.

Takes requests as JSON lines and answers as JSON lines, as _cpu_worker.py does; nothing here may need more than
`tw.gemm`, `tw.settings` and `tw.GemmProblem`, so that old and new trees are asked the same.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

WARM_SECONDS = 0.003
DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "int8": np.int8}


def operand(generator: np.random.Generator, rows: int, columns: int, letter: str, dtype: str) -> Any:
    shape = (rows, columns) if letter == "r" else (columns, rows)
    if dtype == "int8":
        made: Any = generator.integers(-127, 127, shape, dtype=np.int8)
    else:
        made = generator.standard_normal(shape, dtype=np.float32).astype(DTYPES[dtype])
    return made if letter == "r" else made.T


def prepare(tw: Any, shape: dict[str, Any], seed: int) -> Any:
    """A call into an output of its own, checked against float64."""
    generator = np.random.default_rng(seed)
    m, n, k, layout, dtype = (shape[one] for one in ("m", "n", "k", "layout", "dtype"))
    a = operand(generator, m, k, layout[0], dtype)
    b = operand(generator, k, n, layout[1], dtype)
    out = tw.gemm(a, b)
    out.view(np.uint8)[...] = 0xFF
    call = partial(tw.gemm, a, b, out=out)
    call()
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact = wide_a @ wide_b
    # Rounding of the output and of k sums in fp32, generously: wrong kernels are off by far more.
    step = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 0.0}[dtype]
    bound = np.abs(wide_a) @ np.abs(wide_b) * (k + 2) * 2.0**-24 + np.abs(exact) * step * 2
    off = np.abs(out.astype(np.float64) - exact)
    if not np.all(off <= bound):
        raise ArithmeticError(f"{shape}: an error of {np.nanmax(off)}, or a NaN")
    return call


def timed(call: Any, repeats: int) -> float:
    clock = time.perf_counter
    start = clock()
    while True:
        call()
        if clock() - start > WARM_SECONDS:
            break
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def serve() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr
    import tilewright as tw

    calls: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if request["do"] == "start":
                tw.settings.configure(threads=request["threads"], cache_dir=request["store"], measure=False)
                answer = {"place": str(tw.__file__)}
            elif request["do"] == "prepare":
                calls[request["key"]] = prepare(tw, request["shape"], request["seed"])
                problem = tw.GemmProblem(
                    **{one: request["shape"][one] for one in ("m", "n", "k", "layout")},
                    dtype_a=request["shape"]["dtype"],
                )
                chosen = tw.explain(problem).selection
                answer = {"kernel": chosen.name if chosen is not None else ""}
            elif request["do"] == "time":
                answer = {"seconds": timed(calls[request["key"]], request["repeats"])}
            elif request["do"] == "forget":
                calls.clear()
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
