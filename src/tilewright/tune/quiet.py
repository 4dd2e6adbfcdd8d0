"""Whether the machine is quiet enough to measure on: what others use of the processor."""

from __future__ import annotations

import os
import time
from pathlib import Path

QUIET = 0.2  # share of the cores that others may use
PATIENCE = 5.0  # seconds a measurement waits for them
_LOOK = 0.05
_STAT = Path("/proc/stat")


def _used() -> tuple[float, float] | None:
    """Seconds of all cores since the start, and those in which one worked; None where the system does not say."""
    try:
        words = _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:9]
        ticks = [int(one) for one in words]
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


def settle(patience: float = PATIENCE) -> float | None:
    """Wait until the machine is quiet, but not for ever; how busy it was at last."""
    end = time.monotonic() + patience
    now = busy()
    while now is not None and now > QUIET and time.monotonic() < end:
        time.sleep(0.2)
        now = busy()
    return now
