"""The page as a file: what it holds, that nothing of it can be taken for markup, and what is told of odd sources."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner
from typer.testing import Result as Done

from tests.report import made
from tilewright import ops, settings
from tilewright.arch import all_archs
from tilewright.backends.base import backend
from tilewright.cli.main import build_app
from tilewright.dispatch.results import OK, STATUSES, Results, storable
from tilewright.report import page
from tilewright.report.roofs import roofs
from tilewright.report.scopes import scopes
from tilewright.report.sources import Source, read
from tilewright.tune import export


def shell(*words: str) -> Done:
    return CliRunner().invoke(build_app(), ["report", *words])


def written(folder: Path, *words: str) -> str:
    output = folder / "page.html"
    done = shell(*words, "-o", str(output))
    assert done.exit_code == 0, done.output
    return output.read_text(encoding="utf-8")


class Parts(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, str] = {}
        self._now = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._now = f"{tag} {dict(attrs).get('id', '')}".strip() if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._now = ""

    def handle_data(self, data: str) -> None:
        if self._now:
            self.inside[self._now] = self.inside.get(self._now, "") + data


def data_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Parts(text).inside["script data"])
    return found


def unpacked(given: dict[str, str]) -> Any:
    return np.frombuffer(base64.b64decode(given["data"]), np.dtype(f"<{given['kind']}"))


def test_the_rows_of_a_store_are_in_the_page(tmp_path: Path) -> None:
    data = data_of(written(tmp_path, str(made.store(tmp_path, made.other_op()))))
    assert data["sources"] == ["made.db"], "a page that is passed on tells no folders"
    assert [one["op"] for one in data["scopes"]] == ["gemm", "sums"]
    gemm, sums = data["scopes"]
    rows = gemm["rows"]
    by_key = {}
    for problem, kernel, status, seconds, reason in zip(
        unpacked(rows["problem"]), unpacked(rows["kernel"]), unpacked(rows["status"]), unpacked(rows["seconds"]),
        unpacked(rows["reason"]["of"]), strict=True,
    ):  # fmt: skip
        sizes = tuple(
            int(unpacked(next(one for one in gemm["problems"]["columns"] if one["name"] == name)["numbers"])[problem])
            for name in ("m", "n", "k")
        )
        by_key[sizes, gemm["kernels"]["digest"][kernel]] = (status, seconds, rows["reason"]["words"][reason])
    given = made.results()
    assert len(by_key) == len(given)
    for one in given:
        status, seconds, reason = by_key[tuple(one.problem[name] for name in "mnk"), one.kernel.digest]
        assert (STATUSES[status], reason) == (one.status, storable(one.reason))
        assert seconds == pytest.approx(one.seconds, rel=1e-6) if one.status == OK else math.isnan(seconds)
    # An op that is not here keeps its fields, whatever they are.
    assert {one["name"] for one in sums["problems"]["columns"]} == {"length", "mode", "nested"}
    assert sums["problems"]["family"]["words"] == ["all"]
    assert np.isnan(unpacked(sums["problems"]["flops"])).all()
    assert sums["rows"]["notes"][0]["why"] == "the op sums is not installed here"
    assert list(unpacked(gemm["problems"]["chosen"])).count(-1) == len(made.SIZES) - 1


def test_a_table_makes_the_same_page_as_its_store(tmp_path: Path) -> None:
    store = made.store(tmp_path)
    export.write(tmp_path / "made.csv", read([store]).results)
    one, other = (data_of(written(tmp_path, str(path)))["scopes"][0] for path in (store, tmp_path / "made.csv"))
    for name in ("rows", "kernels", "roofs"):
        assert one[name] == other[name]


def test_of_two_files_about_the_same_thing_the_newer_row_counts(tmp_path: Path) -> None:
    store = made.store(tmp_path)
    slower = [dataclasses.replace(one, seconds=1.0, date=one.date + 1) for one in made.results() if one.status == OK]
    export.write(tmp_path / "new.csv", slower)
    found = read([tmp_path / "new.csv", store])
    assert len(found.results) == len(made.results())
    assert {one.seconds for one in found.results if one.status == OK} == {1.0}


def test_only_our_script_and_style_may_run(tmp_path: Path) -> None:
    parts = Parts(written(tmp_path, str(made.store(tmp_path, made.other_op())), "--title", made.HOSTILE[0]))
    policy = next(attrs["content"] for tag, attrs in parts.elements if attrs.get("http-equiv"))
    hashes = [base64.b64encode(hashlib.sha256(parts.inside[one].encode()).digest()).decode()
              for one in ("style", "script")]  # fmt: skip
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"
    )
    assert [tag for tag, _ in parts.elements].count("script") == 2
    assert not {"img", "svg", "iframe", "b", "i"} & {tag for tag, _ in parts.elements}
    assert not [attrs for _, attrs in parts.elements if "src" in attrs or any(name.startswith("on") for name in attrs)]
    assert [attrs["href"] for _, attrs in parts.elements if "href" in attrs] == ["data:,", "#view"]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", parts.inside["script"] + parts.inside["style"])
    assert "innerHTML" not in parts.inside["script"]


@pytest.mark.parametrize("value", [*made.HOSTILE, math.inf, {"a": [math.nan]}, 2**80, None, True, ["</script>"]])
def test_any_value_becomes_data(value: Any) -> None:
    found = page.scope_data(
        scopes(Source(("x",), tuple(dataclasses.replace(one, problem={"v": value}) for one in made.other_op())))[0],
        page.Wanted(),
    )
    text = page.in_script(found)
    assert "<" not in text
    assert ">" not in text
    assert text.isascii()
    assert json.loads(text) == json.loads(json.dumps(found))


def test_estimates_are_those_of_the_backends() -> None:
    scope = scopes(Source(("x",), tuple(made.results())))[0]
    rows = page.scope_data(scope, page.Wanted())["rows"]
    told = unpacked(rows["estimate"])
    op = ops.op("gemm")
    checked = 0
    for index, one in enumerate(scope.results):
        if one.status != OK or "odd" in one.kernel.spec:
            assert math.isnan(told[index])
            continue
        spec, problem = op.spec_from_dict(dict(one.kernel.spec)), op.problem_from_dict(dict(one.problem))
        assert told[index] == pytest.approx(backend("cpu").estimate(spec, problem, 2), rel=1e-6)
        checked += 1
    assert checked > 50
    assert rows["notes"] == [{"why": "of another version", "rows": sum(
        one.status == OK and "odd" in one.kernel.spec for one in scope.results)}]  # fmt: skip
    assert "estimate" not in page.scope_data(scope, page.Wanted(predictions=False))["rows"]


def test_roofs_are_the_data_sheet_s_or_the_most_that_was_measured() -> None:
    given = made.results()
    (found,) = roofs(scopes(Source(("x",), tuple(given)))[0])
    op = ops.op("gemm")
    work = [(op.problem_from_dict(dict(one.problem)), one.seconds or 0) for one in given if one.status == OK]
    assert found["flops"] == pytest.approx(max(problem.flops / seconds for problem, seconds in work))
    assert found["bytes"] == pytest.approx(max(problem.bytes / seconds for problem, seconds in work))
    assert found["flops_from"] == found["bytes_from"] == "the most that was measured"
    known = {**made.MACHINE, "model": "NVIDIA H200"}
    there = [dataclasses.replace(one, device=known, kernel=dataclasses.replace(one.kernel, arch="sm_90a"))
             for one in given]  # fmt: skip
    (found,) = roofs(scopes(Source(("x",), tuple(there)))[0])
    sheet = (all_archs()["sm_90a"].data_sheets or {})["NVIDIA H200"]
    assert (found["flops"], found["bytes"]) == (sheet["fp32"], sheet["memory"])
    assert found["flops_from"] == "the data sheet of NVIDIA H200"


def test_a_status_of_another_version_is_kept() -> None:
    given = [dataclasses.replace(one, status="melted", seconds=None) if at == 3 else one
             for at, one in enumerate(made.results())]  # fmt: skip
    rows = page.scope_data(scopes(Source(("x",), tuple(given)))[0], page.Wanted(predictions=False))["rows"]
    assert rows["statuses"][0] == OK
    assert [rows["statuses"][at] for at in unpacked(rows["status"])] == [one.status for one in given]


def test_very_many_reasons_become_the_most_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_MOST_REASONS", 3)
    given = [*["often"] * 5, *["twice"] * 2, *["x" * 5000] * 3, "once", "and another"]
    found = page._reasons(given)
    assert len(found["words"]) == 4
    numbers = unpacked(found["of"])
    assert [found["words"][at] for at in numbers[:7]] == given[:7]
    assert len(found["words"][numbers[7]]) == page._LONGEST
    assert found["words"][numbers[-1]] == found["words"][numbers[-2]]


# -- what is told ------------------------------------------------------------------------------------------------


def test_the_command_takes_this_machine_s_store(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        done = shell("-o", str(tmp_path / "p.html"))
        assert done.exit_code == 1
        assert "[report-empty]" in done.stderr
        Results(tmp_path / "results-v1.db").put(made.results())
        done = shell("-o", str(tmp_path / "p.html"), "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["rows"] == len(made.results())


def test_a_model_is_a_file_or_the_name_of_one_that_ships(tmp_path: Path) -> None:
    store = str(made.store(tmp_path))
    written(tmp_path, store, "--model", "gemm-h200")
    done = shell(store, "-o", str(tmp_path / "none.html"), "--model", "gemm-h2000")
    assert done.exit_code == 1
    assert "gemm-h200," in done.stderr


def test_rows_can_be_left_out(tmp_path: Path) -> None:
    store = str(made.store(tmp_path, made.other_op()))
    assert [one["op"] for one in data_of(written(tmp_path, store, "--op", "sums"))["scopes"]] == ["sums"]
    found = data_of(written(tmp_path, store, "--target", "generic"))["scopes"][0]
    assert set(found["kernels"]["arch"]) == {"generic"}
    done = shell(store, "--op", "none", "-o", str(tmp_path / "none.html"))
    assert done.exit_code == 1
    assert "[report-empty]" in done.stderr
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(("name", "data"), [
    ("absent.db", None), ("absent.csv", None), ("text.db", b"no database at all" * 100), ("text.csv", b"a,b\n1,2\n"),
    ("cut.csv", b"kernel,problem_idx\n\"x"), ("text.parquet", b"PAR1 and then nothing"),
])  # fmt: skip
def test_an_odd_source_is_one_clear_error_and_no_page(tmp_path: Path, name: str, data: bytes | None) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    if data is not None:
        (tmp_path / name).write_bytes(data)
    done = shell(str(tmp_path / name), "-o", str(tmp_path / "p.html"))
    assert done.exit_code == 1, done.output
    assert "[results-file]" in done.stderr
    assert name in done.stderr
    assert not (tmp_path / "p.html").exists()


def test_a_page_is_written_over_and_another_s_file_is_not(tmp_path: Path) -> None:
    store = str(made.store(tmp_path))
    first = written(tmp_path, store)
    assert written(tmp_path, store, "--title", "Other") != first
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    done = shell(store, "-o", str(tmp_path / "mine.html"))
    assert done.exit_code == 1
    assert "[foreign-file]" in done.stderr
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    for words in (["-o", str(tmp_path / "p.txt")], ["-o", str(tmp_path / "no" / "p.html")], ["-o", ""]):
        assert shell(store, *words).exit_code == 1
