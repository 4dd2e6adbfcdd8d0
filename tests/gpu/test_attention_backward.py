"""Attention's gradients of every family against float64, on problems drawn by seed, results poisoned before."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from typing import Any

import pytest

import tilewright as tw
from tests.emulated_hopper.backwards import drawn
from tests.emulated_hopper.test_attention_backward import like
from tests.gpu.together import build_together
from tests.gpu.torch_here import torch
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem_rules import problem_violations
from tilewright.ops.base import KernelSpec
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding

BACKWARD = ops.op("attention_backward")
SEED, EACH, DRAWS = 2417, 3, 400  # problems a kernel is asked, and of how many
ROWS = (1, 3, 64, 127, 128, 129, 300, 1000)
KEYS = (0, 1, 63, 128, 300, 777, 1024)
MOST = 2e8  # products: the reference is computed on the host


@dataclass(frozen=True)
class Case:
    name: str
    first: AttentionBackwardProblem

    def specs(self, arch: str) -> list[KernelSpec]:
        """The default kernels of the signature, and the floor."""
        legal = [one for one in BACKWARD.candidates(self.first.signature, arch) if not BACKWARD.check(one)]
        floor = BACKWARD.fallback_spec(self.first.signature, arch)
        return list({one.digest: one for one in (*legal, floor)}.values())

    def problems(self, spec: KernelSpec) -> Iterator[AttentionBackwardProblem]:
        """Those of a row of drawn problems that a kernel serves, some of them in a fixed order."""
        rng = random.Random(f"{SEED} {self.name}")
        most = MOST / 20 if spec.schedule.pipeline == "loops" else MOST
        for _ in range(DRAWS):
            one = replace(drawn(rng, self.first, (ROWS, KEYS)), deterministic=rng.random() < 0.4)
            if list(problem_violations(one)) or one.signature != self.first.signature or one.flops >= most:
                continue
            if not BACKWARD.supports(spec, one):
                yield one


def cases() -> list[Case]:
    found: dict[str, AttentionBackwardProblem] = {}
    for head in (32, 64, 96, 128):
        found[f"h{head}"] = like(head)
        found[f"h{head}_causal"] = like(head, window_right=0)
    for head in (64, 128, 160, 256):
        found[f"mma_h{head}"] = like(head, accumulate="none", window_right=0)
    found |= {
        "h128x64": like(128, 64, window_right=0),
        "fp16": like(128, dtype="fp16", window_right=0),
        "packed": like(128, varlen=True, window_right=0),
        "packed_h64": like(64, varlen=True),
        "window": like(128, window_left=100, window_right=0),
        "sinks": like(64, window_left=16, window_right=0, sink_tokens=4),
        "softcap": like(128, softcap=True, window_right=0),
        "mma_h192x128": like(192, 128, accumulate="none", window_right=0),
        "mma_packed": like(64, accumulate="none", varlen=True, window_right=0),
        "mma_alibi": like(128, accumulate="none", softcap=True, bias="alibi", dalibi=True, window_right=0),
        "mma_bias": like(64, accumulate="none", bias="tensor", mask_shape=(1, 1, 1, 1), dtype_aux="bf16", dbias=True),
        "mma_dropout": like(128, accumulate="none", dropout=True, window_right=0),
        "fp32": like(64, accumulate="none", dtype="fp32", window_right=0),
        "dot": like(128, family="dot", dlse=True, dsink=True),
        "dot_packed": like(64, family="dot", varlen=True),
        "convert": like(128, family="convert", accumulate="dq"),
        "convert_packed": like(64, family="convert", accumulate="all", varlen=True),
    }
    return [Case(*one) for one in found.items()]


def answer(kernel: Any, problem: AttentionBackwardProblem, seed: int, device: Any) -> str:
    bound = binding("attention_backward")
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
                found.append(f"{spec.name} {one!r}: {text}")
    assert found == []


# -- whole calls ---------------------------------------------------------------------------------------------------


def _sizes(rng: random.Random) -> dict[str, int]:
    heads, group = rng.choice((1, 2, 4)), rng.choice((1, 2, 4))
    rows = rng.choice((200, 777, 1024, 2000))
    return {"batch": rng.choice((1, 2)), "heads": heads * group, "heads_kv": heads, "rows": rows,
            "keys": rng.choice((rows, rows, 513)), "head": rng.choice((64, 80, 128))}  # fmt: skip


def _exact(turned: list[Any], causal: bool) -> tuple[Any, ...]:
    """The gradients in float64, by PyTorch's own rules of differentiation; operands of (batch, heads, rows, head)."""
    q, k, v = (one.detach().double().requires_grad_() for one in turned[:3])
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, float("-inf"))
    out = torch.softmax(scores, -1).nan_to_num() @ v.repeat_interleave(group, 1)
    found: tuple[Any, ...] = torch.autograd.grad(out, (q, k, v), turned[3].double())
    return found


def _peers(turned: list[Any], causal: bool) -> tuple[Any, ...]:
    """The gradients of PyTorch's own path in this type, of operands of (batch, heads, rows, head)."""
    q, k, v = (one.detach().float().requires_grad_() for one in turned[:3])
    group, rows, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    mask = torch.ones(rows, keys, dtype=torch.bool, device="cuda").tril(keys - rows) if causal else None
    repeated = [one.bfloat16().repeat_interleave(group, 1) for one in (k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(q.bfloat16(), *repeated, attn_mask=mask)
    found: tuple[Any, ...] = torch.autograd.grad(out, (q, k, v), turned[3])
    return found


WHOLE_CALLS = range(8)


def _whole_call(seed: int) -> tuple[dict[str, int], list[Any], bool]:
    """Sizes, q, k, v and the gradient of the output, and whether the mask is causal."""
    rng, size = random.Random(SEED + seed), _sizes(random.Random(SEED + seed))
    torch.manual_seed(seed)
    tensors = [
        torch.randn(size["batch"], size[lines], size[heads], size["head"], device="cuda").bfloat16()
        for lines, heads in (("rows", "heads"), ("keys", "heads_kv"), ("keys", "heads_kv"), ("rows", "heads"))
    ]
    return size, tensors, rng.random() < 0.5 and size["rows"] <= size["keys"]


@pytest.fixture(scope="module")
def compiled() -> None:
    """The kernels of the whole calls, built side by side."""

    def run(seed: int, deterministic: bool) -> None:
        _, (q, k, v, do), causal = _whole_call(seed)
        mask: dict[str, Any] = {"causal": "bottom_right" if causal else False}
        out, lse = tw.attention(q, k, v, return_lse=True, **mask)
        tw.attention_backward(do, q, k, v, out, lse, deterministic=deterministic, **mask)

    build_together(partial(run, *both) for both in product(WHOLE_CALLS, (False, True)))


@pytest.mark.parametrize("seed", WHOLE_CALLS)
@pytest.mark.usefixtures("compiled")
def test_whole_calls(seed: int) -> None:
    """As a training step makes them: the error of no gradient is more than twice that of PyTorch's own in this type;
    in a fixed order the bits are the same each time."""
    size, tensors, causal = _whole_call(seed)
    q, k, v, do = tensors
    asked: dict[str, Any] = {"causal": "bottom_right" if causal else False}
    out, lse = tw.attention(q, k, v, return_lse=True, **asked)
    got = tw.attention_backward(do, q, k, v, out, lse, **asked)
    first, *again = (
        tw.attention_backward(do, q, k, v, out, lse, deterministic=True, **asked) for _ in range(3)
    )  # fmt: skip
    turned = [one.transpose(1, 2) for one in tensors]
    for index, (right, peer) in enumerate(zip(_exact(turned, causal), _peers(turned, causal), strict=True)):
        allowed = 2 * (peer.double() - right).abs().max() + 1e-3 * right.abs().max()
        for mine in (got[index], first[index]):
            assert (mine.transpose(1, 2).double() - right).abs().max() <= allowed, (index, size, causal)
        assert all(torch.equal(first[index], one[index]) for one in again), (index, size, causal)
