"""Convolutions on arrays: layouts, memory, results, fused work, every direction, through the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tilewright as tw
from tests.conv.conftest import CONV
from tests.conv.drawing import array, convolutions
from tilewright import settings as house_settings
from tilewright.backends.cpu.conv.shared import CpuConvFamily
from tilewright.dispatch.judged import Judges
from tilewright.dispatch.registry import Registry
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.reference import reference
from tilewright.runtime import calls, fast_path
from tilewright.runtime.bindings import binding

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("floor")
FUNCTIONS = {"backward_data": tw.conv_backward_data, "backward_weight": tw.conv_backward_weight}


def expected(p: ConvProblem, **arrays: Any) -> Array:
    return reference(p, {"x": None, "w": None, "y": None, "ds": (), **arrays})


def keywords(p: ConvProblem) -> dict[str, Any]:
    pairs = tuple(zip(p.before, p.after, strict=True))
    return {"stride": p.stride, "padding": pairs, "dilation": p.dilation, "groups": p.groups}


def call(p: ConvProblem, arrays: dict[str, Array], layout: str = "nhwc", **more: Any) -> Any:
    """Through the function of the direction; arrays are in our order, and so is the result."""
    x, w, y = (np.moveaxis(arrays[name], -1, 1) if layout == "nchw" else arrays[name] for name in "xwy")
    more |= {**keywords(p), "layout": layout}
    if p.variant == "forward":
        found = tw.conv(x, w, **more)
    elif p.variant == "backward_data":
        found = tw.conv_backward_data(y, w, x.shape, **more)
    else:
        found = tw.conv_backward_weight(x, y, w.shape, **more)
    return np.moveaxis(found, 1, -1) if layout == "nchw" else found


def arrays_of(p: ConvProblem, dtype: Any = np.float32) -> dict[str, Array]:
    shapes = {one: (getattr(p, f"{one}_shape"), getattr(p, f"{one}_strides")) for one in "xwy"}
    return {one: array(seed, *shapes[one], dtype) for seed, one in enumerate("xwy")}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(convolutions())
def test_any_convolution_is_right_in_every_direction(problem: ConvProblem) -> None:
    """Whole numbers, so that every order of sums gives the same."""
    p, arrays = problem, arrays_of(problem)
    want = expected(p, **arrays)
    for layout in ("nhwc", "nchw"):
        found = call(p, arrays, layout)
        assert found.dtype == np.float32
        assert np.array_equal(found, want), p.describe()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(convolutions())
def test_gradients_are_those_of_the_forward_function(problem: ConvProblem) -> None:
    """sum(y * conv(x, w)) changes by its gradients: the three functions tied together, without a reference."""
    p, arrays = replace(problem, variant="forward"), arrays_of(problem)
    with_y = float(np.sum(arrays["y"].astype(np.float64) * call(p, arrays)))
    with_x = float(np.sum(arrays["x"].astype(np.float64) * call(replace(p, variant="backward_data"), arrays)))
    with_w = float(np.sum(arrays["w"].astype(np.float64) * call(replace(p, variant="backward_weight"), arrays)))
    assert with_y == with_x == with_w


P = ConvProblem(2, 6, 8, (7, 5), (3, 3), 2, (2, 1), before=(1, 1))


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("variant", ["forward", "backward_data", "backward_weight"])
def test_narrow_types_and_results_of_another(dtype: str, variant: str) -> None:
    kind = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    p = replace(P, variant=variant, dtype=dtype, dtype_out=dtype, dtype_d=dtype)
    arrays = arrays_of(p, kind)
    want = expected(p, **arrays)
    assert call(p, arrays).dtype == kind
    assert np.array_equal(call(p, arrays).astype(np.float32), want.astype(np.float32))
    if variant == "backward_weight":
        wide = call(p, arrays, out_dtype="fp32")
        assert wide.dtype == np.float32
        assert np.array_equal(wide, want.astype(np.float32))


def test_int8_gives_int32_or_what_is_asked_for() -> None:
    p = replace(P, dtype="int8", dtype_out="int32", dtype_d="int32")
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in (p.x_shape, p.w_shape))
    assert np.array_equal(tw.conv(x, w, **keywords(p)), expected(p, x=x, w=w))
    cut = tw.conv(x, w, out_dtype=np.int8, **keywords(p))
    assert np.array_equal(cut, np.clip(expected(p, x=x, w=w), -128, 127))
    bias = rng.integers(-1000, 1000, 8, dtype=np.int32)
    assert np.array_equal(tw.conv(x, w, bias, **keywords(p)), expected(p, x=x, w=w) + bias)


@pytest.mark.parametrize("epilogue", ["passthrough", "relu", "multiply", "silu"])
def test_bias_residual_and_activation(epilogue: str) -> None:
    arrays = arrays_of(P)
    bias, more = array(5, (8,)), array(6, P.y_shape)
    plain = expected(P, **arrays).astype(np.float64)
    if epilogue == "multiply":
        found = call(P, arrays, ds=(more, bias), epilogue=epilogue)
        assert np.array_equal(found, plain * more * bias)
        return
    found = call(P, arrays, bias=bias, ds=(more,), epilogue=epilogue)
    total = plain + bias + more
    want = {"relu": np.maximum(total, 0), "silu": total / (1 + np.exp(-total))}.get(epilogue, total)
    assert np.allclose(found, want, rtol=1e-6, atol=1e-6)
    if epilogue == "relu":
        assert np.array_equal(call(P, arrays, bias=bias, epilogue=epilogue), np.maximum(plain + bias, 0))


def test_d_tensors_broadcast_as_numpy_has_it_in_either_layout() -> None:
    arrays = arrays_of(P)
    plain = expected(P, **arrays)
    n, h, w, k = P.y_shape
    for shape in ((n, 1, 1, k), (h, w, 1), (k,), (1,), (n, h, w, k), ()):
        d = array(7, shape)
        assert np.array_equal(call(P, arrays, ds=(d,)), plain + d), shape
    for shape in ((n, k, 1, 1), (k, 1, 1), (w,), (n, k, h, w)):
        d = array(7, shape)
        found = call(P, arrays, "nchw", ds=(d,))
        assert np.array_equal(np.moveaxis(found, -1, 1), np.moveaxis(plain, -1, 1) + d), shape


def test_a_result_may_be_given_anywhere_and_nothing_beside_it_is_touched() -> None:
    arrays = arrays_of(P)
    want = expected(P, **arrays)
    n, h, w, k = P.y_shape
    memory = np.full((n, h + 2, w + 1, k + 3), np.nan, np.float32)
    out = memory[:, 1:-1, :-1, 2:-1]
    assert call(P, arrays, out=out).base is memory
    assert np.array_equal(out, want)
    assert np.isnan(memory).sum() == memory.size - want.size
    first = np.empty((n, k, h, w), np.float32)
    call(P, arrays, out=np.moveaxis(first, 1, -1))
    assert np.array_equal(np.moveaxis(first, 1, -1), want)
    backwards = np.empty(P.y_shape, np.float32)[:, ::-1, :, ::-1]
    call(P, arrays, out=backwards)
    assert np.array_equal(backwards, want)


def test_operands_may_lie_backwards_apart_and_on_each_other() -> None:
    x = array(0, (2, 7, 10, 12))[:, ::-1, ::2, ::-2]
    w = np.broadcast_to(array(1, (8, 1, 3, 3)), (8, 3, 3, 3))
    assert x.shape == P.x_shape
    assert np.array_equal(tw.conv(x, w, **keywords(P)), expected(P, x=x, w=w))
    arrays = arrays_of(P)
    bias, d = array(8, (P.filters,))[::-1], array(7, P.y_shape)[:, ::-1, :, ::-1]
    assert np.array_equal(call(P, arrays, bias=bias, ds=(d,)), expected(P, **arrays) + bias + d)


def test_padding_may_be_a_number_numbers_or_pairs() -> None:
    arrays = arrays_of(replace(P, stride=(1, 1), y_strides=()))
    x, w = arrays["x"], arrays["w"]
    one = tw.conv(x, w, padding=1, groups=2)
    for padding in ((1, 1), [1, 1], ((1, 1), (1, 1)), [[1, 1], [1, 1]], np.int64(1), [np.int32(1), 1]):
        assert np.array_equal(tw.conv(x, w, padding=padding, groups=cast("int", np.int64(2))), one)
    wide = np.pad(x, ((0, 0), (2, 0), (0, 3), (0, 0)))
    assert np.array_equal(tw.conv(x, w, padding=((2, 0), (0, 3)), groups=2), tw.conv(wide, w, groups=2))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_no_images_give_an_empty_result_and_a_gradient_of_zeros(rank: int) -> None:
    shape, window = (5, 4, 6)[:rank], (3, 2, 1)[:rank]
    x, w = np.empty((0, *shape, 4), np.float32), array(1, (6, *window, 4))
    y = tw.conv(x, w)
    assert y.shape == (0, *(a - b + 1 for a, b in zip(shape, window, strict=True)), 6)
    assert tw.conv_backward_data(y, w, x.shape).shape == x.shape
    dw = tw.conv_backward_weight(x, y, w.shape)
    assert dw.shape == w.shape
    assert not dw.any()
    assert tw.conv(x.swapaxes(1, -1).copy().swapaxes(1, -1), w).shape == y.shape


# -- PyTorch -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3])
def test_tensors_keep_their_memory_format_and_are_not_copied(rank: int) -> None:
    torch = pytest.importorskip("torch")
    last = torch.channels_last if rank == 2 else torch.channels_last_3d
    shape, window = (2, 6, *(5, 7, 4)[:rank]), (8, 3, *(3, 2, 2)[:rank])
    x, w = torch.from_numpy(array(0, shape)), torch.from_numpy(array(1, window))
    convolve = getattr(torch.nn.functional, f"conv{rank}d")
    want = convolve(x.double(), w.double(), groups=2, padding=1).float()
    assert tw.conv(x, w, groups=2, padding=1, layout="nchw").is_contiguous()
    x, w = x.to(memory_format=last), w.to(memory_format=last)
    for _ in range(2):
        y = tw.conv(x, w, groups=2, padding=1, layout="nchw")
        assert torch.equal(y, want)
        assert y.is_contiguous(memory_format=last)
    stage = _request(x, w, groups=2, padding=1).stages[0]
    assert not stage.copies
    assert stage.problem.channels_last
    dy = torch.from_numpy(array(2, tuple(want.shape))).to(memory_format=last)
    dx = tw.conv_backward_data(dy, w, x.shape, groups=2, padding=1, layout="nchw")
    dw = tw.conv_backward_weight(x, dy, w.shape, groups=2, padding=1, layout="nchw")
    assert dx.is_contiguous(memory_format=last)
    x, w = x.double().requires_grad_(), w.double().requires_grad_()
    convolve(x, w, groups=2, padding=1).backward(dy.double())
    assert torch.equal(dx, x.grad.float())
    assert torch.equal(dw, w.grad.float())


def _request(x: Any, w: Any, **more: Any) -> Any:
    from tilewright.runtime.arrays import view

    bound = binding("conv")
    operands, _, attributes = bound.bind(x, w, layout="nchw", **more)
    views = [None if one is None else view(slot.name, one) for slot, one in zip(bound.slots, operands, strict=True)]
    return bound.request(views, attributes, Registry().target)


def test_arrays_of_other_libraries() -> None:
    class Foreign:
        """Anything with DLPack."""

        def __init__(self, held: Array) -> None:
            self.held = held

        def __dlpack__(self, **more: Any) -> Any:
            return self.held.__dlpack__(**more)

        def __dlpack_device__(self) -> Any:
            return self.held.__dlpack_device__()

    arrays = arrays_of(P)
    found = tw.conv(Foreign(arrays["x"]), Foreign(arrays["w"]), **keywords(P))
    assert np.array_equal(np.asarray(found), expected(P, **arrays))


# -- dispatch ------------------------------------------------------------------------------------------------------


@pytest.fixture
def only_channels_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A floor that wants channels side by side, and as many of a group as are a multiple of 4."""

    def limits(family: Any, spec: KernelSpec, problem: ConvProblem) -> Iterator[Violation]:
        if not problem.channels_last:
            yield Violation("channels-last", "channels are apart")
        if problem.group_channels % 4 or problem.group_filters % 4:
            yield Violation("channels-four", "channels are no fours")

    def copied(family: Any, schedule: Any, problem: ConvProblem) -> ConvProblem:
        up = [-(-one // 4) * 4 * problem.groups for one in (problem.group_channels, problem.group_filters)]
        return replace(problem, channels=up[0], filters=up[1], x_strides=(), w_strides=(), y_strides=())

    monkeypatch.setattr(Judges, "judge_for", lambda *_: None)  # limits are those below
    monkeypatch.setattr(CpuConvFamily, "limits", limits)
    monkeypatch.setattr(CpuConvFamily, "copied", copied)


@pytest.mark.usefixtures("only_channels_last")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(convolutions())
def test_what_a_kernel_cannot_read_it_reads_from_copies(problem: ConvProblem) -> None:
    p, arrays = problem, arrays_of(problem)
    assert np.array_equal(call(p, arrays, "nchw"), expected(p, **arrays)), p.describe()


@pytest.mark.usefixtures("only_channels_last")
@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("axis", range(4))
def test_so_it_does_with_d_tensors_that_lie_backwards(layout: str, axis: int) -> None:
    p = ConvProblem(2, 6, 10, (5, 4), (2, 2), 2)
    arrays = arrays_of(p)
    d = np.flip(array(7, p.y_shape), axis)
    first = np.flip(np.moveaxis(array(7, p.y_shape), -1, 1).copy(), axis)
    found = call(p, arrays, layout, ds=(d if layout == "nhwc" else first,))
    assert np.array_equal(found, expected(p, **arrays) + (d if layout == "nhwc" else np.moveaxis(first, 1, -1)))


@pytest.mark.usefixtures("only_channels_last")
def test_so_it_does_with_d_tensors_of_any_memory(floor: Registry) -> None:
    p = ConvProblem(2, 6, 10, (5, 4), (2, 2), 2)
    arrays = arrays_of(p)
    plain = expected(p, **arrays)
    bias = array(5, (20,))[::2]
    for shape in (p.y_shape, (2, 1, 1, 10), (3, 1), (10,)):
        d = array(6, shape)
        turned = np.asfortranarray(d)
        for more in (d, turned):
            for layout in ("nhwc", "nchw"):
                given_ = np.moveaxis(np.broadcast_to(more, p.y_shape), -1, 1) if layout == "nchw" else more
                found = call(p, arrays, layout, bias=bias, ds=(given_,))
                assert np.array_equal(found, plain + bias + d), (shape, layout)
    first = CONV.problem({"batch": 1, "channels": 3, "filters": 5, "size": "4x4", "window": "2", "layout": "nchw"})
    chosen = floor.select(first)
    assert chosen.tier == "padded"
    assert "c=4 k=8" in str(floor.explain(first)), "explain says that it is copied, and into what"


def test_channels_of_d_are_side_by_side_where_those_of_y_are() -> None:
    """What kernels are told in conv_args.h, kept by a copy."""
    arrays = arrays_of(P)
    d = np.asfortranarray(array(6, P.y_shape))
    assert np.array_equal(call(P, arrays, ds=(d,)), expected(P, **arrays) + d)
    assert np.array_equal(call(P, arrays, bias=array(5, (16,))[::2]), expected(P, **arrays) + array(5, (16,))[::2])


@pytest.mark.usefixtures("needs_compiler")
def test_the_second_call_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fast_path.library() is not None
    arrays, bias = arrays_of(P), array(5, (8,))
    before = tw.conv(arrays["x"], arrays["w"], bias, **keywords(P))
    tw.conv_backward_data(arrays["y"], arrays["w"], P.x_shape, **keywords(P))
    monkeypatch.setattr(calls.Caller, "run_slow", lambda *_: pytest.fail("the long way"))
    again = tw.conv(arrays["x"], arrays["w"], bias, **{name: _listed(one) for name, one in keywords(P).items()})
    assert np.array_equal(before, again)
    tw.conv_backward_data(arrays["y"], arrays["w"], list(P.x_shape), **keywords(P))


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, tuple) else value


def test_one_thread_and_two_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in (P.x_shape, P.w_shape))
    found = []
    for threads in (1, 2):
        with house_settings.override(threads=threads):
            found.append(tw.conv(x, w, **keywords(P)))
    assert np.array_equal(*found)


@pytest.mark.parametrize("variant", ["backward_data", "backward_weight"])
def test_a_kernel_of_a_gradient_is_called_as_its_function_is(floor: Registry, variant: str) -> None:
    p = replace(P, variant=variant)
    arrays = arrays_of(p)
    kernel = floor.kernel(CONV.fallback_spec(p.signature, floor.target))
    given, shape = ((arrays["y"], arrays["w"]), p.x_shape) if variant == "backward_data" else (
        (arrays["x"], arrays["y"]), p.w_shape)  # fmt: skip
    name = "input_shape" if variant == "backward_data" else "weight_shape"
    for found in (kernel(*given, shape, **keywords(p)), kernel(*given, **{name: shape}, **keywords(p))):
        assert np.array_equal(found, expected(p, **arrays))


def test_a_kernel_is_called_by_itself(floor: Registry) -> None:
    arrays = arrays_of(P)
    kernel = floor.kernel(CONV.fallback_spec(P.signature, floor.target))
    assert np.array_equal(kernel(arrays["x"], arrays["w"], **keywords(P)), expected(P, **arrays))
    with pytest.raises(tw.TilewrightError, match="has its own"):
        kernel(arrays["x"], arrays["w"], variant="backward_data")
    with pytest.raises(tw.TilewrightError) as caught:
        kernel(arrays["x"], arrays["w"], strides=1)
    assert caught.value.rule == "call-arguments"
    found = floor.run("conv", arrays["x"], arrays["w"], **keywords(P))
    assert np.array_equal(found, expected(P, **arrays))
