"""`dataclass` of the standard library, made in a third of the time.

Before Python 3.13 the standard one compiles each method of a class as a text of its own, half a millisecond a class: of
the hundred classes that a first call needs, a third of its time.  Here a method that differs from class to class is
compiled when it is first called, a constructor when it was called a few times, the others are shared, and annotations
are looked at once, as the texts they are.  What a class has, and how it behaves, is the same (`tests/test_dataclass.py`
compares both); a class that asks for anything beyond `frozen` and `slots` is made by the standard one, and so are all
from Python 3.13 on, which does the same itself.

`NamedTuple` likewise: until Python 3.14 the standard one compiles the annotation of every field.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from reprlib import recursive_repr
from types import GenericAlias, MemberDescriptorType
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414
elif sys.version_info >= (3, 13):
    dataclass = dataclasses.dataclass
else:

    def dataclass(cls=None, /, **options):
        """As the standard library has it."""
        if cls is None:
            return lambda each: _fast_dataclass(each, **options)
        return _fast_dataclass(cls, **options)


if sys.version_info >= (3, 14):
    NamedTuple = typing.NamedTuple
elif not TYPE_CHECKING:

    class _NamedTupleMeta(type):
        """Makes a class of fields a tuple with names; what is unusual about one, the standard one makes or refuses."""

        def __new__(cls, name, bases, own):
            fields = tuple(own.get("__annotations__", ()))
            defaults = [field for field in fields if field in own]
            if bases != (NamedTuple,) or fields[len(fields) - len(defaults) :] != tuple(defaults):
                return types.new_class(
                    name,
                    tuple(typing.NamedTuple if each is NamedTuple else each for each in bases),
                    exec_body=lambda space: space.update(own),
                )
            result = namedtuple(name, fields, defaults=[own[field] for field in defaults], module=own["__module__"])
            result.__annotations__ = result.__new__.__annotations__ = dict(own.get("__annotations__", {}))
            for key, value in own.items():
                if key not in fields and key not in ("__module__", "__annotations__"):
                    setattr(result, key, value)
            return result

    NamedTuple = type.__new__(_NamedTupleMeta, "NamedTuple", (), {})


_OWN = ("__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__")
_WRITE = object.__setattr__
_FEW = 8  # objects of a class, before its constructor is compiled


class _Factory:
    """Stands in signatures for what a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _fast_dataclass(cls: type[Any], *, frozen: bool = False, slots: bool = False, **options: Any) -> type[Any]:
    declared = _declared(cls, frozen) if not options and _usual(cls) else None
    if declared is None:
        whole: type[Any] = dataclasses.dataclass(frozen=frozen, slots=slots, **options)(cls)
        return whole
    return _finished(cls, declared, frozen, slots)


# What the standard one notes of how a class was made, the same for all that were made alike.
_PARAMS: dict[tuple[bool, bool], Any] = {}
# Private names of the standard one, which marks fields with them, and notes how a class was made.
_IS_FIELD: Any = getattr(dataclasses, "_FIELD", None)
_IS_CLASSVAR: Any = getattr(dataclasses, "_FIELD_CLASSVAR", None)
_KIND_OF_PARAMS: Any = getattr(dataclasses, "_DataclassParams", None)
_USUAL_PARAMS = {
    "init": True, "repr": True, "eq": True, "order": False, "unsafe_hash": False, "match_args": True, "kw_only": False,
    "weakref_slot": False,
}  # fmt: skip


def _params(frozen: bool, slots: bool) -> Any:
    known = _PARAMS.get((frozen, slots))
    if known is None:
        known = _PARAMS[frozen, slots] = _new_params({**_USUAL_PARAMS, "frozen": frozen, "slots": slots})
    return known


def _new_params(values: Mapping[str, bool]) -> Any:
    names = getattr(_KIND_OF_PARAMS, "__slots__", ())
    if not names or not values.keys() >= {*names}:  # of a version we do not know: a class of its own says it
        how = {"frozen": values["frozen"], "slots": values["slots"]}
        sample: Any = dataclasses.dataclass(**how)(type("Sample", (), {"__doc__": "Empty."}))
        return sample.__dataclass_params__
    params = object.__new__(_KIND_OF_PARAMS)
    for name in names:
        setattr(params, name, values[name])
    return params


def _usual(cls: type[Any]) -> bool:
    """Whether a class is one that is made here: it writes none of the methods itself, and has fields only."""
    own = vars(cls)
    if type(cls) is not type or "__slots__" in own or not own.keys().isdisjoint(_OWN):
        return False
    words = own.get("__annotations__", {}).values()
    return not any("InitVar" in word or "KW_ONLY" in word if isinstance(word, str) else True for word in words)


class _Declared:
    """The fields of a class.  What the standard library keeps of each is made when somebody asks: few do."""

    def __init__(
        self, words: Mapping[str, str], defaults: Mapping[str, Any], fields: dict[str, Any] | None = None
    ) -> None:
        """By their annotations, and the defaults of those that have one; `fields` where they are made already."""
        self._words, self._defaults, self._fields = words, defaults, fields
        self._rows: list[tuple[str, bool, bool, Any, Any]] | None = None

    def fields(self) -> dict[str, dataclasses.Field[Any]]:
        """As `__dataclass_fields__` has them."""
        if self._fields is None:
            self._fields = {name: _new_field(name, word, self._defaults) for name, word in self._words.items()}
        return self._fields

    def given(self) -> list[dataclasses.Field[Any]]:
        """Those that objects have."""
        return [field for field in self.fields().values() if _is_given(field)]

    def names(self) -> tuple[str, ...]:
        if self._fields is None:
            return tuple(name for name, word in self._words.items() if not word.startswith("ClassVar"))
        return tuple(field.name for field in self.given())

    def positional(self) -> tuple[str, ...]:
        """What a constructor takes by place."""
        return self.names() if self._fields is None else tuple(name for name, init, kw, *_ in self.rows() if init > kw)

    def rows(self) -> list[tuple[str, bool, bool, Any, Any]]:
        """Of each that objects have: name, whether it is a parameter, by name alone, its default and its factory."""
        if self._rows is None:
            absent = dataclasses.MISSING
            self._rows = (
                [(name, True, False, self._defaults.get(name, absent), absent) for name in self.names()]
                if self._fields is None
                else [(each.name, each.init, bool(each.kw_only), each.default, each.default_factory)
                      for each in self.given()]
            )  # fmt: skip
        return self._rows


def _new_field(name: str, word: str, defaults: Mapping[str, Any]) -> dataclasses.Field[Any]:
    field: Any = dataclasses.field(default=defaults.get(name, dataclasses.MISSING))
    return _named_field(field, name, word)


def _named_field(field: Any, name: str, word: str) -> dataclasses.Field[Any]:
    of_class = word.startswith("ClassVar")
    field.name, field.type = name, word
    field._field_type = _IS_CLASSVAR if of_class else _IS_FIELD
    if not of_class and field.kw_only is dataclasses.MISSING:
        field.kw_only = False
    whole: dataclasses.Field[Any] = field
    return whole


def _declared(cls: type[Any], frozen: bool) -> _Declared | None:
    """The fields of a class; None where the standard one has to look or to complain."""
    own = vars(cls)
    words = own.get("__annotations__", {})
    for word in words.values():
        if "ClassVar" in word and not word.startswith("ClassVar"):
            return None
    if cls.__bases__ != (object,) or any(type(value) is dataclasses.Field for value in own.values()):
        fields = _fields_of(cls, frozen)
        return None if fields is None else _Declared(words, {}, fields)
    defaults, optional = {}, False
    for name, word in words.items():
        if name in own:
            defaults[name] = own[name]
        if word.startswith("ClassVar"):
            continue
        if optional and name not in own:
            return None  # behind one with a default: refused
        optional = name in own
        if optional and own[name].__class__.__hash__ is None:
            return None  # a list for all objects: refused
    return _Declared(words, defaults)


def _fields_of(cls: type[Any], frozen: bool) -> dict[str, dataclasses.Field[Any]] | None:
    """All fields by name, as the standard one keeps them: of a class that has some from others, or says more of one."""
    own = vars(cls)
    words = own.get("__annotations__", {})
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in cls.__mro__[-2:0:-1]:
        if "__dataclass_fields__" in vars(base):
            if vars(base)["__dataclass_params__"].frozen is not frozen:
                return None
            fields.update(base.__dataclass_fields__)  # type: ignore[attr-defined]
    for name, word in words.items():
        of_class = word.startswith("ClassVar")
        default: Any = getattr(cls, name, dataclasses.MISSING)
        if type(default) is MemberDescriptorType:
            default = dataclasses.MISSING  # a slot of a base
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        if default is field and (of_class or own.get(name) is not field):
            return None
        if not of_class and field.default.__class__.__hash__ is None:
            return None  # a list for all objects: refused
        fields[name] = _named_field(field, name, word)
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


def _finished(cls: type[Any], declared: _Declared, frozen: bool, slots: bool) -> type[Any]:
    own = {
        "__dataclass_params__": _params(frozen, slots),
        "__dataclass_fields__": _WrittenFields(declared.fields),
        "__match_args__": declared.positional(),
        **_methods(cls, declared, frozen, slots),
    }
    if not vars(cls).get("__doc__"):
        own["__doc__"] = _call_text(cls, [field for field in declared.given() if field.init])
    names = declared.names()
    if not slots:
        for name in names:
            if _is_spec(spec := vars(cls).get(name)):
                if spec.default is dataclasses.MISSING:
                    delattr(cls, name)
                else:
                    setattr(cls, name, spec.default)
        for name, value in own.items():
            setattr(cls, name, value)
            if isinstance(value, _Written):
                value.__set_name__(cls, name)
        return cls
    inherited = {name for base in cls.__mro__[1:-1] for name in _slots_of(base)}
    kept = {**vars(cls), **own, "__slots__": tuple(name for name in names if name not in inherited)}
    for name in (*names, "__dict__", "__weakref__"):
        kept.pop(name, None)
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


class _WrittenFields(_Written):
    """`__dataclass_fields__`, made when it is first asked for."""

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        fields = self._write()
        if vars(self._owner).get(self._name) is self:
            setattr(self._owner, self._name, fields)
        return fields


class _WrittenLater(_Written):
    """A method that is compiled when it was called a few times: of most classes a first call makes but one or two
    objects, and to go through their fields is a tenth of the work.
    """

    def __init__(self, declared: _Declared, write: Callable[[], Any]) -> None:
        super().__init__(write)
        self._declared, self._calls = declared, 0

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        self._calls += 1
        if instance is None or self._calls > _FEW:
            return super().__get__(instance, owner)
        return partial(self._run, instance)

    def _run(self, instance: Any, /, *positional: Any, **named: Any) -> Any:
        raise NotImplementedError


class _WrittenInit(_WrittenLater):
    """A constructor."""

    def __init__(self, cls: type[Any], declared: _Declared, frozen: bool, slots: bool) -> None:
        super().__init__(declared, lambda: _written_init(cls, declared.given(), frozen, slots))
        self._slots = slots
        self._set: Callable[[Any, str, Any], None] = _WRITE if frozen else setattr

    def _run(self, instance: Any, /, *positional: Any, **named: Any) -> None:
        values = self._values(positional, named)
        if values is None:  # Python has its own error for it
            _Written.__get__(self, instance, type(instance))(*positional, **named)
            return
        for name, value in values:
            self._set(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()

    def _values(self, positional: Sequence[Any], named: dict[str, Any]) -> list[tuple[str, Any]] | None:
        """Every field that is set, with its value; None where what was given does not fit."""
        places = self._declared.positional()
        known = dict(zip(places, positional))  # noqa: B905  fewer may be there
        if len(positional) > len(places) or not known.keys().isdisjoint(named):
            return None
        known |= named
        values = []
        for name, init, _, default, factory in self._declared.rows():
            value = known.pop(name, _FACTORY) if init else _FACTORY
            if value is _FACTORY and factory is not dataclasses.MISSING:
                value = factory()
            elif value is _FACTORY and (init or self._slots):
                value = default
            if value is dataclasses.MISSING and init:
                return None
            if value is not _FACTORY and value is not dataclasses.MISSING:
                values.append((name, value))
        return None if known else values


class _WrittenHash(_WrittenLater):
    """A hash."""

    def __init__(self, cls: type[Any], declared: _Declared) -> None:
        super().__init__(declared, lambda: _written_hash(cls, declared.given()))

    def _run(self, instance: Any, /) -> int:
        return hash(tuple(getattr(instance, name) for name in _hashed(self._declared.given())))


class _WrittenEq(_WrittenLater):
    """A comparison."""

    def __init__(self, cls: type[Any], declared: _Declared) -> None:
        super().__init__(declared, lambda: _written_eq(cls, declared.given()))

    def _run(self, instance: Any, other: Any, /) -> Any:
        if other.__class__ is not instance.__class__:
            return NotImplemented
        names = _compared(self._declared.given())
        return tuple(getattr(instance, name) for name in names) == tuple(getattr(other, name) for name in names)


def _compared(fields: Sequence[dataclasses.Field[Any]]) -> list[str]:
    return [field.name for field in fields if field.compare]


def _hashed(fields: Sequence[dataclasses.Field[Any]]) -> list[str]:
    return [field.name for field in fields if (field.compare if field.hash is None else field.hash)]


def _methods(cls: type[Any], declared: _Declared, frozen: bool, slots: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {
        "__init__": _WrittenInit(cls, declared, frozen, slots),
        "__eq__": _WrittenEq(cls, declared),
        "__repr__": _repr,
    }
    if not frozen:
        return {**methods, "__hash__": None}
    methods |= {
        "__hash__": _WrittenHash(cls, declared),
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
    compared = _compared(fields)
    body = [
        "if other.__class__ is self.__class__:",
        f" return {_tuple('self', compared)} == {_tuple('other', compared)}",
        "return NotImplemented",
    ]
    return _compiled(cls, "__eq__", "self, other", body, {})


def _written_hash(cls: type[Any], fields: Sequence[dataclasses.Field[Any]]) -> Any:
    return _compiled(cls, "__hash__", "self", [f"return hash({_tuple('self', _hashed(fields))})"], {})


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
        known = {field.name: _plain_hint(field.type) or _named_hint(cls, field) for field in declared}
        if None in known.values():
            hints = get_type_hints(cls)
            known = {field.name: hints[field.name] for field in declared}
        _hints[cls] = known
    return known


def _named_hint(cls: type[Any], field: dataclasses.Field[Any]) -> Any:
    """A name that its module gives to a tuple of plain types; None for what else there may be."""
    for base in cls.__mro__:
        if field.name in vars(base).get("__annotations__", ()):
            value: Any = getattr(sys.modules.get(base.__module__), str(field.type), None)
            plain = type(value) is GenericAlias and value.__origin__ is tuple
            return value if plain and all(part in _PLAIN.values() for part in value.__args__) else None
    return None


def _plain_hint(text: Any) -> Any:
    """A number, a switch or a text, or a tuple of such; None for what else there may be."""
    if text in _PLAIN:
        return _PLAIN[text]
    if isinstance(text, str) and text.startswith("tuple[") and text.endswith("]"):
        parts = [_PLAIN.get(part) for part in text[6:-1].split(", ")]
        return None if None in parts else GenericAlias(tuple, tuple(parts))
    return None
