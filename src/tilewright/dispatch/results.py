"""The store of measurements: one SQLite file, written by many processes of one machine at once.

A result is one kernel on one problem on one device: a time with its spread and error, or a status with the reason why
there is none.  Its key is the kernel's digest, the problem's digest, the device's fingerprint and the host's threads;
what repeats (specs, problems, devices, protocols) has tables of its own.  A choice names the kernel that dispatch
takes for a problem on a device.

Every change is one transaction: a process killed at any moment leaves whole rows.  A file of a newer schema, or one
that is no store, is never written.
"""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.dispatch import schema
from tilewright.dispatch.schema import Unreadable as Unreadable  # noqa: PLC0414  whoever reads results meets it
from tilewright.errors import StoreError

if TYPE_CHECKING:  # a program that never measured anything does not pay for it
    import sqlite3

OK = "ok"
# Why a kernel has no time on a problem.
FAILURES = ("wrong", "crashed", "timeout", "refused", "build-failed")
STATUSES = (OK, *FAILURES)
_ELSEWHERE = "set TILEWRIGHT_CACHE_DIR to another one"  # what helps where the usual place does not do
PATIENCE = 30.0  # seconds until another process's transaction counts as stuck

# The index is named: however many kernels a problem has, its fastest is the first entry.
_BY_TIME = "results r INDEXED BY results_best"
# Rows by the ids of what they name: that repeats, and is read and kept once.
_COLUMNS = """
SELECT r.problem, r.device, r.kernel, r.context, r.threads, r.status, r.seconds, r.spread, r.error, r.non_zero, r.noise,
       r.reason, r.date FROM """
_NAMED = """ JOIN problems p ON p.id = r.problem JOIN devices d ON d.id = r.device
JOIN kernels k ON k.id = r.kernel JOIN contexts c ON c.id = r.context """


def canonical(data: Any) -> str:
    """The same text for a value and for what was read back of it: nested, with tuples and None."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)


def storable(text: str) -> str:
    """A text as files can hold it: of a dying program's last words, zeros and halves of characters are replaced."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def digest_of(*texts: str) -> str:
    return sha256("\n".join(texts).encode()).hexdigest()


def problem_digest(op: str, fields: Any) -> str:
    """What a problem is known by: its op and all its fields."""
    return digest_of(op, fields if isinstance(fields, str) else canonical(fields))


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel as the store knows it; its spec may be of a version that cannot be read any more."""

    digest: str
    name: str
    arch: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """One kernel on one problem on one device."""

    op: str
    problem: Mapping[str, Any]
    device: Mapping[str, Any]  # with its fingerprint
    threads: int
    kernel: KernelRow
    status: str  # one of STATUSES
    seconds: float | None = None  # median, where the status is ok
    spread: float | None = None  # interquartile range over the median
    error: float | None = None  # largest error over its bound
    non_zero: int | None = None  # elements of the result that are not 0
    noise: float | None = None  # share of the machine that others used just before
    reason: str = ""  # why there is no time
    method: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    date: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that dispatch takes for a problem on a device."""

    op: str
    problem: Mapping[str, Any]
    device: Mapping[str, Any]
    threads: int
    target: str
    digest: str
    date: float


class Results:
    """One store.  Threads share it; a forked child opens it anew."""

    def __init__(self, path: Path, *, patience: float = PATIENCE, instead: str = _ELSEWHERE) -> None:
        self.path = path
        self._patience, self._instead = patience, instead
        self._lock = threading.RLock()
        self._open: tuple[int, sqlite3.Connection, bool] | None = None  # process, connection, writable
        self._ids: dict[tuple[str, str], int] = {}

    # -- opening ---------------------------------------------------------------------------------------

    def close(self) -> None:
        with self._lock:
            if self._open is not None and self._open[0] == os.getpid():
                self._open[1].close()
            self._open = None
            self._ids.clear()

    def _connection(self, *, write: bool) -> sqlite3.Connection | None:
        """The connection of this process; None where there is nothing to read."""
        pid = os.getpid()
        if self._open is not None and self._open[0] != pid:
            self._open = None  # of the parent: SQLite forbids its use, closing it too
            self._ids.clear()
        if self._open is not None and (self._open[2] or not write):
            return self._open[1]
        if self._open is not None:
            self.close()
        if not write and not self.path.exists():
            return None
        connection = self._connect(write)
        if connection is not None:
            self._open = (pid, connection, write)
        return connection

    def _connect(self, write: bool) -> sqlite3.Connection | None:
        import sqlite3

        if write:
            with suppress(FileExistsError):  # a file where a folder is meant: opening says so
                self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.parent.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        for ending in ("", "-wal", "-shm", "-journal"):  # reading a pipe would never end
            file = self.path.with_name(self.path.name + ending)
            if file.exists() and not file.is_file():
                raise Unreadable(f"{file.name} is no regular file", foreign=True)
        # A folder that nobody may write cannot hold what readers share: then nobody changes the file either.
        mode = "rwc" if write else "ro" if os.access(self.path.parent, os.W_OK) else "ro&immutable=1"
        place = schema.uri(self.path, mode)
        connection = sqlite3.connect(
            place, uri=True, timeout=self._patience, isolation_level=None, check_same_thread=False
        )
        try:
            if write:
                schema.prepare(connection, self.path)
            elif schema.version_of(connection) == 0:  # who began to make it was ended before there were tables
                connection.close()
                return None
            elif schema.version_of(connection) < schema.SCHEMA:
                connection.close()
                return self._connect(write=True)  # to bring it forward
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection to read with, None where there is no store; Unreadable where the file is something else."""
        with self._lock:
            try:
                yield self._connection(write=False)
            except Exception as error:
                if not _of_sqlite(error):
                    raise
                self.close()
                raise Unreadable(str(error)) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; what goes wrong leaves the store as it was and is one clear error.

        Unreadable where the file is something else, or damaged.
        """
        with self._lock:
            try:
                connection = self._connection(write=True)
                assert connection is not None
                connection.execute("BEGIN IMMEDIATE")
            except Exception as error:
                self.close()
                if _of_sqlite(error) or isinstance(error, OSError):
                    raise self._refused(error) from error
                raise
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                self._ids.clear()  # of rows that are not there now
                _roll_back(connection)
                if isinstance(error, Exception) and _of_sqlite(error):
                    raise self._refused(error) from error
                raise

    def _refused(self, error: Exception) -> StoreError | Unreadable:
        text = str(error)
        if _of_sqlite(error) and ("locked" in text or "busy" in text):
            return StoreError(
                f"the measurement records {self.path} are held by another process",
                rule="records-locked",
                value=str(self.path),
                remedy="wait for it, or end it, and try again; nothing was written",
            )
        if isinstance(error, UnicodeDecodeError) or (
            _of_sqlite(error) and ("not a database" in text or "malformed" in text)
        ):
            return Unreadable(text)
        if _of_sqlite(error) and "full" in text:
            return StoreError(
                f"there is no room for the measurement records {self.path}: {text}",
                rule="records-full",
                value=str(self.path),
                remedy="free some space, and give the same command again: what was finished is kept",
            )
        return StoreError(
            f"the measurement records {self.path} cannot be written: {getattr(error, 'strerror', '') or text}",
            rule="records-unwritable",
            value=str(self.path),
            remedy=f"fix the folder, or {self._instead}",
        )

    def demand_writable(self) -> None:
        """Say now what would keep results from being stored later; the store is there afterwards."""
        with self.writing():
            pass

    # -- writing ---------------------------------------------------------------------------------------

    def put(self, results: Iterable[Result], choices: Iterable[Choice] = (), *, newest: bool = False) -> int:
        """Add results and choices, each in the place of one with the same key; with `newest` only of an older one.

        The answer counts the results that were taken.  A choice's kernel must have a result, here or in the store.
        """
        with self.writing() as connection:
            guard = " WHERE excluded.date > results.date" if newest else ""
            taken = 0
            for result in results:
                key = (self._problem(connection, result.op, result.problem), self._device(connection, result.device),
                       result.threads, self._kernel(connection, result.op, result.kernel))  # fmt: skip
                context = self._context(connection, result.method, result.versions)
                values = (result.status, result.seconds, result.spread, result.error, result.non_zero, result.noise,
                          storable(result.reason), context, result.date)  # fmt: skip
                before = connection.total_changes
                connection.execute(
                    "INSERT INTO results VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET "
                    "status=excluded.status,seconds=excluded.seconds,spread=excluded.spread,error=excluded.error,"
                    "non_zero=excluded.non_zero,noise=excluded.noise,reason=excluded.reason,context=excluded.context,date=excluded.date"
                    + guard,
                    key + values,
                )
                taken += connection.total_changes > before
            self._choose(connection, choices, newest)
        return taken

    def _choose(self, connection: sqlite3.Connection, choices: Iterable[Choice], newest: bool) -> None:
        guard = " WHERE excluded.date > choices.date" if newest else ""
        for choice in choices:
            kernel = self._known(connection, "kernels", "digest", choice.digest)
            if kernel is None:
                raise StoreError(
                    f"the choice of {choice.digest[:12]} names a kernel that was not measured",
                    rule="record-choice",
                    value=choice.digest,
                    remedy="give its results too",
                )
            row = (self._problem(connection, choice.op, choice.problem), self._device(connection, choice.device),
                   choice.threads,
                   choice.target, kernel, choice.date)  # fmt: skip
            connection.execute(
                "INSERT INTO choices VALUES(?,?,?,?,?,?) ON CONFLICT DO UPDATE SET kernel=excluded.kernel,"
                f"date=excluded.date{guard}",
                row,
            )

    def _known(self, connection: sqlite3.Connection, table: str, column: str, value: str) -> int | None:
        known = self._ids.get((table, value))
        if known is None:
            row = connection.execute(f"SELECT id FROM {table} WHERE {column} = ?", (value,)).fetchone()
            if row is None:
                return None
            known = self._ids[table, value] = int(row[0])
        return known

    def _row(self, connection: sqlite3.Connection, table: str, column: str, value: str, rest: Sequence[Any]) -> int:
        """The id of a row by what it is known by; it is added where it is not there."""
        known = self._known(connection, table, column, value)
        if known is None:
            marks = ",".join("?" for _ in range(len(rest) + 2))
            cursor = connection.execute(f"INSERT INTO {table} VALUES({marks})", (None, value, *rest))
            known = self._ids[table, value] = int(cursor.lastrowid or 0)
        return known

    def _kernel(self, connection: sqlite3.Connection, op: str, kernel: KernelRow) -> int:
        known = self._known(connection, "kernels", "digest", kernel.digest)  # asked first: a spec is a long text
        if known is not None:
            return known
        return self._row(
            connection, "kernels", "digest", kernel.digest, (op, kernel.arch, kernel.name, canonical(kernel.spec))
        )

    def _problem(self, connection: sqlite3.Connection, op: str, fields: Mapping[str, Any]) -> int:
        text = canonical(fields)
        return self._row(connection, "problems", "digest", problem_digest(op, text), (op, text))

    def _device(self, connection: sqlite3.Connection, device: Mapping[str, Any]) -> int:
        return self._row(connection, "devices", "fingerprint", str(device.get("fingerprint", "")), (canonical(device),))

    def _context(self, connection: sqlite3.Connection, method: Mapping[str, Any], versions: Mapping[str, str]) -> int:
        texts = canonical(method), canonical(versions)
        return self._row(connection, "contexts", "digest", digest_of(*texts), texts)

    def forget_choices(self, which: Iterable[Choice]) -> int:
        """Remove choices and the results of their problems on their devices; the answer counts the choices."""
        gone = 0
        with self.writing() as connection:
            for choice in which:
                problem = self._known(connection, "problems", "digest", problem_digest(choice.op, choice.problem))
                place = self._known(connection, "devices", "fingerprint", str(choice.device.get("fingerprint", "")))
                key = (problem, place, choice.threads)
                gone += connection.execute(
                    "DELETE FROM choices WHERE problem=? AND device=? AND threads=? AND target=?", (*key, choice.target)
                ).rowcount
                left = connection.execute(
                    "SELECT 1 FROM choices WHERE problem=? AND device=? AND threads=?", key
                ).fetchone()
                if left is None:
                    connection.execute("DELETE FROM results WHERE problem=? AND device=? AND threads=?", key)
        return gone

    # -- asking ----------------------------------------------------------------------------------------

    def count(self) -> int:
        with self.reading() as connection:
            return 0 if connection is None else int(connection.execute("SELECT count(*) FROM results").fetchone()[0])

    def best(
        self, op: str, fields: Mapping[str, Any], fingerprint: str, threads: int, archs: Sequence[str] = ()
    ) -> Result | None:
        """The fastest right kernel of a problem on a device, of one of the archs where some are named."""
        where = (
            " WHERE p.digest = ? AND d.fingerprint = ? AND r.threads = ? AND r.status = 'ok'"
            + (f" AND k.arch IN ({','.join('?' for _ in archs)})" if archs else "")
            + " ORDER BY r.seconds, k.digest LIMIT 1"
        )
        return next(self._read(_BY_TIME, where, [problem_digest(op, fields), fingerprint, threads, *archs]), None)

    def of_problem(self, op: str, fields: Mapping[str, Any]) -> list[Result]:
        """All that is known of a problem, the fastest first."""
        return list(self.all(" WHERE p.digest = ? ORDER BY r.seconds IS NULL, r.seconds", [problem_digest(op, fields)]))

    def timed(self, choice: Choice, *, whole: bool = True) -> list[Result]:
        """The right kernels of a choice's problem on its device, the fastest first; not `whole`, the chosen one."""
        where, values = _of_choice(choice)
        if not whole:
            where, values = f"{where} AND k.digest = ?", [*values, choice.digest]
        return list(self.all(f"{where} ORDER BY r.seconds, k.digest", values))

    def timed_field(self, choice: Choice) -> tuple[int, float]:
        """How many right kernels a choice was made from, and the time of the fastest; infinite where there is none."""
        where, values = _of_choice(choice)
        joins = "JOIN problems p ON p.id = r.problem JOIN devices d ON d.id = r.device"
        query = f"SELECT count(*), min(r.seconds) FROM {_BY_TIME} {joins}"
        with self.reading() as connection:
            if connection is None:
                return 0, math.inf
            count, fastest = connection.execute(query + where, tuple(values)).fetchone()
        return int(count), math.inf if fastest is None else float(fastest)

    def measured(self, fingerprint: str, threads: int, problem: str) -> dict[str, tuple[str, str]]:
        """Which kernels have a result for a problem (by digest) on a device: digest to status and method as text."""
        with self.reading() as connection:
            if connection is None:
                return {}
            rows = connection.execute(
                "SELECT k.digest, r.status, c.method FROM results r "
                "JOIN problems p ON p.id = r.problem JOIN devices d ON d.id = r.device "
                "JOIN kernels k ON k.id = r.kernel JOIN contexts c ON c.id = r.context "
                "WHERE p.digest = ? AND d.fingerprint = ? AND r.threads = ?",
                (problem, fingerprint, threads),
            ).fetchall()
        return {digest: (status, method) for digest, status, method in rows}

    def all(self, where: str = "", values: Sequence[Any] = ()) -> Iterator[Result]:
        """Every result, or those of a WHERE clause over p, d, r, k, c; rows are read in one consistent state.

        Results of the same problem, device, kernel or protocol share its mapping: nobody may change it.
        """
        return self._read("results r", where, values)

    def _read(self, source: str, where: str, values: Sequence[Any]) -> Iterator[Result]:
        with self.reading() as connection:
            if connection is None:
                return iter(())
            with _one_state(connection):
                rows = connection.execute(_COLUMNS + source + _NAMED + where, tuple(values)).fetchall()
                named = _named(connection, rows)
        return (_assembled(row, named) for row in rows)

    def choices(self, where: str = "", values: Sequence[Any] = ()) -> list[Choice]:
        """Every choice, or those of a WHERE clause over p, d, h, k."""
        query = (
            "SELECT p.op, p.fields, d.identity, h.threads, h.target, k.digest, h.date FROM choices h "
            "JOIN problems p ON p.id = h.problem JOIN devices d ON d.id = h.device JOIN kernels k ON k.id = h.kernel "
        )
        with self.reading() as connection:
            rows = [] if connection is None else connection.execute(query + where, tuple(values)).fetchall()
        return [_choice(row) for row in rows]

    def has_choices(self) -> bool:
        with self.reading() as connection:
            return connection is not None and connection.execute("SELECT 1 FROM choices LIMIT 1").fetchone() is not None

    def check(self) -> list[str]:
        """What SQLite finds wrong with the file; nothing where it is sound."""
        with self.reading() as connection:
            if connection is None:
                return []
            messages = [str(row[0]) for row in connection.execute("PRAGMA quick_check(10)")]
        return [] if messages == ["ok"] else messages


def _roll_back(connection: sqlite3.Connection) -> None:
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except Exception as error:  # a damaged file cannot even do that; the connection goes with the error
        if not _of_sqlite(error):
            raise


def _of_sqlite(error: Exception) -> bool:
    """Whether SQLite raised it; asked without importing it.  Of a damaged file its very words may be unreadable."""
    return type(error).__module__ == "sqlite3" or isinstance(error, UnicodeDecodeError)


def _of_choice(choice: Choice) -> tuple[str, list[Any]]:
    """Results with a time of a choice's problem, device and threads."""
    return (
        " WHERE p.digest = ? AND d.fingerprint = ? AND r.threads = ? AND r.status = 'ok'",
        [problem_digest(choice.op, choice.problem), str(choice.device.get("fingerprint", "")), choice.threads],
    )


@contextmanager
def _one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """Several questions answered from one state of the store, whatever others write meanwhile."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


_Named = dict[str, dict[int, tuple[Any, ...]]]  # by table and id


def _named(connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> _Named:
    """What rows name by id, each read once."""
    columns = {"problems": "op, fields", "devices": "identity", "kernels": "digest, name, arch, spec",
               "contexts": "method, versions"}  # fmt: skip
    named: _Named = {}
    for index, (table, names) in enumerate(columns.items()):
        named[table] = {}
        for number in {row[index] for row in rows}:
            texts = connection.execute(f"SELECT {names} FROM {table} WHERE id = ?", (number,)).fetchone()
            try:
                named[table][number] = _READ[table](*texts)
            except (TypeError, ValueError) as error:
                raise Unreadable(f"row {number} of {table} cannot be read: {error}") from None
    return named


# -- rows as they were written ---------------------------------------------------------------------------------
# SQLite finds pages that are damaged, not what they hold: bytes that went bad, or that somebody else wrote.


def _object(text: Any) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"{str(text)[:40]!r} is no object")
    return data


def _word(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{str(value)[:40]!r} is no text")
    return value


def _device(text: Any) -> dict[str, Any]:
    device = _object(text)
    _word(device.get("fingerprint", ""))
    return device


def _kernel_row(digest: Any, name: Any, arch: Any, spec: Any) -> KernelRow:
    return KernelRow(_word(digest), _word(name), _word(arch), _object(spec))


_READ: dict[str, Callable[..., tuple[Any, ...]]] = {
    "problems": lambda op, fields: (_word(op), _object(fields)),
    "devices": lambda identity: (_device(identity),),
    "kernels": lambda *texts: (_kernel_row(*texts),),
    "contexts": lambda method, versions: (_object(method), _object(versions)),
}
_LATEST = 1e11  # seconds since 1970: more is no date
_NUMBERS = (float, type(None))


def _sound(row: Sequence[Any]) -> bool:
    """Whether a result's own columns, threads to date, hold what was put there."""
    threads, status, seconds, spread, error, non_zero, noise, reason, date = row
    return (
        type(threads) is int and status in STATUSES and type(seconds) in _NUMBERS and (status != OK or timed(seconds))
        and type(spread) in _NUMBERS and type(error) in _NUMBERS and type(noise) in _NUMBERS
        and (non_zero is None or type(non_zero) is int) and type(reason) is str and dated(date)
    )  # fmt: skip


def timed(seconds: float | None) -> bool:
    """Whether it is the time of a kernel; what is none must not enter a store."""
    return seconds is not None and 0 < seconds < _LATEST


def dated(date: Any) -> bool:
    return type(date) is float and abs(date) < _LATEST


def _choice(row: Sequence[Any]) -> Choice:
    op, fields, device, threads, target, digest, date = row
    try:
        if type(threads) is not int or not dated(date):
            raise ValueError(f"{str(threads)[:40]!r} threads at {str(date)[:40]!r}")
        return Choice(_word(op), _object(fields), _device(device), threads, _word(target), _word(digest), date)
    except (TypeError, ValueError) as error:
        raise Unreadable(f"a row of choices cannot be read: {error}") from None


def _assembled(row: Sequence[Any], named: _Named) -> Result:
    problem, device, kernel, context, *own = row
    if not _sound(own):
        raise Unreadable(f"a row of results cannot be read: {', '.join(str(value)[:40] for value in own)}")
    threads, status, seconds, spread, error, non_zero, noise, reason, date = own
    op, fields = named["problems"][problem]
    (identity,), (known,) = named["devices"][device], named["kernels"][kernel]
    method, versions = named["contexts"][context]
    return Result(
        op, fields, identity, threads, known, status, seconds, spread, error, non_zero, noise, reason, method, versions,
        date,
    )  # fmt: skip
