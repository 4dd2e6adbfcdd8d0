"""Kernels by lists of values: a configuration that names fields of schedules, and means every combination of them.

    {"pipeline": "compv4", "tile_m": [128, 256], "tile_n": 128, "tile_k": {"min": 32, "max": 64, "step": 32}, ...}

The names are those that filters use (`ops.fields`): a field, or an element of one that holds several.  A value is
one, a list of them, {"values": [...]}, or {"min", "max", "step", "exclude"}.  Fields that are not named have their
defaults.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice, product
from math import prod
from typing import Any, get_args, get_type_hints

from tilewright.errors import RequestError
from tilewright.ops.base import SPEC_SCHEMA, KernelSpec, Op, plain
from tilewright.ops.fields import flat_names, with_new_words

MOST = 1_000_000  # combinations of one signature
MOST_LISTED = 10_000  # of which each is a proposal; of more, only those that may be legal at the first glance

Keep = Callable[[Mapping[str, Any]], bool]


def values_of(name: str, value: Any) -> tuple[Any, ...]:
    """The values that a configuration gives for a name."""
    if isinstance(value, Mapping):
        odd = next((key for key in value if key not in ("values", *_RANGE)), None)
        if odd is not None:
            raise _bad(name, value, f"and there is no {odd!r} in that")
        if set(value) == {"values"} and isinstance(value["values"], list):
            return values_of(name, value["values"])
        if {"min", "max"} <= set(value) <= set(_RANGE):
            return _stepped(name, value)
        raise _bad(name, value)
    values = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not values:
        raise _bad(name, value, "which means nothing")
    return values


_RANGE = ("min", "max", "step", "exclude")


def _stepped(name: str, bounds: Mapping[str, Any]) -> tuple[int, ...]:
    least, most, step, without = bounds["min"], bounds["max"], bounds.get("step", 1), bounds.get("exclude", [])
    if not all(type(number) is int for number in (least, most, step)) or not isinstance(without, list):
        raise _bad(name, bounds, "and a range is of whole numbers")
    if step < 1 or most < least:
        raise _bad(name, bounds, "the step is below 1" if step < 1 else "the largest is below the least")
    if (most - least) // step > MOST:
        raise _bad(name, bounds, f"which are more than {MOST} values")
    numbers = tuple(number for number in range(least, most + 1, step) if number not in without)
    if not numbers:
        raise _bad(name, bounds, "which excludes all")
    return numbers


def _bad(name: str, value: Any, why: str = "") -> RequestError:
    return RequestError(
        f"{name} of the configuration is {value!r:.80}" + (f", {why}" if why else ""),
        rule="config-value",
        value=name,
        remedy='give a value, a list of them, {"values": [...]} or {"min": 32, "max": 128, "step": 32}',
    )


_KINDS: dict[type[Any], str] = {
    int: "a whole number", str: "a text", bool: "true or false", float: "a number", tuple: "a list of as many values",
}  # fmt: skip


def wrong_kind(name: str, value: Any, kind: type[Any]) -> RequestError:
    """A value of another kind than a field has."""
    digits = isinstance(value, str) and value.strip().isascii() and value.strip().isdigit()
    example = f", such as {int(value)} without quotes" if kind is int and digits else ""
    written = json.dumps(value, default=str) if isinstance(value, (str, bool)) else repr(value)
    return RequestError(
        f"{name} of the configuration is {written:.60}, and must be {_KINDS.get(kind, kind.__name__)}",
        rule="config-value",
        value=name,
        remedy=f"give {_KINDS.get(kind, kind.__name__)}{example}",
    )


def swept(
    op: Op, data: Mapping[str, Any], arch: str, axes: Mapping[str, Any], keep: Keep | None = None,
    names_used: Mapping[str, str] | None = None,
) -> Iterator[KernelSpec]:  # fmt: skip
    """Every combination of the values, for every signature that the axes mean; what makes no spec is an error.

    Of very many combinations those that `keep` does not let pass are not even proposed.  `said` has the user's own
    names for ours, where they differ.
    """
    if not isinstance(data, Mapping) or not data:
        raise RequestError(
            f"a configuration is an object that names values, not {data!r:.60}",
            rule="config-value",
            value=data,
            remedy='write it as docs/cli.md shows, such as {"tile_m": [64, 128], ...}',
        )
    lists = {name: values_of(name, value) for name, value in with_new_words(op, data).items()}
    # Every signature that the axes mean has a kernel in the smallest pool.
    few = list(op.proposals(op.pool_names[0], arch, **axes))
    signatures = dict.fromkeys(spec.signature for spec in few)
    here = frozenset(type(spec.schedule) for spec in few)
    layouts = {_exact(pipeline): _layout(op, lists, pipeline, here) for pipeline in lists.get("pipeline", (None,))}
    reader = _Reader(op, arch, layouts, names_used or {})
    combinations = _combinations(lists, keep)
    return (reader.spec(signature, chosen) for signature in signatures for chosen in combinations)


def _combinations(lists: Mapping[str, tuple[Any, ...]], keep: Keep | None) -> list[dict[str, Any]]:
    total = prod(len(values) for values in lists.values())
    if total > (MOST_LISTED if keep is None else MOST):
        raise RequestError(
            f"the configuration means {total} combinations, over {MOST_LISTED if keep is None else MOST}",
            rule="config-size",
            value=total,
            remedy="give fewer values, or several configurations",
        )
    every = (dict(zip(lists, chosen, strict=True)) for chosen in product(*lists.values()))
    if total <= MOST_LISTED or keep is None:
        return list(every)
    # Where none passes, some say why.
    return [combination for combination in every if keep(combination)] or [
        dict(zip(lists, chosen, strict=True)) for chosen in islice(product(*lists.values()), MOST_LISTED)
    ]


_Names = Mapping[str, tuple[str, int | None]]
_Layout = dict[str, tuple[str, ...] | str]


def _layout(op: Op, names: Collection[str], pipeline: Any, here: frozenset[type[Any]]) -> _Layout:
    """The fields that the names mean: each by the one name it has, or by those of all its elements.

    Schedules of one op may call elements of a field by other names (tiles of m and n, or of m0, n0, k0 ...).  The names
    are those of a schedule of the pipeline: of several the one that knows most of them, and that the arch has (`here`).
    """

    def closeness(kind: type[Any]) -> tuple[bool, int, bool]:
        known = sum(name in tables[kind] for name in names)
        return pipeline in getattr(kind, "pipelines", ()), known, kind in here

    tables = {kind: flat_names(kind) for kind in op.schedules}
    nearest = [tables[kind] for kind in sorted(tables, key=closeness, reverse=True)]
    layout: _Layout = {}
    for name in names:
        table = next((known_names for known_names in nearest if name in known_names), None)
        if table is None:
            raise unknown_name(name, list(dict.fromkeys(known for table in tables.values() for known in table)))
        field, place = table[name]
        layout[field] = name if place is None else _all_elements(field, table, names)
    return layout


def _all_elements(field: str, table: _Names, names: Collection[str]) -> tuple[str, ...]:
    """The names of a field's elements in their order, every one of which is named."""
    places = {at: name for name, (mine, at) in table.items() if mine == field and at is not None}
    elements = tuple(places[at] for at in sorted(places))
    missing = next((element for element in elements if element not in names), "")
    if missing:
        raise RequestError(
            f"the configuration names elements of {field}, but not {missing}",
            rule="config-name",
            value=missing,
            remedy=f"give {missing} too",
        )
    return elements


def unknown_name(name: str, known: Sequence[str]) -> RequestError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return RequestError(
        f"a configuration has no {name!r}",
        rule="config-name",
        value=name,
        remedy=f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}",
    )


class _Reader:
    """Specs of combinations.

    A spec is read strictly, value by value, which takes a while; values that were read before are known, so that of a
    large sweep only a few are.
    """

    def __init__(self, op: Op, arch: str, layouts: Mapping[str, _Layout], names_used: Mapping[str, str]) -> None:
        self._op, self._arch, self._layouts, self._names_used = op, arch, layouts, names_used
        # The family that words such as the pipeline mean, and the fields its constructor takes.
        self._kinds: dict[tuple[str, ...], tuple[type[Any], frozenset[str]]] = {}
        self._known: dict[tuple[type[Any], str, Any], Any] = {}

    def spec(self, signature: Any, chosen: Mapping[str, Any]) -> KernelSpec:
        layout = self._layouts[_exact(chosen.get("pipeline"))]
        schedule_fields = {
            field: chosen[names] if isinstance(names, str) else tuple(chosen[name] for name in names)
            for field, names in layout.items()
        }
        words = tuple(value for value in schedule_fields.values() if isinstance(value, str))
        kind, held = self._kinds.get(words, (None, frozenset()))
        if kind is not None:
            try:
                values = {field: self._known[kind, field, _exact(value)] for field, value in schedule_fields.items()}
                schedule = kind(**{field: value for field, value in values.items() if field in held})
                return KernelSpec(self._op.name, signature, schedule, self._arch)
            except KeyError:
                pass
        return self._read(signature, schedule_fields, layout)

    def _read(self, signature: Any, values: Mapping[str, Any], layout: _Layout) -> KernelSpec:
        data = {"schema": SPEC_SCHEMA, "op": self._op.name, "arch": self._arch}
        try:
            spec = self._op.spec_from_dict({**data, "signature": plain(signature), "schedule": dict(values)})
        except RequestError as error:
            blamed = self._blamed(values, layout) if error.rule == "spec-field" else None
            raise (blamed or error) from None
        kind = type(spec.schedule)
        words = tuple(value for value in values.values() if isinstance(value, str))
        self._kinds[words] = (kind, frozenset(field.name for field in fields(kind) if field.init))
        for field, value in values.items():
            self._known[kind, field, _exact(value)] = getattr(spec.schedule, field)
        return spec

    def _blamed(self, values: Mapping[str, Any], layout: _Layout) -> RequestError | None:
        """The name of the configuration, and not of the spec, whose value no schedule of the op can have."""
        hints = [
            {field.name: get_type_hints(kind)[field.name] for field in fields(kind)} for kind in self._op.schedules
        ]
        for field, names in layout.items():
            kinds = [hint[field] for hint in hints if field in hint]
            whole = isinstance(names, str)
            for place, name in enumerate([names] if isinstance(names, str) else names):
                value = values[field] if whole else values[field][place]
                wanted = kinds if whole else [arg for kind in kinds for arg in get_args(kind)[place : place + 1]]
                if wanted and all(kind in _KINDS for kind in wanted) and type(value) not in wanted:
                    return wrong_kind(self._names_used.get(name, name), value, wanted[0])
        return None


def _exact(value: Any) -> str:
    """What distinguishes 1 from True, and a list from its elements."""
    return repr(value)
