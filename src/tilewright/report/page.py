"""The page itself: data, style and script in one file.

Everything that comes from results is data in a JSON block; the script shows it as text and never as markup.  The page
says what may run in it: one script and one style, by their hashes, and nothing from anywhere else.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from typing import Any

import numpy as np

from tilewright.dispatch.model import Model
from tilewright.dispatch.results import STATUSES, canonical
from tilewright.report.predict import predict
from tilewright.report.roofs import roofs
from tilewright.report.scopes import Array, Numbered, Scope, scopes
from tilewright.report.sources import Source

MARK = "Written by tilewright report"  # distinguishes our pages from other people's
SCRIPTS = ("base.js", "data.js", "table.js", "plot.js", "choice.js", "views.js", "more_views.js", "main.js")
_LONGEST = 600  # characters of a reason
_MOST_REASONS = 2000
_MOST_CONTEXTS = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a page is to hold beside the results."""

    title: str = "Measured kernels"
    models: Sequence[Model] = ()
    predictions: bool = True


def page(source: Source, wanted: Wanted) -> str:
    """The whole page."""
    data = {
        "title": wanted.title,
        "made": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC",
        "version": version("tilewright"),
        "sources": list(source.names),
        "scopes": [scope_data(scope, wanted) for scope in scopes(source)],
    }
    style = _asset("style.css")
    script = "\n".join(["(() => {", *map(_asset, SCRIPTS), "})();"])
    parts = {
        "mark": MARK,
        "title": html.escape(wanted.title),
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}",
        "style": style,
        "script": script,
        "data": in_script(data),
    }
    text = _asset("page.html")
    before, rest = "", text
    for name, value in parts.items():  # one after the other, so that no value is looked into
        head, mark, rest = rest.partition(f"@{name}@")
        assert mark, f"page.html has no place for {name}, or not in this order"
        before += head + value
    return before + rest


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def in_script(data: Any) -> str:
    """JSON that cannot end the block it is in, whatever it holds."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII: half a character is an escape
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(values: Any, kind: str) -> dict[str, str]:
    """An array as bytes: `kind` is NumPy's word for a little-endian type."""
    data = np.ascontiguousarray(values, np.dtype(f"<{kind}")).tobytes()
    return {"kind": kind, "data": base64.b64encode(data).decode()}


def _words(values: Sequence[str]) -> dict[str, Any]:
    """Words that repeat: each once, and the number of each place."""
    known = Numbered()
    numbers = [known.number(value, value) for value in values]
    return {"words": known.values, "of": packed(numbers, "u4")}


# -- a scope --------------------------------------------------------------------------------------------------


def scope_data(scope: Scope, wanted: Wanted) -> dict[str, Any]:
    facts = scope.facts
    dates = [result.date for result in scope.results]
    return {
        "op": scope.op,
        "device": {name: _shown(value) for name, value in scope.device.items()},
        "threads": scope.threads,
        "archs": scope.archs,
        "kernels": {
            "name": [kernel.name for kernel in scope.kernels],
            "digest": [kernel.digest for kernel in scope.kernels],
            "arch": [kernel.arch for kernel in scope.kernels],
        },
        "problems": {
            "columns": _columns([fact.columns for fact in facts]),
            "family": _words([fact.family for fact in facts]),
            "dtype": _words([fact.dtype for fact in facts]),
            "flops": packed([fact.flops for fact in facts], "f8"),
            "bytes": packed([fact.bytes for fact in facts], "f8"),
            "chosen": packed(scope.chosen(), "i4"),
        },
        "rows": _rows(scope, wanted),
        "roofs": roofs(scope),
        "first": min(dates),
        "last": max(dates),
        "contexts": [
            {"rows": count, "method": {name: _shown(value) for name, value in method.items()},
             "versions": {name: str(value) for name, value in versions.items()}}
            for count, method, versions in scope.contexts()[:_MOST_CONTEXTS]
        ],
    }  # fmt: skip


def _rows(scope: Scope, wanted: Wanted) -> dict[str, Any]:
    # Another version may know more of them; the first is always the one of rows with a time.
    statuses = Numbered()
    for name in (*STATUSES, *sorted({result.status for result in scope.results})):
        statuses.number(name, name)
    rows: dict[str, Any] = {
        "statuses": statuses.values,
        "problem": packed(scope.problem_of, "u4"),
        "kernel": packed(scope.kernel_of, "u4"),
        "status": packed([statuses.number(result.status, result.status) for result in scope.results], "u1"),
        "seconds": packed(scope.seconds, "f4"),
        "spread": packed([math.nan if result.spread is None else result.spread for result in scope.results], "f4"),
        "reason": _reasons([result.reason for result in scope.results]),
    }
    if wanted.predictions:
        predicted = predict(scope, wanted.models)
        for name, values in (("estimate", predicted.estimate), ("model", predicted.model)):
            if not np.isnan(values).all():
                rows[name] = packed(values, "f4")
        rows["model_name"] = predicted.name
        rows["notes"] = [{"why": why, "rows": count} for why, count in predicted.notes.most_common()]
    return rows


def _reasons(reasons: Sequence[str]) -> dict[str, Any]:
    """Why rows have no time; of very many different texts the most frequent."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    kept = counts
    if len(counts) > _MOST_REASONS:
        kept = dict(sorted(counts.items(), key=lambda item: -item[1])[:_MOST_REASONS])
    rest = "(one of many reasons: this page holds the most frequent)"
    return _words([_cut(reason) if reason in kept else rest for reason in reasons])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def _shown(value: Any) -> Any:
    """A value as the page may show it: a number, a text or a switch; anything else as its JSON."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 2**53:
        return value
    return canonical(value)


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields of problems, column by column: numbers where all are, words else."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [_column(name, [_shown(row[name]) if name in row else None for row in rows]) for name in names]


def _column(name: str, values: Sequence[Any]) -> dict[str, Any]:
    if all(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)) for value in values):
        numbers: Array = np.array([math.nan if value is None else value for value in values], np.float64)
        return {"name": name, "numbers": packed(numbers, "f8")}
    return {"name": name, **_words(["" if value is None else str(value) for value in values])}
