"""The cache of tensor maps in the host's half of a CUDA kernel, against the fake driver."""

from __future__ import annotations

import ctypes
import shutil
import threading
from contextvars import copy_context
from pathlib import Path

import numpy as np
import pytest

from tests.backends.cuda.gemm import names as make
from tilewright.backends.cuda import toolchain
from tilewright.build import build_one
from tilewright.dispatch.registry import Registry
from tilewright.errors import ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import cuda
from tilewright.runtime.device_arrays import DeviceArray

pytestmark = pytest.mark.tools  # a CUDA compiler

ROWS, COLUMNS = 64, 64
ADDRESS = 0x5000_0000_0000


@pytest.fixture
def registry(fake_cuda: ctypes.CDLL, tmp_path: Path) -> Registry:
    """Of one kernel, whose library is a copy of this test's own: its cache of maps starts empty."""
    try:
        toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}")
    signature = GemmProblem(ROWS, ROWS, COLUMNS, "bf16", layout="rcr").signature
    schedule = make.tma_ws(signature, 128, 128, 4, (1, 1))
    built = build_one(KernelSpec("gemm", signature, schedule, "sm_90a")).path
    return Registry("sm_90a").add_library(shutil.copy(built, tmp_path / "own.so"))


def many(count: int) -> list[DeviceArray]:
    """Matrices one after the other in one piece of memory, as the weights of many layers are.

    Where a map is kept depends on the address, so these are the same in every run.  Nobody reads there.
    """
    whole = DeviceArray.empty(cuda.device(), (ROWS, COLUMNS), "bf16")
    start = ADDRESS + (count << 32)
    made = []
    for index in range(count):
        one = DeviceArray(whole.device, whole._memory, (ROWS, COLUMNS), (COLUMNS, 1), "bf16")
        one.address = start + index * ROWS * COLUMNS * 2
        made.append(one)
    return made


def test_a_loop_over_hundreds_of_weights_encodes_each_once(fake_cuda: ctypes.CDLL, registry: Registry) -> None:
    a, out = many(2)
    weights = many(400)

    def encoded() -> int:
        return int(fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled"))

    registry.run("gemm", a, weights[0].T, out=out)
    before = encoded()
    for one in weights:
        registry.run("gemm", a, one.T, out=out)
    assert encoded() == before + len(weights) - 1
    before = encoded()
    for one in (*weights, *reversed(weights)):
        registry.run("gemm", a, one.T, out=out)
    assert encoded() == before


def test_more_matrices_than_places_still_run(fake_cuda: ctypes.CDLL, registry: Registry) -> None:
    a, out = many(2)
    launches = int(fake_cuda.fake_cuda_calls(b"cuLaunchKernelEx"))
    weights = many(3000)
    for one in weights:
        registry.run("gemm", a, one.T, out=out)
    assert fake_cuda.fake_cuda_calls(b"cuLaunchKernelEx") == launches + len(weights)
    before = fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled")
    registry.run("gemm", a, weights[-1].T, out=out)
    assert fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled") == before


def test_a_matrix_of_another_size_at_the_same_address_has_its_own_map(
    fake_cuda: ctypes.CDLL, registry: Registry
) -> None:
    a, b, out = many(3)
    registry.run("gemm", a, b.T, out=out)
    before = fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled")
    short = DeviceArray(b.device, b._memory, (ROWS // 2, COLUMNS), (COLUMNS, 1), "bf16")
    short.address = b.address
    narrow = DeviceArray(out.device, out._memory, (ROWS, ROWS // 2), (ROWS, 1), "bf16")
    narrow.address = out.address
    registry.run("gemm", a, short.T, out=narrow)
    assert fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled") == before + 2  # of B and of E


def test_threads_share_the_maps(fake_cuda: ctypes.CDLL, registry: Registry) -> None:
    a, out = many(2)
    weights = many(100)
    registry.run("gemm", a, weights[0].T, out=out)
    errors: list[Exception] = []

    def work(seed: int) -> None:
        try:
            for index in np.random.default_rng(seed).integers(0, len(weights), 300):
                registry.run("gemm", a, weights[index].T, out=out)
        except Exception as error:  # told by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=copy_context().run, args=(work, seed)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    before = fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled")
    for one in weights:
        registry.run("gemm", a, one.T, out=out)
    assert fake_cuda.fake_cuda_calls(b"cuTensorMapEncodeTiled") == before
