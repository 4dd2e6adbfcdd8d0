"""The node tests of ONNX for Conv, ConvTranspose (through backward-data) and ConvInteger."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.onnx_nodes import cases, data_sets, onnx

pytestmark = pytest.mark.usefixtures("floor")

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, int], ...]
OPS = ("Conv", "ConvTranspose", "ConvInteger")
CASES = [pytest.param(case, model.graph.node[0], id=case.name) for case, model in cases("conv", *OPS)]


def _automatic(kind: str, sizes: Any, reach: Any, stride: Any) -> Pairs:
    """SAME_UPPER and SAME_LOWER: as many outputs as whole strides, what is odd of the padding at that end."""
    found = []
    for size, span, step in zip(sizes, reach, stride, strict=True):
        total = max(0, (-(-size // step) - 1) * step + span - size)
        small, large = total // 2, total - total // 2
        found.append((small, large) if kind == "SAME_UPPER" else (large, small))
    return tuple(found)


class Node:
    """What a node says, with ONNX's defaults."""

    def __init__(self, node: Any, rank: int, window: tuple[int, ...]) -> None:
        named = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        self.stride = tuple(named.get("strides", (1,) * rank))
        self.dilation = tuple(named.get("dilations", (1,) * rank))
        self.groups = named.get("group", 1)
        self.auto = named.get("auto_pad", b"NOTSET").decode()
        self.reach = tuple((one - 1) * step + 1 for one, step in zip(window, self.dilation, strict=True))
        pads = tuple(named.get("pads", (0,) * 2 * rank))
        self.padding: Pairs = tuple(zip(pads[:rank], pads[rank:], strict=True))
        self.more = tuple(named.get("output_padding", (0,) * rank))
        self.shape = tuple(named.get("output_shape", ()))

    def keywords(self, padding: Pairs) -> dict[str, Any]:
        return {"stride": self.stride, "dilation": self.dilation, "groups": self.groups, "padding": padding,
                "layout": "nchw"}  # fmt: skip


def convolve(node: Any, inputs: list[Array]) -> Any:
    x, w, *rest = inputs
    if node.op_type == "ConvInteger":  # kernels multiply int8, and these numbers fit
        zeros = [one.astype(np.int32) for one in rest] + [np.zeros((), np.int32)] * (2 - len(rest))
        zeros[1] = zeros[1].reshape(-1, *(1,) * (w.ndim - 1))  # one a filter, or one for all
        x, w = ((one.astype(np.int32) - zero).astype(np.int8) for one, zero in zip((x, w), zeros, strict=True))
        rest = []
    said = Node(node, x.ndim - 2, w.shape[2:])
    if node.op_type == "ConvTranspose":
        return transpose(said, x, w, *rest)
    padding = said.padding
    if said.auto.startswith("SAME"):
        padding = _automatic(said.auto, x.shape[2:], said.reach, said.stride)
    return tw.conv(x, w, *rest, **said.keywords(padding))


def transpose(said: Node, x: Array, w: Array, bias: Array | None = None) -> Any:
    """The gradient for the input of a convolution whose filters are x's channels."""
    triples = list(zip(x.shape[2:], said.stride, said.reach, said.more, strict=True))
    whole = [step * (size - 1) + more + span for size, step, span, more in triples]
    padding = said.padding
    sizes = tuple(one - sum(pair) for one, pair in zip(whole, padding, strict=True))
    if said.shape or said.auto.startswith("SAME"):
        sizes = said.shape or tuple(size * step for size, step, *_ in triples)
        totals = [max(0, one - size) for one, size in zip(whole, sizes, strict=True)]
        halves = [(one // 2, one - one // 2) for one in totals]
        padding = tuple(pair if said.auto == "SAME_UPPER" else pair[::-1] for pair in halves)
    shape = (x.shape[0], w.shape[1] * said.groups, *sizes)
    found = tw.conv_backward_data(x, w, shape, **said.keywords(padding))
    return found if bias is None else found + bias.reshape(-1, *(1,) * len(sizes))


@pytest.mark.parametrize(("case", "node"), CASES)
def test_a_node_of_onnx(case: Any, node: Any) -> None:
    for inputs, (expected,) in data_sets(case):
        result = convolve(node, inputs)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_there_are_such_nodes() -> None:
    """The loader changes from version to version: none found would pass for all right."""
    names = [one.id for one in CASES]
    for op, least in (("test_convinteger", 2), ("test_convtranspose", 8), ("test_basic_conv", 2)):
        assert sum(str(name).startswith(op) for name in names) >= least, (op, names)
