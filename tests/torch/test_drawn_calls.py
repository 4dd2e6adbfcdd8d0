"""Calls of the ops drawn at random from a few tensors: the same ones twice, views, what is written among what is read.

All calls of a kind have the same sizes, so that the library meets each again and again with other tensors.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)

from tilewright.torch import native  # noqa: E402

pytestmark = pytest.mark.usefixtures("needs_compiler")
SIZE, CALLS = 8, 400
MODES = (torch.inference_mode, torch.no_grad, torch.enable_grad)


def tensors(draw: random.Random) -> list[Any]:
    """Square matrices, some of which are parts of others, or are one column by column."""
    tall = torch.randn(3 * SIZE, SIZE)
    plain = [torch.randn(SIZE, SIZE) for _ in range(3)]
    with torch.no_grad():
        views = [tall[:SIZE], tall[4 : 4 + SIZE], tall[-SIZE:], *([plain[0].T] if draw.random() < 0.3 else [])]
    return plain + views


def shares(tensor: Any, others: tuple[Any, ...]) -> bool:
    """Whether memory of a tensor is another's too."""

    def places(of: Any) -> set[int]:
        rows, columns = of.stride()
        return {of.data_ptr() + 4 * (rows * i + columns * j) for i in range(SIZE) for j in range(SIZE)}

    return any(places(tensor) & places(other) for other in others if other is not None)


def product(draw: random.Random, pool: list[Any], write: bool) -> None:
    a, b = draw.choice(pool), draw.choice(pool)
    c = draw.choice(pool) if draw.random() < 0.3 else None
    d = draw.choice(pool) if draw.random() < 0.3 else None
    alpha, beta = 0.5 if c is None else -1.0, None if c is None else 0.25
    activation = draw.choice(("passthrough", "relu"))
    expected = alpha * (a @ b) + (0 if c is None else 0.25 * c) + (0 if d is None else d)
    expected = expected.relu() if activation == "relu" else expected
    epilogue = "MultiDAdd" if d is not None and activation == "passthrough" else activation
    operands, options = (a, b, c, d), {"alpha": alpha, "beta": beta, "epilogue": epilogue}
    if not write:
        torch.testing.assert_close(torch.ops.tilewright.gemm(*operands, **options), expected, atol=1e-4, rtol=1e-4)
        return
    written(draw.choice(pool), operands, options, expected)
    with torch.no_grad():
        for tensor in pool:  # what grows with every product would soon be no number
            tensor.copy_(torch.randn(SIZE, SIZE))


def written(out: Any, operands: tuple[Any, ...], options: dict[str, Any], expected: Any) -> None:
    before, version = out.clone(), out._version
    try:
        torch.ops.tilewright.gemm.out(*operands, **options, out=out)
    except tw.TilewrightError as error:
        told = error
    else:
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
        assert out._version > version
        return
    assert told.remedy
    assert shares(out, operands), told
    assert torch.equal(out, before)


def attend(draw: random.Random, pool: list[Any]) -> None:
    q, k, v = (draw.choice(pool).contiguous().view(1, 2, 1, 32) for _ in range(3))
    options = {"causal": draw.choice(("", "bottom_right"))}
    mask = torch.ones(2, 2, dtype=torch.bool).tril() if options["causal"] else None
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(operand.transpose(1, 2) for operand in (q, k, v)), attn_mask=mask
    ).transpose(1, 2)
    torch.testing.assert_close(torch.ops.tilewright.attention(q, k, v, **options), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_calls_are_what_pytorch_computes(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    pool, before = tensors(draw), native.counts().alone
    for turn in range(CALLS):
        with MODES[turn * len(MODES) // CALLS]():
            kind = draw.random()
            if kind < 0.2:
                attend(draw, pool)
            else:
                product(draw, pool, write=kind < 0.5)
    if native.registration() == "c++":
        assert native.counts().alone - before > CALLS // 4
