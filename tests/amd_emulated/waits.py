"""Waits and hazards of a built kernel, which the emulator does not model: it executes one instruction after another."""

from __future__ import annotations

from pathlib import Path

from tilewright.backends.base import backend
from tilewright.ops.base import KernelSpec


def touched_early(spec: KernelSpec, library: Path) -> str:
    """The first register that is touched before what writes it was waited for; empty where there is none."""
    for function in backend("hip").inspect(library, spec).functions:
        if function.waits is None:
            return f"{function.name} could not be disassembled, so that its waits are not known"
        if function.waits.findings:
            return f"{function.name}: {function.waits.findings[0]}"
    return ""
