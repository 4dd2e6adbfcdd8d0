"""What is fused, in every form it may have: rows, columns, scalars, whole matrices in any place, C beside them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.backends.cuda.gemm import names as make
from tests.backends.cuda.gemm.names import multistage
from tests.gpu.cases import GEMM, signature
from tests.gpu.torch_here import torch
from tilewright.ops.base import KernelSpec

KINDS = ("full", "row", "column", "one", "strided", "odd")
SIZES = ((264, 520, 136), (1000, 776, 1032), (136, 264, 2056))
WAYS: dict[str, tuple[Any, ...]] = {
    "coop-256": (128, 256, 4, (2, 1), make.WAYS["cooperative"]),
    "coop-176": (128, 176, 5, (1, 1), make.WAYS["cooperative"]),
    "pingpong-128": (128, 128, 6, (2, 1), make.WAYS["pingpong"]),
    "stream": (128, 192, 4, (1, 1), make.WAYS["cooperative_stream_k"]),
    "split": (128, 96, 6, (1, 1), make.WAYS["cooperative_split_k"]),
    "direct": (128, 128, 4, (1, 1), make.WAYS["cooperative"], "direct"),
    "small": (64, 64, 8, (1, 1), make.WAYS["pingpong"]),
    "turned": (64, 64, 8, (1, 1), make.WAYS["pingpong_swap_ab_split_k"]),
}


def specs(epilogue: str) -> dict[str, KernelSpec]:
    one = signature("bf16", "bf16", "rcr", epilogue, 2)
    made = {name: KernelSpec("gemm", one, make.tma_ws(one, *way), "sm_90a") for name, way in WAYS.items()}
    staged = multistage(one, 64, 64, k_bytes=64, warps=(2, 2), stages=3, vector_bytes=16)
    made["multistage"] = KernelSpec("gemm", one, staged, "sm_90a")
    assert not [name for name, spec in made.items() if GEMM.check(spec)]
    return made


def tensor(kind: str, m: int, n: int) -> Any:
    if kind in ("row", "column", "one"):
        return torch.randn(*{"row": (n,), "column": (m, 1), "one": (1, 1)}[kind], device="cuda", dtype=torch.bfloat16)
    if kind == "full":
        return torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    wide = torch.randn(m + 1, n + (8 if kind == "strided" else 3), device="cuda", dtype=torch.bfloat16)
    return wide[1:, :n] if kind == "strided" else wide[1:, 1 : n + 1]


@pytest.mark.parametrize("epilogue", ["Gelu", "MultiDMultiply"])
def test_every_form_of_every_tensor(arch: str, epilogue: str) -> None:
    from tilewright.dispatch import kernels

    if arch != "sm_90a":
        pytest.skip("kernels of sm_90a")
    chosen = specs(epilogue)
    kernels.kernels(list(chosen.values()))
    wrong = []
    for turn, (first, second) in enumerate(product(KINDS, repeat=2)):
        m, n, k = SIZES[turn % len(SIZES)]
        a, b = (torch.randn(lines, k, device="cuda", dtype=torch.bfloat16) for lines in (m, n))
        ds, c = (tensor(first, m, n), tensor(second, m, n)), tensor(KINDS[turn % 2 * 4], m, n)
        beta = (0.0, -0.5)[turn // 2 % 2]
        before = 0.5 * (a.double() @ b.double().T) + beta * c.double()
        size = 0.5 * (a.double().abs() @ b.double().abs().T) + abs(beta) * c.double().abs()
        for d in ds:
            before = before * d.double() if epilogue == "MultiDMultiply" else before + d.double()
            size = size * d.double().abs() if epilogue == "MultiDMultiply" else size + d.double().abs()
        value = torch.nn.functional.gelu(before) if epilogue == "Gelu" else before
        tolerance = 2.0**-8 * value.abs() + 1e-5 * (size + 1)
        for name, spec in chosen.items():
            out = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            kernels.kernel(spec)(a, b.T, c, alpha=0.5, beta=beta, ds=ds, out=out)
            bad = int((~((out.double() - value).abs() <= tolerance)).sum())
            if bad:
                wrong.append(f"{name} {first} {second} {m}x{n}x{k} beta {beta}: {bad} of {m * n}")
    assert wrong == []
