"""What files said when they were read, kept for the next process: a small table beside the store.

A first call reads some fifty headers and asks its compiler three questions, to learn what the process before it knew
already.  A table keeps such answers, each with the stamp of the file that it is of; one whose file has another stamp
now is not given.  Whoever writes a file changes its stamp, of which no program can set the part `st_ctime_ns`; only a
file that was written while it was read could be taken for another, so one that is younger than the clock's tick is not
kept.  Nothing relies on a table: where there is none, or one that cannot be read or written, files are read.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewright import jsontext, settings
from tilewright.digests import sha256

Stamp = tuple[int, int, int, int]

_SCHEMA = 1
_YOUNG_NS = 2_000_000_000  # clocks of network disks tick in seconds
_MOST = 4096  # answers of a table
_PACKAGE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  another checkout has other headers

_tables: dict[tuple[Path, str], Table] = {}


def stamp_of(place: str) -> Stamp | None:
    """What changes whenever a file does; None where there is none, or none that can be reached."""
    try:
        status = os.stat(place)  # noqa: PTH116  on the path of every key
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def table(name: str) -> Table:
    """The table of that name beside the store in force."""
    folder = settings.current().cache_dir
    known = _tables.get((folder, name))
    if known is None:
        known = _tables[folder, name] = Table(folder, name)
    return known


def forget() -> None:
    """Read tables again when they are next asked."""
    _tables.clear()


class Table:
    """Answers by a text, each with a stamp; an answer is some texts."""

    def __init__(self, cache_dir: Path, name: str) -> None:
        mark = sha256(_PACKAGE.encode()).hexdigest()[:16]
        self.path = cache_dir.expanduser().absolute() / "remembered" / f"{name}-{mark}.json"
        self._answers = self._read()
        self._new: dict[str, list[Any]] = {}

    def _read(self) -> dict[str, Any]:
        try:
            data = jsontext.loads(jsontext.read(self.path))
        except (OSError, ValueError):
            return {}
        answers = data.get("answers") if isinstance(data, dict) and data.get("schema") == _SCHEMA else None
        return answers if isinstance(answers, dict) else {}

    def get(self, key: str, stamp: Stamp) -> list[str] | None:
        """The answer that was kept of a file with this stamp; None where there is none."""
        known = self._answers.get(key)
        if not isinstance(known, list) or len(known) != 2 or known[0] != list(stamp):
            return None
        texts = known[1]
        return texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else None

    def put(self, key: str, stamp: Stamp, answer: Sequence[str]) -> None:
        """Keep an answer for those to come, once `save` is called."""
        if time.time_ns() - max(stamp[:2]) > _YOUNG_NS:
            self._answers[key] = self._new[key] = [list(stamp), list(answer)]

    def save(self) -> None:
        """Write what is new, beside what others wrote meanwhile; a place that cannot be written is left as it is."""
        if not self._new:
            return
        answers = {**self._read(), **self._new}
        if len(answers) > _MOST:
            answers = self._new
        self._new = {}
        if settings.current().frozen:
            return
        part = self.path.with_suffix(f".{os.urandom(8).hex()}.part")
        with suppress(OSError):
            with suppress(FileExistsError):
                self.path.parent.mkdir()  # beside a store that is there: no folder of caches is made for this alone
            try:
                part.write_text(json.dumps({"schema": _SCHEMA, "answers": answers}, separators=(",", ":")), "utf-8")
                part.replace(self.path)
            finally:
                part.unlink(missing_ok=True)
