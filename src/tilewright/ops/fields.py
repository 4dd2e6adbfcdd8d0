"""The flat names of a spec: what a filter or a table may ask of a kernel of any op.

Every field of signature and schedule is offered under its own name.  A field that holds a tuple is offered whole and
by element: under the names a class attribute `axis_names` of its dataclass gives (`tile` as tile_m, tile_n, tile_k),
by number where it gives none.  What `axis_names` names and is no field, such as a shape that follows from others, is
offered too.  A schedule of another family of the op has other fields: what this one lacks is None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from tilewright.dataclass import field_hints
from tilewright.errors import an
from tilewright.ops import op, op_names
from tilewright.ops.base import KernelSpec, Op
from tilewright.renames import given_twice, new_values, stored_names, warn_renamed

Getter = Callable[[KernelSpec], Any]

_tables: dict[tuple[str, type, type], dict[str, Getter]] = {}


def _of_part(part: str, field: str) -> Getter:
    return lambda spec: getattr(getattr(spec, part), field)


def _of_element(part: str, field: str, index: int) -> Getter:
    def element(spec: KernelSpec) -> Any:
        value = getattr(getattr(spec, part), field)
        return value[index] if index < len(value) else None  # of a tuple of any length

    return element


def _absent(spec: KernelSpec) -> None:
    return None


_flat: dict[type[Any], Mapping[str, tuple[str, int | None]]] = {}  # a filter asks for those of every schedule of its op


def flat_names(kind: type[Any]) -> Mapping[str, tuple[str, int | None]]:
    """Flat name to field and place in it, for one dataclass."""
    if kind not in _flat:
        _flat[kind] = _flattened(kind)
    return _flat[kind]


def _flattened(kind: type[Any]) -> dict[str, tuple[str, int | None]]:
    named: Mapping[str, tuple[str, ...]] = getattr(kind, "axis_names", {})
    hints = field_hints(kind)
    places: dict[str, tuple[str, int | None]] = {}
    for field in dict.fromkeys([*(declared.name for declared in dataclasses.fields(kind)), *named]):
        places[field] = (field, None)
        suffixes = named.get(field) or _numbered(hints.get(field))
        places.update({f"{field}_{suffix}": (field, place) for place, suffix in enumerate(suffixes)})
    return places


def _numbered(hint: Any) -> tuple[str, ...]:
    parts = get_args(hint) if get_origin(hint) is tuple else ()
    return () if Ellipsis in parts else tuple(str(place) for place in range(len(parts)))


def _getters(part: str, kind: type[Any]) -> dict[str, Getter]:
    return {
        name: _of_part(part, field) if place is None else _of_element(part, field, place)
        for name, (field, place) in flat_names(kind).items()
    }


def _schedules(name: str) -> tuple[type[Any], ...]:
    return op(name).schedules if name in op_names() else ()


def _old_names(kind: type[Any]) -> dict[str, str]:
    """Flat names that fields of a dataclass had, and those they have now."""
    stored = stored_names(kind)
    return {
        f"{stored[field]}{name.removeprefix(field)}": name
        for name, (field, _) in flat_names(kind).items()
        if field in stored
    }


def old_names(op: Op) -> dict[str, str]:
    """The names and those they have now, of fields of the op's schedules."""
    return {old: new for kind in op.schedules for old, new in _old_names(kind).items()}


def old_words(op: Op) -> dict[str, str]:
    """The values of fields of the op's schedules that have other names now, and these."""
    return {old: new for kind in op.schedules for words in new_values(kind).values() for old, new in words.items()}


def with_new_words(op: Op, data: Mapping[str, Any]) -> dict[str, Any]:
    """What a user's configuration names, under the names of today; whoever gave old ones is warned."""
    names, words = old_names(op), old_words(op)
    known = {name for kind in op.schedules for name in flat_names(kind)}
    owner = f"{an(op.name)} configuration"

    def renamed(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [renamed(item) for item in value]
        if isinstance(value, Mapping):
            return {name: renamed(item) for name, item in value.items()}
        if isinstance(value, str) and value in words:
            warn_renamed(owner, value, words[value], skip=_SKIPPED)
            return words[value]
        return value

    current: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, value in data.items():
        new = names.get(name, name) if name not in known else name
        if new != name:
            warn_renamed(owner, name, new, skip=_SKIPPED)
        if new in current:
            old = name if name != new else written[new]
            raise given_twice(f"{new} of the configuration is given", old, new)
        current[new], written[new] = renamed(value), name
    return current


_SKIPPED = ("with_new_words", "renamed", "<listcomp>", "<dictcomp>", "swept", "configured", "read")


def fields_of(spec: KernelSpec) -> Mapping[str, Getter]:
    """Name to getter for every spec of the op with the same signature and schedule types as this one."""
    key = (spec.op, type(spec.signature), type(spec.schedule))
    table = _tables.get(key)
    if table is None:
        table = {name: _absent for kind in _schedules(spec.op) for name in flat_names(kind)}
        table |= {
            "op": lambda kernel: kernel.op,
            "arch": lambda kernel: kernel.arch,
            "name": lambda kernel: kernel.name,
        }
        table |= _getters("signature", type(spec.signature)) | _getters("schedule", type(spec.schedule))
        _tables[key] = table
    return table


def flat(spec: KernelSpec) -> dict[str, Any]:
    """All flat names of a spec with their values."""
    return {name: get(spec) for name, get in fields_of(spec).items()}
