"""The whole path of a CUDA kernel against a fake driver: devices, memory, launches as the driver would see them,
and every error that needs no GPU."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.backends.cuda.gemm import names as make
from tests.backends.cuda.gemm.names import multistage
from tilewright import ops, settings
from tilewright.arch import arch
from tilewright.backends.cuda import driver as cuda_driver
from tilewright.backends.cuda import toolchain
from tilewright.dispatch.registry import Registry
from tilewright.errors import DeviceError, LoadError, ProblemError, ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import cuda
from tilewright.runtime.arrays import number_beside
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.loader import Kernel

pytestmark = pytest.mark.tools  # a CUDA compiler


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("parameters", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("first", ctypes.c_ubyte * 512),
    )


@pytest.fixture
def fake(fake_cuda: ctypes.CDLL) -> ctypes.CDLL:
    """The CUDA driver of this test is the fake one."""
    fake_cuda.fake_cuda_last.restype = ctypes.POINTER(Launch)
    return fake_cuda


def needs_nvcc() -> None:
    try:
        toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}")


def spec_of(problem: GemmProblem, schedule: Any, arch: str = "sm_90a") -> KernelSpec:
    return KernelSpec("gemm", problem.signature, schedule, arch)


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, ml_dtypes.bfloat16)


def there(array: np.ndarray[Any, Any]) -> DeviceArray:
    return DeviceArray.of(cuda.device(), array)


def numbers(launch: Launch, count: int) -> list[int]:
    return list((ctypes.c_int * count).from_buffer_copy(bytes(launch.first)))


# -- devices ---------------------------------------------------------------------------------------------------------


def test_a_device_says_what_it_is(fake: ctypes.CDLL) -> None:
    one = cuda.device()
    assert (one.name, one.arch, one.facts.compute_units, one.facts.warp_size) == ("Fake H200", "sm_90a", 132, 32)
    assert cuda_driver.available_archs() == ["sm_90a", "sm_89", "sm_86", "sm_80"]
    assert cuda_driver.why_unavailable() == ""


@pytest.mark.parametrize(
    ("capability", "arch"),
    [(80, "sm_80"), (86, "sm_86"), (87, "sm_86"), (89, "sm_89"), (90, "sm_90a"), (100, "sm_100"), (103, "sm_100"),
     (110, "sm_100"), (120, "sm_120"), (121, "sm_120")],
)  # fmt: skip
def test_a_gpu_is_of_its_arch_or_of_the_newest_before_it_with_ptx(
    fake: ctypes.CDLL, capability: int, arch: str
) -> None:
    fake.fake_cuda_devices(1, capability)
    assert cuda.device().arch == arch


def test_a_gpu_of_an_unknown_arch_is_named(fake: ctypes.CDLL) -> None:
    fake.fake_cuda_devices(1, 70)
    assert cuda_driver.available_archs() == []
    assert "sm_70" in cuda_driver.why_unavailable()


def test_no_library_no_device_an_old_driver_each_have_their_error(fake: ctypes.CDLL, tmp_path: Path) -> None:
    with settings.override(cuda_library=str(tmp_path / "libcuda.so.1")):
        with pytest.raises(DeviceError, match="cannot be loaded") as caught:
            cuda.device()
        assert caught.value.rule == "device-library"
    fake.fake_cuda_devices(0, 90)
    with pytest.raises(DeviceError, match="CUDA_ERROR_NO_DEVICE") as caught:
        cuda.device()
    assert caught.value.rule == "no-device"
    fake.fake_cuda_reset()
    fake.fake_cuda_version(12010)
    with pytest.raises(DeviceError, match=r"CUDA 12\.1, and kernels need 12\.3") as caught:
        cuda.device()
    assert caught.value.rule == "driver-old"
    fake.fake_cuda_reset()
    with pytest.raises(DeviceError, match="no cuda:3"):
        cuda.device(3)


def test_a_library_that_is_no_driver_is_refused(fake: ctypes.CDLL, library_of: Callable[[str], Path]) -> None:
    other = str(library_of("int nothing() { return 0; }"))
    with settings.override(cuda_library=other), pytest.raises(LoadError, match="not a CUDA driver"):
        cuda.device()


def test_memory_goes_there_and_back(fake: ctypes.CDLL) -> None:
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    held = there(data)
    np.testing.assert_array_equal(held.numpy(), data)
    assert fake.fake_cuda_alive() == 1
    del held
    assert fake.fake_cuda_alive() == 0


def test_too_little_memory_names_the_numbers(fake: ctypes.CDLL) -> None:
    fake.fake_cuda_capacity(1 << 20)
    with pytest.raises(DeviceError, match=r"2097152 bytes do not fit on cuda:0: 1048576 of 1048576") as caught:
        cuda.device().allocate(1 << 21)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in caught.value.message
    assert cuda.device().allocate(1024).address


@pytest.mark.parametrize("error", [700, 716])
def test_a_lost_device_says_that_only_a_new_process_helps(fake: ctypes.CDLL, error: int) -> None:
    one = cuda.device()
    fake.fake_cuda_fail(b"cuCtxSynchronize", error)
    with pytest.raises(DeviceError) as caught:
        one.synchronize()
    assert caught.value.rule == "device-lost"
    assert "CUDA_LAUNCH_BLOCKING" in caught.value.remedy


# -- launches --------------------------------------------------------------------------------------------------------


def registry_with(problem: GemmProblem, *schedules: Any) -> Registry:
    return Registry("sm_90a", [spec_of(problem, one) for one in schedules])


def test_a_cluster_launch_is_what_the_driver_wants(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    problem = GemmProblem(300, 520, 200, "bf16", layout="rcr")
    schedule = make.tma_ws(problem.signature, 128, 128, 4, (2, 1))
    registry = registry_with(problem, schedule)
    a, b = there(ones(300, 200)), there(ones(520, 200))
    registry.run("gemm", a, b.T)
    seen = fake.fake_cuda_last().contents
    # 3 x 5 tiles, two blocks of a column to a cluster: 2 x 5 clusters.
    assert (list(seen.grid), list(seen.block), seen.cluster) == ([20, 1, 1], [384, 1, 1], 2)
    assert seen.shared == make.shared_bytes(problem.signature, schedule, arch("sm_90a").scratch_bytes)
    assert numbers(seen, 10) == [300, 520, 200, 1, 2, 5, 8, 4, 0, 1]
    assert fake.fake_cuda_function().decode() == registry.specs()[0].name
    maps, loads = fake.fake_cuda_calls(b"cuTensorMapEncodeTiled"), fake.fake_cuda_calls(b"cuModuleLoadData")
    assert (maps, loads) == (3, 1)
    out = there(np.zeros((300, 520), ml_dtypes.bfloat16))
    for _ in range(3):
        registry.run("gemm", a, b.T, out=out)
    # The maps of A and B are known; that of another E is made once.
    assert fake.fake_cuda_calls(b"cuTensorMapEncodeTiled") == maps + 1
    assert fake.fake_cuda_calls(b"cuModuleLoadData") == loads


@pytest.mark.parametrize("held", [1, 2, 4])
def test_split_k_of_tf32_counts_the_blocks_a_multiprocessor_holds(fake: ctypes.CDLL, held: int) -> None:
    """Also where there are more tiles than multiprocessors; the estimate counts the parts that the host deals out."""
    needs_nvcc()
    fake.fake_cuda_hold(held)
    problem = GemmProblem(102, 4480, 2080, "tf32", dtype_c="fp32", layout="rrr")
    stages = 2 + held  # a kernel of its own: what it was told of its multiprocessors is kept
    schedule = multistage(problem.signature, 64, 64, 64, (2, 2), stages, tile_scheduler="split_k")
    kernel = KernelSpec("gemm", problem.signature, schedule, "sm_90a")
    registry = registry_with(problem, schedule)
    for m, n, k in ((102, 4480, 2080), (3, 6272, 2048), (4, 11840, 512), (64, 512, 640), (30, 70, 100)):
        registry.run("gemm", there(ones(m, k).astype(np.float32)), there(ones(k, n).astype(np.float32)), math="tf32")
        seen = fake.fake_cuda_last().contents
        tiles, steps = -(-m // 64) * -(-n // 64), -(-k // 16)
        parts = make.parts_of_tf32(kernel, tiles, steps, held)
        assert (seen.grid[0], numbers(seen, 10)[9]) == (tiles * parts, parts), (m, n, k)
        assert tiles * parts <= max(tiles, 132 * held)
        assert held < 4 or k < 1000 or parts > 1, (m, n, k)


def test_stream_k_gets_a_workspace_with_clear_flags(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    problem = GemmProblem(256, 256, 4096, "bf16", layout="rcr")
    registry = registry_with(problem, make.tma_ws(problem.signature, 64, 64, 4, (1, 1), make.WAYS["pingpong_stream_k"]))
    a, b = there(ones(256, 4096)), there(ones(256, 4096))
    registry.run("gemm", a, b.T)
    seen = fake.fake_cuda_last().contents
    # 16 tiles of 64 steps over 132 blocks: 8 steps a block, 128 blocks.
    assert (seen.grid[0], numbers(seen, 9)[8]) == (128, 8)
    flags = int.from_bytes(bytes(seen.first)[88:96], "little")
    zeros = registry.kernel(registry.specs()[0]).clear_bytes
    assert zeros > 0
    assert bytes((ctypes.c_char * zeros).from_address(flags)) == bytes(zeros)
    assert fake.fake_cuda_capture_mode() == 0
    before = fake.fake_cuda_calls(b"cuMemAlloc")
    out = there(np.zeros((256, 256), ml_dtypes.bfloat16))
    registry.run("gemm", a, b.T, out=out)
    assert fake.fake_cuda_calls(b"cuMemAlloc") == before + 1  # of `out` alone


def test_split_k_launches_no_more_parts_than_run_at_a_time(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    problem = GemmProblem(256, 512, 4096, "bf16", layout="rcr")
    schedule = make.tma_ws(problem.signature, 128, 128, 4, (2, 1), make.WAYS["cooperative_split_k"])
    registry = registry_with(problem, schedule)

    def run(m: int, n: int, k: int) -> tuple[int, list[int]]:
        registry.run("gemm", there(ones(m, k)), there(ones(n, k)).T)
        seen = fake.fake_cuda_last().contents
        return seen.grid[0], numbers(seen, 10)[4:]

    # tiles_m, tiles_n, group, steps, share, parts; two blocks a cluster, 66 clusters at a time.
    assert run(256, 512, 4096) == (2 * 64, [1, 4, 8, 64, 4, 16])
    assert run(256, 4096, 4096) == (2 * 64, [1, 32, 8, 64, 32, 2])
    assert run(256, 8192, 4096) == (2 * 64, [1, 64, 8, 64, 64, 1])
    assert run(256, 512, 64 * 7) == (2 * 4, [1, 4, 8, 7, 7, 1])


def test_a_turned_kernel_sees_the_problem_transposed(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    problem = GemmProblem(5, 1000, 4096, "bf16", layout="rcr")
    schedule = make.tma_ws(problem.signature, 8, 64, 8, (1, 1), make.WAYS["pingpong_swap_ab_split_k"])
    registry = registry_with(problem, schedule)
    registry.run("gemm", there(ones(5, 4096)), there(ones(1000, 4096)).T)
    seen = fake.fake_cuda_last().contents
    assert (seen.grid[0], numbers(seen, 10)) == (128, [1000, 5, 4096, 1, 16, 1, 32, 64, 8, 8])


def test_operands_the_copy_engine_cannot_read_are_copied_first(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    problem = GemmProblem(64, 64, 63, "bf16", layout="rcr")
    registry = registry_with(problem, make.tma_ws(problem.signature, 128, 64, 4, (1, 1), store="direct"))
    b = there(ones(64, 63))
    registry.run("gemm", there(ones(64, 63)), b.T)
    assert fake.fake_cuda_calls(b"cuLaunchKernelEx") == 2
    assert "repack" not in fake.fake_cuda_function().decode()
    # Rows of 126 bytes become rows of 128: A and B lie behind each other in the workspace.
    assert numbers(fake.fake_cuda_last().contents, 3) == [64, 64, 63]


def test_few_rows_and_few_columns_go_to_the_same_kernel_the_other_way_round(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    problem = GemmProblem(3, 400, 256, "bf16", layout="rcr")
    registry = registry_with(problem, make.skinny(1, 1, 4), make.skinny(2, 1, 4, "n"))
    few, many = there(ones(3, 256)), there(ones(400, 256))
    registry.run("gemm", few, many.T)
    assert list(fake.fake_cuda_last().contents.grid) == [25, 1, 1]
    registry.run("gemm", many, few.T)
    seen = fake.fake_cuda_last().contents
    assert list(seen.grid) == [13, 1, 1]
    assert list((ctypes.c_int * 4).from_buffer_copy(bytes(seen.first)[32:48])) == [
        3,
        400,
        256,
        1,
    ]  # behind four pointers


def test_arrays_name_their_target(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    a, b = there(ones(5, 24)), there(ones(24, 7))
    result = tw.gemm(a, b)
    assert isinstance(result, DeviceArray)
    assert result.shape == (5, 7)
    assert "sm_90a" in fake.fake_cuda_function().decode()


def test_what_the_copy_engine_cannot_read_is_copied_or_goes_elsewhere(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    whole = there(ones(65, 128))
    # One row further and the same strides: only the address differs, by no multiple of 16 bytes.
    late = DeviceArray(whole.device, whole._memory, (64, 64), (128, 1), "bf16")
    late.address = whole.address + 2
    b = there(ones(64, 1056))  # more columns than kernels of small products take
    tw.gemm(whole, there(ones(128, 1056)))
    assert "tma_ws" in fake.fake_cuda_function().decode()
    before = fake.fake_cuda_calls(b"cuLaunchKernelEx")
    tw.gemm(late, b)
    launches = fake.fake_cuda_calls(b"cuLaunchKernelEx") - before
    assert launches == (2 if "tma_ws" in fake.fake_cuda_function().decode() else 1)
    early = DeviceArray(whole.device, whole._memory, (64, 64), (128, 1), "bf16")
    tw.gemm(early, b)
    assert "tma_ws" in fake.fake_cuda_function().decode()


@pytest.mark.parametrize(
    ("code", "rule", "name"),
    [
        (209, "device-image", "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        (701, "device-call", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        (700, "device-lost", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_a_launch_that_fails_names_kernel_and_error(fake: ctypes.CDLL, code: int, rule: str, name: str) -> None:
    needs_nvcc()
    a, b = there(ones(5, 24)), there(ones(24, 7))
    fake.fake_cuda_fail(b"cuLaunchKernelEx", code)
    with pytest.raises(DeviceError, match=name) as caught:
        tw.gemm(a, b)
    assert caught.value.rule == rule
    assert "gemm_bf16" in caught.value.message
    if rule != "device-lost":
        assert tw.gemm(a, b).shape == (5, 7)


def test_arrays_in_two_places_are_told_apart(fake: ctypes.CDLL) -> None:
    with pytest.raises(DeviceError, match="b is in host memory") as caught:
        tw.gemm(there(ones(5, 24)), ones(24, 7))
    assert caught.value.rule == "array-device"
    fake.fake_cuda_reset()
    cuda_driver.forget()
    fake.fake_cuda_devices(2, 90)
    other = DeviceArray.of(cuda.device(1), ones(24, 7))
    with pytest.raises(ProblemError, match="cuda:0 and b on cuda:1"):
        tw.gemm(there(ones(5, 24)), other)


def test_kernels_of_another_arch_are_refused(fake: ctypes.CDLL) -> None:
    fake.fake_cuda_devices(1, 80)
    with pytest.raises(DeviceError, match="sm_90a") as caught:
        tw.gemm(there(ones(5, 32)), there(ones(32, 9)), target="sm_90a")
    assert caught.value.rule == "arch-not-runnable"


def test_a_library_loads_and_says_so_without_a_driver(tmp_path: Path) -> None:
    """In a process of its own: no libcuda, yet the table can be read and a launch answers with an error."""
    needs_nvcc()
    from tilewright.build import Builder

    problem = GemmProblem(8, 8, 8, "bf16")
    spec = ops.op("gemm").fallback_spec(problem.signature, "sm_90a")
    path = Builder().build_one(spec).path
    text = (
        "import ctypes\nfrom tilewright.runtime.loader import load_library\n"
        "from tilewright.runtime.bindings.gemm.args import GemmArgs\n"
        f"kernel = load_library({str(path)!r})[0]\n"
        "args = GemmArgs(m=8, n=8, k=8, batch=1, a_stride=8, b_stride=8, e_stride=8)\n"
        "assert kernel.refusal(args) == ''\n"
        "import sys; sys.exit(0 if kernel.launch(ctypes.addressof(args), None, None) & 255 == 5 else 1)\n"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_the_check_of_a_built_kernel_agrees_with_supports(fake: ctypes.CDLL) -> None:
    needs_nvcc()
    from tilewright.dispatch import kernels
    from tilewright.runtime.bindings.gemm.dense import dense

    op = ops.op("gemm")
    base = GemmProblem(64, 64, 64, "bf16", layout="rcr")
    made: list[Kernel] = [
        kernels.kernel(spec_of(base, one))
        for one in (
            make.tma_ws(base.signature, 128, 128, 4, (1, 1)),
            make.tma_ws(base.signature, 128, 64, 4, (1, 1), store="direct"),
            make.skinny(1, 1, 4),
            make.skinny(2, 1, 4, "n"),
            make.fallback_schedule(base.signature, arch("sm_90a")),
        )
    ]
    sizes = [
        (64, 64, 64),
        (8, 64, 64),
        (64, 8, 64),
        (9, 9, 8),
        (8, 8, 9),
        (8, 8, 0),
        (0, 8, 8),
        (64, 63, 64),
        (7, 7, 7),
    ]
    for kernel in made:
        for m, n, k in sizes:
            problem = GemmProblem(m, n, k, "bf16", layout="rcr")
            args = dense(problem).stages[0].args
            args.a = args.b = args.e = 64
            agreed = bool(kernel.refusal(args)) == bool(op.supports(kernel.spec, problem))
            assert agreed, (kernel.name, problem, kernel.refusal(args), op.supports(kernel.spec, problem))
            args.a = 66
            refused = bool(op.supports(kernel.spec, replace(problem, unaligned="a")))
            assert bool(kernel.refusal(args)) == refused, (kernel.name, problem)


def test_a_number_beside_an_array_of_a_device_lies_there_too(fake_cuda: ctypes.CDLL) -> None:
    """A scale given as a number: kernels read it where they read the operand."""
    operand = DeviceArray.of(cuda.device(), np.ones((2, 3), np.float32))
    scale = number_beside(operand, 0.5)
    assert isinstance(scale, DeviceArray)
    assert (scale.place, scale.shape) == (operand.place, ())
    assert scale.numpy() == 0.5
