"""Attention by the mma, fp8 and latent pipelines against float64 on a GPU: problems by seed, poison around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.emulated_hopper.attentions import ATTENTION
from tests.emulated_hopper.test_attention import like
from tests.emulated_hopper.test_attention_mma import fp8, problems
from tests.gpu.test_attention import answer
from tilewright.backends.cuda.attention.fp8 import Fp8Schedule
from tilewright.backends.cuda.attention.mla import MlaSchedule
from tilewright.backends.cuda.attention.mma import MmaSchedule
from tilewright.dispatch import kernels
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.base import KernelSpec

PAGES: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "seqlens_k": True}
KEYS: dict[str, Any] = {"dtype_kv": "fp8_e4m3"}
ROWS = (1, 3, 16, 64, 127, 128, 129, 300)
LENGTHS = (0, 1, 63, 128, 300, 777, 1024, 3000)
MOST = 2e8  # products: the reference is computed on the host
CASES: dict[str, AttentionProblem] = {
    **{f"h{head}": like(head, window_right=0, align="bottom_right") for head in (32, 64, 96, 128, 160, 192, 256)},
    "h192x128": like(192, 128, dtype_q="fp16", dtype_out="fp32"),
    "varlen": like(128, varlen=True, window_right=0),
    "sinks": like(64, window_left=16, window_right=0, sink_tokens=4, sink=True),
    "scores": like(128, softcap=True, bias="alibi", window_right=0),
    "mask_and_bias": like(64, bias="tensor", mask_shape=(1, 1, 1, 1), dtype_aux="bf16"),
    "dropout": like(128, dropout=True, window_right=0),
    "split": like(128, family="split", num_splits=2),
    "split_pages": like(128, family="split", num_splits=2, **PAGES),
    "mla": like(576, 512),
    "latent_causal": like(576, 512, window_right=0, align="bottom_right", dtype_q="fp16"),
    "latent_scores": like(576, 512, softcap=True, bias="alibi", dropout=True),
    "latent_split_pages": like(576, 512, family="split", num_splits=2, **PAGES),
    "latent_fp8": fp8(576, 512, family="split", num_splits=2, dtype_out="fp32", q_scale="tensor", kv_scales="tensor"),
    "pages": like(128, window_right=0, align="bottom_right", **PAGES),
    "pages_by_indices": like(64, pages="strided", page_lookup="indices", varlen=True, window_right=0),
    "vectorised": like(128, **{**PAGES, "pages": "vectorised"}),
    "vectorised_fp8": fp8(128, q_scale="tensor", kv_scales="head", **{**PAGES, "pages": "vectorised"}),
    "fp8": fp8(128, window_right=0, q_scale="tensor", kv_scales="head"),
    "fp8_h96": fp8(96),
    "fp8_h64_causal": fp8(64, window_right=0, align="bottom_right", dtype_out="fp32"),
    "fp8_packed": fp8(128, varlen=True, window_right=0, align="bottom_right"),
    "fp8_scores": fp8(128, softcap=True, bias="alibi", window_right=0),
    "fp8_h256": fp8(256, q_scale="head", kv_scales="head"),
    "fp8_pages": fp8(128, q_scale="tensor", kv_scales="tensor", **PAGES),
    "fp8_blocks": fp8(64, q_scale="block", kv_scales="block", scale_block=40),
    "fp8_keys": like(128, kv_scales="head", **KEYS, **PAGES),
    "fp8_keys_split": like(128, dtype_q="fp16", kv_scales="tensor", family="split", num_splits=2, **KEYS),
}


@dataclass(frozen=True)
class Case:
    name: str

    @property
    def first(self) -> AttentionProblem:
        return CASES[self.name]

    def specs(self, arch: str) -> list[KernelSpec]:
        """The default kernels of these pipelines."""
        found = ATTENTION.candidates(self.first.signature, arch)
        kinds = (MmaSchedule, Fp8Schedule, MlaSchedule)
        return [one for one in found if isinstance(one.schedule, kinds) and not ATTENTION.check(one)]


@pytest.mark.parametrize("case", [Case(name) for name in CASES], ids=lambda one: str(one.name))
def test_every_kernel(case: Case, specs: Sequence[KernelSpec]) -> None:
    from tilewright.runtime import cuda

    assert specs
    asked = problems(case.name, case.first, sizes=(ROWS, LENGTHS), most=MOST)
    whole = problems(f"{case.name} whole", case.first, sizes=(ROWS, LENGTHS), most=MOST, whole=16)
    found = []
    for number, spec in enumerate(specs):
        for one in asked if isinstance(spec.schedule, MmaSchedule) else whole:
            assert ATTENTION.supports(spec, one) == []
            if text := answer(kernels.kernel(spec), one, number, cuda.device()):
                found.append(f"{spec.name} {one.describe()}: {text}")
    assert found == []


@pytest.mark.parametrize("heads", [16, 70, 128])
def test_a_latent_is_read_once(heads: int, arch: str) -> None:
    """Values inside of keys, as MLA decode has them: by every kernel of the default pool that takes them."""
    import torch

    torch.manual_seed(heads)
    q = torch.randn(3, 2, heads, 576, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(3, 1500, 1, 576, device="cuda", dtype=torch.bfloat16)
    lengths = torch.tensor([1500, 1, 777], device="cuda", dtype=torch.int32)
    k[1, 1:], k[2, 777:] = float("nan"), float("nan")
    problem = AttentionProblem(3, heads, 2, 1500, 576, 1, 512, dtype_q="bf16", seqlens_k=True)
    specs = [one for one in ATTENTION.candidates(problem.signature, arch) if not ATTENTION.check(one)]
    assert any(isinstance(one.schedule, MlaSchedule) for one in specs)
    kernels.kernels(specs)  # built side by side
    for spec in specs:
        out = torch.full((3, 2, heads, 512), float("nan"), device="cuda", dtype=torch.bfloat16)
        kernels.kernel(spec)(q, k, k[..., :512], seqlens_k=lengths, num_splits=1, out=out)
        for number, length in enumerate(lengths.tolist()):
            seen = k[number, :length, 0].double()
            weights = (q[number].double() @ seen.T / 24).softmax(-1)
            error = (out[number].double() - weights @ seen[:, :512]).abs()
            assert bool((error <= 2.0**-7 * (weights @ seen[:, :512].abs())).all()), spec.name
