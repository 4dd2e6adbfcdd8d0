"""The schema of the store: its tables, whose file it is, and the migration from an older schema to this one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

SCHEMA = 1
PATIENCE = 30.0  # seconds for another process that makes the same file
# Statements that bring a schema to the next one, by its number.
STEPS: Mapping[int, str] = {}

MAGIC = b"SQLite format 3\0"  # how every SQLite file begins
APPLICATION = 0x54574C52  # "TWLR": distinguishes our files from other people's databases

TABLES = """
CREATE TABLE kernels(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, op TEXT NOT NULL, arch TEXT NOT NULL, name TEXT NOT NULL,
  spec TEXT NOT NULL);
CREATE TABLE problems(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, op TEXT NOT NULL, fields TEXT NOT NULL);
CREATE TABLE devices(
  id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, identity TEXT NOT NULL);
CREATE TABLE contexts(
  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, method TEXT NOT NULL, versions TEXT NOT NULL);
CREATE TABLE results(
  problem INTEGER NOT NULL REFERENCES problems, device INTEGER NOT NULL REFERENCES devices, threads INTEGER NOT NULL,
  kernel INTEGER NOT NULL REFERENCES kernels, status TEXT NOT NULL, seconds REAL, spread REAL, error REAL,
  non_zero INTEGER, noise REAL, reason TEXT NOT NULL, context INTEGER NOT NULL REFERENCES contexts, date REAL NOT NULL,
  PRIMARY KEY(problem, device, threads, kernel)) WITHOUT ROWID;
CREATE INDEX results_best ON results(problem, device, threads, seconds) WHERE status = 'ok';
CREATE INDEX results_by_kernel ON results(kernel);
CREATE TABLE choices(
  problem INTEGER NOT NULL REFERENCES problems, device INTEGER NOT NULL REFERENCES devices, threads INTEGER NOT NULL,
  target TEXT NOT NULL, kernel INTEGER NOT NULL REFERENCES kernels, date REAL NOT NULL,
  PRIMARY KEY(problem, device, threads, target)) WITHOUT ROWID;
"""


class Unreadable(Exception):
    """The file is no store this version can read; the text says what it is."""

    def __init__(self, text: str, *, foreign: bool = False) -> None:
        super().__init__(text)
        self.foreign = foreign  # sound, but of another program or version


def uri(path: Path, mode: str) -> str:
    from urllib.parse import quote

    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def version_of(connection: sqlite3.Connection) -> int:
    """The schema of a store: 0 of a new file; Unreadable where the file is another program's, or newer."""
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if schema == 0 and owner == 0:
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise Unreadable("it is a database of another program", foreign=True)
        return 0
    if owner != APPLICATION:
        raise Unreadable("it is a database of another program", foreign=True)
    if schema != SCHEMA and not all(step in STEPS for step in range(schema, max(SCHEMA, schema + 1))):
        raise Unreadable(f"it has schema {schema}, this version reads {SCHEMA}", foreign=True)
    return schema


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """A store with its tables, made or migrated by whoever opens it first."""
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")  # what is reported was stored: a power cut takes nothing back
    if version_of(connection) == SCHEMA:
        return
    _write_ahead(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = version_of(connection)  # others may have been faster
        if 0 < version < SCHEMA:
            _set_aside(path, version)
        for text in [TABLES] if version == 0 else [STEPS[step] for step in range(version, SCHEMA)]:
            for statement in filter(str.strip, text.split(";")):
                connection.execute(statement)
        if version != SCHEMA:
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Log changes ahead.  SQLite does not wait for whoever switches the same new file at this moment: we do."""
    import sqlite3

    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.01)


def _set_aside(path: Path, schema: int) -> None:
    """A copy of the store as it is, beside it: whoever goes back to an older version has it.  Nobody writes now."""
    import sqlite3

    goal = path.with_name(f"{path.name}.schema-{schema}")
    part = goal.with_name(f"{goal.name}.{os.getpid()}.part")
    try:
        with closing(sqlite3.connect(uri(path, "ro"), uri=True)) as old, closing(sqlite3.connect(part)) as new:
            old.backup(new)
        part.replace(goal)
    finally:
        part.unlink(missing_ok=True)
