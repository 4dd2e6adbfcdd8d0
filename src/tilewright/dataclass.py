"""`dataclass` of the standard library, made in a third of the time.

Before Python 3.13 the standard one compiles each method of a class as a text of its own, half a millisecond a class: of
the hundred classes that a first call needs, a third of its time.  Here the methods that differ from class to class are
one text, and the others are shared.  What a class has, and how it behaves, is the same (`tests/test_dataclass.py`
compares both); a class that asks for anything beyond `frozen` and `slots` is made by the standard one, and so are all
from Python 3.13 on, which does the same itself.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

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


class _Factory:
    """Stands in signatures for what a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _fast_dataclass(cls: type[Any], *, frozen: bool = False, slots: bool = False, **options: Any) -> type[Any]:
    if options or not _usual(cls):
        whole: type[Any] = dataclasses.dataclass(frozen=frozen, slots=slots, **options)(cls)
        return whole
    # Whether a derived class may be frozen is for the standard one to judge; what that makes is the same as ours.
    derived = any(hasattr(base, "__dataclass_params__") for base in cls.__mro__[1:])
    plain = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and derived, slots=slots)
    result: type[Any] = plain(cls)
    fields = dataclasses.fields(result)
    params = result.__dataclass_params__
    params.init = params.repr = params.eq = True
    params.frozen = frozen
    _write_methods(result, fields, frozen)
    result.__repr__ = _repr  # type: ignore[assignment]
    if frozen:
        result.__setattr__, result.__delattr__ = _refuse_to_set, _refuse_to_delete  # type: ignore[assignment]
        if slots:
            result.__getstate__, result.__setstate__ = _state, _set_state  # type: ignore[assignment]
    else:
        result.__hash__ = None  # type: ignore[assignment]
    return result


def _usual(cls: type[Any]) -> bool:
    """Whether a class is one that is made here: it has a text, writes none of the methods, all its fields are given."""
    own = vars(cls)
    words = own.get("__annotations__", {}).values()
    if not own.get("__doc__") or any(name in own for name in _OWN):
        return False
    if any("InitVar" in str(word) or "KW_ONLY" in str(word) for word in words):
        return False
    fields = [*getattr(cls, "__dataclass_fields__", {}).values(), *own.values()]
    return all(field.init and field.kw_only is not True for field in fields if isinstance(field, dataclasses.Field))


def _write_methods(cls: type[Any], fields: Sequence[dataclasses.Field[Any]], frozen: bool) -> None:
    values: dict[str, Any] = {"_write": _WRITE, "_FACTORY": _FACTORY}
    parameters, body = [], []
    for field in fields:
        name, value = field.name, field.name
        if field.default is not dataclasses.MISSING:
            values[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            values[f"_factory_{name}"] = field.default_factory
            parameters.append(f"{name}=_FACTORY")
            value = f"_factory_{name}() if {name} is _FACTORY else {name}"
        else:
            parameters.append(name)
        body.append(f"_write(_self, {name!r}, {value})" if frozen else f"_self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("_self.__post_init__()")
    compared = [field.name for field in fields if field.compare]
    hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    text = [
        f"def __init__({', '.join(['_self', *parameters])}):",
        *(f" {line}" for line in body or ["pass"]),
        "def __eq__(self, other):",
        " if other.__class__ is self.__class__:",
        f"  return {_tuple('self', compared)} == {_tuple('other', compared)}",
        " return NotImplemented",
    ]
    if frozen:
        text += ["def __hash__(self):", f" return hash({_tuple('self', hashed)})"]
    exec("\n".join(text), values)  # the names of fields and nothing else, as the standard library does
    for name in ("__init__", "__eq__", "__hash__") if frozen else ("__init__", "__eq__"):
        method = values[name]
        method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
        setattr(cls, name, method)
    values["__init__"].__annotations__ = {**{field.name: field.type for field in fields}, "return": None}


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
