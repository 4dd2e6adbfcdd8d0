"""Operands made up for the gradients of an attention: random values, poisoned results, memory as the problem says.

out and lse are those of a forward pass in float64, rounded; of a large problem, where that would take too long, they
are made up too: the gradients are defined by the out and lse that are given.  What no kernel may read (rows and keys
behind a sequence's last) is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ops.attention_backward import reference
from tilewright.ops.attention_backward.problem import PREPARED_ROWS, AttentionBackwardProblem
from tilewright.ops.attention_scores import Array, Numbers, numbers_of, row_lengths
from tilewright.ops.attention_terms import Sizes
from tilewright.ops.numerics import Check
from tilewright.runtime.bindings.attention.samples import DROPOUT, SOFTCAP, laid, random_values, table_samples
from tilewright.runtime.bindings.attention_backward import stages
from tilewright.runtime.bindings.attention_backward.request import Attributes
from tilewright.runtime.bindings.attention_backward.stages import NAMES
from tilewright.runtime.numpy_types import numpy_dtype
from tilewright.runtime.requests import Sample
from tilewright.runtime.samples import poison

Generator = np.random.Generator
MOST_FORWARD = 2e8  # products of a forward pass that is computed for a sample


def _shape_of(p: AttentionBackwardProblem, name: str) -> Sizes:
    return p.shape(name)[1:] if p.varlen else p.shape(name)


def _strides_of(p: AttentionBackwardProblem, name: str) -> Sizes:
    batch, row, head = getattr(p, f"{name}_strides")
    return (row, head, 1) if p.varlen else (batch, row, head, 1)


def _unused(p: AttentionBackwardProblem, tables: dict[str, Array], keys: bool) -> Array:
    """Rows (or keys) of memory that no sequence has."""
    shape = p.shape("k" if keys else "q")[:2]
    unused = np.ones(shape[1:] if p.varlen else shape, bool)
    for index in range(p.batch):
        first_row, rows, first_key, count = row_lengths(p, tables, index)
        first, size = (first_key, count) if keys else (first_row, rows)
        (unused if p.varlen else unused[index])[first : first + size] = False
    return unused


def _rows(p: AttentionBackwardProblem, name: str, generator: Generator, unused: Array) -> Array:
    """Random rows; NaN where no kernel may look."""
    values = random_values(generator, _shape_of(p, name), p.dtype)
    values[unused] = np.full(1, np.nan, np.float32).astype(values.dtype)[0]
    return laid(values, _strides_of(p, name))


def _scores(p: AttentionBackwardProblem, generator: Generator) -> dict[str, Array]:
    operands: dict[str, Array] = {}
    if p.mask_shape:
        operands["mask"] = generator.random(p.mask_shape) < 0.8
    if p.bias == "tensor":
        operands["bias"] = random_values(generator, p.bias_shape, p.dtype_aux)
    if p.bias == "alibi":
        operands["alibi_slopes"] = (2.0 ** (-8.0 * np.arange(1, p.heads_q + 1) / p.heads_q)).astype(np.float32)
    if p.dsink:
        operands["sink"] = random_values(generator, (p.heads_q,), "fp32")
    return operands


def _forward(p: AttentionBackwardProblem, operands: dict[str, Any], numbers: Numbers, generator: Generator) -> None:
    """out and lse of these operands."""
    if p.pairs * (p.head_dim + p.head_dim_v) <= MOST_FORWARD and p.family != "dot":
        out, lse = reference.forward(p, operands, numbers)
    else:
        out = generator.standard_normal(_shape_of(p, "o"))
        lse = 2.0 + generator.standard_normal(p.lse_shape)
        lse[..., ::7] = -np.inf  # rows that see nothing
    kind = numpy_dtype(p.dtype)
    operands["out"] = laid(out.astype(np.float32).astype(kind), _strides_of(p, "o"))
    operands["lse"] = lse.astype(np.float32)
    unused = _unused(p, operands, keys=False)
    operands["out"][unused] = np.full(1, np.nan, np.float32).astype(kind)[0]
    operands["lse"][_lse_places(p, unused)] = np.nan
    if p.dlse:
        operands["dlse"] = random_values(generator, p.lse_shape, "fp32")
        operands["dlse"][_lse_places(p, unused)] = np.nan


def _lse_places(p: AttentionBackwardProblem, unused: Array) -> Any:
    """Rows as lse has them: heads before."""
    return np.broadcast_to(unused[None] if p.varlen else unused[:, None], p.lse_shape)


def _prepared(p: AttentionBackwardProblem, operands: dict[str, Any]) -> None:
    """delta and lse as `dot` hands them on; NaN where it writes nothing."""
    delta, log = (np.full(p.prepared("q"), np.nan, np.float32) for _ in range(2))
    for index in range(p.batch):
        at, first, rows = reference.prepared_places(p, operands, "q", index)
        first_row = row_lengths(p, operands, index)[0]
        end = first + -(-rows // PREPARED_ROWS) * PREPARED_ROWS
        delta[at][:, first:end], log[at][:, first:end] = 0.0, np.inf
        delta[at][:, first : first + rows] = reference.deltas(p, operands, index, first_row, rows)[0]
        lse = reference.of_lse(p, operands["lse"], index, first_row, rows)
        log[at][:, first : first + rows] = np.where(np.isneginf(lse), np.inf, lse * reference.LOG2_E)
    operands["given_delta"], operands["given_lse_log2"] = delta, log


def _results(p: AttentionBackwardProblem) -> dict[str, Array]:
    """Poisoned."""
    wanted = stages.results(p) if p.family else (*stages.gradients(p, ("dq", "dk", "dv")), *stages.more_results(p))
    results = {}
    for result in wanted:
        name = NAMES[result.slot]
        strides = _strides_of(p, name) if name in ("dq", "dk", "dv") else result.strides
        array = laid(np.zeros(result.shape, numpy_dtype(result.dtype)), strides)
        poison(array)
        results[name] = array
    return results


def sample(problem: AttentionBackwardProblem, seed: int = 0) -> Sample:
    """Operands as a call takes them; results full of NaN."""
    p, generator = problem, np.random.default_rng(seed)
    chosen = seed * 2654435761 % (1 << 32)
    scalars = (
        p.head_dim**-0.5, SOFTCAP if p.softcap else 0.0, DROPOUT if p.dropout else 0.0, float(chosen), 1.0, 7.0, 0.0
    )  # fmt: skip
    operands: dict[str, Any] = table_samples(p, generator)
    rows = _unused(p, operands, keys=False)
    if p.family == "convert":
        for name in p.converted:
            sums = random_values(generator, stages.sums_shape(p, name), "fp32")
            operands[f"given_{name}_sums"] = sums
    else:
        operands["dout"] = _rows(p, "do", generator, rows)
        if p.family != "dot":
            keys = _unused(p, operands, keys=True)
            operands["q"] = _rows(p, "q", generator, rows)
            operands["k"], operands["v"] = (_rows(p, name, generator, keys) for name in "kv")
        operands |= _scores(p, generator)
        _forward(p, operands, numbers_of(p, scalars), generator)
        if p.family == "grad":
            _prepared(p, operands)
            for name in ("out", "dlse", "sink"):
                operands.pop(name, None)
    operands |= _results(p)
    return Sample(tuple(operands.get(name) for name in NAMES), scalars, tuple(Attributes(problem=p)))


def judge(problem: AttentionBackwardProblem, sample: Sample) -> Callable[[Sample], Check]:
    operands = {name: array for name, array in zip(NAMES, sample.operands, strict=True) if array is not None}
    numbers = numbers_of(problem, sample.scalars)
    if problem.family == "dot":
        ask = reference.judge_dot(problem, operands)
    elif problem.family == "convert":
        ask = reference.judge_convert(problem, operands, numbers)
    else:
        ask = reference.judgement(problem, operands, numbers)
    return lambda result: ask(dict(zip(NAMES, result.operands, strict=True)))
