"""Operands made up for a problem: random values, poisoned outputs, the memory laid out as the problem says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.dtypes import DTYPES
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.numerics import NARROW_BITS
from tilewright.runtime.bindings.gemm.request import MATHS
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import Device
from tilewright.runtime.numpy_types import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]


def _random(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if DTYPES[dtype].kind == "int":
        high = 127 if dtype == "int8" else 1000
        return generator.integers(-high, high, shape, dtype=np.int32, endpoint=True).astype(numpy_dtype(dtype))
    # Values of order one keep every output type in its range at the usual sizes of k.
    values = generator.standard_normal(shape, dtype=np.float32)
    return values if dtype == "fp32" else values.astype(numpy_dtype(dtype))


def _memory(generator: np.random.Generator, batch: int, lines: int, stride: int, dtype: str) -> Array:
    return _random(generator, (batch, lines, stride), dtype)


def may_be_narrow(problem: GemmProblem) -> bool:
    """Whether some kernels of the problem's signature keep too few bits of a sum to be judged by random values."""
    return problem.dtype_a.startswith("fp8") and problem.dtype_b.startswith("fp8")


def _exact(generator: np.random.Generator, shape: tuple[int, ...], dtype: str, k: int) -> Array:
    """1 and 2 of either sign among zeros, so few of them that |A||B| stays well below 2^NARROW_BITS."""
    # The mean of |a||b| is 2.25 times the square of the share that is not 0.
    share = min(1.0, math.sqrt(2.0 ** (NARROW_BITS - 1) / (2.25 * max(1, k))))
    values = generator.choice(np.array([-2.0, -1.0, 1.0, 2.0], np.float32), shape)
    values[generator.random(shape, np.float32) >= share] = 0.0
    return values.astype(numpy_dtype(dtype))


def operands(problem: GemmProblem, seed: int = 0, exact: bool = False) -> dict[str, Any]:
    """Memory of each operand as (batch, lines, leading stride); scalars; an output full of NaN (or -1 bits).

    `exact`: where sums may be narrow, values whose sums no kernel has to cut.
    """
    p = problem
    generator = np.random.default_rng(seed)
    lines_a, lines_b = (p.m if p.layout[0] == "r" else p.k), (p.k if p.layout[1] == "r" else p.n)
    made: dict[str, Any] = {
        "a": _memory(generator, 1 if p.broadcast_a else p.batch, lines_a, p.a_stride, p.dtype_a),
        "b": _memory(generator, 1 if p.broadcast_b else p.batch, lines_b, p.b_stride, p.dtype_b),
        "c": _memory(generator, p.batch, p.m, p.c_stride, p.dtype_c),
        "ds": [_memory(generator, p.batch, p.m, p.n, p.dtype_d) for _ in range(p.num_d)],
        "out": np.empty((p.batch, p.m, p.c_stride), numpy_dtype(p.dtype_c)),
        "alpha": 1.0,
        "beta": 1.0 if p.beta else 0.0,
    }
    if exact and may_be_narrow(p):
        made["a"] = _exact(generator, made["a"].shape, p.dtype_a, p.k)
        made["b"] = _exact(generator, made["b"].shape, p.dtype_b, p.k)
    poison(made["out"])
    return made


def poison(out: Array | DeviceArray) -> None:
    """Every byte 0xff: NaN in every float type, -1 in the integers; what a kernel skips shows."""
    if isinstance(out, DeviceArray):
        out.fill(0xFF)
    else:
        out.view(np.uint8)[...] = 0xFF


_ARRAYS = ("a", "b", "c", "out")


def on_device(made: Mapping[str, Any], device: Device) -> dict[str, Any]:
    """The same operands in the memory of a device."""
    moved = {name: DeviceArray.of(device, made[name]) for name in _ARRAYS}
    return {**made, **moved, "ds": [DeviceArray.of(device, one) for one in made["ds"]]}


def on_host(made: Mapping[str, Any]) -> Mapping[str, Any]:
    """The operands as NumPy arrays, read back where they are on a device."""
    if not isinstance(made["out"], DeviceArray):
        return made
    return {**made, **{name: made[name].numpy() for name in _ARRAYS}, "ds": [one.numpy() for one in made["ds"]]}


def _plain(memory: Any, letter: str, rows: int, columns: int) -> Any:
    if isinstance(memory, DeviceArray):
        shape = (memory.shape[0], *((rows, columns) if letter == "r" else (columns, rows)))
        there = memory.view(shape, memory.strides)
        return there if letter == "r" else there.T
    return memory[:, :rows, :columns] if letter == "r" else memory[:, :columns, :rows].swapaxes(1, 2)


def logical(problem: GemmProblem, made: Mapping[str, Any]) -> dict[str, Any]:
    """The operands as matrices, for the reference: a (batch, m, k), b (batch, k, n), c and ds (batch, m, n)."""
    p = problem
    return {
        "a": _plain(made["a"], p.layout[0], p.m, p.k),
        "b": _plain(made["b"], p.layout[1], p.k, p.n),
        "c": _plain(made["c"], "r", p.m, p.n) if p.beta else None,
        "ds": tuple(made["ds"]),
        "alpha": made["alpha"],
        "beta": made["beta"],
    }


def result(problem: GemmProblem, made: Mapping[str, Any]) -> Any:
    return _plain(made["out"], "r", problem.m, problem.n)


def call_arguments(problem: GemmProblem, made: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands as a call takes them: positions and keywords.  A batch of 1 is not spelled out."""
    p, matrices = problem, logical(problem, made)

    def flat(one: Any) -> Any:
        if p.batch != 1 and not one.shape[0] == 1 < p.batch:
            return one
        return one.view(one.shape[1:], one.strides[1:]) if isinstance(one, DeviceArray) else one[0]

    c = None if matrices["c"] is None else flat(matrices["c"])
    keywords = {
        "alpha": made["alpha"],
        "beta": made["beta"],
        "ds": tuple(flat(one) for one in made["ds"]),
        "epilogue": p.epilogue,
        "out": flat(result(p, made)),
    }
    if p.dtype_a in MATHS:
        keywords["math"] = p.dtype_a
    return (flat(matrices["a"]), flat(matrices["b"]), c), keywords
