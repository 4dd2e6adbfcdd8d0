"""Convolution on AMD GPUs: what is legal, and the schedules worth proposing.

loops   the floor: any size, stride and element type
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import Arch
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.schedule import ConvSchedule, LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature, dtype_rules

SCHEDULES: tuple[type[ConvSchedule], ...] = (LoopsSchedule,)


def signature_rules(signature: ConvSignature, arch: Arch) -> Iterator[Violation]:
    """Why the arch has no kernel for a signature, whatever its schedule."""
    yield from dtype_rules(signature)


def _signature(signature: ConvSignature, schedule: ConvSchedule, arch: Arch) -> Iterator[Violation]:
    yield from signature_rules(signature, arch)


RULES = (_signature,)


def limits(schedule: ConvSchedule, problem: ConvProblem) -> Iterator[Violation]:
    """Problems a legal kernel was not made for; the kernel's check in C says the same."""
    yield from ()


def generic_schedule(signature: ConvSignature, arch: Arch) -> ConvSchedule:
    """The floor: serves every problem of the signature."""
    return LoopsSchedule()


def schedules(pool: str, signature: ConvSignature, arch: Arch) -> Iterator[ConvSchedule]:
    """What the pool proposes for one signature; some of it may be illegal.

    Asked for `default`, `full` and `profiler`; the other pools are rules over these (`pools.py`).
    """
    yield LoopsSchedule()
