"""The machinery of pools and named sets: what any op does with the schedules its arch families propose.

An op brings a module (or object) a family that says which schedules a pool has for a signature, and asks here for
specs, candidates and named sets.  A pool proposes; legality disposes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Protocol

from tilewright.arch import Arch, all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.errors import RequestError, UnknownNameError, nearest
from tilewright.ops.base import KernelSpec, NamedSet, Violation
from tilewright.renames import warn_renamed

# Pools that turn every axis: what they hold runs into thousands a signature.  Those an op has of its own may hold as
# much: only the small ones are searched where nobody says what is looked for.
SWEPT = ("full", "profiler")
SMALL = ("tiny", "tests", "default", "full-tests")
POOL_NAMES = ("tiny", "tests", "default", *SWEPT)


class Family(Protocol):
    """The schedules of an op on one family of archs."""

    def schedules(self, pool: str, signature: Any, arch: Arch) -> Iterable[Any]:
        """What the pool proposes for one signature; some of it may be illegal."""

    def fallback_schedule(self, signature: Any, arch: Arch) -> Any:
        """The fallback kernel's, which serves every problem of the signature."""

    def signature_rules(self, signature: Any, arch: Arch) -> Iterable[Violation]:
        """Why the arch has no kernel for the signature, whatever its schedule."""


class PoolSet(NamedSet, Protocol):
    """A named set of pools: schedules for each of its signatures."""

    def signatures(self, arch: Arch) -> Iterable[Any]: ...

    @property
    def schedules(self) -> Callable[[Any, Arch], Iterable[Any]]: ...


def demand_known(rule: str, what: str, values: Iterable[str], known: Sequence[str]) -> None:
    """A name that is not known is an error with the nearest one."""
    for value in values:
        if value not in known:
            raise UnknownNameError(
                f"{value!r} is not a {what}", rule=rule, value=value, remedy=nearest(value, list(known))
            )


def fallback_schedule(family: Any, signature: Any, arch: Arch) -> Any:
    """What a family has as its fallback kernel's, under the old name too."""
    named = getattr(family, "fallback_schedule", None)
    if named is None:
        warn_renamed(getattr(family, "__name__", type(family).__name__), "generic_schedule", "fallback_schedule")
        named = family.generic_schedule
    return named(signature, arch)


class Pools:
    """The pools and named sets of one op."""

    def __init__(
        self,
        op: str,
        families: Mapping[str, Family],
        check: Callable[[KernelSpec], Sequence[Violation]],
        names: tuple[str, ...] = POOL_NAMES,
    ) -> None:
        self.op, self.families = op, families
        self._names, self._check = names, check
        # Asked for at every call that is planned anew; the answer never changes.
        self.candidates = lru_cache(maxsize=4096)(self._candidates)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The pools of every op, and those that families have of their own (`POOLS`)."""
        own = (name for family in self.families.values() for name in getattr(family, "POOLS", ()))
        return tuple(dict.fromkeys((*self._names, *own)))

    @cached_property
    def sets(self) -> dict[str, PoolSet]:
        """Named sets by name: those that families have (`SETS`)."""
        return {
            name: chosen for family in self.families.values() for name, chosen in getattr(family, "SETS", {}).items()
        }

    def family(self, arch: Arch) -> Family:
        """What speaks for an arch's family."""
        family = self.families.get(arch.family)
        if family is None:
            served = [target.name for target in all_archs().values() if target.family in self.families]
            raise RequestError(
                f"{self.op} has no kernels for {arch.name}: nothing is written for the family {arch.family} yet",
                rule="family",
                value=arch.name,
                remedy=nearest(arch.name, served),
            )
        return family

    def proposals(self, pool: str, arch: str, signatures: Iterable[Any]) -> Iterator[KernelSpec]:
        """What a pool proposes for signatures, before legality; an unknown name is an error at once."""
        if pool not in self._names:  # those that every op has are known without asking all backends
            demand_known("pool-name", "pool", [pool], self.names)
        facts = arch_by_name(arch)
        family = self.family(facts)
        if pool not in self._names and pool not in getattr(family, "POOLS", ()):
            raise self._pool_of_others(pool, facts)
        return (
            KernelSpec(self.op, signature, schedule, arch)
            for signature in signatures
            for schedule in family.schedules(pool, signature, facts)
        )

    def _pool_of_others(self, pool: str, arch: Arch) -> RequestError:
        owners = [name for name, family in self.families.items() if pool in getattr(family, "POOLS", ())]
        return RequestError(
            f"the pool {pool} is for {' and '.join(owners)} archs, {arch.name} is of family {arch.family}",
            rule="pool-family",
            value=arch.name,
            remedy=f"use {', '.join(self._names)}, or such an arch",
        )

    def fallback_spec(self, signature: Any, arch: str) -> KernelSpec:
        """The fallback kernel of a signature."""
        facts = arch_by_name(arch)
        return KernelSpec(self.op, signature, fallback_schedule(self.family(facts), signature, facts), arch)

    def _candidates(self, signature: Any, arch: str) -> tuple[KernelSpec, ...]:
        """The default kernels for a signature, all legal."""
        return tuple(spec for spec in self.proposals("default", arch, [signature]) if not self._check(spec))

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        """The specs of a named set for an arch of its family."""
        demand_known("preselected-name", "preselected set", [name], list(self.sets))
        chosen, facts = self.sets[name], arch_by_name(arch)
        if facts.family != chosen.family:
            raise self._wrong_family(chosen, facts)
        return (
            KernelSpec(self.op, signature, schedule, arch)
            for signature in chosen.signatures(facts)
            for schedule in chosen.schedules(signature, facts)
        )

    def _wrong_family(self, chosen: PoolSet, arch: Arch) -> RequestError:
        fitting = [pool_set.name for pool_set in self.sets.values() if pool_set.family == arch.family]
        family = self.families.get(arch.family)
        rules = (
            (rule for each in chosen.signatures(arch) for rule in family.signature_rules(each, arch)) if family else ()
        )
        reason = next(iter(rules), None)
        return RequestError(
            f"the set {chosen.name} is for {chosen.family} archs, {arch.name} is of family {arch.family}"
            + (f": {reason.message}" if reason else ""),
            rule="preselected-family",
            value=arch.name,
            remedy=f"sets for {arch.family}: {', '.join(fitting) or 'none yet'}",
        )
