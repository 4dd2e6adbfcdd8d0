"""Calls on arrays of a CUDA device against a fake driver: packing, tf32, the command line, and mistakes in operands."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright import api
from tilewright.backends.cuda import driver as cuda_driver
from tilewright.backends.cuda import toolchain
from tilewright.cli.main import build_app
from tilewright.errors import DeviceError, ProblemError, ToolchainError
from tilewright.runtime import cuda
from tilewright.runtime.device_arrays import DeviceArray

pytestmark = pytest.mark.tools  # a CUDA compiler


def needs_compiler() -> None:
    try:
        toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}")


def there(array: np.ndarray[Any, Any]) -> DeviceArray:
    return DeviceArray.of(cuda.device(), array)


def ones(*shape: int) -> DeviceArray:
    return there(np.ones(shape, ml_dtypes.bfloat16))


def floats(*shape: int) -> DeviceArray:
    return there(np.ones(shape, np.float32))


def launched(fake_cuda: ctypes.CDLL) -> str:
    return str(fake_cuda.fake_cuda_function().decode())


def test_b_is_packed_where_it_is(fake_cuda: ctypes.CDLL) -> None:
    needs_compiler()
    packed = tw.pack(ones(48, 128).T)  # the target is that of its device
    assert launched(fake_cuda).endswith("_pack")
    assert packed.shape.place == cuda.device().place
    assert tw.gemm(ones(64, 128), packed).shape == (64, 48)
    assert "preshuffle" in launched(fake_cuda)


def test_prepared_kernels_are_loaded_before_the_first_call(fake_cuda: ctypes.CDLL) -> None:
    needs_compiler()
    report = tw.prepare("gemm", m=[64, 96], n=48, k=128, datatype="bf16", layout="rcr", target="sm_90a", loss=5.0)
    loads = fake_cuda.fake_cuda_calls(b"cuModuleLoadData")
    assert loads == len(report.kernels)
    assert fake_cuda.fake_cuda_calls(b"cuLaunchKernelEx") >= 1  # the smallest problem was run
    assert cuda.device().workspaces
    with tw.settings.override(missing="best_built"):
        assert tw.gemm(ones(96, 128), ones(48, 128).T).shape == (96, 48)
    assert fake_cuda.fake_cuda_calls(b"cuModuleLoadData") == loads


def test_tf32_is_packed_and_used_where_asked_for(fake_cuda: ctypes.CDLL) -> None:
    needs_compiler()
    a, b = floats(64, 128), floats(48, 128)
    packed = tw.pack(b.T, dtype_a="tf32")
    assert "tf32" in launched(fake_cuda)
    assert tw.gemm(a, packed, math="tf32").shape == (64, 48)
    assert "tf32_to_fp32_rcr_preshuffle" in launched(fake_cuda)
    with pytest.raises(ProblemError, match="packed for tf32 inputs, and a holds fp32") as caught:
        tw.gemm(a, packed)  # exact unless asked
    assert "math='tf32'" in caught.value.remedy
    with pytest.raises(ProblemError, match="is to be multiplied as tf32") as other:
        tw.gemm(a, tw.pack(ones(48, 128).T), math="tf32")
    assert other.value.rule == "packed-dtype"


def test_a_packed_b_without_k_is_multiplied_too(fake_cuda: ctypes.CDLL) -> None:
    needs_compiler()
    packed = tw.pack(ones(0, 48))
    assert packed.nbytes == 0
    assert tw.gemm(ones(64, 0), packed).shape == (64, 48)
    assert "preshuffle" not in launched(fake_cuda)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--datatype", "bf16", "--layout", "rcr"), "bf16_rcr"),
        (("--datatype", "bf16", "--layout", "crr", "--batch", "2", "--a-stride", "80"), "bf16_crr"),
        (("--datatype", "tf32", "--layout", "rcr"), "tf32_to_fp32_rcr"),
        (("--datatype", "tf32", "--layout", "rcr", "--preshuffle"), "tf32_to_fp32_rcr_preshuffle"),
        (("--datatype", "bf16", "--epilogue", "relu", "--num-d", "1", "--beta", "1"), "bf16_rrr_Relu_d1"),
    ],
)
def test_run_runs_on_the_device(fake_cuda: ctypes.CDLL, words: tuple[str, ...], name: str) -> None:
    needs_compiler()
    sizes = ("--m", "64", "--n", "48", "--k", "64", "--target", "sm_90a", "--repeat", "1")
    done = CliRunner().invoke(build_app(), ["run", "gemm", *sizes, *words])
    assert done.exit_code == 0, done.output
    assert f"gemm_{name}" in launched(fake_cuda)
    assert fake_cuda.fake_cuda_calls(b"cuCtxSynchronize") >= 2  # a time without the work would be none


@pytest.mark.parametrize("capability", [70, 75])
def test_arrays_on_a_gpu_of_another_arch(fake_cuda: ctypes.CDLL, capability: int) -> None:
    fake_cuda.fake_cuda_devices(1, capability)
    a = ones(4, 8)
    with pytest.raises(DeviceError, match=rf"cuda:0 \(Fake H200\) is of arch sm_{capability}") as caught:
        api.arch_of(a.place)
    assert caught.value.rule == "arch-not-runnable"
    assert "sm_80, sm_86, sm_89, sm_90a" in caught.value.remedy


def part(whole: DeviceArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> DeviceArray:
    made = whole.view(shape, strides)
    made.address += offset
    return made


def test_views_that_overlap_lie_across_elements_or_have_no_rows(fake_cuda: ctypes.CDLL) -> None:
    needs_compiler()
    whole, b = ones(128, 64), ones(64, 64)
    a = part(whole, (64, 64), (64, 1))
    mistakes: dict[str, Callable[[], object]] = {
        "out-overlaps": lambda: tw.gemm(a, b, out=part(whole, (64, 64), (64, 1), 2 * 64 * 32)),
        "out-overlaps-itself": lambda: tw.gemm(a, b, out=part(ones(128, 64), (64, 64), (8, 1))),
        "array-alignment": lambda: tw.gemm(part(whole, (64, 64), (64, 1), 1), b),
        "layout": lambda: tw.gemm(part(whole, (32, 32), (64, 2)), part(b, (32, 32), (64, 1))),
    }
    before = fake_cuda.fake_cuda_calls(b"cuLaunchKernelEx")
    for rule, wrong in mistakes.items():
        with pytest.raises(ProblemError) as caught:
            wrong()
        assert rule in caught.value.rule, (rule, caught.value)
        assert caught.value.remedy
    assert fake_cuda.fake_cuda_calls(b"cuLaunchKernelEx") == before
    assert tw.gemm(a, b, out=part(whole, (64, 64), (64, 1), 2 * 64 * 64)).shape == (64, 64)  # beside it is fine


@pytest.mark.parametrize("code", [714, 715, 717, 718, 719])
def test_every_error_that_sticks_is_known_as_one(fake_cuda: ctypes.CDLL, code: int) -> None:
    one = cuda.device()
    fake_cuda.fake_cuda_fail(b"cuStreamSynchronize", code)
    stream = one.new_stream()
    with pytest.raises(DeviceError, match="answers nothing else in this process") as caught:
        stream.synchronize()
    assert caught.value.rule == "device-lost"
    cuda_driver.forget()


def test_too_little_memory_for_a_result_leaves_the_process_usable(fake_cuda: ctypes.CDLL) -> None:
    needs_compiler()
    a, b = ones(4096, 64), ones(64, 4096)
    small = ones(8, 64)
    fake_cuda.fake_cuda_capacity(8 << 20)  # less than the workspace we would like to have, too
    with pytest.raises(DeviceError, match="CUDA_ERROR_OUT_OF_MEMORY") as caught:
        tw.gemm(a, b)
    assert caught.value.rule == "device-memory"
    assert tw.gemm(small, part(b, (64, 8), (4096, 1))).shape == (8, 8)
