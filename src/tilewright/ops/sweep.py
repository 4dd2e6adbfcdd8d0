"""Kernels by lists of values: a configuration that names fields of schedules, and means every combination of them.

    {"pipeline": "compv4", "tile_m": [128, 256], "tile_n": 128, "tile_k": {"min": 32, "max": 64, "step": 32}, ...}

The names are those that filters use (`ops.fields`): a field, or an element of one that holds several.  A value is
one, a list of them, {"values": [...]}, or {"min", "max", "step"}.  Fields that are not named have their defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from tilewright.errors import RequestError
from tilewright.ops.base import SPEC_SCHEMA, KernelSpec, Op, plain
from tilewright.ops.fields import flat_names

MOST = 1_000_000  # combinations of one signature


def values_of(name: str, given: Any) -> tuple[Any, ...]:
    """The values that a configuration gives for a name."""
    if isinstance(given, Mapping):
        if set(given) == {"values"} and isinstance(given["values"], list):
            return tuple(given["values"])
        if {"min", "max"} <= set(given) <= {"min", "max", "step"}:
            return _stepped(name, given["min"], given["max"], given.get("step", 1))
        raise _bad(name, given)
    found = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    if not found:
        raise _bad(name, given)
    return found


def _stepped(name: str, least: Any, most: Any, step: Any) -> tuple[int, ...]:
    if any(type(one) is not int for one in (least, most, step)) or step < 1 or (most - least) // step > MOST:
        raise _bad(name, {"min": least, "max": most, "step": step})
    return tuple(range(least, most + 1, step))


def _bad(name: str, given: Any) -> RequestError:
    return RequestError(
        f"{name} of the configuration is {given!r:.80}",
        rule="config-value",
        value=name,
        remedy='give a value, a list of them, {"values": [...]} or {"min": 32, "max": 128, "step": 32}',
    )


def swept(op: Op, data: Mapping[str, Any], arch: str, axes: Mapping[str, Any]) -> Iterator[KernelSpec]:
    """Every combination of the values, for every signature that the axes mean; what makes no spec is an error."""
    if not isinstance(data, Mapping) or not data:
        raise RequestError(
            f"a configuration is an object that names values, not {data!r:.60}",
            rule="config-value",
            value=data,
            remedy='write it as docs/cli.md shows, such as {"tile_m": [64, 128], ...}',
        )
    lists = {name: values_of(name, given) for name, given in data.items()}
    places = _places(op, lists)
    total = prod(len(one) for one in lists.values())
    if total > MOST:
        raise RequestError(
            f"the configuration means {total} combinations, over {MOST}",
            rule="config-size",
            value=total,
            remedy="give fewer values, or several configurations",
        )
    # Every signature that the axes mean has a kernel in the smallest pool.
    signatures = dict.fromkeys(one.signature for one in op.proposals(op.pool_names[0], arch, **axes))
    return (
        _spec(op, signature, arch, dict(zip(lists, chosen, strict=True)), places)
        for signature in signatures
        for chosen in product(*lists.values())
    )


_Places = Mapping[str, tuple[str, int | None]]


def _places(op: Op, lists: Mapping[str, Any]) -> _Places:
    """Which field, and which element of it, each name means."""
    known = {name: place for kind in op.schedules for name, place in flat_names(kind).items()}
    for name in lists:
        if name not in known:
            raise unknown_name(name, list(known))
    return known


def unknown_name(name: str, known: Sequence[str]) -> RequestError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return RequestError(
        f"a configuration has no {name!r}",
        rule="config-name",
        value=name,
        remedy=f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}",
    )


def _spec(op: Op, signature: Any, arch: str, chosen: Mapping[str, Any], places: _Places) -> KernelSpec:
    schedule: dict[str, Any] = {}
    for name, value in chosen.items():
        field, place = places[name]
        if place is None:
            schedule[field] = value
        else:
            schedule.setdefault(field, {})[place] = value
    for field, held in schedule.items():
        if isinstance(held, dict):
            schedule[field] = [held.get(place) for place in range(_length(field, places))]
            missing = next(
                (name for name, one in places.items() if one[0] == field and one[1] not in (None, *held)), ""
            )
            if missing:
                raise RequestError(
                    f"the configuration names elements of {field}, but not {missing}",
                    rule="config-name",
                    value=missing,
                    remedy=f"give {missing} too",
                )
    return op.spec_from_dict(
        {"schema": SPEC_SCHEMA, "op": op.name, "arch": arch, "signature": plain(signature), "schedule": schedule}
    )


def _length(field: str, places: _Places) -> int:
    return 1 + max(place for one, place in places.values() if one == field and place is not None)
