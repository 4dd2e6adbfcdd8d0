"""Attention of every pipeline and feature against float64, on problems drawn by seed, poison around what is seen."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from tests.emulated_hopper.attentions import drawn
from tests.emulated_hopper.test_attention import like
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding

ATTENTION = ops.op("attention")
SEED, EACH, DRAWS = 1215, 4, 400  # problems a kernel is asked, and of how many
ROWS = (1, 3, 16, 64, 127, 128, 129, 300, 1000)
KEYS = (0, 1, 63, 128, 300, 777, 1024, 3000)
MOST = 3e8  # products: the reference is computed on the host


@dataclass(frozen=True)
class Case:
    name: str
    first: AttentionProblem

    def specs(self, arch: str) -> list[KernelSpec]:
        """The default kernels of the signature, and the floor."""
        legal = [one for one in ATTENTION.candidates(self.first.signature, arch) if not ATTENTION.check(one)]
        floor = ATTENTION.fallback_spec(self.first.signature, arch)
        return list({one.digest: one for one in (*legal, floor)}.values())

    def problems(self, spec: KernelSpec) -> Iterator[AttentionProblem]:
        """Those of a row of drawn problems that a kernel serves."""
        rng = random.Random(f"{SEED} {self.name}")
        for _ in range(DRAWS):
            one = drawn(rng, self.first, (ROWS, KEYS))
            if problem_violations(one) or one.signature != self.first.signature or one.flops >= MOST:
                continue
            if not ATTENTION.supports(spec, one):
                yield one


def cases() -> list[Case]:
    found: dict[str, AttentionProblem] = {}
    for head in (32, 64, 96, 128, 160, 192, 256):
        found[f"h{head}"] = like(head)
        found[f"h{head}_causal"] = like(head, window_right=0, align="bottom_right")
    found |= {
        "h192x128": like(192, 128, window_right=0),
        "fp16": like(128, dtype_q="fp16", return_lse=False, window_right=0),
        "to_fp32": like(128, dtype_out="fp32"),
        "varlen": like(128, varlen=True, window_right=0, align="bottom_right"),
        "packed_h64": like(64, varlen=True),
        "sinks": like(64, window_left=16, window_right=0, sink_tokens=4, sink=True),
        "softcap_alibi": like(128, softcap=True, bias="alibi", window_right=0),
        "mask_and_bias": like(64, bias="tensor", mask_shape=(1, 1, 1, 1), dtype_aux="bf16"),
        "dropout": like(128, dropout=True, window_right=0),
        "split": like(128, family="split", num_splits=2),
        "split_pages": like(128, family="split", num_splits=2, pages="strided", page_lookup="table", seqlens_k=True),
        "pages": like(128, pages="strided", page_lookup="table", seqlens_k=True, window_right=0, align="bottom_right"),
        "pages_by_indices": like(64, pages="strided", page_lookup="indices", varlen=True, window_right=0),
        "vectorised": like(64, pages="vectorised", page_lookup="table", seqlens_k=True, page_size=16),
        "fp32": like(64, dtype_q="fp32", window_right=0),
        "fp8": like(128, dtype_q="fp8_e4m3", q_scale="tensor", kv_scales="head"),
    }
    return [Case(*one) for one in found.items()]


def answer(kernel: Any, problem: AttentionProblem, seed: int, device: Any) -> str:
    bound = binding("attention")
    made = samples.make(bound, problem, seed, device)
    samples.runner(bound, kernel, problem, made, device, 1)()
    check = samples.check(bound, problem, made, (kernel.spec,))
    return "" if check.ok else check.detail


@pytest.mark.parametrize("case", cases(), ids=lambda one: str(one.name))
def test_every_pipeline(case: Case, specs: Sequence[KernelSpec]) -> None:
    from tilewright.runtime import cuda

    found = []
    for number, spec in enumerate(specs):
        kernel = kernels.kernel(spec)
        for one in islice(case.problems(spec), EACH):
            text = answer(kernel, one, number, cuda.device())
            if text:
                found.append(f"{spec.name} {one.describe()}: {text}")
    assert found == []
