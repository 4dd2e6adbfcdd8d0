"""What a backend says of this machine to `tilewright doctor`, in a module `doctor` of its folder: `findings()`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

from tilewright.backends.base import Backend
from tilewright.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: what was looked at, whether it is fine, and what there is to say."""

    part: str
    what: str
    ok: bool | None  # None: nothing to judge
    text: str


def findings_of(owner: Backend) -> Iterator[Finding]:
    """What the backend finds: compilers, drivers, devices."""
    module = f"{type(owner).__module__.rpartition('.')[0]}.doctor"
    if find_spec(module) is not None:
        yield from import_module(module).findings()


def oneline(error: Exception) -> str:
    return " ".join(str(error).split())
