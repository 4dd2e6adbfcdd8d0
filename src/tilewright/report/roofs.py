"""Roofs of the roofline: what the data sheet of a device says, else the most that was measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.arch import all_archs
from tilewright.report.scopes import Scope

MEMORY = "memory"  # the data sheet's bytes a second; its other words are element types


def data_sheet(scope: Scope) -> tuple[str, Mapping[str, float]]:
    """The data sheet of a scope's device and its name; both empty where arch facts have none."""
    model = str(scope.device.get("model", "")).casefold()
    known = {
        name: sheet
        for word in scope.archs
        if (arch := all_archs().get(word)) is not None
        for name, sheet in (arch.data_sheets or {}).items()
        if name.casefold() in model
    }
    if not known:
        return "", {}
    name = max(known, key=len)  # of "MI300" and "MI300X" the closer one
    return name, known[name]


def roofs(scope: Scope) -> list[dict[str, Any]]:
    """For each element type: operations and bytes a second, and where each number comes from."""
    name, sheet = data_sheet(scope)
    facts = scope.facts
    flops = np.array([fact.flops for fact in facts])[scope.problem_of] / scope.seconds
    moved = np.array([fact.bytes for fact in facts])[scope.problem_of] / scope.seconds
    dtypes = np.array([fact.dtype for fact in facts])[scope.problem_of]
    measured_bytes = _most(moved)
    lines = []
    for dtype in sorted({fact.dtype for fact in facts}):
        known = sheet.get(dtype), sheet.get(MEMORY)
        peak = known[0] or _most(flops[dtypes == dtype])
        speed = known[1] or measured_bytes
        if peak is None or speed is None:
            continue
        lines.append(
            {"dtype": dtype, "flops": peak, "bytes": speed, "flops_from": _origin(known[0], name),
             "bytes_from": _origin(known[1], name)}
        )  # fmt: skip
    return lines


def _origin(known: float | None, name: str) -> str:
    return f"the data sheet of {name}" if known else "the most that was measured"


def _most(values: Any) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if finite.size else None
