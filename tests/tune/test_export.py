"""Tables of results: what is written is read back, and what is broken is one clear error."""

from __future__ import annotations

import csv
import io
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright import ops
from tilewright.dispatch.results import FAILURES, OK, KernelRow, Result, Results, storable
from tilewright.errors import RequestError, TilewrightError
from tilewright.ops.base import plain
from tilewright.tune import export

GEMM = ops.op("gemm")
MACHINE = {"fingerprint": "f" * 16, "model": "A CPU, of some kind"}


def result(m: int = 3, status: str = OK, reason: str = "", **changes: Any) -> Result:
    problem = GEMM.problem({"m": m, "n": 5, "k": 7})
    spec = GEMM.fallback_spec(GEMM.signature_of(problem), "generic")
    kernel = KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
    times: dict[str, Any] = {"seconds": 2e-6, "spread": 0.01, "error": 0.25, "non_zero": 15} if status == OK else {}
    made = Result("gemm", plain(problem), MACHINE, 2, kernel, status, reason=reason, method={"rounds": 3},
                  versions={"tilewright": "x"}, date=7.5, **times)  # fmt: skip
    return replace(made, **changes)


# What a dying program may have said: any character, halves of some and zeros too.
LAST_WORDS = st.text(st.characters(exclude_categories=()), max_size=20)
KINDS = [".csv", ".parquet"]


def demand(ending: str) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.mark.parametrize("ending", KINDS)
def test_a_table_comes_back_as_it_was(tmp_path: Path, ending: str) -> None:
    demand(ending)
    failed = [result(5 + index, one, 'it\nsaid, "no"') for index, one in enumerate(FAILURES)]
    found = [result(), result(4, noise=0.125), *failed]
    file = tmp_path / f"r{ending}"
    export.write(file, found)
    assert export.read(file) == found
    store = Results(tmp_path / "r.db")
    assert store.put(export.read(file)) == len(found)
    assert sorted(store.all(), key=lambda one: one.problem["m"]) == found


def test_the_documented_columns_lead(tmp_path: Path) -> None:
    export.write(tmp_path / "r.csv", [result(), result(status="wrong", reason="it is")])
    with (tmp_path / "r.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    names = list(first)
    assert names[:5] == ["kernel", "problem_idx", "m", "n", "k"]
    assert names[names.index("latency_ms") :][:6] == ["latency_ms", "tflops", "non_zero", "error", "status", "reason"]
    assert float(first["latency_ms"]) == 2e-3
    assert float(first["tflops"]) == pytest.approx(2 * 3 * 5 * 7 / 2e-6 / 1e12)
    assert (second["latency_ms"], second["status"], second["problem_idx"]) == ("", "wrong", "0")


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from([OK, *FAILURES]), LAST_WORDS, st.floats(1e-9, 1e3)),
        max_size=6,
        unique_by=lambda one: one[0],
    )
)
def test_any_results_survive_a_table(found: list[Any]) -> None:
    made = [
        replace(result(m, status, reason), seconds=seconds if status == OK else None)
        for m, status, reason, seconds in found
    ]  # fmt: skip
    table = list(csv.DictReader(io.StringIO(export.to_csv(made), newline=""), strict=True))
    back = [export._result(row, {}) for row in table]
    told = [(one.problem["m"], one.status, one.reason) for one in back]
    assert told == [(one.problem["m"], one.status, storable(one.reason)) for one in made]
    assert [one.seconds or 0.0 for one in back] == pytest.approx([one.seconds or 0.0 for one in made])


def test_a_table_that_two_add_to_at_once_has_the_rows_of_both(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"

    def add(first: int) -> None:
        for size in range(first, first + 15):
            export.add(file, [result(size)])

    team = [threading.Thread(target=add, args=(first,)) for first in (1, 101, 201)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    assert len(export.read(file)) == 45
    export.add(file, [result(1, seconds=5e-6)])
    assert [one.seconds for one in export.read(file) if one.problem["m"] == 1] == [5e-6], "the newer row counts"


def test_a_table_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        export.write(tmp_path / "r.xlsx", [result()])
    assert caught.value.rule == "table-kind"
    assert not list(tmp_path.iterdir())


BROKEN: dict[str, tuple[str, str]] = {
    "no columns": ("", ""),
    "a status of its own": (",ok,", ",fine,"),
    "a time that is none": ("0.002", "fast"),
    "no time": ("0.002", ""),
    "an endless time": ("0.002", "inf"),
    "a time before it began": ("0.002", "-0.002"),
    "no time at all": ("0.002", "0.0"),
    "a date that is none": (",7.5,", ",nan,"),
    "no date": (",7.5,", ",,"),
    "more threads than there are": (",2,", ",1e300,"),
    "more elements than there are": (",15,", ",1e300,"),
    "another kernel's spec": ('""generic""', '""x86_64_v3""'),
    "a spec that is no JSON": ('""schema""', "schema"),
    "threads": (",2,", ",many,"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_one_clear_error(tmp_path: Path, name: str) -> None:
    file = tmp_path / "r.csv"
    export.write(file, [result()])
    before, after = BROKEN[name]
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after) if before else "kernel\nx\n")
    with pytest.raises(TilewrightError) as caught:
        export.read(file)
    assert caught.value.rule == "results-file"
    assert ("row 1" if before else "no column latency_ms") in caught.value.message


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\xff" * 100])
def test_a_broken_parquet_file_is_one_clear_error(tmp_path: Path, data: bytes) -> None:
    demand(".parquet")
    file = tmp_path / "r.parquet"
    file.write_bytes(data)
    with pytest.raises(TilewrightError) as caught:
        export.read(file)
    assert caught.value.rule == "results-file"


@pytest.mark.parametrize("ending", KINDS)
def test_results_of_several_ops_and_versions_share_a_table(tmp_path: Path, ending: str) -> None:
    """Their fields differ, and those of one name in kind: nothing is lost, and every field has its column."""
    demand(ending)
    found = [
        result(), result(op="nobodys", problem={"m": "many", "depth": 1 << 70}),
        result(op="nobodys", problem={"m": 1.5, "depth": 2}),
    ]  # fmt: skip
    file = tmp_path / f"r{ending}"
    export.write(file, found)
    assert export.read(file) == found
    assert "depth" in export._table(file)[0]


@pytest.mark.parametrize(("column", "value"), [("latency_ms", "1e-323"), ("latency_ms", "1e18"), ("date", "1e12")])
def test_what_a_store_would_not_read_back_is_not_read_from_a_table(tmp_path: Path, column: str, value: str) -> None:
    """Merged, it would make all of a store unreadable."""
    text = export.to_csv([result()])
    (row,) = csv.DictReader(io.StringIO(text))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(row))
    writer.writeheader()
    writer.writerow({**row, column: value})
    (tmp_path / "r.csv").write_text(out.getvalue())
    with pytest.raises(RequestError, match="row 1"):
        export.read(tmp_path / "r.csv")
