"""What PyTorch does around a call: devices, gradients, transforms, tracing, storage.  Right, or one clear error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import DeviceError, ProblemError, TilewrightError

torch: Any = pytest.importorskip("torch")


def ones(*shape: int, **more: Any) -> Any:
    return torch.ones(*shape, **more)


@pytest.fixture(autouse=True)
def known() -> None:
    """Calls of these shapes were made before, so that a warm path is met as well as a cold one."""
    a, b, c = ones(4, 6), ones(6, 5), ones(4, 5)
    for _ in range(2):
        tw.gemm(a, b)
        tw.gemm(a, b, out=torch.empty(4, 5))
        tw.gemm(a, b, c)
        tw.gemm(a, b, ds=(c,), epilogue="relu")
        tw.matmul(a, b)


def refused(call: Callable[[], object], rule: str, *, kind: type[TilewrightError] = ProblemError) -> TilewrightError:
    for _ in range(2):
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.rule == rule, str(caught.value)
        assert caught.value.remedy
    return caught.value


# -- devices -----------------------------------------------------------------------------------------------------------


def test_results_are_made_where_the_operands_are() -> None:
    a, b = ones(4, 6), ones(6, 5)
    for m in (4, 3):  # a known call and a new one
        with torch.device("meta"):
            result = tw.gemm(a[:m], b)
        assert result.device.type == "cpu"
        assert torch.equal(result, a[:m] @ b)
    torch.set_default_device("meta")
    try:
        assert torch.equal(tw.gemm(a, b).cpu(), torch.full((4, 5), 6.0, device="cpu"))
    finally:
        torch.set_default_device(None)


def test_tensors_of_another_device_are_told() -> None:
    refused(lambda: tw.gemm(ones(4, 6, device="meta"), ones(6, 5), target="cpu"), "array-device", kind=DeviceError)
    refused(lambda: tw.gemm(ones(4, 6), ones(6, 5, device="meta")), "array-device", kind=DeviceError)


# -- storage -----------------------------------------------------------------------------------------------------------


def gone(*shape: int) -> Any:
    tensor = ones(*shape)
    tensor.untyped_storage().resize_(0)
    return tensor


def shrunk(*shape: int) -> Any:
    tensor = ones(*shape)
    tensor.untyped_storage().resize_(16)
    return tensor


def shifted(*shape: int) -> Any:
    """A view of the end of a storage whose last byte is gone."""
    whole = ones(2 * int(np.prod(shape)))
    tensor = whole[whole.numel() // 2 :].reshape(shape)
    whole.untyped_storage().resize_(whole.numel() * 4 - 1)
    return tensor


@pytest.mark.parametrize(
    "made",
    [gone, shrunk, shifted, lambda *shape: torch._efficientzerotensor(shape)],
    ids=["gone", "shrunk", "end", "zero"],
)
def test_memory_that_is_not_there_is_one_error(made: Callable[..., Any]) -> None:
    a, b, d = ones(4, 6), ones(6, 5), ones(4, 5)
    refused(lambda: tw.gemm(made(4, 6), b), "array-null")
    refused(lambda: tw.gemm(a, made(6, 5)), "array-null")
    refused(lambda: tw.gemm(a, b, made(4, 5)), "array-null")
    refused(lambda: tw.gemm(a, b, out=made(4, 5)), "array-null")
    refused(lambda: tw.gemm(a, b, ds=(made(4, 5),), epilogue="relu"), "array-null")
    refused(lambda: tw.matmul(made(4, 6), b), "array-null")
    refused(lambda: tw.pack(made(6, 5)), "array-null")
    refused(lambda: tw.gemm(a, b, d, copy="allow", ds=(made(4, 5),), epilogue="relu"), "array-null")


def test_no_elements_need_no_memory() -> None:
    empty = ones(0, 6)
    empty.untyped_storage().resize_(0)
    assert tw.gemm(empty, ones(6, 5)).shape == (0, 5)


def test_fake_and_functional_tensors_go_through_the_op() -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode() as mode:
        fake = torch.ones(4, 6)
        assert tw.gemm(fake, fake.T).shape == (4, 4)
    outside = tw.gemm(fake, fake.T)
    assert isinstance(outside, FakeTensor)
    with mode:
        refused(lambda: tw.pack(fake), "torch-trace")
    inside = torch.func.functionalize(lambda x: tw.gemm(x, x.T))
    torch.testing.assert_close(inside(ones(4, 6)), torch.full((4, 4), 6.0))


# -- kinds of tensors --------------------------------------------------------------------------------------------------


def test_subclasses_that_only_carry_a_name_are_tensors() -> None:
    class Named(torch.Tensor):  # type: ignore[misc]
        pass

    a = ones(4, 6).as_subclass(Named)
    for _ in range(2):
        result = tw.gemm(a, torch.nn.Parameter(ones(6, 5), requires_grad=False))
        assert type(result) is torch.Tensor
        assert torch.equal(result, torch.full((4, 5), 6.0))
    out = torch.zeros(4, 5).as_subclass(Named)
    assert tw.gemm(a, ones(6, 5), out=out) is out
    assert out.sum() == 120


def test_subclasses_that_compute_are_refused() -> None:
    class Computing(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    odd = torch.Tensor._make_subclass(Computing, ones(4, 6))
    refused(lambda: tw.gemm(odd, ones(6, 5)), "array-type")


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_rows_in_memory_are_refused() -> None:
    b = ones(6, 5)
    refused(lambda: tw.gemm(ones(4, 6).to_sparse(), b), "array-type")
    refused(lambda: tw.gemm(ones(4, 6).to_sparse_csr(), b), "array-type")
    refused(lambda: tw.gemm(torch.nested.nested_tensor([ones(2, 6), ones(2, 6)]), b), "array-type")
    if torch.backends.mkldnn.is_available():
        refused(lambda: tw.gemm(ones(4, 6).to_mkldnn(), b), "array-type")
    quantized = torch.quantize_per_tensor(ones(4, 6), 0.1, 0, torch.qint8)
    refused(lambda: tw.gemm(quantized, b), "array-dtype")
    error = refused(lambda: tw.gemm(ones(4, 6, dtype=torch.float64), b), "array-dtype")
    assert "a.to(torch.float32)" in error.remedy
    error = refused(lambda: tw.gemm(ones(4, 6, dtype=torch.complex64).conj(), b), "array-lazy")
    assert "resolve_conj" in error.remedy
    refused(lambda: tw.gemm(ones(4, 6, dtype=torch.complex64), b), "array-dtype")
    refused(lambda: tw.gemm(ones(4, 6, dtype=torch.int64), b), "array-dtype")


# -- gradients ---------------------------------------------------------------------------------------------------------


def test_a_gradient_is_recorded_or_the_call_is_an_error() -> None:
    layer = torch.nn.Linear(6, 5, bias=False)
    x = ones(4, 6)
    for _ in range(2):
        result = tw.gemm(x, layer.weight.T)
        (gradient,) = torch.autograd.grad(result.sum(), layer.weight)
        torch.testing.assert_close(gradient, torch.full((5, 6), 4.0))
    error = refused(lambda: tw.gemm(x, ones(6, 5), out=torch.zeros(4, 5, requires_grad=True)), "array-grad")
    assert "no_grad()" in error.remedy
    refused(lambda: tw.gemm(x, layer.weight.T, out=torch.zeros(4, 5)), "array-grad")
    error = refused(lambda: tw.pack(layer.weight.T), "array-grad")
    assert "detach()" in error.remedy
    q = torch.ones(1, 4, 2, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(tw.attention(q, q, q).sum(), q)  # every row is the mean of equal values
    torch.testing.assert_close(gradient, torch.ones_like(q))
    error = refused(lambda: tw.attention(q, q, q, out=torch.zeros(1, 4, 2, 8)), "array-grad")
    assert error.remedy
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for _ in range(3):
                torch.testing.assert_close(tw.gemm(x, layer.weight.T), layer(x))
    torch.testing.assert_close(tw.gemm(x, layer.weight.T.detach()), layer(x).detach())


def test_out_tells_autograd_that_it_was_written() -> None:
    a, b, weight = ones(4, 6), ones(6, 5), torch.ones(4, 5, requires_grad=True)
    for _ in range(2):
        out = torch.zeros(4, 5)
        before = out._version
        saved = (weight * out).sum()  # keeps `out` for the gradient of weight
        tw.gemm(a, b, out=out)
        assert out._version > before
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.backward()
    with torch.inference_mode():
        into = torch.zeros(4, 5)
        assert tw.gemm(a, b, out=into) is into


def test_out_of_inference_mode_is_written_there_alone() -> None:
    """As PyTorch has it: `torch.mm(a, b, out=out)` raises outside too."""
    a, b = ones(4, 6), ones(6, 5)
    with torch.inference_mode():
        out, other = torch.zeros(4, 5), torch.zeros(4, 5)
    with pytest.raises(RuntimeError, match="inference tensor outside InferenceMode"):
        torch.mm(a, b, out=other)
    for _ in range(2):
        error = refused(lambda: tw.gemm(a, b, out=out), "torch-inference")
        assert "out.clone()" in error.remedy
        with torch.no_grad():
            refused(lambda: tw.gemm(a, b, out=out), "torch-inference")
        assert not out.any()
        with torch.inference_mode():  # from here on C knows the call
            for _ in range(2):
                assert torch.equal(tw.gemm(a, b, out=out), a @ b)
            out.zero_()


def test_autocast_is_followed() -> None:
    """Products under torch.autocast are of its type, as PyTorch's own are; with memory for the result they are not."""
    x, w = torch.randn(4, 6), torch.randn(6, 5)
    images, filters = torch.randn(1, 3, 6, 6), torch.randn(2, 3, 3, 3)
    q = torch.randn(1, 2, 2, 16)
    into = torch.empty(4, 5)
    plain = tw.gemm(x, w)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            found = tw.gemm(x, w, ds=(w[0],), epilogue="add")
            assert found.dtype == torch.mm(x, w).dtype == torch.bfloat16
            expected = torch.mm(x.bfloat16().double(), w.bfloat16().double()) + w[0].bfloat16()
            assert (found.double() - expected).abs().max() < 0.1
            assert tw.gemm(x, w, out_dtype="fp32").dtype == torch.float32
            assert tw.conv(images, filters, layout="nchw").dtype == torch.bfloat16
            assert tw.attention(q, q, q).dtype == torch.bfloat16
            assert torch.equal(tw.gemm(x, w, out=into), plain)
            with torch.autocast("cpu", enabled=False):
                assert torch.equal(tw.gemm(x, w), plain)
            assert tw.gemm(x.numpy(), w.numpy()).dtype == "float32"
        assert torch.equal(tw.gemm(x, w), plain)


def test_tangents_are_not_dropped() -> None:
    from torch.autograd import forward_ad

    a, b = ones(4, 6), ones(6, 5)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, ones(4, 6))
        error = refused(lambda: tw.gemm(dual, b), "torch-transform")
        assert "primal" in error.remedy
        assert torch.equal(tw.gemm(a, b), a @ b)
    assert torch.equal(tw.gemm(a, b), a @ b)


def test_forward_mode_is_refused_and_no_tangent_dropped() -> None:
    b = ones(6, 5)
    refused(lambda: torch.func.jvp(lambda x: tw.gemm(x, b).sum(), (ones(4, 6),), (ones(4, 6),)), "torch-transform")
    refused(lambda: torch.func.jacfwd(lambda x: tw.gemm(x, b).sum())(ones(4, 6)), "torch-transform")
    refused(lambda: torch.func.vmap(lambda x: tw.gemm(x, b, out=ones(4, 5)))(ones(3, 4, 6)), "torch-transform")


def test_a_trace_has_the_op() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def product(x: Any) -> Any:
        return tw.gemm(x, ones(6, 5))

    graph = make_fx(product)(ones(4, 6))
    assert "tilewright.gemm" in graph.code
    assert torch.equal(graph(ones(4, 6)), product(ones(4, 6)))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch.compile follows new Pythons late")
def test_a_compiled_function_has_us_in_its_graph() -> None:
    def product(x: Any) -> Any:
        return tw.gemm(x * 2, ones(6, 5)) + 1

    compiled = torch.compile(product, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(ones(4, 6)), torch.full((4, 5), 13.0))


# -- scalars -----------------------------------------------------------------------------------------------------------


def test_scalars_may_be_tensors_of_no_dimensions() -> None:
    a, b = ones(4, 6), ones(6, 5)
    for scalar in (torch.tensor(2.0), torch.tensor(2), np.float32(2), np.array(2.0), 2):
        assert torch.equal(tw.gemm(a, b, alpha=scalar), torch.full((4, 5), 12.0))
    for scalar in (torch.ones(3), torch.tensor(1j), torch.tensor(True), torch.ones(1)):
        refused(partial(tw.gemm, a, b, alpha=scalar), "scalar")


@pytest.mark.parametrize("name", ["functionalize", "grad", "jvp", "jacrev"])
def test_results_made_inside_a_transform_belong_to_it(name: str) -> None:
    """The operands are plain, but what is made inside is a wrapper."""
    a, b, x = ones(4, 6), ones(6, 5), torch.tensor(2.0)
    inside = {
        "functionalize": lambda: torch.func.functionalize(lambda q: tw.gemm(a, b) * q)(x).sum() / 2,
        "grad": lambda: torch.func.grad(lambda q: (tw.gemm(a, b) * q).sum())(x),
        "jvp": lambda: torch.func.jvp(lambda q: tw.gemm(a, b) * q, (x,), (x,))[1].sum() / 2,
        "jacrev": lambda: torch.func.jacrev(lambda q: tw.gemm(a, b).sum() * q)(x),
    }
    assert inside[name]() == 120
