"""The store of results where things go wrong: full disks, other schemas, two writers, rows nobody can read."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import jsontext
from tilewright.dispatch import schema
from tilewright.dispatch.results import OK, Choice, KernelRow, Result, Results, Unreadable
from tilewright.errors import MachineError, StoreError
from tilewright.tune import export

MACHINE = {"kind": "host", "model": "a CPU", "fingerprint": "f00d"}


def result(size: int, seconds: float | None = 1e-6, kernel: str = "k", **changes: Any) -> Result:
    made = Result("odd", {"size": size}, MACHINE, 2, KernelRow(kernel, f"name_{kernel}", "generic", {"op": "odd"}), OK,
                  seconds, 0.01, 0.1, 7, 0.0, method={"rounds": 3}, versions={"tilewright": "x"}, date=5.0)  # fmt: skip
    return replace(made, **changes)


def sizes(store: Results) -> list[int]:
    return sorted(one.problem["size"] for one in store.all())


def test_what_was_put_has_reached_the_disk(tmp_path: Path) -> None:
    """A row that was told survives a power cut: a transaction ends when the disk has it, in new stores and old ones."""
    for _ in range(2):
        store = Results(tmp_path / "r.db")
        store.put([result(1)])
        with store.writing() as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        store.close()


# -- asking ----------------------------------------------------------------------------------------------------


def test_the_fastest_right_kernel_is_found_among_all_others(tmp_path: Path) -> None:
    store = Results(tmp_path / "r.db")
    store.put(
        [result(1, 3e-6, "slow"), result(1, 2e-6, "b"), result(1, 2e-6, "a"), result(2, 1e-9, "other"),
         result(1, 1e-9, "there", device={**MACHINE, "fingerprint": "else"}), result(1, 1e-9, "more", threads=4),
         result(1, kernel="wrong", status="wrong", reason="far off")]
    )  # fmt: skip
    best = store.best("odd", {"size": 1}, "f00d", 2)
    assert best is not None
    assert (best.kernel.digest, best.seconds) == ("a", 2e-6), "of equal times the digest decides, everywhere the same"
    assert store.best("odd", {"size": 1}, "f00d", 2, ["sm_80"]) is None
    assert store.best("odd", {"size": 3}, "f00d", 2) is None
    choice = Choice("odd", {"size": 1}, MACHINE, 2, "generic", "slow", 5.0)
    assert [one.kernel.digest for one in store.timed(choice)] == ["a", "b", "slow"]
    assert [one.kernel.digest for one in store.timed(choice, whole=False)] == ["slow"]
    fastest = store.timed(choice)[0].seconds
    assert store.timed_field(choice) == (3, fastest)


def test_what_results_share_is_read_once(tmp_path: Path) -> None:
    store = Results(tmp_path / "r.db")
    given = [result(size, kernel=kernel) for size in (1, 2) for kernel in ("a", "b")]
    store.put(given)
    found = sorted(store.all(), key=lambda one: (one.problem["size"], one.kernel.digest))
    assert found == given
    assert found[0].problem is found[1].problem
    assert found[0].kernel is found[2].kernel
    assert found[0].method is found[3].method


@pytest.mark.parametrize(("table", "column"), [("problems", "fields"), ("kernels", "spec"), ("contexts", "method")])
def test_a_row_that_is_no_json_is_told(tmp_path: Path, table: str, column: str) -> None:
    store = Results(tmp_path / "r.db")
    store.put([result(1)])
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        other.execute(f"UPDATE {table} SET {column} = '{{cut'")
        other.commit()
    with pytest.raises(Unreadable, match=f"row 1 of {table} cannot be read"):
        list(store.all())


# -- full disks --------------------------------------------------------------------------------------------------


def test_a_full_disk_costs_the_rows_that_did_not_fit_and_no_others(tmp_path: Path) -> None:
    store = Results(tmp_path / "r.db")
    store.put([result(1)])
    connection = store._connection(write=True)
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    many = [result(size, reason="x" * 500, status="crashed", seconds=None) for size in range(2, 300)]
    with pytest.raises(StoreError) as caught:
        store.put(many)
    assert caught.value.rule == "records-full"
    assert "free some space" in caught.value.remedy
    assert sizes(store) == [1]
    assert store.check() == []
    connection.execute("PRAGMA max_page_count = 1073741823")
    assert store.put(many) == len(many), "with room again, the same goes on"
    assert sizes(store) == list(range(1, 300))


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tests.dispatch.test_results import result
from tilewright.dispatch.results import Results
from tilewright.errors import TilewrightError
from tilewright.tune import export
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
given = [result(size, reason="x" * 500, status="crashed", seconds=None) for size in range(2, 600)]
path = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    export.write(path, given) if path.suffix == ".csv" else Results(path).put(given)
except TilewrightError as error:
    print(type(error).__name__, error.rule, error.remedy)
"""


def limited(path: Path) -> str:
    """What is told where the system lets no file grow beyond 100 kB."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], cwd=Path(__file__).parents[2], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no file's size")
def test_where_the_system_takes_no_more_the_store_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    Results(path).put([result(1)])
    told = limited(path)
    assert told.startswith("StoreError records-"), told
    store = Results(path)
    assert sizes(store) == [1]
    assert store.check() == []
    store.put([result(2)])
    assert sizes(store) == [1, 2]


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system limits no file's size")
def test_a_table_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    export.write(path, [result(1)])
    before = path.read_bytes()
    assert limited(path).startswith("MachineError output-folder")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["r.csv"], "no half file is left"


def test_a_report_that_does_not_fit_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from tilewright.codegen.folder import write_if_changed

    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MachineError) as caught:
        write_if_changed(tmp_path / "p.html", b"x")
    assert "free some space" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


# -- other schemas -----------------------------------------------------------------------------------------------


def next_schema(monkeypatch: pytest.MonkeyPatch, step: str = "ALTER TABLE devices ADD COLUMN told TEXT") -> None:
    monkeypatch.setattr(schema, "SCHEMA", schema.SCHEMA + 1)
    monkeypatch.setattr(schema, "STEPS", {schema.SCHEMA - 1: step})


def version(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as found:
        return int(found.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("first", ["read", "write"])
def test_an_older_store_is_brought_forward_and_a_copy_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    path = tmp_path / "r.db"
    was = schema.SCHEMA
    Results(path).put([result(1)])
    # As a later version would have it: one column more, which writes do not fill.
    next_schema(monkeypatch, "CREATE TABLE later(x); CREATE INDEX later_x ON later(x)")
    store = Results(path)
    if first == "write":
        store.put([result(2)])
    assert sizes(store) == [1, 2][: 2 if first == "write" else 1]
    store.close()
    assert version(path) == was + 1
    (copy,) = tmp_path.glob(f"*.schema-{was}")
    assert version(copy) == was
    monkeypatch.undo()
    assert sizes(Results(copy)) == [1], "whoever goes back has what was there"
    with pytest.raises(Unreadable, match=f"schema {was + 1}, this version reads {was}"):
        list(Results(path).all())


def test_a_step_that_fails_leaves_the_older_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.db"
    was = schema.SCHEMA
    Results(path).put([result(1)])
    next_schema(monkeypatch, "CREATE TABLE later(x); DROP TABLE absent")
    with pytest.raises(StoreError):
        Results(path).put([result(2)])
    monkeypatch.undo()
    assert version(path) == was
    assert sizes(Results(path)) == [1]
    assert Results(path).check() == []


@pytest.mark.parametrize("number", [0, -3, 99])
def test_a_schema_without_a_way_here_is_refused_and_left_alone(tmp_path: Path, number: int) -> None:
    path = tmp_path / "r.db"
    store = Results(path)
    store.put([result(1)])
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {number}")
    before = path.read_bytes()
    for use in (lambda: list(Results(path).all()), lambda: Results(path).put([result(2)])):
        with pytest.raises(Unreadable, match=f"schema {number}, this version reads {schema.SCHEMA}") as caught:
            use()
        assert caught.value.foreign
    assert path.read_bytes() == before


# -- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_cut_or_changed_anywhere_is_read_or_told(tmp_path: Path, ending: str) -> None:
    """Cut at, or changed in, places drawn by a seed: one clear error, or rows."""
    import random

    from tilewright.errors import RequestError

    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    said: dict[str, Any] = {"status": "crashed", "seconds": None, "reason": 'as, "said"\nhere'}
    given = [result(size, **(said if size % 3 == 0 else {})) for size in range(40)]
    path = tmp_path / f"r{ending}"
    export.write(path, given)
    whole = path.read_bytes()
    draw = random.Random(1915)
    rules = []
    for turn in range(60):
        at = draw.randrange(len(whole))
        cut = turn % 2 == 0
        path.write_bytes(whole[:at] if cut else whole[:at] + bytes([draw.randrange(256)]) + whole[at + 1 :])
        try:
            assert len(export.read(path)) <= len(given)
        except RequestError as error:
            rules.append(error.rule)
    assert len(rules) > 20
    assert set(rules) == {"results-file"}


def test_a_file_larger_than_any_table_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.errors import RequestError

    export.write(tmp_path / "r.csv", [result(1)])
    monkeypatch.setattr(jsontext, "MOST_BYTES", 100)
    with pytest.raises(RequestError, match="larger than"):
        export.read(tmp_path / "r.csv")


def test_a_file_that_someone_only_began_to_make_is_an_empty_store(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    path.touch()
    assert list(Results(path).all()) == []
    Results(path).put([result(1)])
    assert sizes(Results(path)) == [1]


# What pages that SQLite calls sound may hold: a table, one of its columns, and a value nobody put there.
ROTTEN = (
    ("problems", "fields", "12"), ("problems", "fields", "{"), ("problems", "fields", None),
    ("problems", "op", b"\x00"), ("devices", "identity", "1.0e+300"), ("devices", "identity", '{"fingerprint": {}}'),
    ("kernels", "spec", "[]"), ("contexts", "method", '"x"'), ("contexts", "versions", "null"),
    ("results", "seconds", "soon"), ("results", "seconds", None), ("results", "seconds", -1.0),
    ("results", "date", 1e300), ("results", "status", "well"), ("results", "non_zero", "many"),
    ("results", "threads", "two"), ("results", "reason", b"\xff"),
)  # fmt: skip


@pytest.mark.parametrize(("table", "column", "value"), ROTTEN)
def test_a_row_that_nobody_wrote_so_is_no_row_and_is_said(
    tmp_path: Path, table: str, column: str, value: object
) -> None:
    store = Results(tmp_path / "r.db")
    store.put([result(1)])
    store.close()
    with contextlib.closing(sqlite3.connect(store.path)) as other, other:
        other.execute("PRAGMA writable_schema = 1")  # what a disk does knows no constraints
        other.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    with contextlib.closing(sqlite3.connect(store.path)) as other, other:
        other.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(Unreadable, match="cannot be read"):
        list(store.all())


@pytest.mark.parametrize(("table", "column", "value"), [*ROTTEN[:2], *ROTTEN[3:6], ("choices", "date", "soon")])
def test_a_choice_that_nobody_wrote_so_is_said(tmp_path: Path, table: str, column: str, value: object) -> None:
    store = Results(tmp_path / "r.db")
    store.put([result(1)], [Choice("odd", {"size": 1}, MACHINE, 2, "generic", "k", 5.0)])
    store.close()
    with contextlib.closing(sqlite3.connect(store.path)) as other, other:
        other.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(Unreadable, match="cannot be read"):
        store.choices()
