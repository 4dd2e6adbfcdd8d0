"""Kernel families: everything about one kind of kernel, of one op on one backend, in one folder.

A family says which schedules it has, what is legal, what a legal kernel was not made for and what it costs.  Those that
ship are listed by the kernels of their op on their backend (`backends.families.OpFamilies`); any package may bring one

    tilewright.families.<backend>.<op>    NAME = an object of `backends.families.KernelFamily`

which from then on stands beside them: pools propose it, legality and selection ask it, every command knows it.
Here is the half that legality and pools ask.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol

from tilewright import plugins
from tilewright.arch import Arch
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
                remedy="inherit from ScheduleDefaults and add what is missing (docs/adding-a-kernel-family.md)",
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
        return (*self.own, *families(self.backend, self.op))

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

    def is_legal(self, signature: Any, schedule: Any, arch: Arch) -> bool:
        """Whether the numbers of a schedule are some, and `RULES` have nothing to say of it; a family may have a
        quicker way to know both (`is_legal`)."""
        if not self._has_kernels(signature, arch):
            return False
        family = self.family_of(schedule)
        quick = getattr(family, "is_legal", None)
        if quick is not None:
            return bool(quick(signature, schedule, arch))
        return numbers_are_legal(schedule) and not any(True for _ in family.violations(signature, schedule, arch))

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
            yield from family.proposals(pool, signature, arch)
