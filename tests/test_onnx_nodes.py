"""The node tests of ONNX for MatMul and Gemm, through `tw.matmul` and `tw.gemm`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.onnx_nodes import cases, data_sets, onnx
from tilewright.errors import ProblemError

# Element types ONNX multiplies and our kernels do not: no processor's matrix unit takes them, or only at a fraction of
# the speed.  Such arrays are refused with what to convert them to.
NOT_MULTIPLIED = ("float64", "int32", "int64", "uint32", "uint64")


def of(op: str) -> list[Any]:
    return [pytest.param(case, model, id=case.name) for case, model in cases(f"test_{op.lower()}", op)]


def multiply(node: Any, inputs: list[np.ndarray[Any, Any]]) -> Any:
    if node.op_type == "MatMul":
        return tw.matmul(*inputs)
    named = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    a, b = (one.T if named.get(f"trans{name}") else one for one, name in zip(inputs, "AB", strict=False))
    c = inputs[2] if len(inputs) > 2 else None
    beta = named.get("beta", 1.0) if c is not None else None
    return tw.gemm(a, b, c, alpha=named.get("alpha", 1.0), beta=beta)


@pytest.mark.parametrize(("case", "model"), [*of("MatMul"), *of("Gemm")])
def test_a_node_of_onnx(case: Any, model: Any) -> None:
    for inputs, (expected,) in data_sets(case):
        if inputs[0].dtype.name in NOT_MULTIPLIED:
            with pytest.raises(ProblemError) as caught:
                multiply(model.graph.node[0], inputs)
            assert "astype" in caught.value.remedy
            continue
        result = multiply(model.graph.node[0], inputs)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(result, expected, rtol=case.rtol, atol=max(case.atol, 1e-5))


def test_there_are_such_tests() -> None:
    assert len(of("MatMul")) >= 3
    assert len(of("Gemm")) >= 11
