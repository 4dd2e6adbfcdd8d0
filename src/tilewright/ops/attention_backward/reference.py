"""What the gradients of an attention are, in float64, and how far a kernel may be from them.

They are those of `attention_backward_args.h`, of the operands as they are given: out and lse are results of a forward
pass and are not computed again.  With z what dropout multiplies an entry by:

    p = exp(s - lse)   dp = z (dout . v)   delta = dout . out - dlse   ds = p (dp - delta)   g = ds (1 - tanh(s / c)^2)

delta of a row that sees nothing (lse is minus infinity) is 0, whatever dlse holds there.

One bound for every kernel, with u = 2^-24 and e the error of a score (`attention_scores`), of row i and key j:

    r  = expm1(e + (8 + 4 |s - lse|) u + 4 u (|s| + |lse|))     the relative error of p
    a  = gamma(dv + 4) z |dout|.|v|                             of dp, a sum of dv products in fp32
    b  = gamma(dv + 4) |dout|.|out| + 4 u (|dlse| + |delta|)    of delta
    t  = p (r |dp - delta| + (1 + r) (a + b + 2 u (|dp| + |delta|))) + y (1 + |dp - delta|)     of ds
    f  = t c' + |ds| (2 e / c + 8 u),  c' = 1 - tanh^2          of g; t where there is no cap

y = 2^-126: a p, or what is multiplied by it, that is smaller may be 0 (subnormal numbers are flushed); z p has it too.

p and g are rounded to the element type before the second products (u_p, and s_p its smallest number; fp32 is
not rounded), whose sums of n terms are in fp32, in any order and scaled once: w = 2 gamma(n + 64).

    dv   sum of z p (r + u_p + w) |dout| + z (s_p + y) |dout|         over the rows of all query heads of a group
    dq   scale times the sum of (f + (u_p + w) |g| + s_p) |k|   over keys;  dk likewise over rows with |q|
    dbias, dalibi, dsink   sums of t, of t times the distance, of exp(sink - lse) (r' |delta| + b); and w times sizes

then, with y for sums that are flushed, rounded to the type of the result.  What no row sees, and rows that see nothing,
are 0 exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.dataclass import NamedTuple, dataclass
from tilewright.dtypes import DTYPES
from tilewright.ops.attention_backward.problem import PREPARED_ROWS as R
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_scores import Array, Cut, Given, Numbers, cut_of, kept, row_lengths, scores, wide
from tilewright.ops.numerics import SMALLEST, U32, Check, after_rounding, compare, gamma

MOST_PRODUCTS = 4e9  # that a check computes in float64; of larger problems it looks at some heads
ROWS = 512  # of a head at once
LOG2_E = 1.4426950408889634
GRADIENTS = ("dq", "dk", "dv", "dbias", "dsink", "dalibi")
Exact = dict[str, tuple[Array, Array]]  # values and bounds by the name of a result


class Rows(NamedTuple):
    """What the gradients read of a sequence besides its scores: rows, heads, elements; of lse and delta heads, rows."""

    cut: Cut
    first_key: int
    dout: Array
    lse: Array
    delta: Array
    delta_error: Array


SMALLEST_NORMAL = 2.0**-126  # of fp32


@dataclass(frozen=True, slots=True)
class Rounded:
    """What rounding to the element type loses: relatively, and at least."""

    relative: float
    least: float

    @classmethod
    def from_dtype(cls, dtype: str) -> Rounded:
        return cls(0.0, 0.0) if dtype == "fp32" else cls(DTYPES[dtype].unit_roundoff, SMALLEST[dtype])


def of_rows(p: AttentionBackwardProblem, array: Any, index: int, first: int, rows: int) -> Array:
    """Rows of a sequence in an operand of q's, o's or k's shape."""
    return wide(array[first : first + rows] if p.varlen else array[index][:rows])


def of_lse(p: AttentionBackwardProblem, array: Any, index: int, first: int, rows: int) -> Array:
    return wide(array[:, first : first + rows] if p.varlen else array[index][:, :rows])


def _prepared(p: AttentionBackwardProblem, array: Any, operands: Given, index: int, rows: int) -> Array:
    """Heads and rows of what `dot` prepared."""
    first = (int(operands["cu_seqlens_q"][index]) // R + index) * R if p.varlen else 0
    return wide(array[0 if p.varlen else index][:, first : first + rows])


def sequences(p: AttentionBackwardProblem, operands: Given) -> Iterator[Rows]:
    """The sequences of a problem, with delta as `dot` gives it: computed, or given where the stage is by itself."""
    for index in range(p.batch):
        first_row, rows, first_key, keys = row_lengths(p, operands, index)
        q, dout = (of_rows(p, operands[name], index, first_row, rows) for name in ("q", "dout"))
        k, v = (of_rows(p, operands[name], index, first_key, keys) for name in ("k", "v"))
        if p.family == "grad":
            delta = _prepared(p, operands["given_delta"], operands, index, rows)
            lse = _prepared(p, operands["given_lse_log2"], operands, index, rows) / LOG2_E
            error = np.zeros_like(delta)
        else:
            lse = of_lse(p, operands["lse"], index, first_row, rows)
            delta, error = deltas(p, operands, index, first_row, rows)
        yield Rows(cut_of(p, operands, index, first_row, q, k, v), first_key, dout, lse, delta, error)


def deltas(p: AttentionBackwardProblem, operands: Given, index: int, first: int, rows: int) -> tuple[Array, Array]:
    """delta of a sequence's rows with its error: heads, rows."""
    with np.errstate(all="ignore"):
        product = of_rows(p, operands["dout"], index, first, rows) * of_rows(p, operands["out"], index, first, rows)
        delta, size = product.sum(-1).T, np.abs(product).sum(-1).T
        more = of_lse(p, operands["dlse"], index, first, rows) if p.dlse else np.zeros_like(delta)
        difference = delta - more
        error = gamma(p.head_dim_v + 4) * size + 4 * U32 * (np.abs(more) + np.abs(difference))
        sees = ~np.isneginf(of_lse(p, operands["lse"], index, first, rows))
        return np.where(sees, difference, 0.0), np.where(sees, error, 0.0)


def forward(p: AttentionBackwardProblem, operands: Given, numbers: Numbers) -> tuple[Array, Array]:
    """out and lse of the forward pass; rows that no sequence has are 0, and minus infinity."""
    shape, group = p.shape("o")[1:] if p.varlen else p.shape("o"), p.heads_q // p.heads_kv
    out, lse = np.zeros(shape), np.full(p.lse_shape, -np.inf)
    for index in range(p.batch):
        first_row, count, first_key, keys = row_lengths(p, operands, index)
        q = of_rows(p, operands["q"], index, first_row, count)
        k, v = (of_rows(p, operands[name], index, first_key, keys) for name in ("k", "v"))
        cut, rows = cut_of(p, operands, index, first_row, q, k, v), np.arange(count)
        at = slice(first_row, first_row + count)
        for head in range(p.heads_q):
            score, _ = scores(p, numbers, cut, head, rows)
            logits = score if cut.sink is None else np.concatenate([score, np.full((count, 1), cut.sink[head])], 1)
            with np.errstate(all="ignore"):
                top = logits.max(1, initial=-np.inf)
                level = np.where(np.isneginf(top), 0.0, top)
                total = np.exp(logits - level[:, None]).sum(1)
                logs = np.where(total > 0, level + np.log(total), -np.inf)
                weight = np.where(np.isneginf(logs)[:, None], 0.0, np.exp(score - logs[:, None]))
            if p.dropout:
                weight = weight * kept(numbers, index * p.heads_q + head, rows, keys)
            (out[at] if p.varlen else out[index, :count])[:, head] = weight @ v[:, head // group]
            (lse[head, at] if p.varlen else lse[index, head, :count])[...] = logs
    return out, lse


class Pairs(NamedTuple):
    """Of some rows of a head and all keys."""

    p: Array  # times what dropout multiplies by
    p_error: Array
    ds: Array
    ds_error: Array
    g: Array
    g_error: Array


def pairs_of(p: AttentionBackwardProblem, numbers: Numbers, sequence: Rows, head: int, rows: Array) -> Pairs:
    """Softmax and the gradients of scores of some rows of a head."""
    group, cut = p.heads_q // p.heads_kv, sequence.cut
    score, error = scores(p, numbers, cut, head, rows)
    lse, delta, off = (each[head][rows][:, None] for each in (sequence.lse, sequence.delta, sequence.delta_error))
    dout, v = sequence.dout[rows, head], cut.v[:, head // group]
    seen = np.isfinite(score) & np.isfinite(lse)
    with np.errstate(all="ignore"):
        z = kept(numbers, cut.number * p.heads_q + head, rows, len(cut.k)) if p.dropout else np.ones_like(score)
        weight = np.where(seen, np.exp(score - lse), 0.0)
        sizes = np.where(seen, 8 + 4 * (np.abs(score - lse) + np.abs(score) + np.abs(lse)), 0.0)
        r = np.where(seen, np.minimum(np.expm1(error + sizes * U32), 1e30), 0.0)
        dp, dp_size = z * (dout @ v.T), z * (np.abs(dout) @ np.abs(v).T)
        apart = np.abs(dp - delta)
        ds = np.where(seen, weight * (dp - delta), 0.0)
        t = r * apart + (1 + r) * (gamma(p.head_dim_v + 4) * dp_size + off + 2 * U32 * (np.abs(dp) + np.abs(delta)))
        lost = np.where(weight > 0, SMALLEST_NORMAL, 0.0)
        t = np.where(seen, weight * t + lost * (1 + apart), 0.0)
        g, f = ds, t
        if p.softcap:
            flat = _flat(p, numbers, sequence, head, rows)
            g = np.where(seen, ds * flat, 0.0)
            f = np.where(seen, t * flat + np.abs(ds) * (2 * error / numbers.softcap + 8 * U32), 0.0)
    return Pairs(z * weight, z * (weight * r + lost), ds, t, g, f)


def _flat(p: AttentionBackwardProblem, numbers: Numbers, sequence: Rows, head: int, rows: Array) -> Array:
    """What a soft cap makes of a gradient: 1 - tanh^2."""
    q, k = sequence.cut.q[rows, head], sequence.cut.k[:, head // (p.heads_q // p.heads_kv)]
    tangent = np.tanh(numbers.scale * (q @ k.T) / numbers.softcap)
    return np.asarray(1.0 - tangent * tangent)


class _Sums:
    """Values and bounds of all results, added up sequence by sequence and head by head."""

    def __init__(self, p: AttentionBackwardProblem) -> None:
        self.p = p
        self.totals: Exact = {}
        for name in ("dq", "dk", "dv"):
            shape = p.shape(name)[1:] if p.varlen else p.shape(name)
            self.totals[name] = np.zeros(shape), np.zeros(shape)
        more = {"dbias": p.bias_shape, "dsink": (p.heads_q,), "dalibi": (p.batch, p.heads_q)}
        for name, shape in more.items():
            if getattr(p, name):
                self.totals[name] = np.zeros(shape), np.zeros(shape)

    def put(self, name: str, sequence: Rows, head: int, value: Array, bound: Array, rows: Any = None) -> None:
        """Adds to a head of dq's rows, or of dk's or dv's keys."""
        first = sequence.cut.first_row if name == "dq" else sequence.first_key
        places = np.arange(len(value)) if rows is None else rows
        for whole, part in zip(self.totals[name], (value, bound), strict=True):
            (whole if self.p.varlen else whole[sequence.cut.number])[
                (first if self.p.varlen else 0) + places, head
            ] += part

    def head(self, numbers: Numbers, sequence: Rows, head: int) -> None:
        """A head's rows, some at a time; bounds of dk and dv take the rows of all heads that are added as one sum."""
        p, group = self.p, self.p.heads_q // self.p.heads_kv
        cut, kv, lost = sequence.cut, head // group, Rounded.from_dtype(p.dtype)
        along_rows = 2 * gamma(len(cut.q) * group + 64)
        along_keys = 2 * gamma(len(cut.k) + 64)
        scale = abs(numbers.scale)
        k, k_size = cut.k[:, kv], np.abs(cut.k[:, kv])
        for start in range(0, len(cut.q), ROWS):
            rows = np.arange(start, min(len(cut.q), start + ROWS))
            pair = pairs_of(p, numbers, sequence, head, rows)
            q, dout = cut.q[rows, head], sequence.dout[rows, head]
            used = pair.p != 0
            keep = np.where(used, lost.least, 0.0)
            with np.errstate(all="ignore"):
                size = pair.p_error + (lost.relative + along_rows) * pair.p + keep
                self.put("dv", sequence, kv, pair.p.T @ dout, size.T @ np.abs(dout))
                size = pair.g_error + (lost.relative + along_keys) * np.abs(pair.g) + keep
                self.put("dq", sequence, head, numbers.scale * (pair.g @ k), scale * (size @ k_size), rows)
                size = pair.g_error + (lost.relative + along_rows) * np.abs(pair.g) + keep
                self.put("dk", sequence, kv, numbers.scale * (pair.g.T @ q), scale * (size.T @ np.abs(q)))
            self.added(sequence, head, rows, pair)
        self.sink(sequence, head)

    def added(self, sequence: Rows, head: int, rows: Array, pair: Pairs) -> None:
        """The gradients of what is added to scores."""
        p, cut = self.p, sequence.cut
        if p.dbias:
            batch, heads, all_rows, keys = p.bias_shape
            terms = (p.batch // batch) * (p.heads_q // heads) * (p.seqlen_q if all_rows == 1 else 1)
            terms *= p.seqlen_k if keys == 1 else 1
            bound = pair.ds_error + 2 * gamma(terms + 64) * np.abs(pair.ds)
            at = cut.number % batch, head % heads if heads > 1 else 0
            for whole, part in zip(self.totals["dbias"], (pair.ds, bound), strict=True):
                part = part.sum(0, keepdims=True) if all_rows == 1 else part
                part = part.sum(1, keepdims=True) if keys == 1 else part
                whole[at][rows if all_rows > 1 else slice(0, 1), : part.shape[1]] += part
        if p.dalibi:
            shift = len(cut.k) - len(cut.q) if p.align == "bottom_right" or not p.bounded else 0
            apart = np.abs(rows[:, None] + shift - np.arange(len(cut.k))[None, :])
            w = 2 * gamma(len(cut.q) * len(cut.k) * p.batch + 64)
            value, bound = self.totals["dalibi"]
            value[cut.number, head] -= (pair.ds * apart).sum()
            bound[cut.number, head] += ((pair.ds_error + w * np.abs(pair.ds)) * apart).sum()

    def sink(self, sequence: Rows, head: int) -> None:
        if not self.p.dsink or sequence.cut.sink is None:
            return
        value, bound = sink_of(
            self.p, sequence.cut.sink[head], sequence.lse[head], sequence.delta[head], sequence.delta_error[head]
        )
        self.totals["dsink"][0][head] += value
        self.totals["dsink"][1][head] += bound


def sink_of(p: AttentionBackwardProblem, sink: float, lse: Array, delta: Array, off: Array) -> tuple[float, float]:
    """The gradient of a sink logit by the rows of one sequence."""
    with np.errstate(all="ignore"):
        weight = np.where(np.isfinite(lse), np.exp(sink - lse), 0.0)
        r = np.expm1((8 + 4 * (np.abs(sink - lse) + np.abs(lse) + np.abs(sink))) * U32)
        terms = 2 * gamma(p.batch * p.seqlen_q + 64)
        bound = np.where(weight > 0, weight * ((r + terms) * np.abs(delta) + (1 + r) * off), 0.0)
        return float(-(weight * delta).sum()), float(bound.sum())


def chosen_heads(p: AttentionBackwardProblem) -> list[tuple[int, int]]:
    """Sequences and heads of keys that are checked: all, or of a large problem some, the first and last among them."""
    every = [(index, head) for index in range(p.batch) for head in range(p.heads_kv)]
    cost = float(p.heads_q // p.heads_kv) * p.seqlen_q * p.seqlen_k * (3 * p.head_dim + 3 * p.head_dim_v + 64)
    most = max(2, int(MOST_PRODUCTS / max(1.0, cost)))
    if len(every) <= most or p.dbias or p.dsink or p.dalibi:
        return every
    return [every[at] for at in dict.fromkeys(np.linspace(0, len(every) - 1, most).astype(int).tolist())]


def gradients(p: AttentionBackwardProblem, operands: Given, numbers: Numbers) -> Exact:
    """Values and bounds of all results, before their last rounding; 0 for heads that are not looked at."""
    sums, chosen = _Sums(p), set(chosen_heads(p))
    group = p.heads_q // p.heads_kv
    for sequence in sequences(p, operands):
        for head in range(p.heads_q):
            if (sequence.cut.number, head // group) in chosen:
                sums.head(numbers, sequence, head)
    return sums.totals


def judgement(p: AttentionBackwardProblem, operands: Given, numbers: Numbers) -> Callable[[Given], Check]:
    """A check of results for one set of operands, computed once.  Accumulators are checked as results."""
    exact, group = gradients(p, operands, numbers), p.heads_q // p.heads_kv
    chosen = chosen_heads(p)

    def judge(results: Given) -> Check:
        checks: list[Check] = []
        for name, (value, bound) in exact.items():
            kind = p.dtype if name in ("dq", "dk", "dv") and name not in p.converted else "fp32"
            got = np.asarray(results[name])
            if name in p.converted:
                got = summed(p, name, results[f"{name}_sums"], operands, numbers.scale)
            limit = np.where(bound > 0, after_rounding(kind, value, bound + SMALLEST_NORMAL), 0.0)
            if name == "dalibi" and got.ndim == 1:
                value, limit = value.sum(0), limit.sum(0)
            elif name in ("dq", "dk", "dv") and len(chosen) < p.batch * p.heads_kv:
                checks += _of_heads(p, name, got, value, limit, kind, chosen, group)
                continue
            checks.append(compare(got, value, limit, kind))
        return max(checks, key=lambda check: check.bound_ratio, default=Check(True, 0.0, 0.0))

    return judge


def _of_heads(
    p: AttentionBackwardProblem, name: str, got: Array, value: Array, limit: Array, kind: str,
    chosen: list[tuple[int, int]], group: int,
) -> Iterator[Check]:  # fmt: skip
    """Of some heads; packed ones are compared over all sequences of a head that was looked at in each."""
    for index, head in chosen:
        if p.varlen and any((other, head) not in chosen for other in range(p.batch)):
            continue
        heads = slice(head * group, head * group + group) if name == "dq" else slice(head, head + 1)
        at: Any = (slice(None), heads) if p.varlen else (index, slice(None), heads)
        yield compare(got[at], value[at], limit[at], kind)


# -- the other stages --------------------------------------------------------------------------------------------------


def prepared_places(p: AttentionBackwardProblem, operands: Given, which: str, index: int) -> tuple[int, int, int]:
    """Where the rows ("q") or keys ("k") of a sequence are among prepared ones: sequence, first; and how many."""
    first_row, rows, first_key, keys = row_lengths(p, operands, index)
    count, first = (rows, first_row) if which == "q" else (keys, first_key)
    return (0, (first // R + index) * R, count) if p.varlen else (index, 0, count)


def summed(p: AttentionBackwardProblem, name: str, sums: Any, operands: Given, scale: float) -> Array:
    """Accumulators as `convert` makes a result of them, in float64: the shape of the result."""
    which = "q" if name == "dq" else "k"
    shape = p.shape(name)[1:] if p.varlen else p.shape(name)
    total, from_ = np.zeros(shape), wide(sums)  # sequences, heads, prepared rows, elements
    parts = from_.shape[1] // shape[-2]
    for index in range(p.batch):
        at, first, count = prepared_places(p, operands, which, index)
        first_row, _, first_key, _ = row_lengths(p, operands, index)
        mine = from_[at][:, first : first + count, : shape[-1]]
        mine = mine.reshape(shape[-2], parts, count, shape[-1]).sum(1).transpose(1, 0, 2)
        to = total[first_row if which == "q" else first_key :] if p.varlen else total[index]
        to[:count] = mine * (scale if name != "dv" else 1.0)
    return total


def judge_convert(p: AttentionBackwardProblem, operands: Given, numbers: Numbers) -> Callable[[Given], Check]:
    """A check of a conversion: its accumulators are given."""
    known = {}
    for name in p.converted:
        sums = operands[f"given_{name}_sums"]
        value = summed(p, name, sums, operands, numbers.scale)
        size = summed(p, name, np.abs(sums), operands, abs(numbers.scale))
        known[name] = value, size * gamma(p.dkv_heads // p.heads_kv + 4)

    def judge(results: Given) -> Check:
        checks = []
        for name, (value, bound) in known.items():
            limit = np.where(bound > 0, after_rounding(p.dtype, value, bound), 0.0)
            checks.append(compare(np.asarray(results[name]), value, limit, p.dtype))
        return max(checks, key=lambda check: check.bound_ratio, default=Check(True, 0.0, 0.0))

    return judge


def judge_dot(p: AttentionBackwardProblem, operands: Given) -> Callable[[Given], Check]:
    """A check of what `dot` prepares, and of the gradient of sink logits."""
    known = []
    sink = np.zeros((2, p.heads_q))
    for index in range(p.batch):
        at, first, rows = prepared_places(p, operands, "q", index)
        first_row = row_lengths(p, operands, index)[0]
        lse, (delta, off) = (
            of_lse(p, operands["lse"], index, first_row, rows),
            deltas(p, operands, index, first_row, rows),
        )
        known.append((at, first, rows, lse, delta, off))
        if p.dsink:
            for head, logit in enumerate(wide(operands["sink"])):
                sink[:, head] += sink_of(p, logit, lse[head], delta[head], off[head])

    def judge(results: Given) -> Check:
        checks = []
        got, logs = np.asarray(results["delta"]), np.asarray(results["lse_log2"])
        for at, first, rows, lse, delta, off in known:
            mine = slice(first, first + rows)
            checks.append(compare(got[at][:, mine], delta, after_rounding("fp32", delta, off), "fp32"))
            log = np.where(np.isneginf(lse), np.inf, lse * LOG2_E)
            near = np.where(np.isfinite(log), 4 * U32 * np.abs(log), 0.0)
            checks.append(compare(logs[at][:, mine], log, after_rounding("fp32", log, near), "fp32"))
            rest = slice(first + rows, first + -(-rows // R) * R)
            zeros = np.zeros(got[at][:, rest].shape)
            checks.append(compare(got[at][:, rest], zeros, zeros, "fp32"))
            checks.append(compare(logs[at][:, rest], zeros + np.inf, zeros, "fp32"))
        if p.dsink:
            checks.append(compare(np.asarray(results["dsink"]), sink[0], after_rounding("fp32", *sink), "fp32"))
        return max(checks, key=lambda check: check.bound_ratio, default=Check(True, 0.0, 0.0))

    return judge
