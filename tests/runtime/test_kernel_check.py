"""A kernel's check and its workspace in one call of C answer what the two calls from Python do."""

from __future__ import annotations

import ctypes

import pytest

import tilewright as tw
from tilewright.dispatch.registry import Registry
from tilewright.errors import ProblemError
from tilewright.runtime import fast_path, host
from tilewright.runtime.bindings import binding
from tilewright.runtime.plans import copy_args

PROBLEMS = (tw.GemmProblem(64, 48, 40), tw.AttentionProblem(1, 2, 16, 96, 32), tw.ConvProblem(1, 8, 8, (6, 6), (3, 3)))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: str(problem.op))
@pytest.mark.parametrize("with_library", [True, False])
def test_one_call_says_what_two_do(problem: object, with_library: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    native = fast_path.library()
    if native is None:
        pytest.skip("the fast path needs a compiler")
    monkeypatch.setattr(fast_path, "_loaded", native if with_library else None)
    kernel = Registry().kernel_for(problem)
    (stage,) = binding(kernel.spec.op).dense(problem).stages
    args, nothing = copy_args(stage.args), type(stage.args)()
    for pointer in stage.pointers:
        ctypes.c_uint64.from_buffer(args, pointer.offset).value = host.ALIGNMENT
    ctypes.memset(ctypes.addressof(nothing), 0xFF, ctypes.sizeof(nothing))  # sizes of -1
    assert kernel.refusal(args) == ""
    for threads in (1, 3):
        assert kernel.demanded_workspace(args, threads) == kernel.workspace_bytes(args, threads)
    with pytest.raises(ProblemError) as two:
        kernel.demand(nothing)
    with pytest.raises(ProblemError) as one:
        kernel.demanded_workspace(nothing, 1)
    assert texts(one.value) == texts(two.value)


def texts(error: ProblemError) -> tuple[str, str, str]:
    return error.rule, error.message, error.remedy
