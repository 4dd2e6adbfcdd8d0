"""Attention on arrays: `attention`, and `append_kv` for caches of keys and values.

`tw.attention(q, k, v, causal=True)` takes NumPy arrays, PyTorch's tensors or anything with DLPack.
`print(tw.explain(tw.AttentionProblem(1, 32, 4096, 4096, 128, window_right=0)))` says what would run.
Old keywords are taken with a warning (`renames`); a call without any pays nothing for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from tilewright.api import registry_of
from tilewright.api.tensors import public, seen
from tilewright.dataclass import NamedTuple
from tilewright.errors import TilewrightError
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
    """o = dropout(softmax(cap(scale q.k) + bias)) v over the keys that each row attends to; (o, lse) with `return_lse`.

    `layout` "bshd": q is (B, Sq, Hq, D), k (B, Sk, Hkv, D), v (B, Sk, Hkv, Dv), o (B, Sq, Hq, Dv); "bhsd" has heads
    before rows.  Any strides with a contiguous last dimension.  Hkv divides Hq (GQA).  Types: fp32, fp16, bf16 or fp8
    (e4m3); with fp16 and bf16 queries, k and v may be fp8.  o has the dtype of `out`, else `out_dtype`, else that of q
    (bf16 for fp8).  `scale` defaults to 1 / sqrt(D).

    Masks: `causal` True or "top_left" (row i attends to keys up to i, as in PyTorch) or "bottom_right" (up to i + Sk -
    Sq, as in FlashAttention); `window` (left, right) around that key, None or -1 for no bound.  The first `sink_tokens`
    keys are visible in spite of a window.  `sink` (Hq,) adds a logit per head, without a value.  `mask` is boolean,
    True where a key is visible; `bias` is added to scores; both broadcast to (B, Hq, Sq, Sk).  `attn_mask` is either,
    by its dtype, as in PyTorch's scaled_dot_product_attention.  `alibi_slopes` is (Hq,) or (B, Hq).  `softcap` c
    replaces scores s by c tanh(s / c), before the bias.  A row without visible keys is 0, its lse minus infinity
    or its sink logit.

    `dropout_p` needs `seed`, (seed, offset), or an array of both (two int64): every target drops the same entries
    (include/tilewright/philox.h).

    Lengths: `seqlens_q` and `seqlens_k` (int32, B) are the valid rows of padded arrays.  With `cu_seqlens_q` and
    `cu_seqlens_k` (int32, B + 1), sequences of variable length are packed one after the other in arrays without the
    dimension B, and lse is (Hq, rows).  `max_seqlen_q` and `max_seqlen_k` are upper bounds of their lengths, if known,
    and then Sq and Sk of a mask or bias; otherwise these are all rows and keys.

    Pages: `block_table` (int32, B by pages per sequence) with `seqlens_k`, or (indptr, indices, last page lengths). k
    and v are then pools of pages, with `kv_layout` "linear" (pages, page, Hkv, D), "heads_first" (pages, Hkv, page, D)
    or "vectorised" (16 bytes innermost; docs/attention.md).

    fp8: `q_scale` and `kv_scales` (k_scale, v_scale) multiply the stored values: one number, one per head, or one for
    each head and `scale_block` rows.  `num_splits` is the number of KV splits; by default a heuristic selects it.
    """
    if old:
        return call_renamed(attention, calls.RENAMED, locals())
    done = _ATTENTION.call(
        q, k, v, causal, window, scale, mask, bias, attn_mask, alibi_slopes, softcap, sink, sink_tokens, dropout_p,
        seed, seqlens_q, seqlens_k, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, block_table, page_size,
        kv_layout, q_scale, kv_scales, scale_block, num_splits, layout, return_lse, out, out_dtype, copy, target,
    )  # fmt: skip
    if done is not None:
        return done
    if attn_mask is not None:
        mask, bias = calls.mask_and_bias(mask, bias, attn_mask)
    if sink is not None:
        sink, sink_tokens = calls.sinks(sink, sink_tokens)
    registry, options = registry_of(q, target), None
    if copy is NEVER:
        seeds, numbers = calls.scalars(scale, softcap, dropout_p, seed)
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
            return _ATTENTION.keep(done)
    if must_be_seen((q, k, v, mask, bias, alibi_slopes, sink, out)):
        return seen(
            "attention", q, k, v, causal=causal, window=window, scale=scale, mask=mask, bias=bias,
            alibi_slopes=alibi_slopes, softcap=softcap, sink=sink, sink_tokens=sink_tokens, dropout_p=dropout_p,
            seed=seed, seqlens_q=seqlens_q, seqlens_k=seqlens_k, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, block_table=block_table, page_size=page_size,
            kv_layout=kv_layout, q_scale=q_scale, kv_scales=kv_scales, scale_block=scale_block, num_splits=num_splits,
            layout=layout, return_lse=return_lse, out=out, out_dtype=out_dtype, copy=copy, target=target,
        )  # fmt: skip
    try:
        if options is not None and (known := calls.known_attributes(options, in_slots)) is not None:
            every = (*in_slots, *calls.NO_OPERANDS[len(in_slots) :])
            return _CALLER.run_slow(registry, every, numbers, known, copy, options)
        operands, scalars, attributes = calls.forward(
            q, k, v, causal=causal, window=window, scale=scale, mask=mask, bias=bias, attn_mask=None,
            alibi_slopes=alibi_slopes, softcap=softcap, sink=sink, sink_tokens=sink_tokens, dropout_p=dropout_p,
            seed=seed, seqlens_q=seqlens_q, seqlens_k=seqlens_k, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
            max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, block_table=block_table, page_size=page_size,
            kv_layout=kv_layout, q_scale=q_scale, kv_scales=kv_scales, scale_block=scale_block, num_splits=num_splits,
            layout=layout, return_lse=return_lse, out=out, out_dtype=out_dtype,
        )  # fmt: skip
        if options is not None:
            calls.remember_attributes(options, in_slots, attributes)
        return _CALLER.run_slow(registry, operands, scalars, attributes, copy, options)
    except TilewrightError as error:
        calls.say_attn_mask(error, attn_mask, bias)
        raise


class AppendedKV(NamedTuple):
    """The caches after `append_kv`, which writes them in place."""

    cache_k: Any
    cache_v: Any


class AppendedKVAndQ(NamedTuple):
    """The caches, and the queries after rotary embedding: pass this `q` to `attention`."""

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
    """Append rows of k and v to a KV cache whose sequences have `cache_seqlens` (int32, B) rows already.

    k is (B, rows, Hkv, D) and v (B, rows, Hkv, Dv), or heads first with layout "bhsd"; `seqlens_new` limits the rows
    per sequence.  The caches are (B, capacity, Hkv, D), or pools of pages with a `block_table` (B, pages), as for
    `attention`.  `rotary` (cos, sin, "interleaved" or "half") applies rotary embedding to k by its position in the
    sequence, and to `q` if given: (B, rows, Hq, D), one query per new key.  cos and sin have a row per position and a
    column per pair.

    Rows have the dtype of the cache, or are fp32, fp16 or bf16 with an fp8 cache: they are then divided by `kv_scales`
    (k_scale, v_scale; same shapes as for `attention`), rounded, and saturated.

    The caches are written in place and returned as (cache_k, cache_v), a named tuple.  With `q` the result has a third
    field, `q`: the rotated queries, in a new array or in `q_out`, which may be q.  The array passed as `q` is not
    changed otherwise, so use the result:

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


_ATTENTION = _CALLER.front(
    attention, q="q", k="k", v="v", mask="mask", bias="bias", attn_mask=None, alibi_slopes="alibi_slopes", sink="sink",
    seed=None, seqlens_q="seqlens_q", seqlens_k="seqlens_k", cu_seqlens_q="cu_seqlens_q", cu_seqlens_k="cu_seqlens_k",
    block_table="block_table", q_scale="q_scale", kv_scales=None, out="out", copy=None, target=None,
)  # fmt: skip
public(attention, append_kv)
