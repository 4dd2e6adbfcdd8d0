"""Gated products on a GPU: kernels of two B, gates that multiply by a D tensor, and two kernels instead of one."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import tilewright as tw
from tests.backends.cuda.gemm import names as make
from tests.gpu.cases import GEMM, signature
from tests.gpu.together import build_together
from tests.gpu.torch_here import torch
from tilewright.backends.gpu.gemm import GpuLoopsSchedule
from tilewright.ops.base import KernelSpec

ACTIVATIONS: dict[str, Any] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "fastgelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}
GATES = {"silu": "SiluAndMul", "gelu": "GeluAndMul", "fastgelu": "FastGeluAndMul"}
TILES: dict[str, tuple[Any, ...]] = {
    "coop-256": (128, 256, 4, (2, 1), make.WAYS["cooperative"]),
    "coop-192": (192, 192, 3, (1, 2), make.WAYS["cooperative"]),
    "pingpong-256": (64, 256, 4, (1, 1), make.WAYS["pingpong"]),
    "pingpong-64": (64, 64, 8, (1, 1), make.WAYS["pingpong"]),
    "direct": (128, 128, 4, (1, 1), make.WAYS["cooperative"], "direct"),
}


def drawn(m: int, n: int, k: int, dtype: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(m + n + k)
    return tuple(torch.randn(*shape, device="cuda").to(dtype) for shape in ((m, k), (n, k), (n, k)))


def right(a: Any, gate: Any, up: Any, name: str) -> Any:
    g, u = (a.double() @ one.double().T for one in (gate, up))
    return ACTIVATIONS[name](g) * u


def close(found: Any, exact: Any) -> None:
    """Within what rounding the result, and in between A.up, can do; sums in fp32 of k terms."""
    unit = torch.finfo(found.dtype).eps
    assert ((found.double() - exact).abs() <= 1.1 * unit * exact.abs() + 2e-5 * exact.abs().max()).all()


def kernels(name: str) -> dict[str, KernelSpec]:
    one = signature("bf16", "bf16", "rcr", GATES[name], 0)
    made = {tile: KernelSpec("gemm", one, make.tma_ws(one, *way), "sm_90a") for tile, way in TILES.items()}
    made |= {f"skinny-{w}": KernelSpec("gemm", one, make.skinny(1, 1, w), "sm_90a") for w in (4, 16)}
    made["skinny-wide"] = KernelSpec("gemm", one, make.skinny(2, 2, 16), "sm_90a")
    made["loops"] = KernelSpec("gemm", one, GpuLoopsSchedule(), "sm_90a")
    assert not [tile for tile, spec in made.items() if GEMM.check(spec)]
    return made


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("kernel", [*TILES, "skinny-4", "skinny-16", "skinny-wide", "loops"])
def test_every_kernel_of_two_bs(name: str, kernel: str, arch: str) -> None:
    if arch != "sm_90a":
        pytest.skip("kernels of sm_90a")
    built = tw.Registry("sm_90a").kernel(kernels(name)[kernel])
    rows = (1, 5, 8) if kernel.startswith("skinny") else (1, 70, 300)
    for m in rows:
        for n, k in ((64, 64), (1000, 1032), (520, 4096)):
            a, gate, up = drawn(m, n, k, torch.bfloat16)
            out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            built(a, gate.T, up=up.T, out=out)
            close(out, right(a, gate, up, name))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_calls(dtype: Any) -> None:
    """By one kernel or by two, whatever selection takes; twice, for the fast path; in a graph."""
    sizes = ((1, 14336, 4096), (16, 1000, 1032), (64, 4096, 4096), (500, 776, 520), (33, 75, 77))

    def once(m: int, n: int, k: int) -> None:
        a, gate, up = drawn(m, n, k, dtype)
        tw.gated_gemm(a, gate.T, up.T)

    build_together(partial(once, *size) for size in sizes)
    for m, n, k in sizes:
        a, gate, up = drawn(m, n, k, dtype)
        found = tw.gated_gemm(a, gate.T, up.T)
        close(found, right(a, gate, up, "silu"))
        assert torch.equal(tw.gated_gemm(a, gate.T, up.T), found)
        merged = torch.cat((gate, up))
        assert torch.equal(tw.gated_gemm(a, merged[:n].T, merged[n:].T), found)
        stream = torch.cuda.Stream()
        out = torch.empty_like(found)
        with torch.cuda.stream(stream):
            tw.gated_gemm(a, gate.T, up.T, out=out)
            stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                tw.gated_gemm(a, gate.T, up.T, out=out)
        out.zero_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, found)


def test_a_gate_times_a_tensor() -> None:
    for m, n, k in ((1, 4096, 1024), (200, 520, 256), (37, 41, 43)):
        a, gate, _ = drawn(m, n, k, torch.bfloat16)
        d = torch.randn(m, n, device="cuda").to(torch.bfloat16)
        found = tw.gemm(a, gate.T, ds=(d,), epilogue="gelu_and_mul")
        close(found, ACTIVATIONS["gelu"](a.double() @ gate.double().T) * d.double())
