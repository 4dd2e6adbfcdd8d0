"""Every mistake in a call has one clear error, before anything is written: its rule, what is wrong, what would work."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import TilewrightError

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
    ("window", {"window": (1, 2, 3)}, "its third element says where it lies"),
    ("array-type", {"dout": [1.0]}, "dout is a list"),
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
    ("heads-divide", {"k": THREE_K, "v": THREE_V, "dk": None, "dv": None}, "evenly"),
    ("bias-shape", {"bias": np.zeros((3, 5, 7), np.float32)}, "does not broadcast"),
    ("window", {"window": (1, 2, 3, 4)}, "window is"),
    ("sink", {"sink_tokens": 3}, "nothing reads it"),
    ("operand-values", {"seqlens_q": ints(5, 9)}, "seqlens_q holds"),
    ("operand-values", {"seqlens_k": ints(-1, 2)}, "seqlens_k holds"),
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


def test_packed_sequences_have_both_tables() -> None:
    flat = {name: one.reshape(-1, *one.shape[2:]) for name, one in OPERANDS.items() if name != "lse"}
    with pytest.raises(TilewrightError) as caught:
        backward(**flat, lse=np.zeros((4, 10), np.float32), cu_seqlens_q=ints(0, 4, 10))
    assert caught.value.rule == "starts-both"
