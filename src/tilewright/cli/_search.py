"""`bench --search`: kernels out of a pool too large to measure whole, under a budget; with what may be missing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.cli.common import say, share, show, table
from tilewright.errors import RequestError

if TYPE_CHECKING:
    from tilewright.cli._sweep import Summary
    from tilewright.dispatch.registry import Registry
    from tilewright.tune.searching import Search, SearchResult
    from tilewright.tune.sweep import Sweep, Work

BUDGET = "120s"  # where nobody says


def search_of(name: str, budget: str, seed: int | None) -> Search | None:
    """The search that options describe; None where there is none."""
    from tilewright.tune.search import demand_known
    from tilewright.tune.searching import Search, seconds_of

    if name:
        demand_known(name)
        return Search(name, seconds_of(budget or BUDGET), seed or 0)
    for option, value in (("--budget", budget), ("--seed", seed)):
        if value not in ("", None):
            raise RequestError(
                f"{option} is for searches", rule="option-without-search", value=option,
                remedy="give --search too, or leave it out",
            )  # fmt: skip
    return None


def run(
    registry: Registry, works: Sequence[tuple[Sweep, Work]], search: Search, summary: Summary
) -> list[SearchResult]:
    """Search every problem of every sweep; the time is for all together."""
    from dataclasses import replace

    from tilewright.cli._sweep import Line
    from tilewright.dispatch.results import OK
    from tilewright.tune.searching import Searching

    end, line = time.monotonic() + search.budget, Line()
    rows = 0

    def on_row(row: Any) -> None:
        nonlocal rows
        rows += 1
        if row.status != OK:
            summary.failures.append(row)
        line(f"measured {rows}, {max(0, end - time.monotonic()):.0f} s left")

    results: list[SearchResult] = []
    try:
        for index, (sweep, work) in enumerate(works):
            share = (end - time.monotonic()) / (len(works) - index)
            results += Searching(registry, sweep, replace(search, budget=share)).run(work, on_row)
    except KeyboardInterrupt:
        line.end()
        say(f"what was measured is in {works[0][0].store.path}: the same command goes on from there")
        raise
    line.end()
    return results


def print_results(results: Sequence[SearchResult], search: Search) -> None:
    """What was tried, and how far from the best it may be."""
    numbers = ("time us", "tried", "of", "known", "behind store", "luck", "left faster")
    shown = table(*numbers, "problem", fold=["problem"], right=numbers)
    for result in results:
        trace, regret = result.trace, result.regret
        shown.add_row(
            "-" if trace.fastest is None else f"{trace.fastest * 1e6:.1f}", str(trace.tried), str(trace.size),
            str(trace.known), share(regret.store), share(regret.again),
            "0" if not regret.unseen else "?" if regret.better is None else f"{regret.better:.1f}",
            result.item.problem.describe(),
        )  # fmt: skip
    if not results:
        return
    show(shown)
    say(
        f"searched by {search.name}, seed {search.seed}, {search.budget:g} s; behind store: against the fastest ever "
        "measured here; luck: how far another search of as many such kernels would end behind the fastest of these, on "
        "average; left faster: kernels not measured that are expected to be faster (known of a search by chance)"
    )
