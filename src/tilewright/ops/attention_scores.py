"""What attention and its gradients share of their definition, in float64: a sequence cut to its lengths, which keys a
row sees, scores with their errors, and which entries of a softmax dropout keeps.

A problem here is one of either op: both have the same names for sizes, windows and what is added to scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.dataclass import NamedTuple, dataclass
from tilewright.ops.numerics import U32, gamma

Array = np.ndarray[Any, np.dtype[Any]]
Given = Mapping[str, Any]  # operands by name, as a call of the API has them in the layout "bshd"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a call."""

    scale: float = 1.0
    softcap: float = 0.0
    dropout: float = 0.0
    seed: int = 0
    offset: int = 0


class Cut(NamedTuple):
    """One sequence, cut to its lengths, in float64: rows (or keys), heads, elements."""

    number: int
    first_row: int  # among packed rows
    q: Array
    k: Array
    v: Array
    mask: Array | None  # heads or 1, rows, keys
    bias: Array | None
    slopes: Array | None  # of the query heads
    sink: Array | None


# -- dropout -----------------------------------------------------------------------------------------------------------


def philox(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """Philox 4x32-10 of arrays of counters (uint64 that hold 32 bits); see include/tilewright/philox.h."""
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in counter)
    k0, k1 = key
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> np.uint64(32)) ^ c1 ^ np.uint64(k0), b & low, (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1), a & low,
        )  # fmt: skip
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def dropout_threshold(chance: float) -> int:
    """The chance in 65536ths."""
    return min(65535, int(chance * 65536.0 + 0.5))


def numbers_of(problem: Any, scalars: tuple[float, ...]) -> Numbers:
    """The numbers of a call as the reference takes them."""
    scale, softcap, dropout, *halves = scalars
    low, high, offset_low, offset_high = (int(half) for half in halves)
    return Numbers(
        scale, softcap if problem.softcap else 0.0, dropout if problem.dropout else 0.0, low | high << 32,
        offset_low | offset_high << 32,
    )  # fmt: skip


def kept(numbers: Numbers, sequence_head: int, rows: Array, keys: int) -> Array:
    """Which entries of some rows dropout keeps, times what they are multiplied by."""
    columns = np.arange(keys, dtype=np.uint64)[None, :]
    of_rows = rows.astype(np.uint64)[:, None]
    shape = np.broadcast(of_rows, columns).shape
    block = columns // np.uint64(32) * np.uint64(4) + columns % np.uint64(8) // np.uint64(2)
    counter = (
        np.broadcast_to(block, shape), np.broadcast_to(of_rows, shape), np.full(shape, sequence_head, np.uint64),
        np.full(shape, numbers.offset & 0xFFFFFFFF, np.uint64),
    )  # fmt: skip
    high = (numbers.seed >> 32 ^ numbers.offset >> 32) & 0xFFFFFFFF
    words = np.stack(philox(counter, (numbers.seed & 0xFFFFFFFF, high)))
    which = np.broadcast_to((columns % np.uint64(32) // np.uint64(8)).astype(np.int64), shape)
    word = np.take_along_axis(words, which[None], 0)[0]
    drawn = word >> (columns % np.uint64(2) * np.uint64(16)) & np.uint64(0xFFFF)
    threshold = dropout_threshold(numbers.dropout)
    return np.asarray((drawn >= np.uint64(threshold)) * (65536.0 / (65536.0 - threshold)))


# -- one sequence ------------------------------------------------------------------------------------------------------


def wide(array: Any) -> Array:
    return np.asarray(array).astype(np.float64)


def of_sequence(array: Any, index: int, rows: int, keys: int) -> Array | None:
    """A mask or bias of one sequence: heads or 1, rows or 1, keys or 1."""
    if array is None:
        return None
    four = np.asarray(array)
    four = four.reshape((1,) * (4 - four.ndim) + four.shape)
    mine = four[index if four.shape[0] > 1 else 0]
    return np.asarray(mine[:, : rows if mine.shape[1] > 1 else 1, : keys if mine.shape[2] > 1 else 1])


def row_lengths(p: Any, operands: Given, index: int) -> tuple[int, int, int, int]:
    """First row, rows, first key and keys of a sequence whose keys are not paged."""
    first_row, rows, first_key, keys = 0, p.seqlen_q, 0, p.seqlen_k
    if p.varlen:
        first_row, first_key = int(operands["cu_seqlens_q"][index]), int(operands["cu_seqlens_k"][index])
        rows = int(operands["cu_seqlens_q"][index + 1]) - first_row
        keys = int(operands["cu_seqlens_k"][index + 1]) - first_key
    if p.seqlens_q:
        rows = int(operands["seqlens_q"][index])
    if p.seqlens_k:
        keys = int(operands["seqlens_k"][index])
    return first_row, rows, first_key, keys


def cut_of(p: Any, operands: Given, index: int, first_row: int, q: Array, k: Array, v: Array) -> Cut:
    """A sequence of these rows and keys, with what is added to its scores."""
    slopes = operands.get("alibi_slopes")
    if slopes is not None:
        slopes = np.broadcast_to(wide(slopes), (p.batch, p.heads_q))[index]
    mask, bias = (of_sequence(operands.get(name), index, len(q), len(k)) for name in ("mask", "bias"))
    return Cut(
        index, first_row, q, k, v, mask, bias, slopes, None if operands.get("sink") is None else wide(operands["sink"])
    )


def seen(problem: Any, rows: Array, all_rows: int, keys: int) -> Array:
    """Which keys some rows of a sequence see by the window alone."""
    p, middle = problem, rows[:, None] + (keys - all_rows if problem.align == "bottom_right" else 0)
    column = np.arange(keys)[None, :]
    visible = np.ones((len(rows), keys), bool)
    if p.window_left >= 0:
        visible &= (column >= middle - p.window_left) | (column < p.sink_tokens)
    if p.window_right >= 0:
        visible &= column <= middle + p.window_right
    return visible


def scores(p: Any, numbers: Numbers, cut: Cut, head: int, rows: Array, narrow: float = 0.0) -> tuple[Array, Array]:
    """Scores of some rows of a head with their errors; minus infinity where a key is not seen.

    `narrow`: what sums of the products lose on units that do not add in fp32.
    """
    group = p.heads_q // p.heads_kv
    q, k = cut.q[rows, head], cut.k[:, head // group]
    visible = seen(p, rows, len(cut.q), len(cut.k))
    with np.errstate(all="ignore"):
        score = numbers.scale * (q @ k.T)
        size = abs(numbers.scale) * (np.abs(q) @ np.abs(k).T)
        error = (gamma(p.head_dim + 4) + narrow) * size
        if p.softcap:
            score = numbers.softcap * np.tanh(score / numbers.softcap)
            error = error + 24 * U32 * numbers.softcap
        bias: Any = 0.0
        if cut.bias is not None:
            mine = cut.bias[head if cut.bias.shape[0] > 1 else 0]
            bias = wide(mine[rows] if mine.shape[0] > 1 else mine)
        elif cut.slopes is not None:
            shift = len(cut.k) - len(cut.q) if p.align == "bottom_right" or not p.bounded else 0
            bias = -cut.slopes[head] * np.abs(rows[:, None] + shift - np.arange(len(cut.k))[None, :])
        score = score + bias
        error = error + 4 * U32 * (np.abs(score) + np.abs(bias))
        if cut.mask is not None:
            mine = cut.mask[head if cut.mask.shape[0] > 1 else 0]
            visible = visible & (mine[rows] if mine.shape[0] > 1 else mine).astype(bool)
    return np.where(visible, score, -np.inf), np.where(visible & np.isfinite(error), error, 0.0)
