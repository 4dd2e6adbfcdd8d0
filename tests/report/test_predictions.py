"""What a learned model says of measured kernels stands beside them; where it says nothing, the page says why."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.dispatch.test_model_tier import model, other_pipeline, served
from tilewright import ops
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import OK, KernelRow, Result
from tilewright.ops.base import plain
from tilewright.report.predict import predict
from tilewright.report.scopes import Scope, scopes
from tilewright.report.sources import Source

GEMM = ops.op("gemm")


def measured(**changes: object) -> Scope:
    """Rows of three problems, the kernels of each in another order."""
    found = []
    device = {**machine("generic"), **changes}
    for number, size in enumerate((64, 100, 200)):
        problem = GEMM.problem({"m": size, "n": size, "k": size})
        kernels = served()
        for spec in kernels[number:] + kernels[:number]:
            row = KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
            status = "wrong" if spec is kernels[1] and number == 1 else OK
            found.append(Result("gemm", plain(problem), device, 2, row, status, 1e-6 if status == OK else None))
    (scope,) = scopes(Source(("x",), tuple(found)))
    return scope


def test_a_model_s_predictions_are_those_of_their_rows() -> None:
    scope, preferred = measured(), other_pipeline()
    told = predict(scope, [model(preferred)])
    assert told.name == "gemm-generic"
    assert not told.notes
    checked = set()
    for index, one in enumerate(scope.results):
        if one.status != OK:
            assert math.isnan(told.model[index])
            assert math.isnan(told.estimate[index])
            continue
        mine = one.kernel.spec["schedule"]["pipeline"] == preferred
        checked.add(mine)
        assert np.isclose(told.model[index], 1e-5 * (math.exp(-7.0) if mine else 1.0))
    assert checked == {True, False}


def test_a_model_that_does_not_know_the_device_says_nothing_and_the_page_says_so() -> None:
    scope = measured(model="another CPU")
    told = predict(scope, [model(other_pipeline())])
    assert np.isnan(told.model).all()
    assert not np.isnan(told.estimate).all()
    ((why, count),) = told.notes.items()
    known, _, here = why.partition("; this device is ")
    assert "it was trained on" in known
    assert "another CPU" not in known
    assert "another CPU" in here
    assert count == sum(one.status == OK for one in scope.results)
    assert not predict(scope, []).notes


def test_an_estimate_that_fails_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.report import predict as module

    def broken(specs: object, problem: object, threads: int) -> object:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(module, "estimates_of", broken)
    told = predict(measured(), [])
    assert np.isnan(told.estimate).all()
    assert list(told.notes) == ["the estimate failed: ZeroDivisionError: division by zero"]
