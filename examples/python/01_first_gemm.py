"""The first GEMM: two NumPy arrays in, one out.

The kernel is chosen, compiled and loaded on the first call, and found again by every later one, in
this process and the next.
"""

from __future__ import annotations

import time

import numpy as np

import tilewright as tw


def main() -> None:
    generator = np.random.default_rng(0)
    a = generator.standard_normal((200, 300), dtype=np.float32)
    b = generator.standard_normal((300, 100), dtype=np.float32)

    start = time.perf_counter()
    e = tw.gemm(a, b)
    first = time.perf_counter() - start
    start = time.perf_counter()
    tw.gemm(a, b, out=e)
    second = time.perf_counter() - start

    chosen = tw.Registry().select(tw.GemmProblem(m=200, n=100, k=300))
    print(f"kernel  {chosen.name}")
    print(f"tier    {chosen.tier}: {chosen.reason}")
    print(f"first call {first * 1e3:.1f} ms (choose, compile if need be, load), second {second * 1e6:.0f} us")

    exact = a.astype(np.float64) @ b.astype(np.float64)
    error = float(np.abs(e - exact).max())
    print(f"largest error against float64: {error:.2e}")
    assert error < 1e-3, "the result is wrong"

    # Layouts are read from the strides: a transposed view costs nothing and is never copied.
    weights = generator.standard_normal((100, 300), dtype=np.float32)
    linear = tw.gemm(a, weights.T)
    assert np.abs(linear - a.astype(np.float64) @ weights.T).max() < 1e-3

    # What cannot be done is said with the rule, the value and a remedy.
    try:
        tw.gemm(a, weights)
    except tw.errors.ProblemError as error_for_people:
        print(f"a mistake looks like this:\n{error_for_people}")


if __name__ == "__main__":
    main()
