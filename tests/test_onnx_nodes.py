"""The node tests of ONNX for MatMul and Gemm, through `tw.matmul` and `tw.gemm`."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import ProblemError

onnx: Any = pytest.importorskip("onnx")

# Element types ONNX multiplies and our kernels do not: no processor's matrix unit takes them, or only at a fraction of
# the speed.  Such arrays are refused with what to convert them to.
NOT_MULTIPLIED = ("float64", "int32", "int64", "uint32", "uint64")


@lru_cache(maxsize=1)
def _all() -> tuple[Any, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():  # of the tests of other nodes, which are made too
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind="node"))


def cases(op: str) -> list[Any]:
    """The tests whose model is one node of an op."""
    found = []
    for case in _all():
        if not case.name.startswith(f"test_{op.lower()}"):
            continue
        model = case.model if case.model is not None else onnx.load(str(Path(case.model_dir) / "model.onnx"))
        if [node.op_type for node in model.graph.node] == [op]:
            found.append(pytest.param(case, model, id=case.name))
    return found


def data_sets(case: Any) -> list[tuple[list[Any], list[Any]]]:
    """Inputs and outputs: made in memory by newer versions of onnx, in files of older ones."""
    if case.data_sets is not None:
        return [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets]
    folders = sorted(Path(case.model_dir).glob("test_data_set_*"))
    return [(_tensors(one, "input"), _tensors(one, "output")) for one in folders]


def _tensors(folder: Path, what: str) -> list[np.ndarray[Any, Any]]:
    found = []
    for index in range(len(list(folder.glob(f"{what}_*.pb")))):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{what}_{index}.pb").read_bytes())
        found.append(onnx.numpy_helper.to_array(tensor))
    return found


def multiply(node: Any, inputs: list[np.ndarray[Any, Any]]) -> Any:
    if node.op_type == "MatMul":
        return tw.matmul(*inputs)
    named = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    a, b = (one.T if named.get(f"trans{name}") else one for one, name in zip(inputs, "AB", strict=False))
    c = inputs[2] if len(inputs) > 2 else None
    beta = named.get("beta", 1.0) if c is not None else None
    return tw.gemm(a, b, c, alpha=named.get("alpha", 1.0), beta=beta)


@pytest.mark.parametrize(("case", "model"), [*cases("MatMul"), *cases("Gemm")])
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
    assert len(cases("MatMul")) >= 3
    assert len(cases("Gemm")) >= 11
