"""Measured choices: kept whole, merged, ignored when they cannot be believed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tilewright as tw
from tilewright import events, ops, settings
from tilewright.dispatch import measure
from tilewright.dispatch.looks import stamp
from tilewright.dispatch.records import Record, Records, Timing, machine
from tilewright.dispatch.results import Results
from tilewright.dispatch.selection import Selection
from tilewright.errors import InternalError, NoKernelError, StoreError
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime import timing
from tilewright.runtime.checked_runs import CheckedKernel

GEMM = ops.op("gemm")
PROBLEM = tw.GemmProblem(m=16, n=24, k=8)
GENERIC = GEMM.fallback_spec(PROBLEM.signature, "generic")


def record(spec: KernelSpec, problem: tw.GemmProblem = PROBLEM, target: str = "", **changes: Any) -> Record:
    values: dict[str, Any] = {
        "op": "gemm",
        "problem": plain(problem),
        "threads": 1,
        "target": target or tw.Registry().target,
        "choice": spec.digest,
        "timings": (Timing(spec.digest, spec.name, spec.to_dict(), 1e-6, 0.01, 0.1),),
        "method": {"rounds": 1},
        "versions": {"tilewright": "0"},
    }
    return Record(**{**values, **changes})


def choice(registry: tw.Registry, problem: tw.GemmProblem = PROBLEM) -> Selection:
    return registry.select_stage(problem, threads=1)


def test_a_record_decides(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        registry = tw.Registry()
        before = choice(registry)
        other = next(one for one in (*registry.candidates(PROBLEM), GENERIC) if one != before.spec)
        Records(tmp_path).put(record(other))
        after = choice(registry)
        assert (after.spec, after.tier, after.seconds) == (other, "measured", 1e-6)
        assert choice(registry, dataclasses.replace(PROBLEM, a_stride=100)).tier == "measured"
        assert choice(registry, dataclasses.replace(PROBLEM, m=17)).tier == "heuristic"
        assert registry.select(PROBLEM, threads=2).tier == "heuristic"
        with settings.override(measure=False):
            assert choice(registry) == before


def test_a_winner_that_was_not_registered_is_not_used(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        registry = tw.Registry(specs=[tw.Registry().candidates(PROBLEM)[0]])
        Records(tmp_path).put(record(GENERIC))
        assert choice(registry).tier == "heuristic"


def test_another_machines_record_is_kept_but_not_used(tmp_path: Path) -> None:
    foreign = record(GENERIC, machine={**machine(), "fingerprint": "elsewhere"})
    with settings.override(cache_dir=tmp_path):
        table = Records(tmp_path)
        table.put(foreign)
        assert choice(tw.Registry()).tier == "heuristic"
        table.put(record(GENERIC))
        assert choice(tw.Registry()).tier == "measured"
        assert len(Records(tmp_path).all()) == 2


def test_a_record_of_the_same_problem_is_replaced(tmp_path: Path) -> None:
    table = Records(tmp_path)
    table.put(record(GENERIC))
    table.put(record(GENERIC, date=5.0))
    table.put(record(GENERIC, threads=2))
    assert sorted((one.threads, one.date == 5.0) for one in Records(tmp_path).all()) == [(1, True), (2, False)]


def test_records_say_where_they_come_from(tmp_path: Path) -> None:
    Records(tmp_path).put(record(GENERIC))
    data = Records(tmp_path).all()[0].to_dict()
    assert data["problem"]["m"] == 16
    assert data["machine"]["model"]
    assert data["timings"][0]["spec"]["op"] == "gemm"
    assert {"choice", "date", "method", "op", "target", "threads", "versions"} <= data.keys()


DAMAGED = {
    "no database": b"{" * 5000,
    "a store cut short": None,
    "a page of it overwritten": None,
    "short": b"SQLite",
}


def damaged(folder: Path, kind: str) -> bytes:
    """What a store of the kind holds."""
    if DAMAGED[kind] is not None:
        return DAMAGED[kind] or b""
    sound = Records(folder / "sound")
    for size in range(40):
        sound.put(record(GENERIC, dataclasses.replace(PROBLEM, m=size + 1)))
    sound.results.close()
    data = bytearray(sound.path.read_bytes())
    assert not Path(f"{sound.path}-wal").exists(), "the last to close it writes everything to the file"
    if kind == "a store cut short":
        return bytes(data[: len(data) // 2])
    data[1024:] = b"\xaa" * len(data[1024:])
    return bytes(data)


@pytest.mark.parametrize("kind", DAMAGED)
def test_an_unreadable_store_is_reported_once_ignored_and_never_written_over(tmp_path: Path, kind: str) -> None:
    data = damaged(tmp_path, kind)
    folder = tmp_path / "cache"
    folder.mkdir()
    with settings.override(cache_dir=folder):
        place = Records(folder).path
        place.write_bytes(data)
        registry = tw.Registry()
        with events.recorded() as heard:
            with pytest.warns(RuntimeWarning, match="are ignored"):
                assert choice(registry).tier == "heuristic"
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert choice(registry, dataclasses.replace(PROBLEM, m=3)).tier == "heuristic"
        assert [one.rule for one in heard if isinstance(one, events.Warned)] == ["records-unreadable"]
        with pytest.warns(RuntimeWarning, match="it is kept as"):
            Records(folder).put(record(GENERIC))
        assert choice(tw.Registry()).tier == "measured"  # the next measurement starts a sound store
        (aside,) = folder.glob("*.unreadable-*")
        assert aside.read_bytes() == data


def foreign_store(path: Path, *statements: str) -> bytes:
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as made:
        for one in statements:
            made.execute(one)
        made.commit()
    return path.read_bytes()


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE theirs(x)",),
        ("PRAGMA application_id = 77",),
        ("PRAGMA application_id = 1415007314", "PRAGMA user_version = 99"),
    ],
    ids=["another program", "another owner", "a newer schema"],
)
def test_a_store_of_others_is_ignored_and_left_alone(tmp_path: Path, statements: tuple[str, ...]) -> None:
    with settings.override(cache_dir=tmp_path):
        table = Records(tmp_path)
        before = foreign_store(table.path, *statements)
        with pytest.warns(RuntimeWarning, match="are ignored"):
            assert choice(tw.Registry()).tier == "heuristic"
        with pytest.raises(StoreError, match="not written over") as caught:
            table.put(record(GENERIC))
        assert caught.value.rule == "records-unreadable"
        assert table.path.read_bytes() == before


# -- the JSON file that kept records before there was a store ---------------------------------------------


def legacy(folder: Path, items: list[Any], schema: int = 1) -> Path:
    place = folder / "measured-v1.json"
    place.write_text(json.dumps({"schema": schema, "records": items}))
    return place


def test_older_records_move_into_the_store_once(tmp_path: Path) -> None:
    sizes = (101, 102)
    place = legacy(tmp_path, [record(GENERIC, dataclasses.replace(PROBLEM, m=one)).to_dict() for one in sizes])
    text = place.read_text()
    with settings.override(cache_dir=tmp_path):
        assert choice(tw.Registry(), dataclasses.replace(PROBLEM, m=101)).tier == "measured"
    assert sorted(one.problem["m"] for one in Records(tmp_path).all()) == [101, 102]
    assert not place.exists()
    assert (tmp_path / "measured-v1.json.moved-1").read_text() == text


def test_what_was_measured_since_is_not_overwritten_by_what_moves(tmp_path: Path) -> None:
    Records(tmp_path).put(record(GENERIC, date=10.0))
    legacy(tmp_path, [record(GENERIC, date=5.0).to_dict()])
    assert [one.date for one in Records(tmp_path).all()] == [10.0]


def spoiled(**changes: Any) -> dict[str, Any]:
    return {**record(GENERIC).to_dict(), **changes}


SPOILED: dict[str, Any] = {
    "a field missing": {"op": "gemm"},
    "no object": 7,
    "a choice it has not timed": spoiled(choice="0" * 64),
    "threads as text": spoiled(threads="1"),
    "a problem that is a list": spoiled(problem=[1, 2]),
    "timings of nothing": spoiled(timings=[]),
    "a timing without an end": spoiled(timings=[{**record(GENERIC).to_dict()["timings"][0], "seconds": float("inf")}]),
    "a timing that is text": spoiled(timings=["fast"]),
    "a machine that is text": spoiled(machine="mine"),
    "a date beyond all calendars": spoiled(date=1e300),
    "half a character": spoiled(op="\ud800"),
}


@pytest.mark.parametrize("raw", SPOILED.values(), ids=SPOILED.keys())
def test_a_damaged_record_costs_no_other_and_is_kept_as_it_is(tmp_path: Path, raw: Any) -> None:
    others = [record(GENERIC, dataclasses.replace(PROBLEM, m=size)).to_dict() for size in (101, 102, 103)]
    legacy(tmp_path, [others[0], raw, *others[1:]])
    fresh = Records(tmp_path)
    with pytest.warns(RuntimeWarning, match="1 of 4 measurement records"):
        assert [one.problem["m"] for one in fresh.all()] == [101, 102, 103]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was told once
        fresh.refresh()
        assert len(Records(tmp_path).all()) == 3
    kept = json.loads((tmp_path / "measured-v1.json.moved-1").read_text())["records"]
    assert len(kept) == 4


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": 1, "records": {}}', "[" * 5000, "", "\0\1", '{"records": [{}], "records": []}']
)
def test_an_older_file_that_cannot_be_read_is_told_once_and_stays(tmp_path: Path, text: str) -> None:
    place = tmp_path / "measured-v1.json"
    place.write_text(text)
    table = Records(tmp_path)
    with pytest.warns(RuntimeWarning, match="are ignored"):
        table.refresh()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.refresh()
        table.put(record(GENERIC))
        assert len(table.all()) == 1
    assert place.read_text() == text


# -- what the system does ----------------------------------------------------------------------------------


def test_what_the_system_does_not_let_us_read_is_not_written_over(tmp_path: Path) -> None:
    table = Records(tmp_path)
    table.path.mkdir()  # as good as a file without permission, also for root
    (table.path / "precious").write_text("x")
    with pytest.raises(StoreError) as caught:
        table.put(record(GENERIC))
    assert caught.value.rule in ("records-unreadable", "records-unwritable")
    assert (table.path / "precious").exists()


def test_a_pipe_is_not_read_for_ever(tmp_path: Path) -> None:
    table = Records(tmp_path)
    os.mkfifo(table.path)
    with pytest.warns(RuntimeWarning, match="regular"):
        table.refresh()


def test_a_store_another_process_holds_is_an_error_and_no_merge(tmp_path: Path) -> None:
    import sqlite3

    table = Records(tmp_path)
    table.put(record(GENERIC))
    other = Records(tmp_path)
    other.results = Results(other.path, patience=0.05)
    with contextlib.closing(sqlite3.connect(table.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="held by another process") as caught:
            other.put(record(GENERIC, dataclasses.replace(PROBLEM, m=5)))
        holder.execute("ROLLBACK")
    assert caught.value.rule == "records-locked"
    assert len(Records(tmp_path).all()) == 1
    other.put(record(GENERIC, dataclasses.replace(PROBLEM, m=5)))
    assert len(Records(tmp_path).all()) == 2


def test_a_forked_child_reads_and_writes_with_its_own_connection(tmp_path: Path) -> None:
    table = Records(tmp_path)
    table.put(record(GENERIC))
    child = os.fork()
    if child == 0:
        try:
            table.put(record(GENERIC, dataclasses.replace(PROBLEM, m=5)))
            os._exit(0 if len(table.all()) == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(table.all()) == 2


def test_a_store_in_a_folder_nobody_may_write_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Records(tmp_path)
    table.put(record(GENERIC))
    table.results.close()
    monkeypatch.setattr(os, "access", lambda _, mode: mode == os.F_OK)  # root may write everywhere
    assert len(Records(tmp_path).all()) == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["results-v1.db"]


@dataclasses.dataclass(frozen=True)
class Window:
    size: tuple[int, ...]
    dilation: int | None = None


@dataclasses.dataclass(frozen=True)
class OddProblem:
    """Of no op of ours: what convolution and attention will look like."""

    op: ClassVar[str] = "odd"

    spatial: tuple[int, ...]
    window: Window
    causal: bool | None = None


def test_a_problem_of_any_shape_finds_its_record_again(tmp_path: Path) -> None:
    """Tuples came back as lists, which cannot be hashed: one saved record broke selection for every op."""
    problems = [
        OddProblem((3, 4, 5), Window((2, 2))),
        OddProblem((3, 4), Window((2, 2))),
        OddProblem((3, 4, 5), Window((2, 2), 1)),
        OddProblem((3, 4, 5), Window((2, 2)), causal=True),
    ]
    table = Records(tmp_path)
    for number, problem in enumerate(problems):
        table.put(record(GENERIC, op="odd", problem=plain(problem), target="generic", date=float(number)))
    for source in (table, Records(tmp_path)):
        source.refresh()
        found = [source.lookup("odd", one, "generic", 1) for one in problems]
        assert [one.date for one in found if one is not None] == [0.0, 1.0, 2.0, 3.0]
        assert source.lookup("odd", OddProblem((9,), Window(())), "generic", 1) is None
        assert source.unused("odd", problems[0], "generic", 2)
    with settings.override(cache_dir=tmp_path):
        assert choice(tw.Registry()).tier == "heuristic"


def test_records_can_be_forgotten_and_merged(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    small, large = (dataclasses.replace(PROBLEM, m=size) for size in (1, 1000))
    here.put(record(GENERIC, small, date=10.0))
    there.put(record(GENERIC, small, date=5.0))
    there.put(record(GENERIC, large, date=5.0))
    assert here.merge(there.all(), newest=True) == 1
    assert sorted((one.problem["m"], one.date) for one in here.all()) == [(1, 10.0), (1000, 5.0)]
    assert here.merge(there.all()) == 2
    assert sorted((one.problem["m"], one.date) for one in here.all()) == [(1, 5.0), (1000, 5.0)]
    assert here.forget(lambda one: one.problem["m"] == 1) == 1
    assert [one.problem["m"] for one in Records(tmp_path / "here").all()] == [1000]
    before = stamp(str(here.path))
    assert here.forget(lambda one: False) == 0
    assert stamp(str(here.path)) == before, "nothing to do writes nothing"


def test_a_spec_of_an_older_schema_is_passed_over(tmp_path: Path) -> None:
    old = {**GENERIC.to_dict(), "schema": 0}
    written = Timing(GENERIC.digest, GENERIC.name, old, 1e-6, 0.0, 0.0)
    with settings.override(cache_dir=tmp_path):
        Records(tmp_path).put(record(GENERIC, timings=(written,)))
        assert choice(tw.Registry()).tier == "heuristic"


def test_threads_and_processes_lose_no_record(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tilewright.dispatch.records import Records\n"
        "from tilewright.ops.gemm import GemmProblem\n"
        "from tilewright.dispatch.records import Record, Timing\n"
        "from tilewright.ops.base import plain\n"
        "table = Records(Path(sys.argv[1]))\n"
        "for i in range(5):\n"
        "    p = GemmProblem(m=int(sys.argv[2]) * 100 + i, n=1, k=1)\n"
        "    t = Timing('d', 'n', {}, 1.0, 0.0, 0.0)\n"
        "    table.put(Record('gemm', plain(p), 1, 'generic', 'd', (t,), {}, {}))\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(index)]) for index in range(3)]
    table = Records(tmp_path)

    def put(index: int) -> None:
        for turn in range(5):
            table.put(record(GENERIC, dataclasses.replace(PROBLEM, m=9000 + 10 * index + turn)))

    threads = [threading.Thread(target=put, args=(index,)) for index in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [one.wait(60) for one in processes] == [0, 0, 0]
    assert len(Records(tmp_path).all()) == 30
    assert [one.name for one in tmp_path.iterdir() if one.suffix == ".part"] == []


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        Records(tmp_path / "file").put(record(GENERIC))
    assert caught.value.rule == "records-unwritable"
    assert "TILEWRIGHT_CACHE_DIR" in caught.value.remedy


# -- measuring -----------------------------------------------------------------------------------


def two_kernels() -> list[KernelSpec]:
    generic = [GEMM.fallback_spec(PROBLEM.signature, one) for one in ("generic", tw.Registry().target)]
    return generic if generic[0] != generic[1] else [generic[0], tw.Registry().candidates(PROBLEM)[0]]


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """Records of their own, kernels from the shared store."""
    from tilewright.dispatch import records as module

    table = Records(tmp_path)
    monkeypatch.setitem(module._known, settings.current().cache_dir, table)
    return table


def test_measuring_checks_times_and_remembers(apart: Records) -> None:
    specs = two_kernels()
    registry = tw.Registry(specs=specs)
    with events.recorded() as heard:
        found = registry.measure(PROBLEM, rounds=3)
    assert {one.digest for one in found.timings} == {spec.digest for spec in specs}
    assert all(one.seconds > 0 and 0 <= one.error <= 1 for one in found.timings)
    assert [one.seconds for one in found.timings] == sorted(one.seconds for one in found.timings)
    assert len([one for one in heard if isinstance(one, events.Measured)]) == 2
    chosen = registry.select(PROBLEM)
    assert (chosen.tier, chosen.spec.digest) == ("measured", found.choice)
    explanation = registry.explain(PROBLEM)
    assert all(one.measured_seconds is not None for one in explanation.candidates)
    assert apart.all()[0].versions["compiler"]


def test_a_measurement_reaches_calls_seen_before(apart: Records) -> None:
    specs = two_kernels()
    registry = tw.Registry(specs=specs)
    a, b = np.ones((16, 8), np.float32), np.ones((8, 24), np.float32)

    def used() -> str:
        registry.run("gemm", a, b)
        (plan,) = {planned.plan for planned in registry.plans().known.values()}
        return str(plan.selections[0].tier)

    assert [used(), used()] == ["heuristic", "heuristic"]
    registry.measure(PROBLEM, rounds=1)
    assert used() == "measured"


def test_measuring_without_saving_leaves_no_trace(apart: Records) -> None:
    registry = tw.Registry(specs=two_kernels())
    registry.measure(PROBLEM, rounds=1, save=False)
    assert not apart.path.exists()
    assert registry.select(PROBLEM).tier == "heuristic"


def test_a_wrong_kernel_is_never_timed(apart: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.runtime import samples

    specs = two_kernels()
    right = samples.runner

    def runner(bound: Any, kernel: Any, problem: Any, sample: Any, *more: Any) -> Any:
        run = right(bound, kernel, problem, sample, *more)
        if kernel.spec != specs[0]:
            return run

        def broken() -> None:
            run()
            next(one for one in reversed(sample.operands) if one is not None)[0, -1, -1] += 1

        return broken

    monkeypatch.setattr(samples, "runner", runner)
    with events.recorded() as heard:
        found = tw.Registry(specs=specs).measure(PROBLEM, rounds=1)
    assert [one.digest for one in found.timings] == [specs[1].digest]
    (warned,) = [one for one in heard if isinstance(one, events.Warned)]
    assert warned.rule == "wrong-result"
    assert specs[0].name in warned.message
    with pytest.raises(InternalError, match="none of 1 kernel"):
        tw.Registry(specs=specs[:1]).measure(PROBLEM)


def test_a_kernel_that_is_right_once_and_then_does_nothing_wins_nothing(
    apart: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.runtime import samples

    specs = two_kernels()
    right = samples.runner

    def runner(bound: Any, kernel: Any, problem: Any, sample: Any, *more: Any) -> Any:
        run = right(bound, kernel, problem, sample, *more)
        calls = itertools.count()

        def lazy() -> None:
            if next(calls) == 0:
                run()

        def slow() -> None:  # so that it does not lead on a busy machine
            time.sleep(0.003)
            run()

        return lazy if kernel.spec == specs[0] else slow

    monkeypatch.setattr(samples, "runner", runner)
    with events.recorded() as heard:
        found = tw.Registry(specs=specs).measure(PROBLEM, rounds=1)
    assert [one.digest for one in found.timings] == [specs[1].digest]
    assert [one.rule for one in heard if isinstance(one, events.Warned)] == ["wrong-result"]
    with pytest.raises(InternalError, match="none of 1 kernel"):
        tw.Registry(specs=specs[:1]).measure(PROBLEM, rounds=1)


def test_a_kernel_that_writes_nothing_is_seen(apart: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.runtime import samples

    right = samples.runner
    specs = two_kernels()

    def runner(bound: Any, kernel: Any, *more: Any) -> Any:
        run = right(bound, kernel, *more)
        return run if kernel.spec == specs[0] else lambda: None  # the other's result must not be taken for its own

    monkeypatch.setattr(samples, "runner", runner)
    found = tw.Registry(specs=specs).measure(PROBLEM, rounds=1, save=False)
    assert [one.digest for one in found.timings] == [specs[0].digest]


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(NoKernelError) as caught:
        tw.Registry(specs=[GENERIC]).measure(tw.GemmProblem(m=4, n=4, k=4, layout="ccr"))
    assert caught.value.rule == "nothing-to-measure"


def entrant(name: str, *samples: float) -> Any:
    made: Any = CheckedKernel
    return made([lambda: None], kernel=name, check=None, judged=None, non_zero=1, samples=list(samples))


def test_ties_keep_the_incumbent_and_real_wins_do_not() -> None:
    incumbent = entrant("incumbent", 1.0, 1.0, 1.0, 1.0)
    assert measure._winner([incumbent, entrant("new", 0.99, 0.99, 0.99, 0.99)]) is incumbent
    faster = entrant("new", 0.9, 0.9, 0.9, 0.9)
    assert measure._winner([incumbent, faster]) is faster
    # Scattered rounds cannot tell 5 % apart, and never hide a factor of two.
    unsteady = entrant("incumbent", 0.95, 0.99, 1.01, 1.05)
    assert measure._winner([unsteady, entrant("new", 0.90, 0.94, 0.96, 1.00)]) is unsteady
    wild = entrant("wild", 0.1, 0.5, 0.5, 3.0)
    assert measure._winner([incumbent, wild]) is wild


def test_rounds_are_interleaved() -> None:
    order: list[str] = []
    runners = [entrant(name) for name in "ab"]
    for one in runners:
        one.runs = [lambda name=one.kernel: order.append(name)]
    timing.race(runners, timing.Method(rounds=4, sample_seconds=0.0, warmups=1), timing.HostStopwatch(0))
    assert order == ["a", "b", "a", "b", "b", "a", "a", "b", "b", "a"]
    assert all(len(one.samples) == 4 for one in runners)
