"""The tier `model`: what learned selection says of the kernels that serve a problem.

Where no model is at hand that is one question to the file system: nothing is imported, nothing is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import settings
from tilewright.dispatch.records import machine, threads_of
from tilewright.dispatch.selection import Selection

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.dispatch.model import Verdict
    from tilewright.ops.base import KernelSpec

FOLDER = "models"  # of the cache folder, and of this package

Served = Sequence[tuple["KernelSpec", float]]  # kernels that serve a problem, with their estimates


@lru_cache(maxsize=1)
def _ships_some() -> bool:
    place = Path(__file__).with_name(FOLDER)
    return place.is_dir() and any(place.iterdir())


def stamp(cache: Path) -> tuple[int, int] | None:
    """What tells one state of a user's models from another; None where there is no folder of them."""
    try:
        status = os.stat(f"{cache}{os.sep}{FOLDER}")  # noqa: PTH116  this is on the way of every selection
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def at_hand() -> bool:
    return _ships_some() or stamp(settings.current().cache_dir) is not None


def asked() -> bool:
    """Whether there is a model to ask, and asking is wanted."""
    return settings.current().models and at_hand()


def verdict(arch: Arch, problem: Any, threads: int, served: Served) -> Verdict | None:
    """What a model predicts, or why none says anything; None where there is none to ask."""
    if len(served) < 2:
        return None
    from tilewright.dispatch import model

    found = model.at_hand()
    if not found:
        return None
    units = threads_of(arch.name, threads) or arch.compute_units or 1
    specs, estimates = [spec for spec, _ in served], [seconds for _, seconds in served]
    return model.ask(found, specs, problem, units, estimates, machine(arch.name))


def selection(served: Served, told: Verdict | None) -> Selection | None:
    """The kernel a model chooses; None where it says nothing."""
    if told is None or told.seconds is None:
        return None
    seconds = [float(one) for one in told.seconds]
    order = sorted(range(len(served)), key=seconds.__getitem__)
    best, second = order[0], order[1]
    sure = math.exp(told.sigma) - 1
    reason = f"the model {told.model} predicts it the fastest of {len(served)} kernels, give or take {sure:.0%}"
    if best in told.unseen:
        rival = served[next(one for one in order if one not in told.unseen)][0].name
        reason = f"newer than the model {told.model}, of whose choice {rival} the estimate says that it takes longer"
    if math.isfinite(seconds[second]) and seconds[best] > 0:
        slower = seconds[second] / seconds[best]
        reason += f"; the runner-up {served[second][0].name} would take {slower:.2f} times as long"
    else:
        reason += "; the estimate gives no other a hope"
    return Selection(served[best][0], "model", reason, seconds[best])


def predicted(served: Served, told: Verdict | None) -> dict[str, float]:
    """Seconds by digest, of the kernels a model says something of."""
    if told is None or told.seconds is None:
        return {}
    pairs = zip(served, told.seconds.tolist(), strict=True)
    return {spec.digest: seconds for (spec, _), seconds in pairs if math.isfinite(seconds)}


def silence(told: Verdict | None) -> str:
    """Why no model decided, where there is one that might have."""
    if told is not None:
        return told.why_not
    return "models are not asked: the setting `models` is off" if not settings.current().models and at_hand() else ""
