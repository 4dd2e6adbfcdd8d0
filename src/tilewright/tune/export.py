"""Results as tables: CSV and Parquet, out of a store and back into one.

The columns, in their order: `kernel` (its name), `problem_idx` (the same number for the same problem in one table), the
fields of the problem, `latency_ms`, `tflops`, `non_zero`, `error` (largest error over its bound), `status`, `reason`,
`spread`, `noise`, `threads`, `digest` (of the kernel), `device`, `date`, and as JSON text `problem`, `spec`,
`machine`, `method` and `versions`, from which a table is read back without loss.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import jsontext, ops
from tilewright.codegen.folder import demand_room, locked, write_if_changed
from tilewright.dispatch.results import OK, STATUSES, KernelRow, Result, canonical, dated, digest_of, storable, timed
from tilewright.errors import RequestError, TilewrightError
from tilewright.ops.engine import columns_of, engine

_NUMBERS = ("latency_ms", "tflops", "non_zero", "error")
_COLUMNS = ("status", "reason", "spread", "noise", "threads", "digest", "device", "date")
_WHOLE = ("op", "problem", "spec", "machine", "method", "versions")
FORMATS = (".csv", ".parquet")
_MOST = float(1 << 62)  # what a whole number of the store holds, and more


def rows(results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """A table of results of one op; problems are numbered in order."""
    numbers: dict[str, int] = {}
    texts = _Texts()
    for result in results:
        text = texts.text(result.problem)
        known = texts.problem(result)
        yield {
            "kernel": result.kernel.name,
            "problem_idx": numbers.setdefault(text, len(numbers)),
            **_fields(result, known),
            **_measured(result, known),
            "status": result.status,
            "reason": storable(result.reason),
            "spread": result.spread,
            "noise": result.noise,
            "threads": result.threads,
            "digest": result.kernel.digest,
            "device": str(result.device.get("model", "")),
            "date": result.date,
            "op": result.op,
            "problem": text,
            "spec": texts.text(result.kernel.spec),
            "machine": texts.text(result.device),
            "method": texts.text(result.method),
            "versions": texts.text(result.versions),
        }


class _Texts:
    """What results share is put into words once; it is held here, so that its place in memory stays its own."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Mapping[str, Any], str]] = {}
        self._problems: dict[int, tuple[Mapping[str, Any], Any]] = {}

    def text(self, fields: Mapping[str, Any]) -> str:
        known = self._texts.get(id(fields))
        if known is None:
            known = self._texts[id(fields)] = (fields, canonical(fields))
        return known[1]

    def problem(self, result: Result) -> Any:
        known = self._problems.get(id(result.problem))
        if known is None:
            known = self._problems[id(result.problem)] = (result.problem, _problem(result))
        return known[1]


def _problem(result: Result) -> Any:
    """The problem itself; None where its op or version is not here."""
    try:
        return ops.op(result.op).problem_from_dict(dict(result.problem))
    except TilewrightError:
        return None


def _fields(result: Result, known: Any) -> dict[str, Any]:
    columns = columns_of(ops.op(result.op), known) if known is not None else dict(result.problem)
    return {
        name: value if isinstance(value, (int, float, str)) else canonical(value) for name, value in columns.items()
    }


def _measured(result: Result, known: Any) -> dict[str, Any]:
    seconds = result.seconds if result.status == OK else None
    return {
        "latency_ms": None if seconds is None else seconds * 1e3,
        "tflops": None if seconds is None or known is None or seconds <= 0 else known.flops / seconds / 1e12,
        "non_zero": result.non_zero,
        "error": result.error,
    }


def to_csv(results: Iterable[Result]) -> str:
    table = list(rows(results))
    return csv_text(table, _names(table))


def csv_text(table: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names, restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in table)
    return out.getvalue()


def _names(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of a table: the problems of several ops have different fields."""
    return list(dict.fromkeys(name for row in table for name in row)) or [
        "kernel", "problem_idx", *_NUMBERS, *_COLUMNS, *_WHOLE,
    ]  # fmt: skip


def _cell(value: Any) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def write(path: Path, results: Iterable[Result]) -> None:
    """A file of the kind its name says, written whole or not at all."""
    if path.suffix == ".parquet":
        write_if_changed(path, _parquet_bytes(list(rows(results))))
    elif path.suffix == ".csv":
        write_if_changed(path, to_csv(results).encode())
    else:
        demand_writable(path)


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RequestError(
            "Parquet needs pyarrow",
            rule="missing-extra",
            value="pyarrow",
            remedy="install tilewright[learn], or use CSV",
        ) from None
    return pyarrow


def _parquet_bytes(table: Sequence[Mapping[str, Any]]) -> bytes:
    arrow = _arrow()
    columns = {name: _of_a_kind([row.get(name) for row in table]) for name in _names(table)}
    out = arrow.BufferOutputStream()
    arrow.parquet.write_table(arrow.table(columns), out, compression="zstd")
    return bytes(out.getvalue().to_pybytes())


def _of_a_kind(values: list[Any]) -> list[Any]:
    """A column as it is where it holds one kind of value that Arrow has, else in words."""
    kinds = {type(value) for value in values} - {type(None)}
    fits = all(-(1 << 63) <= value < 1 << 63 for value in values if type(value) is int)
    if kinds == {int, float} and fits:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) <= 1 and fits else [None if value is None else str(value) for value in values]


# -- as another tile engine writes them ------------------------------------------------------------------------

SCHEMAS = ("tilewright", "ck")
_CK_KERNEL, _CK_MEASURED = ("kernel", "problem_idx"), ("latency_ms", "tflops", "non_zero")
MISSING = "N/A"  # what their tables have where a kernel failed; of non_zero it is 0


def ck_rows(results: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """A table as CK Tile's tile engine writes it, failures among its rows; it cannot be read back into results."""
    numbers: dict[str, int] = {}
    texts = _Texts()
    for result in results:
        known = texts.problem(result)
        columns = getattr(engine(ops.op(result.op)), "foreign_columns", None)
        measured = _measured(result, known)
        yield {
            "kernel": result.kernel.name,
            "problem_idx": numbers.setdefault(texts.text(result.problem), len(numbers)),
            **(columns(known) if columns is not None and known is not None else _fields(result, known)),
            **{name: MISSING if measured[name] is None else measured[name] for name in ("latency_ms", "tflops")},
            "non_zero": measured["non_zero"] or 0,
        }


def write_ck(path: Path, results: Iterable[Result]) -> None:
    """Such a table, in the place of one that is there."""
    table = list(ck_rows(results))
    with locked(path.absolute().parent):
        write_if_changed(path, csv_text(table, _names(table)).encode())


def demand_ck(path: Path) -> None:
    """Say before anything is measured what would keep such a table from being written; another's file is left alone."""
    if path.suffix != ".csv":
        raise RequestError(
            f"{path.name!r}: tables of CK Tile's tile engine are .csv",
            rule="table-kind",
            value=path.suffix,
            remedy="name a .csv file, or leave --schema out",
        )
    _demand_place(path)
    if path.exists():
        header = next(csv.reader(io.StringIO(_text_of(path).partition("\n")[0])), [])
        if tuple(header[:2]) != _CK_KERNEL or tuple(header[-3:]) != _CK_MEASURED:
            raise RequestError(
                f"{path} is there already, and is no such table",
                rule="foreign-file",
                value=str(path),
                remedy="name a new file",
            )


def _text_of(path: Path) -> str:
    try:
        return jsontext.read(path).decode("utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        raise _bad(path, f"cannot be read: {getattr(error, 'strerror', '') or error}") from None


def add(path: Path, results: Iterable[Result], *, fresh: bool = False) -> None:
    """New results into a table, each in the place of one about the same thing; others may do so at the same time.

    `fresh`: what it holds is not kept.
    """
    with locked(path.absolute().parent):
        by_key = {key_of(result): result for result in read(path)} if path.exists() and not fresh else {}
        write(path, (by_key | {key_of(result): result for result in results}).values())


def key_of(result: Result) -> tuple[Any, ...]:
    return canonical(result.problem), str(result.device.get("fingerprint", "")), result.threads, result.kernel.digest


def demand_writable(path: Path) -> None:
    """Say before anything is measured what would keep a table from being written afterwards."""
    if path.suffix not in FORMATS:
        raise RequestError(
            f"{path.name!r} is no table", rule="table-kind", value=path.suffix, remedy="name a .csv or .parquet file"
        )
    if path.suffix == ".parquet":
        _arrow()
    _demand_place(path)
    if path.exists():
        read(path)  # another's file is left alone


def _demand_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise RequestError(
            f"{path.parent} is no folder",
            rule="table-folder",
            value=str(path.parent),
            remedy="make it, or name another",
        )
    demand_room(path)


# -- and back ------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Result]:
    """The results of a table that `write` made; anything else is one clear error."""
    try:
        table = _table(path)
    except (OSError, ValueError) as error:
        raise _bad(path, f"cannot be read: {getattr(error, 'strerror', '') or error}") from None
    results = []
    seen: _Seen = {}
    for index, row in enumerate(table):
        try:
            results.append(_result(row, seen))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise _bad(path, f"row {index + 1}: {reason}") from None
    return results


def _bad(path: Path, what: str) -> RequestError:
    return RequestError(
        f"{path}: {what}", rule="results-file", value=str(path), remedy="give a table that Tilewright wrote"
    )


def _table(path: Path) -> list[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        arrow = _arrow()
        try:
            rows_read: list[Mapping[str, Any]] = arrow.parquet.read_table(path).to_pylist()
        except arrow.ArrowException as error:
            raise ValueError(str(error).partition("\n")[0]) from None
        return rows_read
    if path.suffix != ".csv":
        raise ValueError("it is neither .csv nor .parquet")
    reader = csv.DictReader(io.StringIO(jsontext.read(path).decode("utf-8-sig"), newline=""), strict=True)
    try:
        missing = [name for name in ("kernel", *_NUMBERS, *_COLUMNS, *_WHOLE) if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"it has no column {missing[0]}")
        return list(reader)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None


_Seen = dict[str, dict[str, Any]]  # JSON objects by their text: what rows share is read once


def _result(row: Mapping[str, Any], seen: _Seen) -> Result:
    whole = {name: _object(name, row[name], seen) for name in _WHOLE if name != "op"}
    status = row["status"]
    if status not in STATUSES:
        raise ValueError(f"its status is {status!r}")
    milliseconds, date = _number(row["latency_ms"]), _number(row["date"])
    seconds = None if milliseconds is None else milliseconds / 1e3
    if (status == OK) != (seconds is not None) or (status == OK and not timed(seconds)):
        raise ValueError(f"a time of {row['latency_ms']!r} with the status {status}")
    if date is None or not dated(date):
        raise ValueError("it has no date")
    if not isinstance(whole["machine"].get("fingerprint", ""), str):
        raise ValueError("its machine's fingerprint is no text")
    non_zero, reason = _number(row["non_zero"]), row["reason"] or ""
    return Result(
        _text(row["op"]), whole["problem"], whole["machine"], int(_demand(row["threads"])), _kernel(row, whole["spec"]),
        status, seconds, _number(row["spread"]), _number(row["error"]),
        None if non_zero is None else int(non_zero), _number(row["noise"]), str(reason), whole["method"],
        whole["versions"], date,
    )  # fmt: skip


def _kernel(row: Mapping[str, Any], spec: Mapping[str, Any]) -> KernelRow:
    digest = _text(row["digest"])
    if digest != digest_of(canonical(spec)):
        raise ValueError(f"its digest {digest[:12]} is not that of its spec")
    return KernelRow(digest, _text(row["kernel"]), str(spec.get("arch", "")), spec)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name")
    return value


def _object(name: str, text: Any, seen: _Seen) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ValueError(f"{name} is no JSON object")
    known = seen.get(text)
    if known is None:
        data = jsontext.loads(text)
        if not isinstance(data, dict):
            raise ValueError(f"{name} is no JSON object")
        known = seen[text] = data
    return known


def _number(value: Any) -> float | None:
    return None if value is None or value == "" else _demand(value)


def _demand(value: Any) -> float:
    """A number as measurements have them: none is negative, and each fits what stores it."""
    number = float(value)
    if not 0 <= number < _MOST:  # NaN is none either
        raise ValueError(f"{value!r} is no number of a measurement")
    return number
