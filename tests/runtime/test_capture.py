"""Streams that are captured into graphs: what graphs use stays where it is, and nothing is allocated meanwhile."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from tests.runtime.fakes import FakeHip, kernel_text
from tilewright import ops
from tilewright.errors import DeviceError
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import cuda, hip
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.loader import Kernel, load_library

Operands = tuple[DeviceArray, DeviceArray, DeviceArray]


@pytest.fixture
def hungry(fake_hip: FakeHip) -> Kernel:
    return load_library(fake_hip.kernel(workspace=True))[0]


def operands(device: Any, dtype: Any = np.int8, result: Any = np.int32) -> Operands:
    a, b = np.ones((33, 40), dtype), np.ones((17, 40), dtype)
    out = np.zeros((33, 17), result)
    return DeviceArray.of(device, a), DeviceArray.of(device, b).T, DeviceArray.of(device, out)


def base(device: Any, stream: int, nbytes: int = 1) -> int:
    """Where the memory of a stream's workspace begins, as it was allocated."""
    device.workspace(nbytes, stream)
    return int(device._workspaces[stream].memory.address)


def test_a_workspace_cannot_be_made_while_its_stream_is_captured(fake_hip: FakeHip, hungry: Kernel) -> None:
    device = hip.device()
    a, b, out = operands(device)
    with device.new_stream() as stream:
        fake_hip.capture(stream.handle)
        for attempt in (lambda: hungry(a, b, out=out), lambda: device.allocate(64)):
            with pytest.raises(DeviceError, match="captured into a graph") as caught:
                attempt()
            assert caught.value.rule == "capture-allocation"
            assert "once" in caught.value.remedy
        assert fake_hip.calls("hipLaunchKernel") == 0
        fake_hip.capture(stream.handle, False)
        hungry(a, b, out=out)
        fake_hip.capture(stream.handle)
        hungry(a, b, out=out)  # what it needs is there now
        fake_hip.capture(stream.handle, False)
    np.testing.assert_array_equal(out.numpy(), 40)


def test_a_stream_beside_the_captured_one_may_allocate(fake_hip: FakeHip) -> None:
    device = hip.device()
    with device.new_stream() as stream:
        assert not device.capturing(stream.handle)
        fake_hip.capture(stream.handle)
        assert device.capturing(stream.handle)
        assert not device.capturing(0)
        fake_hip.fail("hipStreamIsCapturing", 906)  # what the default stream answers then
        assert not device.capturing(0)
        assert fake_hip.last_error == 0
        fake_hip.capture(stream.handle, False)


def test_memory_pressure_leaves_the_workspaces_of_graphs(fake_hip: FakeHip, hungry: Kernel) -> None:
    device = hip.device()
    a, b, out = operands(device)
    hungry(a, b, out=out)  # the default stream's: no graph uses it
    with device.new_stream() as stream:
        hungry(a, b, out=out)
        address = base(device, stream.handle)
        fake_hip.capture(stream.handle)
        hungry(a, b, out=out)
        fake_hip.capture(stream.handle, False)
    before = fake_hip.alive[0]
    fake_hip.fail("hipMalloc", 2)
    memory = device.allocate(100)
    assert fake_hip.alive[0] == before  # one more, one given back
    assert fake_hip.device_of(address) == 0
    assert base(device, stream.handle) == address
    memory.free()
    fake_hip.fail("hipMalloc", 2)
    with pytest.raises(DeviceError) as caught:
        device.allocate(100)
    assert caught.value.rule == "device-memory"
    assert fake_hip.device_of(address) == 0


def test_a_graph_keeps_its_workspace_when_the_stream_needs_more_or_ends(fake_hip: FakeHip, hungry: Kernel) -> None:
    device = hip.device()
    a, b, out = operands(device)
    with device.new_stream() as stream:
        hungry(a, b, out=out)
        fake_hip.capture(stream.handle)
        hungry(a, b, out=out)
        fake_hip.capture(stream.handle, False)
        first, second, third = (base(device, stream.handle, nbytes) for nbytes in (1, 1 << 20, 1 << 21))
    assert first != third
    assert (fake_hip.device_of(first), fake_hip.device_of(third)) == (0, 0)
    assert fake_hip.device_of(second) == -1 or second == third  # no graph used it
    stream.close()
    assert fake_hip.device_of(first) == 0
    assert fake_hip.device_of(third) == -1
    device.drop_workspaces()  # the user says that no graph is replayed any more
    assert fake_hip.device_of(first) == -1
    device.drop_workspaces()


def zeros_at(address: int, nbytes: int) -> bool:
    return bytes((ctypes.c_char * nbytes).from_address(address)) == bytes(nbytes)


def test_the_first_bytes_of_a_workspace_are_clear(fake_hip: FakeHip) -> None:
    device = hip.device()
    for nbytes, clear in ((64, 64), (100_000, 64), (200_000, 192), (200_000, 1 << 16), (1 << 20, 1 << 16)):
        address = device.workspace(nbytes, 0, clear)
        assert zeros_at(address, clear)
        assert address % 64 == 0
        ctypes.memset(address + clear, 0xFF, nbytes - clear)  # what a kernel may fill
        plain = device.workspace(nbytes - clear, 0)
        ctypes.memset(plain, 0xFF, nbytes - clear)  # and one that wants no zeros
        assert device.workspace(nbytes, 0, clear) == address  # both have it, and the zeros stay
        assert zeros_at(address, clear)
    device.drop_workspaces()


def test_kernels_that_want_different_zeros_share_a_workspace(fake_hip: FakeHip) -> None:
    """The fake kernel fails where its zeros are not, and fills the rest."""
    device = hip.device()
    a, b, out = operands(device)
    kernels = [load_library(fake_hip.kernel(workspace=True, clear=clear))[0] for clear in (0, 64, 2304, 1 << 15)]
    assert [one.clear_bytes for one in kernels] == [0, 64, 2304, 1 << 15]
    for one in (*kernels, *kernels[::-1]):
        one(a, b, out=out)
    np.testing.assert_array_equal(out.numpy(), 40)
    made = fake_hip.calls("hipMalloc")
    for one in kernels:  # the zeros are as many as any of them wants
        one(a, b, out=out)
    assert fake_hip.calls("hipMalloc") == made
    with device.new_stream() as stream:  # also of a new stream's, whoever comes first
        kernels[0](a, b, out=out)
        made = fake_hip.calls("hipMalloc")
        fake_hip.capture(stream.handle)
        for one in kernels:
            one(a, b, out=out)
        fake_hip.capture(stream.handle, False)
    assert fake_hip.calls("hipMalloc") == made
    stream.close()
    device.drop_workspaces()


def test_more_zeros_cannot_be_had_while_a_stream_is_captured(fake_hip: FakeHip, hungry: Kernel) -> None:
    """A graph has its workspace with as many zeros as it began with; one that grew would be another."""
    device = hip.device()
    wide = load_library(fake_hip.kernel(workspace=True, clear=1 << 17))[0]
    a, b, out = operands(device)
    with device.new_stream() as stream:
        hungry(a, b, out=out)
        fake_hip.capture(stream.handle)
        hungry(a, b, out=out)
        with pytest.raises(DeviceError, match="captured into a graph"):
            wide(a, b, out=out)
        fake_hip.capture(stream.handle, False)
        graph = device._workspaces[stream.handle]
        wide(a, b, out=out)
        assert device._workspaces[stream.handle] is not graph
        assert fake_hip.device_of(graph.memory.address) == 0  # a replay may still come
        ctypes.memset(graph.address, 0xFF, graph.nbytes)  # which fills what is its own
        wide(a, b, out=out)
        assert zeros_at(graph.memory.address, graph.cleared)
    np.testing.assert_array_equal(out.numpy(), 40)
    stream.close()
    device.drop_workspaces()


# -- CUDA: a spare for the stream PyTorch captures on ----------------------------------------------------------------


@pytest.fixture
def stream_k(fake_cuda: ctypes.CDLL, library_of: Callable[[str], Path]) -> Kernel:
    problem = GemmProblem(33, 17, 40, "bf16", dtype_c="fp32", layout="rcr")
    spec = ops.op("gemm").fallback_spec(problem.signature, "sm_90a")
    return load_library(library_of(kernel_text(spec, workspace=True, queue="fake_cuda_launch", clear=64)))[0]


def of(address: int, fake: ctypes.CDLL) -> bool:
    fake.fake_cuda_holds.argtypes = (ctypes.c_void_p,)
    return bool(fake.fake_cuda_holds(address))


def test_a_stream_never_used_before_is_captured_with_the_spare(fake_cuda: ctypes.CDLL, stream_k: Kernel) -> None:
    device = cuda.device()
    a, b, out = operands(device, bfloat16, np.float32)
    stream_k(a, b, out=out)  # on the default stream, as people warm up
    made = fake_cuda.fake_cuda_calls(b"cuMemAlloc")
    with device.new_stream() as stream:
        fake_cuda.fake_cuda_capture(stream.handle, 1)
        stream_k(a, b, out=out)
        assert fake_cuda.fake_cuda_calls(b"cuMemAlloc") == made
        address = base(device, stream.handle)
        assert zeros_at(address, device._workspaces[stream.handle].cleared)
        stream_k(a, b, out=out)
        fake_cuda.fake_cuda_capture(stream.handle, 0)
    with device.new_stream() as other:  # the spare is spent: this one has to be told
        fake_cuda.fake_cuda_capture(other.handle, 1)
        with pytest.raises(DeviceError) as caught:
            stream_k(a, b, out=out)
        assert caught.value.rule == "capture-allocation"
        fake_cuda.fake_cuda_capture(other.handle, 0)
    assert base(device, 0) != address  # any call beside captures makes another spare
    made = fake_cuda.fake_cuda_calls(b"cuMemAlloc")
    with device.new_stream() as third:
        fake_cuda.fake_cuda_capture(third.handle, 1)
        stream_k(a, b, out=out)
        fake_cuda.fake_cuda_capture(third.handle, 0)
    assert fake_cuda.fake_cuda_calls(b"cuMemAlloc") == made
    fake_cuda.fake_cuda_capacity(1 << 20)  # nothing fits any more: what no graph uses goes
    with pytest.raises(DeviceError):
        device.allocate(2 << 20)
    assert of(address, fake_cuda)
    np.testing.assert_array_equal(out.numpy(), 40)


def test_no_room_for_a_spare_is_no_error(fake_cuda: ctypes.CDLL, stream_k: Kernel) -> None:
    device = cuda.device()
    a, b, out = operands(device, bfloat16, np.float32)
    fake_cuda.fake_cuda_capacity(40 << 20)
    stream_k(a, b, out=out)
    assert device.workspace(1, 0)
    np.testing.assert_array_equal(out.numpy(), 40)
    with device.new_stream() as stream:
        fake_cuda.fake_cuda_capture(stream.handle, 1)
        with pytest.raises(DeviceError, match="captured into a graph"):
            stream_k(a, b, out=out)
        fake_cuda.fake_cuda_capture(stream.handle, 0)


# -- CUDA: workspaces of PyTorch's allocator ---------------------------------------------------------------------------


class FakeTorch:
    """PyTorch's caching allocator as a list: what it gave, for which stream, and what came back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hip_version: str | None = None) -> None:
        self.held: dict[int, tuple[Any, int, int]] = {}  # by address: the buffer, bytes and stream
        self.asked: list[int] = []  # the streams of all requests
        self.limit, self.current = 1 << 40, 0
        module: Any = types.ModuleType("torch")
        module.cuda = types.SimpleNamespace(
            OutOfMemoryError=MemoryError, is_initialized=lambda: True, caching_allocator_alloc=self.alloc,
            caching_allocator_delete=self.delete, current_stream=lambda _: types.SimpleNamespace(cuda_stream=0),
        )  # fmt: skip
        module.version = types.SimpleNamespace(hip=hip_version)
        module._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda _: self.current)
        module.Tensor = type("Tensor", (), {})
        module.nn = types.SimpleNamespace(Parameter=type("Parameter", (), {}))
        monkeypatch.setitem(sys.modules, "torch", module)

    def alloc(self, nbytes: int, device: int, stream: int) -> int:
        assert device == 0
        self.asked.append(stream)
        if sum(one[1] for one in self.held.values()) + nbytes > self.limit:
            raise MemoryError
        buffer = (ctypes.c_char * (nbytes + 512))()
        ctypes.memset(buffer, 0xFF, nbytes + 512)  # somebody else's before
        address = -(-ctypes.addressof(buffer) // 512) * 512
        self.held[address] = buffer, nbytes, stream
        return address

    def delete(self, address: int) -> None:
        del self.held[address]

    def streams(self) -> list[int]:
        return [one[2] for one in self.held.values()]


def test_workspaces_come_from_pytorch_where_it_has_started(
    fake_cuda: ctypes.CDLL, stream_k: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = FakeTorch(monkeypatch)
    device = cuda.device()
    a, b, out = operands(device, bfloat16, np.float32)
    made = fake_cuda.fake_cuda_calls(b"cuMemAlloc")
    stream_k(a, b, out=out)
    assert torch.streams() == [0]
    assert fake_cuda.fake_cuda_calls(b"cuMemAlloc") == made, "and there is no spare"
    held = device.workspaces[0]
    assert held.memory.address in torch.held
    assert zeros_at(held.memory.address, held.cleared)
    stream_k(a, b, out=out)
    assert len(torch.held) == 1, "it is kept"
    base(device, 0, 64 << 20)
    assert [one[1] >= 64 << 20 for one in torch.held.values()] == [True], "a larger one takes its place"
    device.drop_workspaces()
    assert not torch.held
    np.testing.assert_array_equal(out.numpy(), 40)


def test_a_call_that_pytorch_captures_takes_its_workspace_from_the_pool_and_gives_it_back(
    fake_cuda: ctypes.CDLL, stream_k: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's compiler refuses a graph in whose pool anything but its results is alive after the capture."""
    torch = FakeTorch(monkeypatch)
    device = cuda.device()
    a, b, out = operands(device, bfloat16, np.float32)
    stream_k(a, b, out=out)
    stream = device.new_stream()
    torch.current = stream.handle
    fake_cuda.fake_cuda_capture(stream.handle, 1)
    for _ in range(2):
        asked = len(torch.asked)
        cleared = fake_cuda.fake_cuda_calls(b"cuMemsetD8Async")
        stream_k(a, b, out=out)
        assert torch.asked[asked:] == [stream.handle]
        assert fake_cuda.fake_cuda_calls(b"cuMemsetD8Async") == cleared + 1, "a part of the graph"
        assert torch.streams() == [0], "it went back"
        assert stream.handle not in device.workspaces, "the short path in C must not find it"
    fake_cuda.fake_cuda_capture(stream.handle, 0)
    stream.close()
    device.drop_workspaces()
    assert not torch.held


def test_other_streams_have_workspaces_of_the_driver_beside_pytorch(
    fake_cuda: ctypes.CDLL, stream_k: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's compiler warms up with the pool of a graph, where nothing may stay; the graph has memory of its own."""
    torch = FakeTorch(monkeypatch)
    device = cuda.device()
    a, b, out = operands(device, bfloat16, np.float32)
    stream = device.new_stream()
    torch.current = stream.handle
    stream_k(a, b, out=out)
    assert not torch.asked
    held = device.workspaces[stream.handle]
    fake_cuda.fake_cuda_capture(stream.handle, 1)
    stream_k(a, b, out=out)
    assert torch.asked == [stream.handle]
    assert not torch.held
    fake_cuda.fake_cuda_capture(stream.handle, 0)
    assert device.workspaces[stream.handle] is held, "eager calls go on with theirs"
    device.drop_workspace(stream.handle)
    assert not of(held.memory.address, fake_cuda), "which no graph uses"
    stream.close()
    device.drop_workspaces()


def test_no_room_in_pytorch_is_one_error(
    fake_cuda: ctypes.CDLL, stream_k: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = FakeTorch(monkeypatch)
    device = cuda.device()
    a, b, out = operands(device, bfloat16, np.float32)
    torch.limit = 1 << 20
    stream_k(a, b, out=out)  # what is needed, without room to grow
    assert [one[1] < 1 << 20 for one in torch.held.values()] == [True]
    torch.limit = 100
    device.drop_workspaces()
    with pytest.raises(DeviceError) as caught:
        stream_k(a, b, out=out)
    assert caught.value.rule == "device-memory"
    assert not torch.held
