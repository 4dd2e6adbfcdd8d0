"""Calls made once side by side, so that the kernels they choose are built by all cores and not one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tilewright.errors import TilewrightError

AT_A_TIME = 32


def build_together(calls: Iterable[Callable[[], object]]) -> None:
    """What goes wrong here is said by the test that makes the call again."""

    def run(call: Callable[[], object]) -> None:
        with suppress(TilewrightError):
            call()

    with ThreadPoolExecutor(AT_A_TIME) as threads:
        list(threads.map(run, calls))
