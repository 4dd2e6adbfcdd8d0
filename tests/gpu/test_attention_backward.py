"""Attention's gradients of every family against float64, on problems drawn by seed, results poisoned before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.backward_cases import Case, cases
from tests.gpu.backward_proof import answer, draw, fresh_operands, problem_of, proven, same_bits
from tests.gpu.together import build_together
from tests.gpu.torch_here import torch
from tilewright.dispatch import kernels
from tilewright.ops.base import KernelSpec

SEED, EACH = 2417, 3  # problems a kernel is asked
MOST = 2e8  # products: the reference is computed on the host


@pytest.mark.parametrize("case", cases(), ids=lambda one: str(one.name))
def test_every_pipeline(case: Case, specs: Sequence[KernelSpec]) -> None:
    from tilewright.runtime import cuda

    found = []
    for number, spec in enumerate(specs):
        kernel, rng = kernels.kernel(spec), random.Random(f"{SEED} {case.name}")
        for _ in range(EACH):
            one = problem_of(rng, case, spec, MOST / 20 if spec.schedule.pipeline == "loops" else MOST)
            text = answer(kernel, one, number, cuda.device())[0] if one is not None else ""
            if text:
                found.append(f"{spec.name} {one!r}: {text}")
    assert found == []


@pytest.mark.proof
def test_drawn_problems(arch: str) -> None:
    """300 of all cases and kernels in turn; `python -m tests.gpu.backward_proof --seed N` draws others."""
    from tilewright.runtime import cuda

    told = proven(draw(SEED, 300, arch), SEED, cuda.device())
    assert [f"{spec.name} {one!r}: {text}" for (_, spec, one), text, _ in told if text] == []


@pytest.mark.proof
def test_the_same_bits_beside_load() -> None:
    assert same_bits(1000, SEED) == []


def test_operands_that_the_kernel_before_wrote() -> None:
    assert fresh_operands(200, SEED) == []


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
