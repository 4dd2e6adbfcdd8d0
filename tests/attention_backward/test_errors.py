"""Every mistake in a call has one clear error, before anything is written: its rule, what is wrong, what would work."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import settings
from tilewright.dispatch.registry import Registry
from tilewright.errors import TilewrightError
from tilewright.ops import op
from tilewright.runtime import host

pytestmark = pytest.mark.usefixtures("needs_compiler")

RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal(one, np.float32) for one in ((2, 5, 4, 16), (2, 7, 2, 16), (2, 7, 2, 24)))
OUT, LSE = RNG.standard_normal((2, 5, 4, 24), np.float32), RNG.standard_normal((2, 4, 5), np.float32)
DOUT = RNG.standard_normal((2, 5, 4, 24), np.float32)
BIAS, SINK = np.zeros((1, 4, 5, 7), np.float32), np.zeros(4, np.float32)
READ_ONLY = np.empty_like(Q)
READ_ONLY.flags.writeable = False
SHARED = np.lib.stride_tricks.as_strided(np.empty((5, 4, 16), np.float32), Q.shape, (0, 256, 64, 4))
THREE_K, THREE_V = (np.concatenate([one, one[:, :, :1]], 2) for one in (K, V))  # heads of keys
OPERANDS = {"dout": DOUT, "q": Q, "k": K, "v": V, "out": OUT, "lse": LSE}


def backward(**more: Any) -> Any:
    operands = [more.pop(name, usual) for name, usual in OPERANDS.items()]
    return tw.attention_backward(*operands, **more)


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


# The call as its user knows it, not the stage that found the mistake.
CALL = "attention_backward fp32_h32x32 b=2 h=4/2 s=5x7 d=16/24"

CASES: list[tuple[str, dict[str, Any], str]] = [
    # A forward result of another call.
    ("forward-result", {"out": OUT[:, :4]}, "out has shape"),
    ("forward-result", {"dout": DOUT[..., :16]}, "dout has shape"),
    ("forward-result", {"lse": LSE.transpose(0, 2, 1)}, "lse is fp32 of shape"),
    ("forward-result", {"lse": LSE[:1]}, "lse is fp32 of shape"),
    ("forward-result", {"lse": LSE.astype(np.float16)}, "lse is fp16"),
    ("forward-result", {"dlse": LSE[:, :2]}, "dlse is fp32 of shape"),
    ("forward-result", {"out": OUT.transpose(0, 2, 1, 3), "dout": DOUT.transpose(0, 2, 1, 3)}, "out has shape"),
    ("dtype-mix", {"out": OUT.astype(np.float16)}, "out holds fp16 and q fp32"),
    ("dtype-mix", {"dout": DOUT.astype(ml_dtypes.bfloat16)}, "dout holds bf16"),
    ("dtype-mix", {"k": K.astype(np.float16), "v": V.astype(np.float16)}, "k holds fp16"),
    ("array-dtype", {"q": Q.astype(ml_dtypes.float8_e4m3fn)}, "has no gradients"),
    ("array-strides", {"lse": np.zeros((2, 4, 10), np.float32)[..., ::2]}, "lse"),
    ("array-strides", {"dout": np.zeros((2, 5, 4, 48), np.float32)[..., ::2]}, "dout"),
    ("array-type", {"lse": None}, "return_lse=True"),
    ("array-type", {"dout": None}, "dout is None, and the gradients need it"),
    ("window", {"window": (1, 2, 3)}, "its third element says how it is aligned"),
    ("array-type", {"dout": [1.0]}, "dout is a list"),
    ("array-type", {"dq": 1.0}, "np.asarray(dq, dtype=np.float32)"),
    ("array-type", {"attn_mask": 1.0}, "np.asarray(attn_mask, dtype=np.float32)"),
    # Dropout without its seed, and a seed that nothing reads.
    ("seed", {"dropout_p": 0.1}, "there is no seed"),
    ("seed", {"seed": 4}, "nothing reads it"),
    # What has no gradients.
    ("backward-forward-only", {"block_table": ints(0, 1)}, "block_table is given"),
    ("backward-forward-only", {"kv_scales": (1.0, 1.0)}, "kv_scales is given"),
    ("backward-forward-only", {"q_scale": 1.0}, "q_scale is given"),
    ("gradient-of", {"return_dbias": True}, "bias is not given"),
    ("gradient-of", {"return_dsink": True}, "sink is not given"),
    ("gradient-of", {"dalibi": np.empty(4, np.float32)}, "alibi_slopes is not given"),
    # Results.
    ("out-overlaps", {"dq": Q}, "dq shares memory with q"),
    ("out-overlaps", {"dk": K}, "dk shares memory with k"),
    ("out-overlaps", {"dq": DOUT.reshape(-1)[: Q.size].reshape(Q.shape)}, "dq shares memory with dout"),
    ("out-read-only", {"dq": READ_ONLY}, "read-only"),
    ("out-overlaps-itself", {"dq": SHARED}, "share memory"),
    ("shape-out", {"dk": np.empty_like(Q)}, "dk has shape"),
    ("out-dtype", {"dv": np.empty(V.shape, np.float16)}, "dv holds fp16"),
    ("out-dtype", {"bias": BIAS, "dbias": np.empty(BIAS.shape, np.float16)}, "dbias holds fp16"),
    ("shape-out", {"bias": BIAS, "dbias": np.empty((4, 5, 7), np.float32)}, "dbias has shape"),
    ("shape-out", {"sink": SINK, "dsink": np.empty(5, np.float32)}, "dsink has shape"),
    # As of the forward call.
    ("shape-batch", {"k": K[:1], "v": V[:1]}, "k has 1 sequences"),
    ("head-size", {"k": V, "v": V}, "heads of q have 16"),
    ("heads-divide", {"k": THREE_K, "v": THREE_V, "dk": None, "dv": None}, "not a multiple of 3 KV heads"),
    ("bias-shape", {"bias": np.zeros((3, 5, 7), np.float32)}, "does not broadcast"),
    ("bias-shape", {"attn_mask": np.zeros((3, 5, 7), np.float32)}, "attn_mask of shape (3, 5, 7) does not broadcast"),
    ("mask-shape", {"attn_mask": np.ones((3, 5, 7), bool)}, "attn_mask of shape (3, 5, 7) does not broadcast"),
    ("window", {"window": (1, 2, 3, 4)}, "window is"),
    ("sink", {"sink_tokens": 3}, "nothing reads it"),
    ("operand-values", {"seqlens_q": ints(5, 9)}, "seqlens_q holds a number that is out of range for " + CALL),
    ("operand-values", {"seqlens_k": ints(-1, 2)}, "seqlens_k holds a number that is out of range for " + CALL),
    ("causal", {"causal": "sideways"}, "causal is"),
    ("attention-switch", {"deterministic": 3.5}, "deterministic"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "more", "said"), CASES, ids=[f"{rule}-{at}" for at, (rule, *_) in enumerate(CASES)])
def test_a_mistake_is_one_clear_error_and_nothing_is_written(rule: str, more: dict[str, Any], said: str) -> None:
    before = {name: one.tobytes() for name, one in OPERANDS.items()}
    given = {name: np.full(one.shape, 7.0, np.float32) for name, one in (("dq", Q), ("dk", K), ("dv", V))}
    with pytest.raises(TilewrightError) as caught:
        backward(**{**given, **more})
    assert caught.value.rule == rule, caught.value
    assert said in str(caught.value)
    assert caught.value.remedy
    assert all((given[name] == 7.0).all() for name in given)
    assert before == {name: one.tobytes() for name, one in OPERANDS.items()}


def test_a_wrong_table_of_keys_is_found_before_the_gradient_of_sinks_is_written() -> None:
    """`dot`, which has tables of rows alone, writes it; at every call, not the first alone."""
    dsink = np.full(4, 7.0, np.float32)
    for lengths in (ints(-1, 2), ints(2, 2), ints(3, 99)):
        right = lengths.tolist() == [2, 2]
        with contextlib.nullcontext() if right else pytest.raises(TilewrightError, match="seqlens_k holds"):
            backward(sink=SINK, seqlens_k=lengths, dsink=dsink)
        assert (dsink == 7.0).all() != right
        dsink[:] = 7.0


def test_packed_sequences_have_both_tables() -> None:
    flat = {name: one.reshape(-1, *one.shape[2:]) for name, one in OPERANDS.items() if name != "lse"}
    with pytest.raises(TilewrightError) as caught:
        backward(**flat, lse=np.zeros((4, 10), np.float32), cu_seqlens_q=ints(0, 4, 10))
    assert caught.value.rule == "starts-both"


@pytest.mark.parametrize("table", ["bias", "alibi_slopes", "sink"])
def test_integers_have_no_gradients(table: str) -> None:
    """Tables of lengths and starts are asked for none; what is added to scores must be of floats."""
    shape = BIAS.shape if table == "bias" else (4,)
    name = {"bias": "dbias", "alibi_slopes": "dalibi", "sink": "dsink"}[table]
    with pytest.raises(TilewrightError) as caught:
        backward(**{table: np.zeros(shape, np.int32), f"return_{name}": True})
    assert "int32" in str(caught.value)
    assert "fp32" in caught.value.remedy


def test_results_that_share_memory_are_refused() -> None:
    both = np.empty_like(K)
    with pytest.raises(TilewrightError, match=r"shares memory with d[kv]") as caught:
        backward(v=K, out=OUT[..., :16], dout=DOUT[..., :16], dk=both, dv=both)
    assert caught.value.rule == "out-overlaps"


def test_out_and_lse_of_another_call_mean_what_they_say() -> None:
    """Which call made them nobody can tell: p is exp(s - lse), so a larger lse gives smaller weights."""
    out, lse = tw.attention(Q, K, V, return_lse=True)
    _, _, dv = backward(out=out, lse=lse)
    _, _, halved = backward(out=out, lse=lse + np.float32(np.log(2.0)))
    np.testing.assert_allclose(halved, dv / 2, rtol=1e-5, atol=1e-6)


def test_without_memory_for_the_workspace_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __mul__(self, count: int) -> Any:
            raise MemoryError(f"{count} bytes")

    q, k, v, dout = (np.ones((1, rows, 2, 32), np.float32) for rows in (61, 67, 67, 61))
    out, lse = tw.attention(q, k, v, return_lse=True)
    tw.attention_backward(dout, q, k, v, out, lse)  # its kernels are built and loaded
    results: dict[str, Any] = {
        name: np.full(one.shape, 7.0, np.float32) for name, one in (("dq", q), ("dk", k), ("dv", v))
    }
    monkeypatch.setattr(host, "_scratch", type(host._scratch)())
    monkeypatch.setattr(host, "ctypes", SimpleNamespace(c_char=Full(), addressof=ctypes.addressof))
    with pytest.raises(TilewrightError) as caught:
        tw.attention_backward(dout, q, k, v, out, lse, **results, scale=0.5)
    assert caught.value.rule == "memory"
    assert "workspace" in str(caught.value)
    assert all((one == 7.0).all() for one in results.values())


@pytest.mark.parametrize("change", [{}, {"heads_kv": 1}, {"varlen": True}])
def test_where_a_family_has_no_order_another_is_taken_or_strict_refuses(change: dict[str, Any]) -> None:
    """CK Tile's atomic sums have none: its deterministic kernel is taken, and without one what adds in order."""
    asked: dict[str, Any] = {"dtype": "bf16", "deterministic": True, "heads_kv": 4, **change}
    problem = tw.AttentionBackwardProblem(2, 4, 300, 300, 64, **asked)
    grad = Registry("gfx942").select(problem).stages[1]
    assert grad.spec.schedule.deterministic
    stage = next(each for each in op(problem.op).stages(problem, "gfx942") if each.family == "grad")
    atomic = next(each for each in op(problem.op).candidates(stage.signature, "gfx942")
                  if not each.schedule.deterministic)  # fmt: skip
    assert Registry("gfx942", [atomic]).select(stage).tier == "fallback"
    with settings.override(strict=True), pytest.raises(TilewrightError, match="atomic sums of dq have no order"):
        Registry("gfx942", [atomic]).select(stage)
