"""How CK Tile's dispatcher chooses among kernels that serve a problem: `seqtune`, and first fit.

They know no clock: an order by sizes alone, for those who want the kernels they had there.  Elsewhere estimates, models
and measurements choose.

    seqtune     the least of (category, rows of a block); of equal ones the first by order
    first fit   the first by order: the smallest heads that hold the problem's, then the fewest rows of a block

    category 0  the rows are one block or less, and a whole one     3  the rows are whole blocks
             1  a block of 64 rows                                  4  any other
             2  the largest block there is
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ops.attention.amd_schedules import CkTileAttentionSchedule
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec, Violation

Supports = Callable[[KernelSpec, AttentionProblem], Sequence[Violation]]


def _order(spec: KernelSpec) -> tuple[int, int, int, str]:
    s, h = spec.signature, spec.schedule
    return (s.head_qk, s.head_v, h.tile[0], spec.name)


def _category(rows: int, m0: int, largest: int) -> int:
    if rows <= m0 and rows % m0 == 0:
        return 0
    if m0 == 64:
        return 1
    if m0 == largest:
        return 2
    return 3 if rows % m0 == 0 else 4


def _serving(specs: Sequence[KernelSpec], problem: AttentionProblem, supports: Supports) -> list[KernelSpec]:
    tiled = (one for one in specs if isinstance(one.schedule, CkTileAttentionSchedule))
    return sorted((one for one in tiled if not supports(one, problem)), key=_order)


def first_fit(specs: Sequence[KernelSpec], problem: AttentionProblem, supports: Supports) -> KernelSpec | None:
    """The first that serves the problem; None where none does."""
    return next(iter(_serving(specs, problem, supports)), None)


def seqtune(specs: Sequence[KernelSpec], problem: AttentionProblem, supports: Supports) -> KernelSpec | None:
    """The one whose block fits the rows best; None where none serves the problem."""
    serving = _serving(specs, problem, supports)
    if not serving:
        return None
    largest = max(one.schedule.tile[0] for one in serving)
    return min(
        serving,
        key=lambda one: (_category(problem.rows, one.schedule.tile[0], largest), one.schedule.tile[0], _order(one)),
    )
