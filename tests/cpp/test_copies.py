"""C++ serves problems in padded copies where Python does: the same kernel, tier and estimate, and right numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_same_choice import THREADS, line
from tilewright import ops, settings
from tilewright.arch.host import l2_bytes
from tilewright.dispatch import locks, registry_json
from tilewright.native.judge import native_kernels

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

TARGET = "x86_64_v3"
SEED, COUNT = 25, 300
FORMS: tuple[dict[str, Any], ...] = ({}, {"epilogue": "Relu", "num_d": 1})


def kernels() -> Iterator[Any]:
    """GEMM without edge code; convolution on CPUs has no kernel that wants copies."""
    op = ops.op("gemm")
    for fused in FORMS:
        problem = tw.GemmProblem(m=8, n=8, k=8, layout="rcr", **fused)
        registry = tw.Registry(TARGET)
        registry.add_pool("gemm", "tiny", **op.axes_of(op.signature_of(problem)))
        for spec in registry.specs():
            yield replace(spec, schedule=replace(spec.schedule, pad=(False, False, False)))


def test_numbers_are_right(tmp_path: Path) -> None:
    folder = tw.Registry(TARGET, specs=list(kernels())).export(tmp_path / "kernels").parent
    program = programs.program(programs.CPP / "tests" / "test_copies.cpp", tmp_path / "test_copies")
    assert " 0 failed" in programs.call(str(program), str(folder))
    assert " 0 failed" in programs.call(str(program), str(pinned(tmp_path)), "locked")


def pinned(folder: Path) -> Path:
    """The same kernels pinned, each for problems of its signature: in copies too, whatever strict says."""
    op = ops.op("gemm")
    both = [tw.GemmProblem(m=13, n=11, k=7, layout="rcr", **form) for form in FORMS]
    pins = [locks.pin(op, TARGET, one, next(s for s in kernels() if s.signature == one.signature)) for one in both]
    locks.write(folder / "lock.json", pins)
    registry = tw.Registry(TARGET, specs=list(kernels()))
    return registry.export(folder / "pinned", lock=folder / "lock.json").parent


def gpu_kernels(target: str, dtype: str) -> list[Any]:
    """A few of the kernels that have no edge code, or want rows of whole accesses."""
    op, chosen = ops.op("gemm"), list[Any]()
    for form in FORMS:
        odd = tw.GemmProblem(m=13, n=11, k=7, layout="rcr", **types(dtype), **form)
        chosen += [spec for spec in op.candidates(op.signature_of(odd), target) if op.supports(spec, odd)][:4]
    return chosen


def types(dtype: str) -> dict[str, Any]:
    return {"dtype_a": dtype, "dtype_b": dtype}


def drawn(draw: random.Random, dtype: str) -> Any:
    fused: dict[str, Any] = draw.choice(FORMS)
    m, n, k = (draw.choice((1, 6, 13, 16, 48, 96, 200)) for _ in "mnk")
    strides: dict[str, Any] = {"a_stride": k + draw.choice((0, 3)), "c_stride": n + draw.choice((0, 5))}
    return tw.GemmProblem(m=m, n=n, k=k, layout="rcr", batch=draw.choice((1, 3)), **strides, **types(dtype), **fused)


@pytest.mark.parametrize(
    ("target", "dtype"),
    [(TARGET, "fp32"), ("sm_80", "bf16"), ("sm_86", "fp16"), ("gfx942", "bf16"), ("gfx942", "fp32")],
)
def test_the_same_choice(target: str, dtype: str, tmp_path: Path) -> None:
    registry = tw.Registry(target, specs=list(kernels() if target == TARGET else gpu_kernels(target, dtype)))
    draw = random.Random(SEED)
    problems = [drawn(draw, dtype) for _ in range(COUNT)]
    sets = {described.set_name: described for spec in registry.specs() if (described := native_kernels((spec,)))}
    libraries = {name: registry_json.selection_library(described) for name, described in sets.items()}
    if None in libraries.values():
        pytest.skip("the selection library cannot be had here")
    data = registry_json.to_dict(registry.specs(), target, {name: str(file) for name, file in libraries.items()})
    (tmp_path / "registry.json").write_text(registry_json.written(data))
    with settings.override(measure=False, models=False, strict=False, missing="compile"):
        expected = [registry.select_stage(each, threads=THREADS) for each in problems]
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", tmp_path / "choose")
    words = (str(chooser), str(tmp_path / "registry.json"), str(THREADS), str(l2_bytes()))
    answers = programs.call(*words, input="\n".join(map(line, problems)) + "\n").splitlines()
    for each, chosen, answer in zip(problems, expected, answers, strict=True):
        digest, tier, seconds = answer.split()
        wanted = (chosen.spec.digest, chosen.tier, chosen.seconds)
        assert (digest, tier, float(seconds)) == wanted, f"{each}\nPython {wanted}\nC++ {answer}"
    tiers = Counter(chosen.tier for chosen in expected)
    assert tiers["padded"] > COUNT // 5, tiers
    assert tiers["heuristic"] > COUNT // 10, tiers
