from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright import events, settings
from tilewright.errors import MachineError
from tilewright.events import KernelBuilt, Measured


def built(name: str) -> KernelBuilt:
    return KernelBuilt(name=name, digest="d" * 64, seconds=0.5, cached=False)


def test_without_a_subscriber_nobody_listens() -> None:
    assert not events.active()
    events.emit(built("unheard"))


def test_recorded_collects_in_order_and_stops_at_the_end() -> None:
    with events.recorded() as seen:
        assert events.active()
        events.emit(built("first"))
        events.emit(built("second"))
    events.emit(built("late"))
    assert [one.name for one in seen if isinstance(one, KernelBuilt)] == ["first", "second"]
    assert not events.active()


def test_every_subscriber_hears_and_each_leaves_alone() -> None:
    mine: list[events.Event] = []
    leave = events.subscribe(mine.append)
    with events.recorded() as others:
        events.emit(built("both"))
        leave()
        leave()  # twice does no harm
        events.emit(built("others only"))
    assert len(mine) == 1
    assert len(others) == 2


def test_a_record_says_its_kind_and_time() -> None:
    data = Measured(problem="p", kernel="k", seconds=1.0, error=0.0).to_dict()
    assert data["event"] == "Measured"
    assert data["at"] > 0
    assert json.loads(json.dumps(data)) == data


def test_jsonl_holds_one_whole_record_a_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    stop = events.to_jsonl(path)
    events.emit(built("one"))
    events.emit(built("two"))
    stop()
    events.emit(built("after"))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["one", "two"]


def names(path: Path) -> list[str]:
    return [json.loads(line)["name"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_setting_names_a_file_for_every_event_of_its_scope(tmp_path: Path) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    with settings.override(events=str(one)):
        assert events.active()
        events.emit(built("first"))
        with settings.override(events=other):
            events.emit(built("inner"))
        with settings.override(events=""):
            assert not events.active()
            events.emit(built("unheard"))
        thread = threading.Thread(target=events.emit, args=(built("of another scope"),))
        thread.start()
        thread.join()
    events.emit(built("late"))
    assert (names(one), names(other)) == (["first"], ["inner"])


PROGRAM = """
import numpy as np
import tilewright as tw
tw.gemm(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
"""


def test_the_variable_counts_in_any_program(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TILEWRIGHT_EVENTS": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if "no-compiler" in done.stderr:
        pytest.skip("there is no C++ compiler here")
    assert done.returncode == 0, done.stderr
    kinds = [json.loads(line)["event"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert "Selected" in kinds
    assert "KernelLoaded" in kinds


def test_a_command_writes_each_event_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "explain", "gemm", "--m", "4", "--n", "4", "--k", "4"],
        env={**os.environ, "TILEWRIGHT_EVENTS": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = path.read_text(encoding="utf-8").splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    assert kinds[-1:] == ["Selected"]
    assert kinds.count("Selected") == 1
    assert set(kinds[:-1]) <= {"BuildPlanned", "KernelBuilt"}  # of the selection library
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("place", ["missing/events.jsonl", "."])
def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path: Path, place: str) -> None:
    with settings.override(events=tmp_path / place), pytest.raises(MachineError) as caught:
        events.emit(built("one"))
    assert caught.value.rule == "events-file"
    assert "TILEWRIGHT_EVENTS" in caught.value.remedy
