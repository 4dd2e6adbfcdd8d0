"""What the selection library says of one kernel: why it refuses a problem, and what it is estimated to take."""

from __future__ import annotations

import ctypes
import math
import struct
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.native.judge import Judge, judge, native_kernels
from tilewright.native.library import library
from tilewright.ops.base import KernelSpec, Violation

_ALL = np.ones(1, bool)


@lru_cache(maxsize=4096)
def _known(spec: KernelSpec) -> Judge:
    known = judge((spec,), (0,))
    if known is None:
        raise LookupError(spec)  # not kept: with another compiler there may be a library
    return known


def _judge(spec: KernelSpec) -> Judge | None:
    try:
        return _known(spec)
    except LookupError:
        return None


def refusals(spec: KernelSpec, problem: Any) -> list[Violation]:
    """The rule that a problem breaks; none where there is no library: the kernel's own check then says no."""
    mine = _judge(spec)
    if mine is None:
        return []
    address = int(mine.ask(problem, 1).rules[0])
    return [mine.violation(0, address, problem)] if address else []


def seconds(spec: KernelSpec, problem: Any, threads: int) -> float:
    """Infinite where there is no library."""
    mine = _judge(spec)
    return math.inf if mine is None else float(mine.estimates(problem, threads, _ALL)[0])


_NUMBER = (ctypes.c_char_p, ctypes.c_double, ctypes.c_void_p)


def number(spec: KernelSpec, function: str, problem: Any, value: float) -> float | None:
    """What `void function(const Problem *, double value, double *answer)` of the library answers; None without one."""
    kernels = native_kernels((spec,))
    native = library(kernels) if kernels is not None else None
    native_number = native.function(function, _NUMBER) if native is not None else None
    if kernels is None or native_number is None:
        return None
    packed, answer = struct.pack(f"={len(kernels.problem_names)}q", *kernels.problem(problem)), ctypes.c_double()
    native_number(packed, value, ctypes.addressof(answer))
    return answer.value


def call(spec: KernelSpec, problem: Any, function: str) -> int:
    """What a function of the library's own answers of a kernel and a problem; 0 where there is no library."""
    mine = _judge(spec)
    return 0 if mine is None else mine.call(function, problem)
