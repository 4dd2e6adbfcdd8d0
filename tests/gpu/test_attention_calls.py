"""Calls of attention on PyTorch's tensors: graphs that read their tables anew, tables that are checked, places that
take more than 32 bits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import tilewright as tw
from tests.gpu.torch_here import torch
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.errors import TilewrightError
from tilewright.ops.attention import AttentionProblem

ATTENTION = ops.op("attention")

BOUND = 2.0**-7  # of the weighted values: weights and results are rounded to eight bits


def made(*sizes: int) -> Any:
    return torch.randn(sizes, device="cuda").bfloat16()


def numbers(*values: int) -> Any:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def check(out: Any, q: Any, k: Any, v: Any, causal: bool = False) -> None:
    """Rows x heads x elements of one sequence against float64; causal: the last row sees all."""
    group = q.shape[1] // k.shape[1]
    wide_q, wide_k, wide_v = (
        one.double().transpose(0, 1) for one in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
    )
    scores = wide_q @ wide_k.transpose(1, 2) * q.shape[2] ** -0.5
    if causal:
        seen = torch.ones(scores.shape[1:], dtype=torch.bool, device="cuda").tril(k.shape[0] - q.shape[0])
        scores.masked_fill_(~seen, float("-inf"))
    weights = scores.softmax(2)
    error = (out.double().transpose(0, 1) - weights @ wide_v).abs()
    assert bool((error <= BOUND * (weights @ wide_v.abs())).all())


def captured(run: Any) -> Any:
    """After one call outside: code is loaded then, and the workspace made."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


@pytest.mark.parametrize("splits", [None, 1, 7])
def test_a_graph_of_a_decoding_step_reads_lengths_and_pages_anew(splits: int | None) -> None:
    batch, heads, heads_kv, head, size, each = 3, 16, 4, 128, 16, 200
    q, out = made(batch, 1, heads, head), torch.empty(batch, 1, heads, head, device="cuda", dtype=torch.bfloat16)
    pool_k, pool_v = (made(batch * each, size, heads_kv, head) for _ in "kv")
    table, lengths = torch.zeros(batch, each, dtype=torch.int32, device="cuda"), numbers(1, 1, 1)
    graph = captured(
        lambda: tw.attention(q, pool_k, pool_v, block_table=table, seqlens_k=lengths, num_splits=splits, out=out)
    )
    for number, tokens in enumerate(((3200, 1, 777), (16, 3199, 2048))):
        torch.manual_seed(number)
        q.copy_(made(*q.shape))
        table.copy_(torch.randperm(batch * each, device="cuda").view(batch, each))
        lengths.copy_(numbers(*tokens))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for index, count in enumerate(tokens):
            keys, values = (one[table[index].long()].flatten(0, 1)[:count] for one in (pool_k, pool_v))
            check(out[index], q[index], keys, values)


def test_shares_find_their_counters_zero_again(arch: str) -> None:
    """One graph, replayed with other lengths: other pieces meet at other places of the same workspace."""
    batch, heads, heads_kv, head, size, each = 5, 16, 2, 128, 64, 400
    q, out = made(batch, 2, heads, head), torch.empty(batch, 2, heads, head, device="cuda", dtype=torch.bfloat16)
    pool_k, pool_v = (made(batch * each, size, heads_kv, head) for _ in "kv")
    table = torch.randperm(batch * each, device="cuda").view(batch, each).to(torch.int32)
    lengths = numbers(1, 1, 1, 1, 1)
    paged: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "page_size": size, "seqlens_k": True}
    problem = AttentionProblem(batch, heads, 2, each * size, head, heads_kv, dtype_q="bf16", **paged)
    (spec,) = (
        one for one in ATTENTION.candidates(problem.signature, arch) if one.schedule.pipeline == "decode_stream_k"
    )
    kernel = kernels.kernel(spec)
    graph = captured(lambda: kernel(q, pool_k, pool_v, block_table=table, seqlens_k=lengths, num_splits=1, out=out))
    for tokens in (
        (25600, 1, 777, 0, 9000),
        (64, 25599, 2048, 20000, 13),
        (5120, 5120, 5120, 5120, 5120),
        (9, 8, 7, 6, 5),
    ):
        lengths.copy_(numbers(*tokens))
        for _ in range(3):
            out.fill_(float("nan"))
            graph.replay()
        torch.cuda.synchronize()
        for index, count in enumerate(tokens):
            keys, values = (one[table[index].long()].flatten(0, 1)[:count] for one in (pool_k, pool_v))
            if count:
                check(out[index], q[index], keys, values)
            else:
                assert bool((out[index] == 0).all())


def test_a_graph_of_packed_sequences_reads_starts_anew() -> None:
    total, longest = 1000, 600
    q, k, v = made(total, 8, 64), made(total, 2, 64), made(total, 2, 64)
    starts, out = numbers(0, 500, 1000, 1000), torch.empty_like(q)
    graph = captured(
        lambda: tw.attention(
            q,
            k,
            v,
            causal="bottom_right",
            cu_seqlens_q=starts,
            cu_seqlens_k=starts,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
            out=out,
        )
    )
    for begins in ((0, 7, 600, 1000), (0, 400, 400, 999)):
        starts.copy_(numbers(*begins))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for begin, end in pairwise(begins):
            at = slice(begin, end)
            check(out[at], q[at], k[at], v[at], causal=True)
        assert bool(out[begins[-1] :].isnan().all())


def test_tables_on_the_device_are_checked_where_that_is_asked_for() -> None:
    q, pool = made(2, 1, 4, 64), made(8, 16, 2, 64)
    lengths, good, bad = numbers(40, 33), torch.zeros(2, 4, dtype=torch.int32, device="cuda"), numbers(0, 1, 8, 0)
    table = good.clone()
    table[1] = bad
    out = torch.full_like(q, 7.0)
    with tw.settings.override(check_tables=True):
        tw.attention(q, pool, pool, block_table=good, seqlens_k=lengths)
        with pytest.raises(TilewrightError, match="block_table"):
            tw.attention(q, pool, pool, block_table=table, seqlens_k=lengths, out=out)
        with pytest.raises(TilewrightError, match="seqlens_k"):
            tw.attention(q, pool, pool, block_table=good, seqlens_k=numbers(40, 65), out=out)
    torch.cuda.synchronize()
    assert bool((out == 7.0).all())  # nothing was launched


def test_pages_that_do_not_exist_are_zeros(arch: str) -> None:
    """What costs nothing: no kernel but the floor touches memory outside of the pool, whatever a table holds."""
    q, k, v = made(1, 1, 8, 128), made(4, 64, 2, 128), made(4, 64, 2, 128)
    table, lengths = numbers(2, 2**31 - 1, -1, 0)[None], numbers(256)
    nothing = torch.zeros_like(k[0])
    keys, values = (torch.cat((one[2], nothing, nothing, one[0])) for one in (k, v))
    paged: dict[str, Any] = {"pages": "strided", "page_lookup": "table", "page_size": 64, "seqlens_k": True}
    problem = AttentionProblem(1, 8, 1, 256, 128, 2, dtype_q="bf16", **paged)
    tiled = [one for one in ATTENTION.candidates(problem.signature, arch) if one.schedule.pipeline != "loops"]
    assert {"ws", "decode", "decode_stream_k", "mma_decode"} <= {one.schedule.pipeline for one in tiled}
    kernels.kernels(tiled)  # built side by side
    for spec in tiled:
        out = kernels.kernel(spec)(q, k, v, block_table=table, seqlens_k=lengths, num_splits=1)
        check(out[0], q[0], keys, values)


def test_places_beyond_32_bits() -> None:
    """Pages, sequences and rows whose first element has a number over 2^31; strides between sequences of that size."""
    size, heads, head = 64, 8, 128
    pages = 2**31 // (size * heads * head) + 5
    pool_k, pool_v = (torch.empty(pages, size, heads, head, device="cuda", dtype=torch.bfloat16) for _ in "kv")
    last = torch.arange(pages - 5, pages, device="cuda", dtype=torch.int32)[None]
    for pool in (pool_k, pool_v):
        pool[pages - 5 :] = made(5, size, heads, head)
    keys, values = (one[pages - 5 :].flatten(0, 1)[:300] for one in (pool_k, pool_v))
    for rows, splits in ((1, 1), (2, 2), (150, 1)):
        q = made(1, rows, 16, head)
        out = tw.attention(q, pool_k, pool_v, block_table=last, seqlens_k=numbers(300), num_splits=splits)
        check(out[0], q[0], keys, values)
    far = 2**31 + 1024
    flat = torch.empty(far + 300 * heads * head, device="cuda", dtype=torch.bfloat16)
    k = torch.as_strided(flat, (2, 300, heads, head), (far, heads * head, head, 1))
    for index in range(2):
        k[index] = made(300, heads, head)
    for rows in (1, 150):
        q = made(2, rows, 16, head)
        out = tw.attention(q, k, k)
        for index in range(2):
            check(out[index], q[index], k[index], k[index])
