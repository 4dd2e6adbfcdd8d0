"""A built kernel's own check says what selection said of it, word for word: of every op, on every backend.

The host's half of GPU kernels is compiled alone, so neither a GPU nor its compiler is needed.
"""

from __future__ import annotations

import ctypes
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.built import why_no_compiler
from tests.native import drawn_attention, drawn_conv, drawn_gemm
from tests.runtime import hosted
from tilewright import ops
from tilewright.backends.base import op_kernels
from tilewright.build import Builder
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import binding
from tilewright.runtime.loader import Kernel, load_kernel

pytestmark = pytest.mark.skipif(bool(why_no_compiler()), reason="there is no C++ compiler here")

TARGETS = {"cpu": "x86_64_v3", "cuda": "sm_90a", "hip": "gfx942"}
DRAW: dict[str, Callable[[random.Random, str], Any]] = {
    "attention": drawn_attention.problem, "conv": drawn_conv.problem, "gemm": drawn_gemm.problem,
}  # fmt: skip
FAR = 1 << 20  # an address: nothing is read
EVERY = [(backend, op) for backend in TARGETS for op in DRAW]


def _specs(backend: str, op: str, signatures: list[Any], each: int) -> list[KernelSpec]:
    """For each signature up to `each` kernels, those of families that have fewest so far first."""
    kernels: Any = op_kernels(backend, op)
    target, found, used = TARGETS[backend], [], Counter[str]()
    for signature in signatures:
        mine = {kernels.family_of(one.schedule).name: one for one in ops.op(op).candidates(signature, target)}
        for name in sorted(mine, key=lambda one: used[one])[:each]:
            used[name] += 1
            found.append(mine[name])
    return found


def _built(backend: str, specs: list[KernelSpec], folder: Path) -> list[Kernel]:
    if backend == "cpu":
        return [load_kernel(Builder().build_one(spec).path, spec) for spec in specs]
    return (hosted.cuda_kernels if backend == "cuda" else hosted.hip_kernels)(specs, folder)


def _arguments(op: str, problem: Any) -> Any:
    request = binding(op).dense(problem)
    stage = request.stages[0]
    args = type(stage.args).from_buffer_copy(stage.args)
    start = ctypes.addressof(args)
    for pointer in stage.pointers:
        odd = request.spans[pointer.slot].probe % 16 if request.spans else 0
        ctypes.c_void_p.from_address(start + pointer.offset).value = FAR + odd
    for scalar in stage.scalars:
        ctypes.c_double.from_address(start + scalar.offset).value = scalar.probe
    return args


def _compare(backend: str, op: str, folder: Path, signatures: int, each: int, count: int) -> tuple[int, int]:
    """How many answers were compared, and how many of them were no."""
    r, made = random.Random(f"{backend} {op} {count}"), DRAW[op]
    drawn = Counter(ops.op(op).signature_of(made(r, TARGETS[backend])) for _ in range(1000))
    specs = _specs(backend, op, [one for one, _ in drawn.most_common(signatures)], each)
    by_signature: dict[Any, list[Kernel]] = {}
    for kernel in _built(backend, specs, folder):
        by_signature.setdefault(kernel.spec.signature, []).append(kernel)
    compared = refused = 0
    while compared < count:
        problem = made(r, TARGETS[backend])
        known = problem.aligned or getattr(problem, "unaligned", "")  # which operands are off
        known = known and getattr(problem, "batch_aligned", True)
        if getattr(problem, "preshuffled", False) and not problem.k:
            continue  # nothing is packed then, and kernels for B as it is are asked
        kernels = by_signature.get(ops.op(op).signature_of(problem), []) if known else []
        args: Any = _arguments(op, problem) if kernels else None
        for kernel in kernels:
            violations = ops.op(op).supports(kernel.spec, problem)
            said = kernel.refusal(args).partition(": ")[2]
            assert said == (violations[0].message if violations else ""), (kernel.name, problem, said, violations)
            compared, refused = compared + 1, refused + bool(said)
    return compared, refused


@pytest.mark.parametrize(
    ("backend", "op", "signatures"), [("cpu", "gemm", 2), ("cuda", "conv", 5), ("hip", "attention", 2)]
)
def test_a_few_kernels(backend: str, op: str, signatures: int, tmp_path: Path) -> None:
    compared, refused = _compare(backend, op, tmp_path, signatures, 2, 200)
    assert 0 < refused < compared, "one answer alone was seen"


@pytest.mark.proof
@pytest.mark.parametrize(("backend", "op"), EVERY)
def test_twenty_thousand_answers(backend: str, op: str, tmp_path: Path) -> None:
    compared, refused = _compare(backend, op, tmp_path, 8, 3, 20000 // len(EVERY) + 1)
    assert 0 < refused < compared, "one answer alone was seen"
