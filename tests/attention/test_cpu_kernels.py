"""The CPU's tiled and decode kernels at every ISA level, on problems drawn by seed, against float64.

Tiles are small, so that problems of a few rows and keys have several of them.  Results, scratch memory and what lies
behind a sequence are poisoned (harness.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.attention.drawing import ATTENTION, Kind, gapped, problem
from tests.attention.harness import prove
from tests.built import Built
from tilewright.arch import arch as arch_by_name
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.cpu import lanes
from tilewright.ops.attention.cpu_schedules import CpuDecodeSchedule, CpuTiledSchedule
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.usefixtures("needs_compiler")

PROBLEMS = 10
# Heads that are whole vectors and such that are not, all of one signature.
HEADS = (40, 48, 56, 57, 64)


def schedule(pipeline: str, arch_name: str) -> Any:
    """A small one: two vectors of rows, few keys."""
    arch = arch_by_name(arch_name)
    width = lanes(arch)
    if pipeline == "decode":
        return CpuDecodeSchedule((min(8, width), 2 * width))
    return CpuTiledSchedule((4 * width, 16), (2 * width, 8 if arch.vector_registers > 16 else 4))


# Pipeline, ISA level, and the seed of what the kernel has (drawing.kind); together they have both pipelines at every
# level, every element type, and every feature somewhere: a test below says so.
CASES = (
    ("tiled", "x86_64_v4", {"dtype_q": "fp32", "mask": "window"}),
    ("tiled", "x86_64_v4", {"dtype_q": "fp32", "mask": "generic", "bias": "tensor", "masked": True, "sink": True}),
    ("tiled", "x86_64_v4_bf16", {"dtype_q": "bf16", "mask": "window", "pages": "strided", "lookup": "table"}),
    ("tiled", "x86_64_v4_bf16", {"dtype_q": "bf16", "dtype_out": "fp32", "softcap": True, "packed": True}),
    ("tiled", "x86_64_v3", {"dtype_q": "fp16", "mask": "generic", "bias": "alibi", "packed": True}),
    ("tiled", "x86_64_v3", {"dtype_q": "bf16", "dtype_kv": "fp8_e4m3", "pages": "strided", "lookup": "indices"}),
    ("tiled", "generic", {"dtype_q": "fp32", "mask": "window", "bias": "tensor", "softcap": True}),
    ("decode", "x86_64_v4", {"dtype_q": "fp32", "pages": "strided", "lookup": "table", "mask": "window"}),
    ("decode", "x86_64_v4", {"dtype_q": "fp16", "bias": "tensor", "dtype_aux": "fp16", "masked": True}),
    ("decode", "x86_64_v4_bf16", {"dtype_q": "bf16", "mask": "generic", "sink": True, "packed": True}),
    ("decode", "x86_64_v3", {"dtype_q": "bf16", "bias": "alibi", "pages": "strided", "lookup": "indices"}),
    ("decode", "generic", {"dtype_q": "fp32", "dtype_out": "bf16", "mask": "generic", "bias": "alibi"}),
)  # fmt: skip
PLAIN: Kind = {"family": "forward", "dtype_kv": "", "dtype_out": "", "mask": "none", "bias": "none", "masked": False,
               "softcap": False, "sink": False, "packed": False}  # fmt: skip


def first(has: Kind) -> AttentionProblem:
    return problem(random.Random(0), whole(has), HEADS)


def whole(has: Kind) -> Kind:
    found = {**PLAIN, **has}
    return {**found, "dtype_kv": found["dtype_kv"] or found["dtype_q"]}


SPECS = [KernelSpec("attention", first(has).signature, schedule(pipeline, arch), arch) for pipeline, arch, has in CASES]


@pytest.fixture(scope="module")
def built() -> Built:
    return Built(SPECS)


def drawings(spec: KernelSpec, has: Kind, count: int = PROBLEMS) -> Iterator[AttentionProblem]:
    """Problems of the kind that the kernel is for; some are long enough for parts of the keys."""
    found, seed = 0, 0
    while found < count:
        seed += 1
        draw = random.Random(seed)
        one = problem(draw, whole(has), HEADS)
        if draw.random() < 0.4:
            rows = draw.choice((1, 1, 2, 5))
            shapes = {
                name: tuple(size if old > 1 else 1 for size, old in zip((one.batch, one.heads_q, rows, 1100), shape,
                                                                        strict=True))
                for name in ("bias_shape", "mask_shape") if (shape := getattr(one, name))
            }  # fmt: skip
            totals = {"total_rows": 0, "total_keys": 0, "page_count": 0}
            one = replace(one.dense(), rows=rows, keys=1100, **totals, **shapes)  # type: ignore[arg-type]
        else:
            one = gapped(draw, one)
        if not ATTENTION.problem_violations(one, spec.arch) and not ATTENTION.supports(spec, one):
            found += 1
            yield one


@pytest.mark.parametrize(
    ("spec", "case"), list(zip(SPECS, CASES, strict=True)), ids=[f"{a}-{b}-{n}" for n, (a, b, _) in enumerate(CASES)]
)
def test_it_computes_what_float64_computes(spec: KernelSpec, case: tuple[str, str, Kind], built: Built) -> None:
    assert not ATTENTION.check(spec)
    kernel = built[spec]
    for number, one in enumerate(drawings(spec, case[2])):
        prove(kernel, one, number, 1 + number % 3)
