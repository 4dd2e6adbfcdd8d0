"""Reading JSON files that people write: one clear error for whatever is wrong with them.

`read_json_file(path, model)` gives an object of a pydantic model, of a dataclass, or of any type pydantic knows;
what is wrong is named by its place in the file (`kernels[3].spec.m`), with its value and what would do instead.
Fields that a model does not have are mistakes: the nearest one is offered.  Specs, problems and everything else on
the way of a call are plain dataclasses; pydantic is imported here alone, and only when a file is read.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tilewright.errors import FileError, nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

Model = TypeVar("Model")
Place = tuple[str | int, ...]

LARGEST = 1 << 30  # bytes of a file that is read; no list of kernels comes near it
_SHOWN = 60  # characters of a value that are shown


def read_json_file(
    path: Path | str, model: type[Model], *, what: str = "", unknown: Literal["forbid", "ignore"] = "forbid"
) -> Model:
    """The content of a JSON file as `model`; FileError where it cannot be read or is something else.

    `what` says what the file should be ("a manifest", "a list of problems"), `unknown` whether fields that the model
    does not have are mistakes.
    """
    return checked(_data(Path(path), what), model, source=str(path), what=what, unknown=unknown)


def read_json(path: Path | str, *, what: str = "") -> Any:
    """The content of a JSON file as plain lists and tables, without the cost of pydantic (some 40 ms)."""
    data = _data(Path(path), what)
    try:
        return json.loads(data)
    except RecursionError:
        raise _bad(str(path), what, "it is nested too deeply") from None
    except ValueError as error:  # also numbers of more digits than Python reads
        raise _bad(str(path), what, f"it is no JSON: {error}") from None


def checked(
    data: str,
    model: type[Model],
    *,
    source: str,
    what: str = "",
    unknown: Literal["forbid", "ignore"] = "forbid",
) -> Model:
    """JSON text as `model`.  Text is taken as text and numbers as numbers: nothing is converted into another kind."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(model).validate_json(data, strict=True, extra=unknown)
    except ValidationError as error:
        raise _file_error(error, model, source, what) from None


def _data(path: Path, what: str) -> str:
    """The text of a file, if it is a file of a sane size that may be read."""
    called = what or "a JSON file"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        why, rule, remedy = "is not there", "file-missing", f"give the path of {called}"
    except (IsADirectoryError, NotADirectoryError) as error:
        inside = isinstance(error, IsADirectoryError)
        why, rule = "is a folder" if inside else "goes through something that is no folder", "file-folder"
        remedy = f"give the path of {called}" + (" inside it" if inside else "")
    except PermissionError:
        why, rule, remedy = "may not be read by this user", "file-permission", "fix its permissions"
    except (OSError, ValueError, MemoryError) as error:  # ValueError: a NUL in the path
        cause = getattr(error, "strerror", None) or error or "no memory for it"
        why, rule, remedy = f"cannot be read: {cause}", "file-unreadable", f"give the path of {called}"
    else:
        if len(data) > LARGEST:
            raise _bad(str(path), what, f"it has more than {LARGEST >> 20} MiB", rule="file-large")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _bad(str(path), what, f"it is no UTF-8 text (byte {error.start})", rule="file-encoding") from None
    raise FileError(f"{path} {why}", rule=rule, value=str(path), remedy=remedy) from None


def _bad(source: str, what: str, why: str, *, rule: str = "file-json") -> FileError:
    return FileError(
        f"{source} is not {what or 'a file that can be used'}: {why}",
        rule=rule,
        value=source,
        remedy=f"give {what or 'a JSON file'}, UTF-8 text as `python -m json.tool` reads it",
    )


_NO_SUCH_FIELD = ("extra_forbidden", "unexpected_keyword_argument")


def _file_error(error: ValidationError, model: Any, source: str, what: str) -> FileError:
    """One mistake in words, and how many there are."""
    mistakes = error.errors(include_url=False)
    # A name that is mistyped is two mistakes, the one there is and the one that is missing: the first says more.
    first = next((mistake for mistake in mistakes if mistake["type"] in _NO_SUCH_FIELD), mistakes[0])
    place, value = tuple(first["loc"]), first["input"]
    if first["type"] == "json_invalid":
        return _bad(source, what, f"it is no JSON: {first['ctx']['error']}")
    message, remedy = _sentence(first["type"], place, value, first["msg"], model)
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return FileError(
        f"{source}, {_where(place)}: {message}{more}",
        rule="file-content",
        value=value,
        remedy=remedy or (f"the file should be {what}: fix that value" if what else "fix that value"),
    )


def _sentence(kind: str, place: Place, value: Any, message: str, model: Any) -> tuple[str, str]:
    """What is wrong, and the remedy where there is a better one than to fix it."""
    if kind in _NO_SUCH_FIELD:
        name = str(place[-1])
        return f"there is no field {name!r}", nearest(name, sorted(_names(_kind_at(model, place[:-1]))))
    if kind in ("missing", "missing_argument"):
        return ("it is missing", f"add {place[-1]!r}") if isinstance(place[-1], str) else ("it is missing", "")
    known = [str(choice) for choice in _choices(_kind_at(model, place))]
    words = f" {message[6:]}" if message.startswith("Input ") else f": {message}"
    return f"{_shown(value)}{words}", nearest(str(value), known) if known else ""


def _where(place: Place) -> str:
    """kernels[3].spec.m; the whole file where there is no place."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".") or "the whole of it"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# -- what a model says about a place of the file, for the nearest name ------------------------------------------------


def _members(kind: Any) -> Mapping[str, Any]:
    """Field name to type of a pydantic model or a dataclass."""
    if not isinstance(kind, type) or not (is_dataclass(kind) or hasattr(kind, "model_fields")):
        return {}
    hints = typing.get_type_hints(kind)
    names = kind.model_fields if hasattr(kind, "model_fields") else [field.name for field in fields(kind)]
    return {name: hints[name] for name in names}


def _parts(kind: Any) -> list[Any]:
    """The types a place may have: those of a union, or the one."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return [part for arg in typing.get_args(kind) for part in _parts(arg)] if union else [kind]


def _kind_at(model: Any, place: Place) -> list[Any]:
    """The types that may stand at a place; pydantic's own marks in a place (which part of a union) are passed over."""
    kinds = _parts(model)
    for step in place:
        inner: list[Any] = []
        for kind in kinds:
            members, inside = _members(kind), [part for part in typing.get_args(kind) if part is not Ellipsis]
            if isinstance(step, str) and step in members:
                inner += _parts(members[step])
            elif inside and not members and typing.get_origin(kind) is not typing.Literal:
                inner += _parts(inside[-1])  # of a list, a tuple of any length, or the values of a table
        kinds = inner or kinds
    return kinds


def _names(kinds: list[Any]) -> set[str]:
    return {name for kind in kinds for name in _members(kind)}


def _choices(kinds: list[Any]) -> list[Any]:
    return [value for kind in kinds if typing.get_origin(kind) is typing.Literal for value in typing.get_args(kind)]
