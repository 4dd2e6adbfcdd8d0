"""Problem sets by key and by file: those an op ships, random ones by seed, and JSON, CSV and Parquet files.

A set gives values of the op's options; what it leaves out (element types, often) comes from whoever asks.  Words:

    llm-decode            a set the op ships
    random:SEED:COUNT     drawn from the op's stated distribution for the target's kind of device
    shapes.json|.csv|.parquet
    64,64,64;128,64,64    sizes by number, in the op's order
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.errors import RequestError, UnknownNameError, an, nearest
from tilewright.ops.base import REQUIRED, Op, Option, with_new_names
from tilewright.ops.engine import Engine, Values, engine
from tilewright.runtime import recording

RANDOM = "random"
NUMBERS = re.compile(r"\d+(,\d+)+(;\d+(,\d+)+)*")
FILES = (".json", ".csv", ".parquet")
MOST_RANDOM = 1_000_000

Make = Callable[[Values], Any]


def keys(op: Op) -> list[str]:
    return list(engine(op).problem_sets)


def values(op: Op, word: str, device: str, make: Make | None = None) -> Sequence[Values]:
    """What a word means: the key of a set, `random:SEED:COUNT`, or the path of a file.

    `make` makes a problem of a row, to see whether it is one; by default what the row says is all there is.
    """
    if word.partition(":")[0] == RANDOM:
        return _random(engine(op), word, device)
    if Path(word).suffix.lower() in FILES:
        return read(op, Path(word), make)
    if NUMBERS.fullmatch(word) and hasattr(engine(op), "foreign_numbers"):
        return [engine(op).foreign_numbers(tuple(map(int, row.split(",")))) for row in word.split(";")]  # type: ignore[attr-defined]
    problem_set = engine(op).problem_sets.get(word)
    if problem_set is None:
        known = [*keys(op), f"{RANDOM}:SEED:COUNT", "a .json, .csv or .parquet file"]
        raise UnknownNameError(
            f"{word!r} is no problem set of {op.name}", rule="problem-set", value=word, remedy=nearest(word, known)
        )
    return problem_set.values


def problems(op: Op, word: str, device: str, defaults: Values | None = None) -> list[Any]:
    """The problems a word means, each once; `given` are values for all of them, where a set does not say its own."""
    distinct: dict[Any, None] = {}
    for value in values(op, word, device):
        distinct[problem(op, {**(defaults or {}), **value})] = None
    return list(distinct)


def problem(op: Op, data: Values) -> Any:
    """A problem by the op's options, or by its own fields."""
    data = with_new_names(op, data)
    options = {option.name for option in op.options}
    if not options.issuperset(data):
        return op.problem_from_dict(data)
    missing = _missing(op, data)
    if missing:
        raise RequestError(
            f"{an(op.name)} problem needs {', '.join(missing)}",
            rule="option-missing",
            value=missing[0],
            remedy=f"say {' and '.join(missing)} too",
        )
    return op.problem(data)


def _missing(op: Op, data: Values) -> list[str]:
    """What a problem by options needs, and this one leaves to whoever asks."""
    if not {option.name for option in op.options}.issuperset(data):
        return []
    return [option.name for option in op.options if option.default is REQUIRED and option.name not in data]


def _random(part: Engine, word: str, device: str) -> Sequence[Values]:
    parts = word.split(":")
    if len(parts) != 3 or not all(number.isascii() and number.isdigit() for number in parts[1:]):
        raise RequestError(
            f"{word!r} does not say what to draw",
            rule="problem-set",
            value=word,
            remedy=f"give {RANDOM}:SEED:COUNT, such as {RANDOM}:7:60",
        )
    seed, count = int(parts[1]), int(parts[2])
    if count > MOST_RANDOM:
        raise RequestError(
            f"{count} problems are more than {MOST_RANDOM}", rule="problem-set", value=count, remedy="draw fewer"
        )
    drawn = part.random(seed, count, device)
    if not drawn and count:
        raise RequestError(
            f"{part.op} states no distribution to draw from", rule="problem-set", value=word, remedy="give a file"
        )
    return drawn


# -- files -------------------------------------------------------------------------------------------------


def read(op: Op, path: Path, make: Make | None = None) -> list[Values]:
    """The rows of a file, by the names of the op's options or of a problem's fields."""
    suffix = path.suffix.lower()
    try:
        rows = _json(path, op) if suffix == ".json" else _csv(path) if suffix == ".csv" else _parquet(path)
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise _bad(path, f"is no {path.suffix[1:].upper()} of problems: {error}") from None
    if not rows:
        raise _bad(path, "holds no problems")
    options = {option.name: option for option in op.options}
    typed = []
    for index, row in enumerate(rows):
        try:
            row = with_new_names(op, in_our_names(op, row))
        except RequestError as error:
            error.message = f"{path}, problem {index + 1}: {error.message}"
            raise
        try:
            typed.append(_typed(options if set(options).issuperset(row) else {}, row, texts=suffix == ".csv"))
        except ValueError as error:
            raise _bad(path, f"has a problem {index + 1} that is none: {error}") from None
        try:
            if make is not None:
                make(typed[-1])
            elif not _missing(op, typed[-1]):
                problem(op, typed[-1])
        except RequestError as error:
            error.message = f"{path}, problem {index + 1}: {error.message}"
            raise
    return typed


def in_our_names(op: Op, row: Values) -> Values:
    """A problem under the names of options, where it has those of another tile engine that the op knows."""
    translate = getattr(engine(op), "foreign_problem", None)
    return row if translate is None else translate(row)


def _bad(path: Path, what: str) -> RequestError:
    return RequestError(
        f"{path} {what}",
        rule="problems-file",
        value=str(path),
        remedy="give a list of problems by the names of options; `tilewright problems show` writes such files",
    )


def _json(path: Path, op: Op) -> list[Any]:
    data = listed(jsontext.loads(jsontext.read(path)), op)
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise ValueError("it is no list of objects")
    return data


def listed(data: Any, op: Op) -> Any:
    """The list in a JSON file of problems: itself, under the name `problems`, or what a recording has of the op."""
    if isinstance(data, dict) and recording.MARK in data:
        # What we wrote has names as problems are stored, of which some are old ones of options: nobody is warned.
        names = {option.old: option.name for option in op.options if option.old}
        rows = (json.loads(problem) for _, problem in _of_op(recording.rows(data), op))
        return [{names.get(name, name): value for name, value in row.items()} for row in rows]
    return data["problems"] if isinstance(data, dict) and set(data) == {"problems"} else data


def _of_op(rows: Mapping[recording.Key, int], op: Op) -> dict[recording.Key, int]:
    mine = {key: calls for key, calls in rows.items() if key[0] == op.name}
    if rows and not mine:
        raise ValueError(f"it has problems of {', '.join(sorted({name for name, _ in rows}))}, none of {op.name}")
    return mine


def recorded(op: Op, word: str) -> dict[recording.Key, int]:
    """The problems of a recording with how often each was run; none where a word means something else."""
    path = Path(word)
    if path.suffix.lower() != ".json":
        return {}
    try:
        data = jsontext.loads(jsontext.read(path))
        return _of_op(recording.rows(data), op) if isinstance(data, dict) and recording.MARK in data else {}
    except (OSError, ValueError):
        return {}  # `read` says what is wrong


def _csv(path: Path) -> list[Any]:
    text = jsontext.read(path).decode("utf-8-sig")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"the header names {twice!r} twice")
    for index, row in enumerate(rows):
        if None in row or None in row.values():
            raise ValueError(f"row {index + 1} has not as many values as the header has names")
    # What is left empty is not said.
    return [{name.strip(): value.strip() for name, value in row.items() if value.strip()} for row in rows]


def _parquet(path: Path) -> list[Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise RequestError(
            f"{path}: reading Parquet needs pyarrow",
            rule="missing-extra",
            value="pyarrow",
            remedy="install tilewright[learn], or give CSV or JSON",
        ) from None
    try:
        table: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except ArrowException as error:
        raise ValueError(str(error).partition("\n")[0]) from None
    return [{name: value for name, value in row.items() if value is not None} for row in table]


def _typed(options: Mapping[str, Option], row: Mapping[str, Any], *, texts: bool) -> Values:
    """Values as the options have them; the `texts` of a CSV file are read as what they say."""
    typed: dict[str, Any] = {}
    for name, value in row.items():
        kind = options[name].kind if name in options else None
        if texts and isinstance(value, str) and kind is not str:
            value = _parsed(name, value, kind)
        if isinstance(value, float) and kind is int and value.is_integer():
            value = int(value)  # tables with gaps keep whole numbers as fractions
        if kind is str and type(value) is int:
            value = str(value)  # a stride of 2 is "2", as on a command line
        if kind is not None and type(value) is not kind and not (kind is float and type(value) is int):
            raise ValueError(f"{name} is {value!r:.60}, not {_KINDS.get(kind, kind.__name__)}")
        typed[name] = value
    return typed


_KINDS: dict[type[Any], str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _parsed(name: str, text: str, kind: type[Any] | None) -> Any:
    words = {"true": True, "false": False}
    if kind is bool or (kind is None and text.lower() in words):
        if text.lower() not in words:
            raise ValueError(f"{name} is {text!r:.60}, not true or false")
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if kind is not None:
        raise ValueError(f"{name} is {text!r:.60}, no number")
    return text


# -- what must not be learned from --------------------------------------------------------------------------


def held_out(op: Op) -> list[Any]:
    """The problems no model may be trained on."""
    part = engine(op)
    return [problem(op, value) for each in part.problem_sets.values() if each.holdout for value in each.values]


def leaking(op: Op, problems: Iterable[Any], held: Sequence[Any] | None = None) -> list[Any]:
    """Those problems that are held out, or near neighbours of one that is."""
    near, kept = engine(op).near, held_out(op) if held is None else held
    return [problem for problem in problems if any(near(problem, other) for other in kept)]
