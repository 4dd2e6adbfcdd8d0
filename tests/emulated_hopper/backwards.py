"""One stage of attention's gradients under watch: operands between fences of poison, scratch memory too."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.emulated_hopper.convolutions import Fenced, launched
from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, apart
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.runtime.bindings.attention_backward import samples, stages
from tilewright.runtime.loader import Kernel

BACKWARD = op("attention_backward")
ROWS, KEYS = (0, 1, 5, 63, 64, 65, 128, 150, 200, 257), (0, 1, 7, 64, 127, 128, 129, 200, 300)


def prove(kernel: Kernel, problem: AttentionBackwardProblem, seed: int = 0) -> None:
    """Run it through its table and compare with float64."""
    made = samples.sample(problem, seed)
    args, fenced = _arguments(problem, made)
    launched(kernel, args, fenced)
    _judge(problem, made, fenced)


def _arguments(problem: AttentionBackwardProblem, made: Any) -> tuple[Any, list[Fenced | None]]:
    """Of a stage by itself, and its operands under watch."""
    fenced = [Fenced(one) if one is not None else None for one in made.operands]
    (stage,) = stages.alone(problem).stages
    args: Any = stage.args
    at = ctypes.addressof(args)
    for pointer in stage.pointers:
        operand = fenced[pointer.slot]
        ctypes.c_void_p.from_address(at + pointer.offset).value = operand.address if operand else None
    for scalar in stage.scalars:
        ctypes.c_double.from_address(at + scalar.offset).value = made.scalars[scalar.index]
    return args, fenced


def _judge(problem: AttentionBackwardProblem, made: Any, fenced: list[Fenced | None]) -> None:
    views = tuple(None if one is None else one.view for one in fenced)
    check = samples.judge(problem, made)(replace(made, operands=views))
    assert check.ok, check.detail


def prove_cleared(kernel: Kernel, problem: AttentionBackwardProblem, size: int) -> None:
    """`dot` sets to zero what it is told to, and nothing beside it."""
    sums = Fenced(np.full(size, np.nan, np.float32))
    args, fenced = _arguments(problem, samples.sample(problem, 0))
    args.cleared, args.cleared_bytes = sums.address, 4 * size
    launched(kernel, args, [*fenced, sums])
    assert not sums.view.any()


def prove_added(kernel: Kernel, problem: AttentionBackwardProblem) -> None:
    """`grad` adds to what is there where it is told that dq's accumulator is zero."""
    made = samples.sample(problem, 0)
    args, fenced = _arguments(problem, made)
    sums = fenced[stages.AT["dq_sums"]]
    assert sums is not None
    sums.view[...], args.dq_cleared = 1, 1
    launched(kernel, args, fenced)
    sums.view[...] -= 1
    _judge(problem, made, fenced)


def wrong(
    emulator: Emulator, schedule: Any, *problems: AttentionBackwardProblem, multiprocessors: int = 4,
    arch: str = "sm_90a",
) -> list[str]:  # fmt: skip
    """What is wrong with a schedule's kernels: each problem once with a landing of its own, and none may be refused."""
    found = []
    for number, one in enumerate(problems):
        spec = KernelSpec("attention_backward", one.signature, schedule, arch)
        assert BACKWARD.check(spec) == [], (spec.name, BACKWARD.check(spec))
        assert BACKWARD.supports(spec, one) == [], (spec.name, one, BACKWARD.supports(spec, one))
        kernel = emulator.kernel(spec)
        mode = (LATE, CHANCE, EAGER)[number % 3]
        text = apart(kernel, partial(prove, kernel, one, number), mode, number, multiprocessors)
        if text:
            found.append(f"{spec.name} {one!r} mode {mode}: {text}")
    return found


def drawn(
    rng: random.Random, like: AttentionBackwardProblem, sizes: tuple[tuple[int, ...], tuple[int, ...]] = (ROWS, KEYS)
) -> AttentionBackwardProblem:
    """A problem of the same signature: lengths, heads and windows of any kind, each a few tiles at most."""
    rows, keys = map(rng.choice, sizes)
    heads_kv, group, batch = rng.choice((1, 2)), rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 3))
    more: dict[str, Any] = {}
    if like.bounded:
        left = rng.choice((0, 1, 40, 64, 130)) if like.sink_tokens or rng.random() < 0.4 else -1
        more = {
            "window_left": left,
            "window_right": rng.choice((0, 0, 5)),
            "align": rng.choice(("top_left", "bottom_right")),
        }
    if like.sink_tokens:
        more["sink_tokens"] = rng.choice((1, 4, 70))
    if like.varlen:
        more["total_q"] = rng.randint(batch * rows // 2, batch * rows) or 1
        more["total_k"] = rng.randint(batch * keys // 2, batch * keys) or 1
    more["seqlens_q"], more["seqlens_k"] = rng.random() < 0.3, rng.random() < 0.3
    if like.accumulate in ("dkv", "all"):
        more["dkv_splits"] = rng.choice((0, 1, 2, 3, 5))
    full = (batch, heads_kv * group, rows, keys)
    for name in ("mask_shape", "bias_shape"):
        if getattr(like, name):
            more[name] = tuple(rng.choice((1, size)) if size else size for size in full)
    more |= {"batch": batch, "heads_q": heads_kv * group, "heads_kv": heads_kv, "seqlen_q": rows, "seqlen_k": keys}
    more |= {one: getattr(like, one) - 8 * rng.choice((0, 0, 1, 3)) for one in ("head_dim", "head_dim_v")}
    strides: dict[str, Any] = {f"{name}_strides": () for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv")}
    return replace(like, **strides, **more)
