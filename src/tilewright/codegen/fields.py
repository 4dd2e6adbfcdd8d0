"""The flat names of a spec: what a filter or a table may ask of a kernel of any op.

Every field of signature and schedule is offered under its own name.  A field that holds a tuple is
offered whole and by element: `tile` also as tile_m, tile_n, tile_k.  An op whose axes are called
otherwise says so in a class attribute `axis_names` of its dataclass, by field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.ops.base import KernelSpec

Getter = Callable[[KernelSpec], Any]

_THREE_AXES = ("m", "n", "k")
_tables: dict[tuple[type, type], dict[str, Getter]] = {}


def _of_part(part: str, field: str) -> Getter:
    return lambda spec: getattr(getattr(spec, part), field)


def _of_element(part: str, field: str, index: int) -> Getter:
    return lambda spec: getattr(getattr(spec, part), field)[index]


def _suffixes(owner: object, field: str, length: int) -> tuple[str, ...]:
    named: Mapping[str, tuple[str, ...]] = getattr(owner, "axis_names", {})
    if field in named:
        return named[field]
    return _THREE_AXES if length == 3 else tuple(str(index) for index in range(length))


def fields_of(spec: KernelSpec) -> Mapping[str, Getter]:
    """Name to getter for every spec with the same signature and schedule types as this one."""
    key = (type(spec.signature), type(spec.schedule))
    table = _tables.get(key)
    if table is None:
        table = {"op": lambda one: one.op, "arch": lambda one: one.arch, "name": lambda one: one.name}
        for part in ("signature", "schedule"):
            owner = getattr(spec, part)
            for field in dataclasses.fields(owner):
                table[field.name] = _of_part(part, field.name)
                value = getattr(owner, field.name)
                if isinstance(value, tuple):
                    for index, suffix in enumerate(_suffixes(owner, field.name, len(value))):
                        table[f"{field.name}_{suffix}"] = _of_element(part, field.name, index)
        _tables[key] = table
    return table


def flat(spec: KernelSpec) -> dict[str, Any]:
    """All flat names of a spec with their values."""
    return {name: get(spec) for name, get in fields_of(spec).items()}
