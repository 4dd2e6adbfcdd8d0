"""Trait configs: kernels by what is asked of them, out of a pool.

    {"variant": "standard", "pool": "default", "trait_config": {
        "data_type": {"values": ["bf16", "fp16"]}, "pipeline": {"values": ["packed"]},
        "tile_m": {"min": 64, "max": 256, "step": 64}}}

A trait is an axis of the op (`data_type` means `datatypes`) or a flat name of its schedules (`ops.fields`).  Values of
an axis say which signatures there are.  Words of a schedule, such as the pipeline, and switches that follow from its
fields select among the kernels of the pool.  Numbers and other switches vary them: each kernel of the pool is proposed
with each value.  What nobody names is as the pool has it; legality disposes.  A configuration with other sections is
the op's to read (`Op.configured`).  It may say which op it is for (`"op"`).
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tilewright import jsontext
from tilewright.arch import arch as arch_by_name
from tilewright.codegen import Filter, SpecSet
from tilewright.codegen.collect import Rejection, collect, split_legal
from tilewright.errors import FileError, RequestError, TilewrightError, UnknownNameError, nearest
from tilewright.ops import op as op_by_name
from tilewright.ops import op_names
from tilewright.ops.base import Axis, KernelSpec, Op
from tilewright.ops.engine import engine
from tilewright.ops.fields import flat_names, with_new_words
from tilewright.ops.sweep import MOST, unknown_name, values_of, wrong_kind

TRAITS = "trait_config"
POOL = "pool"
OP = "op"
SHAPES = "tile_config"  # a section that says every shape: such a configuration needs no pool


class _Config(BaseModel):
    """What a trait config holds beside axes."""

    model_config = ConfigDict(strict=True)

    pool: str = "default"
    trait_config: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Traits:
    """A configuration as read: its pool, axes, and fields of schedules with the values they may have."""

    pool: str
    axes: dict[str, tuple[Any, ...]]
    fields: dict[str, tuple[Any, ...]]


# -- files -----------------------------------------------------------------------------------------------------


def shipped(op: Op) -> dict[str, bytes]:
    """The configurations an op ships, by the kind of device they are for."""
    place = engine(op).configs
    if place is None or not place.is_dir():
        return {}
    paths = sorted(place.iterdir(), key=lambda path: path.name)
    return {path.name.removesuffix(".json"): path.read_bytes() for path in paths if path.name.endswith(".json")}


def load(op: Op, word: str, target: str) -> Mapping[str, Any]:
    """The configuration a word means: a file, or one that ships.

    Without a word, the one of the target: of its arch, else of its family, else of its kind of device.
    """
    known, facts = shipped(op), arch_by_name(target)
    word = word or next((name for name in (facts.name, facts.family) if name in known), facts.backend)
    if word not in known and not _is_file(word):
        raise UnknownNameError(
            f"{word!r} is no configuration of {op.name}",
            rule="config-file",
            value=word,
            remedy=nearest(word, [*known, "a .json file"]),
        )
    config = dict(_mapping(word, known[word]) if word in known else _of_file(word))
    if config.pop(OP, op.name) != op.name:
        raise _bad(word, f"is for another op than {op.name}")
    return config


def op_of(word: str) -> str:
    """The op that a configuration in a file is for, where nobody names one: it says so, or only one has its names."""
    data = _of_file(word)
    if OP in data:
        return op_by_name(str(data[OP])).name
    names = op_names()
    having = []
    known: dict[str, int] = {}  # how many of its names each op has
    for name in names if len(names) > 1 else []:
        try:
            if TRAITS in data:
                known[name] = _names_known(op_by_name(name), data)
                read(op_by_name(name), data)
                having.append(name)
        except TilewrightError:  # names that this op does not have, or an op that is broken
            continue
    # Where none has all of them, the op that has most is meant: its own error then names what is wrong.
    most = max(known.values(), default=0)
    candidates = having or [name for name, count in known.items() if count == most > 0] or names
    if len(candidates) != 1:
        raise RequestError(
            f"{word} may be a configuration of {' or '.join(candidates)}", rule="config-op", value=word,
            remedy=f'name the op (`tilewright instances {candidates[0]} {word}`), '
            f'or write "{OP}": "{candidates[0]}" into it',
        )  # fmt: skip
    return candidates[0]


def _names_known(op: Op, data: Mapping[str, Any]) -> int:
    """How many names of a configuration mean something to an op."""
    ours = _in_our_words(op, data)[0]
    traits = ours.get(TRAITS)
    names = [name for name in (*ours, *(traits if isinstance(traits, Mapping) else ())) if name not in (POOL, TRAITS)]
    axes = {_folded(word) for axis in op.axes for word in (axis.name, axis.option)}
    fields = {name for kind in op.schedules for name in flat_names(kind)}
    return sum(_folded(name) in axes or name in fields for name in names)


def _is_file(word: str) -> bool:
    return Path(word).suffix == ".json" or Path(word).exists()


def _of_file(word: str) -> Mapping[str, Any]:
    try:
        text = jsontext.read(Path(word), regular=False)
    except OSError as error:
        raise _bad(word, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # larger than any configuration, or no path at all
        raise _bad(word, f"cannot be read: {error}") from None
    return _mapping(word, text)


def _mapping(word: str, text: bytes) -> Mapping[str, Any]:
    try:
        data = jsontext.loads(text)
    except ValueError as error:
        raise _bad(word, f"is no JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise _bad(word, "holds no object")
    return data


def _bad(word: str, what: str) -> FileError:
    looks = f'{{"variant": ..., "{TRAITS}": {{"data_type": {{"values": [...]}}, ...}}}}'
    return FileError(f"{word} {what}", rule="config-file", value=word, remedy=f"write {looks}")


# -- reading ---------------------------------------------------------------------------------------------------


def read(op: Op, data: Mapping[str, Any]) -> Traits:
    """A configuration's axes and fields; an unknown name is an error with the nearest one."""
    data = {name: value for name, value in _in_our_words(op, data)[0].items() if not name.startswith("_")}  # remarks
    try:
        config = _Config.model_validate({name: data[name] for name in (POOL, TRAITS) if name in data})
    except ValidationError as error:
        first = error.errors()[0]
        raise RequestError(
            f"{'.'.join(map(str, first['loc']))} of the configuration: {first['msg']}",
            rule="config-value",
            value=str(first["loc"][0]),
            remedy=f'write "{POOL}": "default", "{TRAITS}": {{"name": {{"values": [...]}}}}',
        ) from None
    axes = {_folded(word): axis for axis in op.axes for word in (axis.name, axis.option)}
    fields = {name: None for kind in op.schedules for name in flat_names(kind)}
    traits = Traits(config.pool, {}, {})
    for name, values in data.items():
        if name in (POOL, TRAITS):
            continue
        if _folded(name) not in axes:
            raise unknown_name(name, [TRAITS, POOL, *(_singular(axis) for axis in op.axes)])
        _add_axis(traits.axes, axes[_folded(name)], name, values)
    for name, values in with_new_words(op, config.trait_config).items():
        if name.startswith("_"):
            continue
        if _folded(name) in axes:
            _add_axis(traits.axes, axes[_folded(name)], name, values)
        elif name in fields:
            _add(traits.fields, name, name, values)
        else:
            raise unknown_name(name, [*(_singular(axis) for axis in op.axes), *fields])
    return traits


def notes(op: Op, data: Mapping[str, Any]) -> list[str]:
    """What reading a configuration leaves out of it, for people."""
    return _in_our_words(op, data)[1] if TRAITS in data and SHAPES not in data else []


def _in_our_words(op: Op, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """A configuration of another's tile engine under our names, where the op knows such."""
    translate = getattr(engine(op), "foreign_config", None)
    return translate(data) if translate is not None else (data, [])


def _folded(name: str) -> str:
    """data_type, datatypes and --datatype are one."""
    return name.replace("-", "").replace("_", "").removesuffix("s")


def _singular(axis: Axis) -> str:
    return axis.option.lstrip("-").replace("-", "_")


def _add_axis(there: dict[str, tuple[Any, ...]], axis: Axis, name: str, values: Any) -> None:
    """Values of an axis, of its kind; a number where words are wanted is what a command line would have of it."""
    _add(there, axis.name, name, values)
    words = axis.kind is str
    typed = tuple(str(value) if words and type(value) is int else value for value in there[axis.name])
    for value in typed:
        if type(value) is not axis.kind:
            raise wrong_kind(name, value, axis.kind)
    there[axis.name] = typed


def _add(there: dict[str, tuple[Any, ...]], key: str, name: str, value: Any) -> None:
    if key in there:
        raise RequestError(
            f"the configuration names {key} twice", rule="config-name", value=name, remedy="leave one of them out"
        )
    there[key] = values_of(name, value)


# -- kernels ---------------------------------------------------------------------------------------------------


def expand(
    op: Op, data: Mapping[str, Any], target: str, *, axes: Mapping[str, Any] | None = None, expression: str = ""
) -> SpecSet:
    """The legal kernels a configuration means on a target; `axes` fill those it does not name."""
    if TRAITS not in data or SHAPES in data:
        for name in data:
            if name not in (TRAITS, SHAPES) and difflib.get_close_matches(name, [TRAITS, SHAPES], cutoff=0.8):
                raise unknown_name(name, [TRAITS, SHAPES])
        return collect(op.name, target, config=data, axes=axes, expression=expression)
    traits = read(op, data)
    facts = arch_by_name(target)
    named = {**(axes or {}), **traits.axes}
    normal = {axis.name: axis.normal for axis in op.axes if axis.normal is not None}
    whole = {
        name: tuple(normal[name](value, facts) if name in normal else value for value in values)
        for name, values in named.items()
    }
    pool = list(op.proposals(traits.pool, target, **whole))
    return _judged(_varied(pool, traits.fields), expression)


def demand_agreement(op: Op, data: Mapping[str, Any], axes: Mapping[str, Any]) -> None:
    """Refuse options that say otherwise than the configuration: it would win, and they be passed over in silence."""
    named = read(op, data).axes if TRAITS in data and SHAPES not in data else {}
    for name, values in axes.items():
        wanted = (values,) if isinstance(values, str) else tuple(values)
        if name in named and set(wanted) != set(named[name]):
            raise RequestError(
                f"the configuration says {name} {', '.join(map(str, named[name]))} itself, and an option another",
                rule="config-or-options",
                value=wanted,
                remedy="leave one of them out; --filter selects among the kernels of a configuration",
            )


def _judged(proposed: Iterable[KernelSpec], expression: str) -> SpecSet:
    passes: Callable[[KernelSpec], bool] = Filter(expression) if expression else lambda _: True
    seen = list(dict.fromkeys(proposed))
    wanted = [spec for spec in seen if passes(spec)]
    verdicts = list(split_legal(wanted))
    return SpecSet(
        tuple(verdict for verdict in verdicts if isinstance(verdict, KernelSpec)),
        tuple(verdict for verdict in verdicts if isinstance(verdict, Rejection)),
        len(seen) - len(wanted),
    )


def _varied(pool: Sequence[KernelSpec], traits: Mapping[str, tuple[Any, ...]]) -> Iterator[KernelSpec]:
    """The pool's kernels that have the words asked for, each with every combination of the numbers."""
    words = {name: values for name, values in traits.items() if any(isinstance(value, str) for value in values)}
    switches = {name: values for name, values in traits.items() if all(isinstance(value, bool) for value in values)}
    following = {name: values for name, values in switches.items() if _only_follows(pool, name)}
    numbers = {name: values for name, values in traits.items() if name not in words and name not in following}
    kept = list(pool)
    for name, values in words.items():
        kept = [spec for spec in kept if _place(spec, name) is not None]
        kinds = {type(_value(spec, name)) for spec in kept}
        if kinds and str not in kinds:
            raise wrong_kind(name, next(value for value in values if isinstance(value, str)), kinds.pop())
        there = list(dict.fromkeys(str(_value(spec, name)) for spec in kept))
        for value in values:
            if str(value) not in there:
                raise UnknownNameError(
                    f"no kernel of the pool has {name} {value!r}",
                    rule="config-value",
                    value=value,
                    remedy=nearest(str(value), there) if there else "name other traits, or another pool",
                )
        kept = [spec for spec in kept if _value(spec, name) in values]
    for name, values in following.items():
        before, kept = kept, [spec for spec in kept if _place(spec, name) and _value(spec, name) in values]
        if before and not kept:
            there = list(dict.fromkeys(_value(spec, name) for spec in before if _place(spec, name)))
            raise UnknownNameError(
                f"no kernel of the pool has {name} {_listed(values)}",
                rule="config-value",
                value=values[0],
                remedy=f"give {name} {_listed(there)}, or leave it out" if there else f"leave {name} out",
            )
    for name in numbers:
        before, kept = kept, [spec for spec in kept if _made_from(spec, name)]
        if before and not kept:
            known = dict.fromkeys(
                each for spec in before for each in flat_names(type(spec.schedule)) if _made_from(spec, each)
            )
            raise UnknownNameError(
                f"no kernel of the pool is made from {name}", rule="config-name", value=name,
                remedy=nearest(name, list(known)) if known else f"leave {name} out: no number of these kernels varies",
            )  # fmt: skip
    total = len(kept) * prod(len(values) for values in numbers.values())
    if total > MOST:
        raise RequestError(
            f"the configuration means {total} combinations, over {MOST}",
            rule="config-size",
            value=total,
            remedy="give fewer values, or a smaller pool",
        )
    combinations = [dict(zip(numbers, values, strict=True)) for values in product(*numbers.values())]
    return (_with(spec, each) for spec in kept for each in combinations)


def _place(spec: KernelSpec, name: str) -> tuple[str, int | None] | None:
    return flat_names(type(spec.schedule)).get(name)


def _only_follows(pool: Sequence[KernelSpec], name: str) -> bool:
    """Whether some kernels have the name, and of all that do it follows from other fields."""
    having = [spec for spec in pool if _place(spec, name) is not None]
    return bool(having) and not any(_made_from(spec, name) for spec in having)


def _listed(values: Iterable[Any]) -> str:
    return " or ".join(json.dumps(value) if isinstance(value, bool) else str(value) for value in values)


def _made_from(spec: KernelSpec, name: str) -> bool:
    """Whether a kernel can be given a value; a shape that follows from others cannot."""
    place = _place(spec, name)
    return place is not None and any(
        field.init and field.name == place[0] for field in dataclasses.fields(spec.schedule)
    )


def _value(spec: KernelSpec, name: str) -> Any:
    field, at = _place(spec, name) or ("", None)
    value = getattr(spec.schedule, field)
    return value if at is None else value[at]


def _kind(value: Any) -> Any:
    """What a value must have in common with the one it takes the place of: of several, the kind of each."""
    return tuple(map(type, value)) if isinstance(value, tuple) else type(value)


def _with(spec: KernelSpec, values: Mapping[str, Any]) -> KernelSpec:
    changes: dict[str, Any] = {}
    for name, value in values.items():
        field, at = _place(spec, name) or ("", None)
        before = changes.get(field, getattr(spec.schedule, field))
        old = before if at is None else before[at]
        new = tuple(value) if isinstance(value, list) else value
        if _kind(new) != _kind(old):
            raise wrong_kind(name, value, type(old))
        changes[field] = new if at is None else (*before[:at], new, *before[at + 1 :])
    return dataclasses.replace(spec, schedule=dataclasses.replace(spec.schedule, **changes)) if changes else spec


def of_config(op: Op, target: str, data: Mapping[str, Any]) -> Callable[[Any], Sequence[KernelSpec]]:
    """For sweeps: the kernels of a configuration with a problem's signature."""
    known: dict[Any, list[KernelSpec]] = {}

    def specs(problem: Any) -> Sequence[KernelSpec]:
        signature = op.signature_of(problem)
        if signature not in known:
            expanded = expand(op, data, target, axes=op.axes_of(signature)).specs
            known[signature] = [spec for spec in expanded if spec.signature == signature]
        return known[signature]

    return specs
