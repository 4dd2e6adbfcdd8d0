"""`tilewright.use_heuristic` and `tilewright.use_locks`: settings of selection for the whole process."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from tilewright import settings
from tilewright.dispatch import heuristics, locks
from tilewright.errors import RequestError, shown
from tilewright.ops.base import SelectionRule


class InForce:
    """Something in force for the whole process; in a `with` statement, until its end."""

    def __init__(self, put_back: Any) -> None:
        self._put_back = put_back

    def close(self) -> None:
        """Put back what was in force before; twice is once."""
        put_back, self._put_back = self._put_back, None
        if put_back is not None:
            put_back()

    def __enter__(self) -> InForce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def use_heuristic(heuristic: SelectionRule | None) -> InForce:
    """Let a function choose kernels from now on: of the kernels that serve a problem it answers one, or None.

    It is called with a list of specs and the problem, once for each new problem.  It takes precedence over rules,
    measurements, models and estimates, and a lock file over it.  `None` ends it.  A registry of your own takes one by
    itself: `Registry(heuristic=...)`.  `close()`, or the end of a `with` block, puts back what was in force before.
    """
    before = heuristics.current()
    heuristics.use(heuristic)
    return InForce(lambda: heuristics.use(before))


def use_locks(path: Path | str) -> InForce:
    """Take the kernels that a lock file pins (`tilewright lock`) from now on, as the setting `lock` does.

    The file is read at once, so that a wrong one is an error here.  `close()`, or the end of a `with` block, puts back
    what was in force before.  For some calls alone: `tw.settings.override(lock=path)`.
    """
    if not isinstance(path, (str, os.PathLike)) or not str(path):
        raise RequestError(
            f"a lock file is {shown(path)}", rule="lock-path", value=shown(path), remedy="give the path of a file"
        )
    locks.read(Path(path))
    before = settings.current().lock
    settings.configure(lock=str(path))
    return InForce(lambda: settings.configure(lock=before))
