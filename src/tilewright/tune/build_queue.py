"""Building ahead of a sweep: on the host before anything is measured there, for other devices while they measure.

`Builds` is where kernels are built; `LocalBuilds` builds them on this machine, into the kernel store of the settings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from contextvars import copy_context
from typing import Any, Protocol

from tilewright import events
from tilewright.build import Builder
from tilewright.build.diagnose import stops_all
from tilewright.dataclass import NamedTuple
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.tune.device_worker import Built

CHUNK = 64  # kernels that are asked for together, so that the first ones are ready early

Heard = Callable[[events.Event], None]


class Finished(NamedTuple):
    """Kernels by digest: what a worker takes of those that are built, and why the others are not."""

    built: Mapping[str, Any]
    failed: Mapping[str, str]


class Builds(Protocol):
    """Where kernels are built."""

    def build(self, specs: Sequence[KernelSpec], heard: Heard | None) -> Generator[Finished, None, None]:
        """Every spec in some answer, the first ones first; TilewrightError where nothing can be built at all."""


class LocalBuilds:
    """This machine's compilers."""

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs

    def build(self, specs: Sequence[KernelSpec], heard: Heard | None) -> Generator[Finished, None, None]:
        for first in range(0, len(specs), CHUNK):
            yield build_here(specs[first : first + CHUNK], self._jobs, heard)


def build_here(specs: Sequence[KernelSpec], jobs: int | None, heard: Heard | None) -> Finished:
    """Kernels into this machine's store; one that does not compile is known by its reason."""
    builder = Builder()
    names = {spec.name: spec.digest for spec in specs}
    reasons: dict[str, str] = {}

    def hear(event: events.Event) -> None:
        if isinstance(event, events.BuildFailed) and event.name in names:
            reasons[names[event.name]] = event.message
        if heard is not None:
            heard(event)

    try:
        done = builder.build_many(specs, max_workers=jobs, on_event=hear)
        return Finished(
            {digest: Built(each.spec, each.path) for digest, each in done.items() if each.spec is not None}, {}
        )
    except TilewrightError as error:
        if not reasons or stops_all(error):
            raise  # no compiler, no disk: a row would blame a kernel that may be built tomorrow
    built: dict[str, Built] = {}
    for spec in specs:
        artifact = None if spec.digest in reasons else builder.find(spec)
        if artifact is not None:
            built[spec.digest] = Built(spec, artifact.path)
        else:
            reasons.setdefault(spec.digest, "it was not built")
    return Finished(built, reasons)


class Stopped(Exception):
    """Nothing more is built."""


class BuildQueue:
    """Has kernels built in the order they are needed; whoever needs some waits for those."""

    def __init__(self, specs: Iterable[KernelSpec], builds: Builds, heard: Heard | None = None) -> None:
        self._wanted = list({spec.digest: spec for spec in specs}.values())
        self._builds, self._heard = builds, heard
        self._ready = threading.Condition()
        self._built: dict[str, Any] = {}
        self._failed: dict[str, str] = {}
        self._trouble: BaseException | None = None
        self._stop = False
        self.ready_at = 0.0  # when the first kernels were there, by the monotonic clock

    @property
    def wanted(self) -> int:
        return len(self._wanted)

    def build_all(self) -> None:
        """Now; what cannot be built is known by its reason afterwards."""
        self._work()

    def start(self) -> None:
        """In the background, under the settings in force here."""
        threading.Thread(target=copy_context().run, args=(self._work,), daemon=True, name="build queue").start()

    def stop(self) -> None:
        with self._ready:
            self._stop = True
            self._ready.notify_all()

    def _work(self) -> None:
        try:
            if not self._wanted:
                return
            with closing(self._builds.build(self._wanted, self._heard)) as answers:
                for built, failed in answers:
                    with self._ready:
                        self._built |= built
                        self._failed |= failed
                        self.ready_at = self.ready_at or time.monotonic()
                        self._ready.notify_all()
                        if self._stop:
                            return
        except BaseException as error:
            with self._ready:
                self._trouble = error
                self._ready.notify_all()
            if not isinstance(error, TilewrightError):
                raise

    def wait(self, specs: Sequence[KernelSpec]) -> tuple[list[Any], dict[str, str]]:
        """Those that are built, in the order asked, and why the others are not."""
        with self._ready:
            while not all(spec.digest in self._built or spec.digest in self._failed for spec in specs):
                if self._trouble is not None:
                    raise self._trouble
                if self._stop:
                    raise Stopped
                self._ready.wait(0.5)
            built = [self._built[spec.digest] for spec in specs if spec.digest in self._built]
            failed = {spec.digest: self._failed[spec.digest] for spec in specs if spec.digest in self._failed}
        return built, failed
