"""The kernel's own `check` and `legality.supports` say the same; every refusal has its code and sentence."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backends.cpu.gemm import catalog
from tests.built import Built
from tilewright.ops.gemm import legality
from tilewright.ops.gemm.problem import GemmProblem, problem_violations
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.loader import Kernel

NONE, ALL = (False, False, False), (True, True, True)
SPECS_AT = {
    level: tuple(
        catalog.spec(pipeline, level, dtypes, layout, pad=pad, block=block)
        for pipeline, dtypes, layout, pad, block in (
            ("packed", ("fp32",) * 3, "rcr", NONE, 0),
            ("packed", ("int8", "int8", "int32"), "crr", (True, True, False), 1),
            ("direct", ("fp32",) * 3, "crr", ALL, 1),
            ("gemv", ("fp32",) * 3, "rrr", ALL, 0),
            ("stream", ("bf16",) * 3, "ccr", ALL, 1),
            ("preshuffle", ("fp32",) * 3, "rrr", (True, False, True), 0),
            ("loops", ("fp16",) * 3, "ccr", ALL, 0),
            ("packed", ("fp32",) * 3, "rrr", (False, True, True), 1),
        )
    )
    for level in catalog.PLAIN_LEVELS
}  # fmt: skip
SPECS = SPECS_AT[catalog.plain()]
FUSED = {one: catalog.spec("packed", one, epilogue="MultiDAdd", num_d=1) for one in catalog.PLAIN_LEVELS}
KERNELS = (*(spec for specs in SPECS_AT.values() for spec in specs), *FUSED.values())
CODES = {"no-edge-code": 2, "cpu-stream-size": 3, "size-negative": 1, "stride-short": 1}


@pytest.fixture(scope="module")
def kernels(built: Built) -> list[Kernel]:
    return [built[one] for one in SPECS]


def _check(kernel: Kernel, args: GemmArgs) -> tuple[int, str]:
    why = ctypes.create_string_buffer(200)
    code = int(kernel._check(ctypes.addressof(args), why, 200))
    return code, why.value.decode()


def _args(p: GemmProblem) -> GemmArgs:
    return GemmArgs(
        m=p.m, n=p.n, k=p.k, batch=p.batch, a=64, b=64, e=64, a_stride=p.a_stride, b_stride=p.b_stride,
        c_stride=p.c_stride, e_stride=p.c_stride, alpha=1.0, beta=0.0,
    )  # fmt: skip


sizes = st.one_of(st.integers(-2, 70), st.sampled_from([8, 14, 16, 28, 32, 48, 96, 128, 400, 2**40]))


@given(st.integers(0, len(SPECS) - 1), sizes, sizes, sizes, st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 50, 500]))
def test_c_and_python_agree(kernels: list[Kernel], index: int, m: int, n: int, k: int, batch: int, ld: int) -> None:
    s = SPECS[index].signature
    problem = GemmProblem(
        m=m, n=n, k=k, batch=batch, dtype_a=s.dtype_a, dtype_b=s.dtype_b, dtype_c=s.dtype_c, layout=s.layout,
        a_stride=ld, b_stride=ld, c_stride=ld, preshuffled=s.variant == "preshuffle",
    )  # fmt: skip
    python = [one for one in problem_violations(problem) if one.rule != "size-huge"]
    python = python or legality.supports(SPECS[index], problem)
    code, sentence = _check(kernels[index], _args(problem))
    assert (code == 0) == (not python), (sentence, python)
    assert (sentence == "") == (code == 0)
    if python:
        assert code in {CODES[one.rule] for one in python}
        if code == 2:  # the same axis
            assert any(one.message.startswith(sentence.split()[0] + " =") for one in python)


def _good(kernel: Kernel, **changes: Any) -> GemmArgs:
    s = kernel.spec.signature
    args = _args(GemmProblem(m=48, n=96, k=64, dtype_a=s.dtype_a, dtype_c=s.dtype_c, layout=s.layout))
    args.a_stride = args.b_stride = args.c_stride = args.e_stride = 200
    for name, value in changes.items():
        setattr(args, name, value)
    return args


@pytest.mark.parametrize(
    ("index", "changes", "code", "sentence"),
    [
        (0, {}, 0, ""),
        (6, {"m": -1}, 1, "a size is negative"),
        (6, {"n": -1}, 1, "a size is negative"),
        (6, {"k": -5}, 1, "a size is negative"),
        (6, {"batch": -1}, 1, "a size is negative"),
        (0, {"a_stride": 63}, 1, "the stride of A is shorter than its row"),
        (1, {"a_stride": 15}, 1, "the stride of A is shorter than its row"),
        (0, {"b_stride": 63}, 1, "the stride of B is shorter than its row"),
        (1, {"b_stride": 95}, 1, "the stride of B is shorter than its row"),
        (5, {"b_stride": 0}, 0, ""),  # a packed B has no stride
        (6, {"e_stride": 95}, 1, "the stride of E is shorter than its row"),
        (6, {"beta": 0.5}, 1, "beta is not 0 but C is null"),
        (6, {"beta": float("nan")}, 1, "beta is not 0 but C is null"),
        (0, {"m": 17}, 2, "m = 17 is not a multiple of 6 and the kernel has no edge code along m"),
        (0, {"n": 97}, 2, "n = 97 is not a multiple of 16 and the kernel has no edge code along n"),
        (1, {"k": 63}, 2, "k = 63 is not a multiple of 2 and the kernel has no edge code along k"),
        (3, {"m": 5}, 3, "m = 5 and n = 96 are both over the 4 vectors this kernel holds"),
    ],
)
def test_every_sentence(kernels: list[Kernel], index: int, changes: dict[str, Any], code: int, sentence: str) -> None:
    # On the plainest level every k is whole.
    if changes == {"k": 63} and SPECS[index].schedule.warp_tile[2] == 1:
        pytest.skip("this machine multiplies int8 one by one")
    assert _check(kernels[index], _good(kernels[index], **changes)) == (code, sentence)


def test_d_tensors_are_looked_at(built: Built) -> None:
    kernel = built[FUSED[catalog.plain()]]
    args = _good(kernel)
    assert _check(kernel, args) == (1, "a D tensor is null")
    args.d[0], args.d_col_stride[0] = 64, 2
    assert _check(kernel, args) == (1, "the column stride of a D tensor is neither 0 nor 1")
    args.d_col_stride[0] = 0
    assert _check(kernel, args) == (0, "")


def test_null_and_short_buffers(kernels: list[Kernel]) -> None:
    why = ctypes.create_string_buffer(b"untouched", 16)
    assert kernels[0]._check(None, why, 16) == 1
    assert why.value == b"args is null"
    assert kernels[0]._check(None, why, 5) == 1
    assert why.value == b"args"  # cut to fit, closed by its zero
    assert kernels[0]._check(None, None, 0) == 1
