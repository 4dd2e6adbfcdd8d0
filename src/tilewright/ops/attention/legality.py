"""The one place that says no to an attention spec.

Rules common to all targets are here and in `ops.rules`; each arch family adds its own from its module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    fallback_schedule     the floor
    USUAL                optional: the type of q that pools are meant for where none is named; fp32 where missing
    POOLS                optional: names of more pools it has, each with a sentence
    pool_signatures      optional, of one of these and an arch: its signatures where no axis is named
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.ops import rules
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.problem_rules import problem_violations
from tilewright.ops.attention.schedule import AttentionSchedule
from tilewright.ops.attention.spec import FAMILIES as KINDS
from tilewright.ops.attention.spec import OP, WORDS, AttentionSignature, settled
from tilewright.ops.attention_terms import HEADS
from tilewright.ops.base import KernelSpec, Violation, read_spec
from tilewright.ops.spaces import Spaces

SPACES = Spaces(OP)


def names(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    for field, known in WORDS.items():
        yield from rules.known(f"{field}-name", field, getattr(signature, field), known)
    yield from rules.known_dtypes(signature, ("dtype_q", "dtype_kv", "dtype_out", "dtype_aux"))


def heads(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    for field in ("head_dim", "head_dim_v"):
        if getattr(signature, field) not in HEADS:
            message = f"{field} is {getattr(signature, field)}, which kernels are not made for"
            yield Violation("kernel-heads", message, f"use {', '.join(map(str, HEADS))}; smaller heads are filled up")


def canonical(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    """What a family does not read has its default: else equal kernels would have different names."""
    usual = settled(signature)
    for field in fields(signature):
        mine, expected = getattr(signature, field.name), getattr(usual, field.name)
        if mine != expected:
            message = f"{field.name} is {mine!r}, and {signature.family} kernels of these features have none"
            yield Violation("unread", message, f"use {field.name} {expected!r}")


def serves(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    if signature.family in KINDS and signature.family not in schedule.serves:
        message = f"{schedule.pipeline} has no {signature.family} kernels"
        yield Violation("pipeline-family", message, f"it is for {', '.join(schedule.serves)}")


COMMON: tuple[rules.Rule, ...] = (names, rules.words, rules.positive, heads, canonical, serves)
LEGALITY = rules.Legality(OP, SPACES, SPACES.schedules, COMMON, problem_violations)
check, problem_check = LEGALITY.check, LEGALITY.problem_check


def family_of(spec: KernelSpec) -> Any:
    """The kernel family of a spec; `AttentionFamily` says what may be asked of it."""
    return SPACES[arch_by_name(spec.arch).family].family_of(spec.schedule)


def supports(spec: KernelSpec, problem: AttentionProblem) -> list[Violation]:
    """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
    if other := rules.other_signature(spec, problem):
        return other
    return list(family_of(spec).limits(spec, problem))


def schedule_class(arch: str, values: Mapping[str, Any]) -> type[Any]:
    """The dataclass that a pipeline of an arch belongs to."""
    return rules.schedule_class(OP, arch, SPACES.schedules(arch_by_name(arch).family), values.get("pipeline"))


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    return read_spec(data, OP, AttentionSignature, schedule_class)
