"""C++ chooses as Python does: problems drawn by a seed, on CPUs and GPUs, by registries of the same kernels."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.native import drawn_attention, drawn_attention_backward, drawn_conv, drawn_gemm
from tilewright import ops, settings
from tilewright.arch.host import l2_bytes
from tilewright.dispatch import registry_json
from tilewright.dispatch.selection import TIERS
from tilewright.errors import NoKernelError
from tilewright.native.judge import native_kernels
from tilewright.ops.attention_backward import plans as backward_plans
from tilewright.ops.conv.spec import VARIANTS

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

DRAWN: dict[str, Any] = {
    "gemm": drawn_gemm, "conv": drawn_conv, "attention": drawn_attention,
    "attention_backward": drawn_attention_backward,
}  # fmt: skip
TARGETS = ("generic", "x86_64_v3", "x86_64_v4", "sm_90a", "gfx942")
COPYING = ("sm_80", "sm_90a", "gfx942")  # where kernels of convolutions refuse some memory
SEED, THREADS = int(os.environ.get("CHOICE_SEED") or 25), 6
FAMILIES = ("forward", "append")
QUICK, LONG, WHOLE = 100, 500, 5000  # problems of an op and a target: 2,000, 10,000 and 100,000 in all
TOGETHER = 250  # of a registry: that of 5,000 problems has a hundred thousand kernels, most of them of no other problem


def problem(draw: random.Random, op: str, target: str) -> Any:
    """One that a user has: of attention, no stage of another."""
    while True:
        drawn = DRAWN[op].problem(draw, target)
        if op != "attention" or drawn.family in FAMILIES:
            return drawn


def stages_of(drawn: Any, target: str) -> tuple[Any, ...]:
    """As C++ computes it: keys in parts where the problem says so, and joined windows."""
    if drawn.op == "attention_backward":  # in the sums and parts that it says itself, 0 parts too
        return tuple(backward_plans.stages_of(drawn, drawn.accumulate, drawn.dkv_splits))
    if drawn.op == "conv" or getattr(drawn, "num_splits", 0) > 1:
        return tuple(ops.op(drawn.op).stages(drawn, target))
    return (drawn,)


def line(drawn: Any) -> str:
    """A problem as the C++ program reads it."""

    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return str(int(value)) if isinstance(value, bool) else str(value)

    fields = (f"{one.name}={text(getattr(drawn, one.name))}" for one in dataclasses.fields(drawn))
    return f"{drawn.op} {' '.join(fields)}"


def python_choice(registry: tw.Registry, drawn: Any) -> tuple[str, str, float]:
    """Digests, tier and estimate, of several stages together."""
    each = [stage_choice(registry, stage) for stage in stages_of(drawn, registry.target)]
    refused = next((one for one in each if one[0] == "refused"), None)
    if refused:
        return refused
    tier = max((tier for _, tier, _ in each), key=TIERS.index)
    return "+".join(digest for digest, _, _ in each), tier, sum(seconds for _, _, seconds in each)


def stage_choice(registry: tw.Registry, stage: Any, threads: int = THREADS) -> tuple[str, str, float]:
    try:
        chosen = registry.select_stage(stage, threads=threads)
    except NoKernelError:
        return "refused", "no-kernel", 0.0
    if chosen.tier == "fallback" and not registry.candidates(stage, serving=False):
        return "refused", "no-kernel", 0.0  # a registry travels with the fallback kernels of what it has kernels for
    return chosen.spec.digest, chosen.tier, chosen.seconds


def compare(op: str, target: str, count: int, folder: Path) -> Counter[str]:
    """How many problems were decided by each tier; all of them alike."""
    draw, tiers = random.Random(f"{SEED} {op} {target}"), Counter[str]()
    for some in groups(count):
        problems = [problem(draw, op, target) for _ in range(some)]
        registry = programs.registry_of(target, [stage for one in problems for stage in stages_of(one, target)])
        tiers += compared(registry, problems, folder)
    return tiers


def groups(count: int) -> list[int]:
    """How many problems each registry is for."""
    return [min(TOGETHER, count - begin) for begin in range(0, count, TOGETHER)]


def compared(registry: tw.Registry, problems: Sequence[Any], folder: Path) -> Counter[str]:
    kernels = native_kernels(registry.specs()[:1])
    assert kernels is not None
    library = registry_json.selection_library(kernels)
    if library is None:
        pytest.skip("the selection library cannot be had here")
    data = registry_json.to_dict(registry.specs(), registry.target, {kernels.set_name: library})
    (folder / "registry.json").write_text(registry_json.written(data))
    with settings.override(measure=False, models=False, strict=False, missing="compile"):
        expected = [python_choice(registry, each) for each in problems]
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", folder / "choose")
    words = (str(chooser), str(folder / "registry.json"), str(THREADS), str(l2_bytes()))
    answers = programs.call(*words, input="\n".join(map(line, problems)) + "\n").splitlines()
    assert len(answers) == len(problems)
    for each, wanted, answer in zip(problems, expected, answers, strict=True):
        digest, tier, seconds = answer.split()
        assert (digest, tier) == wanted[:2], f"{each}\nPython {wanted}\nC++ {answer}"
        same = float(seconds) == wanted[2] or (math.isinf(wanted[2]) and seconds == "inf")
        assert same, f"{each}\nPython {wanted}\nC++ {answer}"
    return Counter(tier for _, tier, _ in expected)


def particular(target: str, problems: Sequence[Any]) -> tw.Registry:
    """A registry of the kernels that take dense convolutions and refuse the same with gaps between pixels, at addresses
    that are not aligned: few of each signature, so that problems need padded copies of their operands."""
    op, registry = ops.op("conv"), tw.Registry(target)
    for each in problems:
        candidates = op.candidates(op.signature_of(each), target)
        loose = replace(each, aligned=False, **{f"{name}_strides": apart(each, name) for name in "xwy"})
        taken = (spec for spec in candidates if op.supports(spec, loose) and not op.supports(spec, each.dense()))
        registry.add(itertools.islice(taken, 3))
    return registry


def apart(drawn: Any, name: str) -> tuple[int, ...]:
    """Strides of channels side by side, with a gap of one element behind every pixel and every row."""
    strides, step = [1], 0
    for size in reversed(getattr(drawn, f"{name}_shape")[1:]):
        step = (step or 1) * size + 1
        strides.append(step)
    return tuple(reversed(strides))


def compare_copies(target: str, count: int, folder: Path) -> Counter[str]:
    draw, tiers = random.Random(f"{SEED} copies {target}"), Counter[str]()
    for some in groups(count):
        problems = [*(problem(draw, "conv", target) for _ in range(some)), *joined_windows()]
        stages = [stage for one in problems for stage in stages_of(one, target)]
        tiers += compared(particular(target, stages), problems, folder)
    return tiers


def joined_windows() -> list[tw.ConvProblem]:
    patches = tw.ConvProblem(2, 3, 16, (8, 8), (4, 4), stride=(4, 4))  # joined to whole vectors where they lie so
    each = [replace(patches, variant=variant) for variant in VARIANTS]
    return [
        form for one in each for form in (one, replace(one, aligned=False), replace(one, x_strides=apart(one, "x")))
    ]


@pytest.mark.parametrize("op", DRAWN)
@pytest.mark.parametrize("target", TARGETS)
def test_drawn_problems(op: str, target: str, tmp_path: Path) -> None:
    tiers = compare(op, target, QUICK, tmp_path)
    assert tiers["heuristic"] > QUICK // 3  # or the draw shows nothing


@pytest.mark.parametrize("target", COPYING)
def test_drawn_convolutions_in_copies(target: str, tmp_path: Path) -> None:
    tiers = compare_copies(target, QUICK, tmp_path)
    assert tiers["padded"] >= QUICK // 20, tiers
    assert tiers["heuristic"] >= QUICK // 10, tiers


@pytest.mark.proof
@pytest.mark.parametrize("count", [LONG, pytest.param(WHOLE, marks=pytest.mark.whole)])
@pytest.mark.parametrize("target", COPYING)
def test_many_drawn_convolutions_in_copies(target: str, count: int, tmp_path: Path) -> None:
    compare_copies(target, count, tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("count", [LONG, pytest.param(WHOLE, marks=pytest.mark.whole)])
@pytest.mark.parametrize("op", DRAWN)
@pytest.mark.parametrize("target", TARGETS)
def test_many_drawn_problems(op: str, target: str, count: int, tmp_path: Path) -> None:
    compare(op, target, count, tmp_path)
