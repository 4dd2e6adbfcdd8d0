"""Kernel families: everything about one kind of kernel, of one op on one backend, in one folder.

A family says which schedules it has, what is legal, what a legal kernel was not made for and what it costs.  Those that
ship are listed by the kernels of their op on their backend (`backends.families.OpFamilies`); any package may bring one

    tilewright.families.<backend>.<op>    NAME = an object of `backends.families.KernelFamily`

which is then one of them: pools propose it, legality and selection ask it, every command knows it.
Here is the half that legality and pools ask.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

from tilewright import plugins
from tilewright.arch import Arch
from tilewright.errors import shown
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.rules import OnceASignature, numbers_are_legal


class FamilyRules(Protocol):
    """What legality, pools and selection ask of a kernel family; an op may ask more (its `family` module)."""

    schedules: tuple[type[Any], ...]  # the dataclasses of its schedules, which no other family has

    def proposals(self, pool: str, signature: Any, arch: Arch) -> Iterable[Any]:
        """The schedules a pool has for a signature; some may be illegal, none is a fine answer."""

    def violations(self, signature: Any, schedule: Any, arch: Arch) -> Iterable[Violation]:
        """The rules that a signature and one of its schedules break on an arch."""

    def limits(self, spec: KernelSpec, problem: Any) -> Iterable[Violation]:
        """Why a legal kernel cannot serve a problem of its signature; its check in C says the same."""


class ScheduleDefaults:
    """Defaults for the dataclass of a schedule, whose author adds fields, `pipelines` and `label()`.

    `choices` gives the values a field of text may have, `may_be_zero` names the numbers that may be 0 (others are 1 or
    more), `axis_names` the names of the elements of fields that hold tuples.
    """

    __slots__ = ()

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    may_be_zero: ClassVar[tuple[str, ...]] = ()
    axis_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}


_GUIDE = "docs/adding-a-kernel-family.md"
_LABEL = re.compile(r"[A-Za-z0-9_]+")  # a kernel's name is a C identifier and the name of a file
_OF_A_SCHEDULE = ("pipeline", "pipelines", "choices", "may_be_zero", "label")


def demand_schedules(family: Any) -> None:
    """Schedules of another package have what legality and names read; what is missing is its author's to add."""
    for kind in family.schedules:
        if "words" in vars(kind) and "choices" not in vars(kind):
            warnings.warn(f"{kind.__name__}.words is now called choices", DeprecationWarning, stacklevel=2)
            kind.choices = kind.words
    wanted = (*_OF_A_SCHEDULE, *getattr(family, "schedule_members", ()))
    for kind in family.schedules:
        own = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
        lacks = [name for name in wanted if name not in own and not hasattr(kind, name)]
        if lacks or not own:
            wrong = f"lacks {', '.join(lacks)}" if lacks else "is not a dataclass"
            raise plugins.fault(
                kind.__module__,
                f"the schedule {kind.__name__} {wrong}",
                rule="plugin",
                value=kind.__name__,
                remedy=f"inherit from ScheduleDefaults and add what is missing ({_GUIDE})",
            )


def demand_own_pipelines(family: Any, others: Iterable[Any], where: str) -> None:
    """Specs are read back by their pipeline's name, so families of one op and backend share none."""
    taken = {name: other for other in others for kind in other.schedules for name in kind.pipelines}
    for kind in family.schedules:
        for name in kind.pipelines:
            if name in taken:
                raise plugins.fault(
                    kind.__module__,
                    f"the schedule {kind.__name__} has the pipeline {name!r}, which the family "
                    f"{type(taken[name]).__name__} of {where} has already",
                    rule="plugin",
                    value=name,
                    remedy=f"give the pipeline another name ({_GUIDE})",
                )


def demanded(family: Any, schedule: Any) -> Any:
    """A schedule that a family of another package proposes, if it is one of its own that names and limits can use."""
    kind = type(schedule)
    if kind not in family.schedules:
        wrong, value = f"it is no object of {' or '.join(each.__name__ for each in family.schedules)}", kind.__name__
    elif not isinstance(label := schedule.label(), str) or not _LABEL.fullmatch(label):
        wrong, value = "its label() may have letters, digits and underscores only", shown(label)
    elif wrong := getattr(family, "wrong_schedule", lambda schedule: "")(schedule):
        value = shown(schedule)
    else:
        return schedule
    raise plugins.fault(
        type(family).__module__,
        f"the family {type(family).__name__} proposes the schedule {value}: {wrong}",
        rule="plugin",
        value=value,
        remedy=f"correct the family ({_GUIDE})",
    )


def families_group(backend: str, op: str) -> str:
    """The entry point group of the kernel families of an op on a backend."""
    return f"tilewright.families.{backend}.{op}"


@lru_cache(maxsize=64)
def families(backend: str, op: str) -> tuple[Any, ...]:
    """The kernel families that packages bring to an op on a backend, by name; looked for once a process."""
    group = families_group(backend, op)
    known = tuple(plugins.load(group, name, "a kernel family", FamilyRules) for name in plugins.names(group))
    for family in known:
        demand_schedules(family)
    return known


def _test(family: Any, signature: Any, arch: Arch) -> Callable[[Any], bool]:
    """Whether a schedule of a family is legal."""
    quick = getattr(family, "legal_schedules", None)
    if quick is not None:
        test: Callable[[Any], bool] = quick(signature, arch)
        return test
    return lambda schedule: (
        numbers_are_legal(schedule) and not any(True for _ in family.violations(signature, schedule, arch))
    )


class FamilySpace:
    """The design space of an op on a backend: its families side by side.

    A subclass says what is the backend's own: `signature_rules`, the `fallback_schedule`, and what the op may ask of a
    backend (named sets, more pools, usual types).
    """

    backend: str
    op: str
    own: tuple[Any, ...]  # the families that ship with the backend, best first

    @cached_property
    def families(self) -> tuple[Any, ...]:
        """Those that ship, then those that other packages bring."""
        known = tuple(self.own)
        for family in families(self.backend, self.op):
            demand_own_pipelines(family, known, f"{self.op} on {self.backend}")
            known = (*known, family)
        return known

    @cached_property
    def _by_schedule(self) -> dict[type[Any], Any]:
        return {kind: family for family in self.families for kind in family.schedules}

    def family_of(self, schedule: Any) -> Any:
        """The family that a schedule belongs to."""
        return self._by_schedule[type(schedule)]

    @cached_property
    def SCHEDULES(self) -> tuple[type[Any], ...]:
        return tuple(self._by_schedule)

    @cached_property
    def RULES(self) -> tuple[Any, ...]:
        return (self._violations,)

    def _violations(self, signature: Any, schedule: Any, arch: Arch) -> Iterator[Violation]:
        yield from self.signature_rules(signature, arch)
        yield from self.family_of(schedule).violations(signature, schedule, arch)

    def legal_schedules(self, signature: Any, arch: Arch) -> Callable[[Any], bool]:
        """What says whether the numbers of a schedule are some, and `RULES` have nothing to say of it; a family may
        know both more quickly (`legal_schedules`)."""
        if not self._has_kernels(signature, arch):
            return lambda schedule: False
        tests: dict[type[Any], Callable[[Any], bool]] = {}  # by the dataclass, as they are first asked for

        def is_legal(schedule: Any) -> bool:
            test = tests.get(type(schedule))
            if test is None:
                test = tests[type(schedule)] = _test(self.family_of(schedule), signature, arch)
            return test(schedule)

        return is_legal

    @cached_property
    def _has_kernels(self) -> OnceASignature:
        return OnceASignature(lambda signature, arch: not any(True for _ in self.signature_rules(signature, arch)))

    def signature_rules(self, signature: Any, arch: Arch) -> Iterable[Violation]:
        """Why the arch has no kernel for the signature, whatever its schedule."""
        raise NotImplementedError

    def fallback_schedule(self, signature: Any, arch: Arch) -> Any:
        """The fallback: serves every problem of the signature."""
        raise NotImplementedError

    def limits(self, spec: KernelSpec, problem: Any) -> Iterable[Violation]:
        answers: Iterable[Violation] = self.family_of(spec.schedule).limits(spec, problem)
        return answers

    def schedules(self, pool: str, signature: Any, arch: Arch) -> Iterator[Any]:
        for family in self.families:
            proposed = family.proposals(pool, signature, arch)
            yield from proposed if family in self.own else (demanded(family, schedule) for schedule in proposed)
