"""`fuse_mlps`: which modules are gated MLPs, that they compute the same, and the way back."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilewright.torch import fuse_mlps, replace_modules  # noqa: E402

F = torch.nn.functional


class Mlp(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, act: Any, bias: bool = False) -> None:
        super().__init__()
        self.w1, self.w3 = (torch.nn.Linear(16, 24, bias=bias) for _ in range(2))
        self.w2, self.act = torch.nn.Linear(24, 16), act

    def forward(self, x: Any) -> Any:
        return self.w2(self.w3(x) * self.act(self.w1(x)))


class Other(Mlp):
    def forward(self, x: Any) -> Any:
        return self.w2(self.w3(x) + self.act(self.w1(x)))


@pytest.mark.parametrize("act", [torch.nn.SiLU(), F.silu, torch.nn.GELU(), torch.nn.GELU("tanh"), F.gelu])
def test_an_mlp_is_one_call(act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.api import gemm as api

    model = torch.nn.Sequential(Mlp(act), torch.nn.LayerNorm(16))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        right = model(x)
    state = model.state_dict()
    report = fuse_mlps(model)
    assert [one.name for one in report.replaced] == ["0"]
    calls, real = [], api.gated_gemm

    def counted(*operands: Any, **options: Any) -> Any:
        calls.append(options["activation"])
        return real(*operands, **options)

    monkeypatch.setattr(api, "gated_gemm", counted)
    with torch.no_grad():
        torch.testing.assert_close(model(x), right, rtol=1e-4, atol=1e-5)
    assert len(calls) == 1
    assert model.state_dict().keys() == state.keys()
    assert not fuse_mlps(model).entries  # it is one already
    report.undo()
    assert type(model[0]) is Mlp


def test_gradients_and_float64() -> None:
    model = Mlp(torch.nn.SiLU())
    x = torch.randn(3, 16, requires_grad=True)
    (right,) = torch.autograd.grad(model(x).square().sum(), x)
    fuse_mlps(model)
    (found,) = torch.autograd.grad(model(x).square().sum(), x)
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-4)
    wide = model.double()
    with torch.no_grad():
        torch.testing.assert_close(wide(x.double()), Mlp.forward(wide, x.double()))


def test_what_is_left() -> None:
    hooked = Mlp(torch.nn.SiLU())
    hooked.w1.register_forward_hook(lambda *_: None)
    model = torch.nn.ModuleList([Other(torch.nn.SiLU()), Mlp(torch.nn.ReLU()), Mlp(torch.nn.SiLU(), bias=True), hooked])
    report = fuse_mlps(model)
    assert not report.replaced
    assert [one.why for one in report.kept] == [
        "not down(act(gate(x)) * up(x))", "not down(act(gate(x)) * up(x))", "w1 or w3 has a bias",
        "w1, w3 or the activation has hooks, which would not be called",
    ]  # fmt: skip


def test_a_model_of_hugging_face() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        right = model(tokens).logits
        replace_modules(model)
        report = fuse_mlps(model)
        assert [one.name for one in report.replaced] == ["model.layers.0.mlp", "model.layers.1.mlp"], str(report)
        torch.testing.assert_close(model(tokens).logits, right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("change", ["activation", "bias", "hook", "pre-hook", "another linear"])
def test_children_that_change_later_are_followed(change: str) -> None:
    torch.manual_seed(3)
    plain = Mlp(torch.nn.SiLU())
    fused = torch.nn.Sequential(copy.deepcopy(plain))
    assert not fuse_mlps(fused).entries[0].why
    for model in (plain, fused[0]):
        if change == "activation":
            model.act = torch.nn.ReLU()
        elif change == "bias":
            model.w3.bias = torch.nn.Parameter(torch.ones(24))
        elif change == "hook":
            model.w1.register_forward_hook(lambda *given: 2 * given[-1])
        elif change == "pre-hook":
            model.act.register_forward_pre_hook(lambda *given: (given[-1][0] + 1,))
        else:
            model.w3 = torch.nn.Sequential(torch.nn.Identity(), model.w3, torch.nn.Tanh())
    x = torch.randn(5, 16)
    torch.testing.assert_close(fused(x), plain(x))


def _scaled(x: Any) -> Any:
    return F.silu(x) * 2


@pytest.mark.parametrize("other", [F.gelu, _scaled, torch.nn.GELU()], ids=["gelu", "own", "module"])
def test_a_function_that_is_exchanged_later_is_followed(other: Any) -> None:
    model = Mlp(F.silu)
    assert fuse_mlps(model).replaced
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        fused = model(x)
        if isinstance(other, torch.nn.Module):
            del model.act
        model.act = other
        torch.testing.assert_close(model(x), Mlp.forward(model, x))
        if not isinstance(other, torch.nn.Module):
            model.act = F.silu
            torch.testing.assert_close(model(x), fused)


def test_a_function_of_the_class_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfClass(Mlp):
        function = staticmethod(F.silu)

        def forward(self, x: Any) -> Any:
            return self.w2(self.function(self.w1(x)) * self.w3(x))

    model = OfClass(None)
    assert fuse_mlps(model).replaced
    monkeypatch.setattr(OfClass, "function", staticmethod(F.gelu))
    x = torch.randn(5, 16)
    with torch.no_grad():
        torch.testing.assert_close(model(x), OfClass.forward(model, x))


def test_a_forward_asks_for_no_child_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """`get_submodule` splits names and walks: in every forward it costs more than the call."""
    model = Mlp(torch.nn.SiLU())
    fuse_mlps(model)

    def walked(*_: Any) -> None:
        raise AssertionError("get_submodule is called in forward")

    monkeypatch.setattr(torch.nn.Module, "get_submodule", walked)
    with torch.no_grad():
        model(torch.randn(5, 16))


@pytest.mark.parametrize("act", [torch.nn.SiLU(), F.silu])
def test_fused_models_are_pickled_copied_and_traced(act: Any) -> None:
    model = torch.nn.Sequential(Mlp(act))
    report = fuse_mlps(model)
    assert len(report.replaced) == 1
    x = torch.randn(3, 16)
    expected = model(x)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert type(again[0]) is type(model[0])
        assert torch.equal(again(x), expected)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x), expected)
    report.undo()
    assert type(model[0]) is Mlp
