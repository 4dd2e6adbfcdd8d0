"""Pools that are derived from what a family proposes.

A family's module says what `default`, `full` and `profiler` have, and pools of its own in `POOLS`; the others
follow:

    default      without the fallback kernel, where another is legal and would serve the same problems faster
    full         with what is in `default` first
    full-tests   a fifth of what is legal of `full`, evenly from each kind of kernel, at least one of each
    tiny         the first of each pipeline of `full-tests`
    tests        `default` and `tiny`

The kind of a kernel is its pipeline with every switch and word of its schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.pooling import SMALL, SWEPT, Pools, fallback_schedule

NAMES = (*SMALL, *SWEPT)
SHARE = 5  # one in so many of `full` is in `full-tests`

Check = Callable[[KernelSpec], Sequence[Violation]]


def kind(schedule: Any) -> tuple[Any, ...]:
    """What kernels must differ in to be of different kinds: words and switches, not numbers."""
    values = ((field.name, getattr(schedule, field.name)) for field in dataclasses.fields(schedule))
    return tuple((name, value) for name, value in values if isinstance(value, (str, bool)))


class DerivedPools:
    """A family's design space with the pools that are derived from its own."""

    def __init__(self, op: str, module: Any, check: Check) -> None:
        self._op, self._module, self._check = op, module, check
        self._legal = lru_cache(maxsize=64)(self._find_legal)

    @property
    def POOLS(self) -> Mapping[str, str]:
        """Pools of its own, each with a sentence."""
        own: Mapping[str, str] = getattr(self._module, "POOLS", {})
        return own

    def signature_rules(self, signature: Any, arch: Arch) -> Iterator[Violation]:
        violations: Iterator[Violation] = self._module.signature_rules(signature, arch)
        return violations

    def fallback_schedule(self, signature: Any, arch: Arch) -> Any:
        return fallback_schedule(self._module, signature, arch)

    def schedules(self, pool: str, signature: Any, arch: Arch) -> Iterator[Any]:
        if pool in ("full-tests", "tiny"):
            yield from self._few(pool, signature, arch)
        elif pool in ("default", "tests", "full"):
            default = dict.fromkeys(self._default(signature, arch))
            yield from default
            if pool == "tests":
                yield from (schedule for schedule in self._few("tiny", signature, arch) if schedule not in default)
            elif pool == "full":
                swept = self._module.schedules("full", signature, arch)
                yield from (schedule for schedule in swept if schedule not in default)
        elif pool in SWEPT or pool in self.POOLS:
            yield from self._module.schedules(pool, signature, arch)

    def _is_legal(self, signature: Any, arch: str, schedule: Any) -> bool:
        return not self._check(KernelSpec(self._op, signature, schedule, arch))

    def _default(self, signature: Any, arch: Arch) -> list[Any]:
        fallback = self.fallback_schedule(signature, arch)
        every = list(dict.fromkeys(self._module.schedules("default", signature, arch)))
        fast = [schedule for schedule in every if schedule != fallback]
        # What proposes kernels may leave the fallback out beside some that turn out not to be legal.
        return fast if any(map(partial(self._is_legal, signature, arch.name), fast)) else [*fast, fallback]

    def _find_legal(self, signature: Any, arch: str) -> tuple[Any, ...]:
        proposed = dict.fromkeys(self._module.schedules("full", signature, arch_by_name(arch)))
        return tuple(filter(partial(self._is_legal, signature, arch), proposed))

    def _few(self, pool: str, signature: Any, arch: Arch) -> Iterator[Any]:
        kinds: dict[Any, list[Any]] = {}
        for schedule in self._legal(signature, arch.name):
            kinds.setdefault(kind(schedule), []).append(schedule)
        chosen = [schedule for each in kinds.values() for schedule in each[::SHARE]]
        if pool == "tiny":
            chosen = list({schedule.pipeline: schedule for schedule in reversed(chosen)}.values())[::-1]
        yield from chosen or [self.fallback_schedule(signature, arch)]  # where none is legal, its rules say why


class DerivedPoolsByFamily(Mapping[str, DerivedPools]):
    """Design spaces by the family of an arch, each with these pools; made when they are first asked for."""

    def __init__(self, op: str, spaces: Mapping[str, Any], check: Check) -> None:
        self._op, self._spaces, self._check = op, spaces, check
        self._known: dict[str, DerivedPools] = {}

    def __getitem__(self, family: str) -> DerivedPools:
        known = self._known.get(family)
        if known is None:
            known = self._known[family] = DerivedPools(self._op, self._spaces[family], self._check)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces)

    def __len__(self) -> int:
        return len(self._spaces)


def derived_pools(op: str, spaces: Mapping[str, Any], check: Check) -> Pools:
    """The pools of an op over the design spaces of its archs, those of their own among them."""
    return Pools(op, DerivedPoolsByFamily(op, spaces, check), check, names=NAMES)
