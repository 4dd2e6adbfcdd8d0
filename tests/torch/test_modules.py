"""Drop-ins: modules, attention with SDPA's signature, and models whose modules are replaced."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
tilewright_torch: Any = pytest.importorskip("tilewright.torch", exc_type=ImportError)
F: Any = torch.nn.functional
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def twin(ours: Any, theirs: Any) -> None:
    ours.load_state_dict(theirs.state_dict())


# -- modules -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 6), (0, 6), (2, 0, 6)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    theirs, ours = torch.nn.Linear(6, 5, bias=bias), tilewright_torch.nn.Linear(6, 5, bias=bias)
    twin(ours, theirs)
    x = torch.randn(shape)
    y = ours(x)
    torch.testing.assert_close(y, theirs(x), **TOLERANCE)
    y.square().sum().backward()
    theirs(x).square().sum().backward()
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, **TOLERANCE)
    with torch.no_grad():
        wide = torch.randn(*shape[:-1], 12)[..., ::2]
        torch.testing.assert_close(ours(wide), theirs(wide), **TOLERANCE)


def test_packed_linear() -> None:
    """A packed copy serves calls without gradients, follows what is written to the weight, and stays out of sight."""
    theirs, ours = torch.nn.Linear(40, 24), tilewright_torch.nn.PackedLinear(40, 24)
    twin(ours, theirs)
    inputs = [torch.randn(shape) for shape in ((2, 16, 40), (33, 40), (3, 40), (40,), (0, 40))]
    inputs.append(torch.randn(40, 32).T)
    inputs.append(torch.randn(16, 80)[:, ::2])

    def compare() -> None:
        for x in inputs:
            torch.testing.assert_close(ours(x), theirs(x), **TOLERANCE)

    with torch.inference_mode():
        compare()
    packed = ours._packed[1]
    with torch.no_grad():
        compare()
        assert ours._packed[1] is packed
        for one in (ours, theirs):
            one.weight.mul_(2)
        compare()
        assert ours._packed[1] is not packed
    twin(ours, torch.nn.Linear(40, 24))
    theirs.load_state_dict(ours.state_dict())
    assert set(ours.state_dict()) == {"weight", "bias"}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert ours(inputs[1]).dtype == torch.bfloat16
    with torch.no_grad():
        compare()
        again = copy.deepcopy(ours)
        assert "_packed" in vars(ours)
        assert "_packed" not in vars(again)
        torch.testing.assert_close(again(inputs[0]), ours(inputs[0]))
    ours(inputs[0]).sum().backward()
    assert ours.weight.grad is not None
    ours.to(torch.float64)
    assert ours(inputs[0].double()).dtype == torch.float64


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("between", [False, True])
def test_a_packed_weight_follows_optimizers_that_raise_no_version(fused: bool, between: bool) -> None:
    ours, x = tilewright_torch.nn.PackedLinear(48, 40), torch.randn(16, 48)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=0.1, fused=fused)
    with torch.no_grad():
        ours(x)
    for _ in range(2):
        loss = ours(x).sum()
        if between:
            with torch.no_grad():
                ours(x)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            right = torch.nn.functional.linear(x, ours.weight, ours.bias)
            torch.testing.assert_close(ours(x), right, **TOLERANCE)


def test_a_weight_of_inference_mode_is_not_packed() -> None:
    with torch.inference_mode():
        ours, x = tilewright_torch.nn.PackedLinear(48, 40), torch.randn(16, 48)
        ours(x)
        ours.weight.mul_(3)
        torch.testing.assert_close(ours(x), torch.nn.functional.linear(x, ours.weight, ours.bias), **TOLERANCE)


def test_packed_weights_are_replaced_and_given_back() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    x = torch.randn(20, 16)
    with torch.no_grad():
        right = model(x)
        report = tilewright_torch.replace_modules(model, pack=True)
        assert type(model[0]) is tilewright_torch.nn.PackedLinear
        torch.testing.assert_close(model(x), right, **TOLERANCE)
        assert tilewright_torch.replace_modules(model).kept[0].why == "it was replaced before"
        report.undo()
        assert type(model[0]) is torch.nn.Linear
        assert "_packed" not in vars(model[0])


CONVS = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": "same", "dilation": 2},
    {"kernel_size": 4, "padding": "same"},
    {"kernel_size": 2, "padding": "valid", "stride": 2},
    {"kernel_size": 3, "padding": 1, "padding_mode": "reflect", "groups": 2},
    {"kernel_size": 1, "bias": False, "stride": 2},
]


@pytest.mark.parametrize("options", CONVS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int, options: dict[str, Any]) -> None:
    name = f"Conv{rank}d"
    theirs, ours = getattr(torch.nn, name)(4, 6, **options), getattr(tilewright_torch.nn, name)(4, 6, **options)
    twin(ours, theirs)
    x = torch.randn(2, 4, *(9, 8, 7)[:rank])
    torch.testing.assert_close(ours(x), theirs(x), **TOLERANCE)
    if options.get("padding_mode") != "reflect":
        torch.testing.assert_close(ours(x[0]), theirs(x[0]), **TOLERANCE)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("of", ["neither", "input", "weight", "both"])
def test_results_of_convolutions_have_the_memory_format_of_pytorchs(rank: int, of: str, compiled: bool) -> None:
    """A model in channels_last makes its activations so, whatever the format of what it is given."""
    last = torch.channels_last if rank == 2 else torch.channels_last_3d
    theirs = (torch.nn.Conv2d if rank == 2 else torch.nn.Conv3d)(4, 6, 3)
    x = torch.randn(2, 4, *(5,) * rank)
    x = x.contiguous(memory_format=last) if of in ("input", "both") else x
    theirs = theirs.to(memory_format=last) if of in ("weight", "both") else theirs
    ours = copy.deepcopy(theirs)
    tilewright_torch.replace_modules(ours)
    call = torch.compile(ours, fullgraph=True, backend="aot_eager") if compiled else ours
    y, want = call(x), theirs(x)
    torch.testing.assert_close(y, want, **TOLERANCE)
    assert y.stride() == want.stride()
    grad, want_grad = (torch.autograd.grad(each.square().sum(), each_w)[0] for each, each_w in
                       ((y, ours.weight), (want, theirs.weight)))  # fmt: skip
    torch.testing.assert_close(grad, want_grad, rtol=1e-3, atol=1e-3)


def test_what_kernels_do_not_take_pytorch_computes() -> None:
    theirs, ours = torch.nn.Linear(6, 5).double(), tilewright_torch.nn.Linear(6, 5).double()
    twin(ours, theirs)
    x = torch.randn(4, 6).double()
    assert torch.equal(ours(x), theirs(x))
    conv = tilewright_torch.nn.Conv2d(4, 6, 3, padding="same").to(torch.float64)
    assert conv(torch.randn(1, 4, 5, 5).double()).dtype == torch.float64
    with pytest.raises(RuntimeError):
        tilewright_torch.nn.Linear(6, 5)(x)  # float64 beside float32, as PyTorch has it
    with pytest.raises(ValueError, match="not supported for strided"):
        tilewright_torch.nn.Conv2d(4, 6, 3, padding="same", stride=2)


def test_autocast_reaches_the_modules() -> None:
    ours = tilewright_torch.nn.Linear(6, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(torch.randn(4, 6)).dtype == torch.bfloat16
        assert ours(torch.randn(4, 6).bfloat16()).dtype == torch.bfloat16


# -- attention ---------------------------------------------------------------------------------------------------------


def heads(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape).to(dtype)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "boolean": {"attn_mask": torch.rand(5, 7) > 0.3},
    "boolean by head": {"attn_mask": torch.rand(2, 4, 5, 7) > 0.3},
    "float": {"attn_mask": torch.randn(5, 7)},
    "float by sequence": {"attn_mask": torch.randn(2, 1, 5, 7)},
    "minus infinity": {"attn_mask": torch.zeros(5, 7).masked_fill(torch.rand(5, 7) > 0.5, float("-inf"))},
    "a row sees nothing": {"attn_mask": torch.arange(5)[:, None].expand(5, 7) > 0},
}


@pytest.mark.parametrize("case", CASES)
def test_attention_means_what_pytorch_means(case: str) -> None:
    q, k, v = heads(2, 4, 5, 16), heads(2, 4, 7, 16), heads(2, 4, 7, 8)
    options = CASES[case]
    mask, causal = options.get("attn_mask"), bool(options.get("is_causal"))
    assert tilewright_torch.sdpa.why_not(q, k, v, mask, 0.0, causal, 0.3, False) == ""
    found = tilewright_torch.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, v, **options), **TOLERANCE)


def test_grouped_heads_and_three_dimensions() -> None:
    q, k = heads(2, 8, 5, 16), heads(2, 2, 7, 16)
    found = tilewright_torch.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(q, k, k, enable_gqa=True), **TOLERANCE)
    flat, keys = heads(3, 5, 16), heads(3, 7, 16)
    mask = torch.rand(3, 5, 7) > 0.3
    mask[..., 0] = True
    found = tilewright_torch.scaled_dot_product_attention(flat, keys, keys, mask)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(flat, keys, keys, mask), **TOLERANCE)
    turned = heads(2, 5, 4, 16).transpose(1, 2)
    found = tilewright_torch.scaled_dot_product_attention(turned, turned, turned)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(turned, turned, turned), **TOLERANCE)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("case", ["plain", "causal", "float", "one row"])
def test_the_result_of_attention_lies_in_memory_as_pytorchs(case: str, recorded: bool, compiled: bool) -> None:
    """`view` takes the result of heads that are views of rows, and `contiguous` copies nothing."""
    rows = 1 if case == "one row" else 5
    q, k = heads(2, rows, 4, 16).transpose(1, 2), heads(2, 7, 4, 16).transpose(1, 2)
    options = CASES.get(case, {})

    def merged(sdpa: Any, q: Any) -> Any:
        return sdpa(q, k, k, **options).transpose(1, 2).view(2, rows, 64)

    ours = merged
    if compiled:
        ours = torch.compile(merged, fullgraph=True, backend="aot_eager", dynamic=True)
    mine, theirs = q.clone().requires_grad_(recorded), q.clone().requires_grad_(recorded)
    assert mine.stride() == q.stride()
    found = ours(tilewright_torch.scaled_dot_product_attention, mine)
    want = merged(F.scaled_dot_product_attention, theirs)
    torch.testing.assert_close(found, want, **TOLERANCE)
    if recorded:
        gradients = [torch.autograd.grad(y.square().sum(), x)[0] for y, x in ((found, mine), (want, theirs))]
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("memory", [(0, 1, 2, 3), (0, 2, 1, 3)], ids=str)
def test_strides_of_attention_are_those_of_pytorch(memory: tuple[int, ...]) -> None:
    q = heads(2, 5, 4, 16).permute(memory)
    found, want = tilewright_torch.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q)
    assert found.stride() == want.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_rows_that_a_float_mask_hides_are_those_of_pytorch(dtype: Any, compiled: bool) -> None:
    """Of nothing but the lowest number the mean of v (scores are rounded away), of minus infinity 0; mixed and plain
    rows beside them."""
    q, k, v = (heads(2, 4, rows, 16).to(dtype) for rows in (9, 70, 70))
    lowest = torch.finfo(dtype).min
    mask = torch.randn(2, 1, 9, 70).to(dtype)
    mask[0, :, 3] = mask[1, :, 2, :30] = mask[0, :, 6] = lowest
    mask[1, :, 5] = mask[0, :, 6, ::2] = -torch.inf
    call = tilewright_torch.scaled_dot_product_attention
    if compiled:
        call = torch.compile(call, backend="aot_eager", fullgraph=True)
    for each in (mask, mask.float(), mask[:, :, 3:4], mask[0, 0]):
        assert not tilewright_torch.sdpa.why_not(q, k, v, each)
        found, expected = call(q, k, v, each), F.scaled_dot_product_attention(q, k, v, each)
        close = TOLERANCE if dtype is torch.float32 else {"rtol": 2e-2, "atol": 1e-2}
        torch.testing.assert_close(found, expected, **close)
    assert tilewright_torch.sdpa.finite_rows(mask[1, :, :2]).equal(mask[1, :, :2])


def test_calls_that_are_left_to_pytorch_have_a_reason() -> None:
    q, k = heads(2, 4, 5, 16), heads(2, 4, 7, 16)
    wide = heads(1, 1, 4, 300)
    why_not = tilewright_torch.sdpa.why_not
    cases = [
        ((q.double(), k.double(), k.double()), "float32"),
        ((heads(2, 8, 5, 16), k, k), "enable_gqa"),
        ((wide, wide, wide), "256"),
        ((heads(5, 16), heads(7, 16), heads(7, 16)), "dimensions"),
        ((k, k, k[:, :, :0]), "different sizes"),
    ]
    for operands, word in cases:
        assert word in why_not(*operands)
    assert not why_not(q.requires_grad_(), k, k)
    made = tilewright_torch.scaled_dot_product_attention(q, k, k)
    made.sum().backward()
    assert q.grad is not None
    assert "both" in why_not(k, k, k, torch.ones(7, 7).bool(), is_causal=True)


def test_ours_in_the_place_of_pytorchs_attention_leaves_calls_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs put it there; what kernels do not take must not come back to it."""
    q = torch.randn(1, 2, 3, 8, dtype=torch.float64)
    want = F.scaled_dot_product_attention(q, q, q)
    monkeypatch.setattr(F, "scaled_dot_product_attention", tilewright_torch.scaled_dot_product_attention)
    torch.testing.assert_close(F.scaled_dot_product_attention(q, q, q), want)


def test_dropout_follows_the_generator() -> None:
    q = heads(2, 4, 64, 16)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(tilewright_torch.scaled_dot_product_attention(q, q, q, dropout_p=0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


# -- models ------------------------------------------------------------------------------------------------------------


class Own(torch.nn.Linear):  # type: ignore[misc]
    pass


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding="same")
        self.norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10), torch.nn.ReLU(), Own(10, 4))

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.stem(x)))


def test_modules_are_replaced_and_restored() -> None:
    model = Model().eval()
    before, x = copy.deepcopy(model), torch.randn(2, 3, 6, 6)
    parameters = [id(one) for one in model.parameters()]
    state = {name: one.clone() for name, one in model.state_dict().items()}
    report = tilewright_torch.replace_modules(model)
    assert [one.name for one in report.replaced] == ["stem", "head.1"]
    assert {one.name: one.why for one in report.kept} == {
        "norm": "no kernel of ours computes it",
        "head.3": "a class of its own, derived from Linear",
    }
    assert "2 modules replaced, 2 kept" in str(report)
    assert "head.3: Own: a class of its own" in str(report)
    assert [id(one) for one in model.parameters()] == parameters
    assert list(model.state_dict()) == list(state)
    torch.testing.assert_close(model(x), before(x), **TOLERANCE)
    assert isinstance(model.stem, tilewright_torch.nn.Conv2d)
    again = tilewright_torch.replace_modules(model)
    assert not again.replaced
    report.undo()
    assert type(model.stem) is torch.nn.Conv2d
    assert torch.equal(model(x), before(x))


def test_what_is_replaced_can_be_picked_and_says_why_not() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4).double(), torch.nn.LazyLinear(3))
    report = tilewright_torch.replace_modules(model, where=lambda name, _module: name != "0")
    assert not report.replaced
    reasons = [one.why for one in report.kept]
    assert "where" in reasons[0]
    assert "float64" in reasons[1]
    assert len(reasons) == 3


def test_a_model_that_moves_on_still_computes() -> None:
    """To another type or device after it was replaced: what kernels do not take PyTorch computes."""
    model = Model().eval()
    tilewright_torch.replace_modules(model)
    x = torch.randn(2, 3, 6, 6)
    expected = model(x)
    torch.testing.assert_close(model.double()(x.double()).float(), expected, **TOLERANCE)
    assert model.to("meta")(x.double().to("meta")).shape == (2, 4)
    model = Model().eval().bfloat16()
    tilewright_torch.replace_modules(model)
    assert model(x.bfloat16()).dtype == torch.bfloat16


def test_a_replaced_model_trains_as_it_did() -> None:
    torch.manual_seed(0)
    model = Model()
    other = copy.deepcopy(model)
    tilewright_torch.replace_modules(model)
    x, wanted = torch.randn(8, 3, 6, 6), torch.randint(0, 4, (8,))
    losses = []
    for one in (model, other):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(one(x), wanted)
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)


def test_parametrizations_that_came_later_survive_undo() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    report = tilewright_torch.replace_modules(model)
    torch.nn.utils.parametrizations.weight_norm(model[0])
    x = torch.randn(3, 8)
    expected = model(x)
    report.undo()
    assert torch.nn.utils.parametrize.is_parametrized(model[0])
    torch.testing.assert_close(model(x), expected, **TOLERANCE)
    torch.nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert [type(module) for module in model] == [torch.nn.Linear] * 2
    torch.testing.assert_close(model(x), expected, **TOLERANCE)


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
def test_replaced_modules_are_traced_by_fx(pack: bool) -> None:
    """Modules of torch.nn are leaves for `torch.fx`; ours are traced as one call each."""
    model = torch.nn.Sequential(torch.nn.Conv1d(4, 8, 3), torch.nn.Linear(6, 5))
    tilewright_torch.replace_modules(model, pack=pack)
    x = torch.randn(2, 4, 8)
    with torch.no_grad():
        traced = torch.fx.symbolic_trace(model)
        torch.testing.assert_close(traced(x), model(x), **TOLERANCE)
    calls = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert calls == [tilewright_torch.nn.conv, tilewright_torch.nn.linear]


def test_sparse_and_nested_tensors_are_left_to_pytorch() -> None:
    layer = torch.nn.Linear(8, 5)
    tilewright_torch.replace_modules(layer)
    x = torch.randn(6, 8)
    torch.testing.assert_close(layer(x.to_sparse()), layer(x), **TOLERANCE)
    nested = torch.nested.nested_tensor([x[:2], x[2:]])
    torch.testing.assert_close(torch.cat(layer(nested).unbind()), layer(x), **TOLERANCE)
    several = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 5, 8)])
    assert "nested" in tilewright_torch.sdpa.why_not(several, several, several)
    with torch.no_grad():
        parts = tilewright_torch.scaled_dot_product_attention(several, several, several).unbind()
    for found, rows in zip(parts, several.unbind(), strict=True):
        torch.testing.assert_close(found, F.scaled_dot_product_attention(rows, rows, rows), **TOLERANCE)
