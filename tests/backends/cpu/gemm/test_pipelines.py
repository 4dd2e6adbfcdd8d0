"""Every pipeline with every dtype, layout and ISA level, at the sizes where kernels go wrong."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.harness import Call, prove
from tests.backends.cpu.gemm.shapes import calls
from tests.built import Built
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import LAYOUTS

# Kernels without edge code along some axes, by pipeline.
NO_EDGES = tuple(
    catalog.spec(pipeline, level, ("fp32",) * 3, layout, pad=pad)
    for level in catalog.PLAIN_LEVELS
    for pipeline, layout, pad in (
        ("packed", "rcr", (False, False, False)),
        ("packed", "rrr", (True, False, True)),
        ("preshuffle", "rrr", (False, True, False)),
    )
)
KERNELS = (*catalog.covering(), *catalog.every_core(), *NO_EDGES)
QUICK = 40  # of them; the others are proofs


@pytest.mark.sampled(QUICK)
@pytest.mark.parametrize("index", range(len(KERNELS)), ids=[one.name for one in KERNELS])
def test_every_size_of_every_kernel(built: Built, index: int) -> None:
    kernel = built[KERNELS[index]]
    for call in calls(KERNELS[index], seed=index):
        prove(kernel, call)


def test_the_kernels_cover_what_they_claim() -> None:
    """Beside the greedy cover, said once more in plain words."""
    chosen = catalog.covering()
    for one in chosen:
        assert legality.check(one) == []
    have = {(one.schedule.pipeline, one.signature.dtype_a) for one in chosen}
    assert have == set(product(cpu.PIPELINES, (*cpu.FLOATS, "int8"))) - (
        set() if ("direct", "int8") in have else {("direct", "int8")}
    )
    assert {(one.arch, one.signature.layout) for one in chosen} == set(product(catalog.LEVELS, LAYOUTS))
    assert {(one.schedule.pipeline, one.arch) for one in chosen} == set(product(cpu.PIPELINES, catalog.LEVELS))
    assert {one.signature.dtype_c for one in chosen} == {"fp32", "fp16", "bf16", "int32", "int8"}
    assert any(one.signature.dtype_a != one.signature.dtype_b for one in chosen)
    assert any(one.schedule.pipeline == "preshuffle" and one.schedule.split_k > 1 for one in chosen)


@pytest.mark.parametrize("name", [one for one in catalog.core() if "int8" not in one])
def test_empty_k_gives_beta_c(built: Built, name: str) -> None:
    s = catalog.core()[name].signature
    problem = GemmProblem(
        m=3, n=37, k=0, dtype_a=s.dtype_a, dtype_b=s.dtype_b, dtype_c=s.dtype_c, layout=s.layout, beta=True,
        preshuffled=s.variant == "preshuffle",
    )  # fmt: skip
    outcome = prove(built[catalog.core()[name]], Call(problem, beta=2.0, alpha=5.0))
    doubled = 2.0 * np.asarray(outcome.arrays["c"], np.float32)
    assert np.array_equal(outcome.result.astype(np.float32), doubled.astype(outcome.result.dtype).astype(np.float32))


@pytest.mark.parametrize("name", ["packed_int8_split", "stream_int8", "preshuffle_int8"])
def test_integer_sums_are_exact_and_wrap(built: Built, name: str) -> None:
    """-128 * -128 a hundred and forty thousand times passes 2^31: the sum wraps like the reference's."""
    s = catalog.core()[name].signature
    problem = GemmProblem(
        m=2, n=3, k=140_001, dtype_a="int8", dtype_c="int32", layout=s.layout, preshuffled=s.variant == "preshuffle"
    )
    lowest = prove(
        built[catalog.core()[name]],
        Call(problem, threads=2),
        values=lambda rng, shape, dtype: np.full(shape, -128, np.int8),
    )
    assert int(lowest.result[0, 0, 0]) == 140_001 * 128 * 128 - 2**32


@pytest.mark.parametrize("name", ["packed", "packed_split", "direct", "preshuffle", "stream", "gemv"])
def test_long_and_thin(built: Built, name: str) -> None:
    """One axis in the tens of thousands, the others almost nothing."""
    spec = catalog.core()[name]
    s, rng = spec.signature, random.Random(name)
    for m, n, k in ((1, 30_011, 3), (30_011, 1, 2), (2, 3, 50_021), (4, 20_021, 1), (10_007, 3, 5)):
        problem = GemmProblem(m=m, n=n, k=k, dtype_a=s.dtype_a, layout=s.layout, preshuffled=s.variant == "preshuffle")
        prove(built[spec], Call(problem, threads=rng.choice((1, 2, 5)), seed=k))
