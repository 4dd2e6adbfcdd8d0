"""Ops of PyTorch's on a real GPU, served by the library: calls made before need no Python, and are right."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)
pytest.importorskip("tilewright.torch", exc_type=ImportError)

from tilewright.torch import native  # noqa: E402

if native.registration() != "c++":
    pytest.skip(f"the ops are Python's here: {native.registration()}", allow_module_level=True)

ops = torch.ops.tilewright


def random(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(torch.bfloat16)


def alone(call: Callable[[], Any]) -> bool:
    before = native.counts().by_python
    call()
    return native.counts().by_python == before


def known(call: Callable[[], Any]) -> Any:
    """The result of a call that the library knows."""
    for _ in range(4):
        if alone(call):
            break
    assert alone(call)
    return call()


def close(result: Any, expected: Any) -> None:
    torch.testing.assert_close(result.float(), expected.float(), atol=0.06 * float(expected.abs().max()), rtol=0.02)


# The third needs a workspace whose first bytes are zero where K is split, the last two alignments of other kinds.
SIZES = [(16, 64, 64), (1, 4096, 4096), (64, 256, 16384), (300, 500, 700), (333, 777, 555)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_a_product_made_before_needs_no_python(size: tuple[int, int, int], mode: Any) -> None:
    m, n, k = size
    a, b = random(m, k), random(k, n)
    with mode():
        result = known(lambda: ops.gemm(a, b))
        close(result, a.float() @ b.float())
        assert torch.equal(result, ops.gemm(a, b))


def test_convolution_and_attention_need_no_python() -> None:
    x, w = random(2, 32, 14, 14).to(memory_format=torch.channels_last), random(64, 32, 3, 3)
    w = w.to(memory_format=torch.channels_last)
    q, k, v = random(2, 128, 8, 64), random(2, 200, 2, 64), random(2, 200, 2, 64)
    with torch.inference_mode():
        y = known(lambda: ops.conv(x, w, padding=[1], layout="nchw"))
        close(y, torch.nn.functional.conv2d(x.float(), w.float(), padding=1))
        out = known(lambda: ops.attention(q, k, v))
        exact = torch.nn.functional.scaled_dot_product_attention(
            q.float().transpose(1, 2), k.float().transpose(1, 2), v.float().transpose(1, 2), enable_gqa=True
        )
        close(out, exact.transpose(1, 2))
        decode = random(2, 1, 8, 64)
        long = random(2, 8192, 2, 64)
        out = known(lambda: ops.attention(decode, long, long))  # with splits: two stages and what is between them
        exact = torch.nn.functional.scaled_dot_product_attention(
            decode.float().transpose(1, 2), long.float().transpose(1, 2), long.float().transpose(1, 2), enable_gqa=True
        )
        close(out, exact.transpose(1, 2))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_attention_needs_no_python_outside_of_inference_mode(mode: Any) -> None:
    q, k = random(2, 128, 8, 64), random(2, 200, 2, 64)
    with mode():
        assert torch.equal(known(lambda: ops.attention(q, k, k)), tw.attention(q, k, k))
        assert torch.equal(known(lambda: ops.attention_lse(q, k, k))[1], tw.attention(q, k, k, return_lse=True)[1])


def test_an_operand_given_twice_is_not_taken_for_both_later() -> None:
    a, b = random(256, 256), random(256, 256)
    with torch.inference_mode():
        known(lambda: ops.gemm(a, a))
        close(ops.gemm(a, b), a.float() @ b.float())


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_calls_that_write_need_no_python(mode: Any) -> None:
    q, k, x, w = random(2, 128, 8, 64), random(2, 200, 2, 64), random(2, 14, 14, 32), random(64, 3, 3, 32)
    caches, new = [torch.zeros_like(k) for _ in range(2)], random(2, 3, 2, 64)
    lengths = torch.tensor([5, 17], device="cuda", dtype=torch.int32)
    pairs = [random(m, k) for m, _, k in SIZES], [random(k, n) for _, n, k in SIZES]
    with mode():
        for a, b in zip(*pairs, strict=True):
            out = torch.empty(len(a), b.shape[1], device="cuda", dtype=torch.bfloat16)
            known(lambda: ops.gemm.out(a, b, out=out))  # noqa: B023
            assert torch.equal(out, ops.gemm(a, b))
        image, seen = torch.empty(2, 14, 14, 64, device="cuda").bfloat16(), torch.empty_like(q)
        known(lambda: ops.conv.out(x, w, padding=[1], out=image))
        assert torch.equal(image, ops.conv(x, w, padding=[1]))
        known(lambda: ops.attention.out(q, k, k, out=seen))
        assert torch.equal(seen, ops.attention(q, k, k))
        known(lambda: ops.append_kv(*caches, new, new, lengths))
        for cache in caches:
            assert torch.equal(cache[0, 5:8], new[0])
            assert torch.equal(cache[1, 17:20], new[1])
            assert int(cache.count_nonzero()) <= new.numel()


def test_a_graph_of_calls_that_write() -> None:
    q, cache, new = random(2, 1, 8, 64), random(2, 4096, 2, 64), random(2, 1, 2, 64)
    lengths = torch.tensor([100, 3000], device="cuda", dtype=torch.int32)
    out = torch.empty_like(q)

    def step() -> None:
        ops.append_kv(cache, cache.clone(), new, new, lengths)
        ops.attention.out(q, cache, cache, None, None, None, None, None, lengths + 1, out=out)

    with torch.inference_mode():
        known(step)
        expected = out.clone()
        graph = torch.cuda.CUDAGraph()
        before = native.counts().by_python
        with torch.cuda.graph(graph):
            step()
        assert native.counts().by_python == before
        for _ in range(100):
            out.zero_()
            graph.replay()
            assert torch.equal(out, expected)


@pytest.mark.parametrize("size", SIZES[1:3])
def test_calls_are_on_the_current_stream(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random(m, k), random(k, n)
    streams = [torch.cuda.Stream() for _ in range(3)]
    with torch.inference_mode():
        known(lambda: ops.gemm(a, b))
        torch.cuda.synchronize()
        for turn in range(30):
            stream = streams[turn % 3]
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000)  # what is read is written late, on the same stream
                late = torch.zeros_like(a).copy_(a)
                result = ops.gemm(late, b)
                expected = late.float() @ b.float()
            stream.synchronize()
            close(result, expected)
        assert alone(lambda: ops.gemm(a, b))


@pytest.mark.parametrize("size", SIZES[:3])
def test_a_graph_replays_the_same_bits(size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = random(m, k), random(k, n)
    with torch.inference_mode():
        expected = known(lambda: ops.gemm(a, b)).clone()
        graph = torch.cuda.CUDAGraph()
        before = native.counts().by_python
        with torch.cuda.graph(graph):
            result = ops.gemm(a, b)
        assert native.counts().by_python == before
        for _ in range(100):
            result.zero_()
            graph.replay()
            assert torch.equal(result, expected)
        a.copy_(random(m, k))
        graph.replay()
        torch.cuda.synchronize()
        close(result, a.float() @ b.float())


def test_memory_is_pytorchs_and_comes_back() -> None:
    a, b = random(64, 16384), random(16384, 256)
    with torch.inference_mode():
        known(lambda: ops.gemm(a, b))
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        for _ in range(200):
            ops.gemm(a, b)
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == before


def test_odd_addresses_and_other_strides_are_other_calls() -> None:
    wide, b = random(64, 300), random(256, 128)
    with torch.inference_mode():
        for _ in range(3):
            for offset in range(40):
                a = wide[:, offset : offset + 256]
                close(ops.gemm(a, b), a.float() @ b.float())
            turned = random(128, 256)
            close(ops.gemm(wide[:, :256], turned.mT), wide[:, :256].float() @ turned.mT.float())


def test_threads_on_streams_of_their_own() -> None:
    sizes = [(64, 256, 16384), (1, 4096, 4096), (32, 128, 128)]
    wrong: list[str] = []

    def calls(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            for turn in range(20):
                m, n, k = sizes[(seed + turn) % 3]
                a, b = random(m, k), random(k, n)
                result, exact = ops.gemm(a, b).float(), a.float() @ b.float()
                stream.synchronize()
                if float((result - exact).abs().max()) > 0.06 * float(exact.abs().max()):
                    wrong.append(f"{seed} {turn}")

    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_compiled_graph_calls_the_library() -> None:
    a, b = random(64, 128), random(128, 64)

    def model(a: Any, b: Any) -> Any:
        return tw.gemm(a * 2, b, epilogue="relu") + 1

    compiled = torch.compile(model, fullgraph=True)
    with torch.inference_mode():
        close(known(lambda: compiled(a, b)), ((a * 2).float() @ b.float()).relu() + 1)
