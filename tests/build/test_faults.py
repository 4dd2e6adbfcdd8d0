"""Kills, races and crowds on one store: nothing is lost, nothing is half-written, the next run goes on."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.build.stubs import COPY, SLOW_COPY, Stub, in_child, tiny_specs, wait_code
from tilewright import settings
from tilewright.build import Builder, Store, compile_run, upkeep
from tilewright.errors import CompileError

UseStub = Callable[..., Stub]
SPECS = tiny_specs(6)


def assert_whole_and_clean(store: Store) -> None:
    """Every entry verifies, and a sweep leaves no work folder, lock or part of a file."""
    keys = list(store.all_keys())
    for key in keys:
        store.verify(key)
    upkeep.sweep(store)
    assert list(store.temporary.iterdir()) == []
    assert list(store.locks.iterdir()) == []
    assert [one.name for one in store.root.rglob("*.part")] == []
    assert list(store.all_keys()) == keys


@pytest.mark.parametrize("seed", range(12))
def test_a_kill_at_any_moment_loses_only_what_was_in_flight(store: Store, use_stub: UseStub, seed: int) -> None:
    use_stub(SLOW_COPY)
    chance = random.Random(seed)
    for _ in range(2):  # a second run may find the leavings of the first
        pid = in_child(lambda: Builder().build_many(SPECS))
        time.sleep(chance.uniform(0.0, 0.3))
        os.kill(pid, signal.SIGKILL)
        assert wait_code(pid) in (0, -signal.SIGKILL)
        for key in list(store.all_keys()):
            store.verify(key)
    built = Builder().build_many(SPECS)
    assert sorted(built) == sorted(one.digest for one in SPECS)
    assert_whole_and_clean(store)


def test_what_was_published_before_a_kill_is_not_compiled_again(store: Store, use_stub: UseStub) -> None:
    stub = use_stub(SLOW_COPY)
    pid = in_child(lambda: Builder().build_many(SPECS, max_workers=1))
    while len(list(store.all_keys())) < 2:
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    wait_code(pid)
    kept = [store.verify(key).manifest["name"] for key in store.all_keys()]
    assert len(kept) >= 2
    Builder().build_many(SPECS)
    times = Counter(stub.compiled())
    assert [times[f"{name}.cpp"] for name in kept] == [1] * len(kept)
    assert_whole_and_clean(store)


def test_ninja_does_not_go_on_for_a_dead_process(store: Store, use_stub: UseStub, tmp_path: Path) -> None:
    go = tmp_path / "go"
    stub = use_stub(f"while [ ! -e {go} ]; do sleep 0.01; done\n{COPY}")
    pid = in_child(lambda: Builder().build_many(SPECS, max_workers=1))
    while not stub.compiled():
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    wait_code(pid)
    go.touch()
    time.sleep(0.4)  # time enough for the other five, were ninja to go on
    assert len(stub.compiled()) == 1
    assert_whole_and_clean(store)


def _lives(pid: int) -> bool:
    """One that ended and waits for somebody to hear of it does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="who is alive is read from /proc")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("count", [1, 2], ids=["alone", "by ninja"])
def test_compilers_end_with_the_process_that_started_them(
    store: Store, use_stub: UseStub, tmp_path: Path, count: int, sign: signal.Signals
) -> None:
    """And so do their own programs: what does the work is a child of the compiler's driver."""
    pids = tmp_path / "pids"
    use_stub(f"sleep 600 & echo $$ $! >> {pids}; wait")
    specs = SPECS[:count]
    builder = in_child(lambda: Builder().build_one(specs[0]) if count == 1 else Builder().build_many(specs))
    deadline = time.monotonic() + 60
    while len(started := pids.read_text().split() if pids.exists() else []) < 2 * count:
        assert time.monotonic() < deadline, "the compilers have not begun"
        time.sleep(0.005)
    os.kill(builder, sign)
    wait_code(builder)
    deadline = time.monotonic() + 20
    while living := [int(one) for one in started if _lives(int(one))]:
        if time.monotonic() > deadline:
            for one in living:
                os.kill(one, signal.SIGKILL)
            raise AssertionError(f"{len(living)} of {len(started)} processes went on for nobody")
        time.sleep(0.01)
    assert_whole_and_clean(store)


@pytest.mark.parametrize("repetition", range(4))
def test_eight_processes_on_a_cold_store_compile_each_kernel_once(
    store: Store, use_stub: UseStub, repetition: int
) -> None:
    stub = use_stub(SLOW_COPY)

    def body() -> None:
        built = Builder().build_many(SPECS)
        for artifact in built.values():
            assert (
                artifact.path.read_bytes() == artifact.path.with_name(f"{artifact.manifest['name']}.cpp").read_bytes()
            )

    children = [in_child(body) for _ in range(8)]
    assert [wait_code(pid) for pid in children] == [0] * 8
    assert Counter(stub.compiled()) == {f"{one.name}.cpp": 1 for one in SPECS}
    assert_whole_and_clean(store)


@pytest.mark.parametrize("seed", range(4))
def test_a_crowd_survives_the_killing_of_some(store: Store, use_stub: UseStub, seed: int) -> None:
    use_stub(SLOW_COPY)
    chance = random.Random(seed)
    children = [in_child(lambda: Builder().build_many(SPECS)) for _ in range(8)]
    for pid in children[:3]:
        time.sleep(chance.uniform(0.0, 0.08))
        os.kill(pid, signal.SIGKILL)
    codes = [wait_code(pid) for pid in children]
    assert codes[3:] == [0] * 5
    assert len(list(store.all_keys())) == len(SPECS)
    assert_whole_and_clean(store)


def test_a_crowd_without_working_locks_is_still_right(
    store: Store, use_stub: UseStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stub(SLOW_COPY)

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    children = [in_child(lambda: Builder().build_many(SPECS)) for _ in range(8)]
    assert [wait_code(pid) for pid in children] == [0] * 8
    monkeypatch.undo()
    assert len(list(store.all_keys())) == len(SPECS)
    assert_whole_and_clean(store)


def test_a_crowd_that_meets_a_damaged_entry_mends_it_once(store: Store, use_stub: UseStub) -> None:
    stub = use_stub(SLOW_COPY)
    artifact = Builder().build_one(SPECS[0])
    artifact.path.write_bytes(b"damaged")
    children = [in_child(lambda: Builder().build_one(SPECS[0])) for _ in range(8)]
    assert [wait_code(pid) for pid in children] == [0] * 8
    assert len(stub.compiled()) == 2
    assert_whole_and_clean(store)


def test_threads_share_a_builder(store: Store, use_stub: UseStub) -> None:
    stub = use_stub(SLOW_COPY)
    shared, found, here = Builder(), [], settings.current()

    def body() -> None:
        with settings.override(cache_dir=here.cache_dir, cxx=here.cxx):
            found.append(shared.build_one(SPECS[0]).path)

    threads = [threading.Thread(target=body) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert len(stub.compiled()) == 1


def test_a_kernel_another_process_failed_on_is_tried_and_reported_here(store: Store, use_stub: UseStub) -> None:
    stub = use_stub('sleep 0.1; echo "k.cpp:1:1: error: no" >&2; exit 1')

    def body() -> None:
        with pytest.raises(CompileError, match="error: no"):
            Builder().build_one(SPECS[0])

    children = [in_child(body) for _ in range(3)]
    assert [wait_code(pid) for pid in children] == [0] * 3
    assert len(stub.compiled()) == 3
    assert_whole_and_clean(store)


def test_a_process_that_hangs_with_a_lock_does_not_stop_the_others(
    store: Store, use_stub: UseStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_stub()
    store.prepare()
    lock = store.lock(Builder().key_of(SPECS[0]).key)
    assert lock.acquire()
    monkeypatch.setattr(compile_run, "PATIENCE_SECONDS", 0.1)
    try:
        assert Builder().build_one(SPECS[0]).path.exists()
    finally:
        lock.release()


def test_a_store_removed_under_a_long_lived_process_is_made_again(store: Store, use_stub: UseStub) -> None:
    use_stub()
    shared = Builder()
    shared.build_one(SPECS[0])
    upkeep.reset(store)
    assert shared.build_one(SPECS[0]).path.exists()
    assert shared.build_one(SPECS[1]).path.exists()


def test_the_compilers_temporary_files_stay_in_the_work_folder(store: Store, use_stub: UseStub, tmp_path: Path) -> None:
    use_stub(f'echo "$TMPDIR" >> {tmp_path}/seen\n{COPY}')
    Builder().build_many(SPECS[:2])
    Builder().build_one(SPECS[2])
    seen = (tmp_path / "seen").read_text().split()
    assert len(seen) == 3
    assert all(Path(one).parent == store.temporary for one in seen)
