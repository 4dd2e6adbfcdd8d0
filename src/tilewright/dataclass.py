"""`dataclass` of the standard library, made in a third of the time.

Before Python 3.13 the standard one compiles each method of a class as a text of its own, half a millisecond a class: of
the hundred classes that a first call needs, a third of its time.  Here a method that differs from class to class is
compiled when it is first called, a constructor when it was called a few times, the others are shared, and annotations
are looked at once, as the texts they are.  What a class has, and how it behaves, is the same (`tests/test_dataclass.py`
compares both); a class that asks for anything beyond `frozen` and `slots` is made by the standard one, and so are all
from Python 3.13 on, which does the same itself.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from reprlib import recursive_repr
from types import GenericAlias, MemberDescriptorType
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
elif sys.version_info >= (3, 13):
    dataclass = dataclasses.dataclass
else:

    def dataclass(cls=None, /, **options):
        """As the standard library has it."""
        if cls is None:
            return lambda each: _fast_dataclass(each, **options)
        return _fast_dataclass(cls, **options)


_OWN = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__")
_WRITE = object.__setattr__
_FEW = 8  # objects of a class, before its constructor is compiled


class _Factory:
    """Stands in signatures for what a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _fast_dataclass(cls: type[Any], *, frozen: bool = False, slots: bool = False, **options: Any) -> type[Any]:
    fields = _fields_of(cls, frozen) if not options and _usual(cls) else None
    if fields is None:
        whole: type[Any] = dataclasses.dataclass(frozen=frozen, slots=slots, **options)(cls)
        return whole
    return _finished(cls, fields, frozen, slots)


# What the standard one notes of how a class was made, the same for all that were made alike.
_PARAMS: dict[tuple[bool, bool], Any] = {}
# Private names of the standard one, which marks fields with them.
_IS_FIELD: Any = getattr(dataclasses, "_FIELD", None)
_IS_CLASSVAR: Any = getattr(dataclasses, "_FIELD_CLASSVAR", None)


def _params(frozen: bool, slots: bool) -> Any:
    known = _PARAMS.get((frozen, slots))
    if known is None:
        sample: Any = dataclasses.dataclass(frozen=frozen, slots=slots)(type("Sample", (), {"__doc__": "Empty."}))
        known = _PARAMS[frozen, slots] = sample.__dataclass_params__
    return known


def _usual(cls: type[Any]) -> bool:
    """Whether a class is one that is made here: it writes none of the methods itself, and has fields only."""
    own = vars(cls)
    words = own.get("__annotations__", {}).values()
    if any(name in own for name in _OWN):
        return False
    return not any("InitVar" in str(word) or "KW_ONLY" in str(word) for word in words)


def _fields_of(cls: type[Any], frozen: bool) -> dict[str, dataclasses.Field[Any]] | None:
    """All fields by name, as the standard one keeps them; None where it has to look or to complain."""
    own = vars(cls)
    words = own.get("__annotations__", {})
    if type(cls) is not type or "__slots__" in own:
        return None
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-2:0:-1]:
        inherited = base.__dict__.get("__dataclass_fields__")
        if inherited is not None:
            if vars(base)["__dataclass_params__"].frozen is not frozen:
                return None
            fields.update(inherited)
    for name, word in words.items():
        of_class = isinstance(word, str) and word.startswith("ClassVar")
        if not isinstance(word, str) or ("ClassVar" in word) is not of_class:
            return None
        default: Any = getattr(cls, name, dataclasses.MISSING)
        if type(default) is MemberDescriptorType:
            default = dataclasses.MISSING  # a slot of a base
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        if default is field and (of_class or own.get(name) is not field):
            return None
        if not of_class and field.default.__class__.__hash__ is None:
            return None  # a list for all objects: refused
        field.name, field.type = name, word
        field._field_type = _IS_CLASSVAR if of_class else _IS_FIELD
        if not of_class and field.kw_only is dataclasses.MISSING:
            field.kw_only = False
        fields[name] = field
    return fields if _in_order(fields) and all(name in words for name in own if _is_spec(own[name])) else None


def _is_spec(value: Any) -> bool:
    return isinstance(value, dataclasses.Field)


def _is_given(field: Any) -> bool:
    return field._field_type is _IS_FIELD


def _in_order(fields: Mapping[str, dataclasses.Field[Any]]) -> bool:
    """Whether no field without a default comes behind one that has one."""
    optional = False
    for field in fields.values():
        if _is_given(field) and field.init and not field.kw_only:
            has_default = not (field.default is field.default_factory is dataclasses.MISSING)
            if optional and not has_default:
                return False
            optional = optional or has_default
    return True


def _finished(cls: type[Any], fields: dict[str, dataclasses.Field[Any]], frozen: bool, slots: bool) -> type[Any]:
    declared = [field for field in fields.values() if _is_given(field)]
    own = {
        "__dataclass_params__": _params(frozen, slots),
        "__dataclass_fields__": fields,
        "__match_args__": tuple(field.name for field in declared if field.init and not field.kw_only),
        **_methods(cls, declared, frozen, slots),
    }
    if not vars(cls).get("__doc__"):
        own["__doc__"] = _call_text(cls, [field for field in declared if field.init])
    if not slots:
        for field in declared:
            if _is_spec(vars(cls).get(field.name)):
                if field.default is dataclasses.MISSING:
                    delattr(cls, field.name)
                else:
                    setattr(cls, field.name, field.default)
        for name, value in own.items():
            setattr(cls, name, value)
            if isinstance(value, _Written):
                value.__set_name__(cls, name)
        return cls
    inherited = {name for base in cls.__mro__[1:-1] for name in _slots_of(base)}
    names = tuple(field.name for field in declared)
    kept = {name: value for name, value in vars(cls).items() if name not in (*names, "__dict__", "__weakref__")}
    kept |= {**own, "__slots__": tuple(name for name in names if name not in inherited)}
    result = type(cls.__name__, cls.__bases__, kept)
    result.__qualname__ = cls.__qualname__
    return result


def _call_text(cls: type[Any], fields: Sequence[dataclasses.Field[Any]]) -> str:
    """The text of a class that has none: how it is called."""
    parameters: dict[bool, list[str]] = {False: [], True: []}
    for field in fields:
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        if field.default_factory is not dataclasses.MISSING:
            default = " = <factory>"
        parameters[bool(field.kw_only)].append(f"{field.name}: {field.type!r}{default}")
    by_name = ["*", *parameters[True]] if parameters[True] else []
    return f"{cls.__name__}({', '.join([*parameters[False], *by_name])})"


def _slots_of(base: type[Any]) -> Sequence[str]:
    slots = vars(base).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


class _Written:
    """A method that is compiled when it is first asked for: of the classes that a first call loads, half are never
    used, and few of the others are compared.
    """

    def __init__(self, write: Callable[[], Any]) -> None:
        self._write = write

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        method = self._write()
        if vars(self._owner).get(self._name) is self:
            setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


class _WrittenInit(_Written):
    """A constructor that is compiled when a class has a few objects: of most classes a first call makes but one or two,
    and to read their fields is a tenth of the work.
    """

    def __init__(self, cls: type[Any], fields: Sequence[dataclasses.Field[Any]], frozen: bool, slots: bool) -> None:
        super().__init__(lambda: _written_init(cls, fields, frozen, slots))
        self._fields, self._slots, self._calls = fields, slots, 0
        self._set: Callable[[Any, str, Any], None] = _WRITE if frozen else setattr

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        self._calls += 1
        if instance is None or self._calls > _FEW:
            return super().__get__(instance, owner)
        return partial(self._init, instance)

    def _init(self, instance: Any, /, *positional: Any, **named: Any) -> None:
        values = self._values(positional, named)
        if values is None:
            super().__get__(instance, type(instance))(*positional, **named)  # which has Python's own error for it
            return
        for name, value in values:
            self._set(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()

    def _values(self, positional: Sequence[Any], named: dict[str, Any]) -> list[tuple[str, Any]] | None:
        """Every field that is set, with its value; None where what was given does not fit."""
        places = [field.name for field in self._fields if field.init and not field.kw_only]
        known = dict(zip(places, positional))  # noqa: B905  fewer may be there
        if len(positional) > len(places) or not known.keys().isdisjoint(named):
            return None
        known |= named
        values = []
        for field in self._fields:
            value = known.pop(field.name, _FACTORY) if field.init else _FACTORY
            if value is _FACTORY and field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            elif value is _FACTORY and (field.init or self._slots):
                value = field.default
            if value is dataclasses.MISSING and field.init:
                return None
            if value is not _FACTORY and value is not dataclasses.MISSING:
                values.append((field.name, value))
        return None if known else values


def _methods(cls: type[Any], fields: Sequence[dataclasses.Field[Any]], frozen: bool, slots: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {
        "__init__": _WrittenInit(cls, fields, frozen, slots),
        "__eq__": _Written(lambda: _written_eq(cls, fields)),
        "__repr__": _repr,
    }
    if not frozen:
        return {**methods, "__hash__": None}
    methods |= {
        "__hash__": _Written(lambda: _written_hash(cls, fields)),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
    }
    return {**methods, "__getstate__": _state, "__setstate__": _set_state} if slots else methods


def _written_init(cls: type[Any], fields: Sequence[dataclasses.Field[Any]], frozen: bool, slots: bool) -> Any:
    values: dict[str, Any] = {"_write": _WRITE, "_FACTORY": _FACTORY}
    positional: list[str] = []
    by_name: list[str] = []
    body = []
    for field in fields:
        name, value = field.name, field.name
        parameters = [] if not field.init else by_name if field.kw_only else positional
        if field.default is not dataclasses.MISSING:
            values[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            values[f"_factory_{name}"] = field.default_factory
            parameters.append(f"{name}=_FACTORY")
            value = f"_factory_{name}() if {name} is _FACTORY else {name}" if field.init else f"_factory_{name}()"
        else:
            parameters.append(name)
        if not field.init and field.default_factory is dataclasses.MISSING:
            if not slots or field.default is dataclasses.MISSING:
                continue  # its default is the class's, or there is none
            value = f"_default_{name}"
        body.append(f"_write(_self, {name!r}, {value})" if frozen else f"_self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("_self.__post_init__()")
    parameters = ["_self", *positional, *(["*", *by_name] if by_name else [])]
    method = _compiled(cls, "__init__", ", ".join(parameters), body or ["pass"], values)
    in_order = sorted((field for field in fields if field.init), key=lambda field: bool(field.kw_only))
    method.__annotations__ = {**{field.name: field.type for field in in_order}, "return": None}
    return method


def _written_eq(cls: type[Any], fields: Sequence[dataclasses.Field[Any]]) -> Any:
    compared = [field.name for field in fields if field.compare]
    body = [
        "if other.__class__ is self.__class__:",
        f" return {_tuple('self', compared)} == {_tuple('other', compared)}",
        "return NotImplemented",
    ]
    return _compiled(cls, "__eq__", "self, other", body, {})


def _written_hash(cls: type[Any], fields: Sequence[dataclasses.Field[Any]]) -> Any:
    hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    return _compiled(cls, "__hash__", "self", [f"return hash({_tuple('self', hashed)})"], {})


def _compiled(cls: type[Any], name: str, parameters: str, body: Sequence[str], values: dict[str, Any]) -> Any:
    """A method out of the names of fields and nothing else, as the standard library does."""
    exec("\n".join([f"def {name}({parameters}):", *(f" {line}" for line in body)]), values)
    method = values[name]
    method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    return method


def _tuple(owner: str, names: Sequence[str]) -> str:
    return f"({''.join(f'{owner}.{name},' for name in names)})"


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_field(owner: Any, name: str) -> bool:
    """Of a class that is no dataclass itself, only the fields that it has from one are frozen."""
    return "__dataclass_params__" in vars(type(owner)) or name in owner.__dataclass_fields__


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    if _is_field(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    _WRITE(self, name, value)


def _refuse_to_delete(self: Any, name: str) -> None:
    if _is_field(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        _WRITE(self, field.name, value)


_hints: dict[type, dict[str, Any]] = {}
_PLAIN: dict[str, Any] = {"int": int, "bool": bool, "str": str, "float": float, "...": Ellipsis}


def field_hints(cls: type[Any]) -> dict[str, Any]:
    """What the annotations of a dataclass's fields say, read once.

    `typing` evaluates each as Python's source, a third of a millisecond a class: plain ones are read here.
    """
    known = _hints.get(cls)
    if known is None:
        declared = dataclasses.fields(cls)
        known = {field.name: _plain_hint(field.type) for field in declared}
        if None in known.values():
            hints = get_type_hints(cls)
            known = {field.name: hints[field.name] for field in declared}
        _hints[cls] = known
    return known


def _plain_hint(text: Any) -> Any:
    """A number, a switch or a text, or a tuple of such; None for what else there may be."""
    if text in _PLAIN:
        return _PLAIN[text]
    if isinstance(text, str) and text.startswith("tuple[") and text.endswith("]"):
        parts = [_PLAIN.get(part) for part in text[6:-1].split(", ")]
        return None if None in parts else GenericAlias(tuple, tuple(parts))
    return None
