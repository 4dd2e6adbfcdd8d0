"""What is asked of a builder, and what its store answers: a process whose kernels are stored needs no more of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright import events, settings
from tilewright.backends.base import Source, Toolchain
from tilewright.build.key import KeyInputs
from tilewright.build.store import Entry, Store
from tilewright.dataclass import dataclass
from tilewright.errors import StoreError
from tilewright.ops.base import KernelSpec

OnEvent = Callable[[events.Event], None]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A built library in the store, verified when it was handed out."""

    key: str  # empty of one that a bundle brought
    path: Path  # of the library
    manifest: Mapping[str, Any]
    spec: KernelSpec | None = None  # None for a support library


@dataclass(frozen=True, slots=True)
class Request:
    """One library that is wanted: what to compile, how, and its key."""

    name: str
    source: Source
    arch: str
    toolchain: Toolchain
    inputs: KeyInputs
    key: str
    spec: KernelSpec | None
    op: str = ""  # whose kernel it is, and headers it includes; empty for a support library

    @property
    def digest(self) -> str:
        return self.key if self.spec is None else self.spec.digest

    def artifact(self, entry: Entry) -> Artifact:
        return Artifact(entry.key, entry.library, entry.manifest, self.spec)


class Run:
    """One call of a builder: what is done, and who must hear of it."""

    def __init__(self, store: Store, max_workers: int | None, on_event: OnEvent | None) -> None:
        self.store = store
        self.max_workers = max_workers
        self.on_event = on_event
        self.done: dict[str, Artifact] = {}
        self.damaged: set[str] = set()

    def emit(self, event: events.Event) -> None:
        events.emit(event)
        if self.on_event is not None:
            self.on_event(event)

    def take_stored(self, requests: Sequence[Request]) -> list[Request]:
        """Note what the store has; the rest is the answer.  A damaged entry counts as missing."""
        missing = {request.key: request for request in requests if not self.take(request)}
        if events.active() or self.on_event is not None:
            total = len({request.key for request in requests})
            jobs, reason = self.limit(list(missing.values()))
            self.emit(events.BuildPlanned(total, len(self.done), jobs, reason))
            for request in requests:
                if request.key in self.done:
                    self.emit(events.KernelBuilt(request.name, request.digest, 0.0, True))
        return list(missing.values())

    def take(self, request: Request) -> bool:
        try:
            entry = self.store.lookup(request.key)
        except StoreError as error:
            if error.rule != "store-corrupt" or settings.current().frozen:
                raise
            self.damaged.add(request.key)
            return False
        if entry is not None:
            self.done[request.key] = request.artifact(entry)
        return entry is not None

    def limit(self, missing: Sequence[Request]) -> tuple[int, str]:
        """How many compilers may run at once, and why no more."""
        if not missing:
            return 0, "nothing to build"
        from tilewright.build.jobs import job_limit

        memory = max(request.toolchain.memory_per_job(request.spec) for request in missing)
        limit = job_limit(len(missing), memory, setting=settings.current().jobs, max_workers=self.max_workers)
        return limit.jobs, limit.reason
