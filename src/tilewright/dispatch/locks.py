"""Lock files: problems pinned to kernels, so that every machine and every day takes the same ones.

The setting `lock` names one.  A problem it pins gets that kernel before anything else is asked (tier `locked`), and a
pin that cannot be kept is an error.  In a frozen process a problem it does not pin is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import jsontext
from tilewright.dispatch.results import problem_digest
from tilewright.dispatch.selection import Selection
from tilewright.errors import FileError, NoKernelError, RequestError
from tilewright.ops.base import plain

if TYPE_CHECKING:
    from tilewright.ops.base import KernelSpec, Op
    from tilewright.runtime.requests import Where

SCHEMA = 1

Key = tuple[str, str, str]  # op, target, digest of the problem


@dataclass(frozen=True, slots=True)
class Pin:
    """A problem of a target, and its kernel."""

    op: str
    target: str
    problem: Mapping[str, Any]
    digest: str
    kernel: str  # its name, for people
    spec: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return self.op, self.target, problem_digest(self.op, self.problem)


def pin(op: Op, target: str, problem: Any, spec: KernelSpec) -> Pin:
    return Pin(op.name, target, plain(op.measured_as(problem)), spec.digest, spec.name, spec.to_dict())


def read(path: Path) -> dict[Key, Pin]:
    """The pins of a file; anything that is none is one clear error."""
    try:
        data = jsontext.loads(jsontext.read(path))
        if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("pins"), list):
            raise ValueError(f"it is no lock file of schema {SCHEMA}")
        found = [_pin(one) for one in data["pins"]]
    except (OSError, ValueError, TypeError) as error:
        raise FileError(
            f"the lock file {path} cannot be used: {getattr(error, 'strerror', '') or error}",
            rule="lock-file",
            value=str(path),
            remedy="write it with `tilewright lock`, or set TILEWRIGHT_LOCK to another one, or to none",
        ) from None
    return {one.key: one for one in found}


def _pin(data: Any) -> Pin:
    one = Pin(**data) if isinstance(data, dict) else None
    texts = one is not None and all(isinstance(each, str) for each in (one.op, one.target, one.digest, one.kernel))
    if one is None or not texts or not isinstance(one.problem, dict) or not isinstance(one.spec, dict):
        raise ValueError(f"{data!r:.60} is no pin")
    return one


def write(path: Path, pins: Iterable[Pin]) -> None:
    """The same pins are the same file."""
    from tilewright.codegen.folder import write_if_changed

    rows = [plain(one) for one in sorted(pins, key=lambda one: one.key)]
    lines = ",\n  ".join(json.dumps(one, sort_keys=True, default=dict) for one in rows)
    write_if_changed(path, f'{{"schema": {SCHEMA}, "pins": [\n  {lines}\n]}}\n'.encode())


def stamp(path: str) -> tuple[int, int] | None:
    """What tells one state of a lock file from another; None where none is named, or there."""
    if not path:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116  this is on the way of every selection
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)
def _read(path: str, _: tuple[int, int] | None) -> dict[Key, Pin]:
    return read(Path(path))


def selection(
    op: Op, problem: Any, target: str, path: str, *, frozen: bool, where: Where | None = None
) -> Selection | None:
    """The kernel that a lock file pins; None where it leaves the problem to others.

    Arrays that the kernel cannot take as they lie (`where`) are left to others too, but not in a frozen process.
    """
    found = _read(path, stamp(path)).get((op.name, target, problem_digest(op.name, plain(op.measured_as(problem)))))
    if found is None:
        if frozen:
            raise NoKernelError(
                f"{path} pins no kernel for {problem.describe()} on {target}, and this process is frozen",
                rule="lock-missing",
                value=problem.describe(),
                remedy="lock it too (`tilewright lock`), or unset TILEWRIGHT_FROZEN",
            )
        return None
    spec = _spec(op, found)
    if spec is None:
        raise _stale(path, found, problem, "this version has no such kernel")
    unfit = where(spec) if where is not None else ""
    if unfit:
        if frozen:
            raise _stale(path, found, problem, unfit)
        return None
    refusals = op.supports(spec, problem)
    larger = op.padded(spec, problem) if refusals else None
    if refusals and larger is None:
        raise _stale(path, found, problem, "; ".join(map(str, refusals)))
    return Selection(spec, "locked", f"pinned by {path}", float("inf"), larger)


def _spec(op: Op, found: Pin) -> KernelSpec | None:
    try:
        spec = op.spec_from_dict(dict(found.spec))
    except RequestError:  # written before a field changed
        return None
    return spec if spec.digest == found.digest and not op.check(spec) else None


def _stale(path: str, found: Pin, problem: Any, why: str) -> NoKernelError:
    return NoKernelError(
        f"{path} pins {problem.describe()} to {found.kernel}, which cannot serve it: {why}",
        rule="lock-stale",
        value=found.kernel,
        remedy="lock it anew: `tilewright lock`; `tilewright lock OP --diff` says what would change",
    )
