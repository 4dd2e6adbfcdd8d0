"""Where a sweep's time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Spent(dict[str, float]):
    """Seconds by what they went to: build, run (kernels), operands, load, verify, quiet (waiting for others)."""

    def add(self, more: Mapping[str, float]) -> None:
        for what, seconds in more.items():
            self[what] = self.get(what, 0.0) + seconds

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add({what: time.perf_counter() - start})
