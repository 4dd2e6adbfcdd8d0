"""When files that choices depend on are looked at again: measurements, learned models, the lock file in force.

What this process writes counts at once (`changed`).  What others write is looked for whenever the last look is older
than SECONDS: a look takes about as long as a fifth of a selection, half of one in a program whose kernels run for
milliseconds, and sizes that change with every call would pay it every time.  Whoever waits for another process that
measures, trains or locks, and then calls, has the answer: no process of Python starts, writes and ends in so short a
time.

Most look for files that are not there, and asking for one by one takes long: an error of the file system becomes an
exception, and a program whose kernels run for milliseconds finds nothing of that in a cache.  A folder that is as it
was has the same entries (`entries`), so that one question is enough.
"""

from __future__ import annotations

import os
import time
from typing import Any

SECONDS = 0.05
# A file system's time moves in ticks: within one a folder may change twice and look the same.
_TICK_NS = 1_000_000_000

generation = 0  # raised by what this process writes


def changed() -> None:
    """This process wrote such a file."""
    global generation
    generation += 1


def entries(folder: str) -> tuple[int, int, int] | None:
    """What distinguishes two lists of a folder's entries; None where nothing does: it is not there, or is new."""
    try:
        status = os.stat(folder)  # noqa: PTH116  selections ask this
    except OSError:
        return None
    changed_ns = status.st_mtime_ns
    return (changed_ns, status.st_ino, status.st_dev) if time.time_ns() - changed_ns > _TICK_NS else None


def stamp(path: str) -> tuple[Any, ...] | None:
    """What distinguishes two states of a store of measurements, without opening it; None when it is not there."""
    state = _written(path)
    return None if state is None else (*state, *(_written(f"{path}-wal") or ()))


def _written(file: str) -> tuple[int, int, int] | None:
    """Of a file that may not be there; selections ask this, and an exception takes longer."""
    if not os.access(file, os.F_OK):
        return None
    try:
        status = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def none_of(*files: str) -> bool:
    """Whether a folder lacks these entries; a link to nothing is one, for its target may appear."""
    return not any(map(os.path.lexists, files))
