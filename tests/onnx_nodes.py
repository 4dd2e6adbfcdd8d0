"""The node tests of the `onnx` package: those whose model is one node, made once however many files ask."""

from __future__ import annotations

import importlib
import warnings
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx: Any = pytest.importorskip("onnx")

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=16)
def _tests_of(op: str) -> tuple[Any, ...]:
    """The tests of an op: making those of all nodes takes long, and every process of a run would."""
    from onnx.backend.test import loader

    if (Path(loader.DATA_DIR) / "node").is_dir():  # older versions of onnx keep them in files
        return tuple(loader.load_model_tests(kind="node"))
    package = "onnx.backend.test.case.node"
    if find_spec(f"{package}.{op.lower()}") is None:
        return ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{package}.{op.lower()}")
    return tuple(importlib.import_module(package)._NodeTestCases)


def cases(word: str, *ops: str) -> list[tuple[Any, Any]]:
    """Tests with a word in their name whose model is one node of the ops, and that model.

    The same nodes written out as graphs of others are none.
    """
    found = []
    for case in {one.name: one for op in ops for one in _tests_of(op)}.values():
        if word not in case.name:
            continue
        model = case.model if case.model is not None else onnx.load(str(Path(case.model_dir) / "model.onnx"))
        if len(model.graph.node) == 1 and model.graph.node[0].op_type in ops:
            found.append((case, model))
    return found


def data_sets(case: Any) -> list[tuple[list[Array], list[Array]]]:
    """Inputs and outputs: made in memory by newer versions of onnx, in files of older ones."""
    if case.data_sets is not None:
        return [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets]
    folders = sorted(Path(case.model_dir).glob("test_data_set_*"))
    return [(_tensors(one, "input"), _tensors(one, "output")) for one in folders]


def _tensors(folder: Path, what: str) -> list[Array]:
    found = []
    for index in range(len(list(folder.glob(f"{what}_*.pb")))):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / f"{what}_{index}.pb").read_bytes())
        found.append(onnx.numpy_helper.to_array(tensor))
    return found
