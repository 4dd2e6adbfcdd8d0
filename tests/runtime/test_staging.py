"""Copies of operands: right for any shape and strides on host and device, and few calls where dimensions are one."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.runtime import staging
from tilewright.runtime.devices import HOST
from tilewright.runtime.requests import Copy


class Machine:
    """A device whose memory is the host's, and which has what copies need; it counts what it is asked for."""

    place = object()

    def __init__(self) -> None:
        self.calls = 0

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.calls += 1
        ctypes.memset(address, byte, nbytes)

    def copy_rows(self, target: int, target_pitch: int, source: int, pitch: int, width: int, rows: int) -> None:
        self.calls += 1
        assert rows == 1 or (target_pitch >= width and pitch >= width), "the driver refuses such pitches"
        for index in range(rows):
            ctypes.memmove(target + index * target_pitch, source + index * pitch, width)


class OnHost:
    place = HOST


@st.composite
def copies(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A shape, the order of its dimensions in memory with those that repeat left out, and the shape of the copy."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 0]), min_size=1, max_size=5)))
    order = draw(st.permutations(range(len(shape))))
    kept = [one for one in order if draw(st.integers(0, 4))]
    padded = tuple(size + draw(st.sampled_from([0, 0, 1])) for size in shape)
    return shape, tuple(kept), padded


def laid(shape: tuple[int, ...], order: tuple[int, ...], gap: int) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
    """Memory, and the byte strides of an array of 2-byte elements in it."""
    strides, step = [0] * len(shape), 2
    for index in reversed(order):
        strides[index] = step
        step = step * max(1, shape[index]) + gap * 2
    return np.random.default_rng(0).integers(0, 99, step, dtype=np.uint8).astype(np.uint8), tuple(strides)


@example(((3, 1), (), (3, 1)), 0)  # one number, repeated along a dimension that could be taken for the last
@given(copies(), st.integers(0, 1))
def test_what_is_carried_in_is_the_operand_with_zeros_around_it(drawn: Any, gap: int) -> None:
    shape, order, padded = drawn
    memory, strides = laid(shape, order, gap)
    source = np.ndarray(shape, np.uint16, memory.data, 0, strides) if 0 not in shape else np.empty(shape, np.uint16)
    want = np.zeros(padded, np.uint16)
    want[tuple(slice(size) for size in shape)] = source
    one = Copy(0, shape, strides, padded, 2)
    for device in (OnHost(), Machine()):
        made: Any = np.full(padded, 7, np.uint16)
        staging.carry_in(device, one, made.ctypes.data, memory.ctypes.data)  # type: ignore[arg-type]
        assert np.array_equal(made, want), type(device)
    if 0 in strides:
        return
    for device in (OnHost(), Machine()):
        back = np.zeros_like(memory)
        staging.carry_out(device, one, want.ctypes.data, back.ctypes.data)  # type: ignore[arg-type]
        if 0 not in shape:
            assert np.array_equal(np.ndarray(shape, np.uint16, back.data, 0, strides), source)


def test_dimensions_that_are_one_in_memory_are_copied_at_once() -> None:
    shape, device = (3, 5, 4, 2, 6), Machine()
    dense = np.arange(prod(shape), dtype=np.uint16).reshape(shape)
    padded = (*shape[:-1], 8)
    made = np.empty(padded, np.uint16)
    staging.carry_in(device, Copy(0, shape, dense.strides, padded, 2), made.ctypes.data, dense.ctypes.data)  # type: ignore[arg-type]
    assert device.calls == 2  # zeros, and all rows
    assert np.array_equal(made[..., :6], dense)


def test_a_transposition_is_a_call_for_each_of_the_fewer() -> None:
    """Channels-first images to channels-last ones: a call a channel, not one a pixel."""
    n, h, w, c = 2, 9, 11, 3
    memory = np.arange(n * h * w * c, dtype=np.uint16)
    for shape, strides in (((n, h, w, c), (c * h * w, w, 1, h * w)), ((n, c, h, w), (h * w * c, 1, w * c, c))):
        device, made = Machine(), np.empty(shape, np.uint16)
        steps = tuple(2 * one for one in strides)
        staging.carry_in(device, Copy(0, shape, steps, shape, 2), made.ctypes.data, memory.ctypes.data)  # type: ignore[arg-type]
        assert np.array_equal(made, np.ndarray(shape, np.uint16, memory.data, 0, steps))
        assert device.calls == n * c
