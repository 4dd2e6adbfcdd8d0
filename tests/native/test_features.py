"""What learned models see, from the selection library: of some kernels the same as of all, and a problem's own work."""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

import numpy as np
import pytest

from tests.native import drawn_conv, drawn_gemm
from tilewright import ops
from tilewright.native.features import Features
from tilewright.native.judge import native_kernels
from tilewright.native.library import library

DRAWN: dict[str, Any] = {"gemm": drawn_gemm, "conv": drawn_conv}
COUNT, KERNELS = 300, 11


def _native(op: str, target: str) -> tuple[Any, Any]:
    signature = ops.op(op).signature_of(DRAWN[op].problem(random.Random(1), target))
    kernels = native_kernels(tuple(ops.op(op).candidates(signature, target)))
    native = library(kernels) if kernels is not None else None
    if native is None:
        pytest.skip("the selection library cannot be had here")
    return kernels, native


def _packed(kernels: Any, problem: Any) -> bytes:
    return struct.pack(f"={len(kernels.problem_names)}q", *kernels.problem(problem))


@pytest.mark.parametrize("target", ["x86_64_v3", "sm_90a"])
@pytest.mark.parametrize("op", DRAWN)
def test_bytes_and_operations_are_the_problem_s(op: str, target: str) -> None:
    kernels, native = _native(op, target)
    of_problem = native.function("tw_select_problem_features", (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p))
    of_problem.restype = ctypes.c_double
    seen = np.zeros(64, np.float32)
    draw = random.Random(20261118)
    for _ in range(COUNT):
        problem = DRAWN[op].problem(draw, target)
        parts = ctypes.c_double * 3
        told = [
            of_problem(_packed(kernels, problem), parts(*weights), seen.ctypes.data)
            for weights in ((7, 0, 0), (0, 1, 0), (0, 0, 1))
        ]
        assert told == [7.0, float(problem.bytes), float(problem.flops)], problem


@pytest.mark.parametrize("op", DRAWN)
def test_some_kernels_have_the_features_they_have_among_all(op: str) -> None:
    kernels, native = _native(op, "sm_90a")
    described, draw = kernels.features, random.Random(7)
    rows = {"spans": 4, "parts": 8}
    fields: dict[str, Any] = {
        name: np.array([[draw.randint(1, 64) for _ in range(KERNELS)] for _ in range(rows.get(name, 1))]).squeeze()
        for name in described.terms
    } | {name: np.array([draw.randint(0, 1) for _ in range(KERNELS)]) for name in described.switches}
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    functions = (
        native.function("tw_select_features", (ctypes.c_char_p, pointer, size, size, pointer, pointer)),
        native.function("tw_select_problem_features", (pointer, pointer, pointer)),
        native.function("tw_select_kernel_features", (ctypes.c_char_p, pointer, size, size, pointer, size, pointer)),
    )
    features = Features(functions, kernels, described, fields, KERNELS, 132)
    of_problem, count = np.zeros(64, np.float32), len(described.columns[1])
    for _ in range(20):
        problem = DRAWN[op].problem(draw, "sm_90a")
        every, some = np.full((count, KERNELS), np.nan), np.full((count, KERNELS), np.nan)
        features.fill(problem, of_problem.ctypes.data, every.ctypes.data)
        near = np.array(sorted(draw.sample(range(KERNELS), draw.randint(1, KERNELS))), np.int64)
        packed, terms = _packed(kernels, problem), features.places[2]
        functions[2](packed, terms, KERNELS, 132, near.ctypes.data, len(near), some.ctypes.data)
        np.testing.assert_array_equal(some[:, : len(near)], every[:, near])
        assert np.isnan(some[:, len(near) :]).all()
