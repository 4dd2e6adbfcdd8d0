"""Every legal epilogue with every count of D tensors, really computed, for fp32, bf16 and integer outputs."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm.harness import Array, Call, ordinary, prove
from tests.backends.cpu.gemm.shapes import calls
from tests.built import Built
from tilewright.ops.base import KernelSpec
from tilewright.ops.fused import ACTIVATIONS, EPILOGUES, GATES, epilogue_d_counts
from tilewright.ops.gemm.problem import GemmProblem

KINDS = {
    0: ((),),
    1: (("full",), ("row",), ("column",), ("one",)),
    2: (("full", "full"), ("row", "column"), ("column", "full"), ("full", "row"), ("one", "row")),
    3: (("full", "row", "full"), ("column", "one", "row")),
    4: (("row", "full", "column", "full"), ("full", "full", "full", "full"), ("one", "column", "row", "full")),
}
PIPELINES = ("packed", "direct", "stream", "preshuffle", "gemv", "loops")
MORE = (("MultiDAdd", 3), ("MultiDMultiply", 4), ("Relu", 4), ("Gelu", 3), ("MultiDMultiply", 3), ("MultiDAdd", 4))
COMBINATIONS = (
    *((name, count) for name in EPILOGUES for count in epilogue_d_counts(name)),
    *((name, 1) for name in GATES),
    *MORE,
)


def _float_specs() -> list[KernelSpec]:
    """Each combination for both outputs; pipelines and ISA levels take turns, so that each meets many."""
    pipelines, archs, found = cycle(PIPELINES), cycle(catalog.LEVELS), []
    for index, (name, count) in enumerate(COMBINATIONS):
        for output in ("fp32", "bf16"):
            pipeline = next(pipelines)
            if pipeline == PIPELINES[0]:
                next(archs)  # so that a pipeline does not always meet the same level
            found.append(
                catalog.spec(
                    pipeline,
                    next(archs),
                    (output, output, output),
                    "rrr" if pipeline == "direct" else ("rcr", "rrr", "crr", "ccr")[index % 4],
                    block=index,
                    split_k=2 if pipeline == "packed" else 1,
                    epilogue=name,
                    num_d=count,
                    # A residual of the output's type, or a bias kept in fp32.
                    dtype_d="fp32" if index % 2 else output,
                )
            )
    return found


INTEGER = tuple(
    catalog.spec(pipeline, arch, ("int8", "int8", output), "rcr", epilogue=name, num_d=count)
    for (pipeline, output, name, count), arch in zip(
        (
            ("packed", "int8", "MultiDAdd", 2),
            ("packed", "int32", "MultiDMultiply", 1),
            ("stream", "int8", "Relu", 1),
            ("loops", "int8", "Gelu", 0),
            ("preshuffle", "int32", "Silu", 1),
            ("loops", "int32", "FastGelu", 2),
            ("gemv", "int8", "Tanh", 0),
            ("loops", "int8", "Sigmoid", 1),
            ("packed", "fp32", "Gelu", 1),
        ),
        cycle(catalog.LEVELS),
        strict=False,
    )
)
FLOAT = tuple(_float_specs())
SPECS = (*FLOAT, *INTEGER)
ROUNDING = {
    (level, output): catalog.spec("packed", level, ("int8", "int8", output), "rrr")
    for level in catalog.PLAIN_LEVELS
    for output in ("int8", "int32", "fp32")
}
KERNELS = (*SPECS, *ROUNDING.values())


def _around_the_bend(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Small inputs, so that sums lie where activations bend; integers of a few."""
    values = ordinary(rng, shape, dtype)
    if dtype in ("int8", "int32"):
        return (values // 29).astype(values.dtype) if dtype == "int8" else (values // 9000).astype(values.dtype)
    return (values.astype(np.float32) / 2).astype(values.dtype)


def test_every_combination_is_there() -> None:
    for output in ("fp32", "bf16"):
        have = {(one.signature.epilogue, one.signature.num_d) for one in FLOAT if one.signature.dtype_c == output}
        assert have == set(COMBINATIONS)
    assert len(COMBINATIONS) == 1 + 2 * 2 + 6 * 3 + 3 + len(MORE)
    assert {one.signature.epilogue for one in INTEGER} >= set(ACTIVATIONS)
    mixed = [one for one in FLOAT if one.signature.dtype_d == "fp32" != one.signature.dtype_c and one.signature.num_d]
    assert len(mixed) >= 6
    assert {one.schedule.pipeline for one in SPECS} == set(PIPELINES)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("index", range(len(SPECS)), ids=[one.name for one in SPECS])
def test_epilogue(built: Built, index: int) -> None:
    spec = SPECS[index]
    kernel = built[spec]
    for call in calls(spec, seed=500 + index, d_kinds=KINDS[spec.signature.num_d]):
        prove(kernel, call, values=_around_the_bend)


@pytest.mark.parametrize(
    ("alpha", "wanted"),
    [
        (0.5, [0, 2, 2, 2, 0, -2, -2, 50, -50, 127, -128]),  # halves go to the even neighbour
        (1.0, [1, 3, 4, 5, -1, -3, -4, 101, -101, 127, -128]),
        (4.0, [4, 12, 16, 20, -4, -12, -16, 127, -128, 127, -128]),  # saturates
    ],
)
def test_int8_rounds_to_even_and_saturates(built: Built, alpha: float, wanted: list[int]) -> None:
    sums = np.array([1, 3, 4, 5, -1, -3, -4, 101, -101, 16129, -16256])  # the last two are 127 * 127 and -128 * 127
    a = np.array([[1, 127]], np.int8)
    b = np.zeros((2, sums.size), np.int8)
    b[0, :-2], b[1, -2:] = sums[:-2], (127, -128)

    def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        return a.reshape(shape) if shape[-1] == 2 else b.reshape(shape)

    problem = GemmProblem(m=1, n=sums.size, k=2, dtype_a="int8", dtype_c="int8")
    outcome = prove(built[ROUNDING[catalog.plain(), "int8"]], Call(problem, alpha=alpha), values=values)
    assert outcome.result[0, 0].tolist() == wanted
    for output in ("int32", "fp32"):
        problem = GemmProblem(m=1, n=sums.size, k=2, dtype_a="int8", dtype_c=output)
        outcome = prove(built[ROUNDING[catalog.plain(), output]], Call(problem, alpha=alpha), values=values)
        exact = alpha * sums
        assert outcome.result[0, 0].tolist() == (np.rint(exact) if output == "int32" else exact).tolist()


def test_int32_saturates(built: Built) -> None:
    problem = GemmProblem(m=3, n=19, k=40, dtype_a="int8", dtype_c="int32")
    outcome = prove(built[ROUNDING[catalog.plain(), "int32"]], Call(problem, alpha=1e6))
    assert int(outcome.result.max()) == 2**31 - 1
    assert int(outcome.result.min()) == -(2**31)
