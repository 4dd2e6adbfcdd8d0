"""The one place that says no to a spec of attention's gradients.

Rules common to all targets are here and in `ops.rules`; each arch family adds its own from its module, which has

    SCHEDULES            the dataclasses of its schedules
    RULES                functions of signature, schedule and arch that yield violations
    signature_rules      why the arch has no kernel for a signature, whatever the schedule
    limits               problems a legal kernel was not made for
    schedules            what a pool proposes for a signature
    fallback_schedule    the floor
    accumulates          which results are sums of fp32 between two stages (`family.py`)
    USUAL                optional: the element type that pools are meant for where none is named; fp32 where missing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.ops import rules
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem_rules import problem_violations
from tilewright.ops.attention_backward.schedule import AttentionBackwardSchedule
from tilewright.ops.attention_backward.spec import FAMILIES as KINDS
from tilewright.ops.attention_backward.spec import OP, WORDS, AttentionBackwardSignature, settled
from tilewright.ops.attention_terms import HEADS
from tilewright.ops.base import KernelSpec, Violation, read_spec
from tilewright.ops.spaces import Spaces

SPACES = Spaces(OP)
Signature = AttentionBackwardSignature
Schedule = AttentionBackwardSchedule


def names(signature: Signature, schedule: Schedule, arch: Arch) -> Iterator[Violation]:
    for field, known in WORDS.items():
        yield from rules.known(f"{field}-name", field, getattr(signature, field), known)
    yield from rules.known_dtypes(signature, ("dtype", "dtype_aux"))


def heads(signature: Signature, schedule: Schedule, arch: Arch) -> Iterator[Violation]:
    for field in ("head_dim", "head_dim_v"):
        if getattr(signature, field) not in HEADS:
            message = f"{field} is {getattr(signature, field)}, which kernels are not made for"
            yield Violation("kernel-heads", message, f"use {', '.join(map(str, HEADS))}; smaller heads are filled up")


def canonical(signature: Signature, schedule: Schedule, arch: Arch) -> Iterator[Violation]:
    """What a family does not read has its default: else equal kernels would have different names."""
    usual = settled(signature)
    for field in fields(signature):
        mine, expected = getattr(signature, field.name), getattr(usual, field.name)
        if mine != expected:
            message = f"{field.name} is {mine!r}, and {signature.family} kernels of these features have none"
            yield Violation("unread", message, f"use {field.name} {expected!r}")


def serves(signature: Signature, schedule: Schedule, arch: Arch) -> Iterator[Violation]:
    if signature.family in KINDS and signature.family not in schedule.serves:
        message = f"{schedule.pipeline} has no {signature.family} kernels"
        yield Violation("pipeline-family", message, f"it is for {', '.join(schedule.serves)}")


COMMON: tuple[rules.Rule, ...] = (names, rules.words, rules.positive, heads, canonical, serves)
LEGALITY = rules.Legality(OP, SPACES, SPACES.schedules, COMMON, problem_violations)
check, problem_check = LEGALITY.check, LEGALITY.problem_check


def supports(spec: KernelSpec, problem: AttentionBackwardProblem) -> list[Violation]:
    """Why this kernel cannot serve this problem; the C check of the built kernel agrees (tested)."""
    if not problem.family:
        return [Violation("stage", "a kernel computes one stage of the problem", "ask for each stage")]
    if other := rules.other_signature(spec, problem):
        return other
    return list(SPACES[arch_by_name(spec.arch).family].limits(spec, problem))


def schedule_class(arch: str, values: Mapping[str, Any]) -> type[Any]:
    """The dataclass that a pipeline of an arch belongs to."""
    return rules.schedule_class(OP, arch, SPACES.schedules(arch_by_name(arch).family), values.get("pipeline"))


def spec_from_dict(data: Mapping[str, Any]) -> KernelSpec:
    return read_spec(data, OP, AttentionBackwardSignature, schedule_class)
