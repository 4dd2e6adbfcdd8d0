"""Old public names: each is taken for one more minor version, with a warning that names the new one.

A function takes old keywords as `**old` and hands a call that has some to `call_renamed`; one that has none pays for an
empty dict and nothing else.  A dataclass is decorated with `renamed_fields`: old keywords of its constructor, old
attributes, old values of fields and old names in JSON.  The table of names is beside the function or class that had
them.

    RENAMED = {"starts_q": "cu_seqlens_q"}

    def public_function(q, *, cu_seqlens_q=None, **old):
        if old:
            return call_renamed(public_function, RENAMED, locals())
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, TypeVar

from tilewright.errors import ArgumentError

GONE_IN = "0.3"  # the version that does not know the old names any more

_Class = TypeVar("_Class", bound=type[Any])


def warn_renamed(owner: str, old: str, new: str, *, skip: Collection[str] = ()) -> None:
    """Warn whoever used an old name: the nearest caller that is neither this module nor a function of `skip`."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and (frame.f_globals is globals() or frame.f_code.co_name in skip):
        level, frame = level + 1, frame.f_back
    message = f"{owner}: {old} is now called {new}; the old name is gone in tilewright {GONE_IN}"
    warnings.warn(message, DeprecationWarning, stacklevel=level)


def new_names(owner: str, names: Mapping[str, str], old: Mapping[str, Any], *, skip: Collection[str] = ()) -> Any:
    """Values under their new names; a name that is not an old one is Python's own error."""
    renamed: dict[str, Any] = {}
    for name, value in old.items():
        if name not in names:
            raise TypeError(f"{owner}() got an unexpected keyword argument {name!r}")
        warn_renamed(owner, name, names[name], skip=skip)
        renamed[names[name]] = value
    return renamed


def given_twice(what: str, old: str, new: str) -> ArgumentError:
    return ArgumentError(f"{what} under its old name too, {old}", rule="renamed", value=old, remedy=f"give {new} alone")


def call_renamed(function: Callable[..., Any], names: Mapping[str, str], arguments: dict[str, Any]) -> Any:
    """Call a function once more, with `locals()` of the call whose `old` has keywords under their old names."""
    owner = function.__name__
    old = arguments["old"]
    parameters = inspect.signature(function).parameters
    values = {name: arguments[name] for name in parameters if name != "old"}
    renamed = new_names(owner, names, old, skip=(owner,))
    for former in old:
        if values[names[former]] is not parameters[names[former]].default:
            raise given_twice(f"{owner}() got {names[former]!r}", former, names[former])
    return function(**{**values, **renamed})


Values = Mapping[str, Mapping[str, str]]  # of a field: its old values and what they are called now
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_NO_VALUES: Values = MappingProxyType({})


def stored_names(cls: type[Any]) -> Mapping[str, str]:
    """The names in JSON of those fields of a dataclass that have others in Python (`renamed_fields`)."""
    return getattr(cls, "stored_names", _NO_NAMES)


def stored_values(cls: type[Any]) -> Values:
    """Of fields of a dataclass, by their names in Python: the values that are called otherwise in JSON."""
    return getattr(cls, "stored_values", _NO_VALUES)


def new_values(cls: type[Any]) -> Values:
    """Of fields of a dataclass, by their names in Python: what the values in JSON are called now."""
    return {field: {old: new for new, old in values.items()} for field, values in stored_values(cls).items()}


def renamed_value(renamed: Mapping[str, str] | None, value: Any) -> Any:
    """A value, or what a table calls it."""
    return renamed.get(value, value) if renamed and isinstance(value, str) else value


def renamed_fields(names: Mapping[str, str], values: Values = _NO_VALUES) -> Callable[[_Class], _Class]:
    """A dataclass that takes fields and values under their old names too, in its constructor and as attributes.

    JSON keeps the names it has (`stored_names`, `stored_values`): digests, stored results, lock files and models stay
    what they are.  Given both ways, the old name counts: `dataclasses.replace` gives every field under its new name
    beside what it changes.  `values` are those of fields by their new names.  A class inherits what its base renamed.
    """

    def decorate(cls: _Class) -> _Class:
        init, owner, skip = cls.__init__, cls.__name__, ("__init__", "replace")
        all_names = {**{old: new for new, old in stored_names(cls).items()}, **names}
        all_values = {**new_values(cls), **values}

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                init(self, *args, **kwargs)
            except TypeError:
                if all_names.keys().isdisjoint(kwargs):
                    raise
                old = {name: kwargs.pop(name) for name in all_names if name in kwargs}
                init(self, *args, **{**kwargs, **new_names(owner, all_names, old, skip=skip)})
            for field, renamed in all_values.items():
                value = getattr(self, field)
                if isinstance(value, str) and value in renamed:
                    warn_renamed(owner, f"{field} {value!r}", repr(renamed[value]), skip=skip)
                    object.__setattr__(self, field, renamed[value])

        setattr(__init__, "__wrapped__", init)  # noqa: B010  so that its signature is shown
        cls.__init__ = __init__
        for old, new in names.items():
            setattr(cls, old, property(_reader(owner, old, new)))
        own = {new: old for old, new in names.items() if any(field.name == new for field in fields(cls))}
        cls.stored_names = {**getattr(cls, "stored_names", {}), **own}
        cls.stored_values = {field: {new: old for old, new in renamed.items()} for field, renamed in all_values.items()}
        return cls

    return decorate


def renamed_methods(names: Mapping[str, str]) -> Callable[[_Class], _Class]:
    """A class to inherit from whose methods have their old names too: for callers, and for classes that define them."""

    def decorate(cls: _Class) -> _Class:
        base: Any = cls

        def __init_subclass__(sub: type[Any], /, **options: Any) -> None:
            super(base, sub).__init_subclass__(**options)
            for old, new in names.items():
                if old in vars(sub) and new not in vars(sub):
                    warn_renamed(sub.__name__, old, new, skip=("__init_subclass__",))
                    setattr(sub, new, vars(sub)[old])

        def __getattr__(self: Any, name: str) -> Any:
            if name not in names:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            warn_renamed(type(self).__name__, name, names[name])
            return getattr(self, names[name])

        setattr(cls, "__init_subclass__", classmethod(__init_subclass__))  # noqa: B010
        setattr(cls, "__getattr__", __getattr__)  # noqa: B010
        return cls

    return decorate


def _reader(owner: str, old: str, new: str) -> Callable[[Any], Any]:
    def read(self: Any) -> Any:
        warn_renamed(owner, old, new)
        return getattr(self, new)

    return read
