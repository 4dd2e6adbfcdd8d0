"""The gradients of attention on arrays: `attention_backward`.

    o, lse = tw.attention(q, k, v, causal=True, return_lse=True)
    dq, dk, dv = tw.attention_backward(do, q, k, v, o, lse, causal=True)

takes NumPy arrays, PyTorch's tensors or anything with DLPack.
"""

from __future__ import annotations

from typing import Any

from tilewright.api import registry_of
from tilewright.api.tensors import public, seen
from tilewright.errors import TilewrightError
from tilewright.runtime.bindings.attention.calls import mask_and_bias, say_attn_mask, scalars, sinks
from tilewright.runtime.bindings.attention_backward import BINDING, calls
from tilewright.runtime.calls import NEVER, caller
from tilewright.runtime.torch_arrays import must_be_seen

_CALLER = caller(BINDING.op)


def attention_backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    *,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    mask: Any = None,
    bias: Any = None,
    attn_mask: Any = None,
    alibi_slopes: Any = None,
    softcap: float | None = None,
    sink: Any = None,
    sink_tokens: int | None = None,
    dropout_p: float = 0.0,
    seed: Any = None,
    seqlens_q: Any = None,
    seqlens_k: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    block_table: Any = None,
    q_scale: Any = None,
    kv_scales: Any = None,
    kv_layout: str | None = None,
    layout: str = "bshd",
    dlse: Any = None,
    deterministic: bool = False,
    return_dbias: bool = False,
    return_dsink: bool = False,
    return_dalibi: bool = False,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    dsink: Any = None,
    dalibi: Any = None,
    copy: str = NEVER,
    target: str | None = None,
) -> tuple[Any, ...]:
    """The gradients (dq, dk, dv) of `attention(q, k, v, ...)`, whose result is `out` with `lse` (return_lse=True) and
    whose result's gradient is `dout`; with `return_dbias`, `return_dsink` and `return_dalibi` those of the bias, of the
    sink logits and of ALiBi's slopes follow, in this order and in fp32.

    Give the keywords of the forward call: masks, bias, soft cap, sinks, dropout with its seed, lengths and layouts mean
    the same (`attention`).  q, k, v, out and dout are of one type: fp32, fp16 or bf16.  `dlse` is the gradient of lse,
    of its shape, where it has one.  The gradient of a bias has its shape: it is added up over what it repeats along.

    Every element is written: gradients of rows and keys that no sequence has, and of rows that attend to no key, are 0.
    `deterministic` demands that every sum is added up in a fixed order, so that the same call gives the same bits; on
    CPUs that is always so.

    `dq`, `dk`, `dv`, `dbias`, `dsink` and `dalibi` are arrays that the gradients are written to, of their shapes and
    types; they overlap no operand.  Keys in pages (`block_table`) and fp8 have no gradients.
    """
    if attn_mask is not None:
        mask, bias = mask_and_bias(mask, bias, attn_mask)
    if sink is not None:
        sink, sink_tokens = sinks(sink, sink_tokens)
    registry, options = registry_of(q, target), None
    plain_call = block_table is None and q_scale is None and kv_scales is None
    if copy is NEVER and plain_call:
        seeds, numbers = scalars(scale, softcap, dropout_p, seed)
        options = (
            causal, window, sink_tokens, scale is None, softcap is None, seed is None, max_seqlen_q, max_seqlen_k,
            kv_layout, layout, deterministic, return_dbias, return_dsink, return_dalibi,
        )  # fmt: skip
        in_slots = (
            dout, q, k, v, out, lse, dlse, mask, bias, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, seqlens_q,
            seqlens_k, seeds, None, None, None, None, None, dq, dk, dv, dbias, dsink, dalibi,
        )  # fmt: skip
        done: tuple[Any, ...] | None = _CALLER.attempt(registry, in_slots, numbers, options)
        if done is not None:
            return done
    keywords: dict[str, Any] = {
        "causal": causal, "window": window, "scale": scale, "mask": mask, "bias": bias, "alibi_slopes": alibi_slopes,
        "softcap": softcap, "sink": sink, "sink_tokens": sink_tokens, "dropout_p": dropout_p, "seed": seed,
        "seqlens_q": seqlens_q, "seqlens_k": seqlens_k, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k,
        "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k, "block_table": block_table, "q_scale": q_scale,
        "kv_scales": kv_scales, "kv_layout": kv_layout, "layout": layout, "dlse": dlse, "deterministic": deterministic,
        "return_dbias": return_dbias, "return_dsink": return_dsink, "return_dalibi": return_dalibi, "dq": dq, "dk": dk,
        "dv": dv, "dbias": dbias, "dsink": dsink, "dalibi": dalibi,
    }  # fmt: skip
    if must_be_seen((dout, q, k, v, out, lse, dlse, mask, bias, alibi_slopes, sink, dq, dk, dv)):
        differentiated: tuple[Any, ...] = seen(
            "attention_backward", dout, q, k, v, out, lse, **keywords, copy=copy, target=target
        )
        return differentiated
    try:
        operands, scalar_values, attributes = calls.backward(dout, q, k, v, out, lse, **keywords, attn_mask=None)
        gradients: tuple[Any, ...] = _CALLER.run_slow(registry, operands, scalar_values, attributes, copy, options)
        return gradients
    except TilewrightError as error:
        say_attn_mask(error, attn_mask, bias)
        raise


_CALLER.front(
    attention_backward, dout="dout", q="q", k="k", v="v", out="out", lse="lse", mask="mask", bias="bias",
    attn_mask=None, alibi_slopes="alibi_slopes", sink="sink", seed=None, seqlens_q="seqlens_q", seqlens_k="seqlens_k",
    cu_seqlens_q="cu_seqlens_q", cu_seqlens_k="cu_seqlens_k", block_table=None, q_scale=None, kv_scales=None,
    dlse="dlse", dq="dq", dk="dk", dv="dv", dbias="dbias", dsink="dsink", dalibi="dalibi", copy=None, target=None,
)  # fmt: skip
public(attention_backward)
