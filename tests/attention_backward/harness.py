"""A kernel, or a whole call, under watch: operands in fenced copies, results poisoned, all compared after.

What right gradients are, ops/attention_backward/reference.py says.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

from tests.attention.harness import Fenced
from tests.backends.cpu.gemm.harness import Scratch
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.numerics import Check
from tilewright.runtime import host
from tilewright.runtime.bindings import binding
from tilewright.runtime.loader import Kernel
from tilewright.runtime.requests import Sample

BINDING = binding("attention_backward")


def _looked_at(made: Sample, fenced: list[Fenced | None], problem: AttentionBackwardProblem, who: str) -> Check:
    for slot, one in zip(BINDING.slots, fenced, strict=True):
        if one is not None:
            assert one.intact(), f"{who} {problem.describe()} wrote outside {slot.name}"
            assert slot.written or one.unchanged(), f"{who} {problem.describe()} changed {slot.name}"
    views = tuple(None if one is None else one.view for one in fenced)
    check: Check = BINDING.check(problem, replace(made, operands=views))  # type: ignore[assignment]
    assert check.ok, f"{who} {problem!r}: {check.detail}"
    return check


def prove(kernel: Kernel, problem: AttentionBackwardProblem, seed: int = 0, threads: int = 1) -> Check:
    """Run it through its table, look at every fence, compare with float64."""
    made = BINDING.sample(problem, seed)
    fenced = [None if one is None else Fenced(one) for one in made.operands]
    (stage,) = BINDING.dense(problem).stages
    args: Any = type(stage.args).from_buffer_copy(stage.args)
    start = ctypes.addressof(args)
    for pointer in stage.pointers:
        operand = fenced[pointer.slot]
        ctypes.c_void_p.from_address(start + pointer.offset).value = operand.address if operand else None
    for scalar in stage.scalars:
        ctypes.c_double.from_address(start + scalar.offset).value = made.scalars[scalar.index]
    refused = kernel.refusal(args)
    assert not refused, f"{kernel.name} {problem.describe()}: {refused}"
    scratch = Scratch(kernel.workspace_bytes(args, threads))
    assert kernel.launch(start, scratch.address, host.team(threads)) == 0
    assert scratch.intact(), f"{kernel.name} left its workspace"
    return _looked_at(made, fenced, problem, kernel.name)


def prove_whole(registry: Registry, problem: AttentionBackwardProblem, seed: int = 0) -> Check:
    """All stages as a call runs them, in one workspace."""
    made = BINDING.sample(problem, seed)
    fenced = [None if one is None else Fenced(one) for one in made.operands]
    plan = registry.plan(BINDING.request([None] * len(BINDING.slots), made.attributes, registry.target))
    plan.run([0 if one is None else one.address for one in fenced], made.scalars)
    return _looked_at(made, fenced, problem, " and ".join(one.kernel.name for one in plan.stages))
