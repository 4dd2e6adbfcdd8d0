"""The one place that says no to an attention spec.

Rules common to all targets are here; each arch family adds its own from its module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    generic_schedule     the floor
    USUAL                optional: the type of q that pools are meant for where none is named; fp32 where missing
    POOLS                optional: names of more pools it has, each with a sentence
    pool_signatures      optional, of one of these and an arch: its signatures where no axis is named
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from tilewright.arch import Arch, all_archs
from tilewright.arch import arch as arch_by_name
from tilewright.dtypes import DTYPES
from tilewright.errors import UnknownNameError, nearest
from tilewright.ops.attention import amd, cpu, nvidia
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.ops.attention.schedule import AttentionSchedule
from tilewright.ops.attention.spec import FAMILIES as KINDS
from tilewright.ops.attention.spec import HEADS, OP, WORDS, AttentionSignature, settled
from tilewright.ops.base import KernelSpec, Violation, read_spec

FAMILIES: dict[str, ModuleType] = {"cpu": cpu, "cdna": amd, "rdna": amd, "nvidia": nvidia}
SCHEDULES: tuple[type[Any], ...] = tuple(dict.fromkeys(one for each in FAMILIES.values() for one in each.SCHEDULES))

Rule = Callable[[AttentionSignature, AttentionSchedule, Arch], Iterator[Violation]]


def _known(rule: str, what: str, value: str, known: tuple[str, ...] | list[str]) -> Iterator[Violation]:
    if value not in known:
        yield Violation(rule, f"{what} {value!r} is not known", nearest(value, list(known)))


def names(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    for field, known in WORDS.items():
        yield from _known(f"{field}-name", field, getattr(signature, field), known)
    for field in ("dtype_q", "dtype_kv", "dtype_out", "dtype_aux"):
        yield from _known("dtype-name", field, getattr(signature, field), list(DTYPES))


def words(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    for field, known in schedule.words.items():
        yield from _known("schedule-name", field, getattr(schedule, field), known)


@lru_cache(maxsize=64)
def _numbers(kind: Any) -> tuple[tuple[str, int | None, str, int], ...]:
    """Field, place in it, name for people and least value of every number of a schedule."""
    found: list[tuple[str, int | None, str, int]] = []
    hints, named = get_type_hints(kind), getattr(kind, "axis_names", {})
    for one in fields(kind):
        least = 0 if one.name in kind.may_be_zero else 1
        if hints[one.name] is int:
            found.append((one.name, None, one.name, least))
        elif get_origin(hints[one.name]) is tuple and get_args(hints[one.name])[0] is int:
            axes = named.get(one.name) or tuple(map(str, range(len(get_args(hints[one.name])))))
            found.extend((one.name, place, f"{one.name}_{axis}", least) for place, axis in enumerate(axes))
    return tuple(found)


def positive(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    kind: Any = type(schedule)
    for field, place, name, least in _numbers(kind):
        value = getattr(schedule, field)
        number = value if place is None else value[place]
        if number < least:
            yield Violation("positive", f"{name} is {number}", f"use {least} or more")


def heads(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    for field in ("head_qk", "head_v"):
        if getattr(signature, field) not in HEADS:
            message = f"{field} is {getattr(signature, field)}, which kernels are not made for"
            yield Violation("kernel-heads", message, f"use {', '.join(map(str, HEADS))}; smaller heads are filled up")


def canonical(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    """What a family does not read has its default: else equal kernels would have different names."""
    usual = settled(signature)
    for one in fields(signature):
        mine, expected = getattr(signature, one.name), getattr(usual, one.name)
        if mine != expected:
            message = f"{one.name} is {mine!r}, and {signature.family} kernels of these features have none"
            yield Violation("unread", message, f"use {one.name} {expected!r}")


def serves(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.family in KINDS and signature.family not in schedule.serves:
        message = f"{schedule.pipeline} has no {signature.family} kernels"
        yield Violation("pipeline-family", message, f"it is for {', '.join(schedule.serves)}")


COMMON: tuple[Rule, ...] = (names, words, positive, heads, canonical, serves)


def check(spec: KernelSpec) -> list[Violation]:
    """Every rule the spec breaks; empty means legal."""
    arch = all_archs().get(spec.arch)
    if arch is None:
        return [Violation("arch-name", f"{spec.arch!r} is not a known arch", nearest(spec.arch, list(all_archs())))]
    family = FAMILIES.get(arch.family)
    if family is None:
        return [_no_family(arch)]
    kinds = family.SCHEDULES
    if type(spec.schedule) not in kinds:
        mine = ", ".join(one.__name__ for one in kinds)
        return [Violation("schedule-family", f"{arch.name} has no {type(spec.schedule).__name__}", f"use {mine}")]
    found = [one for rule in COMMON for one in rule(spec.signature, spec.schedule, arch)]
    if any(one.rule.endswith("-name") or one.rule == "positive" for one in found):
        return found  # the family's arithmetic would only echo these
    return found + [one for rule in family.RULES for one in rule(spec.signature, spec.schedule, arch)]


def _no_family(arch: Arch) -> Violation:
    return Violation("family", f"attention has no kernels for {arch.family} yet", "use a cpu arch")


def problem_check(problem: AttentionProblem, arch_name: str) -> list[Violation]:
    """Why no kernel of the arch could serve the problem; empty means it is legal."""
    found = problem_violations(problem)
    if found:
        return found
    arch = arch_by_name(arch_name)
    family = FAMILIES.get(arch.family)
    return [_no_family(arch)] if family is None else list(family.signature_rules(problem.signature, arch))


def supports(spec: KernelSpec, problem: AttentionProblem) -> list[Violation]:
    """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
    if spec.signature != problem.signature:
        return [Violation("signature", f"computes {spec.signature.label()}, not {problem.signature.label()}", "")]
    return list(FAMILIES[arch_by_name(spec.arch).family].limits(spec.schedule, problem))


def schedule_class(arch: str, given: Mapping[str, Any]) -> type[Any]:
    """The dataclass that a pipeline of an arch belongs to."""
    family, pipeline = FAMILIES.get(arch_by_name(arch).family), given.get("pipeline")
    by_pipeline = {name: one for one in (family.SCHEDULES if family else ()) for name in one.pipelines}
    found: type[Any] | None = by_pipeline.get(pipeline) if isinstance(pipeline, str) else None
    if found is None:
        raise UnknownNameError(
            f"{pipeline!r} is not an attention pipeline of {arch}",
            rule="pipeline-name",
            value=pipeline,
            remedy=nearest(str(pipeline), list(by_pipeline)),
        )
    return found


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    return read_spec(data, OP, AttentionSignature, schedule_class)
