"""Operands made up for an attention: random values, poisoned results, memory laid out as the problem says.

What no kernel may read (keys behind a sequence's last, unused pages and entries of tables) is NaN, or -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ops.attention import reference
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention_scores import numbers_of
from tilewright.ops.attention_terms import Sizes
from tilewright.ops.numerics import Check
from tilewright.runtime.bindings.attention import stages
from tilewright.runtime.bindings.attention.common import dense_strides
from tilewright.runtime.bindings.attention.request import Attributes
from tilewright.runtime.bindings.attention.stages import SLOTS
from tilewright.runtime.lines import extent
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.requests import Sample
from tilewright.runtime.samples import poison

Array = np.ndarray[Any, np.dtype[Any]]
Generator = np.random.Generator
NAMES = [slot.name for slot in SLOTS]
SOFTCAP, DROPOUT = 5.0, 0.2
_APPENDED = {"seqlens_k": "cache_seqlens", "seqlens_q": "seqlens_new"}  # the names of append's tables


def random_values(generator: Generator, shape: Sizes, dtype: str) -> Array:
    values = generator.standard_normal(shape, dtype=np.float32)
    return values if dtype == "fp32" else values.astype(numpy_dtype(dtype))


def laid(values: Array, strides: Sizes) -> Array:
    """The same values in memory of such strides; what is between is poisoned."""
    low, high = extent(values.shape, strides, 1)
    memory = np.empty(high - low, values.dtype)
    poison(memory)
    array = np.lib.stride_tricks.as_strided(
        memory[-low:], values.shape, tuple(stride * values.itemsize for stride in strides)
    )
    array[...] = values
    return array


def _strides_of(p: AttentionProblem, name: str) -> Sizes:
    """Of the array a call takes: packed rows have no dimension of sequences."""
    batch, row, head = getattr(p, f"{name}_strides")
    packed = p.varlen and (name in "qo" or p.pages == "none") and p.family != "append"
    return (row, head, 1) if packed else (batch, row, head, 1)


def _shape_of(p: AttentionProblem, name: str) -> Sizes:
    packed = p.varlen and (name in "qo" or p.pages == "none") and p.family != "append"
    return p.shape(name)[1:] if packed else p.shape(name)


def _split_total(generator: Generator, total: int, count: int, most: int) -> Array:
    """Lengths of `count` sequences, none over `most`, whose sum is `total` where it can be."""
    total = min(total, count * most)
    lengths = np.full(count, total // max(1, count), np.int64)
    lengths[: total - int(lengths.sum())] += 1
    for index in range(count - 1):
        other = int(generator.integers(index + 1, count))
        moved = int(generator.integers(0, max(0, min(lengths[index], most - lengths[other])), endpoint=True))
        lengths[index], lengths[other] = lengths[index] - moved, lengths[other] + moved
    return lengths


def _starts(generator: Generator, total: int, count: int, most: int) -> Array:
    return np.concatenate([[0], np.cumsum(_split_total(generator, total, count, most))]).astype(np.int32)


def _lengths(generator: Generator, count: int, most: int) -> Array:
    """Most sequences are full; the second is of any length, the third empty."""
    lengths = np.full(count, most, np.int32)
    lengths[1:2] = generator.integers(0, most, endpoint=True)
    lengths[2:3] = 0
    return lengths


def table_samples(p: Any, generator: Generator) -> dict[str, Array]:
    tables: dict[str, Array] = {}
    if p.varlen and p.family != "append":
        tables["cu_seqlens_q"] = _starts(generator, p.total_q, p.batch, p.seqlen_q)
        if p.pages == "none":
            tables["cu_seqlens_k"] = _starts(generator, p.total_k, p.batch, p.seqlen_k)
    if p.seqlens_q:
        room = np.diff(tables["cu_seqlens_q"]) if "cu_seqlens_q" in tables else np.full(p.batch, p.seqlen_q)
        tables["seqlens_q"] = np.minimum(_lengths(generator, p.batch, p.seqlen_q), room).astype(np.int32)
    keys = _lengths(generator, p.batch, p.seqlen_k)
    if p.family == "append":
        keys = generator.integers(0, max(0, p.seqlen_k - p.seqlen_q), p.batch, np.int32, endpoint=True)
    elif p.page_lookup == "table" and not p.seqlens_k:
        keys = np.full(p.batch, p.seqlen_k, np.int32)  # where no table says how many, a kernel reads them all
    if p.seqlens_k or p.family == "append":
        room = np.diff(tables["cu_seqlens_k"]) if "cu_seqlens_k" in tables else np.full(p.batch, p.seqlen_k)
        tables["seqlens_k"] = np.minimum(keys, room).astype(np.int32)
    if p.pages != "none":
        tables |= _page_tables(p, generator, keys + (p.seqlen_q if p.family == "append" else 0))
    return tables


def _page_tables(p: AttentionProblem, generator: Generator, keys: Array) -> dict[str, Array]:
    """Pages in no order, each of one sequence where there are enough; where not, at least those an append writes."""
    used = -(-keys.astype(np.int64) // p.page_size)
    total = int(used.sum())
    if p.page_count >= total:
        pages = generator.permutation(p.page_count)[:total]
    else:
        pages = generator.integers(0, max(1, p.page_count), total)
        old = (keys - p.seqlen_q) // p.page_size if p.family == "append" else used
        written = np.concatenate([np.arange(count) >= first for count, first in zip(used, old, strict=True)])
        if p.page_count >= written.sum():
            pages[written] = generator.permutation(p.page_count)[: written.sum()]
    if p.page_lookup == "indices":
        last = np.where(used > 0, keys - (used - 1) * p.page_size, 0)
        indptr = np.concatenate([[0], np.cumsum(used)])
        table = np.concatenate([pages, [-1]]) if total == 0 else pages
        return {"block_table": table.astype(np.int32), "page_indptr": indptr.astype(np.int32),
                "page_last": last.astype(np.int32)}  # fmt: skip
    table = np.full((p.batch, max(1, p.sequence_pages)), -1, np.int32)
    at = 0
    for index, count in enumerate(used):
        table[index, :count] = pages[at : at + count]
        at += count
    return {"block_table": table}


def _vectorised(p: AttentionProblem, name: str, pages: Array) -> Array:
    """(page, slot, head, element) as a vectorised page has them; dense."""
    vec = 16 // pages.itemsize
    count, slots, heads, size = pages.shape
    if name == "k":
        return np.ascontiguousarray(pages.reshape(count, slots, heads, size // vec, vec).transpose(0, 2, 3, 1, 4))
    return np.ascontiguousarray(pages.reshape(count, slots // vec, vec, heads, size).transpose(0, 3, 1, 4, 2))


def _keys(p: AttentionProblem, name: str, generator: Generator, tables: dict[str, Array]) -> Array:
    """Keys or values; NaN where no kernel may look."""
    values = random_values(generator, _shape_of(p, name), p.dtype_kv)
    unused = np.zeros(values.shape[:2] if p.pages != "none" or not p.varlen else values.shape[:1], bool)
    if p.pages != "none":
        unused[...] = True
        for index in range(p.batch):
            keys = reference._lengths(p, tables, index)[3]
            places = np.arange(keys)
            first = int(tables["page_indptr"][index]) if p.page_lookup == "indices" else 0
            row = tables["block_table"] if p.page_lookup == "indices" else tables["block_table"][index]
            unused[row[first + places // p.page_size], places % p.page_size] = False
    elif p.seqlens_k:
        for index in range(p.batch):
            _, _, first, keys = reference._lengths(p, tables, index)
            if p.varlen:
                unused[first + keys : int(tables["cu_seqlens_k"][index + 1])] = True
            else:
                unused[index, keys:] = True
    poison_rows = np.full(1, np.nan, np.float32).astype(values.dtype)[0]
    values[unused] = poison_rows
    if p.pages == "vectorised":
        return _vectorised(p, name, values)
    return laid(values, _strides_of(p, name))


def _forward_operands(p: AttentionProblem, generator: Generator) -> dict[str, Any]:
    tables = table_samples(p, generator)
    operands: dict[str, Any] = dict(tables)
    operands["q"] = laid(random_values(generator, _shape_of(p, "q"), p.dtype_q), _strides_of(p, "q"))
    operands["k"], operands["v"] = (_keys(p, name, generator, tables) for name in "kv")
    if p.mask_shape:
        operands["mask"] = generator.random(p.mask_shape) < 0.8
    if p.bias == "tensor":
        operands["bias"] = random_values(generator, p.bias_shape, p.dtype_aux)
    if p.bias == "alibi":
        operands["alibi_slopes"] = (2.0 ** (-8.0 * np.arange(1, p.heads_q + 1) / p.heads_q)).astype(np.float32)
    if p.sink:
        operands["sink"] = random_values(generator, (p.heads_q,), "fp32")
    return operands | _scales(p, generator)


def _scales(p: AttentionProblem, generator: Generator) -> dict[str, Any]:
    scales = {}
    for name, kind in (("q", p.q_scale), ("k", p.kv_scales), ("v", p.kv_scales)):
        if kind != "none":
            shape = stages.scale_shape(p, name)
            scales[f"{name}_scale"] = np.exp(0.5 * generator.standard_normal(shape)).astype(np.float32)
    return scales


def _append_operands(p: AttentionProblem, generator: Generator) -> dict[str, Any]:
    operands: dict[str, Any] = {_APPENDED.get(name, name): table for name, table in table_samples(p, generator).items()}
    operands["k"] = random_values(generator, (p.batch, p.seqlen_q, p.heads_kv, p.head_dim), p.dtype_q)
    operands["v"] = random_values(generator, (p.batch, p.seqlen_q, p.heads_kv, p.head_dim_v), p.dtype_q)
    if p.rotary_q:
        operands["q"] = laid(random_values(generator, p.shape("q"), p.dtype_q), _strides_of(p, "q"))
        operands["q_out"] = _poisoned(p, "o", p.dtype_q)
    if p.rotary != "none":
        angle = np.outer(np.arange(p.seqlen_k), 10000.0 ** (-np.arange(p.rotary_dim // 2) / max(1, p.rotary_dim // 2)))
        kind = numpy_dtype(p.dtype_aux)
        operands["cos"], operands["sin"] = np.cos(angle).astype(kind), np.sin(angle).astype(kind)
    for name in "kv":
        cache = _poisoned(p, name, p.dtype_kv)
        operands[f"cache_{name}"] = _vectorised(p, name, cache) if p.pages == "vectorised" else cache
    return operands | _scales(p, generator)


def _poisoned(p: AttentionProblem, name: str, dtype: str) -> Array:
    strides = _strides_of(p, name)
    if p.pages == "vectorised" and name in "kv":
        strides = dense_strides(_shape_of(p, name))
    array = laid(np.zeros(_shape_of(p, name), numpy_dtype(dtype)), strides)
    array.view(f"u{array.itemsize}")[...] = (1 << 8 * array.itemsize) - 1
    return array


def _results(p: AttentionProblem) -> dict[str, Any]:
    """Poisoned."""
    if p.family == "append":
        return {}
    if p.family == "split":
        results = dict(
            zip(("parts", "part_lse"), (np.empty(shape, np.float32) for shape in stages.part_shapes(p)), strict=True)
        )
    else:
        results = {"lse": np.empty(p.lse_shape, np.float32)} if p.return_lse else {}
        results["out"] = _poisoned(p, "o", p.dtype_out)
    for array in results.values():
        poison(array)
    return results


def sample(problem: AttentionProblem, seed: int = 0, exact: bool = False) -> Sample:
    """Operands as a call takes them; results full of NaN.  The bound holds for any values: `exact` has nothing to
    change."""
    p, generator = problem, np.random.default_rng(seed)
    if p.family == "combine":
        parts, sums = stages.part_shapes(p)
        arrays: dict[str, Any] = {"given_parts": random_values(generator, parts, "fp32")}
        arrays["given_lse"] = random_values(generator, sums, "fp32")
        arrays["given_lse"][:, ..., ::7] = -np.inf  # rows that see nothing in any part
        arrays["given_lse"][0, ..., ::3] = -np.inf
        arrays |= table_samples(p, generator)
    else:
        arrays = (_append_operands if p.family == "append" else _forward_operands)(p, generator)
    arrays |= _results(p)
    operands = tuple(arrays.get(name) for name in NAMES)
    chosen = seed * 2654435761 % (1 << 32)
    scalars = (
        p.head_dim**-0.5,
        SOFTCAP if p.softcap else 0.0,
        DROPOUT if p.dropout else 0.0,
        float(chosen),
        1.0,
        7.0,
        0.0,
    )
    return Sample(operands, scalars, tuple(Attributes(problem=p)))


def judge(problem: AttentionProblem, sample: Sample) -> Callable[[Sample], Check]:
    operands = {name: array for name, array in zip(NAMES, sample.operands, strict=True) if array is not None}
    if problem.family == "combine":
        ask = reference.judge_combine(problem, operands)
    elif problem.family == "append":
        ask = reference.judge_append(problem, operands)
    else:
        ask = reference.judgement(problem, operands, numbers_of(problem, sample.scalars))
    return lambda result: ask(dict(zip(NAMES, result.operands, strict=True)))
