"""Which tests are long proofs: those marked `proof`, and most cases of those marked `sampled(quick)`.

`make test` leaves proofs out, `make test-all` runs them, and of those marked `part(count)` so many cases.  The mark
nearest to a test counts: a module may be `sampled(0)` and some of its tests `sampled(1)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")


def mark_proofs(items: Iterable[pytest.Item]) -> None:
    """All cases but `quick` of each sampled test become proofs; those that stay are spread over all.

    Of a test with a `part`, proofs beyond it are left to `make test-proofs WHOLE=1`.
    """
    tests: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", None) or item.name
        tests.setdefault((item.nodeid.partition("[")[0], name), []).append(item)
    for cases in tests.values():
        for item in outside(cases, "sampled"):
            item.add_marker("proof")
        for item in outside(cases, "part"):
            if item.get_closest_marker("proof"):
                item.add_marker("whole")


def outside(cases: Sequence[pytest.Item], marker: str) -> set[pytest.Item]:
    """Those beyond the number that the marker says; none where there is no such marker."""
    mark = cases[0].get_closest_marker(marker)
    return set(cases) - set(spread(cases, *mark.args)) if mark else set()


def spread(cases: Sequence[T], count: int) -> list[T]:
    """So many of the cases, evenly spread, the first among them."""
    count = min(count, len(cases))
    return [cases[number * len(cases) // count] for number in range(count)]
