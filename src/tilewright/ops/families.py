"""Kernel families by entry point: a package may bring one to an op and backend that are not its own.

A family is everything about one kind of kernel in one folder: its schedule, what is legal, what a legal kernel was not
made for, what it is filled into, what it costs and its headers.  It is found under

    tilewright.families.<backend>.<op>    NAME = an object of `backends.base.KernelFamily`

and from then on stands beside the kernels that ship: pools propose it, legality and selection ask it, every command
knows it.  Here is the half that legality and pools ask; `backends.base.kernels_of` leads to the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

from tilewright import plugins
from tilewright.arch import Arch
from tilewright.ops.base import Violation


class FamilyRules(Protocol):
    """What legality, pools and selection ask of a kernel family."""

    schedules: tuple[type[Any], ...]  # the dataclasses of its schedules, which no other family has

    def proposals(self, pool: str, signature: Any, arch: Arch) -> Iterable[Any]:
        """The schedules a pool has for a signature; some may be illegal, none is a fine answer."""

    def violations(self, signature: Any, schedule: Any, arch: Arch) -> Iterable[Violation]:
        """The rules that a signature and one of its schedules break on an arch."""

    def limits(self, schedule: Any, problem: Any) -> Iterable[Violation]:
        """Why a legal kernel cannot serve a problem of its signature; its check in C says the same."""


def families_group(backend: str, op: str) -> str:
    """The entry point group of the kernel families of an op on a backend."""
    return f"tilewright.families.{backend}.{op}"


@lru_cache(maxsize=64)
def families(backend: str, op: str) -> tuple[Any, ...]:
    """The kernel families that packages bring to an op on a backend, by name; looked for once a process."""
    group = families_group(backend, op)
    return tuple(plugins.load(group, name, "a kernel family", FamilyRules) for name in plugins.names(group))


class JoinedSpace:
    """The design space of a backend with families from elsewhere beside its own."""

    def __init__(self, own: Any, joined: Sequence[FamilyRules]) -> None:
        self._own, self._joined = own, tuple(joined)
        self._by_schedule = {kind: family for family in joined for kind in family.schedules}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    @cached_property
    def SCHEDULES(self) -> tuple[type[Any], ...]:
        return (*self._own.SCHEDULES, *self._by_schedule)

    @cached_property
    def RULES(self) -> tuple[Any, ...]:
        return (self._violations,)

    def _violations(self, signature: Any, schedule: Any, arch: Arch) -> Iterator[Violation]:
        family = self._by_schedule.get(type(schedule))
        if family is None:
            for rule in self._own.RULES:
                yield from rule(signature, schedule, arch)
        else:
            yield from self._own.signature_rules(signature, arch)
            yield from family.violations(signature, schedule, arch)

    def limits(self, schedule: Any, problem: Any) -> Iterable[Violation]:
        family = self._by_schedule.get(type(schedule))
        return self._own.limits(schedule, problem) if family is None else family.limits(schedule, problem)

    def schedules(self, pool: str, signature: Any, arch: Arch) -> Iterator[Any]:
        yield from self._own.schedules(pool, signature, arch)
        for family in self._joined:
            yield from family.proposals(pool, signature, arch)

    # What some ops ask beyond that: a family answers where it has something to say.

    def _asked(self, name: str, schedule: Any, *more: Any, plain: Any) -> Any:
        family = self._by_schedule.get(type(schedule))
        if family is None:
            answer = getattr(self._own, name, None)
            return answer(schedule, *more) if answer else plain
        answer = getattr(family, name, None)
        return answer(schedule, *more) if answer else plain

    def grains(self, schedule: Any) -> Any:
        """Of what sizes must be multiples, along m, n and k."""
        return self._asked("grains", schedule, plain=(1, 1, 1))

    def copied_sizes(self, schedule: Any, problem: Any) -> Any:
        return self._asked("copied_sizes", schedule, problem, plain=(problem.m, problem.n, problem.k))

    def pack_format(self, schedule: Any) -> Any:
        return self._asked("pack_format", schedule, plain=())

    def remarks(self, schedule: Any, problem: Any) -> Any:
        return self._asked("remarks", schedule, problem, plain=[])

    def copied(self, schedule: Any, problem: Any) -> Any:
        return self._asked("copied", schedule, problem, plain=problem.dense())
