from __future__ import annotations

import json
from pathlib import Path

from tilewright import events
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
