"""Every mistake in a call has one clear error: its rule, what is wrong, what would work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conv.drawing import array
from tilewright.errors import TilewrightError
from tilewright.ops import op

pytestmark = pytest.mark.usefixtures("floor")

X, W = array(0, (2, 9, 8, 6)), array(1, (4, 3, 3, 6))
Y = (2, 7, 6, 4)
DY = array(2, Y)


def forward(**more: Any) -> Any:
    return tw.conv(*[more.pop(name, usual) for name, usual in (("x", X), ("w", W))], **more)


def data(**more: Any) -> Any:
    usual = (("dy", DY), ("w", W), ("input_shape", X.shape))
    return tw.conv_backward_data(*[more.pop(name, one) for name, one in usual], **more)


def weight(**more: Any) -> Any:
    usual = (("x", X), ("dy", DY), ("weight_shape", W.shape))
    return tw.conv_backward_weight(*[more.pop(name, one) for name, one in usual], **more)


OUT = np.empty(Y, np.float32)
READ_ONLY = np.empty(Y, np.float32)
READ_ONLY.flags.writeable = False

# Numbers over every limit: a split of the problem mends sizes, and nothing else.
HUGE = (("stride", "no longer than the padded input"), ("dilation", "a smaller one"), ("padding", "use less"))


@pytest.mark.parametrize(("name", "remedy"), HUGE)
def test_what_is_too_large_has_a_remedy_that_mends_it(name: str, remedy: str) -> None:
    with pytest.raises(TilewrightError) as found:
        forward(**{name: 1 << 41})
    assert found.value.rule == "size-huge"
    assert remedy in found.value.remedy


def test_padding_that_is_a_word_is_told_what_padding_may_be() -> None:
    with pytest.raises(TilewrightError) as found:
        forward(padding="same")
    assert "pairs (before, after)" in found.value.remedy


WRONG: list[tuple[Any, dict[str, Any], str, str]] = [
    # what is no array, or none of these
    (forward, {"x": None}, "array-type", "x is None"),
    (forward, {"w": [[1.0]]}, "array-type", "w is a list"),
    (data, {"dy": None}, "array-type", "dy is None"),
    (weight, {"dy": None}, "array-type", "dy is None"),
    (forward, {"x": X[0, 0]}, "array-rank", "x has 2 dimension"),
    (forward, {"x": X[0]}, "array-rank", "w has 4 dimensions and x has 3"),
    (forward, {"x": X[None, None]}, "array-rank", "x has 6 dimension"),
    (forward, {"out": np.empty((2, 7, 6), np.float32)}, "array-rank", "out has 3 dimensions"),
    # element types
    (forward, {"x": X.astype(np.float64)}, "array-dtype", "float64"),
    (forward, {"x": X.astype(np.int32), "w": W.astype(np.int32)}, "array-dtype", "int32"),
    (forward, {"w": W.astype(np.float16)}, "dtype-mix", "x holds fp32 and w fp16"),
    (forward, {"out_dtype": "fp31"}, "dtype-name", "fp31"),
    (forward, {"out_dtype": np.int8}, "dtype-output", "fp32 cannot give int8"),
    (forward, {"out": OUT, "out_dtype": "fp16"}, "out-dtype", "out holds fp32"),
    (data, {"dy": DY.astype(np.int8), "w": W.astype(np.int8)}, "dtype-input", "int8 has no backward_data"),
    # shapes
    (forward, {"w": W[..., :5]}, "shape-channels", "5 channels"),
    (forward, {"groups": 2}, "shape-channels", "2 group"),
    (forward, {"groups": 4, "w": W[..., :1]}, "groups-divide", "groups that divide 6"),
    (forward, {"groups": 3, "w": W[..., :2]}, "groups-divide", "4 filters"),
    (forward, {"groups": 0}, "size-positive", "groups is 0"),
    (forward, {"groups": -1}, "size-positive", "groups is -1"),
    (forward, {"dilation": 4}, "window-fits", "the filter spans 9 pixels of width"),
    (forward, {"w": array(1, (4, 3, 9, 6))}, "window-fits", "pad by 1 more"),
    (forward, {"x": X[:, :0]}, "size-positive", "input height is 0"),
    (forward, {"x": X[..., :0], "w": W[..., :0]}, "size-positive", "channels is 0"),
    (forward, {"w": W[:0]}, "size-positive", "filters is 0"),
    (forward, {"out": np.empty((2, 7, 6, 5), np.float32)}, "shape-out", "the result has (2, 7, 6, 4)"),
    (forward, {"layout": "nchw"}, "shape-channels", "9"),
    (forward, {"x": X.transpose(0, 3, 1, 2), "w": W.transpose(0, 3, 1, 2)}, "shape-channels", 'pass layout="nchw"'),
    (forward, {"bias": array(3, (5,))}, "shape-bias", "there are 4 filters"),
    (forward, {"ds": (array(3, (7, 5, 4)),)}, "shape-d", "does not broadcast"),
    (forward, {"residual": array(3, (7, 5, 4))}, "shape-d", "residual has shape (7, 5, 4)"),
    (forward, {"residual": array(3, (4,)), "ds": (array(3, (7, 5, 4)),)}, "shape-d", "ds[0] has shape (7, 5, 4)"),
    (data, {"input_shape": (2, 9, 8, -6)}, "size-positive", "channels is -6"),
    (forward, {"x": np.broadcast_to(np.float32(1), (1 << 41, 1, 1, 6)), "padding": 1}, "size-huge", "split"),
    # shapes that no forward has
    (data, {"input_shape": (2, 9, 9, 6)}, "shape-backward", "gives (2, 7, 7, 4)"),
    (data, {"input_shape": (3, 9, 8, 6)}, "shape-backward", "dy has shape (2, 7, 6, 4)"),
    (data, {"input_shape": (2, 9, 8)}, "conv-shape", "give 4 sizes"),
    (data, {"input_shape": (2, 2, 2, 6)}, "window-fits", "no output"),
    (data, {"input_shape": (2, 9, 8, 7)}, "shape-channels", "input_shape has 7"),
    (data, {"input_shape": None}, "conv-shape", "give 4 sizes"),
    (data, {"input_shape": np.array((2, 9, 8, 6))}, "conv-number", "give input_shape as a tuple of ints"),
    (weight, {"weight_shape": (4, 3.0, 3, 6)}, "conv-number", "give weight_shape as a tuple of ints"),
    (data, {"deterministic": "no"}, "conv-switch", "neither True nor False"),
    (weight, {"deterministic": 1}, "conv-switch", "give deterministic=True"),
    (data, {"stride": 2}, "shape-backward", "gives (2, 4, 3, 4)"),
    (weight, {"weight_shape": (4, 2, 3, 6)}, "shape-backward", "gives (2, 8, 6, 4)"),
    (weight, {"weight_shape": (5, 3, 3, 6)}, "shape-backward", "gives (2, 7, 6, 5)"),
    (weight, {"weight_shape": (4, 3, 3, 3)}, "shape-channels", "weight_shape has 3 channels"),
    (weight, {"out": np.empty((4, 3, 3, 5), np.float32)}, "shape-out", "(4, 3, 3, 6)"),
    # numbers
    (forward, {"stride": 0}, "size-positive", "stride height is 0"),
    (forward, {"stride": 1.5}, "conv-number", "stride is 1.5"),
    (forward, {"stride": True}, "conv-number", "stride is True"),
    (forward, {"stride": (1, 1, 1)}, "conv-number", "2 of them"),
    (forward, {"stride": "2"}, "conv-number", "stride"),
    (forward, {"stride": np.array((1, 1))}, "conv-number", "a tuple of ints"),
    (forward, {"dilation": (1, 0)}, "size-positive", "dilation width is 0"),
    (forward, {"padding": -1}, "padding-negative", "slice x"),
    (forward, {"padding": "same"}, "conv-number", "padding"),
    (forward, {"padding": (1, 1, 1)}, "conv-number", "2 of them"),
    (forward, {"padding": (1, 1, 1, 1)}, "conv-number", "2 pairs (before, after)"),
    (forward, {"padding": ((1, 1), 1)}, "conv-number", "pairs"),
    (forward, {"padding": ((1, 1, 1), (1, 1, 1))}, "conv-number", "pairs"),
    (forward, {"groups": 1.0}, "conv-number", "groups is 1.0"),
    (forward, {"groups": X}, "conv-number", "groups"),
    (forward, {"padding": 1 << 50}, "size-huge", "padding"),
    # names
    (forward, {"layout": "chwn"}, "layout-name", "'chwn'"),
    (forward, {"layout": "ndhwc"}, "layout-rank", "3 spatial"),
    (forward, {"layout": 3}, "layout-name", "int"),
    (forward, {"epilogue": "selu"}, "epilogue-name", "selu"),
    (forward, {"epilogue": 3}, "epilogue-name", "int"),
    (forward, {"epilogue": "multiply"}, "epilogue-d-count", "0 D tensors"),
    (forward, {"target": "sm_90x"}, "arch-name", "sm_90x"),
    (forward, {"copy": "always"}, "copy-name", "always"),
    # fused work
    (forward, {"bias": array(3, (4,)), "ds": (OUT, DY)}, "epilogue-d-count", "2 D tensors"),
    (forward, {"ds": (DY, DY, DY)}, "epilogue-d-count", "3 D tensors"),
    (forward, {"ds": DY}, "ds-type", "tuple or list"),
    (forward, {"ds": (None,)}, "array-type", "leave it out"),
    (forward, {"bias": array(3, (4,)), "ds": (DY,), "epilogue": "multiply"}, "epilogue-bias", "added"),
    (forward, {"bias": array(3, (4,)).astype(np.float16)}, "dtype-d", "fp16"),
    (forward, {"bias": array(3, (4,)), "ds": (DY.astype(np.float16),)}, "d-dtype", "one dtype"),
    # memory
    (forward, {"out": READ_ONLY}, "out-read-only", "read-only"),
    (forward, {"out": np.broadcast_to(OUT[:1], Y)}, "out-read-only", "read-only"),
    (forward, {"out": np.lib.stride_tricks.as_strided(OUT, Y, (4, 4, 4, 4))}, "out-overlaps-itself", "share memory"),
    (data, {"out": X.view(), "dy": X.reshape(-1)[: DY.size].reshape(Y)}, "out-overlaps", "dy"),
    (forward, {"x": X.astype(">f4")}, "array-byte-order", "other order"),
]


@pytest.mark.parametrize(("function", "given", "rule", "said"), WRONG)
def test_a_mistake_has_its_error(function: Any, given: dict[str, Any], rule: str, said: str) -> None:
    with pytest.raises(TilewrightError) as caught:
        function(**given)
    assert caught.value.rule == rule, caught.value
    assert said in f"{caught.value.message} {caught.value.remedy}"
    assert caught.value.remedy


def test_nothing_is_written_by_a_call_that_fails() -> None:
    out = np.full(Y, np.nan, np.float32)
    with pytest.raises(TilewrightError):
        forward(out=out, stride=2)
    with pytest.raises(TilewrightError):
        forward(out=out, bias=array(3, (5,)))
    assert np.isnan(out).all()


def test_a_byte_order_is_mended_by_a_copy_that_is_allowed() -> None:
    assert np.array_equal(forward(x=X.astype(">f4"), copy="allow"), forward())


def test_a_result_that_is_written_records_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(X).requires_grad_(), torch.from_numpy(W)
    with pytest.raises(TilewrightError) as caught:
        tw.conv(x, w, out=torch.from_numpy(forward()))
    assert "gradient" in str(caught.value)
    assert tw.conv(x, w).requires_grad
    with torch.no_grad():
        assert np.array_equal(tw.conv(x, w).numpy(), forward())


@pytest.mark.parametrize("text", ["1:", ":1", "1:2:3", "0:1x", "x", "", "1.5", "1x1x1", "a:b"])
def test_padding_on_a_command_line_is_shown_as_it_was_written(text: str) -> None:
    layer = {"batch": 1, "channels": 4, "filters": 4, "size": "8x8", "window": "3"}
    with pytest.raises(TilewrightError) as found:
        op("conv").problem({**layer, "padding": text})
    assert found.value.rule == "option-value"
    assert repr(text) in found.value.message
    assert "before:after" in found.value.remedy


def test_padding_on_a_command_line_may_be_one_pair_or_one_a_dimension() -> None:
    layer = {"batch": 1, "channels": 4, "filters": 4, "size": "8x8", "window": "3"}
    for text, before, after in (("2", (2, 2), (2, 2)), ("0:1", (0, 0), (1, 1)), ("0:1x2:3", (0, 2), (1, 3))):
        made = op("conv").problem({**layer, "padding": text})
        assert (made.before, made.after) == (before, after)
