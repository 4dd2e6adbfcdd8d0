"""What an op need not say: the plain answers it inherits, and their errors."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tilewright import ops
from tilewright.backends.base import KernelsDefaults, OpKernels, Promises, op_kernels
from tilewright.errors import RequestError, UnknownNameError
from tilewright.ops.base import Op, OpDefaults
from tilewright.runtime.bindings import Binding, BindingDefaults, binding

CONTRACTS = [(Op, OpDefaults), (Binding, BindingDefaults), (OpKernels, KernelsDefaults)]


def members(kind: type[Any]) -> set[str]:
    named = set(inspect.get_annotations(kind)) | set(vars(kind))
    return {one for one in named if not one.startswith("_")}


@pytest.mark.parametrize(("contract", "defaults"), CONTRACTS, ids=lambda one: one.__name__)
def test_defaults_are_answers_to_the_contract_with_its_parameters(contract: type[Any], defaults: type[Any]) -> None:
    assert members(defaults) <= members(contract)
    for name, one in vars(defaults).items():
        if inspect.isfunction(one) and not name.startswith("_"):
            assert list(inspect.signature(one).parameters) == list(
                inspect.signature(getattr(contract, name)).parameters
            ), name


def test_the_plain_answers() -> None:
    op, bound, cpu = ops.op("regionstats"), binding("regionstats"), op_kernels("cpu", "regionstats")
    problem = op.problem({"n": 2, "spatial": "4", "channels": 3, "stage": "combine"})
    spec = op.fallback_spec(op.signature_of(problem), "x86_64_v3")
    assert op.signature_of(problem) == problem.signature
    assert op.padded(spec, problem) is None
    assert op.measured_as(problem) is problem
    assert list(ops.op("rowscale").stages("any", "x86_64_v3")) == ["any"]
    assert not bound.checks_apart(problem)
    assert bound.attributes_for((1, 2), (3.0,)) == (1, 2)
    assert cpu.promises(spec) == Promises()
    assert cpu.context(spec) == {}
    assert cpu.compile_memory(spec, "gcc") > 0


def test_an_op_without_named_sets_says_so() -> None:
    op = ops.op("rowscale")
    assert op.preselected_sets == {}
    with pytest.raises(UnknownNameError, match="rowscale has none") as error:
        op.preselected("mine", "x86_64_v3")
    assert (error.value.rule, bool(error.value.remedy)) == ("preselected-name", True)


def test_a_larger_problem_without_copies_is_an_error_that_names_both() -> None:
    problem = ops.op("regionstats").problem({"n": 2, "spatial": "4", "channels": 3})
    with pytest.raises(RequestError, match="makes no copies") as error:
        binding("regionstats").copies(None, problem)  # type: ignore[arg-type]
    assert error.value.rule == "binding-copies"
    assert "padded" in str(error.value)
