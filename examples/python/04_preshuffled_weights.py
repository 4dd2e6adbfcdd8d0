"""Weights packed once, used for every call: what a model server does.

`tw.pack` lays B out as the kernel reads it.  Each call then skips that work, which matters most
when A has few rows: then reading and arranging B is nearly all there is to do.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import tilewright as tw


def median_of(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, help="rows and columns of the weights")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    generator = np.random.default_rng(3)
    weights = generator.standard_normal((options.size, options.size), dtype=np.float32)  # (out, in), as a layer has it

    packed = tw.pack(weights.T, m=64)
    print(f"packed: {packed}")

    for rows in (1, 16, 64, 200):
        x = generator.standard_normal((rows, options.size), dtype=np.float32)
        out = np.empty((rows, options.size), np.float32)
        tw.gemm(x, packed, out=out)
        exact = x.astype(np.float64) @ weights.T
        assert np.abs(out - exact).max() < 1e-2, "the result is wrong"
        with_packed = median_of(lambda x=x, out=out: tw.gemm(x, packed, out=out), options.repeats)  # type: ignore[misc]
        plain = median_of(lambda x=x, out=out: tw.gemm(x, weights.T, out=out), options.repeats)  # type: ignore[misc]
        print(f"{rows:>4} rows: packed {with_packed * 1e6:8.1f} us, not packed {plain * 1e6:8.1f} us, both right")

    # A packed B remembers what it was packed for; another input type is refused, not misread.
    try:
        tw.gemm(np.ones((4, options.size), np.float16), packed)
    except tw.errors.ProblemError as error:
        print(f"refused, as it should be: {error.rule}")
    else:
        raise AssertionError("fp16 inputs were accepted for weights packed for fp32")


if __name__ == "__main__":
    main()
