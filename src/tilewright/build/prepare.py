"""What several compiles share, made once before them: a toolchain says what, here it is run.

Nothing depends on it: where it cannot be made, kernels are compiled without.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from tilewright.backends.base import Preparation, Preparing, Source, Toolchain
from tilewright.build.ninja_run import Compile, run_one
from tilewright.build.store import Store

# Longer than it takes on a busy machine; then others are at work on it no more, or never were.
PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.1


def gains(toolchain: Toolchain, source: Source) -> bool:
    """Whether a compile becomes cheaper by what its toolchain prepares; one that does not say so has only such."""
    ask = getattr(toolchain, "gains", None)
    return ask is None or bool(ask(source))


def prepare(wanted: Iterable[tuple[Toolchain, str, str]], store: Store, work: Path) -> None:
    """Make what pays for these compiles, each a toolchain, an arch and an op; who finds another at it waits."""
    groups: dict[tuple[int, str, str], list[Toolchain]] = {}
    for toolchain, arch, op in wanted:
        groups.setdefault((id(toolchain), arch, op), []).append(toolchain)
    for (_, arch, op), of_group in groups.items():
        toolchain, kernels = of_group[0], len(of_group)
        if not isinstance(toolchain, Preparing):
            continue
        try:
            todo = toolchain.preparation(arch, op, kernels)
            if todo is not None:
                _make(todo, toolchain, store, work)
        except OSError:
            continue  # no room, no permission: slower, not wrong


def _make(todo: Preparation, toolchain: Toolchain, store: Store, work: Path) -> None:
    lock = store.lock("shared-" + sha256(str(todo.output).encode()).hexdigest()[:32])
    ends = time.monotonic() + PATIENCE_SECONDS
    while not lock.acquire():
        if todo.output.exists() or time.monotonic() > ends:
            return
        time.sleep(_POLL_SECONDS)
    try:
        if todo.output.exists():
            return
        outcome = run_one(Compile(todo.command, todo.output, todo.part), work, toolchain.environment(work))
        if outcome.code == 0 and todo.part.is_file():
            descriptor = os.open(todo.part, os.O_RDONLY)
            try:
                os.fsync(descriptor)  # after the rename it must not come back empty
            finally:
                os.close(descriptor)
            todo.part.replace(todo.output)
        else:
            store.save_log(todo.output.parent.name, ".log", outcome.log)
    finally:
        with suppress(OSError):
            todo.part.unlink(missing_ok=True)
        lock.release()
