"""What others write is noticed, what this process writes at once, and a stream of new sizes does not look at files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dispatch.test_model_tier import PROBLEM, TARGET, model, served
from tilewright import Registry, ops, settings
from tilewright.dispatch import learned, locks, looks, model_files, records, states

GEMM = ops.op("gemm")


class Clock:
    """Time that stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self) -> None:
        self.now += 2 * looks.SECONDS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(states, "_clock", made)
    return made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of one's own, and no models that ship."""
    monkeypatch.setattr(learned, "_ships_some", lambda *_: False)
    monkeypatch.setattr(model_files, "_shipped", lambda: ())
    with settings.override(cache_dir=tmp_path, threads=1, models=True, measure=True):
        yield tmp_path


def tier(registry: Registry) -> str:
    return registry.select(PROBLEM).tier


_MEASURE = """
from tests.dispatch.test_model_tier import PROBLEM, TARGET, served
from tilewright.dispatch.records import Record, Timing, records
from tilewright.ops.base import plain
spec = served()[-1]
timing = Timing(spec.digest, spec.name, spec.to_dict(), 1e-6, 0.01, 0.1)
records().put(Record("gemm", plain(PROBLEM), 1, TARGET, spec.digest, (timing,), {}, {}))
"""


def in_another_process(code: str, place: Path) -> None:
    root = str(Path(__file__).parents[2])
    variables = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(place), "TILEWRIGHT_THREADS": "1",
                 "PYTHONPATH": os.pathsep.join([root, *sys.path])}  # fmt: skip
    subprocess.run([sys.executable, "-c", code], env=variables, check=True)


def test_what_another_process_measured_counts_when_it_has_ended(place: Path) -> None:
    registry = Registry(TARGET)
    assert tier(registry) == "heuristic"
    in_another_process(_MEASURE, place)
    chosen = registry.select(PROBLEM)
    assert (chosen.tier, chosen.spec.digest) == ("measured", served()[-1].digest)


def test_others_are_looked_for_when_a_look_is_due_and_not_before(place: Path, clock: Clock) -> None:
    registry = Registry(TARGET)
    assert tier(registry) == "heuristic"
    in_another_process(_MEASURE, place)
    assert tier(registry) == "heuristic"
    clock.pass_by()
    assert tier(registry) == "measured"


def test_a_stream_of_new_sizes_looks_once(place: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(records.Records, "refresh", lambda *_: looked.append("records"))
    monkeypatch.setattr(states, "_lock_stamp", lambda _: looked.append("lock"))
    registry = Registry(TARGET)
    for size in range(1, 30):
        registry.select(GEMM.problem({"m": size, "n": 40, "k": 40}))
    assert looked == ["records", "lock"]
    clock.pass_by()
    registry.select(PROBLEM)
    assert looked == ["records", "lock"] * 2


def test_other_settings_look_at_once(place: Path, clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> None:
    registry = Registry(TARGET)
    assert tier(registry) == "heuristic"
    other = tmp_path_factory.mktemp("other")
    in_another_process(_MEASURE, other)
    with settings.override(cache_dir=other):
        assert tier(registry) == "measured"
    assert tier(registry) == "heuristic"


def written(place: Path, preferred: str) -> bytes:
    """A model's file as bytes, that nobody is told of."""
    (place / "models").mkdir(exist_ok=True)
    file = place / "elsewhere.twmodel"
    model_files.write(file, model(preferred))
    data = file.read_bytes()
    file.unlink()
    return data


def pipeline(registry: Registry) -> str:
    return str(registry.select(PROBLEM).spec.schedule.pipeline)


def test_models_of_this_process_count_at_once(place: Path, clock: Clock) -> None:
    registry, words = Registry(TARGET), sorted({one.schedule.pipeline for one in served()})
    assert tier(registry) == "heuristic"
    (place / "models").mkdir()
    file = place / "models" / f"a{model_files.ENDING}"
    for preferred in (words[0], words[-1]):
        model_files.write(file, model(preferred))
        assert (tier(registry), pipeline(registry)) == ("model", preferred)


def test_models_that_are_put_there_or_written_over_count_when_a_look_is_due(place: Path, clock: Clock) -> None:
    registry, words = Registry(TARGET), sorted({one.schedule.pipeline for one in served()})
    first, last = written(place, words[0]), written(place, words[-1])
    file = place / "models" / f"a{model_files.ENDING}"
    assert tier(registry) == "heuristic"
    file.write_bytes(first)
    assert tier(registry) == "heuristic"
    clock.pass_by()
    assert (tier(registry), pipeline(registry)) == ("model", words[0])
    file.write_bytes(last)  # in place: its folder does not change
    os.utime(file, ns=(1, 1))
    clock.pass_by()
    assert pipeline(registry) == words[-1]
    file.unlink()
    clock.pass_by()
    assert tier(registry) == "heuristic"


def test_lock_files_of_this_process_count_at_once_and_others_when_a_look_is_due(place: Path, clock: Clock) -> None:
    registry, specs, file = Registry(TARGET), served(), place / "a.lock"
    with settings.override(lock=str(file)):
        for spec in (specs[-1], specs[0]):
            locks.write(file, [locks.pin(GEMM, TARGET, PROBLEM, spec)])
            chosen = registry.select(PROBLEM)
            assert (chosen.tier, chosen.spec.digest) == ("locked", spec.digest)
        locks.write(place / "b.lock", [locks.pin(GEMM, TARGET, PROBLEM, specs[-1])])
        registry.select(PROBLEM)
        (place / "b.lock").replace(file)
        assert registry.select(PROBLEM).spec.digest == specs[0].digest
        clock.pass_by()
        assert registry.select(PROBLEM).spec.digest == specs[-1].digest
    assert tier(registry) == "heuristic"


def age(folder: Path) -> None:
    """A folder that nobody has changed for long."""
    os.utime(folder, ns=(1, 1))


def test_where_there_was_nothing_one_question_is_asked(
    place: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, asked = Registry(TARGET), []
    age(place)
    tier(registry)
    clock.pass_by()
    tier(registry)  # now it is known that there is nothing
    monkeypatch.setattr(records.Records, "refresh", lambda *_: asked.append("records"))
    monkeypatch.setattr(learned, "stamp", lambda *_: asked.append("models"))
    clock.pass_by()
    tier(registry)
    assert not asked
    (place / "something").touch()  # a folder that changed just now may change again and look the same
    clock.pass_by()
    tier(registry)
    assert asked == ["records", "models"]


@pytest.mark.parametrize("what", ["records", "models", "a link to models"])
def test_what_comes_where_there_was_nothing_is_found(
    what: str, place: Path, clock: Clock, tmp_path_factory: pytest.TempPathFactory
) -> None:
    registry, word = Registry(TARGET), sorted({one.schedule.pipeline for one in served()})[0]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    if what == "a link to models":
        (place / "models").symlink_to(elsewhere / "models")
    for _ in range(3):
        age(place)
        assert tier(registry) == "heuristic"
        clock.pass_by()
    if what == "records":
        in_another_process(_MEASURE, place)
    else:
        data = written(elsewhere if what == "a link to models" else place, word)
        (place / "models" / f"a{model_files.ENDING}").write_bytes(data)
    clock.pass_by()
    assert tier(registry) == ("measured" if what == "records" else "model")
