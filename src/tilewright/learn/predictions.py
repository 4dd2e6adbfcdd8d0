"""Predictions of a model for many problems as a table: `learn predict --output` writes it, `learn compare` judges it.

The columns: `problem_idx` (the same number for the same problem), `kernel_name`, `rank` (1 is the fastest of its
problem), `predicted_ms`, `predicted_tflops`, `estimated_ms`, and to know both by: `digest` of the kernel, `op` and
`problem` as JSON text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import jsontext
from tilewright.codegen.folder import demand_room, foreign, write_if_changed
from tilewright.dispatch.results import canonical
from tilewright.errors import RequestError
from tilewright.learn.data import Data, Group
from tilewright.learn.evaluate import Choice, choices
from tilewright.ops.base import plain

ENDING = ".csv"
COLUMNS = (
    "problem_idx", "kernel_name", "rank", "predicted_ms", "predicted_tflops", "estimated_ms", "digest", "op", "problem",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a model says of one kernel on one problem."""

    problem: Any
    kernel: str
    digest: str
    predicted: float | None  # seconds; None: not asked, its estimate is too far from the lowest
    estimated: float


def write(path: Path, predictions: Iterable[Prediction]) -> int:
    """A table of them, fastest first of each problem; the number of problems."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    numbers: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for each in predictions:
        text = canonical(plain(each.problem))
        ranks[text] = ranks.get(text, 0) + 1
        seconds = each.predicted
        measured = ("", "") if seconds is None else (repr(seconds * 1e3), repr(each.problem.flops / seconds / 1e12))
        writer.writerow(
            (numbers.setdefault(text, len(numbers)), each.kernel, ranks[text], *measured, repr(each.estimated * 1e3),
             each.digest, each.problem.op, text)
        )  # fmt: skip
    write_if_changed(path, out.getvalue().encode())
    return len(numbers)


def demand_writable(path: Path) -> None:
    """Said before the work: another's file is left alone."""
    if path.suffix != ENDING:
        raise RequestError(
            f"{path.name!r} is no table of predictions", rule="table-kind", value=path.suffix, remedy="name a .csv file"
        )
    demand_room(path)
    if path.exists() and tuple(_rows(path)[0]) != COLUMNS:
        raise foreign(path)


def _rows(path: Path) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(jsontext.read(path).decode("utf-8-sig"), newline=""), strict=True)) or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise _bad(path, f"cannot be read: {getattr(error, 'strerror', '') or error}") from None


def _bad(path: Path, what: str) -> RequestError:
    return RequestError(
        f"{path}: {what}", rule="predictions-file", value=str(path), remedy="give a table that `learn predict` wrote"
    )


Predicted = Mapping[str, Mapping[str, float]]  # ranks by a problem's text and a kernel's digest


def read(path: Path, op: str) -> Predicted:
    """The order in which a table has the kernels of each problem."""
    header, *rows = _rows(path)
    if tuple(header) != COLUMNS:
        raise _bad(path, "it has other columns")
    ranks: dict[str, dict[str, float]] = {}
    for index, row in enumerate(rows):
        try:
            values = dict(zip(COLUMNS, row, strict=True))
            if values["op"] != op:
                raise ValueError(f"it is of {values['op']}")
            ranks.setdefault(values["problem"], {})[values["digest"]] = float(int(values["rank"]))
        except ValueError as error:
            raise _bad(path, f"row {index + 1}: {error}") from None
    return ranks


def judged(data: Data, predicted: Predicted) -> list[Choice]:
    """What a table chooses of the kernels that were measured, for each of the problems that it has."""
    groups: list[Group] = []
    scores: list[Sequence[float]] = []
    for group in data.groups:
        ranks = predicted.get(canonical(plain(group.problem)), {})
        if any(spec.digest in ranks for spec in group.specs):
            groups.append(group)
            scores.append([ranks.get(spec.digest, np.inf) for spec in group.specs])
    return choices(replace(data, groups=tuple(groups)), np.concatenate(scores)) if groups else []
