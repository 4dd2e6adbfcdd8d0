"""Sizes where kernels go wrong: none, one, primes, one below and above every block a spec has."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.harness import Call
from tilewright.arch import arch as facts_of
from tilewright.backends.cpu.vectors import lanes
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem


def _around(*marks: int) -> list[int]:
    return sorted({max(0, mark + by) for mark in marks for by in (-1, 0, 1)})


def sizes(spec: KernelSpec) -> tuple[list[int], list[int], list[int]]:
    """Sizes worth trying along m, n and k."""
    h, width = spec.schedule, lanes(facts_of(spec.arch))
    step = cpu.dot_step(spec.signature, facts_of(spec.arch))
    if h.pipeline == "loops":
        return _around(1, 7), _around(1, width, 2 * width), _around(1, 5, 17)
    if h.pipeline in cpu.STREAMS:
        few = _around(1, h.tile[0])[:-1]
        # One stretch of sums, several, and the lines a fold takes at once.
        many = _around(1, 8, width, h.tile[1], 2 * h.tile[1] + 7)
        return few, many, _around(1, step, 2 * step, width * step, h.tile[2], 2 * h.tile[2] + step)
    m = [*_around(1, h.warp_tile[0], h.tile[0], 2 * h.tile[0]), 8 * h.tile[0] + 1, 31]
    n = [*_around(1, width, h.warp_tile[1], h.tile[1]), 2 * h.tile[1] + width + 1]
    return m, n, [*_around(1, step, 2 * step, width * step, h.tile[2]), 2 * h.tile[2] + 1, 3 * h.tile[2] + step]


def _shapes(spec: KernelSpec, rng: random.Random) -> Iterator[tuple[int, int, int]]:
    """Every size of every axis at least once, beside random sizes of the others."""
    axes = sizes(spec)
    for axis in range(3):
        for size in axes[axis]:
            shape = [rng.choice(one) for one in axes]
            shape[axis] = size
            if shape[0] * shape[1] * shape[2] > 400_000:  # the whole of a large m, n and k at once adds nothing
                shape[0 if axis else 2] = rng.choice(axes[0 if axis else 2][:4])
            yield shape[0], shape[1], shape[2]


def _fit(spec: KernelSpec, shape: tuple[int, int, int], rng: random.Random) -> tuple[int, int, int]:
    """Few columns instead of few rows for half of the stream calls; whole blocks where there is no edge code."""
    m, n, k = shape
    if spec.schedule.pipeline in cpu.STREAMS and rng.random() < 0.5:
        m, n = n, m
    m, n, k = (-(-size // grain) * grain for size, grain in zip((m, n, k), cpu.grains(spec.schedule), strict=True))
    return m, n, k


def calls(spec: KernelSpec, seed: int, d_kinds: tuple[tuple[str, ...], ...] = ((),)) -> Iterator[Call]:
    """Calls of a kernel over all its sizes, everything else of a call drawn at random (but the same each run)."""
    rng = random.Random(seed)
    s = spec.signature
    for index, shape in enumerate(_shapes(spec, rng)):
        m, n, k = _fit(spec, shape, rng)
        batch = rng.choice((1, 1, 1, 2, 3)) if m * n * k < 60_000 else 1
        beta = rng.choice((0.0, 0.0, 1.0, -0.75))
        loose = rng.random() < 0.6
        problem = GemmProblem(
            m=m,
            n=n,
            k=k,
            dtype_a=s.dtype_a,
            dtype_b=s.dtype_b,
            dtype_c=s.dtype_c,
            dtype_d=s.dtype_d,
            layout=s.layout,
            batch=batch,
            epilogue=s.epilogue,
            num_d=s.num_d,
            beta=beta != 0,
            preshuffled=s.variant == "preshuffle",
            a_stride=(k if s.layout[0] == "r" else m) + 1 + rng.randrange(9) if loose else 0,
            b_stride=(n if s.layout[1] == "r" else k) + 1 + rng.randrange(9) if loose else 0,
            c_stride=n + 1 + rng.randrange(9) if loose else 0,
            broadcast_a=batch > 1 and rng.random() < 0.3,
            broadcast_b=batch > 1 and rng.random() < 0.3,
        )
        yield Call(
            problem,
            alpha=rng.choice((1.0, 1.0, 0.5, -3.0, 0.0)),
            beta=beta,
            alias=beta != 0 and rng.random() < 0.5,
            d_kinds=d_kinds[index % len(d_kinds)],
            gap=rng.choice((0, 5, 16)),
            broadcast_c=batch > 1 and rng.random() < 0.3,
            threads=rng.choice((1, 1, 2, 3)),
            seed=1000 * seed + index,
        )
