"""Our `dataclass` makes what the standard library's makes: every case is one class made by both."""

from __future__ import annotations

import collections
import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import sys
import typing
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest

import tilewright
from tilewright.dataclass import NamedTuple, dataclass, field_hints
from tilewright.named_tuple import named_tuple

Decorator = Callable[..., Any]
BOTH = pytest.mark.parametrize("made", [dataclass, dataclasses.dataclass], ids=["ours", "standard"])
HOW = pytest.mark.parametrize(("frozen", "slots"), [(True, True), (True, False), (False, True), (False, False)])


def point(made: Decorator, **how: bool) -> type[Any]:
    class Point:
        """A class with all kinds of fields that are given in their order."""

        kind: ClassVar[str] = "point"
        x: int
        y: tuple[int, ...] = ()
        names: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)
        secret: int = field(default=0, repr=False)
        weight: int = field(default=0, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", int(self.x))

    return made(Point, **how)  # type: ignore[no-any-return]


@HOW
def test_what_both_have(frozen: bool, slots: bool) -> None:
    ours, standard = (point(made, frozen=frozen, slots=slots) for made in (dataclass, dataclasses.dataclass))
    assert [each.name for each in dataclasses.fields(ours)] == [each.name for each in dataclasses.fields(standard)]
    assert ours.__match_args__ == standard.__match_args__
    assert ours.__doc__ == standard.__doc__
    assert repr(ours.__dataclass_params__) == repr(standard.__dataclass_params__)
    assert str(inspect.signature(ours)) == str(inspect.signature(standard))
    assert hasattr(ours(1), "__dict__") == hasattr(standard(1), "__dict__")
    assert (ours.__hash__ is None) == (standard.__hash__ is None)
    assert set(vars(ours)) == set(vars(standard))


@BOTH
@HOW
def test_objects(made: Decorator, frozen: bool, slots: bool) -> None:
    cls = point(made, frozen=frozen, slots=slots)
    one, same = cls("3", (1,)), cls(3, y=(1,), note="is not compared")
    assert one.x == 3
    assert one == same
    assert one != cls(3, (2,))
    assert one != (3, (1,))
    assert cls(1).names is not cls(1).names
    assert repr(one).endswith("Point(x=3, y=(1,), names=[], note='', weight=0)")
    assert dataclasses.replace(one, x=5).x == 5
    assert dataclasses.astuple(one) == (3, (1,), [], "", 0, 0)
    assert copy.copy(one) == copy.deepcopy(one) == one
    with pytest.raises(TypeError):
        cls()
    with pytest.raises(TypeError):
        cls(1, other=2)


@BOTH
def test_frozen_objects_are_hashed_by_their_fields_and_stay_as_they_are(made: Decorator) -> None:
    class Pair:
        """Two."""

        a: int
        b: int = field(default=0, hash=False)

    cls = made(Pair, frozen=True)
    assert hash(cls(1, 2)) == hash(cls(1, 3)) == hash((1,))
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        cls(1).a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del cls(1).a
    with pytest.raises(dataclasses.FrozenInstanceError):
        cls(1).other = 2


@BOTH
def test_children_of_a_frozen_class_have_attributes_of_their_own(made: Decorator) -> None:
    class Single:
        """One."""

        a: int

    cls = made(Single, frozen=True)

    class Child(cls):  # type: ignore[misc,valid-type]
        """No dataclass."""

    child = Child(1)
    child.other = 2
    assert child.other == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        child.a = 2


@BOTH
@pytest.mark.parametrize("derived", [dataclass, dataclasses.dataclass], ids=["ours", "standard"])
@HOW
def test_derived_classes(made: Decorator, derived: Decorator, frozen: bool, slots: bool) -> None:
    class Base:
        """One field."""

        a: int

    base = made(Base, frozen=frozen, slots=slots)

    class More(base):  # type: ignore[misc,valid-type]
        """One more."""

        b: int = 2

    more = derived(More, frozen=frozen, slots=slots)
    assert dataclasses.astuple(more(1)) == (1, 2)
    assert more(1) == more(1, 2)
    assert more(1) != base(1)
    with pytest.raises(TypeError, match="frozen"):
        derived(type("Other", (base,), {"__doc__": "x"}), frozen=not frozen, slots=slots)


@BOTH
def test_what_is_worked_out_once(made: Decorator) -> None:
    class Sized:
        """With a property that is kept."""

        a: int

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    assert made(Sized, frozen=True)(4).twice == 8


@BOTH
@HOW
def test_fields_given_by_name_in_derived_classes(made: Decorator, frozen: bool, slots: bool) -> None:
    class Record:
        """As the base of events has it."""

        at: float = field(default_factory=float, kw_only=True)

    base = made(Record, frozen=frozen, slots=slots)

    class Named(base):  # type: ignore[misc,valid-type]
        kind: ClassVar[str] = "named"
        mode: str = field(default="m", init=False)
        seen: list[int] = field(default_factory=list, init=False)
        name: str
        count: int = 3

    cls = made(Named, frozen=frozen, slots=slots)
    assert cls("a", at=2.0) == cls("a", 3, at=2.0) != cls("a")
    assert repr(cls("a")).endswith("Named(at=0.0, mode='m', seen=[], name='a', count=3)")
    assert str(inspect.signature(cls)) == "(name: 'str', count: 'int' = 3, *, at: 'float' = <factory>) -> None"
    assert cls.__doc__ == "Named(name: 'str', count: 'int' = 3, *, at: 'float' = <factory>)"
    assert cls.__match_args__ == ("name", "count")
    assert (cls.kind, cls("a").mode, cls("a").seen) == ("named", "m", [])
    assert cls("a").seen is not cls("a").seen
    assert hasattr(cls("a"), "__dict__") is not slots
    with pytest.raises(TypeError):
        cls("a", 3, 2.0)


@BOTH
def test_mistakes_are_told_by_the_standard_one(made: Decorator) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"a": []},
        {"a": field(default_factory=list), "__annotations__": {"a": "list", "b": "int"}},
        {"a": 1, "b": field(default=2)},
    )
    for own in wrong:
        with pytest.raises((TypeError, ValueError)):
            made(type("Wrong", (), {"__doc__": "x", "__annotations__": {"a": "list"}, **own}), frozen=True)


@dataclass(frozen=True, slots=True)
class Told:
    """At the top of a module, so that it can be pickled."""

    text: str
    inner: Told | None = None


def test_pickles() -> None:
    told = Told("a", Told("b"))
    assert pickle.loads(pickle.dumps(told)) == told


@BOTH
def test_what_else_a_class_asks_for_is_made_by_the_standard_one(made: Decorator) -> None:
    class Odd:
        """A field that is not given, one given by name alone, and a text of its own."""

        a: int
        b: int = field(default=3, init=False)
        c: int = field(default=4, kw_only=True)

        def __repr__(self) -> str:
            return "odd"

    cls = made(Odd, frozen=True, slots=True)
    assert (repr(cls(1)), cls(1).b, cls(1, c=5).c) == ("odd", 3, 5)
    ordered = made(order=True)(type("Ordered", (), {"__doc__": "x", "__annotations__": {"a": "int"}}))
    assert ordered(1) < ordered(2)
    assert made(type("Untold", (), {"__annotations__": {"a": "int"}})).__doc__ == "Untold(a: 'int')"


def ours() -> list[type[Any]]:
    """Every dataclass of the package."""
    classes = {}
    for module in pkgutil.walk_packages(tilewright.__path__, "tilewright."):
        if module.name.endswith("__main__") or module.name.split(".")[1] in ("torch", "cli", "learn"):
            continue  # which need what may not be installed
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__.startswith("tilewright"):
                classes[f"{each.__module__}.{each.__qualname__}"] = each
    return list(classes.values())


def test_classes_of_the_package_know_their_fields() -> None:
    """A method that was written for other fields than a class has would be the worst mistake here."""
    looked = 0
    for cls in ours():
        assert {*inspect.signature(cls).parameters} == {each.name for each in dataclasses.fields(cls) if each.init}, cls
        if cls.__eq__.__qualname__ != f"{cls.__qualname__}.__eq__":
            continue
        names = set(cls.__eq__.__code__.co_names) - {"__class__", "NotImplemented"}
        assert names == {each.name for each in dataclasses.fields(cls) if each.compare}, cls
        looked += 1
    assert looked > 100


@pytest.mark.skipif(sys.version_info < (3, 13), reason="the standard one is slow before Python 3.13")
def test_new_pythons_make_them_all() -> None:
    assert dataclass is dataclasses.dataclass


def test_hints_of_fields_are_those_of_typing() -> None:
    """Of every schedule, problem and signature; plain ones are read by us."""
    from typing import get_type_hints

    from tilewright.ops import op, op_names

    kinds = [kind for name in op_names() for kind in op(name).schedules]
    assert len(kinds) > 20
    for kind in kinds:
        expected = get_type_hints(kind)
        assert field_hints(kind) == {each.name: expected[each.name] for each in dataclasses.fields(kind)}


@dataclasses.dataclass
class Hinted:
    """Kinds of annotations."""

    count: int
    sizes: tuple[int, ...]
    pair: tuple[int, float]
    names: dict[str, int]
    maybe: int | None = None


def test_hints_that_are_not_plain_are_read_by_typing() -> None:
    assert field_hints(Hinted)["names"] == dict[str, int]
    assert field_hints(Hinted)["pair"] == tuple[int, float]
    assert field_hints(Hinted)["maybe"] == int | None


@HOW
def test_constructors_are_the_same_before_and_after_they_are_compiled(frozen: bool, slots: bool) -> None:
    ours, standard = (point(made, frozen=frozen, slots=slots) for made in (dataclass, dataclasses.dataclass))
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1,), {}), ((1, (2,)), {"secret": 3}), ((), {"x": 1, "names": ["a"]}), ((1, (), ["b"], "n", 4, 5), {}),
        ((), {}), ((1,), {"x": 2}), ((1,), {"other": 2}), ((1, 2, 3, 4, 5, 6, 7), {}), ((), {"y": ()}),
    ]  # fmt: skip

    def outcome(made: type[Any], given: tuple[Any, ...], named: dict[str, Any]) -> str:
        try:
            return str(dataclasses.astuple(made(*given, **named)))
        except TypeError as error:
            return str(error)

    for _ in range(3):  # the first calls of which are made without a compiled one
        for given, named in calls:
            expected = outcome(standard, given, named).replace("test_dataclass.point.<locals>.", "")
            assert outcome(ours, given, named).replace("_self", "self") == expected


class Measured(NamedTuple):
    """At the top of a module, as all are."""

    name: str
    size: tuple[int, ...] = ()

    @property
    def double(self) -> tuple[int, ...]:
        return self.size * 2


def test_tuples_with_names_are_those_of_typing() -> None:
    class Standard(typing.NamedTuple):
        """At the top of a module, as all are."""

        name: str
        size: tuple[int, ...] = ()

    ours, standard = Measured("a", (1,)), Standard("a", (1,))
    assert tuple(ours) == tuple(standard)
    assert (ours.double, ours._asdict()) == ((1, 1), standard._asdict())
    assert Measured._fields == Standard._fields
    assert Measured._field_defaults == Standard._field_defaults
    assert Measured.__doc__ == Standard.__doc__
    assert Measured.__bases__ == Standard.__bases__ == (tuple,)
    assert typing.get_type_hints(Measured) == typing.get_type_hints(Standard)
    assert repr(ours) == "Measured(name='a', size=(1,))"
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert ours._replace(name="b").name == "b"
    with pytest.raises(TypeError):
        Measured()  # type: ignore[call-arg]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="all are made by the standard one")
@pytest.mark.parametrize("count", range(15))
@pytest.mark.parametrize("optional", [0, 1, 3])
def test_named_tuples_are_those_of_the_standard_library(count: int, optional: int) -> None:
    names = [f"field{number}" for number in range(count)]
    defaults = [10 * number for number in range(min(optional, count))]
    module = "tilewright.some"
    ours = named_tuple("Point", names, defaults, module)
    standard: Any = collections.namedtuple("Point", names, defaults=defaults, module=module)  # type: ignore[misc]

    def outcome(cls: Any, act: Any) -> Any:
        try:
            return act(cls)
        except Exception as error:
            return type(error), str(error)

    values = list(range(count))
    for act in (
        lambda cls: tuple(cls(*values)),
        lambda cls: tuple(cls(*values[: count - len(defaults)])),
        lambda cls: tuple(cls(**dict(zip(names, values, strict=True)))),
        lambda cls: cls(*values, 1),
        lambda cls: cls(*values[:-4]),
        lambda cls: cls(nothing=1),
        lambda cls: repr(cls(*values)),
        lambda cls: repr(type("Sub", (cls,), {})(*values)),
        lambda cls: (cls(*values)._asdict(), hash(cls(*values)), cls(*values) == tuple(values)),
        lambda cls: tuple(cls(*values)._replace(field0=7)),
        lambda cls: cls(*values)._replace(nothing=7),
        lambda cls: tuple(cls._make(values)),
        lambda cls: cls._make([*values, 1]),
        lambda cls: [getattr(cls(*values), name) for name in names],
        lambda cls: setattr(cls(*values), "field0", 3),
        lambda cls: cls(*values).nothing,
        lambda cls: tuple(copy.copy(cls(*values))),
        lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__, cls.__slots__, cls.__doc__, cls.__bases__),
        lambda cls: (cls.__module__, cls.__name__, cls.__qualname__, cls.__new__.__doc__, cls.__new__.__qualname__),
        lambda cls: str(inspect.signature(cls)),
        lambda cls: [getattr(cls, name).__doc__ for name in names],
        lambda cls: sorted(vars(cls)),
    ):
        assert outcome(ours, act) == outcome(standard, act)


@pytest.mark.parametrize("names", [["class"], ["_hidden"], ["a", "a"], ["a b"]])
def test_odd_names_of_fields_are_refused_as_ever(names: list[str]) -> None:
    with pytest.raises(ValueError, match=r"[Ff]ield name"):
        named_tuple("Odd", names, [], __name__)


def test_odd_tuples_with_names_are_refused_as_ever() -> None:
    with pytest.raises(TypeError, match="default"):
        _class_of({"__annotations__": {"a": "int", "b": "int"}, "a": 1, "__module__": __name__})


def _class_of(own: dict[str, Any]) -> Any:
    import types

    return types.new_class("Odd", (NamedTuple,), exec_body=lambda space: space.update(own))
