"""`tilewright.gated_gemm`: a gated product of two B, by one kernel or two, on arrays of this machine's CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.dispatch.registry import default_registry
from tilewright.errors import ProblemError, UnknownNameError
from tilewright.ops.gemm.legality import has_dual_kernels
from tilewright.ops.gemm.reference import exact
from tilewright.ops.numerics import activation as exact_activation
from tilewright.runtime.bindings.gemm import BINDING
from tilewright.runtime.bindings.gemm.operands import UP
from tilewright.runtime.requests import BETWEEN

NAMES = {"silu": "Silu", "gelu": "Gelu", "fastgelu": "FastGelu"}


def operands(m: int, n: int, k: int, dtype: Any, batch: tuple[int, ...] = ()) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(m * n * k)
    return tuple(  # type: ignore[return-value]
        rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in ((*batch, m, k), (n, k), (n, k))
    )


def expected(a: Any, gate: Any, up: Any, name: str) -> Any:
    g, u = (a.astype(np.float64) @ one.astype(np.float64).T for one in (gate, up))
    return exact_activation(NAMES[name], g) * u


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("m", "n", "k", "batch"), [(1, 64, 96, ()), (5, 33, 47, ()), (40, 72, 64, (3,))])
def test_results(name: str, m: int, n: int, k: int, batch: tuple[int, ...]) -> None:
    a, gate, up = operands(m, n, k, np.float32, batch)
    right = expected(a, gate, up, name)
    found = tw.gated_gemm(a, gate.T, up.T, activation=name)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())
    assert (tw.gated_gemm(a, gate.T, up.T, activation=name) == found).all()  # by the fast path
    out = np.full_like(found, np.nan)
    assert tw.gated_gemm(a, gate.T, up.T, activation=name, out=out) is out
    assert (out == found).all()


def test_halves_of_a_merged_weight_in_bf16() -> None:
    a, gate, up = operands(9, 40, 64, ml_dtypes.bfloat16)
    merged = np.concatenate([gate, up])
    found = tw.gated_gemm(a, merged[:40].T, merged[40:].T)
    assert found.dtype == ml_dtypes.bfloat16
    right = expected(a, gate, up, "silu")
    np.testing.assert_allclose(found.astype(np.float64), right, rtol=0, atol=2**-7 * np.abs(right).max())
    wide = tw.gated_gemm(a, gate.T, up.T, out_dtype="fp32")
    np.testing.assert_allclose(wide, right, rtol=1e-3, atol=1e-3 * np.abs(right).max())


def test_bs_that_lie_otherwise_and_results_by_columns() -> None:
    a, gate, up = operands(6, 24, 32, np.float32)
    right = expected(a, gate, up, "silu")
    np.testing.assert_allclose(tw.gated_gemm(a, gate.T, np.ascontiguousarray(up.T)), right, rtol=1e-4, atol=1e-3)
    out = np.empty((24, 6), np.float32).T
    np.testing.assert_allclose(tw.gated_gemm(a, gate.T, up.T, out=out), right, rtol=1e-4, atol=1e-3)


def test_a_gate_times_a_d_tensor() -> None:
    a, gate, up = operands(7, 40, 48, np.float32)
    right = expected(a, gate, up, "gelu")
    found = tw.gemm(a, gate.T, ds=(a @ up.T,), epilogue="gelu_and_mul")
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-3)


def stages(target: str, m: int, **more: Any) -> tuple[Any, ...]:
    """Of a call on arrays as a target would see them."""
    from tilewright.runtime.arrays import view

    a, gate, up = operands(m, 64, 64, ml_dtypes.bfloat16)
    given, _, attributes = BINDING.bind(a, gate.T, epilogue="silu_and_mul", up=more.get("up", up.T))
    views = [None if one is None else view(slot.name, one) for slot, one in zip(BINDING.slots, given, strict=True)]
    return BINDING.request(views, attributes, target).stages


def test_one_kernel_where_the_target_has_one() -> None:
    (both,) = stages("sm_90a", 4)
    assert both.problem.dual
    assert UP in [pointer.slot for pointer in both.pointers]
    first, second = stages("x86_64_v3", 4)
    assert (first.problem.epilogue, second.problem.epilogue, second.problem.num_d) == ("PassThrough", "SiluAndMul", 1)
    assert [pointer.slot for pointer in first.pointers].count(BETWEEN) == 1
    assert [pointer.slot for pointer in second.pointers].count(BETWEEN) == 1
    assert len(stages("sm_80", 4)) == 1  # few rows
    assert len(stages("sm_80", 40)) == 2
    assert len(stages("sm_90a", 4, up=operands(4, 64, 64, ml_dtypes.bfloat16)[2])) == 2  # not as the gate lies


def test_selection_of_dual_kernels() -> None:
    registry = default_registry("sm_90a")
    for m, family in ((1, "skinny"), (16, "skinny"), (64, "tma_ws"), (2048, "tma_ws")):
        problem = tw.GemmProblem(m, 4096, 4096, "bf16", layout="rcr", epilogue="SiluAndMul")
        assert has_dual_kernels(problem, "sm_90a")
        assert registry.select(problem).spec.schedule.pipeline == family
    odd = tw.GemmProblem(7, 33, 35, "bf16", layout="rcr", epilogue="SiluAndMul", aligned=False)
    assert not has_dual_kernels(odd, "sm_90a")
    assert registry.select(odd).spec.schedule.pipeline == "loops"
    assert "dual" not in tw.GemmProblem(1, 8, 8, "bf16", epilogue="SiluAndMul", num_d=1).signature.label()
    plain = tw.GemmProblem(64, 4096, 4096, "bf16", layout="rcr")
    dual = tw.GemmProblem(64, 4096, 4096, "bf16", layout="rcr", epilogue="SiluAndMul")
    assert dual.flops == 2 * plain.flops
    assert dual.bytes == plain.bytes + 4096 * 4096 * 2


def test_the_reference_of_two_products() -> None:
    problem = tw.GemmProblem(3, 5, 8, "fp32", layout="rcr", epilogue="GeluAndMul")
    a, gate, up = operands(3, 5, 8, np.float32)
    arrays = {"a": a, "b": gate.T, "b_up": up.T, "c": None, "ds": (), "alpha": 0.5, "beta": 0.0}
    g, u = 0.5 * (a.astype(np.float64) @ gate.T.astype(np.float64)), a.astype(np.float64) @ up.T.astype(np.float64)
    np.testing.assert_allclose(exact(problem, arrays).value, exact_activation("Gelu", g) * u, rtol=1e-12)


def test_errors() -> None:
    a, gate, up = operands(4, 16, 32, np.float32)
    with pytest.raises(UnknownNameError, match="gate-activation"):
        tw.gated_gemm(a, gate.T, up.T, activation="relu6")
    with pytest.raises(UnknownNameError, match="gate-activation"):
        tw.gated_gemm(a, gate.T, up.T, activation=None)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="shape-up"):
        tw.gated_gemm(a, gate.T, up[:8].T)
    with pytest.raises(ProblemError, match="dual-operands"):
        tw.gated_gemm(a, tw.pack(gate.T), up.T)
    with pytest.raises(ProblemError, match="epilogue-d-count"):
        tw.gemm(a, gate.T, epilogue="silu_and_mul")
    with pytest.raises(ProblemError, match="epilogue-bias"):
        tw.gemm(a, gate.T, epilogue="silu_and_mul", bias=np.zeros(16, np.float32))
    with pytest.raises(ProblemError, match="epilogue-name"):
        tw.conv(np.zeros((1, 4, 4, 4), np.float32), np.zeros((4, 3, 3, 4), np.float32), epilogue="silu_and_mul")
