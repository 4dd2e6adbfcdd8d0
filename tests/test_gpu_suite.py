"""What can be known of tests/gpu without a GPU: its reference is the package's, its judge sees each kind of mistake,
and its cases leave nothing out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda.gemm import names as make
from tests.backends.cuda.gemm import names as nvidia
from tests.gpu.cases import Case, Operands, judge, matrix, problem, signature
from tests.gpu.reference import TYPES, expected
from tests.gpu.test_kernels import DATATYPES, FUSED, GRAPHED, cases
from tests.gpu.torch_here import torch
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.reference import error_bound, exact
from tilewright.ops.gemm.spec import LAYOUTS
from tilewright.ops.numerics import round_to

ARCH = "sm_90a"


@pytest.mark.parametrize(("epilogue", "count"), [("PassThrough", 0), *FUSED])
@pytest.mark.parametrize(
    ("dtype", "output"),
    [("bf16", "bf16"), ("fp16", "fp32"), ("tf32", "fp32"), ("int8", "int32"), ("int8", "int8")],
)
def test_the_reference_is_the_one_of_the_package(epilogue: str, count: int, dtype: str, output: str) -> None:
    p = GemmProblem(9, 11, 23, dtype, dtype_c=output, epilogue=epilogue, num_d=count, beta=True)
    operands = Operands.of(p, "cpu")
    want = operands.expected(p, narrow_sums=False)
    arrays = {"a": operands.a, "b": operands.b, "c": operands.c}
    plain: dict[str, Any] = {name: one.data.double().numpy() for name, one in arrays.items()}
    plain |= {"ds": [one.data.double().numpy() for one in operands.ds], "alpha": operands.alpha, "beta": operands.beta}
    found = exact(p, plain)
    np.testing.assert_allclose(want.value.numpy(), found.value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(want.bound.numpy(), error_bound(p, found), rtol=1e-9)


def test_fp8_sums_may_lose_more_and_nothing_else() -> None:
    p = problem(signature("fp8_e4m3", "fp32"), (3, 5, 64))
    operands = Operands.of(p, "cpu")
    assert (operands.expected(p, True).bound > 2 * operands.expected(p, False).bound).all()


def right(p: GemmProblem) -> Callable[[Operands], None]:
    """A kernel that is right: the exact result, rounded."""

    def run(on: Operands) -> None:
        value = on.expected(p, False).value.numpy()
        rounded = round_to(value, p.dtype_c).astype(np.float64)
        on.e.put(torch.from_numpy(rounded))

    return run


def at(p: GemmProblem, byte: int, new: int = 0) -> Callable[[Operands], None]:
    """The same, and one byte of E's memory changed."""
    run = right(p)

    def spoiled(on: Operands) -> None:
        run(on)
        on.e.memory[byte % on.e.memory.numel()] = new

    return spoiled


CASES = [
    (of, size, way, more)
    for of in (
        signature("bf16", "bf16"),
        signature("int8", "int32", "ccr"),
        signature("fp32", "fp32", "crr", "Gelu", 1),
    )
    for size in ((5, 7, 16), (1, 1, 1), (3, 9, 0), (33, 16, 31))
    for way in ("gaps", "dense", "odd")
    for more in ({}, {"batch": 2, "beta": True, "broadcast_a": True})
]


@pytest.mark.parametrize(("of", "size", "way", "more"), CASES)
def test_a_right_result_passes(of: Any, size: Any, way: str, more: dict[str, Any]) -> None:
    p = problem(of, size, way, **more)
    assert judge(p, right(p), device="cpu") == ""


@pytest.mark.parametrize("way", ["gaps", "dense", "odd"])
def test_every_mistake_is_seen(way: str) -> None:
    p = problem(signature("bf16", "bf16"), (5, 7, 16), way)
    first = matrix(p, "bf16", (1, 5, 7), p.c_stride, "cpu").start
    assert "1 of 35 elements are wrong" in judge(p, at(p, first + 1, 0x7F), device="cpu")  # NaN or far too large
    assert "beside the elements" in judge(p, at(p, first - 1), device="cpu")
    assert "beside the elements" in judge(p, at(p, -1), device="cpu")
    if way != "dense":
        assert "beside the elements" in judge(p, at(p, first + 7 * 2), device="cpu")  # between the first two rows
    assert "35 of 35 elements are wrong" in judge(p, lambda on: None, device="cpu")
    turn = iter(range(9))
    good = right(p)

    def moves(on: Operands) -> None:
        good(on)
        on.e.memory[first] ^= next(turn) & 1

    assert "two runs differ" in judge(p, moves, device="cpu")


def test_what_lies_beside_the_operands_is_no_number() -> None:
    """A kernel that reads over the end of a row multiplies NaN."""
    p = problem(signature("bf16", "bf16"), (5, 7, 11), "gaps")
    operands = Operands.of(p, "cpu")
    rows = operands.a._lines().view(TYPES["bf16"])
    assert bool(torch.isnan(rows[:, :, 11:]).all())
    assert not bool(torch.isnan(operands.a.data).any())


def test_refilled_operands_are_others() -> None:
    p = problem(signature("bf16", "bf16"), (5, 7, 11), "gaps")
    operands = Operands.of(p, "cpu")
    before = operands.a.data.clone()
    operands.e.put(torch.zeros(1, 5, 7))
    operands.refill()
    assert not torch.equal(operands.a.data, before)
    assert bool(torch.isnan(operands.e.data).all())


def test_expected_takes_a_batch_of_one_matrix() -> None:
    p = GemmProblem(2, 3, 4, "bf16", batch=5, broadcast_a=True)
    want = expected(p, torch.ones(1, 2, 4), torch.ones(5, 4, 3), None, (), 1.0, 0.0)
    assert want.value.shape == (5, 2, 3)
    assert bool((want.value == 4).all())


@pytest.mark.parametrize("case", [*cases(), GRAPHED], ids=lambda one: one.name)
def test_every_kernel_of_a_case_takes_some_of_its_sizes(case: Case) -> None:
    specs = case.specs(ARCH)
    assert specs
    for spec in specs:
        assert next(case.problems(spec), None) is not None, spec.name


def test_nothing_is_left_out() -> None:
    specs = [spec for case in cases() for spec in case.specs(ARCH)]
    of_tma = [spec.schedule for spec in specs if spec.schedule.pipeline == "tma_ws"]
    assert {spec.schedule.pipeline for spec in specs} == set(nvidia.PIPELINES)
    assert {(one.grouping, one.swap_ab, one.tile_scheduler) for one in of_tma} == set(make.WAYS.values())
    assert {one.schedule.skinny_dim for one in specs if one.schedule.pipeline == "skinny"} == {"m", "n"}
    dealt = {one.schedule.tile_scheduler for one in specs if one.schedule.pipeline == "multistage"}
    assert dealt == {"data_parallel", "stream_k", "split_k"}
    assert {one.store for one in of_tma} == {"tma", "direct"}
    assert {one.cluster for one in of_tma} >= {(1, 1), (2, 1), (1, 2), (2, 2), (1, 4), (4, 1)}
    asked = {(one.signature.dtype_a, one.signature.dtype_c, one.signature.layout) for one in specs}
    assert asked >= {(types.partition(":")[0], output, layout) for types, output in DATATYPES for layout in LAYOUTS}
    assert {(one.signature.epilogue, one.signature.num_d) for one in specs} >= set(FUSED)
