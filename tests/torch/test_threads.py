"""Kernels of the host run on the threads of PyTorch's OpenMP runtime."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
from tilewright import settings  # noqa: E402
from tilewright.runtime import host  # noqa: E402
from tilewright.runtime.abi import HostTeam  # noqa: E402

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or "OpenMP" not in torch.__config__.parallel_info().split("backend:")[-1],
    reason="this PyTorch has no OpenMP threads that can be shared",
)
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def workers(handle: int, count: int) -> set[int]:
    """The threads that computed `count` indices, each of which waits for all the others for a while."""
    found: list[int] = []
    arrived = threading.Barrier(count)

    def body(context: int, index: int, indices: int) -> None:
        found.append(threading.get_native_id())
        with suppress(threading.BrokenBarrierError):
            arrived.wait(20 if count == 2 else 0.01)

    kept = BODY(body)
    RUN(HostTeam.from_address(handle).run)(handle, count, ctypes.cast(kept, ctypes.c_void_p), None)
    assert len(found) == count
    return set(found)


def test_the_runtime_is_pytorch_s() -> None:
    torch.randn(1 << 20).exp()
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    assert host.openmp_library() in loaded
    with settings.override(threads=2):
        assert len(workers(host.team(2), 2)) == 2


def test_the_default_follows_set_num_threads() -> None:
    torch.set_num_threads(1)
    me = threading.get_native_id()
    assert workers(host.team(4), 5) == {me}
    with settings.override(threads=2):  # a number that is given rules
        assert len(workers(host.team(2), 2)) == 2


def test_operators_and_calls_take_turns() -> None:
    """Also from several threads, each of which has workers of its own."""
    torch.manual_seed(0)
    x, w = torch.randn(200, 96), torch.randn(64, 96)
    right = torch.nn.functional.gelu(x) @ w.T
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with torch.inference_mode(), settings.override(threads=2):
                for _ in range(30):
                    torch.testing.assert_close(tw.gemm(torch.nn.functional.gelu(x), w.T), right, rtol=1e-4, atol=1e-4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    work()
    for one in threads:
        one.join()
    assert not failures, failures[0]
