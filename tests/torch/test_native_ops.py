"""The library that serves the ops: calls made before are launched without Python, and never by the plan of another."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright as tw
from tests.built import why_no_compiler

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)

from tilewright.errors import ProblemError  # noqa: E402
from tilewright.torch import native  # noqa: E402

pytestmark = pytest.mark.skipif(bool(why_no_compiler()), reason=f"needs a C++ compiler: {why_no_compiler()}")
ops = torch.ops.tilewright


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing is remembered, and what was turned is turned back."""
    library = native.library()
    assert library is not None, native.registration()
    library.forget()
    yield
    library.keep_at_most(8192)


def made_without_python(call: Callable[[], Any]) -> bool:
    """Whether a call was made by the library alone."""
    before = native.counts()
    call()
    after = native.counts()
    assert after.alone + after.by_python > before.alone + before.by_python
    return after.by_python == before.by_python


def often(call: Callable[[], Any]) -> Any:
    """The result of a call that the library knows: planning may change what plans depend on, so it is made again."""
    for _ in range(4):
        if made_without_python(call):
            break
    assert made_without_python(call)
    return call()


def test_the_library_serves_the_ops() -> None:
    assert tilewright_torch().registration() == "c++"


def tilewright_torch() -> Any:
    import tilewright.torch

    return tilewright.torch


CALLS: dict[str, Callable[[], tuple[Any, Any, dict[str, Any]]]] = {
    "gemm": lambda: (ops.gemm, (torch.randn(5, 16), torch.randn(16, 8)), {}),
    "gemm fused": lambda: (
        ops.gemm, (torch.randn(3, 5, 16), torch.randn(8, 16).mT, None, torch.randn(8)),
        {"epilogue": "relu", "alpha": 0.5},
    ),
    "gemm with c": lambda: (ops.gemm, (torch.randn(5, 16), torch.randn(16, 8), torch.randn(5, 8)), {"beta": 0.25}),
    "gated": lambda: (ops.gated_gemm, (torch.randn(5, 16), torch.randn(16, 8), torch.randn(16, 8)), {}),
    "matmul": lambda: (ops.matmul, (torch.randn(2, 1, 4, 6), torch.randn(3, 6, 5)), {}),
    "vector": lambda: (ops.matmul, (torch.randn(3, 4, 6), torch.randn(6)), {"out_dtype": torch.float32}),
    "conv": lambda: (
        ops.conv, (torch.randn(2, 4, 7, 9), torch.randn(6, 4, 3, 3), torch.randn(6)),
        {"padding": [1, 0], "stride": [2, 1], "layout": "nchw", "epilogue": "silu"},
    ),
    "conv data": lambda: (
        ops.conv_backward_data, (torch.randn(2, 7, 9, 6), torch.randn(6, 3, 3, 4), [2, 7, 9, 4]), {"padding": [1]}
    ),
    "conv weight": lambda: (
        ops.conv_backward_weight, (torch.randn(2, 7, 9, 4), torch.randn(2, 7, 9, 6), [6, 3, 3, 4]), {"padding": [1]}
    ),
    "attention": lambda: (
        ops.attention, (torch.randn(2, 9, 4, 16), torch.randn(2, 11, 2, 16), torch.randn(2, 11, 2, 16)),
        {"causal": "bottom_right", "scale": 0.3},
    ),
    "attention with lse": lambda: (
        ops.attention_lse, (torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)),
        {"layout": "bhsd"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_made_before_needs_no_python(name: str) -> None:
    torch.manual_seed(7)
    op, operands, options = CALLS[name]()
    with torch.inference_mode():
        first = op(*operands, **options)
        again = often(lambda: op(*operands, **options))
    pairs = zip(first, again, strict=True) if isinstance(first, tuple) else [(first, again)]
    for expected, result in pairs:
        assert torch.equal(expected, result)
        assert (result.shape, result.stride(), result.dtype) == (expected.shape, expected.stride(), expected.dtype)
        assert result.data_ptr() != expected.data_ptr()


def test_no_grad_and_plain_tensors_need_no_python_either() -> None:
    a, b, q = torch.randn(5, 16), torch.randn(16, 8), torch.randn(2, 9, 4, 16)
    expected = tw.attention(q, q, q, causal=True)
    for mode in (torch.no_grad, torch.enable_grad):
        with mode():
            assert torch.allclose(often(lambda: ops.gemm(a, b)), a @ b, atol=1e-4)
            assert torch.equal(often(lambda: ops.attention(q, q, q, causal="top_left")), expected)
            assert torch.equal(often(lambda: ops.attention_lse(q, q, q, causal="top_left"))[0], expected)


WRITING: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any], str, tuple[int, ...]]]] = {
    "gemm": lambda: (*CALLS["gemm"](), "out", (5, 8)),
    "gemm fused": lambda: (*CALLS["gemm fused"](), "out", (3, 5, 8)),
    "gated": lambda: (*CALLS["gated"](), "out", (5, 8)),
    "matmul": lambda: (*CALLS["matmul"](), "out", (2, 3, 4, 5)),
    "conv": lambda: (*CALLS["conv"](), "out", (2, 6, 4, 7)),
    "conv data": lambda: (*CALLS["conv data"](), "out", (2, 7, 9, 4)),
    "conv weight": lambda: (*CALLS["conv weight"](), "out", (6, 3, 3, 4)),
    "attention": lambda: (*CALLS["attention"](), "out", (2, 9, 4, 16)),
}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("name", WRITING)
def test_a_call_that_writes_needs_no_python_either(name: str, mode: Any) -> None:
    torch.manual_seed(9)
    op, operands, options, overload, shape = WRITING[name]()
    # Of a view, autograd knows something: whether it requires grad is asked in Python.
    operands = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in operands)
    expected, out = op(*operands, **options), torch.zeros(shape)
    call = getattr(op, overload)
    with mode():
        often(lambda: call(*operands, out=out, **options))
        for _ in range(2):
            out.fill_(7.0)
            before = out._version
            assert made_without_python(lambda: call(*operands, out=out, **options))
            assert torch.equal(out, expected)
            assert out._version == before + 1


def rotated() -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
    """Caches, what is appended to them and rotated, and the options."""
    torch.manual_seed(13)
    caches = torch.zeros(2, 9, 2, 16), torch.zeros(2, 9, 2, 16)
    angles, lengths = torch.rand(9, 8), torch.tensor([1, 4], dtype=torch.int32)
    new = torch.randn(2, 3, 2, 16), torch.randn(2, 3, 2, 16), torch.randn(2, 3, 4, 16)
    return caches, (*new, lengths, None, None, angles.cos(), angles.sin()), {"rotary": "half"}


def test_appending_to_caches_needs_no_python() -> None:
    caches, (k, v, q, lengths, *tables), options = rotated()
    rotary = (tables[2], tables[3], "half")
    copies = [cache.clone() for cache in caches]
    right = tw.append_kv(copies[0], copies[1], k, v, cache_seqlens=lengths, q=q, rotary=rotary)
    q_out = torch.zeros_like(q)
    often(lambda: ops.append_kv(*caches, k, v, lengths))  # autograd knows of the lengths, and they require no grad
    with torch.no_grad():
        often(lambda: ops.append_kv(*caches, k, v, lengths))
        assert torch.equal(caches[1], right.cache_v)
        caches[0].zero_()
        assert torch.equal(often(lambda: ops.append_kv_q(*caches, k, v, q, lengths, *tables, **options)), right.q)
        caches[0].zero_()
        versions = [tensor._version for tensor in (*caches, q_out)]
        often(lambda: ops.append_kv_q.out(*caches, k, v, q, lengths, *tables, **options, q_out=q_out))
        assert all(tensor._version > before for tensor, before in zip((*caches, q_out), versions, strict=True))
    for made, expected in zip((*caches, q_out), right, strict=True):
        assert torch.equal(made, expected)
    with pytest.raises(ProblemError, match="cache_seqlens\\[1\\] = 8"):
        ops.append_kv(*caches, k, v, torch.tensor([1, 8], dtype=torch.int32))


def test_what_is_written_is_looked_at_in_every_call() -> None:
    """Where it lies, whether autograd must know, and in which mode it was made: of a call whose like is remembered."""
    a, b, square = torch.randn(8, 8), torch.randn(8, 8), torch.zeros(8, 8)
    with torch.no_grad():
        often(lambda: ops.gemm.out(a, b, out=square))
    often(lambda: ops.gemm.out(a, b, out=square))
    for _ in range(2):
        with pytest.raises(ProblemError, match="out"):
            ops.gemm.out(a, b, out=a)
        wanted = a.clone().requires_grad_()
        with pytest.raises(ProblemError) as caught:
            ops.gemm.out(wanted, b, out=square)
        assert caught.value.rule == "array-grad"
        with torch.inference_mode():
            made = torch.zeros(8, 8)
            often(lambda: ops.gemm.out(a, b, out=made))  # noqa: B023
        with pytest.raises(ProblemError) as caught:
            ops.gemm.out(a, b, out=made)
        assert caught.value.rule == "torch-inference"
    saved = torch.ones(8, 8, requires_grad=True)
    product = saved * square
    ops.gemm.out(a, b, out=square)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_c_may_be_what_is_written() -> None:
    a, b, c = torch.randn(5, 16), torch.randn(16, 8), torch.randn(5, 8)
    expected = a @ b + 0.5 * c
    with torch.no_grad():
        often(lambda: ops.gemm.out(a, b, c, beta=0.0, out=c))
        c.copy_((expected - a @ b) / 0.5)
        once = c.clone()
        for _ in range(3):
            c.copy_(once)
            ops.gemm.out(a, b, c, beta=0.5, out=c)
            assert torch.allclose(c, expected, atol=1e-4)


def test_a_gradient_is_recorded_beside_calls_that_are_remembered() -> None:
    a, b = torch.randn(5, 16), torch.randn(16, 8)
    often(lambda: ops.gemm(a, b))
    wanted = a.clone().requires_grad_()
    result = ops.gemm(wanted, b)
    result.sum().backward()
    assert torch.allclose(wanted.grad, b.sum(1).expand(5, 16), atol=1e-4)
    view = a.clone().requires_grad_()[:]
    assert ops.gemm(view, b).requires_grad
    assert not ops.gemm(a, b).requires_grad


def views(make: Callable[..., Any]) -> Iterator[Any]:
    """The same 12x16 values with other strides, offsets and element types."""
    values = make(12, 16)
    yield values
    yield values.mT.contiguous().mT
    wide = torch.zeros(12, 40, dtype=values.dtype)
    for offset in (0, 1, 2, 3, 4, 8):
        place = wide[:, offset : offset + 16]
        place.copy_(values)
        yield place
    yield values.flip(0).contiguous().flip(0)
    yield torch.stack([values, values])[1]
    yield values.double().float().to(torch.bfloat16)
    yield values.to(torch.float16)


def test_other_strides_offsets_and_types_are_other_calls() -> None:
    torch.manual_seed(3)
    with torch.inference_mode():
        for b in (torch.randn(16, 8), torch.randn(8, 16).T):
            for _ in range(2):
                for a in views(torch.randn):
                    other = b.to(a.dtype)
                    for _ in range(2):
                        expected = (a.double() @ other.double()).to(a.dtype)
                        torch.testing.assert_close(ops.gemm(a, other), expected, atol=5e-2, rtol=2e-2)


def test_an_operand_given_twice_is_not_taken_for_both_later() -> None:
    torch.manual_seed(5)
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    q, k, v = (torch.randn(1, 6, 2, 16) for _ in range(3))
    with torch.inference_mode():
        often(lambda: ops.gemm(a, a))
        assert made_without_python(lambda: ops.gemm(a, b))
        assert torch.allclose(ops.gemm(a, b), a @ b, atol=1e-4)
        assert torch.allclose(ops.gemm(b, a), b @ a, atol=1e-4)
        often(lambda: ops.attention(q, q, q))
        assert torch.equal(ops.attention(q, k, v), tw.attention(q, k, v))
    with torch.no_grad():
        often(lambda: ops.gemm(b, b))
        assert torch.allclose(ops.gemm(a, b), a @ b, atol=1e-4)


def test_options_are_a_part_of_what_a_call_is_known_by() -> None:
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.inference_mode():
        for _ in range(3):
            for alpha in (1.0, -1.0, 0.5):
                for epilogue in ("passthrough", "relu"):
                    expected = alpha * (a @ b)
                    expected = expected.relu() if epilogue == "relu" else expected
                    assert torch.allclose(ops.gemm(a, b, alpha=alpha, epilogue=epilogue), expected, atol=1e-4)
            assert ops.gemm(a, b, out_dtype=torch.float32).dtype is torch.float32


def test_settings_of_a_scope_never_meet_a_plan_of_the_process() -> None:
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.inference_mode():
        often(lambda: ops.gemm(a, b))
        with tw.settings.override(threads=1):
            assert not made_without_python(lambda: ops.gemm(a, b))
        assert made_without_python(lambda: ops.gemm(a, b))
        context: Any = None
        with tw.settings.override(threads=1):
            import contextvars

            context = contextvars.copy_context()  # as a task that was started there has it
        assert not context.run(made_without_python, lambda: ops.gemm(a, b))


def test_other_settings_of_the_process_make_calls_new() -> None:
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    before = tw.settings.current().threads
    try:
        with torch.inference_mode():
            often(lambda: ops.gemm(a, b))
            tw.settings.configure(threads=1)
            assert native.counts().known == 0
            often(lambda: ops.gemm(a, b))
    finally:
        tw.settings.configure(threads=before)


def test_a_new_measurement_and_new_plans_make_calls_new() -> None:
    from tilewright.runtime import fast_path

    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.inference_mode():
        often(lambda: ops.gemm(a, b))
        fast_path.forget()
        assert not made_without_python(lambda: ops.gemm(a, b))


def test_calls_least_recently_used_are_forgotten() -> None:
    library = native.library()
    assert library is not None
    b = torch.randn(8, 4)
    with torch.inference_mode():
        often(lambda: ops.gemm(torch.ones(1, 8), b))
        library.keep_at_most(4)
        for rows in [*range(1, 12), *range(1, 12)]:
            a = torch.randn(rows, 8)
            assert torch.allclose(ops.gemm(a, b), a @ b, atol=1e-4)
            assert native.counts().known <= 4
        assert made_without_python(lambda: ops.gemm(torch.ones(11, 8), b))


def test_many_threads_call_while_others_forget() -> None:
    library = native.library()
    assert library is not None
    wrong: list[str] = []

    def calls(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.inference_mode():
            for turn in range(60):
                a = torch.randn(1 + (seed + turn) % 5, 8, generator=generator)
                b = torch.randn(8, 4, generator=generator)
                if not torch.allclose(ops.gemm(a, b), a @ b, atol=1e-4):
                    wrong.append(f"{seed} {turn}")
                if turn % 10 == seed:
                    library.forget()

    threads = [threading.Thread(target=calls, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_an_error_is_the_one_that_python_raised(mode: Any) -> None:
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with mode():
        often(lambda: ops.gemm(a, b))
        for _ in range(2):
            with pytest.raises(ProblemError) as caught:
                ops.gemm(a, torch.randn(3, 4))
            assert caught.value.rule == "shape-k"
            assert "inner sizes 8 and 3 differ" in str(caught.value)
        gone = a.clone()
        gone.untyped_storage().resize_(0)
        with pytest.raises(ProblemError, match="storage"):
            ops.gemm(gone, b)
        assert torch.allclose(ops.gemm(a, b), a @ b, atol=1e-4)


def test_a_forward_mode_tangent_is_not_dropped_silently() -> None:
    forward = torch.autograd.forward_ad
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.no_grad():
        often(lambda: ops.gemm(a, b))
        with forward.dual_level():
            dual = forward.make_dual(a, torch.ones_like(a))
            with pytest.raises(ProblemError, match="tangent"):
                ops.gemm(dual, b)


def test_autocast_and_lazy_negation_are_seen() -> None:
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.no_grad():
        often(lambda: ops.gemm(a, b))
        with torch.autocast("cpu", torch.bfloat16):
            assert ops.gemm(a, b).dtype is torch.bfloat16
        assert torch.allclose(ops.gemm(torch._neg_view(a), b), -(a @ b), atol=1e-4)


def test_modes_and_traces_see_calls_that_are_remembered() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils.flop_counter import FlopCounterMode

    a, b, q, out = torch.randn(4, 8), torch.randn(8, 4), torch.randn(1, 6, 2, 16), torch.zeros(4, 4)

    def writes(a: Any) -> Any:
        ops.gemm.out(a, b, out=out)
        return out

    calls: list[tuple[Any, Any, Any, Any]] = [
        (ops.gemm.default, lambda a: ops.gemm(a, b), a, a @ b),
        (ops.attention.default, lambda q: ops.attention(q, q, q), q, tw.attention(q, q, q)),
        (ops.gemm.out, writes, a, a @ b),
    ]
    for op, call, operand, expected in calls:
        with torch.no_grad():
            often(lambda: call(operand))  # noqa: B023
            with FlopCounterMode(display=False):
                assert torch.allclose(call(operand), expected, atol=1e-4)
            for mode in ("real", "fake", "symbolic"):
                graph = make_fx(call, tracing_mode=mode, _allow_non_fake_inputs=True)(operand)
                assert [node.target for node in graph.graph.nodes].count(op) == 1


def test_a_subclass_keeps_its_behaviour() -> None:
    class Logged(torch.Tensor):  # type: ignore[misc]
        pass

    a, b = torch.randn(4, 8), torch.randn(8, 4)
    with torch.no_grad():
        often(lambda: ops.gemm(a, b))
        assert torch.allclose(ops.gemm(a.as_subclass(Logged), b).as_subclass(torch.Tensor), a @ b, atol=1e-4)


def test_what_python_must_make_is_pythons_every_time() -> None:
    q = torch.randn(1, 4, 2, 8)
    with torch.inference_mode():
        out, lse = ops.attention_lse(q, q, q)
        for _ in range(3):
            assert not made_without_python(lambda: ops.attention_backward(out, None, out, lse, q, q, q))


def test_operands_that_need_a_copy_are_pythons() -> None:
    a, b = torch.randn(4, 32)[:, ::4], torch.randn(8, 4)
    with torch.inference_mode():
        for _ in range(3):
            assert torch.allclose(ops.gemm(a, b), a @ b, atol=1e-4)
            assert not made_without_python(lambda: ops.gemm(a, b))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_compiled_graph_calls_the_library() -> None:
    torch._dynamo.reset()
    a, b = torch.randn(5, 16), torch.randn(16, 8)

    def model(a: Any, b: Any) -> Any:
        return tw.matmul(tw.gemm(a, b, epilogue="relu"), b.T) + 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        for rows in (5, 6, 7):
            a = torch.randn(rows, 16)
            assert torch.allclose(compiled(a, b), (a @ b).relu() @ b.T + 1, atol=1e-3)
        often(lambda: compiled(a, b))


FALLBACK = """
import tilewright.runtime.torch_ops as torch_ops
from tilewright.errors import ToolchainError
def build():
    raise ToolchainError("no compiler today", rule="no-compiler")
torch_ops.build = build
import torch, tilewright.torch
print(tilewright.torch.registration())
a, b = torch.randn(4, 8), torch.randn(8, 4)
assert torch.allclose(torch.ops.tilewright.gemm(a, b), a @ b, atol=1e-4)
print("right")
"""


def test_python_serves_the_ops_where_there_is_no_library() -> None:
    ran = subprocess.run([sys.executable, "-c", FALLBACK], capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr[-2000:]
    assert ran.stdout.splitlines() == ["python: [no-compiler] no compiler today", "right"]
