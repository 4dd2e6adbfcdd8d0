"""What goes wrong on a GPU: one clear error each, and the process goes on where CUDA allows it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.torch_here import torch
from tilewright.errors import DeviceError, ProblemError, TilewrightError
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import cuda

PROBLEMS = [GemmProblem(64, 64, 64, "bf16")]


@pytest.fixture
def pair() -> Any:
    """Two matrices; after the test the product of two others must be right."""
    return tuple(torch.randn(64, 64, device="cuda").bfloat16() for _ in range(2))


@pytest.fixture(autouse=True)
def goes_on() -> Iterator[None]:
    yield
    a, b = (torch.randint(-3, 4, (64, 64), device="cuda").bfloat16() for _ in range(2))
    assert torch.equal(tw.gemm(a, b).double(), a.double() @ b.double()), "the process is not usable any more"


def test_tensors_in_host_memory(pair: tuple[Any, Any]) -> None:
    a, b = pair
    for left, right in ((a, b.cpu()), (a.cpu(), b)):
        with pytest.raises(DeviceError) as caught:
            tw.gemm(left, right)
        assert caught.value.remedy
    with pytest.raises(DeviceError):
        tw.gemm(a, b, out=torch.empty(64, 64, dtype=torch.bfloat16))
    with pytest.raises(TilewrightError):
        tw.gemm(a, np.zeros((64, 64), np.float32))


def test_tensors_on_two_devices(pair: tuple[Any, Any]) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    a, b = pair
    with pytest.raises(DeviceError, match="cuda:1") as caught:
        tw.gemm(a, b.to("cuda:1"))
    assert caught.value.remedy
    other = tw.gemm(a.to("cuda:1"), b.to("cuda:1"))
    assert other.device.index == 1
    assert torch.equal(other.cpu(), tw.gemm(a, b).cpu())


def test_an_out_that_overlaps(pair: tuple[Any, Any]) -> None:
    a, b = pair
    with pytest.raises(ProblemError, match="shares memory"):
        tw.gemm(a, b, out=a)
    memory = torch.zeros(64 * 96, device="cuda", dtype=torch.bfloat16)
    part = memory[: 64 * 64].view(64, 64)
    with pytest.raises(ProblemError, match="shares memory"):
        tw.gemm(part, b, out=memory[32 * 64 :].view(64, 64))
    with pytest.raises(ProblemError, match="share memory"):
        tw.gemm(a, b, out=memory.as_strided((64, 64), (8, 1)))


def test_shapes_types_and_devices_that_are_not(pair: tuple[Any, Any]) -> None:
    a, b = pair
    mistakes: tuple[Callable[[], object], ...] = (
        lambda: tw.gemm(a, torch.zeros(65, 64, device="cuda", dtype=a.dtype)),
        lambda: tw.gemm(a.double(), b.double()),
        lambda: tw.gemm(a[:, ::2], b[:32, ::2]),
        lambda: tw.gemm(a, b, out=torch.empty(64, 63, device="cuda", dtype=a.dtype)),
        lambda: tw.gemm(a.requires_grad_(), b, out=torch.empty(64, 64, device="cuda", dtype=a.dtype)),
    )
    for wrong in mistakes:
        with pytest.raises(TilewrightError) as caught:
            wrong()
        assert caught.value.remedy
    with pytest.raises(DeviceError, match="no cuda:99") as device:
        cuda.device(99)
    assert device.value.remedy


def test_a_target_of_another_kind(pair: tuple[Any, Any]) -> None:
    a, b = pair
    with pytest.raises(TilewrightError):
        tw.gemm(a, b, target="gfx942")


def test_too_little_memory() -> None:
    """And what was captured before still runs: its workspace is not given back for want of memory."""
    a, b = (torch.randn(rows, 7168, device="cuda").bfloat16() for rows in (64, 2112))
    expected = tw.gemm(a, b.T).clone()
    out = torch.empty_like(expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.gemm(a, b.T, out=out)
    with pytest.raises(DeviceError, match="CUDA_ERROR_OUT_OF_MEMORY") as caught:
        cuda.device().allocate(1 << 50)
    assert caught.value.rule == "device-memory"
    assert "empty_cache" in caught.value.remedy
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, expected)


STICKY = """
import json
from dataclasses import replace
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.errors import DeviceError
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import cuda
from tilewright.runtime.bindings.gemm.dense import dense
from tilewright.runtime.bindings.gemm.operands import OUT, UP, A, B
from tilewright.runtime.plans import Plan

device = cuda.device()
problem = GemmProblem(64, 64, 64, "bf16")
spec = ops.op("gemm").fallback_spec(problem.signature, device.arch)
plan = Plan(replace(dense(problem), place=device.place), [kernels.kernel(spec)], (), 1)
told = []
wrong = [{A: 4096, B: 8192, OUT: 12288}.get(slot, 0) for slot in range(UP + 1)]
for attempt in (lambda: (plan.run(wrong, (1.0, 0.0)), device.synchronize()), lambda: device.allocate(64)):
    try:
        attempt()
        told.append(None)
    except DeviceError as error:
        told.append({"message": error.message, "rule": error.rule, "remedy": error.remedy})
print(json.dumps(told))
"""


def test_an_error_that_sticks_is_named_and_ends_with_its_process() -> None:
    """Addresses that are nobody's, in a process of its own: CUDA answers nothing else there, and this one goes on."""
    done = subprocess.run([sys.executable, "-c", STICKY], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout.splitlines()[-1])
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in first["message"]
    assert "CUDA_ERROR" in second["message"]
    assert first["remedy"]
    assert second["remedy"]
