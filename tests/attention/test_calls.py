"""Calls of `tw.attention` and `tw.append_kv` against sums written out: layouts, lengths, pages, splits, results."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.attention.oracle import batched, plain
from tilewright import ops
from tilewright.errors import TilewrightError

pytestmark = pytest.mark.usefixtures("floor", "needs_compiler")

Array = np.ndarray[Any, Any]
B, SQ, SK, HQ, HK, D, DV = 2, 7, 11, 4, 2, 16, 24


def arrays(seed: int = 0, sq: int = SQ, sk: int = SK) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((B, sq, HQ, D), np.float32),
        rng.standard_normal((B, sk, HK, D), np.float32),
        rng.standard_normal((B, sk, HK, DV), np.float32),
    )


def near(found: Any, want: Array, bound: float = 1e-5) -> bool:
    return bool(np.allclose(np.asarray(found, np.float64), want, rtol=bound, atol=bound))


SINK = np.array([0.5, -1, 2, 0], np.float32)
SLOPES = (2.0 ** -np.arange(1, HQ + 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ({}, {}),
        ({"causal": True}, {"causal": "top_left"}),
        ({"causal": "bottom_right", "window": (3, None)}, {"causal": "bottom_right", "window": (3, -1)}),
        ({"window": (2, 1)}, {"window": (2, 1)}),
        ({"window": (1, 0), "sink_tokens": 2}, {"window": (1, 0), "sink_tokens": 2}),
        ({"sink": SINK}, {"sink": SINK}),
        ({"alibi_slopes": SLOPES}, {"alibi": SLOPES}),
        ({"alibi_slopes": SLOPES, "causal": True}, {"alibi": SLOPES, "causal": "top_left"}),
        ({"softcap": 0.8, "scale": 0.5}, {"softcap": 0.8, "scale": 0.5}),
    ],
    ids=str,
)
def test_what_a_row_sees_and_how_it_is_weighed(call: dict[str, Any], want: dict[str, Any]) -> None:
    q, k, v = arrays()
    out, lse = tw.attention(q, k, v, return_lse=True, **call)
    exact, exact_lse = batched(q, k, v, **want)
    assert (out.shape, out.dtype) == ((B, SQ, HQ, DV), np.float32)
    assert near(out, exact)
    assert (lse.shape, lse.dtype) == ((B, HQ, SQ), np.float32)
    assert near(lse, exact_lse)


class Opaque:
    """An array that says nothing of itself but through DLPack."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_the_usual_scale_is_known_of_any_array() -> None:
    """Found by the fuzzer: of what has no attribute `shape` it was 1."""
    q, k, v = arrays()
    assert near(tw.attention(Opaque(q), k, v), batched(q, k, v)[0])


@pytest.mark.parametrize("shape", [(SQ, SK), (HQ, SQ, SK), (B, 1, SQ, SK), (B, HQ, 1, SK), (1, 1, SQ, 1), (B, 1, 1, 1)])
def test_masks_and_biases_broadcast(shape: tuple[int, ...]) -> None:
    q, k, v = arrays()
    rng = np.random.default_rng(3)
    full = (B, HQ, SQ, SK)
    mask, bias = rng.random(shape) < 0.7, rng.standard_normal(shape, np.float32)
    found = tw.attention(q, k, v, mask=mask)
    assert near(found, batched(q, k, v, mask=np.broadcast_to(mask, full))[0])
    found = tw.attention(q, k, v, bias=bias)
    assert near(found, batched(q, k, v, bias=np.broadcast_to(bias, full))[0])


def test_a_cap_goes_with_a_bias() -> None:
    """CK Tile's kernels cannot: there our own serve, and every target has the same meaning."""
    q, k, v = arrays()
    bias = np.random.default_rng(5).standard_normal((B, HQ, SQ, SK)).astype(np.float32)
    found = tw.attention(q, k, v, bias=bias, softcap=0.7)
    assert near(found, batched(q, k, v, bias=bias, softcap=0.7)[0])
    one = tw.AttentionProblem(B, HQ, SQ, SK, 128, HK, dtype_q="fp16", bias="tensor", dtype_aux="fp16", softcap=True)
    op = ops.op("attention")
    assert not op.problem_violations(one, "gfx942")
    served = [spec for spec in op.candidates(one.signature, "gfx942") if not op.supports(spec, one)]
    assert {spec.schedule.pipeline for spec in served} == {"tiled"}


@pytest.mark.parametrize("window", [(0, 0, "bottom_right"), (-1, 0, "bottom_right")])
def test_a_window_that_hides_everything(window: tuple[Any, ...]) -> None:
    """Rows before the first key see nothing, whoever else does."""
    q, k, v = arrays(sq=9, sk=4)
    found, lse = tw.attention(q, k, v, window=window, return_lse=True)
    assert (found[:, :5] == 0).all()
    assert np.isneginf(lse[:, :, :5]).all()
    assert np.isfinite(lse[:, :, 5:]).all()


def test_rows_that_see_nothing_are_0_and_minus_infinity() -> None:
    q, k, v = arrays()
    out, lse = tw.attention(q, k, v, mask=np.zeros((1, 1), bool), return_lse=True)
    assert (out == 0).all()
    assert np.isneginf(lse).all()
    out, lse = tw.attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert out.shape == (B, SQ, HQ, DV)
    assert (out == 0).all()
    assert np.isneginf(lse).all()
    out = tw.attention(q, k[:, :3], v[:, :3], causal="bottom_right")  # rows before the first key
    assert (out[:, : SQ - 3] == 0).all()
    assert (out[:, SQ - 3 :] != 0).any(-1).all()
    assert tw.attention(q[:, :0], k, v).shape == (B, 0, HQ, DV)
    assert tw.attention(q[:0], k[:0], v[:0]).shape == (0, SQ, HQ, DV)


def test_the_longest_of_empty_sequences_is_0() -> None:
    """As a serving loop counts it, with nothing in the cache yet or no rows in this step."""
    q, k, v = arrays()
    none, starts = np.zeros(B + 1, np.int32), np.arange(B + 1, dtype=np.int32) * SQ
    rows = q.reshape(-1, *q.shape[2:])
    keys, values = (one.reshape(-1, *one.shape[2:]) for one in (k, v))
    out, lse = tw.attention(rows, keys, values, cu_seqlens_q=starts, cu_seqlens_k=none, max_seqlen_q=SQ, max_seqlen_k=0,
                            return_lse=True)  # fmt: skip
    assert (out == 0).all()
    assert np.isneginf(lse).all()
    kept = np.full((len(rows), HQ, DV), 7, np.float32)
    tw.attention(rows, keys, values, cu_seqlens_q=none, cu_seqlens_k=none, max_seqlen_q=0, max_seqlen_k=0, out=kept)
    assert (kept == 7).all()
    table = np.zeros((B, 2), np.int32)
    out = tw.attention(q, k, v, block_table=table, seqlens_k=none[:B], max_seqlen_k=0)
    assert (out == 0).all()
    with pytest.raises(tw.TilewrightError, match="max_seqlen_k is -1"):
        tw.attention(q, k, v, block_table=table, seqlens_k=none[:B], max_seqlen_k=-1)


def test_layouts_and_strides() -> None:
    q, k, v = arrays()
    want = tw.attention(q, k, v)
    first = [np.ascontiguousarray(one.transpose(0, 2, 1, 3)) for one in (q, k, v)]
    found = tw.attention(*first, layout="bhsd")
    assert found.shape == (B, HQ, SQ, DV)
    assert (found.transpose(0, 2, 1, 3) == want).all()
    assert (
        tw.attention(*(one.transpose(0, 2, 1, 3) for one in (q, k, v)), layout="bhsd").transpose(0, 2, 1, 3) == want
    ).all()
    wide = [np.zeros((*one.shape[:-1], one.shape[-1] + 8), np.float32) for one in (q, k, v)]
    for one, other in zip(wide, (q, k, v), strict=True):
        one[..., : other.shape[-1]] = other
    cut = [one[..., : other.shape[-1]] for one, other in zip(wide, (q, k, v), strict=True)]
    assert (tw.attention(*cut) == want).all()
    assert (tw.attention(q[::-1], k[::-1], v[::-1])[::-1] == want).all(), "backwards in memory"
    out = np.full((B, SQ, HQ, DV + 8), 7.0, np.float32)
    given = tw.attention(q, k, v, out=out[..., :DV])
    assert (out[..., :DV] == want).all()
    assert (out[..., DV:] == 7.0).all()
    assert given.base is out


@pytest.mark.parametrize(("dtype", "bound"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_element_types(dtype: Any, bound: float) -> None:
    q, k, v = (one.astype(dtype) for one in arrays())
    want = batched(*(one.astype(np.float64) for one in (q, k, v)))[0]
    out = tw.attention(q, k, v)
    assert out.dtype == dtype
    assert near(out.astype(np.float32), want, bound)
    assert near(tw.attention(q, k, v, out_dtype="fp32"), want, 1e-5)


def test_fp8_with_scales_of_every_kind() -> None:
    q, k, v = (one.astype(ml_dtypes.float8_e4m3fn) for one in arrays())
    wide = [one.astype(np.float64) for one in (q, k, v)]
    rng = np.random.default_rng(5)
    out = tw.attention(q, k, v)
    assert out.dtype == ml_dtypes.bfloat16
    assert near(out.astype(np.float32), batched(*wide)[0], 2e-2)
    for q_scale, k_scale, v_scale, block in (
        (np.float32(0.5), np.float32(2), np.float32(3), None),
        (rng.random(HQ, np.float32), rng.random(HK, np.float32), rng.random((B, HK), np.float32), None),
        (rng.random((B, HQ, 2), np.float32), rng.random((B, HK, 3), np.float32), rng.random((B, HK, 3), np.float32), 4),
    ):
        found = tw.attention(
            q, k, v, q_scale=np.asarray(q_scale), kv_scales=(np.asarray(k_scale), np.asarray(v_scale)),
            scale_block=block, out_dtype="fp32",
        )  # fmt: skip
        scaled = []
        for one, scale in zip(wide, (q_scale, k_scale, v_scale), strict=True):
            three = np.asarray(scale, np.float64)
            three = three.reshape(1, -1, 1) if three.ndim < 2 else three if three.ndim == 3 else three[..., None]
            rows = np.arange(one.shape[1]) // (block or 1 << 20)
            full = np.broadcast_to(three, (B, one.shape[2], max(three.shape[2], 1)))[:, :, rows]
            scaled.append(one * full.transpose(0, 2, 1)[..., None])
        assert near(found, batched(*scaled)[0], 1e-5)
    half = tw.attention(arrays()[0].astype(np.float16), k, v, out_dtype="fp32")
    assert near(half, batched(arrays()[0].astype(np.float16).astype(np.float64), *wide[1:])[0], 1e-5)


@pytest.mark.parametrize("number", [False, True])
def test_no_rows_have_no_blocks_of_scales(number: bool) -> None:
    """As many blocks as the longest sequence needs: none, of no keys or no rows; nobody reads what is given beside."""
    q, k, v = (np.ones(one, ml_dtypes.float8_e4m3fn) for one in ((B, 3, HQ, 16), (B, 0, HK, 16), (B, 0, HK, 8)))
    none = np.ones((B, HK, 0), np.float32)
    o, lse = tw.attention(q, k, v, kv_scales=(2.0 if number else none, none), scale_block=4, return_lse=True)
    assert (o.astype(np.float32) == 0).all()
    assert np.isneginf(lse).all()
    k, v = np.ones((B, 5, HK, 16), q.dtype), np.ones((B, 5, HK, 8), q.dtype)
    assert tw.attention(q[:, :0], k, v, q_scale=np.ones((B, HQ, 0), np.float32), scale_block=4).shape == (B, 0, HQ, 8)


def test_scales_are_numbers_too() -> None:
    """As every library's calls have them: of Python, of NumPy, and beside tensors of PyTorch."""
    q, k, v = (one.astype(ml_dtypes.float8_e4m3fn) for one in arrays())
    want = batched(*(one.astype(np.float64) * scale for one, scale in zip((q, k, v), (0.5, 2.0, 3.0), strict=True)))[0]
    for kind in (float, np.float32, np.float64):
        found = tw.attention(q, k, v, q_scale=kind(0.5), kv_scales=(2, kind(3)), out_dtype="fp32")
        assert near(found, want, 1e-5)
    cache_k, cache_v = (np.zeros(one.shape, one.dtype) for one in (k, v))
    lengths = np.zeros(B, np.int32)
    tw.append_kv(cache_k, cache_v, *arrays()[1:], cache_seqlens=lengths, kv_scales=(0.25, np.float32(0.5)))
    for cache, new, scale in zip((cache_k, cache_v), arrays()[1:], (0.25, 0.5), strict=True):
        assert (cache.view(np.uint8) == (new / np.float32(scale)).astype(cache.dtype).view(np.uint8)).all()
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(one.view(np.uint8)).view(torch.float8_e4m3fn) for one in (q, k, v)]
    found = tw.attention(*tensors, q_scale=0.5, kv_scales=(2.0, 3.0), out_dtype="fp32")
    assert near(found.numpy(), want, 1e-5)


def test_rotary_tables_may_be_copied_to_lie_alike() -> None:
    """Columns of a wider table beside a table of its own."""
    k, v = arrays()[1:]
    wide = np.random.default_rng(6).standard_normal((SK, 8), np.float32)
    for cos, sin in (
        (wide[:, :4], wide[:, 4:].copy()),
        (wide[:, :4].copy(), wide[:, 4:]),
        (wide[:1, :4], wide[:1, 4:]),
    ):
        rows = 1 if len(cos) == 1 else SK
        new, old = (
            tw.append_kv(
                np.zeros_like(k), np.zeros_like(v), k[:, :rows], v[:, :rows], cache_seqlens=np.zeros(B, np.int32),
                rotary=(*tables, "half"), copy="allow",
            )[0]
            for tables in ((cos, sin), (cos.copy(), sin.copy()))
        )  # fmt: skip
        assert (new == old).all()


def test_values_may_lie_inside_of_keys() -> None:
    """MLA: one latent row is key and, but for its last elements, value."""
    rng = np.random.default_rng(1)
    q, latent = rng.standard_normal((B, 1, HQ, 24), np.float32), rng.standard_normal((B, SK, 1, 24), np.float32)
    assert near(tw.attention(q, latent, latent[..., :16]), batched(q, latent, latent[..., :16])[0])


# -- lengths -----------------------------------------------------------------------------------------------------------


def test_packed_sequences_are_the_padded_ones() -> None:
    q, k, v = arrays()
    rows, keys = np.array([3, 7]), np.array([11, 4])
    padded, padded_lse = tw.attention(
        q,
        k,
        v,
        seqlens_q=rows.astype(np.int32),
        seqlens_k=keys.astype(np.int32),
        causal="bottom_right",
        return_lse=True,
    )
    cu_seqlens_q, cu_seqlens_k = (np.concatenate([[0], np.cumsum(one)]).astype(np.int32) for one in (rows, keys))
    packed = [
        np.concatenate([array[b, : count[b]] for b in range(B)]) for array, count in ((q, rows), (k, keys), (v, keys))
    ]
    found, lse = tw.attention(
        *packed, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, causal="bottom_right", return_lse=True
    )
    assert (found.shape, lse.shape) == ((10, HQ, DV), (HQ, 10))
    for b in range(B):
        want, want_lse = plain(q[b, : rows[b]], k[b, : keys[b]], v[b, : keys[b]], causal="bottom_right")
        mine = slice(cu_seqlens_q[b], cu_seqlens_q[b + 1])
        assert near(found[mine], want)
        assert near(lse[:, mine], want_lse)
        assert near(padded[b, : rows[b]], want)
        assert near(padded_lse[b, :, : rows[b]], want_lse)
    longest = tw.attention(
        *packed,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        causal="bottom_right",
        max_seqlen_q=7,
        max_seqlen_k=11,
        return_lse=True,
    )
    assert (longest[0] == found).all()


def test_a_bound_beyond_what_there_is_room_for_changes_nothing() -> None:
    """However keys lie: who knows the context of a model gives that."""
    q, k, v = arrays(sk=12)
    lengths, table = np.array([9, 12], np.int32), np.arange(6, dtype=np.int32).reshape(2, 3)
    pools = [one.reshape(6, 4, *one.shape[2:]) for one in (k, v)]
    ends = np.array([0, SQ, 2 * SQ], np.int32), np.array([0, 12, 24], np.int32)
    flat = [one.reshape(-1, *one.shape[2:]) for one in (q, k, v)]
    pages = np.array([0, 3, 6], np.int32), table.reshape(-1), np.array([1, 4], np.int32)
    for given, more in (
        ((q, *pools), {"block_table": table, "seqlens_k": lengths}),
        ((q, *pools), {"block_table": pages}),
        (flat, {"cu_seqlens_q": ends[0], "cu_seqlens_k": ends[1]}),
    ):
        usual = tw.attention(*given, **more)
        assert np.array_equal(usual, tw.attention(*given, **more, max_seqlen_k=1 << 20)), more


def test_packed_sequences_have_scales_by_block_of_their_own_rows() -> None:
    """Blocks count from the start of a sequence, as many as the longest has."""
    q, k, v = (one.astype(ml_dtypes.float8_e4m3fn) for one in arrays(sk=12))
    rng = np.random.default_rng(3)
    q_scale = rng.uniform(0.5, 2, (B, HQ, 4)).astype(np.float32)
    kv_scales = tuple(rng.uniform(0.5, 2, (B, HK, 6)).astype(np.float32) for _ in range(2))
    ends = np.array([0, 3, 3 + SQ], np.int32), np.array([0, 12, 12 + 5], np.int32)
    flat = [np.concatenate([one[0, : end[1]], one[1, : end[2] - end[1]]])
            for one, end in ((q, ends[0]), (k, ends[1]), (v, ends[1]))]  # fmt: skip
    found = tw.attention(*flat, cu_seqlens_q=ends[0], cu_seqlens_k=ends[1], max_seqlen_q=SQ, max_seqlen_k=12,
                         q_scale=q_scale,
                         kv_scales=kv_scales, scale_block=2, out_dtype="fp32")  # fmt: skip
    for index in range(B):
        rows, keys = (slice(end[index], end[index + 1]) for end in ends)
        one = [flat[0][None, rows], flat[1][None, keys], flat[2][None, keys]]
        alone = tw.attention(*one, q_scale=q_scale[index : index + 1], scale_block=2, out_dtype="fp32",
                             kv_scales=tuple(scale[index : index + 1] for scale in kv_scales))  # fmt: skip
        assert near(found[rows], np.asarray(alone[0], np.float64))


def test_a_bias_is_as_large_as_the_longest_sequences_may_be() -> None:
    """A server has one bias for all its calls, also where a call has fewer rows and keys together than it is long."""
    q, k, v = (one[0, :3] for one in arrays())
    rng = np.random.default_rng(8)
    bias, mask = rng.standard_normal((HQ, 9, 13), np.float32), rng.random((9, 13)) < 0.8
    starts = np.array([0, 1, 3], np.int32)
    found = tw.attention(
        q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=9, max_seqlen_k=13, bias=bias, mask=mask
    )
    for first, after in ((0, 1), (1, 3)):
        size = after - first
        alone = [one[None, first:after] for one in (q, k, v)]
        want = tw.attention(*alone, bias=bias[:, :size, :size], mask=mask[:size, :size])
        assert near(found[first:after], want[0])
    pages = (np.array([0, 1], np.int32), np.zeros(1, np.int32), np.array([3], np.int32))
    found = tw.attention(q[None], k[None], v[None], block_table=pages, max_seqlen_k=13, bias=bias[:, :3], mask=mask[:3])
    assert near(found, tw.attention(q[None], k[None], v[None], bias=bias[:, :3, :3], mask=mask[:3, :3]))
    with pytest.raises(TilewrightError, match="does not broadcast"):
        tw.attention(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=8, max_seqlen_k=13, mask=mask)


def paged(k: Array, v: Array, size: int, order: Array) -> tuple[Array, Array, Array]:
    """Pools of pages in some order, unused slots NaN; and the block table."""
    pages = -(-k.shape[1] // size)
    pools = []
    for one in (k, v):
        pool = np.full((B * pages + 2, size, *one.shape[2:]), np.nan, one.dtype)
        for b in range(B):
            for p in range(pages):
                part = one[b, p * size : (p + 1) * size]
                pool[order[b * pages + p], : len(part)] = part
        pools.append(pool)
    return pools[0], pools[1], order[: B * pages].reshape(B, pages).astype(np.int32)


@pytest.mark.parametrize("size", [1, 3, 4, 16])
def test_pages_in_every_layout(size: int) -> None:
    q, k, v = arrays()
    lengths = np.array([SK, 5], np.int32)
    want = tw.attention(q, k, v, seqlens_k=lengths, causal="bottom_right")
    pages = -(-SK // size)
    order = np.random.default_rng(2).permutation(B * pages + 2)
    pool_k, pool_v, table = paged(k, v, size, order)
    for pool in (pool_k, pool_v):
        for b in range(B):
            for place in range(lengths[b], pages * size):
                pool[table[b, place // size], place % size] = np.nan  # behind the last key anything may lie
    said: dict[str, Any] = {"seqlens_k": lengths, "causal": "bottom_right"}
    found = tw.attention(q, pool_k, pool_v, block_table=table, page_size=size, **said)
    assert (found == want).all()
    turned = [np.ascontiguousarray(one.transpose(0, 2, 1, 3)) for one in (pool_k, pool_v)]
    assert (tw.attention(q, *turned, block_table=table, kv_layout="heads_first", **said) == want).all()
    used = -(-lengths // size)
    indices = np.concatenate([table[b, : used[b]] for b in range(B)]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(used)]).astype(np.int32)
    last = (lengths - (used - 1) * size).astype(np.int32)
    assert (tw.attention(q, pool_k, pool_v, block_table=(indptr, indices, last), causal="bottom_right") == want).all()
    if size % 4 == 0:
        slots, vec = size, 4
        of_k = pool_k.reshape(-1, slots, HK, D // vec, vec).transpose(0, 2, 3, 1, 4)
        of_v = pool_v.reshape(-1, slots // vec, vec, HK, DV).transpose(0, 3, 1, 4, 2)
        both = np.ascontiguousarray(of_k), np.ascontiguousarray(of_v)
        assert (tw.attention(q, *both, block_table=table, kv_layout="vectorised", **said) == want).all()


def test_prefill_from_a_pool() -> None:
    """Packed queries over pages found by indices: what serving does with prompts that share a prefix."""
    q, k, v = arrays()
    pool_k, pool_v, table = paged(k, v, 4, np.arange(B * 3 + 2))
    starts = np.array([0, 3, 10], np.int32)
    packed = np.concatenate([q[0, :3], q[1]])
    shared = np.array([*table[0], *table[0][:2], table[1][0]], np.int32)
    indptr, last = np.array([0, 3, 6], np.int32), np.array([3, 4], np.int32)
    found = tw.attention(
        packed, pool_k, pool_v, cu_seqlens_q=starts, block_table=(indptr, shared, last), causal="bottom_right"
    )
    assert near(found[:3], plain(q[0, :3], k[0], v[0], causal="bottom_right")[0])
    keys = [np.concatenate([one[0, :8], one[1, :4]]) for one in (k, v)]
    assert near(found[3:], plain(q[1], *keys, causal="bottom_right")[0])


# -- splits, dropout ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [2, 3, 16])
def test_splits_change_nothing_but_the_last_digits(splits: int) -> None:
    q, k, v = arrays()
    want, want_lse = tw.attention(q, k, v, causal=True, sink=SINK, return_lse=True)
    found, lse = tw.attention(q, k, v, causal=True, sink=SINK, return_lse=True, num_splits=splits)
    assert np.abs(found - want).max() < 2e-6
    assert np.abs(lse - want_lse).max() < 2e-6


def test_dropout_is_told_by_seed_and_offset() -> None:
    q, k, v = arrays()
    one = tw.attention(q, k, v, dropout_p=0.5, seed=11)
    assert (tw.attention(q, k, v, dropout_p=0.5, seed=(11, 0)) == one).all()
    assert (tw.attention(q, k, v, dropout_p=0.5, seed=np.array([11, 0])) == one).all()
    assert (tw.attention(q, k, v, dropout_p=0.5, seed=12) != one).any()
    assert (tw.attention(q, k, v, dropout_p=0.5, seed=(11, 1)) != one).any()
    assert (tw.attention(q, k, v, dropout_p=0.5, seed=11 + (1 << 60)) != one).any(), "all 64 bits count"
    apart = tw.attention(q[:, 2:5], k, v, dropout_p=0.5, seed=11)
    assert (apart != one[:, 2:5]).any(), "rows are counted in their sequence"
    assert (tw.attention(q, k, v, dropout_p=0.0) == tw.attention(q, k, v)).all()
    assert np.abs(tw.attention(q, k, v, dropout_p=0.5, seed=11, num_splits=3) - one).max() < 2e-6, "whatever the split"


# -- caches ------------------------------------------------------------------------------------------------------------


def rotated(x: Array, place: int, cos: Array, sin: Array, kind: str) -> Array:
    found = x.astype(np.float64).copy()
    half = cos.shape[1]
    for i in range(half):
        a, b = (i, i + half) if kind == "half" else (2 * i, 2 * i + 1)
        p, q = x[..., a].astype(np.float64), x[..., b].astype(np.float64)
        found[..., a], found[..., b] = p * cos[place, i] - q * sin[place, i], q * cos[place, i] + p * sin[place, i]
    return found


@pytest.mark.parametrize("kind", ["interleaved", "half"])
@pytest.mark.parametrize("pages", [False, True])
def test_rows_go_behind_those_of_a_cache(kind: str, pages: bool) -> None:
    q, k, v = arrays(sq=3, sk=3)
    angle = np.outer(np.arange(16), 10.0 ** -np.arange(4)).astype(np.float32)
    cos, sin = np.cos(angle), np.sin(angle)
    lengths = np.array([5, 0], np.int32)
    cache_k, cache_v = (np.full((B, 16, HK, one.shape[-1]), np.nan, np.float32) for one in (k, v))
    table, more = None, dict[str, Any]()
    if pages:
        table = np.array([[3, 1, 0, 2], [7, 6, 5, 4]], np.int32)
        cache_k, cache_v = (one.reshape(8, 4, HK, -1) for one in (cache_k, cache_v))
        more = {"block_table": table}
    given = tw.append_kv(cache_k, cache_v, k, v, cache_seqlens=lengths, rotary=(cos, sin, kind), q=q, **more)
    assert given[0] is cache_k
    assert given[1] is cache_v
    for b in range(B):
        for t in range(3):
            place = int(lengths[b]) + t
            at: Any = (b, place) if table is None else (table[b, place // 4], place % 4)
            assert near(cache_k[at], rotated(k[b, t], place, cos, sin, kind))
            assert (cache_v[at] == v[b, t]).all()
            assert near(given[2][b, t], rotated(q[b, t], place, cos, sin, kind))
    assert np.isnan(cache_k).any(-1).sum() == (32 - 6) * HK, "nothing else was written"
    same = q.copy()
    tw.append_kv(cache_k, cache_v, k, v, cache_seqlens=lengths, rotary=(cos, sin, kind), q=same, q_out=same, **more)
    assert (same == given[2]).all(), "q may be turned in its place"


def test_a_narrow_cache_holds_rows_over_their_scales() -> None:
    """What is appended and read with the same scales is the row, within fp8; and beyond the largest number that one."""
    q, k, v = arrays()
    lengths = np.zeros(B, np.int32)
    for shape, block in (((HK,), None), ((B, HK, 3), 4)):
        scales = [np.exp(np.random.default_rng(n).standard_normal(shape)).astype(np.float32) / 8 for n in (1, 2)]
        made = [np.zeros((B, 12, HK, one.shape[-1]), ml_dtypes.float8_e4m3fn) for one in (k, v)]
        tw.append_kv(made[0], made[1], k, v, cache_seqlens=lengths, kv_scales=scales, scale_block=block)
        found = [one[:, :SK].astype(np.float64) * spread(scale, block) for one, scale in zip(made, scales, strict=True)]
        for got, want in zip(found, (k, v), strict=True):
            assert np.abs(got - want).max() <= 2**-4 * np.abs(want).max() + 2**-10
        more: dict[str, Any] = {"seqlens_k": np.full(B, SK, np.int32), "kv_scales": scales, "scale_block": block}
        read = tw.attention(q.astype(np.float16), *made, **more)
        assert np.abs(read - batched(q.astype(np.float16), *found)[0]).max() < 4e-3
    small = np.zeros((B, 12, HK, 16), ml_dtypes.float8_e4m3fn)
    rows = np.full((B, 1, HK, 16), 500.0, np.float32)
    tw.append_kv(small, small.copy(), rows, -rows, cache_seqlens=lengths)
    assert (small[:, 0].astype(np.float32) == 448).all()


def spread(scale: Array, block: int | None) -> Array:
    """Scales as rows (sequences, keys, heads, 1) meet them."""
    if scale.ndim == 1:
        return scale[None, None, :, None]
    return np.repeat(scale, block or 1, axis=2)[:, :, :SK].transpose(0, 2, 1)[..., None]


def test_a_cache_that_grew_is_read() -> None:
    """Token by token against all at once."""
    q, k, v = arrays(sq=SK)
    want = tw.attention(q, k, v, causal=True)
    cache_k, cache_v = (np.full((B, 16, HK, one.shape[-1]), np.nan, np.float32) for one in (k, v))
    for t in range(SK):
        step = slice(t, t + 1)
        lengths = np.full(B, t, np.int32)
        tw.append_kv(cache_k, cache_v, k[:, step], v[:, step], cache_seqlens=lengths)
        found = tw.attention(q[:, step], cache_k, cache_v, seqlens_k=lengths + np.int32(1), causal="bottom_right")
        assert np.abs(found - want[:, step]).max() < 2e-6


def test_tensors_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(one).transpose(1, 2) for one in arrays())
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    found, lse = tw.attention(q, k, v, causal=True, layout="bhsd", return_lse=True)
    assert isinstance(found, torch.Tensor)
    assert isinstance(lse, torch.Tensor)
    assert (found - want).abs().max() < 1e-5
    half = tw.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal=True, layout="bhsd")
    assert half.dtype == torch.bfloat16
    assert (half.float() - want).abs().max() < 0.05
