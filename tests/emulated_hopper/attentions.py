"""One call of an attention kernel under watch: operands between fences of poison, scratch memory too."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from tests.emulated_hopper.convolutions import Fenced, launched
from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, apart
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.bindings.attention import samples, stages
from tilewright.runtime.loader import Kernel
from tilewright.runtime.requests import Sample

ATTENTION = op("attention")


def prove(
    kernel: Kernel,
    problem: AttentionProblem,
    seed: int = 0,
    change: Callable[[Sample], Sample] | None = None,
    inside: Mapping[str, str] = MappingProxyType({}),
    given: Callable[[Sample], Sample] | None = None,
) -> None:
    """Run it through its table and compare with float64.

    `change` makes other operands of the sample's; `inside`: operands that begin where another does; `given`: what the
    kernel gets in place of the operands that it is judged by.
    """
    made = samples.sample(problem, seed)
    made = made if change is None else change(made)
    shown = made if given is None else given(made)
    check = samples.judge(problem, made)(called(kernel, problem, shown, inside))
    assert check.ok, check.detail


def called(
    kernel: Kernel, problem: AttentionProblem, made: Sample, inside: Mapping[str, str] = MappingProxyType({})
) -> Sample:
    """The sample as a launch leaves it, which wrote nothing outside its operands."""
    fenced = [Fenced(one) if one is not None else None for one in made.operands]
    (stage,) = stages.alone(problem).stages
    args: Any = stage.args
    at = ctypes.addressof(args)
    for pointer in stage.pointers:
        name = samples.NAMES[pointer.slot]
        operand = fenced[samples.NAMES.index(inside.get(name, name))]
        ctypes.c_void_p.from_address(at + pointer.offset).value = operand.address if operand else None
    for scalar in stage.scalars:
        ctypes.c_double.from_address(at + scalar.offset).value = made.scalars[scalar.index]
    launched(kernel, args, fenced)
    return replace(made, operands=tuple(None if one is None else one.view for one in fenced))


def wrong(
    emulator: Emulator, schedule: Any, *problems: AttentionProblem, multiprocessors: int = 3, arch: str = "sm_90a"
) -> list[str]:
    """What is wrong with a schedule's kernels: each problem once with a landing of its own, and none may be refused."""
    found = []
    for number, one in enumerate(problems):
        spec = KernelSpec("attention", one.signature, schedule, arch)
        assert ATTENTION.check(spec) == [], (spec.name, ATTENTION.check(spec))
        assert ATTENTION.supports(spec, one) == [], (spec.name, one, ATTENTION.supports(spec, one))
        kernel = emulator.kernel(spec)
        mode = (LATE, CHANCE, EAGER)[number % 3]
        text = apart(kernel, partial(prove, kernel, one, number), mode, number, multiprocessors)
        if text:
            found.append(f"{spec.name} {one.describe()} mode {mode}: {text}")
    return found


ROWS, KEYS = (1, 2, 7, 63, 64, 65, 128, 150, 200), (0, 1, 15, 64, 65, 97, 128, 129, 250)


def drawn(
    rng: random.Random, like: AttentionProblem, sizes: tuple[tuple[int, ...], tuple[int, ...]] = (ROWS, KEYS)
) -> AttentionProblem:
    """A problem of the same signature: lengths, heads and windows of any kind, each a few tiles at most."""
    rows, keys = map(rng.choice, sizes)
    heads_kv, group, batch = rng.choice((1, 2)), rng.choice((1, 1, 2, 3)), rng.choice((1, 2, 4))
    more: dict[str, Any] = {}
    if like.bounded:
        left = rng.choice((0, 1, 40, 64)) if like.sink_tokens or rng.random() < 0.4 else -1
        more = {
            "window_left": left,
            "window_right": rng.choice((0, 0, 5)),
            "align": rng.choice(("top_left", "bottom_right")),
        }
    if like.sink_tokens:
        more["sink_tokens"] = rng.choice((1, 4, 70))
    if like.varlen:
        more |= {"total_q": rng.randint(batch * rows // 2, batch * rows) or 1}
        more |= {"total_k": rng.randint(batch * keys // 2, batch * keys)} if like.pages == "none" else {}
    elif like.pages == "none":
        more["seqlens_q"], more["seqlens_k"] = rng.random() < 0.3, rng.random() < 0.3
    if like.pages != "none":
        more["page_size"], more["seqlens_k"] = rng.choice((1, 3, 16, 48, 64, 128)), like.page_lookup == "table"
    if like.mask_shape:
        more["mask_shape"] = tuple(rng.choice((1, size)) for size in (batch, heads_kv * group, rows, keys or 1))
    if like.bias == "tensor":
        more["bias_shape"] = tuple(rng.choice((1, size)) for size in (batch, heads_kv * group, rows, keys or 1))
    if like.family in ("split", "combine"):
        more["num_splits"] = rng.choice((2, 3, 8))
    more |= {"batch": batch, "heads_q": heads_kv * group, "heads_kv": heads_kv, "seqlen_q": rows, "seqlen_k": keys}
    more |= {one: getattr(like, one) - 8 * rng.choice((0, 0, 1, 3)) for one in ("head_dim", "head_dim_v")}
    return replace(like, q_strides=(), k_strides=(), v_strides=(), o_strides=(), page_count=0, **more)
