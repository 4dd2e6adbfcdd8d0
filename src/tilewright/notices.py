"""Who must hear that what calls depend on has changed: a library that makes calls without Python cannot look.

`changed`: options of the process, measurements or plans are others than before.  `scoped`: settings or a stream are in
force for a scope alone (`with settings.override(...)`, `with stream:`).
"""

from __future__ import annotations

from collections.abc import Callable

changed: list[Callable[[], None]] = []
scoped: list[Callable[[], None]] = []


def notify(listeners: list[Callable[[], None]]) -> None:
    for listener in listeners:
        listener()
