"""Kernels for older GPUs on this one through their PTX, against float64 on problems drawn by seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.gpu import backward_cases, conv_cases, test_attention, test_kernels
from tests.gpu.backward_proof import problem_of
from tilewright.dispatch import kernels
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding

OLDER = "sm_80"
OPS = ("gemm", "conv", "attention", "attention_backward")
KERNELS, EACH = 8, 2  # of an op, and of a kernel
MOST = 2e8  # operations of a problem: the reference is computed on the host


def _cases(op: str) -> list[Any]:
    if op == "conv":
        return conv_cases.CASES
    module: Any = {"gemm": test_kernels, "attention": test_attention, "attention_backward": backward_cases}[op]
    return list(module.cases())


def _problems(case: Any, spec: KernelSpec) -> Iterator[Any]:
    if isinstance(case, conv_cases.Case):
        draws = islice(case.problems(), conv_cases.DRAWS)
        return (problem for problem in draws if not conv_cases.CONV.supports(spec, problem))
    if isinstance(case, backward_cases.Case):
        rng = random.Random(spec.digest)
        return (one for _ in range(EACH) if (one := problem_of(rng, case, spec, MOST)) is not None)
    found: Iterator[Any] = case.problems(spec)
    return found


def drawn(op: str, seed: int) -> list[tuple[Any, KernelSpec]]:
    """Kernels of as many cases; the loops that serve what nothing else does are left to other tests."""
    rng = random.Random(f"{OLDER} {op} {seed}")
    chosen: dict[str, tuple[Any, KernelSpec]] = {}
    for case in rng.sample(_cases(op), len(_cases(op))):
        legal = [spec for spec in case.specs(OLDER) if spec.schedule.pipeline != "loops"]
        if legal and len(chosen) < KERNELS:
            spec = rng.choice(legal)
            chosen[spec.digest] = case, spec
    return list(chosen.values())


@pytest.fixture(scope="module")
def by_op(request: pytest.FixtureRequest) -> dict[str, list[tuple[Any, KernelSpec]]]:
    """The kernels of all ops, built side by side."""
    every = {op: drawn(op, request.config.getoption("--gpu-seed")) for op in OPS}
    kernels.kernels([spec for pairs in every.values() for _, spec in pairs])
    return every


@pytest.mark.parametrize("op", OPS)
def test_right_through_ptx(op: str, by_op: dict[str, list[tuple[Any, KernelSpec]]]) -> None:
    from tilewright.runtime import cuda

    wrong, asked, device, bound = [], 0, cuda.device(), binding(op)
    for number, (case, spec) in enumerate(by_op[op]):
        kernel = kernels.kernel(spec)
        for problem in islice((one for one in _problems(case, spec) if one.flops < MOST), EACH):
            sample = samples.make(bound, problem, number, device)
            samples.runner(bound, kernel, problem, sample, device, 1)()
            check = samples.check(bound, problem, sample, (spec,))
            asked += 1
            if not check.ok:
                wrong.append(f"{spec.name} {problem!r}: {check.detail}")
    assert wrong == []
    assert asked >= KERNELS
