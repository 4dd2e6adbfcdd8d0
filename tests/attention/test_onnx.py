"""The node tests of ONNX for Attention: heads in groups, different sizes, caches, masks, windows, caps, padded keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.onnx_nodes import cases, data_sets, onnx

pytestmark = pytest.mark.usefixtures("floor", "needs_compiler")

Array = np.ndarray[Any, Any]
CASES = [pytest.param(case, model.graph.node[0], id=case.name) for case, model in cases("test_attention", "Attention")]


class Node:
    """A node and its operands by name."""

    def __init__(self, node: Any, inputs: list[Array]) -> None:
        self.said = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
        names = ("q", "k", "v", "mask", "past_k", "past_v", "lengths")
        given = [name for name, there in zip(names, node.input, strict=False) if there]
        self.arrays = dict(zip(given, inputs, strict=True))

    def heads(self, name: str) -> Array:
        """(batch, rows, heads, size), however the node has it; no copy where it has heads."""
        array = self.arrays[name]
        if array.ndim == 4:
            return array.transpose(0, 2, 1, 3)
        heads = self.said["q_num_heads" if name == "q" else "kv_num_heads"]
        return array.reshape(*array.shape[:2], heads, -1)


def _present(node: Node) -> dict[str, Array]:
    """Keys and values behind those of a cache, by `append_kv`."""
    new = {name: node.heads(name) for name in "kv"}
    if "past_k" not in node.arrays:
        return new
    past = node.arrays["past_k"].shape[2]
    caches = {}
    for name in "kv":
        old = node.arrays[f"past_{name}"].transpose(0, 2, 1, 3)
        caches[name] = np.concatenate([old, np.full(new[name].shape, np.nan, old.dtype)], 1)
    lengths = np.full(len(new["k"]), past, np.int32)
    tw.append_kv(
        caches["k"], caches["v"], np.ascontiguousarray(new["k"]), np.ascontiguousarray(new["v"]), cache_seqlens=lengths
    )
    return caches


def _window(node: Node, keys: int) -> dict[str, Any]:
    """Causal or not, and a window, behind what is cached: as many rows ahead as the past has, whatever is new."""
    said, rows = node.said, node.heads("q").shape[1]
    left, right = said.get("left_window_size", -1), said.get("right_window_size", -1)
    if said.get("is_causal"):
        right = 0
    if max(left, right) < 0:
        return {}
    past = node.arrays["past_k"].shape[2] if "past_k" in node.arrays else 0
    if "lengths" in node.arrays or past == keys - rows:
        return {"window": (left, right, "bottom_right")}
    if not past:
        return {"window": (left, right)}
    # Rows that lie neither at the first key nor at the last: counted from the first, the left bound as a mask.
    found: dict[str, Any] = {"window": (-1, past + right if right >= 0 else -1)}
    if left >= 0 and "mask" not in node.arrays:
        found["mask"] = np.arange(keys)[None] >= np.arange(rows)[:, None] + past - left
    return found


def attend(node: Node) -> tuple[Array, dict[str, Array]]:
    said, arrays = node.said, node.arrays
    q, both = node.heads("q"), _present(node)
    keywords: dict[str, Any] = {"softcap": said.get("softcap") or None, "scale": said.get("scale")}
    keywords |= _window(node, both["k"].shape[1])
    if "lengths" in arrays:
        keywords["seqlens_k"] = arrays["lengths"].astype(np.int32)
    if "mask" in arrays:
        mask, keys = arrays["mask"], both["k"].shape[1]
        kind = "mask" if mask.dtype == np.bool_ else "bias"
        fill = False if kind == "mask" else -np.inf
        if mask.ndim == 1:
            mask = mask[None]
        keywords[kind] = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])], constant_values=fill)
    out = tw.attention(q, both["k"], both["v"], **keywords)
    return out, both


# Half of the last place of a result, and what the node's own rounding between its steps loses.
NEAR = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 4e-2}


@pytest.mark.parametrize(("case", "raw"), CASES)
def test_a_node_of_onnx(case: Any, raw: Any) -> None:
    for inputs, outputs in data_sets(case):
        node = Node(raw, inputs)
        if node.arrays["q"].dtype == np.float64:
            pytest.skip("float64 is computed by no kernel")
        out, both = attend(node)
        wanted = dict(zip([one for one in raw.output if one], outputs, strict=False))
        want = wanted[raw.output[0]]
        got = out.transpose(0, 2, 1, 3) if want.ndim == 4 else out.reshape(want.shape)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        near = NEAR[want.dtype.name]
        assert np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=near, atol=near)
        for name, present in zip("kv", raw.output[1:3], strict=False):
            if present:
                assert (both[name].transpose(0, 2, 1, 3) == wanted[present]).all()


def test_there_are_such_nodes() -> None:
    """The loader changes from version to version: none found would pass for all right."""
    names = [str(one.id) for one in CASES]
    if not names:
        pytest.skip(f"onnx {onnx.__version__} has no Attention")
    assert len(names) >= 20, names
    for word in ("gqa", "diff_heads", "past_and_present", "causal", "softcap", "mask"):
        assert any(word in name for name in names), word
