"""`torch.ops.tilewright.*`: PyTorch's own checks of schemas, fakes and gradients; results beside plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch", exc_type=ImportError)

DTYPES = ("float32", "bfloat16", "float16")
Case = tuple[str, tuple[Any, ...], dict[str, Any]]


class Maker:
    """Tensors of one case: type, memory, and whether gradients are asked for."""

    def __init__(self, dtype: str, memory: str, grad: bool) -> None:
        self.dtype, self.memory, self.grad = getattr(torch, dtype), memory, grad
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int) -> Any:
        made = torch.randn(*shape, generator=self.generator).to(self.dtype)
        if self.memory == "transposed" and len(shape) > 1:
            made = made.transpose(-2, -1).contiguous().transpose(-2, -1)
        if self.memory == "channels_last" and len(shape) == 4:
            made = made.contiguous(memory_format=torch.channels_last)
        return made.requires_grad_(self.grad)

    def rows(self, *shape: int) -> Any:
        """Rows whose elements lie one after another: what is written is not copied, and not all kernels take others."""
        return torch.randn(*shape, generator=self.generator).to(self.dtype)


def gemm(make: Maker) -> Case:
    return "gemm", (make(4, 6), make(6, 5)), {}


def gemm_fused(make: Maker) -> Case:
    return "gemm", (make(3, 4, 6), make(6, 5), None, make(5)), {"epilogue": "gelu", "alpha": 0.5}


def gemm_two_added(make: Maker) -> Case:
    return "gemm", (make(4, 6), make(6, 5), None, make(5), make(4, 5)), {"epilogue": "relu"}


def gemm_multiplied(make: Maker) -> Case:
    return "gemm", (make(4, 6), make(6, 5), None, make(4, 5), make(5)), {"epilogue": "multiply"}


def gemm_with_c(make: Maker) -> Case:
    return "gemm", (make(4, 6), make(6, 5), make(4, 5)), {"beta": 0.5}


def matmul_of_a_vector(make: Maker) -> Case:
    return "matmul", (make(3, 4, 6), make(6)), {}


def matmul_of_batches(make: Maker) -> Case:
    return "matmul", (make(2, 1, 4, 6), make(3, 6, 5)), {}


GEOMETRY: dict[str, Any] = {"padding": [1, 0], "stride": [2, 1], "layout": "nchw"}


def conv(make: Maker) -> Case:
    return "conv", (make(2, 4, 7, 9), make(6, 4, 3, 3), make(6)), {**GEOMETRY, "epilogue": "silu"}


def conv_in_groups(make: Maker) -> Case:
    return "conv", (make(2, 7, 9, 4), make(6, 3, 3, 2)), {"groups": 2, "padding": [1, 0, 2, 1]}


def conv_of_rows(make: Maker) -> Case:
    return "conv", (make(2, 4, 9), make(6, 4, 3), make(6)), {"layout": "nchw", "epilogue": "relu", "dilation": [2]}


def conv_backward_data(make: Maker) -> Case:
    return "conv_backward_data", (make(2, 6, 4, 7), make(6, 4, 3, 3), [2, 4, 7, 9]), GEOMETRY


def conv_backward_weight(make: Maker) -> Case:
    return "conv_backward_weight", (make(2, 4, 7, 9), make(2, 6, 4, 7), [6, 4, 3, 3]), GEOMETRY


def gated(make: Maker) -> Case:
    return "gated_gemm", (make(4, 6), make(6, 5), make(6, 5)), {}


def gated_batches(make: Maker) -> Case:
    return "gated_gemm", (make(3, 4, 6), make(6, 5), make(6, 5)), {"activation": "gelu"}


def gemm_with_a_gate(make: Maker) -> Case:
    return "gemm", (make(4, 6), make(6, 5), None, make(4, 5)), {"epilogue": "silu_and_mul"}


DIFFERENTIABLE = (
    gated, gated_batches, gemm_with_a_gate, gemm, gemm_fused,
    gemm_two_added, gemm_multiplied, gemm_with_c, matmul_of_a_vector, matmul_of_batches, conv,
    conv_in_groups, conv_of_rows, conv_backward_data, conv_backward_weight,
)  # fmt: skip


def attention(make: Maker) -> Case:
    return "attention", (make(2, 5, 4, 16), make(2, 7, 2, 16), make(2, 7, 2, 8)), {"causal": "top_left"}


def attention_lse(make: Maker) -> Case:
    mask = torch.ones(5, 7, dtype=torch.bool).tril()
    operands = (make(2, 4, 5, 16), make(2, 2, 7, 16), make(2, 2, 7, 8), mask)
    return "attention_lse", operands, {"layout": "bhsd", "scale": 0.3}


def attention_backward(make: Maker) -> Case:
    """out and lse may be any of their shapes: the gradients are defined by what is given."""
    out, lse = make(2, 5, 4, 8), torch.full((2, 4, 5), 3.0)
    operands = (make(2, 5, 4, 8), None, out, lse, make(2, 5, 4, 16), make(2, 7, 2, 16), make(2, 7, 2, 8))
    return "attention_backward", operands, {"causal": "top_left"}


def attention_of_packed_rows(make: Maker) -> Case:
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    tables = (*(None,) * 6, starts, starts)
    operands = (make(8, 4, 16), make(8, 2, 16), make(8, 2, 8), *tables)
    return "attention_dynamic", operands, {"max_seqlen_q": 5, "max_seqlen_k": 5, "causal": "top_left"}


def attention_lse_of_packed_rows(make: Maker) -> Case:
    _, operands, options = attention_of_packed_rows(make)
    return "attention_lse_dynamic", operands, options


def gemm_fused_out(make: Maker) -> Case:
    _, operands, options = gemm_fused(make)
    return "gemm.out", operands, {**options, "out": make(3, 4, 5)}


def matmul_out(make: Maker) -> Case:
    return "matmul.out", (make(2, 1, 4, 6), make(3, 6, 5)), {"out": make.rows(2, 3, 4, 5)}


def conv_backward_data_out(make: Maker) -> Case:
    _, operands, options = conv_backward_data(make)
    return "conv_backward_data.out", operands, {**options, "out": make(2, 4, 7, 9)}


def conv_backward_weight_out(make: Maker) -> Case:
    _, operands, options = conv_backward_weight(make)
    return "conv_backward_weight.out", operands, {**options, "out": make(6, 4, 3, 3)}


def append_kv_q_out(make: Maker) -> Case:
    _, operands, options = append_kv_q(make)
    return "append_kv_q.out", operands, {**options, "q_out": make.rows(2, 1, 4, 16)}


def gemm_out(make: Maker) -> Case:
    return "gemm.out", (make(4, 6), make(6, 5)), {"out": make(4, 5)}


def gated_out(make: Maker) -> Case:
    return "gated_gemm.out", (make(4, 6), make(6, 5), make(6, 5)), {"out": make(4, 5)}


def conv_out(make: Maker) -> Case:
    return "conv.out", (make(2, 4, 7, 9), make(6, 4, 3, 3)), {"layout": "nchw", "out": make(2, 6, 5, 7)}


def attention_out(make: Maker) -> Case:
    return "attention.out", (make(2, 5, 4, 16), make(2, 7, 2, 16), make(2, 7, 2, 8)), {"out": make.rows(2, 5, 4, 8)}


def append_kv(make: Maker) -> Case:
    lengths = torch.tensor([1, 3], dtype=torch.int32)
    return (
        "append_kv",
        (make.rows(2, 9, 2, 16), make.rows(2, 9, 2, 8), make(2, 1, 2, 16), make(2, 1, 2, 8), lengths),
        {},
    )


def append_kv_q(make: Maker) -> Case:
    lengths = torch.tensor([1, 3], dtype=torch.int32)
    angles = torch.rand(9, 8)
    new = (make(2, 1, 2, 16), make(2, 1, 2, 8), make(2, 1, 4, 16))
    tables = (lengths, None, None, angles.cos(), angles.sin())
    return "append_kv_q", (make.rows(2, 9, 2, 16), make.rows(2, 9, 2, 8), *new, *tables), {"rotary": "half"}


ATTENTION = (
    attention, attention_lse, attention_of_packed_rows, attention_lse_of_packed_rows, attention_backward,
)  # fmt: skip
WRITING = (
    gemm_out, gemm_fused_out, gated_out, matmul_out, conv_out, conv_backward_data_out, conv_backward_weight_out,
    attention_out, append_kv, append_kv_q, append_kv_q_out,
)  # fmt: skip


def check(case: Callable[[Maker], Case], dtype: str, memory: str, grad: bool) -> None:
    from tilewright.torch.library import op

    name, operands, options = case(Maker(dtype, memory, grad))
    told = torch.library.opcheck(op(name), operands, options, raise_exception=False)
    assert set(told.values()) == {"SUCCESS"}, told


@pytest.mark.sampled(12)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("memory", ["dense", "transposed", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=lambda one: one.__name__)
def test_pytorch_finds_nothing_wrong(case: Callable[[Maker], Case], dtype: str, memory: str, grad: bool) -> None:
    check(case, dtype, memory, grad)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("memory", ["dense", "transposed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ATTENTION, ids=lambda one: one.__name__)
def test_pytorch_finds_nothing_wrong_with_attention(
    case: Callable[[Maker], Case], dtype: str, memory: str, grad: bool
) -> None:
    check(case, dtype, memory, grad and case is not attention_backward)  # which has no gradient of its own


@pytest.mark.sampled(7)
@pytest.mark.parametrize("memory", ["dense", "transposed", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", WRITING, ids=lambda one: one.__name__)
def test_pytorch_finds_nothing_wrong_where_something_is_written(
    case: Callable[[Maker], Case], dtype: str, memory: str
) -> None:
    check(case, dtype, memory, False)


def test_every_op_is_checked() -> None:
    from tilewright.torch.library import SCHEMAS

    cases = (*DIFFERENTIABLE, *ATTENTION, *WRITING)
    assert set(SCHEMAS) == {case(Maker("float32", "dense", False))[0] for case in cases}


def test_ops_compute_what_plain_calls_do() -> None:
    make = Maker("float32", "dense", False)
    a, b, bias = make(4, 6), make(6, 5), make(5)
    ops = torch.ops.tilewright
    fused = ops.gemm(a, b, None, bias, epilogue="relu")
    assert torch.equal(fused, tw.gemm(a, b, bias=bias, epilogue="relu"))
    assert torch.equal(ops.matmul(a[0], b), tw.matmul(a[0], b))
    out = torch.empty(4, 5)
    assert ops.gemm.out(a, b, out=out) is None
    assert torch.equal(out, tw.gemm(a, b))
    q, k = make(2, 5, 4, 16), make(2, 7, 2, 16)
    o, lse = ops.attention_lse(q, k, k, causal="bottom_right", scale=0.0, window_left=3)
    expected, sums = tw.attention(q, k, k, causal="bottom_right", scale=0.0, window=(3, None), return_lse=True)
    assert torch.equal(o, expected)
    assert torch.equal(lse, sums)


def test_ops_copy_what_kernels_cannot_read() -> None:
    """As PyTorch's own do; a plain call asks first."""
    a, b = torch.randn(4, 12)[:, ::2], torch.ones(1, 1).expand(6, 5)
    torch.testing.assert_close(torch.ops.tilewright.gemm(a, b), a @ b)
    with pytest.raises(tw.TilewrightError, match='copy="allow"'):
        tw.gemm(a, b)
    with pytest.raises(tw.TilewrightError, match='copy="allow"'):
        tw.gemm(a.detach().requires_grad_(), b)


def test_out_raises_the_version_and_inference_mode_is_followed() -> None:
    a, b, out = torch.ones(4, 6), torch.ones(6, 5), torch.zeros(4, 5)
    before = out._version
    torch.ops.tilewright.gemm.out(a, b, out=out)
    assert out._version > before
    with torch.inference_mode():
        made = torch.ops.tilewright.gemm(a, b)
        assert made.is_inference()
        torch.ops.tilewright.gemm.out(a, b, out=made)


def test_autocast_converts_factors_alone() -> None:
    make = Maker("float32", "dense", False)
    a, b, q = make(4, 6), make(6, 5), make(1, 5, 2, 16)
    ops = torch.ops.tilewright
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ops.gemm(a, b).dtype == torch.bfloat16
        assert ops.gemm(a, b, out_dtype=torch.float32).dtype == torch.float32
        o, lse = ops.attention_lse(q, q, q, None, make(5, 5))
        assert (o.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
        w = make(6, 5).requires_grad_()
        y = tw.gemm(a, w)
        assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert w.grad.dtype == torch.float32
    torch.testing.assert_close(w.grad, a.sum(0)[:, None].expand(6, 5), rtol=2e-2, atol=2e-2)


def test_a_result_keeps_channels_last() -> None:
    make = Maker("float32", "channels_last", True)
    x, w = make(2, 4, 7, 9), make(6, 4, 3, 3)
    y = tw.conv(x, w, layout="nchw", padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (dx,) = torch.autograd.grad(y.square().sum(), x)
    assert dx.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("with_residual", [False, True])  # a usual call, and one that takes the general way
def test_deterministic_mode_asks_for_deterministic_gradients(
    monkeypatch: pytest.MonkeyPatch, with_residual: bool
) -> None:
    from tilewright.api import conv as conv_api

    asked: list[bool] = []
    for name in ("conv_backward_data", "conv_backward_weight"):
        real = getattr(conv_api, name)

        def watched(*operands: Any, real: Any = real, **options: Any) -> Any:
            asked.append(options.get("deterministic", False))
            return real(*operands, **options)

        monkeypatch.setattr(conv_api, name, watched)
    make = Maker("float32", "dense", True)
    x, w = make(2, 4, 7, 9), make(6, 4, 3, 3)
    more = {"residual": torch.zeros(2, 6, 5, 7)} if with_residual else {}
    tw.conv(x, w, layout="nchw", **more).sum().backward()
    torch.use_deterministic_algorithms(True)
    try:
        tw.conv(x, w, layout="nchw", **more).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert asked == [False, False, True, True]
