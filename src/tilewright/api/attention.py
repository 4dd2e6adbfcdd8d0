"""Attention on arrays: `attention`, and `append_kv` for caches of keys and values.

`tw.attention(q, k, v, causal=True)` takes NumPy arrays, PyTorch's tensors or anything with DLPack.
`print(tw.explain(tw.AttentionProblem(1, 32, 4096, 4096, 128, window_right=0)))` says what would run.
"""

from __future__ import annotations

from typing import Any

from tilewright.api import registry_for, target_of
from tilewright.runtime.bindings.attention import BINDING, calls
from tilewright.runtime.calls import NEVER, caller

_CALLER = caller(BINDING.op)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    mask: Any = None,
    bias: Any = None,
    alibi: Any = None,
    softcap: float | None = None,
    sink: Any = None,
    dropout: float = 0.0,
    seed: Any = None,
    lengths_q: Any = None,
    lengths_k: Any = None,
    starts_q: Any = None,
    starts_k: Any = None,
    longest_q: int | None = None,
    longest_k: int | None = None,
    page_table: Any = None,
    page_size: int | None = None,
    kv_layout: str | None = None,
    q_scale: Any = None,
    kv_scales: Any = None,
    scale_block: int | None = None,
    splits: int | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    out: Any = None,
    out_dtype: Any = None,
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """o = dropout(softmax(cap(scale q.k) + bias)) v, of the keys each row sees; (o, lse) with `return_lse`.

    `layout` "bshd": q is (B, Sq, Hq, D), k (B, Sk, Hkv, D), v (B, Sk, Hkv, Dv), o (B, Sq, Hq, Dv); "bhsd" has heads
    before rows.  Any strides will do where the last dimension is contiguous.  Hkv divides Hq, and heads of q share
    those of k in order.  fp32, fp16, bf16 or fp8 (e4m3); with fp16 and bf16 queries k and v may be fp8.  o has the
    dtype of `out`, else `out_dtype`, else of q (bf16 for fp8).  `scale` is 1 / sqrt(D) where not given.

    What a row sees: `causal` True or "top_left" (row i sees keys up to i, as PyTorch aligns it) or "bottom_right" (up
    to i + Sk - Sq, as FlashAttention does); `window` (left, right) around that place, None or -1 for no bound.  `sink`:
    a number of first keys that a window does not hide, an array of one more logit a head (without a value), or both as
    a pair.  `mask` is boolean, True where a key is seen; `bias` is added to scores; both broadcast to (B, Hq, Sq, Sk).
    `alibi` has slopes (Hq,) or (B, Hq).  `softcap` c makes scores c tanh(s / c), before the bias.  A row that sees
    nothing is 0, its lse minus infinity.

    `dropout` with `seed`, (seed, offset), or an array of both (two of int64): the same entries are dropped on every
    target (include/tilewright/philox.h says which).

    Lengths: `lengths_q` and `lengths_k` (int32, B) say how many rows of padded arrays count; with `starts_q` and
    `starts_k` (int32, B + 1) sequences lie one behind the other, in arrays without the dimension B, and lse is (Hq,
    rows).  `longest_q` and `longest_k` say how long the longest is, where it is known.

    Pages: `page_table` is a block table (B, pages of a sequence) of int32, with `lengths_k`; or (indptr, indices, last
    page lengths).  k and v are then pools of pages, by `kv_layout` "linear" (pages, page, Hkv, D), "heads_first"
    (pages, Hkv, page, D) or "vectorised" (with 16 bytes innermost; docs/attention.md).

    fp8: `q_scale` and `kv_scales` (k_scale, v_scale) multiply what the arrays hold: one number, one a head, or one for
    each head and `scale_block` rows.  `splits` is chosen by rule where not given.
    """
    registry, options = registry_for(target_of(q, target)), None
    if copy is NEVER:
        plain = scale is None and softcap is None and seed is None and type(dropout) is float and not dropout
        seeds, numbers = (None, calls.PLAIN) if plain else calls.scalars(scale, softcap, dropout, seed)
        sink_keys, logits = (None, None) if sink is None else calls.sinks(sink)
        table, indptr, last = (page_table, None, None) if type(page_table) is not tuple else calls.pages(page_table)
        of_q = None if q_scale is None else calls.scale_of("q_scale", q_scale, q)
        k_scale, v_scale = (None, None) if kv_scales is None else calls.scales(k, kv_scales)
        options = (
            "forward", causal, window, sink_keys, scale is None, softcap is None, seed is None, page_size, longest_q,
            longest_k, kv_layout, scale_block, splits, layout, return_lse, out_dtype,
        )  # fmt: skip
        in_slots = (
            q, k, v, mask, bias, alibi, logits, starts_q, starts_k, lengths_q, lengths_k, None, None, table, indptr,
            last, of_q, k_scale, v_scale, seeds, None, None, None, None, out,
        )  # fmt: skip
        done = _CALLER.attempt(registry, in_slots, numbers, options)
        if done is not None:
            return done
    operands, scalars, attributes = calls.forward(
        q, k, v, causal=causal, window=window, scale=scale, mask=mask, bias=bias, alibi=alibi, softcap=softcap,
        sink=sink, dropout=dropout, seed=seed, lengths_q=lengths_q, lengths_k=lengths_k, starts_q=starts_q,
        starts_k=starts_k, longest_q=longest_q, longest_k=longest_k, page_table=page_table, page_size=page_size,
        kv_layout=kv_layout, q_scale=q_scale, kv_scales=kv_scales, scale_block=scale_block, splits=splits,
        layout=layout, return_lse=return_lse, out=out, out_dtype=out_dtype,
    )  # fmt: skip
    return _CALLER.run_long(registry, operands, scalars, attributes, copy, options)


def append_kv(
    cache_k: Any,
    cache_v: Any,
    k: Any,
    v: Any,
    *,
    lengths: Any,
    lengths_new: Any = None,
    page_table: Any = None,
    kv_layout: str | None = None,
    rotary: tuple[Any, Any, str] | None = None,
    kv_scales: Any = None,
    scale_block: int | None = None,
    q: Any = None,
    q_out: Any = None,
    layout: str = "bshd",
    copy: str = NEVER,
    target: str | None = None,
) -> Any:
    """Write new rows of k and v behind the `lengths` (int32, B) that each sequence of a cache holds.

    k is (B, rows, Hkv, D) and v (B, rows, Hkv, Dv), or heads first with layout "bhsd"; of `lengths_new` rows where
    given. The caches are (B, room, Hkv, D), or pools of pages with a block `page_table` (B, pages), as `attention`
    takes them. With `rotary` (cos, sin, "interleaved" or "half") k is turned by its place in the sequence, and so is
    `q` where given: (B, rows, Hq, D), a query for each new key.  cos and sin have a row for each place and a column for
    each pair.

    Rows have the type of the cache, or are fp32, fp16 or bf16 and the cache is fp8: it then holds them over their
    `kv_scales` (k_scale, v_scale), which `attention` takes in the same shapes, rounded, and cut at the largest number.

    (cache_k, cache_v), or (cache_k, cache_v, q turned); `q_out` may be q itself.
    """
    registry, options = registry_for(target_of(cache_k, target)), None
    if copy is NEVER:
        cos, sin, kind = rotary if isinstance(rotary, (tuple, list)) and len(rotary) == 3 else (None, None, None)
        k_scale, v_scale = (None, None) if kv_scales is None else calls.scales(cache_k, kv_scales)
        options = ("append", kind, rotary is None, kv_layout, scale_block, layout)
        in_slots = (
            q, k, v, None, None, None, None, None, None, None, None, lengths, lengths_new, page_table, None, None, None,
            k_scale, v_scale, None, cos, sin, None, None, None, None, None, None, cache_k, cache_v, q_out,
        )  # fmt: skip
        done = _CALLER.attempt(registry, in_slots, calls.PLAIN, options)
        if done is not None:
            return done
    operands, scalars, attributes = calls.append(
        cache_k, cache_v, k, v, lengths=lengths, lengths_new=lengths_new, page_table=page_table, kv_layout=kv_layout,
        rotary=rotary, kv_scales=kv_scales, scale_block=scale_block, q=q, q_out=q_out, layout=layout,
    )  # fmt: skip
    return _CALLER.run_long(registry, operands, scalars, attributes, copy, options)


# PyTorch's compiler does not look inside: a graph ends before the call, which runs as it is.
for _function in (attention, append_kv):
    setattr(_function, "_torchdynamo_disable", True)  # noqa: B010  of a function type checkers know no attributes
