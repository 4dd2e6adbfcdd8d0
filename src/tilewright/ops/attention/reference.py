"""What attention is, in float64, and how far a kernel may be from it.

One bound for every kernel, from element types, lengths and what kernels do.  With u = 2^-24, of row i and key j:

    e = gamma(d + 4) scale |q|.|k|        the score, a sum of d products in fp32 (of fp8: narrow sums, ops/numerics.py)
      + 24 u cap                          a soft cap: tanh in fp32
      + 4 u (|score| + |bias|)            what is added, and the scale
    r = expm1(e + (8 + 4 |score - top|) u)    the relative error of the weight p: exp in fp32 under a running maximum

The sum of weights and the sum of p v have n keys each and are scaled anew at most once in 16 of them: gamma(2 n + 64).
Weights are rounded to the type of V before the second product (u_p, and s_p its smallest number over the
largest weight; of fp8 under a scale of at least 2^8; fp32 is not rounded).  So with P the softmax, R = P r:

    o    (P r) |v| + R P|v| + (u_p + 2 gamma(2 n + 64) + 4 u) P|v| + s_p sum|v|, then rounded to the output type
    lse  R + gamma(2 n + 64) + 8 u (1 + |lse|)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.dataclass import NamedTuple
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention_scores import Array, Cut, Given, Numbers, cut_of, kept, scores, wide
from tilewright.ops.numerics import (
    SMALLEST,
    U32,
    Check,
    after_rounding,
    compare,
    gamma,
    narrow_part,
    sampled_rows,
)

MOST_PRODUCTS = 4e9  # that a check computes in float64


class Exact(NamedTuple):
    """Values and bounds of a sequence's rows: o of rows, heads, elements; lse of heads, rows."""

    o: Array
    o_bound: Array
    lse: Array
    lse_bound: Array


# -- sequences ---------------------------------------------------------------------------------------------------------


def _lengths(p: AttentionProblem, operands: Given, index: int) -> tuple[int, int, int, int]:
    """First row, rows, first key and keys of a sequence."""
    first_row, rows, first_key, keys = 0, p.seqlen_q, 0, p.seqlen_k
    if p.varlen:
        first_row = int(operands["cu_seqlens_q"][index])
        rows = int(operands["cu_seqlens_q"][index + 1]) - first_row
    if p.seqlens_q:
        rows = int(operands["seqlens_q"][index])
    if p.varlen and p.pages == "none":
        first_key = int(operands["cu_seqlens_k"][index])
        keys = int(operands["cu_seqlens_k"][index + 1]) - first_key
    if p.page_lookup == "indices":
        pages = int(operands["page_indptr"][index + 1]) - int(operands["page_indptr"][index])
        keys = (pages - 1) * p.page_size + int(operands["page_last"][index]) if pages else 0
    elif p.seqlens_k:
        keys = int(operands["seqlens_k"][index])
    return first_row, rows, first_key, keys


def unvectorised(p: AttentionProblem, name: str, pool: Any) -> Array:
    """Pages as (page, slot, head, element), whatever their layout."""
    if p.pages != "vectorised":
        return np.asarray(pool)
    if name == "k":  # page, head, d / vec, slot, vec
        return np.asarray(pool).transpose(0, 3, 1, 2, 4).reshape(p.page_count, p.page_size, p.heads_kv, p.head_dim)
    # page, head, slot / vec, d, vec
    return np.asarray(pool).transpose(0, 2, 4, 1, 3).reshape(p.page_count, p.page_size, p.heads_kv, p.head_dim_v)


def _keys(p: AttentionProblem, name: str, operands: Given, index: int, first: int, count: int) -> Array:
    """Keys or values of a sequence: count, heads, elements."""
    if p.pages == "none":
        return np.asarray(operands[name][first : first + count] if p.varlen else operands[name][index][:count])
    logical = np.arange(-(-count // p.page_size))
    if p.page_lookup == "indices":
        chosen = np.asarray(operands["block_table"])[int(operands["page_indptr"][index]) + logical]
    else:
        chosen = np.asarray(operands["block_table"])[index][logical]
    slots: Array = unvectorised(p, name, operands[name])[chosen]
    return np.asarray(slots.reshape(-1, *slots.shape[2:])[:count])


def _scaled(p: AttentionProblem, name: str, operands: Given, index: int, rows: Array) -> Array:
    """Rows times their scales."""
    values = wide(rows)
    return (
        values * _scale_of(p, name, operands, index, np.arange(len(values))) if f"{name}_scale" in operands else values
    )


def _scale_of(p: AttentionProblem, name: str, operands: Given, index: int, places: Array) -> Array:
    """The scales of rows at some places: (rows, heads or 1, 1).

    An array of scales is (sequences, heads, blocks), 1 where it repeats.
    """
    scale = wide(operands[f"{name}_scale"])
    scale = scale.reshape((1,) * (3 - scale.ndim) + scale.shape) if scale.ndim != 1 else scale.reshape(1, -1, 1)
    mine = scale[index % scale.shape[0]]  # heads or 1, blocks or 1
    block = places // max(1, p.scale_block) if mine.shape[1] > 1 else np.zeros(len(places), np.int64)
    return np.asarray(mine[:, block].T[:, :, None])


def sequences(problem: AttentionProblem, operands: Given) -> Iterator[Cut]:
    """The sequences of a forward problem, one after another."""
    p = problem
    for index in range(p.batch):
        first_row, rows, first_key, keys = _lengths(p, operands, index)
        q = operands["q"][first_row : first_row + rows] if p.varlen else operands["q"][index][:rows]
        k, v = (
            _scaled(p, name, operands, index, _keys(p, name, operands, index, first_key, keys)) for name in ("k", "v")
        )
        yield cut_of(p, operands, index, first_row, _scaled(p, "q", operands, index, q), k, v)


# -- one sequence ------------------------------------------------------------------------------------------------------


def _narrow(p: AttentionProblem) -> bool:
    return DTYPES[p.dtype_kv].bytes == 1 and DTYPES[p.dtype_q].bytes == 1


def _weight_rounding(p: AttentionProblem) -> tuple[float, float]:
    """u_p and s_p: what rounding weights to the type of V loses."""
    if p.dtype_kv == "fp32":
        return 0.0, 0.0
    if DTYPES[p.dtype_kv].bytes == 1:
        return DTYPES[p.dtype_kv].unit_roundoff, 2.0**-10 / 256
    return DTYPES[p.dtype_kv].unit_roundoff, SMALLEST[p.dtype_kv]


def attend(p: AttentionProblem, numbers: Numbers, cut: Cut, rows: Array) -> Exact:
    """Some rows of a sequence, every head."""
    count, group = len(cut.k), p.heads_q // p.heads_kv
    o = np.zeros((len(rows), p.heads_q, p.head_dim_v))
    o_bound, lse = np.zeros_like(o), np.full((p.heads_q, len(rows)), -np.inf)
    lse_bound = np.zeros_like(lse)
    u_p, s_p = _weight_rounding(p)
    sums = gamma(2 * count + 64)
    for head in range(p.heads_q):
        narrow = narrow_part(p.head_dim) if _narrow(p) else 0.0
        score, error = scores(p, numbers, cut, head, rows, narrow)
        with np.errstate(all="ignore"):
            sink = -np.inf if cut.sink is None else cut.sink[head]
            top = np.maximum(score.max(1, initial=-np.inf), sink)
            level = np.where(np.isneginf(top), 0.0, top)[:, None]
            weight = np.exp(score - level)
            total = weight.sum(1) + np.exp(sink - level[:, 0])
            some = total != 0  # NaN too
            share = np.where(some[:, None], weight / np.where(some, total, 1.0)[:, None], 0.0)
            wrong = np.expm1(error + (8 + 4 * np.where(np.isfinite(score), level - score, 0.0)) * U32)
            wrong = np.where(share > 0, np.minimum(wrong, 1e30), 0.0)
            off = (share * wrong).sum(1)
            if p.dropout:
                share = share * kept(numbers, cut.number * p.heads_q + head, rows, count)
            v, size = cut.v[:, head // group], np.abs(cut.v[:, head // group])
            # A key that is not seen does not count, whatever its value: 0 times infinity is no number.
            plain = np.where(np.isfinite(v), v, 0.0)
            value = share @ plain
            if not np.isfinite(v).all():
                value = value + _unsound(share, v)
            level_size = share @ np.where(np.isfinite(v), size, 0.0)
            bound = (share * wrong) @ np.where(np.isfinite(v), size, 0.0)
            bound = bound + (off[:, None] + u_p + 2 * sums + 4 * U32) * level_size
            o[:, head] = np.where(some[:, None], value, 0.0)
            o_bound[:, head] = bound + s_p * np.where(np.isfinite(v), size, 0.0).sum(0)
            lse[head] = np.where(some, level[:, 0] + np.log(np.where(some, total, 1.0)), -np.inf)
            finite = np.where(np.isfinite(lse[head]), np.abs(lse[head]), 0.0)
            lse_bound[head] = off + sums + 8 * U32 * (1 + finite)
    return Exact(o, o_bound, lse, lse_bound)


def _unsound(share: Array, v: Array) -> Array:
    """What values that are not finite bring into the rows that see them."""
    unsound = np.zeros((len(share), v.shape[1]))
    for key in np.flatnonzero(~np.isfinite(v).all(1)):
        weighed = share[:, key : key + 1] * np.where(np.isfinite(v[key]), 0.0, v[key])
        unsound = unsound + np.where((share[:, key : key + 1] != 0) & ~np.isfinite(v[key]), weighed, 0.0)
    return unsound


# -- judging -----------------------------------------------------------------------------------------------------------


def _chosen_rows(p: AttentionProblem, rows: int, keys: int) -> Array:
    """Rows that are checked: all, or of a large problem some."""
    cost = float(p.batch) * p.heads_q * rows * keys * (p.head_dim + 4.0 * p.head_dim_v)
    return np.arange(rows)[sampled_rows(rows, cost, MOST_PRODUCTS, 4)]


def forward(problem: AttentionProblem, operands: Given, numbers: Numbers) -> Iterator[tuple[Cut, Array, Exact]]:
    """Every sequence with rows of it that were computed."""
    for cut in sequences(problem, operands):
        rows = _chosen_rows(problem, len(cut.q), len(cut.k))
        yield cut, rows, attend(problem, numbers, cut, rows)


def _rows_of(p: AttentionProblem, array: Array, cut: Cut, rows: Array) -> Array:
    """Rows of a sequence in a result of o's shape."""
    return np.asarray(array[cut.first_row + rows] if p.varlen else array[cut.number][rows])


def _lse_of(p: AttentionProblem, array: Array, cut: Cut, rows: Array) -> Array:
    return np.asarray(array[:, cut.first_row + rows] if p.varlen else array[cut.number][:, rows])


def worst(checks: list[Check]) -> Check:
    return max(checks, key=lambda check: check.bound_ratio, default=Check(True, 0.0, 0.0))


def judgement(problem: AttentionProblem, operands: Given, numbers: Numbers) -> Callable[[Given], Check]:
    """A check of results (`out`, `lse`, or `parts` and `part_lse`) for one set of operands: computed once."""
    p = problem
    known = list(forward(p, operands, numbers))

    def judge(results: Given) -> Check:
        checks = []
        for cut, rows, exact in known:
            o, lse, extra = results.get("out"), results.get("lse"), 0.0
            bound, lse_bound = exact.o_bound, exact.lse_bound
            if p.family == "split":
                o, lse = together(p, results["parts"], results["part_lse"], cut, rows)
                extra = 16 * U32 * float(1 + np.max(np.abs(lse[np.isfinite(lse)]), initial=0.0))
                bound = 2 * bound + extra * (np.abs(exact.o) + bound + np.max(np.abs(cut.v), initial=0.0))
                lse_bound = 2 * lse_bound + extra
            else:
                o = _rows_of(p, np.asarray(o), cut, rows)
                lse = None if not p.return_lse else _lse_of(p, np.asarray(lse), cut, rows)
            checks.append(compare(o, exact.o, after_rounding(p.dtype_out, exact.o, bound), p.dtype_out))
            if lse is not None:
                checks.append(compare(lse, exact.lse, after_rounding("fp32", exact.lse, lse_bound), "fp32"))
        return worst(checks)

    return judge


def merged(parts: Array, sums: Array) -> tuple[Array, Array]:
    """Parts (split, ..., element) and their lse (split, ...) as one, in float64."""
    with np.errstate(all="ignore"):
        top = sums.max(0)
        level = np.where(np.isneginf(top), 0.0, top)
        weight = np.exp(sums - level)
        total = weight.sum(0)
        some = total != 0
        value = (np.where(weight[..., None] != 0, weight[..., None] * parts, 0.0)).sum(0)
        value = np.where(some[..., None], value / np.where(some, total, 1.0)[..., None], 0.0)
        return value, np.where(some, level + np.log(np.where(some, total, 1.0)), -np.inf)


def together(p: AttentionProblem, parts: Any, sums: Any, cut: Cut, rows: Array) -> tuple[Array, Array]:
    """The parts of a sequence's rows put together: o of rows, heads, elements; lse of heads, rows."""
    values, logs = wide(parts), wide(sums)
    mine = values[:, 0, cut.first_row + rows] if p.varlen else values[:, cut.number][:, rows]
    log = logs[:, :, cut.first_row + rows] if p.varlen else logs[:, cut.number][:, :, rows]
    value, lse = merged(mine, log.transpose(0, 2, 1))
    return value, lse.T


def judge_combine(problem: AttentionProblem, operands: Given) -> Callable[[Given], Check]:
    """A check of a combination: its parts are given."""
    p = problem
    parts, sums = wide(operands["given_parts"]), wide(operands["given_lse"])
    known = []
    for index in range(p.batch):
        first, rows, _, _ = _lengths(p, operands, index)
        cut = Cut(index, first, *(np.zeros((0, 1, 1)),) * 3, None, None, None, None)
        chosen = np.arange(rows)
        value, lse = together(p, parts, sums, cut, chosen)
        size, _ = together(p, np.abs(parts), sums, cut, chosen)
        mine = sums[:, :, first : first + rows] if p.varlen else sums[:, index][:, :, :rows]
        with np.errstate(all="ignore"):
            apart = np.max(np.where(np.isfinite(mine), np.abs(mine - lse[None]), 0.0), axis=0, initial=0.0)
        known.append((cut, chosen, value, size, lse, apart))

    def judge(results: Given) -> Check:
        checks = []
        for cut, rows, value, size, lse, apart in known:
            part = gamma(p.num_splits + 8) + (8 + 4 * apart.T[:, :, None]) * U32
            bound = after_rounding(p.dtype_out, value, 2 * part * size)
            checks.append(compare(_rows_of(p, np.asarray(results["out"]), cut, rows), value, bound, p.dtype_out))
            if p.return_lse:
                near = np.where(np.isfinite(lse), np.abs(lse), 0.0)
                limit = after_rounding("fp32", lse, gamma(p.num_splits + 8) + 8 * U32 * (1 + near + apart))
                checks.append(compare(_lse_of(p, np.asarray(results["lse"]), cut, rows), lse, limit, "fp32"))
        return worst(checks)

    return judge


# -- append ------------------------------------------------------------------------------------------------------------


def rotated(problem: AttentionProblem, rows: Any, places: Array, cos: Any, sin: Any) -> tuple[Array, Array]:
    """Rows (rows, heads, elements) rotated by their places, and the bound before rounding."""
    value, bound = wide(rows), np.zeros(np.asarray(rows).shape)
    if problem.rotary == "none":
        return value, bound
    half = problem.rotary_dim // 2
    if problem.rotary == "half":
        a, b = slice(0, half), slice(half, 2 * half)
    else:
        a, b = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    c, s = (wide(table)[places][:, None, :] for table in (cos, sin))
    p, q = value[:, :, a].copy(), value[:, :, b].copy()
    value[:, :, a], value[:, :, b] = p * c - q * s, q * c + p * s
    bound[:, :, a], bound[:, :, b] = (
        gamma(3) * (np.abs(p * c) + np.abs(q * s)),
        gamma(3) * (np.abs(q * c) + np.abs(p * s)),
    )
    return value, bound


def judge_append(problem: AttentionProblem, operands: Given) -> Callable[[Given], Check]:
    """A check of an append into poisoned caches: new rows are where they belong, and nothing else changed."""
    p = problem
    kind = p.dtype_kv

    def judge(results: Given) -> Check:
        checks = []
        touched = {name: np.zeros(_slots(p), bool) for name in "kv"}
        caches = {name: unvectorised(p, name, results[f"cache_{name}"]) for name in "kv"}
        for index in range(p.batch):
            old = int(operands["cache_seqlens"][index])
            count = int(operands["seqlens_new"][index]) if p.seqlens_q else p.seqlen_q
            places = old + np.arange(count)
            where = _places(p, operands, index, places)
            for name in "kv":
                touched[name][where] = True
                value = wide(operands[name][index][:count])
                bound = np.zeros_like(value)
                if name == "k":
                    value, bound = rotated(
                        p, operands["k"][index][:count], places, operands.get("cos"), operands.get("sin")
                    )
                if p.kv_scales != "none":
                    scale = _scale_of(p, name, operands, index, places)
                    value, bound = value / scale, bound / scale
                if p.dtype_kv != p.dtype_q:  # over a scale, or 1
                    bound = bound + U32 * np.abs(value)
                rounded = p.dtype_kv != p.dtype_q or (name == "k" and p.rotary != "none")
                limit = after_rounding(kind, value, bound) if rounded else np.zeros(())
                checks.append(compare(caches[name][where], value, limit, kind))
            if p.rotary_q:
                value, bound = rotated(
                    p, operands["q"][index][:count], places, operands.get("cos"), operands.get("sin")
                )
                limit = after_rounding(p.dtype_q, value, bound)
                checks.append(compare(np.asarray(results["q_out"])[index][:count], value, limit, p.dtype_q))
        checks += [_untouched(name, caches[name], touched[name]) for name in "kv"]
        return worst(checks)

    return judge


def _slots(p: AttentionProblem) -> tuple[int, int]:
    return (p.page_count, p.page_size) if p.pages != "none" else (p.batch, p.seqlen_k)


def _places(p: AttentionProblem, operands: Given, index: int, places: Array) -> tuple[Any, Any]:
    if p.pages == "none":
        return np.full(len(places), index), places
    return np.asarray(operands["block_table"])[index][places // p.page_size], places % p.page_size


def _untouched(name: str, cache: Array, touched: Array) -> Check:
    """Every other slot holds what samples are poisoned with."""
    wrong = int(np.count_nonzero(np.ascontiguousarray(cache[~touched]).view(np.uint8) != 0xFF))
    if not wrong:
        return Check(True, 0.0, 0.0)
    return Check(False, float("inf"), float("inf"), f"{wrong} bytes of cache_{name} changed where nothing was appended")
