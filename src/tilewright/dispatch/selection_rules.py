"""Rules of an op that choose by sizes alone, where the setting `rule` asks for one.

They take precedence over records, models and estimates: who asks for a rule wants the kernels it chooses.  An op
without a rule of that name, and a problem for which the rule has none, is chosen for as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright import ops
from tilewright.dispatch.selection import Selection
from tilewright.errors import UnknownNameError, either, nearest
from tilewright.ops.base import KernelSpec, Op


def known() -> list[str]:
    """Names of all rules of all ops."""
    return sorted({name for op in ops.op_names() for name in ops.op(op).selection_rules})


def demand_rule(op: Op, name: str) -> None:
    """Refuse a rule that somebody asks of an op that does not have it; the setting `rule` is for all ops."""
    if not name or name in op.selection_rules:
        return
    having = [each for each in ops.op_names() if name in ops.op(each).selection_rules]
    if op.selection_rules:
        remedy = nearest(name, sorted(op.selection_rules))
    else:
        others = [each for each in ops.op_names() if ops.op(each).selection_rules]
        remedy = f"leave --rule out: {op.name} is selected by records, models and estimates; {either(others)} has rules"
    raise UnknownNameError(
        f"{op.name} has no rule {name!r}" + (f", {' and '.join(having)} has" if having else ""),
        rule="selection-rule",
        value=name,
        remedy=remedy,
    )


def selection(op: Op, problem: Any, served: Sequence[tuple[KernelSpec, float]], name: str) -> Selection | None:
    """What a rule chooses of the kernels that serve a problem, with their estimates; None where it has none, or no rule
    is named."""
    if not name:
        return None
    rule = op.selection_rules.get(name)
    if rule is None:
        if name not in known():
            raise UnknownNameError(
                f"the option rule is {name!r}, and no op has such a rule",
                rule="selection-rule",
                value=name,
                remedy=f"{nearest(name, known())}; empty means records, models and estimates",
            )
        return None
    best = rule([spec for spec, _ in served], problem)
    if best is None:
        return None
    seconds = next(time for spec, time in served if spec.digest == best.digest)
    return Selection(
        best, "heuristic", f"the rule {name} chose it of {len(served)} that serve the problem", seconds, by=name
    )


def with_note(chosen: Selection, name: str) -> Selection:
    """A choice that the rule somebody asked for did not make says so, where the op has the rule."""
    if name not in ops.op(chosen.spec.op).selection_rules or chosen.by == name or chosen.tier == "locked":
        return chosen
    return replace(chosen, reason=f"{chosen.reason}; the rule {name} has nothing to say of these kernels")
