"""Convolutions by a seed, of every kind that kernels tell apart: directions, windows, groups, strides, alignment."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tilewright import ops
from tilewright.ops.conv.problem import ConvProblem

FUSED = (("PassThrough", 0, 0),) * 4 + (("MultiDAdd", 1, 0), ("MultiDAdd", 1, 1), ("Relu", 0, 0))


def _channels(r: random.Random) -> int:
    kind = r.random()
    return r.randrange(1, 70) if kind < 0.2 else 8 * r.randrange(1, 65) if kind < 0.8 else 64 * r.randrange(1, 17)


def _sized(r: random.Random) -> ConvProblem:
    dims = r.choice((1, 2, 2, 2, 2, 3))
    most = {1: 2000, 2: 120, 3: 24}[dims]
    window = (r.choice((1, 1, 2, 3, 3, 3, 5, 7)),) * dims
    if r.random() < 0.3:
        window = tuple(r.choice((1, 3)) for _ in range(dims))
    stride, dilation = (r.choice((1, 1, 1, 2, 3)),) * dims, (r.choice((1, 1, 1, 1, 2)),) * dims
    channels, filters, groups = _channels(r), _channels(r), 1
    if r.random() < 0.3:
        groups = r.choice((2, 4, 8, channels))
        channels = channels if groups == channels else groups * max(1, channels // groups)
        filters = groups if groups == channels and r.random() < 0.8 else groups * max(1, filters // groups)
    epilogue, num_d, full_d = r.choice(FUSED)
    variant = r.choice(("forward", "forward", "backward_data", "backward_weight"))
    if variant != "forward":
        epilogue, num_d, full_d = "PassThrough", 0, 0
    dtype = r.choice(("bf16", "bf16", "fp16", "fp32", "int8")) if variant == "forward" else r.choice(("bf16", "fp32"))
    return ConvProblem(
        r.choice((1, 1, 2, 7, 32, 0)) if r.random() < 0.9 else r.randrange(1, 300), channels, filters,
        tuple(r.randrange(1, most) for _ in range(dims)), window, groups, stride, dilation,
        tuple(r.choice((0, one // 2, one // 2, one)) for one in window), variant=variant, dtype=dtype,
        epilogue=epilogue, num_d=num_d, full_d=full_d, deterministic=r.random() < 0.3, aligned=r.random() < 0.9,
    )  # fmt: skip


def _laid(r: random.Random, p: ConvProblem) -> ConvProblem:
    """Sometimes with pixels farther apart, or channels-first."""
    kind = r.random()
    if kind < 0.7:
        return p
    if kind < 0.85:
        wider = {}
        for name in "xwy":
            strides = getattr(p, f"{name}_strides")
            apart = strides[-2] + r.choice((0, 1, 8, 64)) if r.random() < 0.6 else strides[-2]
            wider[f"{name}_strides"] = tuple(one // max(1, strides[-2]) * apart for one in strides[:-1]) + strides[-1:]
        return p.laid(**wider)
    first = {}
    for name in "xwy":
        shape = getattr(p, f"{name}_shape")
        step, strides = 1, []
        for size in reversed(shape[1:-1]):
            strides.append(step)
            step *= max(1, size)
        first[f"{name}_strides"] = (step * max(1, shape[-1]), *reversed(strides), step)
    return p.laid(**first)


def _extreme(r: random.Random, p: ConvProblem) -> ConvProblem:
    """With a number far beyond what anybody computes, or laid out backwards."""
    last, kind = len(p.size) - 1, r.randrange(6)

    def with_last(sizes: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*sizes[:last], value)

    if kind == 0:
        far = with_last(p.stride, r.choice((9, 70, 300, 5000)))
        return replace(p, stride=far, size=with_last(p.size, r.randrange(1, 9000)), **_DENSE)
    if kind == 1:
        wide = replace(p, dilation=with_last(p.dilation, r.choice((70, 300))), before=(200,) * len(p.size))
        return replace(wide, after=(800,) * len(p.size), **_DENSE)
    if kind == 2:
        return replace(p, before=with_last(p.before, r.choice((50, 100, 1 << 31))), **_DENSE)
    if kind == 3:
        groups = r.choice((1 << 10, 1 << 16, 1 << 17))
        return replace(p, groups=groups, channels=groups * r.choice((1, 2)), filters=groups, **_DENSE)
    if kind == 4:
        return replace(p, batch=r.choice((1 << 12, 1 << 20, 1 << 27)), **_DENSE)
    return p.laid(x_strides=(*(-one for one in p.x_strides[:-1]), p.x_strides[-1]))


_DENSE: dict[str, Any] = {"x_strides": (), "w_strides": (), "y_strides": ()}


def problem(r: random.Random, target: str, extreme: float = 0.0) -> ConvProblem:
    """One that the target has kernels for; so often one of extreme numbers."""
    op = ops.op("conv")
    while True:
        made = _laid(r, _sized(r))
        if r.random() < extreme:
            made = _extreme(r, made)
        if r.random() < 0.1:
            made = replace(made, after=tuple(one + 1 for one in made.before), y_strides=())
        if not op.problem_violations(made, target):
            return made
