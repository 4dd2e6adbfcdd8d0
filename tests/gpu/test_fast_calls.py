"""Calls made before, on a real GPU: in C where PyTorch allows it, on the right stream and device, and right."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tilewright as tw
from tilewright.dispatch.registry import Registry
from tilewright.runtime import calls

torch: Any = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)

needs_exchange = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this PyTorch does not let C read its tensors"
)


class Paths:
    """How many calls were not C's alone, and how many of them were planned anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.long = self.planned = 0
        long, plan = calls.Caller.run_slow, Registry.plan

        def counted_slow(*given: Any) -> Any:
            self.long += 1
            return long(*given)

        def counted_plan(*given: Any, **named: Any) -> Any:
            self.planned += 1
            return plan(*given, **named)

        monkeypatch.setattr(calls.Caller, "run_slow", counted_slow)
        monkeypatch.setattr(Registry, "plan", counted_plan)


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> Paths:
    return Paths(monkeypatch)


def random(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(torch.bfloat16)


def close(result: Any, a: Any, b: Any) -> bool:
    exact, scale = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    error = (result.double() - exact).abs()
    return bool((error <= exact.abs() * 2.0**-8 + scale * 1e-5).all())


@needs_exchange
@pytest.mark.parametrize("size", [(16, 64, 64), (1, 4096, 4096), (64, 2112, 7168), (300, 500, 700), (333, 777, 555)])
def test_a_call_made_before_is_one_c_function(paths: Paths, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b, out = random(m, k), random(n, k).T, torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        tw.gemm(a, b)
        tw.gemm(a, b, out=out)
    before = paths.long, paths.planned
    for _ in range(5):
        a.copy_(random(m, k))
        out.fill_(float("nan"))
        result = tw.gemm(a, b)
        assert close(result, a, b)
        assert (result.shape, result.dtype, result.is_contiguous()) == ((m, n), torch.bfloat16, True)
        assert tw.gemm(a, b, out=out) is out
        assert close(out, a, b)
    assert (paths.long, paths.planned) == before


def test_many_weights_and_new_tensors_in_turn(paths: Paths) -> None:
    a, weights = random(64, 512), [random(256, 512).T for _ in range(40)]
    for one in weights[:2]:
        tw.gemm(a, one)
        tw.gemm(a, one)
    before = paths.long
    for one in (*weights, *weights):
        assert close(tw.gemm(a, one), a, one)
    for _ in range(40):  # freed memory that comes back as something else
        x, y = random(64, 512), random(256, 512)
        assert close(tw.gemm(x, y.T), x, y.T)
    assert paths.long == before


def test_the_current_stream_and_other_threads() -> None:
    a, b = random(1024, 1024), random(1024, 1024)
    for _ in range(3):
        expected = tw.gemm(a, b).clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        slow = a
        for _ in range(50):
            slow = slow * 1
        copy = tw.gemm(slow, b).clone()
    side.synchronize()
    assert torch.equal(copy, expected)
    found: list[Any] = []

    def work() -> None:  # a thread that never chose a device
        found.append(tw.gemm(a, b))
        torch.cuda.synchronize()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4
    assert all(torch.equal(one, expected) for one in found)


def test_another_device_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one device")
    a, b = random(64, 512).to("cuda:1"), random(256, 512).to("cuda:1").T
    for _ in range(4):
        result = tw.gemm(a, b)
        assert result.device == a.device
        assert close(result, a, b)
    assert torch.cuda.current_device() == 0
