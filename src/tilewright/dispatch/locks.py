"""Lock files: problems and their families pinned to kernels, so that every machine and every day takes the same ones.

The setting `lock` names one.  A problem it pins gets that kernel before anything else is asked (tier `locked`), and a
pin that cannot be kept is an error.  A pin also speaks for its family: problems of the same op, target, signature and
family (`Engine.family`) that are not pinned themselves get one of the kernels pinned for the family, the one with the
lowest estimate; of equal ones the first by digest.  Nothing measured or learned on one machine has a say in that.  In a
frozen process a problem that is pinned neither way is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, jsontext
from tilewright.build import bundled
from tilewright.dataclass import dataclass
from tilewright.dispatch import bundle_parts, looks
from tilewright.dispatch.results import canonical, problem_digest
from tilewright.dispatch.selection import Selection
from tilewright.errors import FileError, NoKernelError, RequestError, counted
from tilewright.ops.base import plain
from tilewright.ops.engine import engine

if TYPE_CHECKING:
    from tilewright.ops.base import KernelSpec, Op
    from tilewright.runtime.requests import Where

SCHEMA = 2
SLOW = 1.5  # a family's kernel that takes so many times the lowest estimate is warned of
ALONE = ""  # instead of a family: the pin speaks for its problem alone

_WRITTEN = {"op", "target", "family", "problem", "digest"}  # what a file has of a pin; its kernel stands apart

Key = tuple[str, str, str]  # op, target, digest of the problem
Family = tuple[str, str, str, str]  # op, target, name of the family, the signature as text
Estimate = Callable[["KernelSpec", Any], float]  # of a kernel on a problem, in seconds


@dataclass(frozen=True, slots=True)
class Pin:
    """A problem of a target, the family it speaks for, and its kernel."""

    op: str
    target: str
    family: str
    problem: Mapping[str, Any]
    digest: str
    kernel: str  # its name, for people
    spec: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return self.op, self.target, problem_digest(self.op, self.problem)

    @property
    def family_key(self) -> Family | None:
        if self.family == ALONE:
            return None
        return self.op, self.target, self.family, canonical(self.spec.get("signature"))


@dataclass(frozen=True, slots=True)
class Lock:
    """What a lock file says; a family has a pin for each of its kernels, in the order of their digests."""

    pins: dict[Key, Pin]
    families: dict[Family, tuple[Pin, ...]] = field(default_factory=dict)


def pin(op: Op, target: str, problem: Any, spec: KernelSpec, *, alone: bool = False) -> Pin:
    family = ALONE if alone else engine(op).family(problem)
    return Pin(op.name, target, family, plain(op.measured_as(problem)), spec.digest, spec.name, spec.to_dict())


def families(pins: Iterable[Pin]) -> dict[Family, tuple[Pin, ...]]:
    """The kernels that pins have for each family."""
    by_family: dict[Family, dict[str, Pin]] = {}
    for pin in pins:
        if pin.family_key is not None:
            by_family.setdefault(pin.family_key, {}).setdefault(pin.digest, pin)
    return {
        family: tuple(kernels[digest] for digest in sorted(kernels)) for family, kernels in sorted(by_family.items())
    }


# -- files -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[Key, Pin]:
    """The pins of a file; anything that is none is one clear error."""
    try:
        return parsed(jsontext.read(path), path)
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def parsed(content: bytes, path: Path) -> dict[Key, Pin]:
    """The same of a text, which is that of `path` for people."""
    try:
        data = jsontext.loads(content)
        sound = isinstance(data, dict) and isinstance(data.get("pins"), list) and isinstance(data.get("kernels"), dict)
        if not sound or data.get("schema") != SCHEMA:
            schema = data.get("schema") if isinstance(data, dict) else None
            raise ValueError(f"it is no lock file of schema {SCHEMA}" + (f" (it has {schema})" if schema else ""))
        pins = [_pin(entry, data["kernels"]) for entry in data["pins"]]
    except (ValueError, TypeError) as error:
        raise _unusable(path, error) from None
    return {pin.key: pin for pin in pins}


def _unusable(path: Path, error: Exception) -> FileError:
    return FileError(
        f"the lock file {path} cannot be used: {getattr(error, 'strerror', '') or error}",
        rule="lock-file",
        value=str(path),
        remedy="write it with `tilewright lock`, or name another or none (--lock, --file, TILEWRIGHT_LOCK)",
    )


def _pin(data: Any, kernels: Mapping[str, Any]) -> Pin:
    kernel = kernels.get(data.get("digest", "")) if isinstance(data, dict) else None
    if not isinstance(kernel, dict):
        raise ValueError(f"{data!r:.60} is no pin with a kernel")
    if set(data) != _WRITTEN:
        raise ValueError(f"{data!r:.60} has other fields than a pin")
    pin = Pin(kernel=kernel.get("name", ""), spec=kernel.get("spec", {}), **data)
    texts = all(isinstance(each, str) for each in (pin.op, pin.target, pin.family, pin.digest, pin.kernel))
    if not texts or not isinstance(pin.problem, dict) or not isinstance(pin.spec, dict):
        raise ValueError(f"{data!r:.60} is no pin")
    return pin


def write(path: Path, pins: Iterable[Pin]) -> None:
    """The same pins are the same file."""
    from tilewright.codegen.folder import write_if_changed

    write_if_changed(path, text(pins).encode())
    looks.changed()


def text(pins: Iterable[Pin]) -> str:
    """What is in a file of these pins: a kernel is written once, and every pin and kernel is a line."""
    ordered = sorted(pins, key=lambda pin: pin.key)
    kernels = {pin.digest: {"name": pin.kernel, "spec": pin.spec} for pin in ordered}
    rows = [
        {"op": pin.op, "target": pin.target, "family": pin.family, "problem": pin.problem, "digest": pin.digest}
        for pin in ordered
    ]
    pinned = ",\n  ".join(json.dumps(row, sort_keys=True, default=dict) for row in rows)
    named = ",\n  ".join(
        f"{json.dumps(digest)}: {json.dumps(kernels[digest], sort_keys=True, default=dict)}"
        for digest in sorted(kernels)
    )
    return f'{{"schema": {SCHEMA}, "pins": [\n  {pinned}\n], "kernels": {{\n  {named}\n}}}}\n'


def stamp(path: str) -> tuple[int, int] | None:
    """What distinguishes one state of a lock file from another; None where none is named, or there."""
    if not path:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116  every selection asks this
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)
def _read(path: str, _: tuple[int, int] | None, __: int) -> Lock:
    inside = bundle_parts.lock_text(path)
    pins = read(Path(path)) if inside is None else parsed(inside, Path(path))
    return Lock(pins, families(pins.values()))


# -- choosing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Locked:
    """A lock file in force; `estimate` orders the kernels of a family."""

    path: str
    frozen: bool
    estimate: Estimate

    def selection(self, op: Op, problem: Any, target: str, where: Where | None = None) -> Selection | None:
        """The kernel that the file has for a problem; None where it leaves the problem to others.

        Arrays that the kernel cannot read in place (`where`) are left to others too, but not in a frozen process.
        """
        pin, family = self._pins(op, problem, target)
        if pin is not None:
            return self._pinned(op, problem, pin, where)
        if family:
            chosen = self._of_family(op, problem, family, where)
            if chosen is not None and where is None:
                self._warn_if_slow(op, problem, target, chosen)
            return chosen
        if self.frozen:
            name = engine(op).family(problem)
            raise NoKernelError(
                f"{self.path} pins no kernel for {problem.describe()} on {target}, nor for {name} problems of its "
                "signature, and this process is frozen",
                rule="lock-missing",
                value=problem.describe(),
                remedy="lock it too (`tilewright lock`), or do without --frozen (TILEWRIGHT_FROZEN)",
            )
        return None

    def digests(self, op: Op, problem: Any, target: str) -> frozenset[str]:
        """Of the kernels that the file names for a problem: its own, else those of its family."""
        pin, family = self._pins(op, problem, target)
        return frozenset(each.digest for each in ((pin,) if pin is not None else family))

    def _pins(self, op: Op, problem: Any, target: str) -> tuple[Pin | None, tuple[Pin, ...]]:
        """A problem's own, and those of its family."""
        lock = _read(self.path, stamp(self.path), bundled.generation)
        pin = lock.pins.get((op.name, target, problem_digest(op.name, plain(op.measured_as(problem)))))
        signature = canonical(plain(op.signature_of(problem)))
        return pin, lock.families.get((op.name, target, engine(op).family(problem), signature), ())

    def _warn_if_slow(self, op: Op, problem: Any, target: str, chosen: Selection) -> None:
        """A family's kernels were chosen for other problems of it, smaller ones perhaps."""
        serving = [
            candidate
            for candidate in op.candidates(op.signature_of(problem), target)
            if not op.supports(candidate, problem)
        ]
        lowest = min((self.estimate(spec, problem) for spec in serving), default=chosen.seconds)
        if chosen.seconds > SLOW * lowest:
            events.emit(
                events.Warned(
                    "lock-family",
                    f"{problem.describe()} gets {chosen.name}, the best that {self.path} has for its family; it is "
                    f"estimated to take {chosen.seconds / lowest:.1f} times as long as the fastest kernel there is: "
                    "lock this problem too",
                )
            )

    def _pinned(self, op: Op, problem: Any, pin: Pin, where: Where | None) -> Selection | None:
        spec, why = spec_of(op, pin), "this version has no such kernel"
        if spec is None:
            raise self._stale(pin, problem, why)
        unfit = where(spec) if where is not None else ""
        if unfit:
            if self.frozen:
                raise self._stale(pin, problem, unfit)
            return None
        refusals = op.supports(spec, problem)
        larger = op.padded(spec, problem) if refusals else None
        if refusals and larger is None:
            raise self._stale(pin, problem, "; ".join(map(str, refusals)))
        return Selection(spec, "locked", f"pinned by {self.path}", self.estimate(spec, larger or problem), larger)

    def _of_family(self, op: Op, problem: Any, family: tuple[Pin, ...], where: Where | None) -> Selection | None:
        """The lowest estimate among the kernels of the family, in padded copies where none takes it as it is."""
        serving: list[tuple[bool, float, str, KernelSpec, Any, float]] = []
        reasons: list[str] = []
        for pin in family:
            spec = spec_of(op, pin)
            if spec is None:
                raise self._stale(pin, problem, "this version has no such kernel")
            refusals = [*map(str, op.supports(spec, problem))]
            unfit = where(spec) if where is not None else ""
            larger = op.padded(spec, problem) if refusals else None
            if unfit or (refusals and larger is None):
                reasons.append(f"{pin.kernel}: {unfit or '; '.join(refusals)}")
                continue
            seconds = self.estimate(spec, larger or problem)
            serving.append((larger is not None, _comparable(seconds), spec.digest, spec, larger, seconds))
        if serving:
            _, _, _, spec, larger, seconds = min(serving, key=lambda row: row[:3])
            pinned = f"{counted(len(family), 'kernel')} that {self.path} pins for {family[0].family} problems"
            reason = f"the lowest estimate of {pinned}"
            return Selection(spec, "locked", reason, seconds, larger)
        if not self.frozen:
            return None
        raise NoKernelError(
            f"none of {counted(len(family), 'kernel')} that {self.path} pins for {family[0].family} problems serves "
            f"{problem.describe()}, and this process is frozen: {'; '.join(reasons[:3])}",
            rule="lock-missing",
            value=problem.describe(),
            remedy="lock it too (`tilewright lock`), or do without --frozen (TILEWRIGHT_FROZEN)",
        )

    def _stale(self, pin: Pin, problem: Any, why: str) -> NoKernelError:
        return NoKernelError(
            f"{self.path} pins {problem.describe()} to {pin.kernel}, which cannot serve it: {why}",
            rule="lock-stale",
            value=pin.kernel,
            remedy="lock it anew: `tilewright lock`; `tilewright lock OP --diff` says what would change",
        )


def _comparable(seconds: float) -> float:
    """Six digits: the last ones, which another C library may round otherwise, decide nothing."""
    return float(f"{seconds:.5e}")


def spec_of(op: Op, pin: Pin) -> KernelSpec | None:
    """The kernel of a pin; None where this version has no such kernel."""
    try:
        spec = op.spec_from_dict(dict(pin.spec))
    except RequestError:  # written before a field changed
        return None
    return spec if spec.digest == pin.digest and not op.check(spec) else None
