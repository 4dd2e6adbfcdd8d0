"""Our kernels inside of Inductor's graphs: which nodes are replaced, that results and gradients stay, and why not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilewright.errors import RequestError  # noqa: E402
from tilewright.torch import inductor  # noqa: E402

F = torch.nn.functional


class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.qkv = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 8, bias=False)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.conv(image)).flatten(2).transpose(1, 2)
        q, k, v = (one.view(*one.shape[:2], 2, 8).transpose(1, 2) for one in self.qkv(x).chunk(3, dim=-1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return self.out(torch.bmm(seen, seen.transpose(1, 2) @ x))


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    """A graph from PyTorch's cache keeps the decisions it was compiled with, and nothing is decided."""
    torch._dynamo.reset()
    inductor._DECISIONS.clear()
    inductor._MEASURED.clear()
    with torch._inductor.config.patch(force_disable_caches=True):
        yield
    torch._dynamo.reset()


@pytest.fixture
def model() -> Any:
    torch.manual_seed(3)
    return Model()


def taken() -> dict[str, set[bool]]:
    found: dict[str, set[bool]] = {}
    for one in inductor.decisions():
        found.setdefault(one.op, set()).add(one.taken)
    return found


def test_every_kind_is_replaced_where_asked(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    image = torch.randn(2, 3, 6, 7)
    with torch.no_grad(), caplog.at_level(logging.INFO, logger="tilewright.torch.inductor"):
        compiled = torch.compile(model, options=inductor.options("always"), fullgraph=True)
        torch.testing.assert_close(compiled(image), model(image), rtol=1e-4, atol=1e-4)
    found = taken()
    assert found.pop("convolution") == found.pop("bmm") == {True}
    assert {True} == set().union(*(found.pop(one, set()) for one in ("mm", "addmm")))
    assert found == {"_scaled_dot_product_flash_attention_for_cpu": {True}}
    assert "convolution(float32 2x3x6x7" in caplog.text
    assert "ours, always asked for" in caplog.text


def test_gradients_stay(model: Any) -> None:
    image = torch.randn(2, 3, 6, 7)
    compiled = torch.compile(model, options=inductor.options("always"))
    compiled(image).square().mean().backward()
    mine = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    model(image).square().mean().backward()
    for one, weight in zip(mine, model.parameters(), strict=True):
        torch.testing.assert_close(one, weight.grad, rtol=1e-3, atol=1e-4)
    kept = [one for one in inductor.decisions() if not one.taken]
    assert [one.why for one in kept] == ["more than the result is read: a gradient is recorded"]


@pytest.mark.parametrize(("ours", "theirs", "wins"), [(1.0, 2.0, True), (2.0, 1.0, False), (0.99, 1.0, False)])
def test_measured_times_decide(
    model: Any, monkeypatch: pytest.MonkeyPatch, ours: float, theirs: float, wins: bool
) -> None:
    """Both are called on made-up tensors; what the clock says of them is given here."""

    def clock(calls: list[Any], device: Any) -> list[float]:
        first, second = (call() for call in calls)
        second = second[0] if isinstance(second, tuple) else second
        assert (first.shape, first.stride()) == (second.shape, second.stride())
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-3)
        return [ours, theirs]

    monkeypatch.setattr(inductor, "_seconds", clock)
    image = torch.randn(2, 3, 6, 7)
    with torch.no_grad():
        compiled = torch.compile(model, options=inductor.options())
        torch.testing.assert_close(compiled(image), model(image), rtol=1e-4, atol=1e-4)
    assert set().union(*taken().values()) == {wins}
    assert all((one.ours, one.theirs) == (ours, theirs) for one in inductor.decisions())


def test_operands_are_taken_in_turn_where_a_cache_would_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides read the same sets in the same order, and the first again after the last."""

    def clock(calls: list[Any], device: Any) -> list[float]:
        first, second = ([call() for _ in range(4)] for call in calls)
        for mine, other in zip(first, second, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
        assert torch.equal(first[0], first[3])
        assert not torch.equal(first[0], first[1])
        assert not torch.equal(first[1], first[2])
        return [1.0, 2.0]

    monkeypatch.setattr(inductor, "_seconds", clock)
    monkeypatch.setattr(inductor, "copies_needed", lambda tensors: 3)
    a, b = torch.randn(6, 16), torch.randn(16, 8)
    with torch.no_grad():
        compiled = torch.compile(torch.mm, options=inductor.options())
        torch.testing.assert_close(compiled(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert [decision.taken for decision in inductor.decisions()] == [True]


def test_how_many_sets_of_operands_a_gpu_needs() -> None:
    def held(megabytes: int, device: str = "cuda") -> Any:
        storage = SimpleNamespace(nbytes=lambda: megabytes << 20)
        return SimpleNamespace(device=SimpleNamespace(type=device), untyped_storage=lambda: storage)

    assert inductor.copies_needed([held(1), held(0)]) == inductor.CALLS
    assert inductor.copies_needed([held(1), held(33)]) == 6
    assert inductor.copies_needed([held(1), held(235)]) == 1
    assert inductor.copies_needed([held(1, "cpu")]) == 1


def test_what_is_left_to_pytorch() -> None:
    def run(a: Any, b: Any, c: Any, x: Any, w: Any) -> Any:
        return a @ b, torch.addmm(c, a, b, beta=0.5), F.conv_transpose2d(x, w)

    a, b, c = (torch.randn(4, 4, dtype=torch.float64) for _ in range(3))
    x, w = torch.randn(1, 2, 5, 5), torch.randn(2, 3, 3, 3)
    with torch.no_grad(), inductor.enabled("always"):
        for one, other in zip(torch.compile(run)(a, b, c, x, w), run(a, b, c, x, w), strict=True):
            torch.testing.assert_close(one, other)
    reasons = {one.why for one in inductor.decisions()}
    assert not any(one.taken for one in inductor.decisions())
    assert "operands are not all of float32, float16 or bfloat16" in reasons
    assert "a transposed convolution" in reasons


def test_sizes_that_change() -> None:
    w = torch.randn(16, 8)
    compiled = torch.compile(lambda x: torch.relu(x) @ w.T, dynamic=True, options=inductor.options("always"))
    with torch.no_grad():
        for rows in (5, 9, 33):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x), torch.relu(x) @ w.T, rtol=1e-4, atol=1e-4)
    assert inductor.decisions()[-1].taken


def test_masks_of_floats() -> None:
    q, k, v = (torch.randn(2, 3, rows, 8) for rows in (5, 7, 7))
    mask = torch.randn(2, 3, 5, 7)

    def run(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask, scale=0.3)

    with torch.no_grad(), inductor.enabled("always"):
        torch.testing.assert_close(torch.compile(run)(q, k, v, mask), run(q, k, v, mask), rtol=1e-4, atol=1e-4)
    (one,) = (one for one in inductor.decisions() if one.op.startswith("_scaled"))
    assert one.taken, one


def test_names_of_how_to_decide() -> None:
    with pytest.raises(RequestError, match="inductor-decide"):
        inductor.options("sometimes")
    assert inductor.GraphPass("always").uuid() != inductor.GraphPass().uuid()
