"""The whole path of a HIP kernel against a fake runtime: devices, memory, streams, launches, time, and every error."""

from __future__ import annotations

import gc
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.runtime import fakes
from tests.runtime.fakes import FakeHip
from tilewright import events, settings
from tilewright.backends.hip import driver as hip_driver
from tilewright.errors import DeviceError, LoadError, ProblemError, ToolchainError
from tilewright.runtime import devices, hip, timing
from tilewright.runtime.arrays import view
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import ANY, Place
from tilewright.runtime.loader import Kernel, load_library

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


@pytest.fixture
def kernel(fake_hip: FakeHip) -> Kernel:
    return load_library(fake_hip.kernel())[0]


@pytest.fixture
def hungry(fake_hip: FakeHip) -> Kernel:
    """The same with a workspace."""
    return load_library(fake_hip.kernel(workspace=True, clear=192))[0]


@pytest.fixture
def arrays() -> Arrays:
    generator = np.random.default_rng(5)
    a = generator.integers(-9, 9, (33, 40), dtype=np.int8)
    return a, generator.integers(-9, 9, (17, 40), dtype=np.int8).T


def there(array: np.ndarray[Any, Any], index: int = 0) -> DeviceArray:
    return DeviceArray.of(hip.device(index), array)


def exact(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(a.astype(np.int32) @ b.astype(np.int32))


# -- devices ---------------------------------------------------------------------------------------------------------


def test_a_device_says_what_it_is(fake_hip: FakeHip) -> None:
    fake_hip.has(2, "gfx942:sramecc+:xnack-,gfx90a")
    first, second = hip.all_devices()
    assert (first.name, first.arch, second.arch) == ("Fake Instinct", "gfx942", "gfx90a")
    assert (first.facts.compute_units, first.facts.warp_size, first.facts.bus) == (304, 64, "0001:c1:00")
    assert first.facts.memory_bytes == 1 << 30
    assert first.cache_bytes == 256 << 20  # the memory-side cache, which the runtime does not report
    assert repr(second) == "<hip:1 Fake Instinct (gfx90a)>"
    assert hip_driver.available_archs() == ["gfx942", "gfx90a"]
    assert hip_driver.why_unavailable() == ""


def test_no_library_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    hip_driver.forget()
    with settings.override(hip_library=str(tmp_path / "libamdhip64.so")):
        with pytest.raises(DeviceError, match="libamdhip64") as caught:
            hip.device()
        assert caught.value.rule == "device-library"
        assert "TILEWRIGHT_HIP_LIBRARY" in caught.value.remedy
        assert hip_driver.available_archs() == []
        assert "libamdhip64" in hip_driver.why_unavailable()
    hip_driver.forget()


def test_a_library_that_is_no_runtime_is_refused(library_of: Callable[[str], Path]) -> None:
    path = library_of('extern "C" int nothing() { return 0; }\n')
    hip_driver.forget()
    with settings.override(hip_library=str(path)), pytest.raises(LoadError) as caught:
        hip.device()
    assert caught.value.rule == "device-library"
    hip_driver.forget()


def test_no_device(fake_hip: FakeHip) -> None:
    fake_hip.has(0)
    with pytest.raises(DeviceError, match=r"sees no device .hipErrorNoDevice") as caught:
        hip.device()
    assert caught.value.rule == "no-device"
    assert "built" in caught.value.remedy
    assert fake_hip.last_error == 0


def test_an_index_that_is_not_there(fake_hip: FakeHip) -> None:
    with pytest.raises(DeviceError, match="no hip:3") as caught:
        hip.device(3)
    assert caught.value.rule == "device-index"


def test_a_device_without_arch_facts(fake_hip: FakeHip) -> None:
    fake_hip.has(1, "gfx1030")
    assert hip_driver.available_archs() == []
    assert "gfx1030" in hip_driver.why_unavailable()


@pytest.mark.parametrize(
    ("count", "archs", "words"), [(0, "gfx942", "no device"), (1, "gfx90a", "it runs gfx90a")], ids=["none", "other"]
)
def test_running_where_the_arch_is_not_there(
    fake_hip: FakeHip, arrays: Arrays, count: int, archs: str, words: str
) -> None:
    registry = tw.Registry("gfx942").add_library(fake_hip.kernel())
    fake_hip.has(count, archs)
    with pytest.raises(DeviceError) as caught:
        registry.kernel(fakes.spec())
    assert caught.value.rule == "arch-not-runnable"
    assert words in str(caught.value)
    with pytest.raises(DeviceError):
        registry.run("gemm", *arrays)


def test_the_device_of_an_arch_is_the_first_that_runs_it(fake_hip: FakeHip) -> None:
    fake_hip.has(2, "gfx90a,gfx942")
    assert devices.device_of("gfx942").place == Place("hip", 1)
    assert devices.device_of("gfx90a").place == Place("hip", 0)
    with pytest.raises(DeviceError, match="hip:0 is a Fake Instinct of arch gfx90a") as caught:
        devices.device_of("gfx942", 0)
    assert (caught.value.rule, caught.value.value) == ("device-arch", "gfx90a")
    with pytest.raises(DeviceError):
        devices.device_of("gfx950")


# -- memory ----------------------------------------------------------------------------------------------------------


def test_memory_is_given_back(fake_hip: FakeHip) -> None:
    memory = hip.device().allocate(1000)
    other = hip.device().allocate(0)
    assert fake_hip.alive[0] == 2
    memory.free()
    memory.free()
    assert fake_hip.alive[0] == 1
    del other
    gc.collect()
    assert fake_hip.alive[0] == 0


def test_copies_there_and_back(fake_hip: FakeHip, arrays: Arrays) -> None:
    others: list[np.ndarray[Any, Any]] = [
        np.arange(6, dtype=np.float32),
        np.zeros((0, 3), np.int32),
        np.full((), 3, np.float32),
    ]
    for array in (*arrays, *others):
        moved = there(array)
        assert (moved.shape, moved.numpy().dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(moved.numpy(), array)
    moved.fill(0xFF)
    assert np.isnan(moved.numpy())


def test_numpy_arrays_go_to_the_device_of_a_target(fake_hip: FakeHip, arrays: Arrays) -> None:
    fake_hip.has(3, "gfx90a,gfx942,gfx942")
    assert tw.to_device(arrays[0], "gfx942").place == Place("hip", 1)
    assert tw.to_device(arrays[0], "gfx942", 2).place == Place("hip", 2)
    np.testing.assert_array_equal(tw.to_device(arrays[1], "hip").numpy(), arrays[1])
    with pytest.raises(DeviceError):
        tw.to_device(arrays[0], "gfx942", 0)
    here = tw.to_device(arrays[0], "generic")
    assert here.place == devices.HOST
    np.testing.assert_array_equal(here.numpy(), arrays[0])


def test_memory_is_on_the_device_asked_for_and_the_current_one_stays(fake_hip: FakeHip) -> None:
    fake_hip.has(2)
    memory = hip.device(1).allocate(64)
    assert fake_hip.device_of(memory.address) == 1
    assert fake_hip.current_device == 0


def test_out_of_memory_says_how_much_there_is(fake_hip: FakeHip) -> None:
    fake_hip.capacity(10_000)
    device = hip.device()
    keep = device.allocate(4_000)
    with pytest.raises(DeviceError, match="7000 bytes do not fit on hip:0: 6000 of 10000 bytes are free") as caught:
        device.allocate(7_000)
    assert (caught.value.rule, caught.value.value) == ("device-memory", 7_000)
    assert "hipErrorOutOfMemory" in caught.value.message
    assert fake_hip.last_error == 0  # nobody else meets it
    assert device.memory_info() == (6_000, 10_000)
    keep.free()
    device.allocate(7_000)


def test_cached_workspaces_go_before_an_allocation_fails(fake_hip: FakeHip, hungry: Kernel, arrays: Arrays) -> None:
    a, b = arrays
    hungry(there(a), there(b))
    gc.collect()
    assert fake_hip.alive[0] == 1  # the workspace alone
    fake_hip.capacity(3_000)
    memory = hip.device().allocate(2_900)
    assert fake_hip.alive[0] == 1
    memory.free()


@pytest.mark.parametrize("call", ["hipMalloc", "hipMemcpyAsync", "hipStreamSynchronize", "hipSetDevice"])
def test_a_call_that_fails_in_the_middle_leaves_nothing(fake_hip: FakeHip, call: str, arrays: Arrays) -> None:
    fake_hip.has(2)
    hip.device(1)
    fake_hip.fail(call, 1)
    with pytest.raises(DeviceError, match=f"{call} failed: hipErrorInvalidValue .1.: what the vendor says") as caught:
        there(arrays[0], 1)
    assert (caught.value.rule, caught.value.value) == ("device-call", "hipErrorInvalidValue")
    del caught
    gc.collect()
    assert fake_hip.alive == (0, 0, 0)
    assert fake_hip.last_error == 0
    assert fake_hip.current_device == 0
    np.testing.assert_array_equal(there(arrays[0], 1).numpy(), arrays[0])


def test_a_failing_free_is_reported_not_raised(fake_hip: FakeHip) -> None:
    memory = hip.device().allocate(8)
    fake_hip.fail("hipFree", 1)
    with events.recorded() as heard:
        memory.free()
    (warned,) = [one for one in heard if isinstance(one, events.Warned)]
    assert warned.rule == "device-free"
    assert "hipErrorInvalidValue" in warned.message


def test_a_sticky_error_says_that_the_process_must_end(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    a, b = map(there, arrays)
    fake_hip.fail("hipStreamSynchronize", fakes.ILLEGAL_ADDRESS, sticky=True)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"hipErrorIllegalAddress .700.: an illegal memory access") as caught:
            kernel(a, b).numpy()
        assert caught.value.rule == "device-lost"
        assert "start the process again" in caught.value.remedy
        assert "AMD_SERIALIZE_KERNEL" in caught.value.remedy


# -- running ---------------------------------------------------------------------------------------------------------


def test_a_kernel_runs_on_device_arrays(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    a, b = arrays
    result = kernel(there(a), there(b))
    assert isinstance(result, DeviceArray)
    assert (result.place, result.dtype) == (Place("hip", 0), "int32")
    np.testing.assert_array_equal(result.numpy(), exact(a, b))
    c = np.full((33, 17), 7, np.int32)
    out = there(c)
    again = kernel(there(a), there(b), there(c), alpha=2, beta=3, out=out)
    assert again is out
    np.testing.assert_array_equal(out.numpy(), 2 * exact(a, b) + 21)


def test_a_registry_of_the_target_runs_it(fake_hip: FakeHip, arrays: Arrays) -> None:
    registry = tw.Registry("gfx942").add_library(fake_hip.kernel())
    a, b = map(there, arrays)
    for _ in range(2):
        np.testing.assert_array_equal(registry.run("gemm", a, b, out_dtype="int32").numpy(), exact(*arrays))
    assert fake_hip.calls("hipLaunchKernel") == 2


def test_every_device_runs_its_own(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    fake_hip.has(2)
    a, b = arrays
    for index in (0, 1):
        result = kernel(there(a, index), there(b, index))
        assert fake_hip.device_of(result.address) == index
        np.testing.assert_array_equal(result.numpy(), exact(a, b))
    assert fake_hip.current_device == 0
    with pytest.raises(ProblemError, match="a is on hip:0 and b on hip:1") as caught:
        kernel(there(a, 0), there(b, 1))
    assert caught.value.rule == "operand-places"


def test_a_device_of_another_arch_is_refused(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    fake_hip.has(2, "gfx942,gfx90a")
    with pytest.raises(DeviceError, match="of arch gfx90a") as caught:
        kernel(there(arrays[0], 1), there(arrays[1], 1))
    assert "use target 'gfx90a'" in caught.value.remedy


def test_host_arrays_are_refused_by_a_device_and_device_arrays_by_the_host(
    fake_hip: FakeHip, kernel: Kernel, arrays: Arrays
) -> None:
    with pytest.raises(DeviceError, match="a is in host memory") as caught:
        kernel(*arrays)
    assert caught.value.rule == "array-device"
    assert "to_device" in caught.value.remedy
    with pytest.raises(DeviceError, match="hip:0, and host kernels read host memory"):
        tw.gemm(there(arrays[0]), there(arrays[1]), target="generic")


def test_a_failing_launch_has_the_vendors_name(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    a, b = map(there, arrays)
    fake_hip.fail("hipLaunchKernel", fakes.INVALID_FUNCTION)
    with pytest.raises(DeviceError, match=r"hipErrorInvalidDeviceFunction .98.: invalid device function") as caught:
        kernel(a, b)
    assert kernel.name in caught.value.message
    assert fake_hip.last_error == 0
    np.testing.assert_array_equal(kernel(a, b).numpy(), exact(*arrays))


def test_a_workspace_is_kept_for_its_stream(fake_hip: FakeHip, hungry: Kernel, arrays: Arrays) -> None:
    a, b = map(there, arrays)
    before = fake_hip.calls("hipMalloc")
    out = DeviceArray.empty(hip.device(), (33, 17), "int32")
    for _ in range(3):
        np.testing.assert_array_equal(hungry(a, b, out=out).numpy(), exact(*arrays))
    assert fake_hip.calls("hipMalloc") == before + 2  # out and one workspace
    with hip.device().new_stream() as stream:
        hungry(a, b, out=out)
    assert fake_hip.calls("hipMalloc") == before + 3
    stream.close()
    hip.device().drop_workspaces()
    assert fake_hip.alive == (3, 0, 0)


def test_a_workspace_that_does_not_fit_leaves_the_kernel_usable(
    fake_hip: FakeHip, hungry: Kernel, arrays: Arrays
) -> None:
    a, b = map(there, arrays)
    out = DeviceArray.empty(hip.device(), (33, 17), "int32")
    fake_hip.fail("hipMalloc", fakes.OUT_OF_MEMORY)
    with pytest.raises(DeviceError) as caught:
        hungry(a, b, out=out)
    assert caught.value.rule == "device-memory"
    assert fake_hip.calls("hipLaunchKernel") == 0
    np.testing.assert_array_equal(hungry(a, b, out=out).numpy(), exact(*arrays))


def test_nothing_is_left_when_the_arrays_are_gone(fake_hip: FakeHip, arrays: Arrays) -> None:
    registry = tw.Registry("gfx942").add_library(fake_hip.kernel(workspace=True, clear=192))
    registry.run("gemm", there(arrays[0]), there(arrays[1]), out_dtype="int32").numpy()
    hip.device().drop_workspaces()
    gc.collect()
    assert fake_hip.alive == (0, 0, 0)


# -- streams ---------------------------------------------------------------------------------------------------------


def test_work_goes_to_the_stream_around_it(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    a, b = map(there, arrays)
    out = DeviceArray.empty(hip.device(), (33, 17), "int32")
    kernel(a, b, out=out)
    assert fake_hip.last_stream == 0
    stream, inner = hip.device().new_stream(), hip.device().new_stream()
    with stream:
        with inner:
            kernel(a, b, out=out)
            assert fake_hip.last_stream == inner.handle
        kernel(a, b, out=out)
        assert fake_hip.last_stream == stream.handle
    kernel(a, b, out=out)
    assert fake_hip.last_stream == 0
    inner.wait(hip.device().new_event().record(stream.handle))
    stream.synchronize()
    stream.close()
    inner.close()
    gc.collect()
    assert fake_hip.alive[1:] == (0, 0)


def torch_of(hip_version: str | None, initialized: bool, handle: int) -> types.ModuleType:
    module = types.ModuleType("torch")
    current = types.SimpleNamespace(cuda_stream=handle)
    module.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: initialized, current_stream=lambda index: current
    )
    module.version = types.SimpleNamespace(hip=hip_version)  # type: ignore[attr-defined]
    module.Tensor = type("Tensor", (), {})  # type: ignore[attr-defined]
    module.nn = types.SimpleNamespace(Parameter=type("Parameter", (), {}))  # type: ignore[attr-defined]
    return module


@pytest.mark.parametrize(
    ("version", "initialized", "expected"), [("7.0", True, 0xBEEF), ("7.0", False, 0), (None, True, 0)]
)
def test_the_stream_of_pytorch_is_honoured(
    fake_hip: FakeHip,
    kernel: Kernel,
    arrays: Arrays,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    initialized: bool,
    expected: int,
) -> None:
    a, b = map(there, arrays)
    monkeypatch.setitem(sys.modules, "torch", torch_of(version, initialized, 0xBEEF))
    kernel(a, b)
    assert fake_hip.last_stream == expected


# -- DLPack ----------------------------------------------------------------------------------------------------------


class Producer:
    """What PyTorch's ROCm tensors look like from outside."""

    def __init__(self, array: DeviceArray, device: tuple[int, int] | None = None) -> None:
        self._array = array
        self._device = device
        self.stream: object = "not asked"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device or self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: object = None, max_version: object = None) -> Any:
        self.stream = stream
        return self._array.exporter().__dlpack__()


def test_dlpack_arrays_of_a_device_are_read_in_place(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    a, b = map(there, arrays)
    assert a.__dlpack_device__() == (10, 0)
    producer = Producer(a)
    found = view("a", producer, "hip")
    assert (found.address, found.shape, found.place) == (a.address, a.shape, Place("hip", 0))
    with hip.device().new_stream() as stream:
        view("a", producer, "hip")
        assert producer.stream == stream.handle
    np.testing.assert_array_equal(kernel(producer, Producer(b)).numpy(), exact(*arrays))


def test_pinned_host_memory_is_on_every_device(fake_hip: FakeHip, kernel: Kernel, arrays: Arrays) -> None:
    fake_hip.has(2)
    a, b = arrays
    pinned = Producer(there(a), device=(11, 0))
    assert view("a", pinned, "hip").place == Place("hip", ANY)
    assert view("a", pinned).place == Place("cpu", 0)
    result = kernel(pinned, there(b, 1))
    assert result.place == Place("hip", 1)
    np.testing.assert_array_equal(result.numpy(), exact(a, b))
    assert kernel(pinned, Producer(there(b), device=(11, 0))).place == Place("hip", 0)


def test_memory_of_another_vendor_is_refused(fake_hip: FakeHip, arrays: Arrays) -> None:
    with pytest.raises(DeviceError, match="a is in cuda:0") as caught:
        view("a", Producer(there(arrays[0]), device=(2, 0)), "hip")
    assert caught.value.rule == "array-device"


# -- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", [False, True])
def test_time_is_the_devices_own(fake_hip: FakeHip, flush: bool) -> None:
    fake_hip.has(1, "gfx90a")  # a small cache: the fake's memory is real
    device = hip.device()
    order: list[str] = []
    runs: list[timing.Run] = [lambda: order.append("a"), lambda: order.append("b")]
    fills = fake_hip.calls("hipMemsetAsync")
    seconds = device.stopwatch().sample(runs, 4, flush)
    assert order == ["a", "b", "a", "b"]
    assert seconds >= 0
    assert fake_hip.calls("hipEventRecord") == (8 if flush else 2)
    assert fake_hip.calls("hipMemsetAsync") - fills == (4 if flush else 0)
    assert fake_hip.alive == (0, 0, 0)


def test_a_run_that_fails_leaves_no_events(fake_hip: FakeHip) -> None:
    fake_hip.has(1, "gfx90a")
    fake_hip.fail("hipEventRecord", 1, after=1)
    with pytest.raises(DeviceError, match="hipEventRecord failed"):
        hip.device().stopwatch().sample([lambda: None], 3, flush=True)
    gc.collect()
    assert fake_hip.alive == (0, 0, 0)


def test_kernels_are_measured_on_the_device(fake_hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.dispatch import measure

    monkeypatch.setattr(measure, "versions_of", lambda spec: {})  # asks the compiler, which may not be here
    registry = tw.Registry("gfx942").add_library(fake_hip.kernel(workspace=True, clear=192))
    record = registry.measure(fakes.problem(), rounds=3, buffers=2, save=False)
    assert (record.target, record.choice) == ("gfx942", fakes.spec().digest)
    assert (record.method["buffers"], record.method["flush"]) == (2, False)
    assert record.winner.seconds > 0
    assert record.winner.error == 0
    hip.device().drop_workspaces()
    gc.collect()
    assert fake_hip.alive == (0, 0, 0)


def test_the_host_is_timed_by_the_same_method() -> None:
    order: list[str] = []
    host = devices.device(devices.HOST)
    assert isinstance(host.stopwatch(), timing.HostStopwatch)
    assert timing.flush_bytes(host.cache_bytes) >= 2 * host.cache_bytes
    found = timing.measure(
        [lambda: order.append("a"), lambda: order.append("b")],
        timing.Method(rounds=3, sample_seconds=0.0, warmups=1, flush=True, buffers=2),
        timing.HostStopwatch(1 << 20),
    )
    assert order == ["a", "b"] * 4  # a warm-up and three rounds of every set
    assert len(found.samples) == 3
    assert found.median > 0


# -- the vendor's header ---------------------------------------------------------------------------------------------


OFFSETS = """
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <stddef.h>
static_assert(sizeof(hipDeviceProp_t) == {size});
{fields}
"""


def test_the_offsets_are_those_of_the_vendors_header(tmp_path: Path) -> None:
    """Where a HIP compiler is: what we read of the properties lies where its header says."""
    from tilewright.backends.base import backend

    try:
        toolchain = backend("hip").toolchain()
    except ToolchainError as error:
        pytest.skip(f"no HIP compiler: {error.message}")
    fields = "\n".join(
        f"static_assert(offsetof(hipDeviceProp_t, {name}) == {offset});"
        for name, offset in hip_driver.PROPERTY_OFFSETS.items()
    )
    source = tmp_path / "offsets.hip"
    source.write_text(OFFSETS.format(size=hip_driver.PROPERTIES_BYTES, fields=fields))
    command = [*toolchain.driver, "--cuda-host-only", "-fsyntax-only", "-std=c++17", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
