"""Recording: which problems a program runs, and how often, as a problem set that `bench --problems` reads.

    TILEWRIGHT_RECORD=mine.json program
    tilewright record --output mine.json -- program
    with tilewright.record("mine.json"): ...

A plan that is made while the setting `record` names a file has a counter, and a call adds one to it: in C on the short
way, here on the long one.  Where nothing is recorded a plan has none, and a call looks at a null pointer.  The counts
go into the file when the program ends, at the end of a `with` block, and about once a second meanwhile, so that a
process that is killed loses its last second and no more.  Any number of processes and threads may record into one file:
whoever writes holds a lock and adds to what is there.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import events, jsontext, settings
from tilewright.build.locks import FileLock
from tilewright.codegen.folder import write_if_changed  # here: a program that ends can import no more
from tilewright.errors import FileError, RequestError, TilewrightError, shown
from tilewright.ops.base import plain

if TYPE_CHECKING:
    from tilewright.runtime.requests import Request

MARK, SCHEMA = "recorded", 1
SUFFIX = ".json"
PAUSE = 1.0  # seconds between two looks at the counters
SHARE = 20  # writing takes at most one part in so many of the time
PATIENCE = 30.0  # seconds until another process's lock counts as stuck

Key = tuple[str, str]  # op, and the problem's fields as text


class Counter:
    """How often one kind of call was made, and the problems it ran each time, with how often it ran each."""

    __slots__ = ("_cell", "_lock", "_long", "problems", "written")

    def __init__(self, problems: Sequence[tuple[Key, int]]) -> None:
        self.problems = tuple(problems)
        self.written = 0  # calls that are in the file
        self._cell = ctypes.c_int64(0)  # C's own: it adds while it holds the interpreter
        self._long = 0
        self._lock = threading.Lock()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._cell)

    def add(self) -> None:
        """A call by the slow path."""
        with self._lock:
            self._long += 1

    @property
    def calls(self) -> int:
        return self._cell.value + self._long


class Recorder:
    """What one process has to say to one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._counters: dict[tuple[tuple[Key, int], ...], Counter] = {}
        self._lock = threading.RLock()
        demand_place(path)  # better said now than when the program ends
        atexit.register(self.settle)
        _at_end_of_worker(self)
        self._watch()

    def counter(self, request: Request) -> Counter:
        """The counter of calls that ask for the same problems."""
        problems = tuple(
            ((request.op, json.dumps(plain(stage.problem), sort_keys=True)), math.prod(stage.loop))
            for stage in request.stages
        )
        with self._lock:
            return self._counters.setdefault(problems, Counter(problems))

    def flush(self) -> None:
        """Add what is new to the file."""
        with self._lock:
            fresh = [(counter, counter.calls - counter.written) for counter in self._counters.values()]
            fresh = [(counter, calls) for counter, calls in fresh if calls > 0]
            if not fresh:
                return
            more: dict[Key, int] = {}
            for counter, calls in fresh:
                for key, each in counter.problems:
                    more[key] = more.get(key, 0) + calls * each
            _add(self.path, more)
            for counter, calls in fresh:
                counter.written += calls

    def settle(self) -> None:
        """The same where nobody hears an error: it is said instead."""
        try:
            self.flush()
        except TilewrightError as error:
            with suppress(TilewrightError):
                events.emit(events.Warned("record", error.message))
            warnings.warn(f"what was recorded is lost: {error.message}", RuntimeWarning, stacklevel=2)

    # -- while the program runs --------------------------------------------------------------------

    def _watch(self) -> None:
        threading.Thread(target=self._look, name="tilewright-record", daemon=True).start()

    def _look(self) -> None:
        pause = PAUSE
        while True:
            time.sleep(pause)
            start = time.monotonic()
            with suppress(TilewrightError):  # said when the program ends, if it lasts
                self.flush()
            pause = max(PAUSE, SHARE * (time.monotonic() - start))

    def forked(self) -> None:
        """In a new process: what the parent counted is the parent's to write."""
        self._lock = threading.RLock()
        for counter in self._counters.values():
            counter._lock = threading.Lock()
            counter.written = counter.calls
        _at_end_of_worker(self, anew=True)
        self._watch()


def _at_end_of_worker(recorder: Recorder, *, anew: bool = False) -> None:
    """Workers of `multiprocessing` leave without what `atexit` was given, but not without what its own list was.

    A forked one empties that list when it starts, and runs the hooks for that.
    """
    util: Any = sys.modules.get("multiprocessing.util")
    if util is None:
        return
    if anew:
        util.register_after_fork(recorder, _at_end_of_worker)
    else:
        util.Finalize(None, recorder.settle, exitpriority=0)


# -- files ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> dict[Key, int]:
    """The problems of a recording with their counts; none where there is no file, or an empty one."""
    try:
        content = jsontext.read(path)
        return rows(jsontext.loads(content)) if content.strip() else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} is no recording, and is not touched: {getattr(error, 'strerror', '') or error}",
            rule="record-file",
            value=str(path),
            remedy="record into a new file, or into one that was recorded before",
        ) from None


def rows(data: Any) -> dict[Key, int]:
    """The problems of a recording's JSON with their counts; ValueError where it is none."""
    sound = isinstance(data, dict) and set(data) == {MARK, "problems"} and isinstance(data["problems"], list)
    if not sound or data[MARK] != SCHEMA:
        raise ValueError(f'it is no {{"{MARK}": {SCHEMA}, "problems": [...]}}')
    counts: dict[Key, int] = {}
    for row in data["problems"]:
        op, problem, calls = _unwrapped(row)
        key = op, json.dumps(problem, sort_keys=True)
        counts[key] = counts.get(key, 0) + calls
    return counts


def _unwrapped(row: Any) -> tuple[str, Mapping[str, Any], int]:
    if isinstance(row, dict) and set(row) == {"op", "calls", "problem"}:
        op, calls, problem = row["op"], row["calls"], row["problem"]
        if isinstance(op, str) and type(calls) is int and calls > 0 and isinstance(problem, dict):
            return op, problem, calls
    raise ValueError(f'{row!r:.60} is no {{"op": ..., "calls": 1, "problem": {{...}}}}')


def text(rows: Mapping[Key, int]) -> str:
    """The most frequent first; the same recording is the same text."""
    ordered = sorted(rows.items(), key=lambda row: (-row[1], row[0]))
    lines = (f'{{"op": {json.dumps(op)}, "calls": {calls}, "problem": {problem}}}' for (op, problem), calls in ordered)
    return f'{{"{MARK}": {SCHEMA}, "problems": [\n' + ",\n".join(lines) + "\n]}\n"


def _add(path: Path, more: Mapping[Key, int]) -> None:
    with _held(path):
        counts = read(path)
        for key, calls in more.items():
            counts[key] = counts.get(key, 0) + calls
        write_if_changed(path, text(counts).encode())


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """The file for one process at a time."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    end = time.monotonic() + PATIENCE
    try:
        while not lock.acquire():
            if time.monotonic() > end:
                raise TimeoutError(None, f"another process holds {lock.path}")
            time.sleep(0.002)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield
    finally:
        lock.release()


def demand_place(path: Path) -> None:
    """What is there is a recording, or one can be made there that is known for a problem set."""
    if path.suffix != SUFFIX:
        raise FileError(
            f"{path} is not the name of a {SUFFIX} file",
            rule="record-file",
            value=str(path),
            remedy=f"record into a file that ends in {SUFFIX}: problem sets are known by that",
        )
    with _held(path):  # which writes beside it
        read(path)


def _unwritable(path: Path, error: OSError) -> FileError:
    return FileError(
        f"nothing can be recorded into {path}: {error.strerror or error}",
        rule="record-file",
        value=str(path),
        remedy="name a file in a folder that can be written",
    )


# -- which is in force -----------------------------------------------------------------------------------------------

_recorders: dict[str, Recorder] = {}
_lock = threading.Lock()
_blocks: list[str] = []  # of `with record(...)`, the last one in force


def recorder(word: str) -> Recorder:
    """The one recorder of a file in this process; paths that are not whole mean this folder, now."""
    known = _recorders.get(word)
    if known is None:
        with _lock:
            path = str(Path(os.path.expanduser(word)).absolute())  # noqa: PTH111  Path's own raises without a home
            known = _recorders.get(path) or Recorder(Path(path))
            _recorders[word] = _recorders[path] = known
    return known


def counter(request: Request) -> Counter | None:
    """The counter that a new plan of a request has; None where nothing is recorded."""
    word = settings.current().record
    return recorder(word).counter(request) if word else None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for recorder in set(_recorders.values()):
        recorder.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def record(path: Path | str) -> Iterator[Path]:
    """Record the problems that this process computes inside of a `with` statement, in all its threads, into a file.

    The file is a problem set for `tilewright bench OP --problems FILE`; an existing one is extended.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise RequestError(
            f"a recording is {shown(path)}", rule="record-file", value=shown(path), remedy="give the path of a file"
        )
    opened = recorder(os.fspath(path))
    mine = str(opened.path)
    with _lock:
        if not _blocks:
            _blocks.append(settings.configure().record)  # what the process has without any
        _blocks.append(mine)
        settings.configure(record=mine)  # threads do not follow what is set for a scope
    try:
        with settings.override(record=mine):
            yield opened.path
    finally:
        with _lock:
            # Of blocks of several threads the one that began last counts.
            del _blocks[len(_blocks) - 1 - _blocks[::-1].index(mine)]
            settings.configure(record=_blocks[-1])
            if len(_blocks) == 1:
                _blocks.clear()
        opened.flush()
