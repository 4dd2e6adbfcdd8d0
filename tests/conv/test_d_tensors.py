"""D tensors as kernels of GPUs read them: one number a channel, or like y; copies make that of any other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tilewright.ops.conv import ConvProblem
from tilewright.runtime import devices, staging
from tilewright.runtime.arrays import View
from tilewright.runtime.bindings.conv import dense
from tilewright.runtime.bindings.conv.operands import D0, Operand


def problem_of(draw: random.Random) -> ConvProblem:
    size = tuple(draw.choice((1, 1, 2, 3)) for _ in range(draw.choice((1, 2, 3))))
    groups = draw.choice((1, 2))
    return ConvProblem(
        draw.choice((1, 2)), 8, groups * draw.choice((1, 3, 8)), size, (1,) * len(size), groups=groups, num_d=1
    )


def given(draw: random.Random, problem: ConvProblem) -> Any:
    """An array that broadcasts to y, some with gaps between what counts."""
    shape = tuple(draw.choice((1, size)) for size in problem.y_shape)
    if draw.random() < 0.3:
        shape = (*(1,) * (len(shape) - 1), problem.filters)
    wide = np.arange(np.prod(shape) * 2 ** len(shape), dtype=np.float32).reshape([2 * size for size in shape])
    return wide[tuple(slice(None, None, draw.choice((1, 2))) for _ in shape)][tuple(slice(size) for size in shape)]


def operand_of(problem: ConvProblem, array: Any) -> Operand:
    steps = tuple(one // array.itemsize for one in array.strides)
    view = View("ds[0]", int(array.ctypes.data), array.shape, steps, "fp32", False, array)
    return Operand.of(D0, view, "nhwc").spread(problem.y_shape)


def seen(stage: Any, address: int) -> Any:
    """What a kernel reads of D: in its copy where there is one, at the strides of the arguments."""
    problem, memory = stage.problem, None
    for copy in stage.copies:
        memory = np.full(copy.nbytes // copy.itemsize, np.nan, np.float32)
        staging.carry_in(devices.device(devices.HOST), copy, int(memory.ctypes.data), address)
        address = int(memory.ctypes.data)
    five = list(stage.args.d_strides[0])
    strides = (five[0], *five[len(five) - len(problem.y_shape) + 1 :])
    found = staging._strided(address, problem.y_shape, [4 * one for one in strides], 4).view(np.float32)
    return np.array(found), strides


@pytest.mark.parametrize("seed", range(60))
def test_gpus_read_what_was_given(seed: int) -> None:
    draw = random.Random(seed)
    problem = problem_of(draw)
    array = given(draw, problem)
    one = operand_of(problem, array)
    stage = dense.with_ds(dense.stage(problem), [dense.DTensor(D0, one.strides)], for_gpu=True)
    found, strides = seen(stage, int(array.ctypes.data))
    assert np.array_equal(found, np.broadcast_to(array, problem.y_shape))
    # As conv_host_tma_ws.h asks it.
    shape, apart = problem.y_shape, strides[-2]
    assert strides[-1] == 1
    for size, more, stride in zip(reversed(shape[1:-1]), reversed(shape[:-2]), reversed(strides[:-2]), strict=True):
        apart *= size
        assert more == 1 or stride == apart


def test_one_number_a_channel_repeats_over_one_pixel_too() -> None:
    """An H200 refused y of width 1: the stride along it said that pixels lie apart."""
    problem = ConvProblem(1, 8, 4, (5, 1), (1, 1), num_d=1)
    one = operand_of(problem, np.zeros((1, 1, 1, 4), np.float32))
    assert one.strides == (0, 0, 0, 1)
