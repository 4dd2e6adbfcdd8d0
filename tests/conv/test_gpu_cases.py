"""What tests/gpu/test_conv.py asks of which kernels: needs neither a GPU nor PyTorch."""

from __future__ import annotations

import pytest

from tests.gpu.conv_cases import CASES, CONV, Case, asked
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings.conv.operands import plain_strides

ARCH = "sm_90a"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nearly_every_kernel_is_asked_and_every_pipeline(case: Case) -> None:
    specs = case.specs(ARCH)
    questions = asked(case, specs)
    used = {one for some in questions.values() for one in some}
    assert len(used) > 0.85 * len(specs)
    pipelines = {one.schedule.pipeline for one in used}
    assert pipelines == {one.schedule.pipeline for one in specs}
    product, own = ("pointwise_multistage", "gather") if case.dtype == "fp32" else ("pointwise_tma_ws", "tma_ws")
    assert pipelines >= {"loops", "gather", "gather_planes", product, own}
    for problem, of_problem in questions.items():
        for name in "xwy":
            shape, strides = getattr(problem, f"{name}_shape"), getattr(problem, f"{name}_strides")
            assert plain_strides(shape, strides) == strides, "a call would read other strides from such arrays"
        assert not any(CONV.supports(one, problem) for one in of_problem)


def test_no_pipeline_is_left_out() -> None:
    asked_for = {spec.schedule.pipeline for case in CASES for spec in case.specs(ARCH)}
    known = {spec.schedule.pipeline for case in CASES for spec in full(case)}
    assert asked_for == known


def full(case: Case) -> list[KernelSpec]:
    return list(CONV.proposals("full", ARCH, **CONV.axes_of(case.signature)))
