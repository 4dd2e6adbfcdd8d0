"""Packed sequences of several lengths: our gradients, and PyTorch's of the same sequences padded to the longest.

What is padded has no mask: causal rows see no key behind their own, and without a window PyTorch is timed on less than
it would have to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import sdpa_kernel

import tilewright as tw
from tilewright.ops.attention_backward import AttentionBackwardProblem


@dataclass(frozen=True)
class PackedShape:
    lengths: tuple[int, ...]
    heads: int
    heads_kv: int
    head: int
    causal: bool

    @property
    def name(self) -> str:
        causal = " causal" if self.causal else ""
        return f"packed {len(self.lengths)}x{max(self.lengths)} h{self.heads}/{self.heads_kv} d{self.head}{causal}"

    @property
    def flops(self) -> float:
        pairs = sum(n * (n + 1) // 2 if self.causal else n * n for n in self.lengths)
        return 5.0 * 2.0 * pairs * self.heads * self.head

    def problem(self, **more: Any) -> AttentionBackwardProblem:
        window: dict[str, Any] = {"window_right": 0, "align": "bottom_right"} if self.causal else {}
        longest, total = max(self.lengths), sum(self.lengths)
        return AttentionBackwardProblem(
            len(self.lengths), self.heads, longest, longest, self.head, self.heads_kv, self.head, dtype="bf16",
            varlen=True, total_q=total, total_k=total, **window, **more,
        )  # fmt: skip


def drawn_packed(seed: int) -> list[PackedShape]:
    """Half of what padding holds, about: lengths from an eighth of the longest on."""
    rng = random.Random(f"packed {seed}")
    shapes = []
    for batch, longest, heads, heads_kv, head, causal in (
        (8, 4096, 16, 16, 128, True), (8, 2048, 32, 8, 64, True), (6, 4096, 16, 16, 128, False),
    ):  # fmt: skip
        lengths = (longest, *(rng.randint(longest // 8, longest) for _ in range(batch - 1)))
        shapes.append(PackedShape(lengths, heads, heads_kv, head, causal))
    return shapes


class PackedOperands:
    """Rows of all sequences one behind the other, heads inside rows; float64 of the last sequence's last head."""

    def __init__(self, shape: PackedShape) -> None:
        s = self.shape = shape
        total = sum(s.lengths)
        self.q, self.do = (self._made(total, s.heads) for _ in range(2))
        self.k, self.v = (self._made(total, s.heads_kv) for _ in range(2))
        starts = torch.tensor((0, *s.lengths), device="cuda").cumsum(0).to(torch.int32)
        self.asked: dict[str, Any] = {
            "causal": "bottom_right" if s.causal else False, "cu_seqlens_q": starts, "cu_seqlens_k": starts,
            "max_seqlen_q": max(s.lengths), "max_seqlen_k": max(s.lengths),
        }  # fmt: skip
        self.out, self.lse = tw.attention(self.q, self.k, self.v, return_lse=True, **self.asked)
        gradients = (("dq", self.q), ("dk", self.k), ("dv", self.v))
        self.results = {name: torch.empty_like(operand) for name, operand in gradients}

    def _made(self, lines: int, heads: int) -> Any:
        return torch.randn(lines, heads, self.shape.head, device="cuda", dtype=torch.float32).bfloat16()

    def call(self, **more: Any) -> Callable[[], Any]:
        return lambda: tw.attention_backward(
            self.do, self.q, self.k, self.v, self.out, self.lse, **self.results, **self.asked, **more
        )

    def peer(self, backend: Any) -> Callable[[], Any]:
        s, longest = self.shape, max(self.shape.lengths)
        padded = []
        for operand in (self.q, self.k, self.v, self.do):
            whole = torch.zeros(len(s.lengths), operand.shape[1], longest, s.head, device="cuda", dtype=operand.dtype)
            for number, sequence in enumerate(operand.split(s.lengths)):
                whole[number, :, : len(sequence)] = sequence.transpose(0, 1)
            padded.append(whole)
        q, k, v, do = padded
        for operand in (q, k, v):
            operand.requires_grad_()
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=s.causal, enable_gqa=s.heads != s.heads_kv
            )
        return lambda: torch.autograd.grad(out, (q, k, v), do, retain_graph=True)

    def error(self) -> float:
        """Of the results, beside the largest gradient of its kind."""
        s, group = self.shape, self.shape.heads // self.shape.heads_kv
        rows = s.lengths[-1]
        k, v = (operand[-rows:, -1].double() for operand in (self.k, self.v))
        dk, dv, dq = torch.zeros_like(k), torch.zeros_like(v), []
        for head in range(s.heads - group, s.heads):
            q, do = (operand[-rows:, head].double() for operand in (self.q, self.do))
            scores = q @ k.T * s.head**-0.5
            if s.causal:
                scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf"))
            p = torch.softmax(scores, -1)
            dp = do @ v.T
            ds = p * (dp - (dp * p).sum(-1, keepdim=True))
            dq.append(ds @ k * s.head**-0.5)
            dk += ds.T @ q * s.head**-0.5
            dv += p.T @ do
        exact = {"dq": torch.stack(dq, 1), "dk": dk, "dv": dv}
        got = {"dq": self.results["dq"][-rows:, -group:], "dk": self.results["dk"][-rows:, -1]}
        got["dv"] = self.results["dv"][-rows:, -1]
        errors = [(got[name].double() - each).abs().max() / each.abs().max() for name, each in exact.items()]
        return float(max(errors)) if not any(torch.isnan(each) for each in errors) else float("nan")
