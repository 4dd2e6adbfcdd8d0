"""PyTorch tensors: layouts from strides, the current stream, graphs, host time, errors, and the process after them."""

from __future__ import annotations

import time
from typing import Any

import pytest

import tilewright as tw
from tilewright.errors import DeviceError, ProblemError
from tilewright.runtime import cuda

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)


def random(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype or torch.bfloat16)


def close(result: Any, a: Any, b: Any) -> bool:
    exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    error = (result.double() - exact).abs()
    return bool((error <= exact.abs() * 2.0**-8 + scale * 1e-5).all())


@pytest.mark.parametrize(
    "size", [(1, 512, 256), (16, 4096, 4096), (300, 500, 700), (1024, 1024, 1024), (4097, 129, 65)]
)
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_layouts_come_from_strides(size: tuple[int, int, int], turned: tuple[bool, bool]) -> None:
    m, n, k = size
    a = random(k, m).T if turned[0] else random(m, k)
    b = random(n, k).T if turned[1] else random(k, n)
    assert close(tw.gemm(a, b), a, b)


def test_misaligned_views_run_on_another_kernel() -> None:
    whole, b = random(128, 264), random(256, 64)
    for start in (0, 1, 8):
        a = whole[:, start : start + 256]
        assert close(tw.gemm(a, b), a, b)
    out = torch.full((128, 65), 7.0, device="cuda", dtype=torch.bfloat16)
    a = whole[:, :256]
    tw.gemm(a, b, out=out[:, 1:])
    assert close(out[:, 1:], a, b)
    assert bool((out[:, 0] == 7).all())


def test_work_is_ordered_on_the_current_stream() -> None:
    a, b = random(2048, 2048), random(2048, 2048)
    expected = tw.gemm(a, b).clone()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        slow = a
        for _ in range(20):
            slow = slow * 1
        result = tw.gemm(slow, b)
        copy = result.clone()
    side.synchronize()
    assert torch.equal(copy, expected)


def test_a_captured_graph_replays_with_new_values() -> None:
    for m, n, k in ((512, 512, 512), (64, 2112, 7168), (4, 4096, 4096)):  # whole tiles, stream-K, skinny
        a, b = random(m, k), random(n, k)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        tw.gemm(a, b.T, out=out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tw.gemm(a, b.T, out=out)
        for _ in range(3):
            a.copy_(random(m, k))
            graph.replay()
            torch.cuda.synchronize()
            assert close(out, a, b.T), (m, n, k)


def test_fused_work_on_tensors() -> None:
    a, b, bias = random(200, 320), random(640, 320), random(640)
    result = tw.gemm(a, b.T, ds=(bias,), epilogue="relu")
    expected = torch.relu(a.double() @ b.double().T + bias.double())
    assert bool(((result.double() - expected).abs() <= expected.abs() * 2.0**-7 + 1e-2).all())


def test_each_mistake_has_its_error_and_the_process_goes_on() -> None:
    a, b = random(64, 64), random(64, 64)
    with pytest.raises(DeviceError):
        tw.gemm(a, b.cpu())
    with pytest.raises(DeviceError):
        tw.gemm(a.cpu(), b)
    with pytest.raises(ProblemError, match="shares memory"):
        tw.gemm(a, b, out=a)
    with pytest.raises(ProblemError):
        tw.gemm(a, random(65, 64))
    with pytest.raises(DeviceError):
        cuda.device(99)
    assert close(tw.gemm(a, b), a, b)


def test_host_time_of_a_cached_call_is_told(record_property: Any) -> None:
    """Not judged here: a busy machine is no bug.  The number is in the report (and in the benchmark)."""
    a, b = random(16, 64), random(64, 64)
    tw.gemm(a, b)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(2000):
        tw.gemm(a, b)
    took = (time.perf_counter() - started) / 2000
    torch.cuda.synchronize()
    record_property("host_seconds", took)
    assert took > 0
