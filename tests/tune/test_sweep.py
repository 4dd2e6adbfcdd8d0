"""Sweeps: every kernel of every problem becomes a row, whatever it does to the process that runs it."""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tune.failing import FailingBuilder
from tilewright import ops
from tilewright.backends.base import backend
from tilewright.build import Builder
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import OK, Result, Results
from tilewright.errors import CompileError, DeviceError, StoreError, ToolchainError
from tilewright.ops.base import KernelSpec, plain
from tilewright.runtime import host
from tilewright.runtime.timing import Method
from tilewright.tune import device_worker, quiet, worker
from tilewright.tune.device_worker import Built, DeviceWorker, DeviceWorkerLost, Outcome
from tilewright.tune.spent import Spent
from tilewright.tune.sweep import Options, Sweep, of_list
from tilewright.tune.worker_pool import WorkerPool, here

GEMM = ops.op("gemm")
PROBLEM = GEMM.problem({"m": 24, "n": 16, "k": 8})
QUICK = Method(rounds=2, sample_seconds=1e-4, seed=7)
TARGET = "generic"


def specs(count: int = 3) -> list[KernelSpec]:
    found = [one for one in GEMM.candidates(GEMM.signature_of(PROBLEM), TARGET) if not GEMM.supports(one, PROBLEM)]
    generic = GEMM.fallback_spec(GEMM.signature_of(PROBLEM), TARGET)
    return [*found, *([generic] if generic not in found else [])][:count]


def built(spec: KernelSpec, more: str = "") -> Built:
    """A kernel's library, with something more in it."""
    if not more:
        return Built(spec, Builder().build_one(spec).path)
    plain_source = backend("cpu").render(spec)
    source = replace(plain_source, text=f"#include <cstdlib>\n#include <unistd.h>\n{more}\n{plain_source.text}")
    return Built(spec, Builder().build_source(source, spec.arch, extra_key=more, op=spec.op).path)


ON_LOAD = "__attribute__((constructor)) static void planted() {{ {0} }}"
CRASH, HANG, LATER = (ON_LOAD.format(one) for one in ("abort();", "for (;;) pause();", "ualarm(60000, 0);"))


def outcomes(kernels: list[Built], method: Method = QUICK, **options: Any) -> dict[str, Any]:
    worker = DeviceWorker(TARGET, 1, **options)
    try:
        found = list(worker.measure(PROBLEM, kernels, method))
    finally:
        worker.close()
    assert len({one.digest for one in found}) == len(found) == len(kernels), "each kernel once"
    return {one.digest: one for one in found}


@pytest.fixture(scope="module")
def three() -> list[KernelSpec]:
    found = specs()
    assert len(found) >= 2
    return found


@pytest.mark.parametrize(("planted", "status"), [(CRASH, "crashed"), (HANG, "timeout")], ids=["crash", "hang"])
def test_a_kernel_that_ends_the_worker_costs_only_itself(three: list[KernelSpec], planted: str, status: str) -> None:
    kernels = [built(three[0]), built(three[1], planted), *map(built, three[2:])]
    found = outcomes(kernels, limit=3.0)
    bad = found[three[1].digest]
    assert bad.status == status
    assert ("SIGABRT" if status == "crashed" else "within 3 s") in bad.reason
    assert {one.status for digest, one in found.items() if digest != three[1].digest} == {OK}


def test_what_ends_the_worker_while_all_are_timed_is_found_by_running_each_alone(three: list[KernelSpec]) -> None:
    kernels = [built(three[0]), built(three[1], LATER)]
    found = outcomes(kernels, Method(rounds=40, sample_seconds=0.05, seed=1))
    assert found[three[1].digest].status == "crashed"
    assert "SIGALRM" in found[three[1].digest].reason
    assert found[three[0].digest].status == OK
    assert found[three[0].digest].seconds > 0


def test_a_library_of_another_kernel_is_refused(three: list[KernelSpec]) -> None:
    found = outcomes([Built(three[0], built(three[1]).library), built(three[1])])
    assert found[three[0].digest].status == "refused"
    assert found[three[0].digest].reason
    assert found[three[1].digest].status == OK


# A launch that does nothing and says that all is well.
IDLE = """
#include <tilewright/export.h>
static int idle(const void *, void *, void *) { return 0; }
#undef TW_EXPORT_STRUCT
#define TW_EXPORT_STRUCT(Manifest, ...) \\
  TW_EXPORT_KERNEL(Manifest, (__VA_ARGS__::check), (__VA_ARGS__::workspace), idle, \\
                   (__VA_ARGS__::packed_bytes), (__VA_ARGS__::pack), (__VA_ARGS__::clear_bytes))
"""


def test_a_wrong_kernel_is_never_timed(three: list[KernelSpec]) -> None:
    found = outcomes([built(three[0], IDLE), built(three[1])])
    bad = found[three[0].digest]
    assert (bad.status, bad.seconds) == ("wrong", None)
    assert "elements are wrong" in bad.reason
    assert found[three[1].digest].status == OK


# One that is right when it is checked, and idle from its second call on.
LAZY = IDLE.replace(
    "static int idle(const void *, void *, void *) { return 0; }",
    """static int (*working)(const void *, void *, void *);
static int idle(const void *args, void *workspace, void *stream) {
  static int calls = 0;
  return calls++ ? 0 : working(args, workspace, stream);
}""",
).replace(
    "TW_EXPORT_KERNEL(Manifest",
    "[[maybe_unused]] static int said = ((working = __VA_ARGS__::launch), 0); TW_EXPORT_KERNEL(Manifest",
)


def test_a_kernel_that_is_right_once_and_then_does_nothing_is_wrong(three: list[KernelSpec]) -> None:
    """It would be the fastest of all.  (Here it is alone: on a busy machine another may lead by chance.)"""
    bad = outcomes([built(three[0], LAZY)])[three[0].digest]
    assert (bad.status, bad.seconds) == ("wrong", None)
    assert "right at first" in bad.reason


def sweep(store: Results, kernels: list[KernelSpec], problems: list[Any], **options: Any) -> list[Result]:
    rows: list[Result] = []
    one = Sweep(GEMM, TARGET, store, Options(method=QUICK, patience=0.0, **options))
    one.run(one.plan(problems, of_list(GEMM, kernels)), on_row=lambda row, _: rows.append(row))
    return rows


def test_a_sweep_goes_on_where_it_ended_and_costs_only_what_is_new(tmp_path: Path, three: list[KernelSpec]) -> None:
    store = Results(tmp_path / "r.db")
    other = GEMM.problem({"m": 7, "n": 5, "k": 3})
    first = sweep(store, three[:2], [PROBLEM])
    assert [one.status for one in first] == [OK, OK]
    assert all(one.error is not None and one.error <= 1 and (one.non_zero or 0) > 0 for one in first)
    assert sweep(store, three[:2], [PROBLEM]) == []
    again = sweep(store, three, [PROBLEM, other])
    assert len(again) == len(three) - 2 + len([one for one in three if not GEMM.supports(one, other)])
    assert store.count() == len(first) + len(again)
    best = store.best("gemm", plain(PROBLEM), machine(TARGET)["fingerprint"], first[0].threads)
    assert best is not None
    assert best.seconds == min(one.seconds for one in store.of_problem("gemm", plain(PROBLEM)) if one.seconds)


def test_another_protocol_is_measured_again(tmp_path: Path, three: list[KernelSpec]) -> None:
    store = Results(tmp_path / "r.db")
    sweep(store, three[:1], [PROBLEM])
    one = Sweep(GEMM, TARGET, store, Options(method=Method(rounds=3, sample_seconds=1e-4, seed=7), patience=0.0))
    assert one.plan([PROBLEM], of_list(GEMM, three[:1])).total == 1
    assert store.count() == 1


def test_a_kernel_that_cannot_be_built_is_a_row(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.tune import build_queue

    monkeypatch.setattr(build_queue, "Builder", FailingBuilder)
    rows = sweep(Results(tmp_path / "r.db"), three[:2], [PROBLEM])
    assert {one.kernel.digest: one.status for one in rows} == {three[0].digest: "build-failed", three[1].digest: OK}
    assert next(one.reason for one in rows if one.status != OK) == "no such instruction"


@pytest.mark.parametrize("error", [StoreError, ToolchainError], ids=["no-room", "no-compiler"])
def test_what_is_no_kernel_s_fault_is_no_row_and_the_same_again_goes_on(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    """A disk that is full, a compiler that was taken away: kernels can be built once that is mended."""

    class Stopped(FailingBuilder):
        def build_many(self, specs: Any, **options: Any) -> Any:
            try:
                super().build_many(specs, **options)
            except CompileError:
                raise error("gone", rule="no-compiler", value="", remedy="") from None

    store = Results(tmp_path / "r.db")
    with monkeypatch.context() as patched:
        patched.setattr("tilewright.tune.build_queue.Builder", Stopped)
        with pytest.raises(error, match="gone"):
            sweep(store, three[:2], [PROBLEM])
    assert store.count() == 0
    assert [one.status for one in sweep(store, three[:2], [PROBLEM])] == [OK, OK]


def test_what_failed_is_measured_again_where_that_is_asked_for(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, wanted = Results(tmp_path / "r.db"), of_list(GEMM, three[:2])
    with monkeypatch.context() as patched:
        patched.setattr("tilewright.tune.build_queue.Builder", FailingBuilder)
        sweep(store, three[:2], [PROBLEM])
    usual = Sweep(GEMM, TARGET, store, Options(QUICK, patience=0.0)).plan([PROBLEM], wanted)
    assert (usual.total, usual.known, dict(usual.failed)) == (0, 2, {"build-failed": 1})
    again = Sweep(GEMM, TARGET, store, Options(QUICK, patience=0.0, retry=True))
    work = again.plan([PROBLEM], wanted)
    assert [one.specs for one in work.items] == [(three[0],)]
    assert (work.known, dict(work.failed)) == (1, {})
    again.run(work)
    assert {one.status for one in store.all()} == {OK}
    assert again.plan([PROBLEM], wanted).total == 0


def test_no_kernel_s_limit_pays_for_the_host_s_team(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker compiles it where it never was; `at` a kernel begins afterwards."""
    said: list[Any] = []

    def team(_: int) -> int:
        said.append("team")
        return 0

    monkeypatch.setattr(host, "team", team)
    kernels = [{"digest": one.spec.digest, "spec": one.spec.to_dict(), "library": str(one.library)}
               for one in (built(three[0]),)]  # fmt: skip
    request = {"op": "gemm", "problem": plain(PROBLEM), "target": TARGET, "index": None, "threads": 2,
               "method": plain(QUICK), "kernels": kernels}  # fmt: skip
    worker._serve(request, said.append, Spent(), worker._Known())
    named = [one for one in said if one == "team" or "at" in one]
    assert named[:3] == [named[0], "team", {"at": three[0].digest}]


def test_workers_start_while_kernels_are_built_and_end_where_that_fails(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = DeviceWorker(TARGET, 1, fingerprint=machine(TARGET)["fingerprint"])
    one = Sweep(GEMM, TARGET, Results(tmp_path / "r.db"), Options(QUICK, patience=0.0), pool_of(worker))
    work = one.plan([PROBLEM], of_list(GEMM, three[:1]))
    seen: list[int | None] = []

    def interrupted(_: Any) -> None:
        seen.append(worker._pid)
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.tune.sweep.BuildQueue.build_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.run(work)
    assert seen[0], "its worker is on the way"
    assert worker._pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


# -- devices that are lost -----------------------------------------------------------------------------------


class Frail(DeviceWorker):
    """A worker whose worker's answers can be changed on the way: what a device that is gone would say."""

    def __init__(self, changed: Callable[[int, Mapping[str, Any]], Mapping[str, Any]]) -> None:
        super().__init__(TARGET, 1, fingerprint=machine(TARGET)["fingerprint"])
        self._changed, self._seen = changed, 0

    def _demand_device(self, answer: Mapping[str, Any]) -> None:
        if "device" in answer:
            self._seen += 1
        super()._demand_device(self._changed(self._seen, answer))


def pool_of(*workers: Any) -> WorkerPool:
    return replace(here(TARGET, limit=30.0, patience=0.0, jobs=1), workers=workers)


def gone(seen: int, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"lost": "no device answers"} if seen > 1 else answer


def another(seen: int, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**answer, "device": "0123456789abcdef"} if "device" in answer and seen > 1 else answer


@pytest.mark.parametrize(("changed", "said"), [(gone, "no device answers"), (another, "is another device now")])
def test_a_lost_device_stops_the_sweep_and_keeps_its_rows(
    tmp_path: Path, three: list[KernelSpec], changed: Any, said: str
) -> None:
    store = Results(tmp_path / "r.db")
    other = GEMM.problem({"m": 7, "n": 5, "k": 3})
    notes: list[str] = []
    one = Sweep(GEMM, TARGET, store, Options(QUICK, patience=0.0), pool_of(Frail(changed)))
    work = one.plan([PROBLEM, other], of_list(GEMM, three[:2]))
    with pytest.raises(DeviceError, match=said) as caught:
        one.run(work, on_lost=notes.append)
    assert caught.value.rule == "device-lost"
    assert "the same command goes on" in caught.value.remedy
    assert [said in note for note in notes] == [True]
    assert {(row.status, row.problem["m"]) for row in store.all()} == {(OK, PROBLEM.m)}, "no row says a lie"
    left = one.plan([PROBLEM, other], of_list(GEMM, three[:2]))
    assert (left.known, left.total) == (store.count(), work.total - store.count())


def test_another_device_does_what_a_lost_one_left(tmp_path: Path, three: list[KernelSpec]) -> None:
    store = Results(tmp_path / "r.db")
    problems = [GEMM.problem({"m": size, "n": 5, "k": 3}) for size in range(1, 5)]
    notes: list[str] = []
    lost = threading.Event()

    class Later(DeviceWorker):
        def open(self) -> None:
            assert lost.wait(60), "the other one is lost first"

    def on_lost(text: str) -> None:
        notes.append(text)
        lost.set()

    one = Sweep(GEMM, TARGET, store, Options(QUICK, patience=0.0), pool_of(Frail(gone), Later(TARGET, 1)))
    work = one.plan(problems, of_list(GEMM, three[:2]))
    one.run(work, on_lost=on_lost)
    assert len(notes) == 1
    assert store.count() == work.total
    assert {row.status for row in store.all()} == {OK}


class Deadly:
    """A worker that is lost whenever it meets one kernel."""

    name = "that device"

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self.spent = Spent()

    def versions(self, spec: KernelSpec) -> Mapping[str, str]:
        return {}

    def prepare(self) -> None: ...

    def open(self) -> None: ...

    def measure(self, problem: Any, kernels: Sequence[Built], method: Method) -> Iterator[Outcome]:
        for one in kernels:
            if one.spec.digest == self._digest:
                raise DeviceWorkerLost("it fell off the bus")
            yield Outcome(one.spec.digest, OK, seconds=1.0)

    def close(self) -> None: ...


def test_a_kernel_that_costs_one_device_after_another_is_blamed_in_the_end(
    tmp_path: Path, three: list[KernelSpec]
) -> None:
    store = Results(tmp_path / "r.db")
    bad = three[0].digest
    one = Sweep(GEMM, TARGET, store, Options(QUICK, patience=0.0), pool_of(*(Deadly(bad) for _ in range(6))))
    one.run(one.plan([PROBLEM], of_list(GEMM, three[:2])))
    rows = {row.kernel.digest: row for row in store.all()}
    assert rows.keys() == {one.digest for one in three[:2]}
    assert (rows[bad].status, rows[three[1].digest].status) == ("crashed", OK)
    assert "2 devices were lost over it: it fell off the bus" in rows[bad].reason


@pytest.mark.parametrize("lost", [False, True], ids=["too large", "device gone"])
def test_operands_that_cannot_be_made_are_told_from_a_device_that_is_gone(
    three: list[KernelSpec], lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker says where a problem does not fit, and what the next one says of the device then."""
    worker = DeviceWorker(TARGET, 1)
    answers = [{"at": "", "device": "f"}, {"unmade": "no memory", "device_error": True}]
    answers += [{"lost": "gone"}] if lost else [{"at": "", "device": "f"}, {"done": True}]

    class Scripted:
        pid = 0

        def started(self) -> None: ...

        def send(self, request: Any) -> None: ...

        def read(self, limit: float) -> Any:
            return answers.pop(0)

        def close(self) -> None: ...

    monkeypatch.setattr(device_worker, "_WorkerProcess", Scripted)
    asked = worker.measure(PROBLEM, [Built(one, Path("x")) for one in three[:2]], QUICK)
    if lost:
        with pytest.raises(DeviceWorkerLost, match="gone"):
            list(asked)
    else:
        assert [(one.status, one.reason) for one in asked] == [("refused", "no memory")] * 2
    assert not answers


def test_a_worker_that_others_end_says_nothing_about_a_kernel(
    three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator would, or a system short of memory: twice while a kernel is checked, once while all race."""
    moments = ["at", "at", "race"]
    read = device_worker._WorkerProcess.read

    def kills(self: Any, limit: float) -> Any:
        answer = read(self, limit)
        if moments and answer.get(moments[0]):
            moments.pop(0)
            os.kill(self._process.pid, signal.SIGKILL)
        return answer

    monkeypatch.setattr(device_worker._WorkerProcess, "read", kills)
    found = outcomes([built(one) for one in three[:2]])
    assert not moments
    assert {one.status for one in found.values()} == {OK}


def test_a_worker_that_is_killed_while_it_starts_is_not_waited_for(three: list[KernelSpec]) -> None:
    worker = DeviceWorker(TARGET, 1)
    try:
        worker.prepare()
        assert worker._pid is not None
        os.kill(worker._pid, signal.SIGKILL)
        worker.open()
        assert worker._pid is None, "nobody waits for the words of a process that is gone"
        assert [one.status for one in worker.measure(PROBLEM, [built(three[0])], QUICK)] == [OK]
    finally:
        worker.close()


def test_workers_that_do_not_even_start_blame_no_kernel(
    tmp_path: Path, three: list[KernelSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    built(three[0])
    monkeypatch.setattr(sys, "executable", "/bin/false")
    store = Results(tmp_path / "r.db")
    with pytest.raises(DeviceError, match="its workers do not start: ended with status 1"):
        sweep(store, three[:1], [PROBLEM])
    assert store.count() == 0


# -- power cuts and kills ------------------------------------------------------------------------------------


def test_a_power_cut_leaves_whole_rows_and_the_sweep_goes_on(tmp_path: Path, three: list[KernelSpec]) -> None:
    """The log of a store ends at any byte, as on a disk that did not get the rest."""
    store = Results(tmp_path / "r.db")
    problems = [GEMM.problem({"m": size, "n": 5, "k": 3}) for size in range(1, 5)]
    log, ends = Path(f"{store.path}-wal"), [0]
    for problem in problems:
        sweep(store, three[:2], [problem], batch=1)
        ends.append(log.stat().st_size)
    assert sorted(set(ends)) == ends, "every row is still in the log"
    rows = {(one.kernel.digest, one.problem["m"]): one for one in store.all()}
    written, main = log.read_bytes(), store.path.read_bytes()
    draw = random.Random(20261115)
    kept = {}
    for turn, length in enumerate([*ends, *(draw.randrange(len(written)) for _ in range(8))]):
        cut = Results(tmp_path / f"cut{turn}.db")
        cut.path.write_bytes(main)
        Path(f"{cut.path}-wal").write_bytes(written[:length])
        assert cut.check() == []
        found = {(one.kernel.digest, one.problem["m"]): one for one in cut.all()}
        assert all(rows[key] == one for key, one in found.items())
        kept[length] = len(found)
        one = Sweep(GEMM, TARGET, cut, Options(method=QUICK, patience=0.0, batch=1))
        assert one.plan(problems, of_list(GEMM, three[:2])).total == len(rows) - len(found)
    assert [kept[end] for end in ends] == [0, 2, 4, 6, 8], "what was told before the cut is there"
    assert sorted(kept.values()) == [kept[length] for length in sorted(kept)], "a longer log never holds less"
    sweep(cut, three[:2], problems, batch=1)
    assert {(one.kernel.digest, one.problem["m"]) for one in cut.all()} == rows.keys()


def test_a_store_that_was_only_begun_is_an_empty_one(tmp_path: Path, three: list[KernelSpec]) -> None:
    (tmp_path / "r.db").touch()
    store = Results(tmp_path / "r.db")
    assert store.count() == 0
    assert len(sweep(store, three[:1], [PROBLEM])) == 1


@pytest.mark.proof
def test_kills_at_random_moments_lose_no_finished_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of those that benchmarks/kills.py makes two hundred of."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    kills = importlib.import_module("kills")
    tried = kills.Tried(seed=20261115, kills=4, problems=12, folder=tmp_path, longest=2.0)
    count = tried.run()
    assert sum(count.kills.values()) == 4
    assert count.told > 0
    assert count.right, count


# -- a quiet machine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_use", "ours", "patience", "noise", "waits"),
    [(1.9, 1.8, 5.0, 0.05, False), (1.9, 0.9, 5.0, 0.0, True), (1.9, 0.9, 0.0, 0.5, False)],
    ids=["only we", "others too", "others, no patience"],
)
def test_what_others_use_is_seen_while_we_measure(
    monkeypatch: pytest.MonkeyPatch, in_use: float, ours: float, patience: float, noise: float, waits: bool
) -> None:
    """Two seconds of all cores: who used them, and whether the next measurement waits for it."""
    looks: list[float] = []
    used, own = iter([(10.0, 5.0), (12.0, 5.0 + in_use)]), iter([1.0, 1.0 + ours])

    def settle(patience: float, waiting: Any = None) -> float:
        looks.append(patience)
        return 0.0

    monkeypatch.setattr(quiet, "settle", settle)
    monkeypatch.setattr(quiet, "_used", lambda: next(used))
    monkeypatch.setattr(quiet, "_ours", lambda worker: next(own))
    others = quiet.Others()
    others.begin(1)
    others.end(1)
    assert others.settle(patience) == pytest.approx(noise)
    assert bool(looks) == waits


def test_a_wait_for_a_quiet_machine_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shares, told = iter([0.9, 0.8, 0.1]), list[float]()
    monkeypatch.setattr(quiet, "busy", lambda: next(shares))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert quiet.settle(5.0, told.append) == 0.1
    assert told == [0.9]
    monkeypatch.setattr(quiet, "busy", lambda: 0.9)
    quiet.settle(0.0, told.append)
    assert told == [0.9], "without patience nobody waits"


def test_a_worker_starts_with_little() -> None:
    """Every sweep waits for one: it chooses, builds and stores nothing."""
    told = "import sys, tilewright.tune.worker; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    needless = ("tilewright.dispatch", "tilewright.build", "sqlite3", "typer", "pydantic")
    assert not [one for one in needless if one in loaded]
