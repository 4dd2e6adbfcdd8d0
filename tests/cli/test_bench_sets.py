"""`tilewright problems` and `tilewright bench --problems`: sets of problems, swept into the store."""

from __future__ import annotations

import csv
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.tune.failing import FailingBuilder, NothingBuilds
from tilewright import ops, settings
from tilewright.arch import arch
from tilewright.cli import _sweep
from tilewright.cli.main import build_app
from tilewright.dispatch import kernels as dispatched
from tilewright.dispatch import records as measured
from tilewright.dispatch.measure import winner
from tilewright.dispatch.results import OK, Results
from tilewright.errors import RequestError
from tilewright.tune import build_queue
from tilewright.tune.sweep import Progress, Sweep
from tilewright.tune.worker_pool import measure_batches

GEMM = ops.op("gemm")
QUICK = ("--target", "generic", "--threads", "1", "--rounds", "1", "--patience", "0", "-j", "1")
DIRECT = ("--filter", "c.pipeline == 'direct'")


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> measured.Records:
    """Records of their own, kernels from the shared store."""
    made = measured.Records(tmp_path / "records")
    monkeypatch.setitem(measured._known, settings.current().cache_dir, made)
    return made


def problems(path: Path, *sizes: int) -> str:
    path.write_text(json.dumps([{"m": size, "n": 4, "k": 4} for size in sizes]))
    return str(path)


def bench(*words: str, status: int = 0) -> Result:
    done = shell("bench", "gemm", *QUICK, *DIRECT, *words)
    assert done.exit_code == status, done.output
    return done


# -- sets -------------------------------------------------------------------------------------------------


def test_sets_are_listed_and_shown_as_what_a_file_of_problems_holds(tmp_path: Path) -> None:
    listed = json.loads(shell("problems", "ls", "--json").stdout)
    assert {"holdout", "validation"} <= {one["set"] for one in listed}
    assert [one["problems"] for one in listed if one["holdout"] and one["op"] == "gemm"] == [300]
    assert "eighteen" in shell("problems", "ls", "gemm").stdout.lower()
    for word in ("validation", "random:5:7"):
        file = tmp_path / "shown.json"
        file.write_text(shell("problems", "show", "gemm", word, "--target", "generic").stdout)
        given = {"datatype": "bf16"}
        found = _sweep.problems(GEMM, str(file), given, arch("generic"))
        assert found == _sweep.problems(GEMM, word, given, arch("generic"))
        assert {one.dtype_a for one in found} == {"bf16"}
    done = shell("problems", "show", "gemm", "validaton")
    assert done.exit_code == 1
    assert "'validation'" in done.stderr


def test_options_fill_what_a_set_leaves_out_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text("m,n,datatype\n4,5,\n6,7,fp16\n")
    found = _sweep.problems(GEMM, str(file), {"k": 9, "datatype": "fp8", "preshuffle": False}, arch("gfx942"))
    assert [(one.m, one.k) for one in found] == [(4, 9), (6, 9)]
    assert found[0].dtype_a not in ("fp8", "fp16"), "fp8 is the encoding of the arch"
    assert found[1].dtype_a == "fp16"
    with pytest.raises(RequestError, match="says m itself") as caught:
        _sweep.problems(GEMM, str(file), {"k": 9, "m": 3}, arch("generic"))
    assert caught.value.rule == "problems-or-options"
    conv, on = ops.op("conv"), arch("generic")
    found = _sweep.problems(conv, "forward_2d_validation", {"variant": "fwd"}, on)
    assert found == _sweep.problems(conv, "forward_2d_validation", {}, on), "they agree, however it is spelled"
    with pytest.raises(RequestError, match="says variant itself, and --variant says another"):
        _sweep.problems(conv, "forward_2d_validation", {"variant": "backward_data"}, on)
    with pytest.raises(RequestError, match="needs --k"):
        _sweep.problems(GEMM, str(file), {}, arch("generic"))


# -- sweeps -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("needs_compiler")
def test_the_same_command_goes_on_and_what_is_new_costs_itself(tmp_path: Path, own: measured.Records) -> None:
    file = tmp_path / "p.json"
    first = bench("--problems", problems(file, 4, -1), "--json")
    assert [one["problem"]["m"] for one in json.loads(first.stdout)] == [4]
    assert "not measured: gemm m=-1 n=4 k=4 fp32_rrr: m is -1" in first.stderr
    rows = list(own.results.all())
    assert {one.status for one in rows} == {OK}
    assert "0 to measure" in bench("--problems", problems(file, 4)).stderr
    again = bench("--problems", problems(file, 4, 5))
    assert f"{len(rows)} to measure, {len(rows)} are in" in again.stderr
    assert f"measured {len(rows)} of {len(rows)}" in again.stderr
    assert own.results.count() == 2 * len(rows)
    assert not own.results.has_choices(), "nothing is remembered unless asked"


@pytest.mark.usefixtures("needs_compiler")
def test_what_is_saved_is_chosen_wherever_it_was_measured(tmp_path: Path, own: measured.Records) -> None:
    other = tmp_path / "other.db"
    bench("--problems", problems(tmp_path / "p.json", 4), "--save", "--store", str(other))
    words = ("explain", "gemm", "--m", "4", "--n", "4", "--k", "4", "--target", "generic", "--threads", "1", "--json")
    assert json.loads(shell(*words).stdout)["chosen"]["tier"] == "measured"
    assert Results(other).count() == own.results.count() > 0
    assert all(one.non_zero for one in own.results.all()), "rows are kept whole"


def test_the_incumbent_stays_unless_it_is_measurably_slower() -> None:
    assert winner([(1.01, 0.0), (1.0, 0.0)]) == 0
    assert winner([(1.03, 0.0), (1.0, 0.0)]) == 1
    assert winner([(1.08, 0.09), (1.0, 0.09)]) == 0, "their spread says that they are equal"
    assert winner([(1.2, 9.0), (1.0, 9.0)]) == 1, "but not any spread"
    assert winner([(1.09, None), (1.0, None)]) == 0, "what is not known may be the noise"
    assert winner([(1.09, None), (1.0, 0.0)]) == 0
    assert winner([(1.2, None), (1.0, None)]) == 1


@pytest.mark.usefixtures("needs_compiler")
def test_too_few_rounds_have_no_spread_and_do_not_say_it_is_nothing(tmp_path: Path, own: measured.Records) -> None:
    sizes = ("--m", "4", "--n", "4", "--k", "4")
    for words in (("--problems", problems(tmp_path / "p.json", 4), "--save"), (*sizes, "--save")):
        done = bench(*words, "--json", "--rounds", "3")
        found = json.loads(done.stdout)
        record = found[0] if isinstance(found, list) else found
        assert [one["spread"] for one in record["timings"]] == [None] * len(record["timings"])
        assert [one.spread for one in own.results.all()] == [None] * own.results.count()
        assert " - " in bench(*words, "--rounds", "3").stdout
        assert {one.spread for each in own.all() for one in each.timings} == {None}, "nor does what is remembered"
    done = bench(*sizes, "--json", "--rounds", "4")
    assert all(one["spread"] is not None for one in json.loads(done.stdout)["timings"])
    carried = tmp_path / "r.json"
    assert shell("records", "export", str(carried)).exit_code == 0
    assert json.loads(shell("records", "diff", str(carried), "--json").stdout) == []


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("flag", ["--output", "--table"])
def test_a_table_grows_and_another_s_file_is_left_alone(tmp_path: Path, flag: str, own: measured.Records) -> None:
    out = tmp_path / "out.csv"
    bench("--problems", problems(tmp_path / "p.json", 4), flag, str(out))
    bench("--problems", problems(tmp_path / "p.json", 5), flag, str(out))
    rows = list(csv.DictReader(out.open()))
    assert {one["m"] for one in rows} == {"4", "5"}
    assert len(rows) == own.results.count()
    assert all(float(one["latency_ms"]) > 0 and one["status"] == OK for one in rows)
    out.write_text("mine\n")
    before = own.results.count()
    done = bench("--problems", problems(tmp_path / "p.json", 6), flag, str(out), status=1)
    assert "[results-file]" in done.stderr
    assert out.read_text() == "mine\n"
    assert own.results.count() == before, "told before anything was measured"


def test_where_nothing_can_be_written_nothing_is_built_or_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before the work, and with a remedy that helps: the place that was named, not another one's setting."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was built")

    monkeypatch.setattr(build_queue, "Builder", never)
    file, plain = problems(tmp_path / "p.json", 4), tmp_path / "plain"
    plain.write_text("a file")
    (tmp_path / "d.csv").mkdir()
    impossible = ("/proc/self/x.csv", str(plain / "x.csv"), str(tmp_path / "no" / "x.csv"), str(tmp_path / "d.csv"),
                  str(tmp_path / ("long" * 80 + ".csv")))  # fmt: skip
    for path in impossible:
        done = shell("bench", "gemm", *QUICK, "--problems", file, "--output", path)
        assert done.exit_code in (1, 2), done.output
        assert "[output-folder]" in done.stderr or "[table-folder]" in done.stderr, done.stderr
        assert "remedy: " in done.stderr
    for path in ("/proc/self/x.db", str(plain / "x.db")):
        done = shell("bench", "gemm", *QUICK, "--problems", file, "--store", path)
        assert done.exit_code == 2, done.output
        assert "[records-unwritable]" in done.stderr
        assert "name another with --store" in done.stderr
        assert "TILEWRIGHT_CACHE_DIR" not in done.stderr
    for mine in (("--problems", file, "--store", str(tmp_path / "s.db")), ("--m", "4", "--n", "4", "--k", "4")):
        with monkeypatch.context() as patched:
            records = measured.Records(plain / "cache")
            patched.setitem(measured._known, settings.current().cache_dir, records)
            patched.setattr(dispatched, "kernels", never)
            done = shell("bench", "gemm", *QUICK, *mine, "--save")
        assert done.exit_code == 2, done.output
        assert "[records-unwritable]" in done.stderr
        assert "TILEWRIGHT_CACHE_DIR" in done.stderr, "which is what helps here"
    (tmp_path / "s.db").unlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["d.csv", "p.json", "plain"]


def test_what_cannot_be_measured_at_all_is_an_error(tmp_path: Path) -> None:
    done = bench("--problems", problems(tmp_path / "p.json", -1, -2), status=1)
    assert "[nothing-measured]" in done.stderr
    assert done.stderr.count("not measured: ") == 2
    asked = ("--problems", problems(tmp_path / "p.json", 4), "--table", str(tmp_path / "t.csv"))
    done = shell("bench", "gemm", *QUICK, *asked, "--filter", "c.pipeline == 'none'")
    assert done.exit_code == 1
    assert "[nothing-measured]" in done.stderr
    assert "written" not in done.stderr
    assert not (tmp_path / "t.csv").exists()
    (tmp_path / "x.db").write_text("no store")
    done = bench("--problems", problems(tmp_path / "p.json", 4), "--store", str(tmp_path / "x.db"), status=2)
    assert "[records-unreadable]" in done.stderr
    assert (tmp_path / "x.db").read_text() == "no store"
    done = bench("--m", "4", "--n", "4", "--k", "4", "--store", str(tmp_path / "y.db"), status=1)
    assert "[option-without-set]" in done.stderr


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("together", [False, True])
def test_an_interrupted_sweep_keeps_what_is_finished_and_says_so(
    together: bool, tmp_path: Path, own: measured.Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    if together:  # as on a busy machine, where all measurements come at once

        def at_once(*words: Any) -> Any:
            return iter([list(chain(*measure_batches(*words)))])

        monkeypatch.setattr("tilewright.tune.sweep.measure_batches", at_once)
    keep = Sweep._result

    def interrupted(self: Sweep, said: Any) -> Any:
        if said.problem.m == 5:
            raise KeyboardInterrupt
        return keep(self, said)

    file = problems(tmp_path / "p.json", 4, 5)
    with monkeypatch.context() as patched:
        patched.setattr(Sweep, "_result", interrupted)
        done = bench("--problems", file, status=130)
    assert "the same command goes on" in done.stderr
    kept = own.results.count()
    assert kept > 0
    assert {one.problem["m"] for one in own.results.all()} == {4}
    assert f", {kept} are in " in bench("--problems", file).stderr


@pytest.mark.usefixtures("needs_compiler")
def test_failures_are_told_at_the_end_and_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_queue, "Builder", FailingBuilder)
    words = ("bench", "gemm", *QUICK, "--filter", "c.pipeline != 'stream'")
    done = shell(*words, "--problems", problems(tmp_path / "p.json", 4), "--output", str(tmp_path / "o.csv"))
    assert done.exit_code == 0, done.output
    assert "1 build-failed: " in done.stderr
    assert "no such instruction" in done.stderr
    assert "build-failed" in [one["status"] for one in csv.DictReader((tmp_path / "o.csv").open())]


@pytest.mark.usefixtures("needs_compiler")
def test_known_failures_are_told_and_measured_again_only_where_asked(
    tmp_path: Path, own: measured.Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--problems", problems(tmp_path / "p.json", 4))
    with monkeypatch.context() as patched:
        patched.setattr(build_queue, "Builder", NothingBuilds)
        assert "build-failed" in bench(*words, status=1).stderr
    failed = own.results.count()
    done = bench(*words, status=1)
    assert f"{failed} of these have no time ({failed} build-failed); --retry" in done.stderr
    assert f"{failed} kernels failed" in done.stderr
    assert "--retry" in done.stderr.partition("remedy")[2]
    done = bench(*words, "--retry")
    assert f"{failed} to measure" in done.stderr
    assert own.results.count() == failed
    assert "have no time" not in bench(*words).stderr
    assert "[option-without-set]" in bench("--m", "4", "--n", "4", "--k", "4", "--retry", status=1).stderr
    alone = bench("--m", "4", "--n", "4", "--k", "4", "--output", "mine.csv", status=1)
    assert "--output is for sets of problems" in alone.stderr, "of one problem it is an element type, and never a file"


def test_progress_says_what_is_left() -> None:
    one, other = Progress(4, done=2, expected=40.0, expected_done=10.0), Progress(4, expected=9.0)
    one.started -= 600
    now = Progress(8, done=2)
    # 30 s are left of what was expected, and what is done took 50 times as long (two seconds are trusted beforehand).
    assert _sweep._progress(now, [one, other]) == "measured 2 of 8, about 25 min left"
    now.failed["wrong"] += 1
    assert _sweep._progress(now, [one]) == "measured 2 of 8, 1 failed, about 25 min left"
    one.to_build, one.built = 60, 10
    assert _sweep._progress(now, [one]).endswith("about 50 min left"), "compilers need longer"
    assert _sweep._progress(Progress(8, done=8), [one]) == "measured 8 of 8"
    assert [_sweep.duration(one) for one in (40, 600, 9000)] == ["40 s", "10 min", "2.5 h"]


@pytest.mark.parametrize(
    "words", [("--limit", "inf"), ("--limit", "1e300"), ("--patience", "inf"), ("--rounds", "9" * 20)]
)
def test_numbers_that_no_clock_has_are_refused(tmp_path: Path, words: tuple[str, str]) -> None:
    """Kernels would be blamed for what was asked of them, or nothing would ever end."""
    (tmp_path / "p.json").write_text('[{"m": 4, "n": 4, "k": 4}]')
    done = shell("bench", "gemm", "--problems", str(tmp_path / "p.json"), "--store", str(tmp_path / "r.db"), *words)
    assert done.exit_code == 1, done.output
    assert "less than or equal" in done.stderr
    assert not (tmp_path / "r.db").exists()
