"""`tilewright records`: listed, forgotten, carried to another machine."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import ops, settings
from tilewright.cli.main import build_app
from tilewright.dispatch.records import Record, Records, Timing, records
from tilewright.dispatch.results import Results, Unreadable
from tilewright.ops.base import plain

GEMM = ops.op("gemm")


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["records", *words])


def listed() -> list[dict[str, Any]]:
    done = shell("ls", "--json")
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return found


def record(size: int, **changes: Any) -> Record:
    problem = GEMM.problem({"m": size, "n": 4, "k": 4})
    spec = GEMM.candidates(GEMM.signature_of(problem), "generic")[0]
    timing = Timing(spec.digest, spec.name, spec.to_dict(), 1.5e-6, 0.01, 0.1)
    values: dict[str, Any] = {
        "op": "gemm", "problem": plain(problem), "threads": 1, "target": "generic", "choice": spec.digest,
        "timings": (timing,), "method": {}, "versions": {}, "date": float(size),
    }  # fmt: skip
    return Record(**{**values, **changes})


@pytest.fixture(autouse=True)
def three(tmp_path: Path) -> Iterator[Records]:
    with settings.override(cache_dir=tmp_path / "here"):
        made = records()
        for size in (1, 2):
            made.put(record(size))
        made.put(record(3, machine={"fingerprint": "elsewhere"}))
        yield made


def test_ls_shows_what_was_measured() -> None:
    done = shell("ls")
    assert done.exit_code == 0
    for word in ("gemm m=1 n=4 k=4", "generic x1", "1.5", "1970-01-01", "yes", "no"):
        assert word in done.stdout
    assert "3 records" in done.stderr
    assert [one["problem"]["m"] for one in listed()] == [3, 2, 1], "the newest first"
    assert [one["here"] for one in listed()] == [False, True, True]


def test_records_of_unknown_ops_are_shown_as_they_are(three: Records) -> None:
    three.put(record(9, op="conv3d", problem={"spatial": [1, 2]}))
    done = shell("ls")
    assert done.exit_code == 0
    assert 'conv3d {"spatial": [1, 2]}' in done.stdout


def test_forgetting_by_id_by_machine_and_all() -> None:
    ids = {one["problem"]["m"]: one["id"] for one in listed()}
    assert shell("forget").exit_code == 1
    assert shell("forget", "0000").exit_code == 1
    done = shell("forget", ids[2][:6])
    assert done.exit_code == 0, done.output
    assert "1 forgotten, 2 kept" in done.stderr
    assert shell("forget", "--elsewhere").exit_code == 0
    assert [one["problem"]["m"] for one in listed()] == [1]
    assert shell("forget", "--all").exit_code == 0
    assert listed() == []


def test_older_records_that_cannot_be_read_are_told_once(three: Records) -> None:
    (three.path.parent / "measured-v1.json").write_text(json.dumps({"schema": 1, "records": [{"op": "gemm"}]}))
    done = shell("ls")
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert warned == ["warning: 1 of 1 measurement records cannot be read; they are kept in measured-v1.json.moved-1"]
    assert "RuntimeWarning" not in done.stderr
    assert ".py:" not in done.stderr
    assert "3 records in " in done.stderr


def test_a_damaged_store_is_told_once(three: Records) -> None:
    three.results.close()
    three.path.write_bytes(b"nothing of the kind" * 100)
    done = shell("ls")
    assert done.exit_code == 0
    assert len([line for line in done.stderr.splitlines() if "are ignored" in line]) == 1
    assert "0 records in " in done.stderr


def test_export_and_merge_carry_records_to_another_place(tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    done = shell("export", str(file))
    assert done.exit_code == 0, done.output
    assert json.loads(shell("export", "-").stdout) == json.loads(file.read_text())
    done = shell("export", str(file))
    assert done.exit_code == 1, "what is there is not written over"
    assert "[foreign-file]" in done.stderr
    assert shell("export", "").exit_code == 1
    with settings.override(cache_dir=tmp_path / "there"):
        done = shell("merge", str(file), "--json")
        assert json.loads(done.stdout) == {"taken": 3, "older": 0, "unreadable": []}
        assert "0 taken, 3 were there" in shell("merge", str(file)).stderr
        assert [one["problem"]["m"] for one in listed()] == [3, 2, 1]
    one = listed()[0]["id"]
    assert len(json.loads(shell("export", "-", one).stdout)["records"]) == 1


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 99, "records": []}', "[" * 100_000, '{"schema": 1}'])
def test_a_file_that_is_no_export_changes_nothing(tmp_path: Path, text: str, three: Records) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    before = three.path.read_bytes()
    done = shell("merge", str(file))
    assert done.exit_code == 1
    assert "[records-file]" in done.stderr
    assert three.path.read_bytes() == before
    assert shell("merge", str(tmp_path / "absent.json")).exit_code == 1


def test_of_a_file_with_odd_records_the_others_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"schema": 1, "records": [7, record(50).to_dict()]}))
    done = shell("merge", str(file))
    assert done.exit_code == 1
    assert "left out, record 1: the record is no object" in done.stderr
    assert "1 taken" in done.stderr


def test_diff_says_what_differs_and_nothing_else(tmp_path: Path, three: Records) -> None:
    before = tmp_path / "before.json"
    assert shell("export", str(before)).exit_code == 0
    assert json.loads(shell("diff", str(before), "--json").stdout) == []
    slower = record(1).timings[0]
    three.put(record(1, timings=(replace(slower, seconds=3e-6),), date=50.0))
    spec = GEMM.candidates(GEMM.signature_of(GEMM.problem({"m": 2, "n": 4, "k": 4})), "generic")[1]
    won = Timing(spec.digest, spec.name, spec.to_dict(), 1e-6, 0.01, 0.1)
    three.put(record(2, timings=(won,), choice=spec.digest, date=51.0))
    three.put(record(9))
    three.forget(lambda one: one.machine.get("fingerprint") == "elsewhere")
    found = json.loads(shell("diff", str(before), "--json").stdout)
    assert {(one["problem"].split()[1], one["what"]) for one in found} == {
        ("m=1", "other time"), ("m=2", "other winner"), ("m=3", "only A"), ("m=9", "only B"),
    }  # fmt: skip
    assert next(one["seconds"] for one in found if one["what"] == "other time") == [1.5e-6, 3e-6]
    # A store beside itself has no differences; a store beside the file has the same ones.
    assert json.loads(shell("diff", str(three.path), str(three.path), "--json").stdout) == []
    assert json.loads(shell("diff", str(before), str(three.path), "--json").stdout) == found
    done = shell("diff", str(before))
    assert "4 differ, 0 are the same" in done.stderr
    assert "other winner" in done.stdout


@pytest.mark.parametrize("name", ["absent.db", "absent.json", "text.db", "text.json"])
def test_diff_of_what_is_no_record_is_one_clear_error(tmp_path: Path, name: str) -> None:
    if name.startswith("text"):
        (tmp_path / name).write_text("no records at all")
    done = shell("diff", str(tmp_path / name))
    assert done.exit_code == 1, done.output
    assert "[records-file]" in done.stderr


def test_every_result_goes_through_a_table_and_a_store_to_another_place(tmp_path: Path, three: Records) -> None:
    failed = next(iter(three.results.all()))
    three.results.put([replace(failed, problem={**failed.problem, "m": 77}, status="crashed", seconds=None,
                               reason="signal 11")])  # fmt: skip
    whole = {(one.problem["m"], one.status, one.seconds, one.reason) for one in three.results.all()}
    assert len(whole) == 4
    three.results.close()
    done = shell("export", str(tmp_path / "all.csv"))
    assert done.exit_code == 0, done.output
    assert "4 results written" in done.stderr
    assert shell("export", str(tmp_path / "all.csv")).exit_code == 1, "what is there is not written over"
    for name, source in (("table", tmp_path / "all.csv"), ("store", three.path)):
        with settings.override(cache_dir=tmp_path / name):
            done = shell("merge", str(source), "--json")
            assert json.loads(done.stdout) == {"taken": 4, "older": 0, "unreadable": []}
            assert "0 results taken, 4 were there" in shell("merge", str(source)).stderr
            assert {(one.problem["m"], one.status, one.seconds, one.reason) for one in records().results.all()} == whole
            # A table holds what was measured; what was chosen is a store's.
            assert len(listed()) == (3 if name == "store" else 0)
    one = listed()[0]
    assert "1 results written" in shell("export", str(tmp_path / "one.csv"), one["id"]).stderr


def test_what_is_newer_here_stays_when_a_store_is_merged(tmp_path: Path, three: Records) -> None:
    three.results.close()
    with settings.override(cache_dir=tmp_path / "there"):
        slower = replace(record(1).timings[0], seconds=9.0)
        records().put(record(1, timings=(slower,), date=1e9))
        done = shell("merge", str(three.path), "--json")
        assert json.loads(done.stdout) == {"taken": 2, "older": 1, "unreadable": []}
        assert {one["problem"]["m"]: one["timings"][0]["seconds"] for one in listed()}[1] == 9.0


@pytest.mark.parametrize("name", ["absent.db", "text.db", "absent.csv", "text.csv"])
def test_a_store_or_table_that_cannot_be_read_changes_nothing(tmp_path: Path, name: str, three: Records) -> None:
    if name.startswith("text"):
        (tmp_path / name).write_text("neither one nor the other")
    done = shell("merge", str(tmp_path / name))
    assert done.exit_code == 1, done.output
    assert "s-file]" in done.stderr
    assert len(listed()) == 3


def test_a_store_is_known_by_what_it_holds_whatever_its_name(tmp_path: Path, three: Records) -> None:
    three.results.close()
    named = tmp_path / "sweep.sqlite"
    named.write_bytes(three.path.read_bytes())
    assert json.loads(shell("diff", str(named), "--json").stdout) == []
    with settings.override(cache_dir=tmp_path / "there"):
        assert json.loads(shell("merge", str(named), "--json").stdout)["taken"] == 3


def test_where_nothing_was_chosen_the_fastest_that_were_measured_are_compared(tmp_path: Path, three: Records) -> None:
    """A sweep's store has results and no choices, and so has a table: they differ all the same."""
    table, file, other = tmp_path / "all.csv", tmp_path / "all.json", Results(tmp_path / "sweep.db")
    assert shell("export", str(table)).exit_code == 0
    assert shell("export", str(file)).exit_code == 0
    rows = list(three.results.all())
    one, *rest = rows
    quicker = replace(one, kernel=replace(one.kernel, digest="f" * 64, name="quick"), seconds=(one.seconds or 0) / 2)
    later = replace(rest[0], seconds=2 * (rest[0].seconds or 0))
    failed = replace(one, kernel=replace(one.kernel, digest="e" * 64), status="wrong", seconds=None)
    other.put([one, quicker, failed, later])
    other.close()
    for side in (three.path, table, file):
        done = shell("diff", str(side), str(other.path), "--json")
        assert "nothing was chosen in" in done.stderr
        found = json.loads(done.stdout)
        assert sorted(each["what"] for each in found) == ["only A", "other time", "other winner"], side
        assert next(each["winners"][1] for each in found if each["what"] == "other winner") == "quick"
    assert json.loads(shell("diff", str(table), str(three.path), "--json").stdout) == []
    assert json.loads(shell("diff", str(other.path), str(other.path), "--json").stdout) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for command in ("merge", "diff"):
        done = shell(command, str(tmp_path / "pipe"))
        assert done.exit_code == 1
        assert "it is no regular file" in done.stderr


@pytest.mark.parametrize("seconds", [0.0, -1e-6])
def test_a_record_without_a_time_is_left_out(tmp_path: Path, seconds: float) -> None:
    file = tmp_path / "some.json"
    data = record(50).to_dict()
    data["timings"][0]["seconds"] = seconds
    file.write_text(json.dumps({"schema": 1, "records": [data]}))
    done = shell("merge", str(file))
    assert done.exit_code == 1
    assert "a timing has no time" in done.stderr
    assert len(listed()) == 3


@pytest.mark.parametrize("change", ["spread", "fingerprint"])
def test_a_record_that_lacks_its_spread_is_one_and_one_without_a_machine_is_none(tmp_path: Path, change: str) -> None:
    file = tmp_path / "some.json"
    data = record(50, machine={"fingerprint": "elsewhere"}).to_dict()
    if change == "spread":
        del data["timings"][0]["spread"]
    else:
        data["machine"] = {"fingerprint": {"a": 1}}
    file.write_text(json.dumps({"schema": 1, "records": [data]}))
    done = shell("merge", str(file))
    assert done.exit_code == (0 if change == "spread" else 1), done.output
    assert len(listed()) == (4 if change == "spread" else 3)
    assert "Error" not in done.stderr


def test_a_table_with_an_odd_machine_is_one_clear_error(tmp_path: Path) -> None:
    table = tmp_path / "all.csv"
    assert shell("export", str(table)).exit_code == 0
    table.write_text(table.read_text().replace('""elsewhere""', "{}"))
    for command in ("diff", "merge"):
        done = shell(command, str(table))
        assert done.exit_code == 1, done.output
        assert "fingerprint" in done.stderr


@pytest.mark.parametrize("table", ["problems", "devices", "results"])
def test_stores_with_rows_that_went_bad_are_one_clear_error(tmp_path: Path, table: str, three: Records) -> None:
    """None of their records is said to be missing here."""
    three.results.close()
    named = tmp_path / "bad.db"
    named.write_bytes(three.path.read_bytes())
    column = {"problems": "fields", "devices": "identity", "results": "reason"}[table]
    with contextlib.closing(sqlite3.connect(named)) as other, other:
        other.execute(f"UPDATE {table} SET {column} = ?", (b"\xff7",))
    for command in ("diff", "merge"):
        done = shell(command, str(named))
        assert done.exit_code == 1, done.output
        assert "[records-file]" in done.stderr
    with contextlib.closing(sqlite3.connect(named)) as other, other:
        other.execute("DELETE FROM choices")
    done = shell("diff", str(named))
    assert done.exit_code == 1, done.output
    assert "[records-file]" in done.stderr


def test_of_a_store_that_cannot_be_changed_nothing_is_forgotten(
    three: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that only a removal comes to may be the damaged ones."""

    def damaged(_: Any) -> int:
        raise Unreadable("database disk image is malformed")

    monkeypatch.setattr(three.results, "forget_choices", damaged)
    done = shell("forget", "--all")
    assert done.exit_code == 2, done.output
    assert "[records-unreadable]" in done.stderr
    assert "nothing was forgotten" in done.stderr
