"""Calls inside of PyTorch's compiler and exporter: one op each, no graph ends at them, no frame of ours is compiled."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")
tilewright_torch: Any = pytest.importorskip("tilewright.torch", exc_type=ImportError)
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch.compile follows new Pythons late")
F: Any = torch.nn.functional


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def breaks() -> dict[str, int]:
    return dict(torch._dynamo.utils.counters["graph_break"])


def linear(x: Any, w: Any, bias: Any) -> Any:
    return torch.relu(tw.gemm(torch.relu(x), w.T, bias=bias, epilogue="gelu"))


def exact_linear(x: Any, w: Any, bias: Any) -> Any:
    return torch.relu(F.gelu(torch.relu(x) @ w.T + bias))


def block(x: Any, w: Any, bias: Any) -> Any:
    y = tw.conv(x, w, bias, layout="nchw", padding=1, epilogue="relu")
    return tw.conv_backward_data(y, w, x.shape, layout="nchw", padding=1) + 1


def exact_block(x: Any, w: Any, bias: Any) -> Any:
    return F.conv_transpose2d(F.conv2d(x, w, bias, padding=1).relu(), w, padding=1) + 1


def attend(q: Any, k: Any, v: Any) -> Any:
    return tw.attention(q * 2, k, v, causal=True, layout="bhsd") + 1


def exact_attend(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1


def of_linear(n: int) -> tuple[Any, ...]:
    return torch.randn(n, 16), torch.randn(8, 16), torch.randn(8)


def of_block(n: int) -> tuple[Any, ...]:
    return torch.randn(2, 4, n, n + 3), torch.randn(6, 4, 3, 3), torch.randn(6)


def of_attend(n: int) -> tuple[Any, ...]:
    return torch.randn(2, 4, n, 16), torch.randn(2, 4, n, 16), torch.randn(2, 4, n, 16)


def packed(q: Any, starts: Any, longest: int) -> Any:
    """Rows of two sequences one behind the other; the longest is a number that changes, and a symbol in the graph."""
    lengths: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    return tw.attention(q, q, q, max_seqlen_q=longest, max_seqlen_k=longest, **lengths) * 2


def exact_packed(q: Any, starts: Any, longest: int) -> Any:
    parts = [q[starts[index] : starts[index + 1]].transpose(0, 1) for index in range(2)]
    assert longest == max(part.shape[1] for part in parts)
    return torch.cat([F.scaled_dot_product_attention(part, part, part).transpose(0, 1) for part in parts]) * 2


def of_packed(n: int) -> tuple[Any, ...]:
    return torch.randn(n + 3, 2, 16), torch.tensor([0, n, n + 3], dtype=torch.int32), n


def gated(x: Any, gate: Any, up: Any) -> Any:
    return tw.gated_gemm(x, gate, up) + 1


def exact_gated(x: Any, gate: Any, up: Any) -> Any:
    return F.silu(x @ gate) * (x @ up) + 1


def of_gated(n: int) -> tuple[Any, ...]:
    return torch.randn(n, 16), torch.randn(16, 8), torch.randn(16, 8)


def weights_of(x: Any, dy: Any, bias: Any) -> Any:
    dw = tw.conv_backward_weight(x, dy, (6, 4, 3, 3), layout="nchw", padding=1)
    return tw.matmul(dw.flatten(1), dw.flatten(1).T) + bias


def exact_weights_of(x: Any, dy: Any, bias: Any) -> Any:
    dw = torch.nn.grad.conv2d_weight(x, (6, 4, 3, 3), dy, padding=1).flatten(1)
    return dw @ dw.T + bias


def of_weights(n: int) -> tuple[Any, ...]:
    return torch.randn(1, 4, n, 5) / 4, torch.randn(1, 6, n, 5) / 4, torch.randn(6)


def written(x: Any, w: Any, out: Any) -> Any:
    """Overloads that write: into what the graph makes, and into what it is given."""
    y = torch.empty_like(out)
    tw.gemm(x, w.T, epilogue="relu", out=y)
    tw.matmul(y.T, y, out=out)
    return out + 1


def exact_written(x: Any, w: Any, out: Any) -> Any:
    y = (x @ w.T).relu()
    return y.T @ y + 1


def of_written(n: int) -> tuple[Any, ...]:
    return torch.randn(8, n), torch.randn(8, n), torch.zeros(8, 8)


def appended(cache: Any, row: Any, lengths: Any) -> Any:
    values = torch.zeros_like(cache)
    kept = tw.append_kv(cache, values, row, row, cache_seqlens=lengths)
    return kept.cache_k + kept.cache_v


def exact_appended(cache: Any, row: Any, lengths: Any) -> Any:
    cache = cache.clone()
    values = torch.zeros_like(cache)
    for index, at in enumerate(lengths.tolist()):
        cache[index, at], values[index, at] = row[index, 0], row[index, 0]
    return cache + values


def of_appended(n: int) -> tuple[Any, ...]:
    return torch.randn(2, n, 2, 16), torch.randn(2, 1, 2, 16), torch.tensor([1, n - 1], dtype=torch.int32)


MODELS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "linear": (linear, exact_linear, of_linear),
    "conv": (block, exact_block, of_block),
    "attention": (attend, exact_attend, of_attend),
    "packed": (packed, exact_packed, of_packed),
    "gated": (gated, exact_gated, of_gated),
    "weights": (weights_of, exact_weights_of, of_weights),
    "written": (written, exact_written, of_written),
    "appended": (appended, exact_appended, of_appended),
}


@pytest.mark.parametrize("model", MODELS)
def test_twenty_sizes_are_two_compilations_at_most(model: str) -> None:
    ours, exact, draw = MODELS[model]
    compiled = torch.compile(ours, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in range(4, 24):
        operands = draw(n)
        expected = exact(*operands)  # some write what they are given
        torch.testing.assert_close(compiled(*operands), expected, rtol=1e-4, atol=1e-4)
    assert graphs() <= 2
    assert not breaks()


@pytest.mark.parametrize("call", ["gemm", "attention", "scaled_dot_product_attention"])
def test_defaults_are_no_inputs_of_a_graph(call: str) -> None:
    """The compiler makes a graph twice that has a fractional number among its inputs: ops want it as a number."""
    from torch._dynamo.testing import CompileCounterWithBackend

    functions: dict[str, Callable[..., Any]] = {
        "gemm": lambda a, b: tw.gemm(a, b, epilogue="relu"),
        "attention": lambda q, k: tw.attention(q, k, k),
        "scaled_dot_product_attention": lambda q, k: tilewright_torch.scaled_dot_product_attention(q, k, k),
    }
    made = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(functions[call], fullgraph=True, dynamic=True, backend=made)
    for n in (3, 6, 9):
        operands = (torch.randn(n, 5), torch.randn(5, 7)) if call == "gemm" else torch.randn(2, 4, n, 7, 8)
        compiled(*operands)
    assert made.frame_count == 1


@pytest.mark.parametrize("model", ["linear", "conv", "attention", "packed", "gated"])
def test_training_compiles_whole(model: str) -> None:
    ours, exact, draw = MODELS[model]
    if model == "conv":

        def ours(x: Any, w: Any, bias: Any) -> Any:
            return tw.conv(x, w, bias, layout="nchw", padding=1, epilogue="silu") * 2

        def exact(x: Any, w: Any, bias: Any) -> Any:
            return F.silu(F.conv2d(x, w, bias, padding=1)) * 2

    compiled = torch.compile(ours, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (5, 7, 9):
        operands = draw(n)
        wanted = [one.requires_grad_() for one in operands if isinstance(one, torch.Tensor) and one.is_floating_point()]
        found = torch.autograd.grad(compiled(*operands).square().sum(), wanted)
        expected = torch.autograd.grad(exact(*operands).square().sum(), wanted)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert graphs() <= 2
    assert not breaks()


def test_a_size_that_only_the_run_knows() -> None:
    def chosen(x: Any, w: Any, keep: Any) -> Any:
        return tw.gemm(x[keep], w.T).sum()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(chosen, fullgraph=True, dynamic=True, backend="aot_eager")
        for n in (5, 9):
            x, w, _ = of_linear(n)
            keep = torch.arange(n) % 2 == 0
            torch.testing.assert_close(compiled(x, w, keep), (x[keep] @ w.T).sum(), rtol=1e-4, atol=1e-4)


def test_the_compiler_warns_of_nothing() -> None:
    compiled = torch.compile(
        lambda x, w, b: tw.gemm(x, w.T, bias=b, epilogue="gelu"), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", UserWarning)
        compiled(torch.ones(8, 32), torch.ones(40, 32), torch.ones(40))


def test_the_graph_has_one_op_for_a_call() -> None:
    seen: list[Any] = []

    def look(module: Any, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    compiled = torch.compile(linear, fullgraph=True, backend=look)
    with torch.no_grad():
        compiled(*of_linear(4))
    assert seen.count("tilewright.gemm.default") == 1
    assert len(seen) <= 4  # relu, the transposed view, ours, relu


def test_no_frame_of_ours_is_compiled_where_a_graph_ends() -> None:
    """A frame that the compiler gave up calls us as it would without one."""
    import torch._dynamo

    compiled_frames: list[str] = []

    def broken(x: Any, w: Any, bias: Any) -> Any:
        try:
            torch._dynamo.graph_break()
            return tw.gemm(x, w.T, bias=bias)
        finally:
            x.sum()

    def note(module: Any, _inputs: Any) -> Any:
        compiled_frames.append(str(module.graph))
        return module.forward

    compiled = torch.compile(broken, backend=note)
    for n in (4, 5, 6):
        x, w, bias = of_linear(n)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w, bias), x @ w.T + bias, rtol=1e-4, atol=1e-4)
    assert not [one for one in breaks() if "tilewright" in one and "test" not in one], breaks()
    assert len(compiled_frames) <= 4


def test_a_number_that_is_closed_over_may_change() -> None:
    scale = 2.0

    def scaled(x: Any) -> Any:
        return tw.gemm(x, torch.ones(6, 5), alpha=scale)

    compiled = torch.compile(scaled, fullgraph=True, backend="aot_eager")
    for scale in (2.0, 3.0, 0.5, -1.0):
        assert torch.equal(compiled(torch.ones(4, 6)), torch.full((4, 5), 6.0 * scale))


def test_what_is_written_is_written_in_a_graph_too() -> None:
    def write(x: Any, out: Any) -> Any:
        tw.gemm(x, torch.ones(6, 5), out=out)
        return out + 1

    out = torch.zeros(4, 5)
    compiled = torch.compile(write, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(torch.ones(4, 6), out), torch.full((4, 5), 7.0))
    assert torch.equal(out, torch.full((4, 5), 6.0))


def test_a_cache_is_appended_to_in_a_graph() -> None:
    def step(cache_k: Any, cache_v: Any, k: Any, v: Any, lengths: Any) -> Any:
        appended = tw.append_kv(cache_k, cache_v, k, v, cache_seqlens=lengths)
        return tw.attention(k, appended.cache_k, appended.cache_v, seqlens_k=lengths + 1)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    lengths = torch.tensor([1, 3], dtype=torch.int32)
    operands: list[Any] = [*(torch.randn(2, rows, 2, 16) for rows in (9, 9, 1, 1)), lengths]
    copies = [one.clone() for one in operands]
    assert torch.equal(compiled(*operands), step(*copies))
    for one, other in zip(operands, copies, strict=True):
        assert torch.equal(one, other)


def test_packed_weights_end_a_graph_and_no_more() -> None:
    w = torch.randn(8, 16)
    packed = tw.pack(w.T)

    def product(x: Any) -> Any:
        return torch.relu(tw.gemm(x * 2, packed))

    x = torch.randn(4, 16)
    compiled = torch.compile(product, backend="eager")
    torch.testing.assert_close(compiled(x), torch.relu(x * 2 @ w.T), rtol=1e-4, atol=1e-4)


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.filters = torch.nn.Parameter(torch.randn(6, 1, 3, 3))

    def forward(self, x: Any) -> Any:
        y = tw.gemm(x, self.first.weight.T, bias=self.first.bias, epilogue="silu")
        return tw.conv(y.unflatten(-1, (1, 4, 8)), self.filters, layout="nchw", padding=1)


@pytest.mark.parametrize("strict", [False, True], ids=["traced", "strict"])
def test_models_are_exported(strict: bool) -> None:
    model, x = Model().eval(), torch.randn(5, 16)
    size = torch.export.Dim("n", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: size}}, strict=strict)
    assert "tilewright.gemm" in program.graph_module.code
    assert "tilewright.conv" in program.graph_module.code
    for n in (5, 9):
        x = torch.randn(n, 16)
        torch.testing.assert_close(program.module()(x), model(x))


@pytest.mark.proof
def test_inductor_computes_the_same() -> None:
    for ours, exact, draw in MODELS.values():
        compiled = torch.compile(ours, fullgraph=True, dynamic=True)
        for n in (4, 9, 13):
            operands = draw(n)
            expected = exact(*operands)
            torch.testing.assert_close(compiled(*operands), expected, rtol=1e-4, atol=1e-4)
    assert not breaks()
