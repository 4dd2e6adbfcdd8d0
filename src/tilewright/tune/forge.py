"""Building ahead of a sweep: on the host before anything is measured there, for other devices while they measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from tilewright import events
from tilewright.build import Builder
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.tune.lane import Built

CHUNK = 64  # kernels that are asked for together, so that the first ones are ready early

Heard = Callable[[events.Event], None]


class Forge:
    """Builds kernels in the order they are needed; whoever needs some waits for those."""

    def __init__(self, specs: Iterable[KernelSpec], *, jobs: int | None, heard: Heard | None = None) -> None:
        self._wanted = list({one.digest: one for one in specs}.values())
        self._jobs, self._heard = jobs, heard
        self._ready = threading.Condition()
        self._built: dict[str, Built] = {}
        self._failed: dict[str, str] = {}
        self._trouble: BaseException | None = None
        self._stop = False

    def build_all(self) -> None:
        """Now; what cannot be built is known by its reason afterwards."""
        self._work()

    def start(self) -> None:
        """In the background."""
        threading.Thread(target=self._work, daemon=True, name="forge").start()

    def stop(self) -> None:
        self._stop = True

    def _work(self) -> None:
        try:
            for first in range(0, len(self._wanted), CHUNK):
                if self._stop:
                    return
                self._chunk(self._wanted[first : first + CHUNK])
        except BaseException as error:
            with self._ready:
                self._trouble = error
                self._ready.notify_all()
            if not isinstance(error, TilewrightError):
                raise

    def _chunk(self, specs: Sequence[KernelSpec]) -> None:
        builder = Builder()
        names = {one.name: one.digest for one in specs}
        said: dict[str, str] = {}

        def hear(event: events.Event) -> None:
            if isinstance(event, events.BuildFailed) and event.name in names:
                said[names[event.name]] = event.message
            if self._heard is not None:
                self._heard(event)

        try:
            done = builder.build_many(specs, max_workers=self._jobs, on_event=hear)
            found = {digest: Built(one.spec, one.path) for digest, one in done.items() if one.spec is not None}
        except TilewrightError:
            if not said:
                raise  # nothing was even tried: no compiler, no disk
            found = {}
            for one in specs:
                artifact = None if one.digest in said else builder.find(one)
                if artifact is not None:
                    found[one.digest] = Built(one, artifact.path)
                else:
                    said.setdefault(one.digest, "it was not built")
        with self._ready:
            self._built |= found
            self._failed |= said
            self._ready.notify_all()

    def wait(self, specs: Sequence[KernelSpec]) -> tuple[list[Built], dict[str, str]]:
        """Those that are built, in the order asked, and why the others are not."""
        with self._ready:
            while not all(one.digest in self._built or one.digest in self._failed for one in specs):
                if self._trouble is not None:
                    raise self._trouble
                self._ready.wait(0.5)
            built = [self._built[one.digest] for one in specs if one.digest in self._built]
            failed = {one.digest: self._failed[one.digest] for one in specs if one.digest in self._failed}
        return built, failed
