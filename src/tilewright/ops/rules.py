"""What the legality of every op shares: how a spec is asked, and the rules that hold whatever a kernel computes.

An op's `legality.py` brings what only it knows:

    LEGALITY = Legality(OP, SPACES, (names, words, positive, ...), problem_violations, Signature)
    check, problem_check = LEGALITY.check, LEGALITY.problem_check

A rule is a function of signature, schedule and arch that yields violations, so that one error can name everything
that is wrong with it.  Where one of the `...-name` rules or `positive` is broken, a family's arithmetic would only echo
it and is not asked.

Schedules have these class attributes, of which the last may be missing:

    pipelines    the values of `pipeline` it is for
    choices      field to the values it may have, where it is a word
    may_be_zero  number fields that may be 0; others are 1 or more
    axis_names   names of the elements of fields that hold tuples
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from typing import Any, get_args, get_origin

from tilewright.arch import Arch, all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.dataclass import dataclass, field_hints
from tilewright.dtypes import DTYPES
from tilewright.errors import UnknownNameError, an, nearest
from tilewright.ops.base import KernelSpec, Violation, read_spec
from tilewright.ops.spaces import Spaces
from tilewright.renames import new_values

Rule = Callable[[Any, Any, Arch], Iterable[Violation]]
Kinds = Sequence[type[Any]]  # dataclasses of schedules


def known(rule: str, what: str, value: str, among: Collection[str]) -> Iterator[Violation]:
    """A name must be one of those there are."""
    if value not in among:
        yield Violation(rule, f"{what} {value!r} is not known", nearest(value, list(among)))


def known_dtypes(signature: Any, names: Iterable[str]) -> Iterator[Violation]:
    """The fields of a signature that name element types."""
    for field in names:
        yield from known("dtype-name", field, getattr(signature, field), DTYPES)


def words(signature: Any, schedule: Any, arch: Arch) -> Iterator[Violation]:
    for field, values in schedule.choices.items():
        yield from known("schedule-name", field, getattr(schedule, field), values)


@lru_cache(maxsize=64)
def _numbers(kind: Any) -> tuple[tuple[str, int | None, str, int], ...]:
    """Field, place in it, name for people and least value of every number of a schedule."""
    numbers: list[tuple[str, int | None, str, int]] = []
    hints, named = field_hints(kind), getattr(kind, "axis_names", {})
    for field in fields(kind):
        least = 0 if field.name in kind.may_be_zero else 1
        if hints[field.name] is int:
            numbers.append((field.name, None, field.name, least))
        elif get_origin(hints[field.name]) is tuple and get_args(hints[field.name])[0] is int:
            axes = named.get(field.name) or tuple(map(str, range(len(get_args(hints[field.name])))))
            numbers.extend((field.name, place, f"{field.name}_{axis}", least) for place, axis in enumerate(axes))
    return tuple(numbers)


def positive(signature: Any, schedule: Any, arch: Arch) -> Iterator[Violation]:
    kind: Any = type(schedule)
    for field, place, name, least in _numbers(kind):
        value = getattr(schedule, field)
        number = value if place is None else value[place]
        if number < least:
            yield Violation("positive", f"{name} is {number}", f"use {least} or more")


class OnceASignature:
    """An answer about a signature on an arch, kept until another is asked about: pools have hundreds of schedules of a
    signature in a row, and a signature is long to hash."""

    def __init__(self, ask: Callable[[Any, Arch], bool]) -> None:
        self._ask = ask
        self._last: tuple[Any, str, bool] = (None, "", False)  # one object, so that threads never see half of it

    def __call__(self, signature: Any, arch: Arch) -> bool:
        known, name, answer = self._last
        if known is not signature or name != arch.name:
            answer = self._ask(signature, arch)
            self._last = signature, arch.name, answer
        return answer


class BySignature:
    """Answers about signatures on archs.  Problems of new sizes have one object a signature, which is found by its
    identity: a signature is long to hash."""

    MOST = 4096

    def __init__(self, ask: Callable[[Any, str], Any]) -> None:
        self._ask = ask
        self._known: dict[tuple[int, str], tuple[Any, Any]] = {}  # with the signatures, so that no other has their ids

    def __call__(self, signature: Any, arch: str) -> Any:
        known = self._known.get((id(signature), arch))
        if known is None:
            if len(self._known) >= self.MOST:
                self._known.clear()
            known = self._known[id(signature), arch] = signature, self._ask(signature, arch)
        return known[1]


class LegalByKey:
    """Whether schedules of a signature are legal, asked once of all that have the same key.

    `key` leaves out what no rule reads: a sweep of edge code and split-K has dozens of schedules of one shape.
    """

    def __init__(self, key: Callable[[Any], Any], violations: Rule) -> None:
        self._key, self._violations = key, violations

    def schedules(self, signature: Any, arch: Arch) -> Callable[[Any], bool]:
        """What says it of the schedules of a signature."""
        key_of, violations, known = self._key, self._violations, dict[Any, bool]()

        def is_legal(schedule: Any) -> bool:
            key = key_of(schedule)
            verdict = known.get(key)
            if verdict is None:
                broken = violations(signature, schedule, arch)
                verdict = known[key] = numbers_are_legal(schedule) and not any(True for _ in broken)
            return verdict

        return is_legal


@lru_cache(maxsize=1 << 16)
def numbers_are_legal(schedule: Any) -> bool:
    """Whether `words` and `positive`, which read nothing but the schedule, have nothing to say."""
    return not any(True for rule in (words, positive) for _ in rule(None, schedule, None))  # type: ignore[arg-type]


def accumulator(dtype: str) -> str:
    """What products of an element type are summed in."""
    return "int32" if dtype == "int8" else "fp32"


def accumulates(dtype: str, dtype_acc: str) -> Iterator[Violation]:
    expected = accumulator(dtype)
    if dtype_acc != expected:
        message = f"{dtype} accumulates in {expected}, not {dtype_acc}"
        yield Violation("accumulator", message, f"use dtype_acc {expected}")


def other_signature(spec: KernelSpec, problem: Any) -> list[Violation]:
    """What a kernel says to a problem of another signature; empty for its own."""
    if spec.signature == problem.signature:
        return []
    return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}", "")]


def schedule_class(op: str, arch: str, kinds: Kinds, name: object) -> type[Any]:
    """The one of an arch's dataclasses that a pipeline belongs to."""
    by_pipeline: dict[str, type[Any]] = {}
    old: dict[str, str] = {}
    for kind in kinds:
        names: tuple[str, ...] = getattr(kind, "pipelines", ())
        by_pipeline |= dict.fromkeys(names, kind)
        old |= new_values(kind).get("pipeline", {})
    chosen = by_pipeline.get(old.get(name, name)) if isinstance(name, str) else None
    if chosen is None:
        if name is None:
            raise UnknownNameError(
                f"no pipeline is named, and {an(op)} kernel of {arch} has one of {len(by_pipeline)}",
                rule="pipeline-name",
                value=None,
                remedy=f"give pipeline: {', '.join(by_pipeline)}",
            )
        raise UnknownNameError(
            f"{name!r} is not {an(op)} pipeline of {arch}",
            rule="pipeline-name",
            value=name,
            remedy=nearest(str(name), list(by_pipeline)),
        )
    return chosen


def _none(schedule: Any) -> bool:
    return False


def _breaks(rules: Iterable[Rule], signature: Any, schedule: Any, arch: Arch) -> bool:
    return any(True for rule in rules for _ in rule(signature, schedule, arch))


@dataclass(frozen=True)
class Legality:
    """The rules of one op: those of all families, each family's own, and what a problem must be."""

    op: str
    families: Spaces  # what the backends say, by the family of an arch
    common: Sequence[Rule]
    problem_violations: Callable[[Any], list[Violation]]
    signature: type[Any]  # the dataclass of its signatures
    of_signature: Sequence[Rule] = ()  # those of `common` that read nothing of the schedule: asked once a signature
    # The problem that last broke no rule, and its arch: a call asks about one more than once.
    _legal: list[tuple[Any, str]] = dataclasses.field(
        default_factory=lambda: [(None, "")], init=False, compare=False, repr=False
    )

    # Signature, arch and what says which of its schedules are legal: pools have hundreds of a signature in a row.
    _asked_last: list[tuple[Any, str, Callable[[Any], bool]]] = dataclasses.field(
        default_factory=lambda: [(None, "", _none)], init=False, compare=False, repr=False
    )

    def check(self, spec: KernelSpec) -> list[Violation]:
        """Every rule the spec breaks; empty means legal."""
        arch = all_archs().get(spec.arch)
        if arch is None:
            message = f"{spec.arch!r} is not a known arch"
            return [Violation("arch-name", message, nearest(spec.arch, list(all_archs())))]
        family = self.families.get(arch.family)
        if family is None:
            return [self._no_family(arch)]
        kinds = self.families.schedules(arch.family)
        if type(spec.schedule) not in kinds:
            mine = ", ".join(kind.__name__ for kind in kinds)
            return [Violation("schedule-family", f"{arch.name} has no {type(spec.schedule).__name__}", f"use {mine}")]
        violations = [violation for rule in self.common for violation in rule(spec.signature, spec.schedule, arch)]
        if any(violation.rule.endswith("-name") or violation.rule == "positive" for violation in violations):
            return violations
        return violations + [
            violation for rule in family.RULES for violation in rule(spec.signature, spec.schedule, arch)
        ]

    def is_legal(self, spec: KernelSpec) -> bool:
        """Whether `check` has nothing to say, without its sentences: pools hold a hundred thousand proposals."""
        signature, arch, test = self._asked_last[0]
        if spec.signature is not signature or spec.arch != arch:
            test = self.legal_schedules(spec.signature, spec.arch)
            self._asked_last[0] = spec.signature, spec.arch, test
        return test(spec.schedule)

    def legal_schedules(self, signature: Any, arch: str) -> Callable[[Any], bool]:
        """What says whether a schedule of a signature is legal; what does not depend on schedules is asked here.

        A design space may know quickly what its rules and those of numbers say (`legal_schedules`); the rest is asked
        of what is left.
        """
        facts = all_archs().get(arch)
        family = self.families.get(facts.family) if facts is not None else None
        if facts is None or family is None or not self._signature_is_legal(signature, facts):
            return _none
        has_schedule, others, name = self._has_schedule, self._others, facts.family
        quick = family.legal_schedules(signature, facts) if hasattr(family, "legal_schedules") else None

        def is_legal(schedule: Any) -> bool:
            if not has_schedule(name, type(schedule)):
                return False
            if quick is not None:
                if not quick(schedule):
                    return False
            elif not numbers_are_legal(schedule) or _breaks(family.RULES, signature, schedule, facts):
                return False
            return not _breaks(others, signature, schedule, facts)

        return is_legal

    @cached_property
    def _others(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.common if rule not in (*self.of_signature, words, positive))

    @cached_property
    def _has_schedule(self) -> Callable[[str, Any], bool]:
        @lru_cache(maxsize=256)
        def has(family: str, kind: Any) -> bool:
            return kind in self.families.schedules(family)

        return has

    @cached_property
    def _signature_is_legal(self) -> OnceASignature:
        return OnceASignature(
            lambda signature, arch: not any(True for rule in self.of_signature for _ in rule(signature, None, arch))
        )

    def family_of(self, spec: KernelSpec) -> Any:
        """The kernel family of a spec; the op's `family` module says what may be asked of it."""
        return self.families[arch_by_name(spec.arch).family].family_of(spec.schedule)

    def supports(self, spec: KernelSpec, problem: Any) -> list[Violation]:
        """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
        return other_signature(spec, problem) or list(
            self.families[arch_by_name(spec.arch).family].limits(spec, problem)
        )

    def schedule_class(self, arch: str, values: Mapping[str, Any]) -> type[Any]:
        """The dataclass that a pipeline of an arch belongs to."""
        kinds = self.families.schedules(arch_by_name(arch).family)
        return schedule_class(self.op, arch, kinds, values.get("pipeline"))

    def spec_from_dict(self, data: Mapping[str, Any]) -> KernelSpec:
        return read_spec(data, self.op, self.signature, self.schedule_class)

    def problem_check(self, problem: Any, arch: str) -> list[Violation]:
        """Why no kernel of the arch could serve the problem; empty means it is legal."""
        known, on = self._legal[0]
        if problem is known and arch == on:
            return []
        violations = self.problem_violations(problem) or list(self._signature_check(problem.signature, arch))
        if not violations:
            self._legal[0] = problem, arch
        return violations

    @cached_property
    def _signature_check(self) -> Callable[[Any, str], tuple[Violation, ...]]:
        """Why an arch has no kernel for a signature; kept, since every problem of it is asked."""

        @lru_cache(maxsize=4096)
        def checked(signature: Any, arch: str) -> tuple[Violation, ...]:
            facts = arch_by_name(arch)
            family = self.families.get(facts.family)
            return (self._no_family(facts),) if family is None else tuple(family.signature_rules(signature, facts))

        return BySignature(checked)

    def _no_family(self, arch: Arch) -> Violation:
        remedy = f"use an arch of {', '.join(self.families)}"
        return Violation("family", f"{self.op} has no kernels for {arch.family} yet", remedy)
