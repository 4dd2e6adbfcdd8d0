"""`tw.attention_backward` on arrays, as users call it: every feature of the forward call, from its own results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import settings
from tilewright.ops.attention_backward import AttentionBackwardProblem, reference
from tilewright.ops.attention_scores import Numbers
from tilewright.ops.numerics import after_rounding, compare
from tilewright.runtime import calls, fast_path

pytestmark = pytest.mark.usefixtures("needs_compiler")

RNG = np.random.default_rng(3)
backward: Any = tw.attention_backward  # keywords of tests are dictionaries
KINDS = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def random(*shape: int, dtype: str = "fp32") -> Any:
    return RNG.standard_normal(shape, np.float32).astype(KINDS[dtype])


def qkv(dtype: str = "fp32", rows: int = 13, keys: int = 21) -> tuple[Any, Any, Any]:
    return random(2, rows, 4, 24, dtype=dtype), random(2, keys, 2, 24, dtype=dtype), random(2, keys, 2, 40, dtype=dtype)


# Keywords of both calls, fields of the problem, and what is asked for.
FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "plain": ({}, {}, ()),
    "causal": ({"causal": True}, {"window_right": 0}, ()),
    "bottom right": ({"causal": "bottom_right", "scale": 0.3}, {"window_right": 0, "align": "bottom_right"}, ()),
    "window": ({"window": (4, 2), "sink_tokens": 2}, {"window_left": 4, "window_right": 2, "sink_tokens": 2}, ()),
    "cap": ({"softcap": 2.0}, {"softcap": True}, ()),
    "mask": ({"mask": RNG.random((2, 1, 13, 21)) < 0.7}, {"mask_shape": (2, 1, 13, 21)}, ()),
    "bias": ({"bias": random(4, 1, 21)}, {"bias": "tensor", "bias_shape": (1, 4, 1, 21)}, ("dbias",)),
    "slopes": ({"alibi_slopes": RNG.random(4).astype(np.float32)}, {"bias": "alibi"}, ("dalibi",)),
    "sinks": ({"sink": random(4)}, {}, ("dsink",)),
    "dropout": ({"dropout_p": 0.25, "seed": (11, 5)}, {"dropout": True}, ()),
    "lengths": (
        {"seqlens_q": np.array([13, 6], np.int32), "seqlens_k": np.array([20, 3], np.int32)},
        {"seqlens_q": True, "seqlens_k": True}, (),
    ),
}  # fmt: skip


@pytest.mark.sampled(len(FEATURES) + 1)  # every feature, and every type
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("feature", FEATURES)
def test_gradients_of_a_forward_call(feature: str, dtype: str) -> None:
    """Within the bound of what the forward call gave: out and lse are operands of the gradients."""
    keywords, fields, asked = FEATURES[feature]
    q, k, v = qkv(dtype)
    out, lse = tw.attention(q, k, v, return_lse=True, **keywords)
    dout, dlse = random(2, 13, 4, 40, dtype=dtype), random(2, 4, 13)
    made = backward(dout, q, k, v, out, lse, dlse=dlse, **{f"return_{name}": True for name in asked}, **keywords)
    more: dict[str, Any] = {**fields, **dict.fromkeys(asked, True)}
    p = AttentionBackwardProblem(2, 4, 13, 21, 24, 2, 40, dtype=dtype, dlse=True, **more)
    scale, seed = keywords.get("scale", 24**-0.5), keywords.get("seed", (0, 0))
    numbers = Numbers(scale, keywords.get("softcap", 0.0), keywords.get("dropout_p", 0.0), *seed)
    given = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout, "dlse": dlse, **keywords}
    exact = reference.gradients(p, given, numbers)
    for name, got in zip(("dq", "dk", "dv", *asked), made, strict=True):
        value, bound = exact[name]
        kind = dtype if name in ("dq", "dk", "dv") else "fp32"
        if name == "dalibi":
            value, bound = value.sum(0), bound.sum(0)
        check = compare(got, value.reshape(got.shape), after_rounding(kind, value, bound).reshape(got.shape), kind)
        assert check.ok, (name, check.detail)


def test_heads_first_and_packed_sequences_are_the_same_gradients() -> None:
    q, k, v = random(2, 9, 4, 16), random(2, 12, 2, 16), random(2, 12, 2, 16)
    out, lse = tw.attention(q, k, v, causal=True, return_lse=True)
    dout = random(*out.shape)
    plain = backward(dout, q, k, v, out, lse, causal=True)
    turned = [np.ascontiguousarray(one.transpose(0, 2, 1, 3)) for one in (dout, q, k, v, out)]
    heads_first = backward(*turned, lse, causal=True, layout="bhsd")
    for one, other in zip(plain, heads_first, strict=True):
        assert np.array_equal(one, other.transpose(0, 2, 1, 3))
    views = [one.transpose(0, 2, 1, 3) for one in (dout, q, k, v, out)]
    assert np.array_equal(backward(*views, lse, causal=True, layout="bhsd")[0], heads_first[0])
    flat = [one.reshape(-1, *one.shape[2:]) for one in (dout, q, k, v, out)]
    starts: dict[str, Any] = {
        "cu_seqlens_q": np.array([0, 9, 18], np.int32),
        "cu_seqlens_k": np.array([0, 12, 24], np.int32),
    }
    logs = np.ascontiguousarray(lse.transpose(1, 0, 2).reshape(4, 18))
    packed = backward(*flat, logs, causal=True, **starts)
    for one, other in zip(plain, packed, strict=True):
        assert np.array_equal(one.reshape(other.shape), other)


def test_what_no_sequence_has_is_zero() -> None:
    """Rows behind a sequence's last, gaps between packed ones, rows that see nothing; what lies there may be NaN."""
    q, k, v = random(11, 2, 16), random(12, 2, 16), random(12, 2, 16)
    starts_q, starts_k = np.array([2, 6, 6, 9], np.int32), np.array([0, 0, 5, 9], np.int32)
    lengths = {"seqlens_q": np.array([3, 0, 3], np.int32), "seqlens_k": np.array([0, 4, 4], np.int32)}
    tables: dict[str, Any] = {"cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k, **lengths}
    out, lse = tw.attention(q, k, v, return_lse=True, **tables)
    used_q, used_k = [6, 7, 8], [5, 6, 7, 8]
    spare_q = [at for at in range(11) if at not in (2, 3, 4, *used_q)]
    spare_k = [at for at in range(12) if at not in (0, 1, 2, 3, *used_k)]
    dout = random(*out.shape)
    for one in (q, out, dout):
        one[spare_q] = np.nan
    for one in (k, v):
        one[spare_k] = np.nan
    lse[:, spare_q] = np.nan
    dq, dk, dv = backward(dout, q, k, v, out, lse, **tables)
    assert (dq[[at for at in range(11) if at not in used_q]] == 0).all(), "rows 2 to 4 see no key"
    for one in (dk, dv):
        assert (one[[at for at in range(12) if at not in used_k]] == 0).all(), "keys 0 to 3 have no row"
        assert np.isfinite(one).all()
        assert (one[used_k] != 0).all()
    assert np.isfinite(dq).all()


@pytest.mark.parametrize("masked", [False, True])
def test_a_bias_longer_than_every_sequence_has_zeros_behind(masked: bool) -> None:
    """A bound of all calls (`max_seqlen`) may be longer than what this one has, and bias and mask of its size."""
    q, k, v, bias = random(11, 2, 16), random(11, 2, 16), random(11, 2, 16), random(1, 2, 20, 24)
    starts = np.array([0, 4, 11], np.int32)
    tables: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 20, "max_seqlen_k": 24}
    if masked:
        tables["mask"] = np.tri(20, 24, dtype=np.bool_)[None, None]
    out, lse = tw.attention(q, k, v, bias=bias, return_lse=True, **tables)
    dout = random(*out.shape)
    *_, dbias = backward(dout, q, k, v, out, lse, bias=bias, return_dbias=True, **tables)
    short = {**tables, "max_seqlen_q": 7, "max_seqlen_k": 7, "bias": np.ascontiguousarray(bias[..., :7, :7])}
    if masked:
        short["mask"] = np.ascontiguousarray(tables["mask"][..., :7, :7])
    *_, expected = backward(dout, q, k, v, out, lse, return_dbias=True, **short)
    assert dbias.shape == bias.shape
    np.testing.assert_allclose(dbias[..., :7, :7], expected, rtol=1e-5, atol=1e-6)
    assert (dbias[..., 7:, :] == 0).all()
    assert (dbias[..., 7:] == 0).all()


@pytest.mark.parametrize("sizes", [(0, 5, 7), (2, 0, 7), (2, 5, 0), (2, 0, 0)])
def test_sizes_of_nothing(sizes: tuple[int, int, int]) -> None:
    batch, rows, keys = sizes
    q, k = np.ones((batch, rows, 4, 8), np.float32), np.ones((batch, keys, 2, 8), np.float32)
    out, lse = tw.attention(q, k, k, return_lse=True)
    bias = np.zeros((1, 1, rows, keys), np.float32)
    made = backward(out, q, k, k, out, lse, bias=bias, return_dbias=True, dbias=np.ones_like(bias))
    assert [one.shape for one in made] == [q.shape, k.shape, k.shape, bias.shape]
    assert all((one == 0).all() for one in made)


def test_the_second_call_goes_the_short_way_into_given_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    if fast_path.library() is None:
        pytest.skip("there is no fast path without a compiler")
    q, k, v = qkv()
    out, lse = tw.attention(q, k, v, causal=True, return_lse=True)
    given: dict[str, Any] = {name: np.empty_like(one) for name, one in (("dq", q), ("dk", k), ("dv", v))}
    sink: dict[str, Any] = {"sink": random(4), "dsink": np.empty(4, np.float32)}
    first = backward(out, q, k, v, out, lse, causal=True)
    backward(out, q, k, v, out, lse, causal=True, **given, **sink)

    def long_way(*_arguments: Any) -> Any:
        raise AssertionError("the long way")

    monkeypatch.setattr(calls.Caller, "run_slow", long_way)
    again = backward(out, q, k, v, out, lse, causal=True)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    into = backward(out, q, k, v, out, lse, causal=True, **given, **sink)
    assert [id(one) for one in into] == [id(one) for one in (*given.values(), sink["dsink"])]
    assert all(np.array_equal(one, other) for one, other in zip(first, into, strict=False))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_same_bits_on_any_number_of_threads(dtype: str) -> None:
    """Keys in parts too: few heads, many keys."""
    q, k, v = (
        random(1, 300, 2, 32, dtype=dtype),
        random(1, 1100, 1, 32, dtype=dtype),
        random(1, 1100, 1, 32, dtype=dtype),
    )
    bias = random(1, 1, 300, 1100)
    out, lse = tw.attention(q, k, v, bias=bias, return_lse=True)
    found = []
    for threads in (1, 2, 3, 8):
        with settings.override(threads=threads):
            for _ in range(2):
                found.append(backward(out, q, k, v, out, lse, bias=bias, return_dbias=True, deterministic=True))
    for made in found[1:]:
        assert all(one.tobytes() == other.tobytes() for one, other in zip(found[0], made, strict=True))


class Exported:
    """An array of another library: DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_arrays_of_other_libraries() -> None:
    q, k, v = qkv()
    out, lse = tw.attention(q, k, v, return_lse=True)
    plain = backward(out, q, k, v, out, lse)
    other = backward(*(Exported(one) for one in (out, q, k, v, out, lse)))
    for one, made in zip(plain, other, strict=True):
        assert np.array_equal(one, np.asarray(made))


@pytest.mark.parametrize("name", ["dlse", "sink"])
def test_dlse_and_dsink_by_finite_differences(name: str) -> None:
    """Of the public forward call itself, in fp32."""
    q, k, v = (0.5 * one for one in qkv())
    sink = random(4)
    weights, dout = random(2, 4, 13), np.zeros((2, 13, 4, 40), np.float32)
    if name == "sink":
        dout = random(2, 13, 4, 40)

    def loss() -> float:
        out, lse = tw.attention(q, k, v, sink=sink, return_lse=True)
        return float((out.astype(np.float64) * dout).sum() + (lse.astype(np.float64) * weights).sum())

    out, lse = tw.attention(q, k, v, sink=sink, return_lse=True)
    dq, dk, dv, dsink = backward(dout, q, k, v, out, lse, sink=sink, dlse=weights, return_dsink=True)
    if name == "dlse":
        assert (dv == 0).all(), "lse does not depend on values"
    for array, gradient in ((q, dq), (k, dk), (sink, dsink)):
        for place in [(0,) * array.ndim, tuple(size // 2 for size in array.shape), tuple(-1 for _ in array.shape)]:
            kept, step = array[place], np.float32(0.02)
            array[place] = kept + step
            above = loss()
            array[place] = kept - step
            below = loss()
            array[place] = kept
            difference = (above - below) / (2 * float(step))
            assert abs(difference - gradient[place]) < 2e-3 * (1 + abs(difference)), (array.shape, place)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("rows", [13, 1])
def test_dlse_of_a_row_that_sees_nothing_goes_nowhere(rows: int, dtype: str, value: float) -> None:
    """lse of such a row is minus infinity, and its gradient often NaN: 0 times infinity in what was computed of it."""
    q, k, v = qkv(dtype, rows=rows)
    mask = np.ones((2, 1, rows, 21), bool)
    mask[0, :, rows // 2] = False
    sink = random(4)
    for more in ({}, {"return_dsink": True}):
        keywords: dict[str, Any] = {"mask": mask} if not more else {"seqlens_k": np.array([0, 21], np.int32)}
        out, lse = tw.attention(q, k, v, return_lse=True, **keywords)
        assert np.isneginf(lse).any()
        dout, dlse = random(2, rows, 4, 40, dtype=dtype), random(2, 4, rows)
        asked = {**keywords, "return_dsink": True, "sink": sink} if more else keywords
        exact = backward(dout, q, k, v, out, lse, dlse=dlse, **asked)
        made = backward(dout, q, k, v, out, lse, dlse=np.where(np.isneginf(lse), np.float32(value), dlse), **asked)
        for one, wanted in zip(made, exact, strict=True):
            assert np.isfinite(one.astype(np.float32)).all()
            assert np.array_equal(one, wanted)
        unseen = np.isneginf(lse).transpose(0, 2, 1)
        assert (made[0][unseen] == 0).all()
