"""PyTorch's machinery around our calls on a GPU: graphs of its compiler, models that move, children of a fork."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.torch_here import torch
from tilewright.runtime import fast_path

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)
tilewright_torch = pytest.importorskip("tilewright.torch")

REPLAYS = 100


def random(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(torch.bfloat16)


def step(x: Any, weight: Any, bias: Any) -> Any:
    """A product with what is fused behind it, and attention."""
    hidden = tw.gemm(x, weight.T, bias=bias, epilogue="relu")
    q = hidden.reshape(2, -1, 4, 64)
    return tw.attention(q, q, q, causal=True).reshape(hidden.shape)


def test_a_hundred_replays_have_the_same_bits() -> None:
    """mode="reduce-overhead": the compiler records our launches in CUDA graphs and replays them."""
    torch.manual_seed(23)
    x, weight, bias = random(256, 512), random(256, 512), random(256)
    with torch.inference_mode():
        compiled = torch.compile(step, mode="reduce-overhead", fullgraph=True)
        expected = step(x, weight, bias)
        first = compiled(x, weight, bias).clone()
        for _ in range(REPLAYS):
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(x, weight, bias), first)
        other = random(256, 512)
        torch.compiler.cudagraph_mark_step_begin()
        again = compiled(other, weight, bias).clone()
        assert torch.equal(again, step(other, weight, bias))
    assert torch.equal(first, expected)


def test_calls_that_c_remembers_are_captured_too() -> None:
    """A call whose front answers goes into a graph like any other."""
    native = fast_path.library()
    assert native is not None
    a, b = random(64, 256), random(256, 128)
    out = torch.empty(64, 128, device="cuda", dtype=torch.bfloat16)
    for _ in range(4):
        expected = tw.gemm(a, b, out=out).clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tw.gemm(a, b, out=out)
    out.zero_()
    for _ in range(REPLAYS):
        graph.replay()
    assert torch.equal(out, expected)


def test_a_replaced_model_moves_between_devices() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32)).eval()
    tilewright_torch.replace_modules(model)
    x = torch.randn(16, 64)
    with torch.inference_mode():
        expected = model(x)
        moved = model.to("cuda")(x.cuda()).cpu()
        back = model.to("cpu")(x)
    torch.testing.assert_close(moved, expected, atol=1e-3, rtol=1e-3)
    assert torch.equal(back, expected)


def test_pages_that_were_freed_and_made_anew_after_a_graph_was_recorded() -> None:
    """The compiler's graphs know addresses: other pages are copied to where the graph reads, or it records anew."""
    torch.manual_seed(31)
    q, lengths = random(2, 1, 8, 128), torch.tensor([40, 100], device="cuda", dtype=torch.int32)
    table = torch.arange(16, device="cuda", dtype=torch.int32).view(2, 8)

    def decode(q: Any, pages_k: Any, pages_v: Any) -> Any:
        return tw.attention(q, pages_k, pages_v, block_table=table, seqlens_k=lengths) * 2

    compiled = torch.compile(decode, mode="reduce-overhead", fullgraph=True)
    with torch.inference_mode():
        for turn in range(6):
            pages = [random(16, 16, 2, 128) for _ in range(2)]
            expected = decode(q, *pages)
            for _ in range(3):
                torch.compiler.cudagraph_mark_step_begin()
                assert torch.equal(compiled(q, *pages), expected), turn
            pages.clear()
            torch.cuda.empty_cache()
            kept = [random(16, 16, 2, 128) for _ in range(turn)]  # so that the next ones lie elsewhere
            del kept


def _in_a_child(call: Any, a: Any, b: Any, answers: Any) -> None:
    try:
        call(a, b)
        answers.put("no error")
    except Exception as error:  # told to the parent, who decides
        answers.put(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("call", [tw.gemm, torch.ops.tilewright.gemm], ids=["call", "op"])
def test_a_child_of_a_fork_has_one_error(call: Any) -> None:
    """CUDA does not survive a fork: the child is told, and neither hangs nor dies; the parent goes on."""
    a, b = random(16, 64), random(64, 32)
    for _ in range(4):
        expected = call(a, b)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_a_child, args=(call, a, b, answers))
    child.start()
    said = answers.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert said != "no error"
    assert ": " in said
    assert torch.equal(tw.gemm(a, b), expected)
