"""`collections.namedtuple`, made in a third of the time: that one compiles a constructor for each class.

Here constructors of up to a dozen fields are there already, and only the names of their parameters are replaced; the
other methods, alike in all classes, are shared.  What is unusual about a class, the standard one makes or refuses, and
so it does from Python 3.13 on, whose classes have other methods.
"""

from __future__ import annotations

import collections
import keyword
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

_new: Callable[[type[Any], Iterable[Any]], Any] = tuple.__new__
_TABLE: tuple[Any, ...] = (
    lambda _cls, a: _new(_cls, (a,)),
    lambda _cls, a, b: _new(_cls, (a, b)),
    lambda _cls, a, b, c: _new(_cls, (a, b, c)),
    lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
    lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
    lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
    lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
    lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
    lambda _cls, a, b, c, d, e, f, g, h, i: _new(_cls, (a, b, c, d, e, f, g, h, i)),
    lambda _cls, a, b, c, d, e, f, g, h, i, j: _new(_cls, (a, b, c, d, e, f, g, h, i, j)),
    lambda _cls, a, b, c, d, e, f, g, h, i, j, k: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k)),
    lambda _cls, a, b, c, d, e, f, g, h, i, j, k, m: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k, m)),
)
_standard: Any = collections.namedtuple
# What reads a field; the standard one's, in C.
_Getter: Any = getattr(collections, "_tuplegetter", None)


def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    """Make a new object from a sequence or iterable."""
    result = _new(cls, iterable)
    if len(result) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(result)}")
    return result


def _replace(self: Any, /, **changes: Any) -> Any:
    """Return a new object with other values of some fields."""
    result = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return result


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=False))
    return f"{self.__class__.__name__}({shown})"


def _asdict(self: Any) -> dict[str, Any]:
    """Return the values by their names."""
    return dict(zip(self._fields, self, strict=False))


def _as_arguments(self: Any) -> tuple[Any, ...]:
    """Of copies and pickles."""
    return tuple(self)


_SHARED: Mapping[str, Any] = {
    "__slots__": (), "_make": classmethod(_make), "_replace": _replace, "__repr__": _repr, "_asdict": _asdict,
    "__getnewargs__": _as_arguments,
}  # fmt: skip


def named_tuple(name: str, fields: Sequence[str], defaults: Sequence[Any], module: str) -> type[Any]:
    """A class of tuples whose items have names, those at the end defaults."""
    if sys.version_info >= (3, 13) or _Getter is None or not _usual(fields):
        unusual: type[Any] = _standard(name, fields, defaults=defaults, module=module)
        return unusual
    fields = tuple(map(sys.intern, fields))
    parameters = ", ".join(fields) + ("," if len(fields) == 1 else "")
    result = type(
        name,
        (tuple,),
        {
            **_SHARED,
            "__doc__": f"{name}({parameters})",
            "__new__": _constructor(name, fields, tuple(defaults), parameters),
            "_fields": fields,
            "_field_defaults": dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True)),
            "__match_args__": fields,
            **{field: _Getter(at, f"Alias for field number {at}") for at, field in enumerate(fields)},
        },
    )
    result.__module__ = module
    return result


def _usual(fields: Sequence[str]) -> bool:
    """Whether there is a constructor for these names, and nothing to complain of."""
    names = all(each.isidentifier() and each[0] != "_" and not keyword.iskeyword(each) for each in fields)
    return names and 0 < len(fields) == len(set(fields)) <= len(_TABLE)


def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...], parameters: str) -> Any:
    known: Any = _TABLE[len(fields) - 1].__code__
    code = known.replace(co_varnames=("_cls", *fields))
    method = FunctionType(code, globals(), "__new__", defaults)
    method.__qualname__ = f"{name}.__new__"
    method.__doc__ = f"Create new instance of {name}({parameters})"
    return method
