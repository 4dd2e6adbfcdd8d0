"""Whether the machine is quiet enough to measure on: what others use of the processor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

QUIET = 0.2  # share of the cores that others may use
PATIENCE = 5.0  # seconds a measurement waits for them
_LOOK = 0.05
_LEAST = 0.2  # seconds of all cores that say something: the system counts in hundredths
_FRESH = 1.0  # seconds that what was seen counts
_STAT = Path("/proc/stat")

Waiting = Callable[[float], None]


def _used() -> tuple[float, float] | None:
    """Seconds of all cores since the start, and those in which one worked; None where the system does not say."""
    try:
        words = _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:9]
        ticks = [int(word) for word in words]
    except (OSError, ValueError, IndexError):
        return None
    scale = os.sysconf("SC_CLK_TCK")
    return sum(ticks) / scale, (sum(ticks) - ticks[3] - ticks[4]) / scale


def busy() -> float | None:
    """The share of the machine's cores that is in use now, while this process waits."""
    before = _used()
    time.sleep(_LOOK)
    after = _used()
    if before is None or after is None or after[0] <= before[0]:
        return None
    return max(0.0, min(1.0, (after[1] - before[1]) / (after[0] - before[0])))


class Others:
    """What others use of the cores while we work: looked at from one measurement to the next, which costs no time."""

    def __init__(self) -> None:
        self._before: tuple[float, float, float] | None = None  # seconds of all cores, in use, in use by us
        self._share: float | None = None
        self._seen = 0.0

    def begin(self, worker: int | None) -> None:
        used = _used()
        self._before = None if used is None else (*used, _ours(worker))

    def end(self, worker: int | None) -> None:
        used, before = _used(), self._before
        if used is None or before is None or used[0] - before[0] < _LEAST:
            return
        ours = max(0.0, _ours(worker) - before[2])
        self._share = max(0.0, min(1.0, (used[1] - before[1] - ours) / (used[0] - before[0])))
        self._seen = time.monotonic()

    def settle(self, patience: float, waiting: Waiting | None = None) -> float | None:
        """Wait until others leave the machine alone; not where they did until just now, and not without patience."""
        fresh = self._share is not None and time.monotonic() - self._seen < _FRESH
        if fresh and (patience <= 0 or (self._share or 0.0) <= QUIET):
            return self._share
        return settle(patience, waiting)


def _ours(worker: int | None) -> float:
    """Seconds that this process and its worker used."""
    total = time.process_time()
    try:
        words = Path(f"/proc/{worker}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return total + (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return total


def settle(patience: float = PATIENCE, waiting: Waiting | None = None) -> float | None:
    """Wait until the machine is quiet, but not for ever; how busy it was at last.

    `waiting` hears of a wait that begins: the share of the cores that others use.
    """
    end = time.monotonic() + patience
    now = busy()
    if now is not None and now > QUIET and patience > 0 and waiting is not None:
        waiting(now)
    while now is not None and now > QUIET and time.monotonic() < end:
        time.sleep(0.2)
        now = busy()
    return now
