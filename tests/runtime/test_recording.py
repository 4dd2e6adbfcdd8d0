"""Recording: the problems a program runs, counted by C and by Python alike, from threads and processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright import ops, settings
from tilewright.cli.main import build_app
from tilewright.errors import RequestError
from tilewright.runtime import fast_path, recording
from tilewright.tune import problem_sets

GEMM = ops.op("gemm")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with settings.override(threads=1, target="generic"):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.json"


def product(m: int, n: int = 8, k: int = 4) -> Any:
    return tw.gemm(np.ones((m, k), np.float32), np.ones((k, n), np.float32))


def counts(file: Path) -> dict[int, int]:
    """Calls by the rows of the problem."""
    return {json.loads(text)["m"]: calls for (_, text), calls in recording.read(file).items()}


@pytest.mark.parametrize("wrong", [3, None, ["x.json"]])
def test_what_is_no_path_is_one_error(wrong: Any) -> None:
    with pytest.raises(RequestError) as caught, tw.record(wrong):
        pass
    assert caught.value.rule == "record-file"


def test_calls_are_counted_while_recorded_and_neither_before_nor_after(file: Path) -> None:
    product(3)
    with tw.record(file) as path:
        for rows in (3, 5, 3, 3, 5):
            assert np.all(product(rows) == 4)
        with pytest.raises(RequestError):
            tw.gemm(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32))  # a call that fails is none
    product(3)
    assert path == file
    assert counts(file) == {3: 3, 5: 2}
    if fast_path.library() is not None:
        known = recording.recorder(str(file))._counters.values()
        assert sum(one._cell.value for one in known) == 3, "all but the first of each kind go the short way"
    with tw.record(str(file)):
        product(3)
    assert counts(file) == {3: 4, 5: 2}, "a recording is added to"


def test_what_is_not_recorded_has_no_counter(file: Path) -> None:
    registry = tw.Registry("generic")
    a = np.ones((3, 4), np.float32)
    for _ in range(2):
        registry.run("gemm", a, a.T)
    (planned,) = registry.plans().known.values()
    assert planned.counter is None
    for alike in registry.plans().fast.values():
        for one in alike.values():
            assert not fast_path._Call.from_address(one).calls


def test_the_file_is_a_problem_set(file: Path) -> None:
    with tw.record(file):
        tw.gemm(
            np.ones((7, 4), np.float32),
            np.ones((9, 4), np.float32).T,
            ds=(np.ones(9, np.float32),),
            epilogue="MultiDAdd",
        )
        product(3), product(3)
    found = problem_sets.problems(GEMM, str(file), "cpu")
    assert [(one.m, one.n, one.k, one.layout, one.num_d) for one in found] == [(3, 8, 4, "rrr", 0), (7, 9, 4, "rcr", 1)]
    done = CliRunner().invoke(build_app(), ["problems", "show", "gemm", str(file)])
    assert done.exit_code == 0, done.output
    assert recording.rows(json.loads(done.stdout)) == recording.read(file)
    assert "2 problems, run 3 times" in done.stderr
    again = file.with_name("again.json")
    again.write_text(done.stdout)
    assert problem_sets.problems(GEMM, str(again), "cpu") == found


def test_a_kernel_that_is_called_itself_is_counted_too(file: Path) -> None:
    registry = tw.Registry("generic")
    kernel = registry.kernel_for(GEMM.problem({"m": 3, "n": 8, "k": 4}))
    a, b = np.ones((3, 4), np.float32), np.ones((4, 8), np.float32)
    kernel(a, b)
    with tw.record(file):
        kernel(a, b), kernel(a, b)
    kernel(a, b)
    assert counts(file) == {3: 2}


def test_a_call_that_launches_many_counts_each(file: Path) -> None:
    """Two batch dimensions that are not one in memory: the kernel is launched over the outer."""
    a = np.ones((3, 4, 2, 8), np.float32)[:, ::2]
    b = np.ones((3, 4, 8, 5), np.float32)[:, ::2]
    with tw.record(file):
        tw.matmul(a, b), tw.matmul(a, b)
    ((key, times),) = recording.read(file).items()
    assert times * json.loads(key[1])["batch"] == 12


def test_threads_lose_nothing(file: Path) -> None:
    def work() -> None:
        for turn in range(200):
            product(3 + turn % 2)

    with tw.record(file):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert counts(file) == {3: 400, 4: 400}


def test_blocks_within_each_other_count_in_the_inner_file(file: Path) -> None:
    other = file.with_name("other.json")
    with tw.record(file):
        product(3)
        with tw.record(other):
            product(4)
        product(3)
    assert (counts(file), counts(other)) == ({3: 2}, {4: 1})
    assert settings.configure().record == ""


# -- processes -----------------------------------------------------------------------------------------------------

CALLS = """
import numpy as np, tilewright as tw
def product(m):
    return tw.gemm(np.ones((m, 4), np.float32), np.ones((4, 8), np.float32))
"""
FORKING = (
    CALLS
    + """
import os, multiprocessing
product(3)  # known before the fork: the child goes the short way at once
def child():
    for _ in range(5):
        product(3)
for _ in range(3):
    one = multiprocessing.get_context("fork").Process(target=child)
    one.start(); one.join()
pid = os.fork()
if not pid:
    child()
    raise SystemExit
os.waitpid(pid, 0)
"""
)
KILLED = (
    CALLS
    + """
import os, signal, sys, time
for _ in range(6):
    product(3)
end = time.monotonic() + 60
while not os.path.exists(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def started(text: str, file: Path) -> subprocess.Popen[bytes]:
    here = {**settings.environment(), "TILEWRIGHT_RECORD": str(file)}
    return subprocess.Popen([sys.executable, "-c", text, str(file)], env=here)


def test_processes_share_a_file_and_lose_nothing(file: Path) -> None:
    product(3)  # built now, and not by each of them
    text = CALLS + "\nfor turn in range(100): product(3 + turn % 5)"
    every = [started(text, file) for _ in range(4)]
    assert [one.wait() for one in every] == [0] * 4
    assert counts(file) == dict.fromkeys(range(3, 8), 80)
    assert sorted(one.name for one in file.parent.iterdir()) == [file.name], "no lock, no part is left"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_children_count_their_own_calls_only(file: Path) -> None:
    assert started(FORKING, file).wait() == 0
    assert counts(file) == {3: 1 + 3 * 5 + 5}


def test_a_process_that_is_killed_loses_no_more_than_its_last_second(file: Path) -> None:
    assert started(KILLED, file).wait() == -9
    assert counts(file) == {3: 6}


def test_the_command_runs_a_program_and_exits_as_it_does(file: Path) -> None:
    words = ["record", "--output", str(file), "--", sys.executable, "-c", CALLS + "product(3); raise SystemExit(7)"]
    environment = settings.environment()
    done = CliRunner().invoke(build_app(), words, env=environment)
    assert done.exit_code == 7, done.output
    assert "1 call of 1 problem (1 of gemm) recorded" in done.stderr
    assert counts(file) == {3: 1}
    done = CliRunner().invoke(build_app(), ["record", "-o", str(file), "--", sys.executable, "-c", ""], env=environment)
    assert (done.exit_code, counts(file)) == (0, {3: 1})
    assert "nothing was added" in done.stderr
    done = CliRunner().invoke(build_app(), ["record", "-o", str(file), "--", str(file / "no-such-program")])
    assert done.exit_code == 1
    assert "[record-program]" in done.stderr


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]", "{", '{"recorded": 2, "problems": []}', '{"recorded": 1}', '{"recorded": 1, "problems": [7]}',
        '{"recorded": 1, "problems": [{"op": "gemm", "calls": 0, "problem": {}}]}',
        '{"recorded": 1, "problems": [{"op": "gemm", "calls": true, "problem": {}}]}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_recording_is_refused_and_stays(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(RequestError) as caught, tw.record(file):
        raise AssertionError("not entered")
    assert caught.value.rule == "record-file"
    with settings.override(record=str(file)), pytest.raises(RequestError):
        product(11)
    assert file.read_text() == text
    if "recorded" in text:
        with pytest.raises(RequestError) as caught:
            problem_sets.problems(GEMM, str(file), "cpu")
        assert caught.value.rule == "problems-file"


@pytest.mark.parametrize("name", ["mine.csv", "mine", "no/such/folder/mine.json"])
def test_a_place_that_cannot_be_written_is_told_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError) as caught, tw.record(tmp_path / name):
        raise AssertionError("not entered")
    assert caught.value.rule == "record-file"
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_at_the_end_is_said(tmp_path: Path) -> None:
    place = tmp_path / "here"
    place.mkdir()

    def work() -> None:
        with tw.record(place / "mine.json"):
            product(3)
            place.rmdir()

    with pytest.raises(RequestError) as caught:
        work()
    assert caught.value.rule == "record-file"
    one = recording.recorder(str(place / "mine.json"))
    with pytest.warns(RuntimeWarning, match="what was recorded is lost"):
        one.settle()
    place.mkdir()
    one.settle()
    assert counts(place / "mine.json") == {3: 1}, "kept until it can be written"


def test_a_recording_without_the_op_says_which_it_has(file: Path) -> None:
    file.write_text('{"recorded": 1, "problems": [{"op": "other", "calls": 3, "problem": {"m": 1}}]}')
    with pytest.raises(RequestError, match="problems of other, none of gemm"):
        problem_sets.problems(GEMM, str(file), "cpu")
