"""The tier `model`: what learned selection says of the kernels that serve a problem.

Where no model is at hand that is one question to the file system: nothing is imported, nothing is read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import packaged, settings
from tilewright.build import bundled
from tilewright.dispatch.records import machine, threads_of
from tilewright.dispatch.selection import Chosen, Selection

if TYPE_CHECKING:
    from tilewright.arch import Arch
    from tilewright.dispatch.model import Verdict
    from tilewright.ops.base import KernelSpec

FOLDER = "models"  # of the cache folder, and of this package

Served = Sequence[tuple["KernelSpec", float]]  # kernels that serve a problem, with their estimates


def same_device(known: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    """Whether a device is the one of a card: in the words that the card has."""
    return bool(known) and all(device.get(name) == value for name, value in known.items())


@lru_cache(maxsize=1)
def shipped_index() -> dict[str, dict[str, Any]]:
    """Targets and devices of the models that ship, in a list beside them: none is opened that has nothing to say."""
    index: dict[str, dict[str, Any]] = json.loads(packaged.read_bytes("tilewright.dispatch", f"{FOLDER}/index.json"))
    return index


def _ships_one(op: str, target: str, device: Mapping[str, Any]) -> bool:
    """Whether a model comes with the package that knows an op on a target and was trained on such a device."""
    return any(
        name.startswith(f"{op}-")
        and target in card["targets"]
        and any(same_device(known, device) for known in card["devices"])
        for name, card in shipped_index().items()
    )


@lru_cache(maxsize=32)
def _ships_some(of_op: str = "") -> bool:
    """Whether models come with the package, or any of an op: with its name the names of those begin."""
    place = Path(__file__).with_name(FOLDER)
    return place.is_dir() and any(name.startswith(of_op) for name in os.listdir(place))  # noqa: PTH208


def stamp(cache: Path) -> Any:
    """What distinguishes one state of a user's models from another; None where there is no folder of them."""
    place = f"{cache}{os.sep}{FOLDER}"
    try:
        status = os.stat(place)  # noqa: PTH116  selections ask this
        with os.scandir(place) as entries:  # a file that is written over leaves its folder as it was
            files = sorted((entry.name, *written_when(entry)) for entry in entries)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, *files


def written_when(file: Path | os.DirEntry[str]) -> tuple[int, int]:
    """When a file was written, and its size; zeros of a link to nothing, which is reported where it is read."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def at_hand() -> bool:
    return _ships_some() or stamp(settings.current().cache_dir) is not None


def asked() -> bool:
    """Whether there is a model to ask, and asking is wanted."""
    return settings.current().models and at_hand()


def verdict(arch: Arch, problem: Any, threads: int, served: Served) -> Verdict | None:
    """What a model predicts, or why none says anything; None where there is none to ask."""
    if len(served) < 2:
        return None
    from tilewright.dispatch import model, model_files

    models = model_files.at_hand()
    if not models:
        return None
    units = units_of(arch, threads)
    specs, estimates = [spec for spec, _ in served], [seconds for _, seconds in served]
    return model.ask(models, specs, problem, units, estimates, machine(arch.name))


_voices: dict[tuple[int, int, str], tuple[Any, ...]] = {}  # by the candidates, units and target
MOST_VOICES = 256


def voices(arch: Arch, threads: int, specs: Sequence[KernelSpec]) -> Any:
    """The models that have something to say of these kernels, whatever the problem; often none."""
    place = settings.current().cache_dir
    seen = stamp(place), bundled.generation
    device = machine(arch.name)
    models = _at_hand(place, seen, specs[0].op, arch.name, tuple(device.items()))
    units = units_of(arch, threads)
    key = (id(specs), units, arch.name)
    known = _voices.get(key)
    if known is None or known[0] is not specs or known[1] is not models or known[2] != device:
        if len(_voices) >= MOST_VOICES:
            _voices.clear()
        known = _voices[key] = specs, models, device, _vocal(models, specs, units, device)
    return known[3]


def _vocal(models: Sequence[Any], specs: Sequence[KernelSpec], units: int, device: Mapping[str, Any]) -> Any:
    if not models:
        return ()
    from tilewright.dispatch import model

    return model.voices(models, specs, units, device)


def units_of(arch: Arch, threads: int) -> int:
    return threads_of(arch.name, threads) or arch.compute_units or 1


def judged(arch: Arch, problem: Any, threads: int, known: Any, estimates: Any, served: Any) -> Verdict | None:
    """What `voices` say of all candidates at once, of which some serve the problem; None where none says anything."""
    from tilewright.dispatch import model

    return model.ask_voices(known, problem, units_of(arch, threads), estimates, served)


@lru_cache(maxsize=64)
def _at_hand(place: Path, _stamp: Any, op: str, target: str, device: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """The models for an op on a target, of a state of the folder of a user's own.

    None is opened where all would be silent, as those that ship are on another device.
    """
    ships = _ships_some(f"{op}-") and _ships_one(op, target, dict(device))
    if _stamp[0] is None and not bundled.in_force() and not ships:
        return ()
    from tilewright.dispatch import model_files

    return model_files.at_hand_for(op, target)


def selection(specs: Sequence[KernelSpec], count: int, verdict: Verdict | None) -> Selection | None:
    """The kernel a model chooses of those that serve a problem; None where it says nothing."""
    if verdict is None or verdict.seconds is None:
        return None
    seconds = verdict.seconds
    best = int(seconds.argmin())
    lowest = float(seconds[best])
    seconds[best] = math.inf
    second = int(seconds.argmin())
    seconds[best] = lowest
    after, rival = float(seconds[second]), -1
    if best in verdict.unseen:
        others = seconds.copy()
        others[list(verdict.unseen)] = math.inf
        rival = int(others.argmin())
    if not math.isfinite(after) or second == best:
        second = -1
    return by_model(verdict.model, verdict.sigma, specs, Chosen(count, best, lowest, second, after, True, rival))


def by_model(model: str, sigma: float, specs: Sequence[KernelSpec], chosen: Chosen) -> Selection:
    """A model's choice, and what is to be said of it."""
    if chosen.rival < 0:
        sure = math.exp(sigma) - 1
        reason = f"the model {model} predicts it the fastest of {chosen.served} kernels, give or take {sure:.0%}"
    else:
        rival = specs[chosen.rival].name
        reason = (
            f"lowest estimate; it is newer than the model {model}, whose choice {rival} is estimated to take longer"
        )
    if chosen.second >= 0 and chosen.seconds > 0:
        slower = chosen.second_seconds / chosen.seconds
        reason += f"; the runner-up {specs[chosen.second].name} would take {slower:.2f} times as long"
    else:
        reason += "; the estimate gives no other a hope"
    return Selection(specs[chosen.best], "model" if chosen.rival < 0 else "heuristic", reason, chosen.seconds)


def predicted(served: Served, verdict: Verdict | None) -> dict[str, float]:
    """Seconds by digest, of the kernels a model says something of."""
    if verdict is None or verdict.seconds is None:
        return {}
    places = [at for at, seconds in enumerate(verdict.seconds.tolist()) if math.isfinite(seconds)]
    return {served[at][0].digest: float(verdict.seconds[at]) for at in places if at not in verdict.unseen}


def remarks(op: str, target: str) -> tuple[str, ...]:
    """What is odd about a user's own models: damaged files, and those that take precedence over one that ships."""
    if not asked() or stamp(settings.current().cache_dir) is None:
        return ()
    from tilewright.dispatch import model_files

    return (*model_files.damaged(), *model_files.shadowing(op, target))


def silence(verdict: Verdict | None) -> str:
    """Why no model decided, where there is one that might have."""
    if verdict is not None:
        return verdict.why_not
    return "models are not used: the setting `models` is off" if not settings.current().models and at_hand() else ""
