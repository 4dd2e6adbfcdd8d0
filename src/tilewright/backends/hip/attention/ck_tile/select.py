"""How CK Tile's dispatcher chooses among kernels that serve a problem: `seqtune`, and first fit.

They know no clock: an order by sizes alone, for those who want the kernels they had there (the setting `rule`).
Elsewhere records, models and estimates choose.

    seqtune     the least of (category, rows of a block); of equal ones the first by order
    first_fit   the first by order: the smallest heads that hold the problem's, the fewest rows of a block, and of
                kernels that combine parts the one for the fewest

    category 0  the rows are one block or less, and a whole one     3  the rows are whole blocks
             1  a block of 64 rows                                  4  any other
             2  the largest block there is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.backends.hip.attention.ck_tile.schedules import CkTileAttentionSchedule
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec, SelectionRule


def _order(spec: KernelSpec) -> tuple[int, int, int, int, str]:
    s, h = spec.signature, spec.schedule
    return (s.head_dim, s.head_dim_v, h.tile[0], h.max_splits_log2, spec.name)


def _category(rows: int, m0: int, largest: int) -> int:
    if rows <= m0 and rows % m0 == 0:
        return 0
    if m0 == 64:
        return 1
    if m0 == largest:
        return 2
    return 3 if rows % m0 == 0 else 4


def _tiled(serving: Sequence[KernelSpec]) -> list[KernelSpec]:
    """Those of CK Tile, in order: the rules have nothing to say of loops."""
    return sorted((spec for spec in serving if isinstance(spec.schedule, CkTileAttentionSchedule)), key=_order)


def first_fit(serving: Sequence[KernelSpec], problem: AttentionProblem) -> KernelSpec | None:
    """The first of those that serve the problem."""
    return next(iter(_tiled(serving)), None)


def seqtune(serving: Sequence[KernelSpec], problem: AttentionProblem) -> KernelSpec | None:
    """The one whose block fits the rows best."""
    tiled = _tiled(serving)
    if not tiled:
        return None
    largest = max(spec.schedule.tile[0] for spec in tiled)
    return min(
        tiled,
        key=lambda spec: (
            _category(problem.seqlen_q, spec.schedule.tile[0], largest),
            spec.schedule.tile[0],
            _order(spec),
        ),
    )


RULES: Mapping[str, SelectionRule] = {"seqtune": seqtune, "first_fit": first_fit}
