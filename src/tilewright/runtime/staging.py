"""Copies of operands for kernels that cannot take them as they are: padded with zeros, dense, in the workspace.

Of any rank, on the host and on devices.  On a device everything is queued on the current stream and nothing waits:
fills, copies of rows, doublings of what repeats.  So a call can be captured into a graph once it has run on the stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.runtime.devices import HOST, Device
from tilewright.runtime.requests import BETWEEN, Copy, Pointer, StageRequest

ALIGNMENT = 256


def up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def lay_out(stage: StageRequest) -> tuple[StageRequest, int]:
    """The stage with a place for each of its copies in the workspace, and the bytes they take together."""
    total, placed = 0, []
    for copy in stage.copies:
        placed.append(replace(copy, at=total))
        total += up(copy.nbytes)
    return replace(stage, copies=tuple(placed)), total


def copied_pointers(stage: StageRequest) -> dict[int, Copy]:
    return {copy.pointer: copy for copy in stage.copies}


def source_of(pointer: Pointer, addresses: Sequence[int], between: int, turn: Sequence[int]) -> int:
    """The address of a pointer in one iteration of the stage's loops."""
    start = between if pointer.slot == BETWEEN else addresses[pointer.slot]
    return start + pointer.shift + sum(index * step for index, step in zip(turn, pointer.steps, strict=False))


def dense_steps(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    steps, step = [], itemsize
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def carry_in(device: Device, copy: Copy, target: int, source: int) -> None:
    """Fill a copy from its operand."""
    if device.place is HOST:
        into = _strided(target, copy.padded, dense_steps(copy.padded, copy.itemsize), copy.itemsize)
        if copy.shape != copy.padded:
            into[...] = 0
        if 0 not in copy.shape:
            into[tuple(slice(size) for size in copy.shape)] = _strided(source, copy.shape, copy.strides, copy.itemsize)
        return
    if copy.shape != copy.padded:
        device.fill(target, 0, copy.nbytes)
    if 0 in copy.shape:
        return
    steps = dense_steps(copy.padded, copy.itemsize)
    columns = copy.shape[-1] if copy.strides[-1] else 1
    _copy(device, (target, steps), (source, copy.strides), (*copy.shape[:-1], columns), copy.itemsize)
    if columns < copy.shape[-1]:  # one element a row: repeated along all rows at once, padding too
        _repeat_columns(device, target, copy)


def carry_out(device: Device, copy: Copy, source: int, target: int) -> None:
    """What was computed in a copy goes to its operand."""
    if 0 in copy.shape:
        return
    steps = dense_steps(copy.padded, copy.itemsize)
    if device.place is HOST:
        result = _strided(source, copy.shape, steps, copy.itemsize)
        _strided(target, copy.shape, copy.strides, copy.itemsize)[...] = result
    else:
        _copy(device, (target, copy.strides), (source, steps), copy.shape, copy.itemsize)


def _strided(address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> np.ndarray[Any, Any]:
    """Memory as an array of elements of that size; along negative strides it is before the address."""
    if 0 in shape:
        return np.empty(tuple(shape), f"u{itemsize}")
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    before = -sum(min(0, step) for step in steps)
    memory = (ctypes.c_char * (before + sum(max(0, step) for step in steps) + itemsize)).from_address(address - before)
    return np.ndarray(tuple(shape), f"u{itemsize}", memoryview(memory), before, tuple(strides))


_Strided = tuple[int, Sequence[int]]  # address and byte strides


def _copy(device: Device, to: _Strided, origin: _Strided, shape: Sequence[int], itemsize: int) -> None:
    """A strided array into another; what repeats in the source is copied once and doubled, so `to` is dense there."""
    (target, steps), (source, strides) = to, origin
    shape, steps, strides = _merged(shape, steps, strides)
    if len(shape) > 2:
        count, step = (shape[0], strides[0]) if strides[0] else (1, 0)
        for index in range(count):
            inner_to, inner_of = (target + index * steps[0], steps[1:]), (source + index * step, strides[1:])
            _copy(device, inner_to, inner_of, shape[1:], itemsize)
        if count < shape[0]:
            _double(device, target, steps[0], shape[0])
        return
    if len(shape) < 2:
        steps, strides, shape = (0, *steps), (0, *strides), (1, *shape) if shape else (1, 1)
        steps, strides = (*steps, itemsize)[:2], (*strides, itemsize)[:2]
    rows, columns = shape
    contiguous = columns == 1 or (strides[1] == itemsize and steps[1] == itemsize)
    done = rows if strides[0] or rows == 1 else 1
    if contiguous and (done == 1 or strides[0] >= columns * itemsize):
        device.copy_rows(target, steps[0], source, strides[0], columns * itemsize, done)
    elif contiguous:  # rows that overlap
        for index in range(done):
            at, start = target + index * steps[0], source + index * strides[0]
            device.copy_rows(at, steps[0], start, strides[0], columns * itemsize, 1)
    elif done < columns:  # element by element along the shorter side, all of the other at once
        for index in range(done):
            at, start = target + index * steps[0], source + index * strides[0]
            device.copy_rows(at, steps[1], start, strides[1], itemsize, columns)
    else:
        for index in range(columns):
            at, start = target + index * steps[1], source + index * strides[1]
            device.copy_rows(at, steps[0], start, strides[0], itemsize, done)
    if done < rows:
        _double(device, target, steps[0], rows)


def _merged(
    shape: Sequence[int], steps: Sequence[int], strides: Sequence[int]
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Neighbouring dimensions that are one in both arrays as one: each costs a call an index.  What repeats is not."""
    sizes, to, from_steps = [shape[0]] if shape else [], list(steps[:1]), list(strides[:1])
    for size, step, stride in zip(shape[1:], steps[1:], strides[1:], strict=True):
        if stride and to[-1] == step * size and from_steps[-1] == stride * size:
            sizes[-1], to[-1], from_steps[-1] = sizes[-1] * size, step, stride
        else:
            sizes.append(size)
            to.append(step)
            from_steps.append(stride)
    return sizes, to, from_steps


def _double(device: Device, at: int, step: int, count: int) -> None:
    """Fill `count` places that follow each other with the first, twice as many with each copy."""
    done = 1
    while done < count:
        more = min(done, count - done)
        device.copy_rows(at + done * step, more * step, at, more * step, more * step, 1)
        done += more


def _repeat_columns(device: Device, at: int, copy: Copy) -> None:
    """Every row of the copy is its first element, so often as the operand is wide."""
    size, columns = copy.itemsize, copy.shape[-1]
    pitch = copy.padded[-1] * size
    rows = copy.nbytes // pitch
    done = 1
    while done < columns:
        more = min(done, columns - done)
        device.copy_rows(at + done * size, pitch, at, pitch, more * size, rows)
        done += more
