"""Attention on arrays: `attention`, and `append_kv` for caches of keys and values.

`tw.attention(q, k, v, causal=True)` takes NumPy arrays, PyTorch's tensors or anything with DLPack.
`print(tw.explain(tw.AttentionProblem(1, 32, 4096, 4096, 128, window_right=0)))` says what would run.
Old keywords are taken with a warning (`renames`); a call without any pays nothing for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

from tilewright.api import registry_of
from tilewright.api.tensors import public, seen
from tilewright.renames import call_renamed
from tilewright.runtime.bindings.attention import BINDING, calls
from tilewright.runtime.calls import NEVER, caller
from tilewright.runtime.torch_arrays import must_be_seen

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class _OldKeywords(TypedDict, total=False):
        """`calls.RENAMED`: what a type checker lets pass beside the keywords themselves."""

        starts_q: Any
        starts_k: Any
        longest_q: Any
        longest_k: Any
        lengths_q: Any
        lengths_k: Any
        page_table: Any
        alibi: Any
        dropout: Any
        splits: Any

    class _OldAppendKeywords(TypedDict, total=False):
        """`calls.APPEND_RENAMED`, likewise."""

        lengths: Any
        lengths_new: Any
        page_table: Any


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
    page_size: int | None = None,
    kv_layout: str | None = None,
    q_scale: Any = None,
    kv_scales: Any = None,
    scale_block: int | None = None,
    num_splits: int | None = None,
    layout: str = "bshd",
    return_lse: bool = False,
    out: Any = None,
    out_dtype: Any = None,
    copy: str = NEVER,
    target: str | None = None,
    **old: Unpack[_OldKeywords],
) -> Any:
    """o = dropout(softmax(cap(scale q.k) + bias)) v, of the keys each row sees; (o, lse) with `return_lse`.

    `layout` "bshd": q is (B, Sq, Hq, D), k (B, Sk, Hkv, D), v (B, Sk, Hkv, Dv), o (B, Sq, Hq, Dv); "bhsd" has heads
    before rows.  Any strides will do where the last dimension is contiguous.  Hkv divides Hq, and heads of q share
    those of k in order.  fp32, fp16, bf16 or fp8 (e4m3); with fp16 and bf16 queries k and v may be fp8.  o has the
    dtype of `out`, else `out_dtype`, else of q (bf16 for fp8).  `scale` is 1 / sqrt(D) where not given.

    What a row sees: `causal` True or "top_left" (row i sees keys up to i, as PyTorch aligns it) or "bottom_right" (up
    to i + Sk - Sq, as FlashAttention does); `window` (left, right) around that place, None or -1 for no bound.
    `sink_tokens` first keys are seen in spite of a window.  `sink` has one more logit a head (Hq,), without a value.
    `mask` is boolean, True where a key is seen; `bias` is added to scores; both broadcast to (B, Hq, Sq, Sk).
    `attn_mask` is either, by its type, as PyTorch's scaled_dot_product_attention takes it.  `alibi_slopes` is (Hq,) or
    (B, Hq).  `softcap` c makes scores c tanh(s / c), before the bias.  A row that sees nothing is 0, its lse minus
    infinity.

    `dropout_p` with `seed`, (seed, offset), or an array of both (two of int64): the same entries are dropped on every
    target (include/tilewright/philox.h says which).

    Lengths: `seqlens_q` and `seqlens_k` (int32, B) say how many rows of padded arrays count.  With `cu_seqlens_q` and
    `cu_seqlens_k` (int32, B + 1) sequences of variable length lie one behind the other, in arrays without the dimension
    B, and lse is (Hq, rows).  `max_seqlen_q` and `max_seqlen_k` bound their lengths, where that is known.

    Pages: `block_table` (int32, B by the pages of a sequence), with `seqlens_k`; or (indptr, indices, last page
    lengths).  k and v are then pools of pages, by `kv_layout` "linear" (pages, page, Hkv, D), "heads_first" (pages,
    Hkv, page, D) or "vectorised" (with 16 bytes innermost; docs/attention.md).

    fp8: `q_scale` and `kv_scales` (k_scale, v_scale) multiply what the arrays hold: one number, one a head, or one for
    each head and `scale_block` rows.  `num_splits` KV splits; a heuristic chooses where it is not given.
    """
    if old:
        return call_renamed(attention, calls.RENAMED, locals())
    if attn_mask is not None:
        mask, bias = calls.mask_and_bias(mask, bias, attn_mask)
    if sink is not None:
        sink, sink_tokens = calls.sinks(sink, sink_tokens)
    registry, options = registry_of(q, target), None
    if copy is NEVER:
        plain = scale is None and softcap is None and seed is None and type(dropout_p) is float and not dropout_p
        seeds, numbers = (None, calls.PLAIN) if plain else calls.scalars(scale, softcap, dropout_p, seed)
        table, indptr, last = (block_table, None, None) if type(block_table) is not tuple else calls.pages(block_table)
        of_q = None if q_scale is None else calls.scale_of("q_scale", q_scale, q)
        k_scale, v_scale = (None, None) if kv_scales is None else calls.scales(k, kv_scales)
        options = (
            "forward", causal, window, sink_tokens, scale is None, softcap is None, seed is None, page_size,
            max_seqlen_q, max_seqlen_k, kv_layout, scale_block, num_splits, layout, return_lse, out_dtype,
        )  # fmt: skip
        in_slots = (
            q, k, v, mask, bias, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k, None, None,
            table, indptr, last, of_q, k_scale, v_scale, seeds, None, None, None, None, out,
        )  # fmt: skip
        done = _CALLER.attempt(registry, in_slots, numbers, options)
        if done is not None:
            return done
    if must_be_seen((q, k, v, mask, bias, alibi_slopes, sink, out)):
        return seen(
            "attention", q, k, v, causal=causal, window=window, scale=scale, mask=mask, bias=bias,
            alibi_slopes=alibi_slopes, softcap=softcap, sink=sink, sink_tokens=sink_tokens, dropout_p=dropout_p,
            seed=seed, seqlens_q=seqlens_q, seqlens_k=seqlens_k, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, block_table=block_table, page_size=page_size,
            kv_layout=kv_layout, q_scale=q_scale, kv_scales=kv_scales, scale_block=scale_block, num_splits=num_splits,
            layout=layout, return_lse=return_lse, out=out, out_dtype=out_dtype, copy=copy, target=target,
        )  # fmt: skip
    operands, scalars, attributes = calls.forward(
        q, k, v, causal=causal, window=window, scale=scale, mask=mask, bias=bias, attn_mask=None,
        alibi_slopes=alibi_slopes, softcap=softcap, sink=sink, sink_tokens=sink_tokens, dropout_p=dropout_p, seed=seed,
        seqlens_q=seqlens_q, seqlens_k=seqlens_k, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, block_table=block_table, page_size=page_size,
        kv_layout=kv_layout, q_scale=q_scale, kv_scales=kv_scales, scale_block=scale_block, num_splits=num_splits,
        layout=layout, return_lse=return_lse, out=out, out_dtype=out_dtype,
    )  # fmt: skip
    return _CALLER.run_slow(registry, operands, scalars, attributes, copy, options)


class AppendedKV(NamedTuple):
    """The caches after `append_kv`, which wrote into them."""

    cache_k: Any
    cache_v: Any


class AppendedKVAndQ(NamedTuple):
    """The caches, and the queries after rotary embedding: the attention that follows takes this `q`."""

    cache_k: Any
    cache_v: Any
    q: Any


@overload
def append_kv(
    cache_k: Any, cache_v: Any, k: Any, v: Any, *, cache_seqlens: Any = ..., seqlens_new: Any = ...,
    block_table: Any = ..., kv_layout: str | None = ..., rotary: tuple[Any, Any, str] | None = ...,
    kv_scales: Any = ..., scale_block: int | None = ..., q: None = None, q_out: None = None, layout: str = ...,
    copy: str = ...,
    target: str | None = ..., **old: Unpack[_OldAppendKeywords],
) -> AppendedKV: ...  # fmt: skip
@overload
def append_kv(
    cache_k: Any, cache_v: Any, k: Any, v: Any, *, cache_seqlens: Any = ..., seqlens_new: Any = ...,
    block_table: Any = ..., kv_layout: str | None = ..., rotary: tuple[Any, Any, str] | None = ...,
    kv_scales: Any = ..., scale_block: int | None = ..., q: Any, q_out: Any = ..., layout: str = ..., copy: str = ...,
    target: str | None = ..., **old: Unpack[_OldAppendKeywords],
) -> AppendedKVAndQ: ...  # fmt: skip
def append_kv(
    cache_k: Any,
    cache_v: Any,
    k: Any,
    v: Any,
    *,
    cache_seqlens: Any = None,
    seqlens_new: Any = None,
    block_table: Any = None,
    kv_layout: str | None = None,
    rotary: tuple[Any, Any, str] | None = None,
    kv_scales: Any = None,
    scale_block: int | None = None,
    q: Any = None,
    q_out: Any = None,
    layout: str = "bshd",
    copy: str = NEVER,
    target: str | None = None,
    **old: Unpack[_OldAppendKeywords],
) -> AppendedKV | AppendedKVAndQ:
    """Write new rows of k and v behind the `cache_seqlens` (int32, B) that each sequence of a cache holds.

    k is (B, rows, Hkv, D) and v (B, rows, Hkv, Dv), or heads first with layout "bhsd"; of `seqlens_new` rows where
    given. The caches are (B, room, Hkv, D), or pools of pages with a `block_table` (B, pages), as `attention` takes
    them. With `rotary` (cos, sin, "interleaved" or "half") k gets rotary embedding by its place in the sequence, and so
    does `q` where given: (B, rows, Hq, D), a query for each new key.  cos and sin have a row for each place and a
    column for each pair.

    Rows have the type of the cache, or are fp32, fp16 or bf16 and the cache is fp8: it then holds them over their
    `kv_scales` (k_scale, v_scale), which `attention` takes in the same shapes, rounded, and cut at the largest number.

    The caches are written in place and returned too: (cache_k, cache_v), by name.  With `q` the result has a third
    field, `q`: the queries after rotary embedding, in a new array or in `q_out`, which may be q itself.  The array
    given as `q` is not changed otherwise, so do not drop the result:

        cache_k, cache_v, q = tw.append_kv(cache_k, cache_v, k, v, cache_seqlens=lengths, rotary=tables, q=q)
    """
    if old:
        appended: AppendedKV | AppendedKVAndQ = call_renamed(append_kv, calls.APPEND_RENAMED, locals())
        return appended
    registry, options = registry_of(cache_k, target), None
    kind = AppendedKV if q is None else AppendedKVAndQ
    if copy is NEVER:
        cos, sin, order = rotary if isinstance(rotary, (tuple, list)) and len(rotary) == 3 else (None, None, None)
        k_scale, v_scale = (None, None) if kv_scales is None else calls.scales(cache_k, kv_scales)
        options = ("append", order, rotary is None, kv_layout, scale_block, layout)
        in_slots = (
            q, k, v, None, None, None, None, None, None, None, None, cache_seqlens, seqlens_new, block_table, None,
            None, None, k_scale, v_scale, None, cos, sin, None, None, None, None, None, None, cache_k, cache_v, q_out,
        )  # fmt: skip
        done = _CALLER.attempt(registry, in_slots, calls.PLAIN, options)
        if done is not None:
            return kind(*done)
    if must_be_seen((cache_k, cache_v, k, v, q, q_out)):
        traced: AppendedKV | AppendedKVAndQ = seen(
            "append_kv", cache_k, cache_v, k, v, cache_seqlens=cache_seqlens, seqlens_new=seqlens_new,
            block_table=block_table, kv_layout=kv_layout, rotary=rotary, kv_scales=kv_scales, scale_block=scale_block,
            q=q, q_out=q_out, layout=layout, copy=copy, target=target,
        )  # fmt: skip
        return traced
    operands, scalars, attributes = calls.append(
        cache_k, cache_v, k, v, cache_seqlens=cache_seqlens, seqlens_new=seqlens_new, block_table=block_table,
        kv_layout=kv_layout, rotary=rotary, kv_scales=kv_scales, scale_block=scale_block, q=q, q_out=q_out,
        layout=layout,
    )  # fmt: skip
    return kind(*_CALLER.run_slow(registry, operands, scalars, attributes, copy, options))


public(attention, append_kv)
