"""Padded runs on devices: operands in copies on the stream, over the fake HIP and CUDA runtimes."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_dtypes import bfloat16

import tilewright as tw
from tests.backends.cuda.gemm import names as make
from tests.runtime import fakes
from tests.runtime.fakes import FakeHip, kernel_text
from tilewright import ops
from tilewright.errors import DeviceError, NoKernelError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.runtime import cuda, hip
from tilewright.runtime.device_arrays import DeviceArray

Array = np.ndarray[Any, Any]
GEMM = ops.op("gemm")
GEMM_TILE = (64, 64, 128)
INTS = GemmSignature("standard", "int8", "int8", "int32", "int32", "int32", "rcr")


def edgeless(signature: GemmSignature, arch: str = "gfx942") -> KernelSpec:
    """A kernel that insists on whole tiles of 64x64x128."""
    found = [
        spec
        for spec in GEMM.proposals("tests", arch, layouts=(signature.layout,), datatypes=("int8",))
        if getattr(spec.schedule, "pad", ()) == (False, False, False)
        and spec.schedule.store == "cshuffle"
        and not GEMM.check(spec)
    ]
    spec = dataclasses.replace(found[0], signature=signature)
    assert GEMM.check(spec) == []
    return spec


@pytest.fixture
def registry_of(fake_hip: FakeHip, library_of: Callable[[str], Path]) -> Callable[..., tw.Registry]:
    def made(signature: GemmSignature = INTS, workspace: bool = False) -> tw.Registry:
        spec = edgeless(signature)
        return tw.Registry("gfx942").add_library(library_of(kernel_text(spec, workspace, GEMM_TILE)))

    return made


def random(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(-9, 9, shape, dtype=np.int8)


def there(array: Array) -> DeviceArray:
    return DeviceArray.of(hip.device(), array)


def exact(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.int32) @ b.astype(np.int32))


def view(array: DeviceArray, shape: tuple[int, ...], strides: tuple[int, ...], skip: int = 0) -> DeviceArray:
    made = DeviceArray(array.device, array._memory, shape, strides, array.dtype)
    made.address += skip * array.numpy().itemsize
    return made


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("size", [(33, 17, 40), (2, 3, 2), (65, 129, 129), (64, 64, 7)])
def test_a_kernel_without_edge_code_runs_in_copies(
    registry_of: Callable[..., tw.Registry], layout: str, size: tuple[int, int, int]
) -> None:
    m, n, k = size
    registry = registry_of(dataclasses.replace(INTS, layout=layout))
    assert registry.select(fakes.problem(m, n, k, layout=layout)).tier == "padded"
    a = random(m, k) if layout[0] == "r" else random(k, m).T
    b = random(k, n) if layout[1] == "r" else random(n, k).T
    out = there(np.full((m, n + 3), -1, np.int32))
    part = DeviceArray(out.device, out._memory, (m, n), out.strides, "int32")
    for _ in range(2):
        registry.run("gemm", there(a), there(b), out=part)
    np.testing.assert_array_equal(out.numpy()[:, :n], exact(a, b))
    assert (out.numpy()[:, n:] == -1).all()
    result = registry.run("gemm", there(a), there(b), out_dtype="int32")
    np.testing.assert_array_equal(result.numpy(), exact(a, b))


def test_batches_and_one_matrix_for_all_of_them(registry_of: Callable[..., tw.Registry]) -> None:
    registry = registry_of()
    a, b = random(3, 33, 40), random(3, 17, 40).swapaxes(1, 2)
    result = registry.run("gemm", there(a), there(b), out_dtype="int32")
    np.testing.assert_array_equal(result.numpy(), exact(a, b))
    shared = registry.run("gemm", there(a[:1]), there(b), out_dtype="int32")
    np.testing.assert_array_equal(shared.numpy(), exact(np.broadcast_to(a[:1], a.shape), b))


def test_a_k_of_zero_is_zeros_of_a_longer_k(registry_of: Callable[..., tw.Registry]) -> None:
    registry = registry_of()
    out = there(np.full((5, 6), 9, np.int32))
    a, b = view(there(random(5, 8)), (5, 0), (8, 1)), view(there(random(6, 8)), (0, 6), (1, 8))
    registry.run("gemm", a, b, out=out)
    np.testing.assert_array_equal(out.numpy(), 0)


FUSED = dataclasses.replace(INTS, variant="multi_d", epilogue="MultiDAdd", num_d=2)


def test_d_tensors_that_repeat_or_start_anywhere(registry_of: Callable[..., tw.Registry]) -> None:
    registry = registry_of(FUSED)
    m, n, k = 60, 120, 120  # no whole tiles: everything is copied
    a, b = random(m, k), random(n, k).T
    values = np.arange(m * (n + 1), dtype=np.int32)
    memory = there(values)
    forms = {
        "matrix": (view(memory, (m, n), (n, 1)), values[: m * n].reshape(m, n)),
        "longer rows": (view(memory, (m, n), (n + 1, 1)), values.reshape(m, n + 1)[:, :n]),
        "row": (view(memory, (n,), (1,)), values[:n]),
        "row that starts late": (view(memory, (n,), (1,), skip=1), values[1 : n + 1]),
        "column": (view(memory, (m, 1), (1, 1)), values[:m, None]),
        "column of a matrix": (view(memory, (m, 1), (n, 1)), values[: m * n].reshape(m, n)[:, :1]),
    }
    for first, d0 in forms.values():
        for second, d1 in forms.values():
            result = registry.run(
                "gemm", there(a), there(b), ds=(first, second), epilogue="MultiDAdd", out_dtype="int32"
            )
            np.testing.assert_array_equal(result.numpy(), exact(a, b) + d0 + d1)


def test_column_major_results_are_computed_turned(registry_of: Callable[..., tw.Registry]) -> None:
    registry = registry_of(dataclasses.replace(INTS, layout="rcr"))
    a, b = random(33, 40), random(17, 40).T
    out = DeviceArray.empty(hip.device(), (33, 17), "int32", (1, 33))
    registry.run("gemm", there(a), there(b), out=out)
    np.testing.assert_array_equal(out.numpy(), exact(a, b))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.tuples(*[st.integers(2, 130)] * 3), st.integers(0, 3), st.integers(0, 2), st.sampled_from([1, 2, 3]))
def test_any_size_stride_and_batch(
    registry_of: Callable[..., tw.Registry], size: tuple[int, int, int], extra: int, skip: int, batch: int
) -> None:
    registry = registry_of()
    m, n, k = size
    whole_a, whole_b = random(batch, m, k + extra + skip), random(batch, n, k + extra + skip, seed=4)
    a, b = there(whole_a), there(whole_b)
    left = DeviceArray(a.device, a._memory, (batch, m, k), a.strides, "int8")
    right = DeviceArray(b.device, b._memory, (batch, n, k), b.strides, "int8")
    left.address += skip
    result = registry.run("gemm", left, right.T, out_dtype="int32")
    wanted = exact(whole_a[:, :, skip : skip + k], whole_b[:, :, :k].swapaxes(1, 2))
    np.testing.assert_array_equal(result.numpy(), wanted)


def test_everything_goes_to_the_current_stream_and_nothing_waits(
    fake_hip: FakeHip, registry_of: Callable[..., tw.Registry]
) -> None:
    registry = registry_of(workspace=True)
    a, b = there(random(33, 40)), there(random(17, 40)).T
    out = there(np.zeros((33, 17), np.int32))
    with hip.device().new_stream() as stream:
        registry.run("gemm", a, b, out=out)
        names = ("hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize", "hipMalloc", "hipFree")
        before = [fake_hip.calls(one) for one in names]
        copies = fake_hip.calls("hipMemcpy2DAsync")
        registry.run("gemm", a, b, out=out)
        assert [fake_hip.calls(one) for one in names] == before
        assert fake_hip.calls("hipMemcpy2DAsync") == copies + 3  # A, B and the result
        assert fake_hip.last_stream == stream.handle
        fake_hip.capture(stream.handle)  # a graph may be made of it
        registry.run("gemm", a, b, out=out)
        fake_hip.capture(stream.handle, False)
    np.testing.assert_array_equal(out.numpy(), exact(random(33, 40), random(17, 40).T))
    hip.device().drop_workspaces()
    stream.close()
    del a, b, out
    gc.collect()
    assert fake_hip.alive == (0, 0, 0)


def test_copies_that_do_not_fit_are_one_error_and_leave_the_plan_usable(
    fake_hip: FakeHip, registry_of: Callable[..., tw.Registry]
) -> None:
    registry = registry_of()
    a, b = there(random(33, 40)), there(random(17, 40)).T
    out = there(np.zeros((33, 17), np.int32))
    fake_hip.capacity(10_000)
    with pytest.raises(DeviceError) as caught:
        registry.run("gemm", a, b, out=out)
    assert caught.value.rule == "device-memory"
    assert fake_hip.calls("hipLaunchKernel") == 0
    fake_hip.capacity(1 << 20)
    fake_hip.fail("hipMemcpy2DAsync", 1, after=1)
    with pytest.raises(DeviceError, match="hipMemcpy2DAsync failed"):
        registry.run("gemm", a, b, out=out)
    registry.run("gemm", a, b, out=out)
    np.testing.assert_array_equal(out.numpy(), exact(random(33, 40), random(17, 40).T))


def test_strict_mode_refuses_copies(registry_of: Callable[..., tw.Registry]) -> None:
    with pytest.raises(NoKernelError, match="strict"):
        registry_of().select(fakes.problem(), strict=True)


def test_cuda_copies_what_a_kernel_cannot_read(fake_cuda: ctypes.CDLL, library_of: Callable[[str], Path]) -> None:
    signature = GemmSignature("standard", "bf16", "bf16", "fp32", "fp32", "fp32", "rcr")
    spec = KernelSpec("gemm", signature, make.skinny(4, 1, 4), "sm_90a")
    assert GEMM.check(spec) == []
    text = kernel_text(spec, workspace=True, grains=(1, 1, 8), queue="fake_cuda_launch", clear=64)
    registry = tw.Registry("sm_90a").add_library(library_of(text))
    a, b = random(5, 41).astype(bfloat16), random(17, 41).astype(bfloat16)
    one = cuda.device()
    left, right = DeviceArray.of(one, a), DeviceArray.of(one, b)
    problem = tw.GemmProblem(5, 17, 41, "bf16", dtype_c="fp32", layout="rcr")
    assert (registry.select(problem).tier, registry.select(problem).padded.k) == ("padded", 48)
    with one.new_stream() as stream:
        out = DeviceArray.of(one, np.zeros((5, 17), np.float32))
        registry.run("gemm", left, right.T, out=out)
        waits = [fake_cuda.fake_cuda_calls(name) for name in (b"cuStreamSynchronize", b"cuMemAlloc")]
        copies = fake_cuda.fake_cuda_calls(b"cuMemcpy2DAsync")
        registry.run("gemm", left, right.T, out=out)
        assert [fake_cuda.fake_cuda_calls(name) for name in (b"cuStreamSynchronize", b"cuMemAlloc")] == waits
        assert fake_cuda.fake_cuda_calls(b"cuMemcpy2DAsync") == copies + 3
    np.testing.assert_array_equal(out.numpy(), a.astype(np.float32) @ b.astype(np.float32).T)
    # The zeros in front of the copies are as kernels must find them.
    held = one._workspaces[stream.handle]
    assert held.cleared >= 64
    assert bytes((ctypes.c_char * held.cleared).from_address(held.address - held.cleared)) == bytes(held.cleared)
