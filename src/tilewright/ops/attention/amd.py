"""Attention on AMD GPUs: what is legal, and the schedules worth proposing.

loops   the floor: any size, stride, element type and feature
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.schedule import AttentionSchedule, LoopsSchedule
from tilewright.ops.attention.spec import AttentionSignature, signature_violations
from tilewright.ops.base import Violation

SCHEDULES: tuple[type[AttentionSchedule], ...] = (LoopsSchedule,)


def signature_rules(signature: AttentionSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from signature_violations(signature)


def _signature(signature: AttentionSignature, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


RULES = (_signature,)


def limits(schedule: AttentionSchedule, problem: AttentionProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    yield from ()


def generic_schedule(signature: AttentionSignature, arch: Arch) -> AttentionSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()


def schedules(pool: str, signature: AttentionSignature, arch: Arch) -> Iterator[AttentionSchedule]:
    """What the pool proposes for one signature; some of it may be illegal.

    Asked for `default`, `full` and `profiler`; the other pools are rules over these (`pools.py`).
    """
    yield LoopsSchedule()
