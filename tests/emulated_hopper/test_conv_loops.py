"""The floor of every GPU on the emulated one: any size, stride, memory order, type and fused work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.emulated_hopper.convolutions import CONV, wrong
from tests.emulated_hopper.emulator import Emulator
from tilewright.ops.conv.problem import ConvProblem, channels_first

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

PROBLEMS = (
    ConvProblem(2, 6, 9, (5, 4), (3, 2), 3, (2, 1), before=(1, 0), after=(0, 2)),
    ConvProblem(1, 3, 5, (7,), (3,), dilation=(2,), before=(4,)),
    ConvProblem(2, 4, 8, (3, 3), (1, 1), 4),
    ConvProblem(1, 2, 1, (9, 2), (3, 2), stride=(3, 1)),
)


def first(problem: ConvProblem) -> ConvProblem:
    """The same in channels-first memory."""
    return problem.laid(**{f"{one}_strides": channels_first(getattr(problem, f"{one}_shape")) for one in "xwy"})


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("variant", "more"),
    [
        ("forward", {"dtype": "fp32"}),
        ("backward_data", {"dtype": "fp32"}),
        ("backward_weight", {"dtype": "bf16", "dtype_out": "fp32", "dtype_d": "fp32"}),
        ("forward", {"dtype": "int8", "dtype_out": "int8", "dtype_d": "int8", "epilogue": "MultiDAdd", "num_d": 1}),
        (
            "forward",
            {"dtype": "fp16", "dtype_out": "fp16", "dtype_d": "fp16", "epilogue": "Silu", "num_d": 2, "full_d": 1},
        ),
    ],
)
def test_the_loops_are_right(emulator: Emulator, variant: str, more: dict[str, Any]) -> None:
    problems = [replace(one, variant=variant, **more, x_strides=(), w_strides=(), y_strides=()) for one in PROBLEMS]
    problems += [first(one) for one in problems[:2]]
    if variant == "backward_weight":
        problems.append(replace(problems[0], batch=0, x_strides=(), y_strides=()))  # of no images it is 0
    spec = CONV.fallback_spec(problems[0].signature, "sm_90a")
    assert wrong(emulator, spec, *problems) == []
