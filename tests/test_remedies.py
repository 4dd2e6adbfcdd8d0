"""What an error says to do is done here as it is written, and works."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import DeviceError, ProblemError, RequestError, TilewrightError
from tilewright.runtime.arrays import output_dtype, view

A, B = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)


def remedy_of(rule: str, call: Callable[[], object], kind: type[TilewrightError] = ProblemError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.rule == rule, str(caught.value)
    assert caught.value.remedy
    return caught.value.remedy


def followed(remedy: str, pattern: str, **names: Any) -> Any:
    """The piece of a remedy that a pattern finds, evaluated."""
    found = re.search(pattern, remedy)
    assert found, remedy
    return eval(found[0], {"np": np, **names})


# -- out ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allow", ["never", "allow"])
@pytest.mark.parametrize("kind", ["array-byte-order", "array-alignment"])
def test_an_out_that_kernels_cannot_write_is_replaced_not_copied(kind: str, allow: str) -> None:
    out: Any = np.zeros((4, 5), np.dtype(np.float32).newbyteorder())
    if kind == "array-alignment":
        out = np.zeros(4 * 5 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 5)
    remedy = remedy_of(kind, lambda: tw.gemm(A, B, out=out, copy=allow))
    assert 'copy="allow"' not in remedy
    other = followed(remedy, r"out\.astype\(.*|out\.copy\(\)", out=out)
    assert tw.gemm(A, B, out=other) is other
    assert (other == 6).all()


def test_pack_takes_no_copy_so_its_remedy_is_one_made_by_hand() -> None:
    for b, rule in ((B.astype(">f4"), "array-byte-order"), (np.ones((6, 10), np.float32)[:, ::2], "array-layout")):
        remedy = remedy_of(rule, lambda b=b: tw.pack(b))  # type: ignore[misc]
        assert 'copy="allow"' not in remedy
        made = followed(remedy, r"b\.astype\(.*|b\.copy\(\)", b=b)
        assert (tw.gemm(A, tw.pack(made)) == 6).all()


# -- tensors -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_conversions_of_tensors_are_pytorch_s() -> None:
    torch: Any = pytest.importorskip("torch")
    a, b = torch.ones(4, 6), torch.ones(6, 5)
    for kind in (torch.bool, torch.int32, torch.int64, torch.float64):
        odd = b.to(kind)
        if kind != torch.float64:
            remedy = remedy_of("array-dtype", lambda odd=odd: tw.pack(odd))  # type: ignore[misc]
            made = tw.pack(followed(remedy, r"b\.to\(torch\.float32\)", torch=torch, b=odd))
            assert (tw.gemm(a, made) == 6).all()
        remedy = remedy_of("array-dtype", lambda odd=odd: tw.gemm(a, odd))  # type: ignore[misc]
        assert (tw.gemm(a, followed(remedy, r"b\.to\(torch\.float32\)", torch=torch, b=odd)) == 6).all()
    quantized = torch.quantize_per_tensor(b, 0.5, 0, torch.qint8)
    remedy = remedy_of("array-dtype", lambda: tw.gemm(a, quantized))
    assert (tw.gemm(a, followed(remedy, r"b\.dequantize\(\)", b=quantized)) == 6).all()
    whole = followed(remedy, r"b\.int_repr\(\)", b=quantized)
    scale = followed(remedy, r"b\.q_scale\(\)", b=quantized)
    assert (tw.gemm(a.to(torch.int8), whole, alpha=scale, out_dtype="fp32") == 6).all()
    images, filters = quantized.reshape(1, 6, 5, 1), torch.ones(2, 1, 1, 1)
    remedy = remedy_of("array-dtype", lambda: tw.conv(images, filters))  # has no alpha
    whole = followed(remedy, r"x\.int_repr\(\)", x=images)
    scale = followed(remedy, r"x\.q_scale\(\)", x=images)
    assert (tw.conv(whole, filters.to(torch.int8), out_dtype="fp32") * scale == 1).all()
    by_channel = torch.quantize_per_channel(b, torch.full((6,), 0.5), torch.zeros(6), 0, torch.qint8)
    for odd in (torch.quantize_per_tensor(b, 0.5, 3, torch.qint8), by_channel):  # whole numbers that mean others
        assert "int_repr" not in remedy_of("array-dtype", lambda odd=odd: tw.gemm(a, odd))  # type: ignore[misc]


def test_a_type_that_pytorch_converts_to_nothing_is_not_told_to_convert() -> None:
    torch: Any = pytest.importorskip("torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch has no such type")
    packed = torch.zeros(4, 6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises((RuntimeError, NotImplementedError)):
        packed.to(torch.float32)
    remedy = remedy_of("array-dtype", lambda: tw.gemm(packed, torch.ones(6, 5)))
    assert ".to(" not in remedy
    assert "unpack" in remedy


def test_a_meta_tensor_is_not_told_to_move() -> None:
    torch: Any = pytest.importorskip("torch")
    remedy = remedy_of("array-device", lambda: tw.gemm(torch.ones(4, 6, device="meta"), torch.ones(6, 5)), DeviceError)
    assert ".cpu()" not in remedy
    assert "real device" in remedy


def test_lazily_negated_views_are_copied_where_that_is_allowed() -> None:
    torch: Any = pytest.importorskip("torch")
    ones = torch.ones(4, 6)
    for lazy in (torch._neg_view(ones), torch.complex(ones, ones).conj().imag):
        assert lazy.is_neg()
        remedy = remedy_of("array-lazy", lambda a=lazy: tw.gemm(a, torch.ones(6, 5)))  # type: ignore[misc]
        assert (tw.gemm(lazy, torch.ones(6, 5), copy="allow") == -6).all()
        assert (tw.gemm(followed(remedy, r"a\.resolve_neg\(\)", a=lazy), torch.ones(6, 5)) == -6).all()
    out = torch._neg_view(torch.zeros(4, 5))
    remedy = remedy_of("array-lazy", lambda: tw.gemm(ones, torch.ones(6, 5), out=out, copy="allow"))
    assert 'copy="allow"' not in remedy
    assert (tw.gemm(ones, torch.ones(6, 5), out=followed(remedy, r"out\.resolve_neg\(\)", out=out)) == 6).all()


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float64", "double", np.float64, np.dtype(">f4"), ["fp32"], "fp23"])
def test_an_output_type_that_is_refused_names_those_that_work(name: Any) -> None:
    for kind in (np.float32, np.int8):
        a, b = A.astype(kind), B.astype(kind)
        with pytest.raises(RequestError) as caught:
            tw.gemm(a, b, out_dtype=name)
        named = re.findall(r"[a-z]+\d+\w*", caught.value.remedy.partition("? ")[2] or caught.value.remedy)
        assert named
        for one in named:
            assert (tw.gemm(a, b, out_dtype=one) == 6).all()


def test_output_types_by_other_names() -> None:
    for name, ours in (("float32", "fp32"), ("half", "fp16"), ("bfloat16", "bf16"), ("int32", "int32"), ("f4", "fp32")):
        assert output_dtype(name) == ours


def test_one_value_of_an_axis_needs_no_tuple() -> None:
    one = tw.Registry("cpu").add_pool("gemm", "tiny", datatypes="fp16", layouts="rcr")
    assert [spec.digest for spec in one.specs()] == [
        spec.digest
        for spec in tw.Registry("cpu").add_pool("gemm", "tiny", datatypes=("fp16",), layouts=("rcr",)).specs()
    ]
    assert len(tw.Registry("cpu").add_pool("gemm", "tiny", num_d=1))


def test_a_backend_that_is_not_here_is_told_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.base import backend

    monkeypatch.setattr(type(backend("hip")), "available_archs", lambda self: ())
    remedy = remedy_of("target-unavailable", lambda: tw.gemm(A, B, target="hip"), DeviceError)
    assert "leave the target out" in remedy
    named = re.search(r"such as (\w+), to `tilewright (\w+)`", remedy)
    assert named
    assert named[1] in tw.Registry(named[1]).target
    assert named[2] == "build"


# -- calls -------------------------------------------------------------------------------------------------------------


def test_a_kernel_called_with_other_arguments_says_how_it_is_called() -> None:
    kernel = tw.Registry("cpu").kernel_for(tw.GemmProblem(4, 5, 6))
    wrong: tuple[Callable[[], object], ...] = (
        lambda: kernel(A),
        kernel,
        lambda: kernel(A, B, foo=1),
        lambda: kernel(A, B, None, None, None),
    )
    for call in wrong:
        remedy = remedy_of("call-arguments", call, RequestError)
        names = re.findall(r"(\w+)=", remedy)
        assert "bind" not in remedy
        assert names == ["c", "alpha", "beta", "ds", "out", "up", "copy"]
        told = re.sub(r"\bc=None, \*, ", "c=None, ", remedy)
        assert (followed(told, r"kernel\(.*\)", kernel=kernel, a=A, b=B) == 6).all()
    remedy_of("call-arguments", lambda: tw.Registry("cpu").run("gemm", A), RequestError)
    remedy_of("kernel-signature", lambda: kernel(A, B, epilogue="relu"))


def test_what_is_no_spec_is_refused() -> None:
    for specs in (["x"], 5, "gemm", [None]):
        remedy_of("spec-type", lambda specs=specs: tw.Registry("cpu", specs), RequestError)  # type: ignore[misc]


def test_names_of_targets_are_texts() -> None:
    for call in (lambda: tw.gemm(A, B, target=["cpu"]), lambda: tw.Registry(["x"]), lambda: tw.pack(B, target={})):  # type: ignore[arg-type]
        remedy_of("arch-name", call, RequestError)


def test_a_packed_b_is_shared_by_copies_and_not_pickled() -> None:
    packed = tw.pack(B)
    assert copy.copy(packed) is packed
    held = copy.deepcopy({"w": packed})["w"]
    del packed  # a copy of its bytes would be elsewhere than where kernels look
    assert (tw.gemm(A, held) == 6).all()
    remedy_of("packed-pickle", lambda: pickle.dumps(held), RequestError)
    assert (tw.gemm(A, tw.pack(pickle.loads(pickle.dumps(B)))) == 6).all()


# -- empty arrays ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (2, 0, 3), (0, 3, 4)])
def test_strides_of_empty_arrays_are_those_of_dense_ones(shape: tuple[int, ...]) -> None:
    from tilewright.runtime.lines import dense_strides

    one = np.zeros(shape, np.float32)
    assert 0 in one.strides
    assert view("a", one).strides == dense_strides(shape)
    assert 0 not in view("a", one).strides
    assert view("a", one.T).strides == dense_strides(shape[::-1])
    assert view("a", np.zeros((8, *shape), np.float32)[::-2][0]).strides == dense_strides(shape)


@pytest.mark.parametrize("sizes", [(0, 5, 6), (4, 0, 6), (4, 5, 0), (0, 0, 0)])
def test_products_of_empty_arrays_in_every_layout(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    for a in (np.zeros((m, k), np.float32), np.zeros((k, m), np.float32).T):
        for b in (np.zeros((k, n), np.float32), np.zeros((n, k), np.float32).T):
            for out in (None, np.ones((m, n), np.float32), np.ones((n, m), np.float32).T):
                made = tw.gemm(a, b, out=out)
                assert made.shape == (m, n)
                assert not made.any()
