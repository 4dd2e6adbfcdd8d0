"""Gradients of attention in PyTorch: eager, traced, compiled and under torch.func, beside autograd in float64."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilewright as tw  # noqa: E402
import tilewright.torch as tt  # noqa: E402
from tilewright.errors import TilewrightError  # noqa: E402
from tilewright.torch import sdpa  # noqa: E402

pytestmark = pytest.mark.usefixtures("needs_compiler")

SDPA = torch.nn.functional.scaled_dot_product_attention
SIZES = {"q": (2, 33, 4, 24), "k": (2, 40, 2, 24), "v": (2, 40, 2, 16)}
# How far gradients may be from those of float64, over the largest of them.
LOSSES = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def tensors(dtype: Any = torch.float32, seed: int = 0) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator).to(dtype).requires_grad_() for size in SIZES.values()]


def textbook(q: Any, k: Any, v: Any, *, causal: bool = False, bias: Any = None, softcap: Any = None,
             sink: Any = None) -> tuple[Any, Any]:  # fmt: skip
    """Attention by products and a softmax, in the layout "bshd": out and lse."""
    group = q.shape[2] // k.shape[2]
    k, v = (one.repeat_interleave(group, 2) for one in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    logits = scores
    if sink is not None:
        logits = torch.cat([scores, sink[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    lse = torch.logsumexp(logits, -1)
    return torch.einsum("bhij,bjhd->bihd", torch.exp(scores - lse[..., None]), v), lse


def demand_near(mine: Any, theirs: Any, dtype: Any) -> None:
    for one, other in zip(mine, theirs, strict=True):
        assert one.dtype in (dtype, torch.float32)
        assert (one.double() - other).abs().max() <= LOSSES[dtype] * other.abs().max(), (one.shape, dtype)


@pytest.mark.parametrize("dtype", LOSSES)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_those_of_float64(dtype: Any, causal: bool) -> None:
    given = tensors(dtype)
    out, lse = tw.attention(*given, causal=causal, return_lse=True)
    weights, more = torch.randn(out.shape, dtype=dtype), torch.randn(lse.shape)
    mine = torch.autograd.grad((out, lse), given, (weights, more))
    wide = [one.detach().double().requires_grad_() for one in given]
    both = textbook(*wide, causal=causal)
    demand_near(mine, torch.autograd.grad(both, wide, (weights.double(), more.double())), dtype)


def test_bias_slopes_sinks_and_caps_have_gradients() -> None:
    q, k, v = tensors()
    bias, sink = torch.randn(4, 1, 40, requires_grad=True), torch.randn(4, requires_grad=True)
    out = tw.attention(q, k, v, bias=bias, sink=sink, softcap=2.0)
    weights = torch.randn(out.shape)
    mine = torch.autograd.grad(out, (q, k, v, bias, sink), weights)
    wide = [one.detach().double().requires_grad_() for one in (q, k, v, bias, sink)]
    theirs = textbook(*wide[:3], bias=wide[3], sink=wide[4], softcap=2.0)[0]
    demand_near(mine, torch.autograd.grad(theirs, wide, weights.double()), torch.float32)
    slopes = torch.rand(4, requires_grad=True)
    (of_slopes,) = torch.autograd.grad(tw.attention(q, k, v, alibi_slopes=slopes), (slopes,), weights)
    apart = (torch.arange(33)[:, None] + 7 - torch.arange(40)[None, :]).abs().double()
    leaning = (-slopes.detach().double()[:, None, None] * apart).expand(2, 4, 33, 40).requires_grad_()
    out = textbook(*(one.detach().double() for one in (q, k, v)), bias=leaning)[0]
    terms = -torch.autograd.grad(out, (leaning,), weights.double())[0] * apart
    # Terms of either sign, which may all but cancel: what is lost is a part of them, not of their sum.
    lost = (of_slopes.double() - terms.sum((0, 2, 3))).abs() / terms.abs().sum((0, 2, 3))
    assert lost.max() <= LOSSES[torch.float32] / 4


def test_dropout_drops_the_same_entries_in_both_directions() -> None:
    """With v of ones the result of a row is what it keeps, and its gradient of v says which entries those are."""
    q, k, _ = tensors()
    v = torch.eye(40)[None, :, None, :].expand(2, 40, 2, 40).contiguous().requires_grad_()
    for seed in (7, torch.tensor([7, 3])):
        out = tw.attention(q, k, v, dropout_p=0.5, seed=seed)
        (dv,) = torch.autograd.grad(out[0, 5, 1, :].sum(), (v,))
        assert torch.equal(dv[0, :, 0].sum(-1) > 0, out[0, 5, 1] > 0)
        assert 5 < int((out[0, 5, 1] > 0).sum()) < 35


def test_packed_sequences_and_padding() -> None:
    q, k, v = (one.detach()[0].requires_grad_() for one in tensors())
    starts = {"cu_seqlens_q": torch.tensor([0, 10, 30], dtype=torch.int32),
              "cu_seqlens_k": torch.tensor([0, 0, 38], dtype=torch.int32)}  # fmt: skip
    out = tw.attention(q, k, v, **starts)
    weights = torch.randn(out.shape)
    mine = torch.autograd.grad(out, (q, k, v), weights)
    wide = [one.detach().double().requires_grad_() for one in (q, k, v)]
    theirs = textbook(wide[0][None, 10:30], wide[1][None, :38], wide[2][None, :38])[0]
    demand_near(mine, torch.autograd.grad(theirs, wide, weights.double()[None, 10:30]), torch.float32)
    assert (mine[0][:10] == 0).all(), "the first sequence has no keys"
    assert (mine[1][38:] == 0).all()


@pytest.mark.parametrize("gqa", [False, True])
def test_sdpa_differentiates_on_our_kernels(gqa: bool) -> None:
    heads = 2 if gqa else 4
    q, k, v = (torch.randn(2, h, 20, 32, requires_grad=True) for h in (4, heads, heads))
    mask = torch.randn(1, 1, 20, 20, requires_grad=True)
    assert sdpa.why_not(q, k, v, mask, enable_gqa=gqa) == ""
    out = tt.scaled_dot_product_attention(q, k, v, mask, enable_gqa=gqa)
    mine = torch.autograd.grad(out.square().sum(), (q, k, v, mask))
    wide = [one.detach().double().requires_grad_() for one in (q, k, v, mask)]
    theirs = SDPA(*wide, enable_gqa=gqa)
    demand_near(mine, torch.autograd.grad(theirs.square().sum(), wide), torch.float32)


def test_a_device_without_kernels_for_it_is_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa, "served", lambda _device: False)
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    assert "gradient" in sdpa.why_not(q, q, q)
    out = tt.scaled_dot_product_attention(q, q, q)
    assert torch.equal(out, SDPA(q, q, q))


def _loss(q: Any, k: Any, v: Any) -> Any:
    return tw.attention(q, k, v, causal=True).square().sum()


def _backward(q: Any, k: Any, v: Any, **more: Any) -> Any:
    """Of operands that require grad, as those of a model do."""
    with torch.no_grad():
        out, lse = tw.attention(q, k, v, return_lse=True)
    return tw.attention_backward(out, q, k, v, out, lse, **more)


def test_every_way_to_a_gradient_gives_the_same_bits() -> None:
    """Eager, compiled, by the op itself, and under torch.func."""
    given = tensors()
    plain = [one.detach() for one in given]
    eager = torch.autograd.grad(_loss(*given), given)
    compiled = torch.compile(_loss, fullgraph=True, backend="aot_eager")
    op = torch.ops.tilewright.attention(*given, causal="top_left").square().sum()
    ways = {
        "compiled": torch.autograd.grad(compiled(*given), given),
        "the op": torch.autograd.grad(op, given),
        "torch.func": torch.func.grad(_loss, (0, 1, 2))(*plain),
        "vmap": torch.func.vmap(torch.func.grad(lambda *each: _loss(*(one[None] for one in each)), (0, 1, 2)))(*plain),
    }
    for name, made in ways.items():
        assert all(torch.equal(one, other) for one, other in zip(eager, made, strict=True)), name


def test_the_ops_are_sound() -> None:
    q, k, v = tensors()
    torch.library.opcheck(torch.ops.tilewright.attention_lse.default, (q, k, v), {})
    torch.library.opcheck(torch.ops.tilewright.attention.default, (q, k, v), {"causal": "top_left"})
    with torch.no_grad():
        out, lse = tw.attention(q, k, v, return_lse=True)
    dout, bias, plain = torch.randn(out.shape), torch.randn(1, 1, 33, 40), [one.detach() for one in (q, k, v)]
    operands = (dout, None, out, lse, *plain, None, bias)
    torch.library.opcheck(torch.ops.tilewright.attention_backward.default, operands, {"dbias": True})


def test_plain_calls_on_tensors_and_traced_ones_agree() -> None:
    q, k, v = (one.detach() for one in tensors(torch.bfloat16))
    out, lse = tw.attention(q, k, v, return_lse=True)
    bias = torch.zeros(1, 4, 33, 40)
    plain = tw.attention_backward(out, q, k, v, out, lse, bias=bias, return_dbias=True)
    assert [one.dtype for one in plain] == [torch.bfloat16] * 3 + [torch.float32]

    def traced(*given: Any) -> Any:
        return tw.attention_backward(*given, bias=bias, return_dbias=True)

    compiled = torch.compile(traced, fullgraph=True, backend="aot_eager")(out, q, k, v, out, lse)
    assert all(torch.equal(one, other) for one, other in zip(plain, compiled, strict=True))


def test_autocast_gives_gradients_of_the_originals_types() -> None:
    given = tensors()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = tw.attention(*given)
    assert out.dtype == torch.bfloat16
    assert {one.dtype for one in torch.autograd.grad(out.float().sum(), given)} == {torch.float32}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda q, k, v: tw.attention(q, k, v, out_dtype=torch.float16).sum().backward(), "leave out_dtype out"),
        (lambda q, k, v: tw.attention(q, k, v, out=torch.empty(2, 33, 4, 16)), "leave out out="),
        (lambda q, k, v: tw.attention(q, k, v, out=torch.empty(2, 33, 4, 16), return_lse=True), "torch.no_grad()"),
        (lambda q, k, v: _backward(q, k, v, dq=torch.empty(q.shape)), "torch.no_grad()"),
        (lambda q, k, v: _backward(q, k, v, block_table=torch.zeros(2, 1, dtype=torch.int32)), "pages hold a cache"),
        (lambda q, k, v: torch.autograd.grad(_loss(q, k, v), q, create_graph=True)[0].sum().backward(), "once"),
        (lambda q, k, v: tw.attention(q, k, v, dropout_p=0.5), "give seed="),
    ],
)
def test_what_has_no_gradient_says_so(call: Any, said: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        call(*tensors())
    assert said in caught.value.remedy


class Block(torch.nn.Module):  # type: ignore[name-defined, misc]
    """A small transformer block over `attend`."""

    def __init__(self, attend: Any, size: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.attend, self.heads = attend, heads
        self.inner, self.outer = torch.nn.Linear(size, 3 * size), torch.nn.Linear(size, size)
        self.up, self.down = torch.nn.Linear(size, 2 * size), torch.nn.Linear(2 * size, size)
        self.first, self.second = torch.nn.LayerNorm(size), torch.nn.LayerNorm(size)

    def forward(self, x: Any) -> Any:
        parts = self.inner(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.outer(self.attend(*parts, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


def _trained(attend: Any, steps: int) -> list[float]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(32, 64), Block(attend), Block(attend), torch.nn.Linear(64, 32))
    model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(steps):
        text = (torch.randint(0, 32, (4, 1)) + torch.arange(33) * torch.randint(1, 4, (4, 1))) % 32
        loss = torch.nn.functional.cross_entropy(model(text[:, :-1]).float().flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


@pytest.mark.proof
def test_a_small_transformer_learns_as_with_pytorch() -> None:
    """200 steps in bf16: the loss falls as far, and stays beside PyTorch's on the way."""
    mine, theirs = (_trained(attend, 200) for attend in (tt.scaled_dot_product_attention, SDPA))
    assert abs(mine[0] - theirs[0]) < 0.02
    windows = [(sum(mine[at : at + 20]) / 20, sum(theirs[at : at + 20]) / 20) for at in range(0, 200, 20)]
    assert all(abs(one - other) < 0.15 + 0.1 * other for one, other in windows), windows
    assert windows[-1][0] < 0.5 * windows[0][0]


def test_sdpa_of_tensors_that_require_grad_is_one_graph() -> None:
    from tilewright.torch import scaled_dot_product_attention

    q = torch.randn(2, 4, 12, 16, requires_grad=True)
    call = torch.compile(lambda a: scaled_dot_product_attention(a, a, a), backend="aot_eager", fullgraph=True)
    (mine,) = torch.autograd.grad(call(q).square().sum(), q)
    (right,) = torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(q, q, q).square().sum(), q)
    torch.testing.assert_close(mine, right, rtol=1e-3, atol=1e-4)
