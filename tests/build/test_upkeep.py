"""The bound on the store's size, and the sweeping of what dead processes left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import filelock
import pytest

from tests.build.stubs import Stub, in_child, tiny_specs, wait_code
from tilewright import settings
from tilewright.build import Builder, Store, upkeep
from tilewright.build.store import MANIFEST

UseStub = Callable[..., Stub]


@pytest.fixture
def six(store: Store, use_stub: UseStub) -> list[str]:
    """Six entries, the first used an hour ago, the last an hour minus five minutes."""
    use_stub()
    keys = []
    for number, spec in enumerate(tiny_specs(6)):
        key = Builder(store).build_one(spec).key
        used = time.time() - 3600 + 60 * number
        os.utime(store.folder(key) / MANIFEST, (used, used))
        keys.append(key)
    return keys


def size_of(store: Store, key: str) -> int:
    return sum(one.stat().st_size for one in store.folder(key).iterdir())


def test_the_least_recently_used_go_first(store: Store, six: list[str]) -> None:
    assert [one.key for one in upkeep.usage(store)] == six
    room = sum(size_of(store, key) for key in six[3:])
    report = upkeep.trim(store, room)
    assert list(store.all_keys()) == sorted(six[3:])
    assert (report.entries, report.left_entries, report.left_bytes) == (3, 3, room)


def test_a_lookup_counts_as_use(store: Store, six: list[str]) -> None:
    store.lookup(six[0])
    upkeep.trim(store, size_of(store, six[0]) + 1)
    assert list(store.all_keys()) == [six[0]]


def test_entries_in_use_just_now_or_of_the_running_build_stay(store: Store, six: list[str]) -> None:
    store.lookup(six[2])
    upkeep.trim(store, 0, keep={six[4]})
    assert list(store.all_keys()) == sorted([six[2], six[4]])


def test_a_build_trims_the_store_and_keeps_its_own(store: Store, six: list[str]) -> None:
    with settings.override(cache_max_bytes=1):
        built = Builder().build_many(tiny_specs(8)[6:])
    assert list(store.all_keys()) == sorted(one.key for one in built.values())


def test_a_small_build_does_not_measure_a_large_store_again(
    store: Store, six: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("measured")

    monkeypatch.setattr(upkeep, "trim", never)
    Builder().build_one(tiny_specs(7)[6])
    long_ago = time.time() - 2 * upkeep.SCAN_SECONDS
    os.utime(store.root / "measured", (long_ago, long_ago))
    with pytest.raises(AssertionError, match="measured"):
        Builder().build_one(tiny_specs(8)[7])


def test_a_sweep_removes_what_the_dead_left_and_nothing_else(store: Store, six: list[str]) -> None:
    def body() -> None:
        with store.workspace() as work:
            (work / "half").write_text("x")
            store.lock("a" * 64).acquire()
            os.kill(os.getpid(), signal.SIGKILL)

    assert wait_code(in_child(body)) == -signal.SIGKILL
    (store.temporary / "trash-1-2").mkdir()
    (store.logs / "x.log.part").write_text("x")
    (store.logs / "y.log").write_text("recent")
    (store.logs / "z.log").write_text("old")
    old = time.time() - 2 * upkeep.LOG_SECONDS
    os.utime(store.logs / "z.log", (old, old))
    with store.workspace() as mine:
        (mine / "file").write_text("x")
        held = store.lock("b" * 64)
        assert held.acquire()
        assert len(list(store.temporary.iterdir())) == 3
        assert upkeep.sweep(store) == 5
        assert list(store.temporary.iterdir()) == [mine]
        assert (mine / "file").exists()
        assert [one.name for one in store.locks.iterdir()] == ["b" * 64]
        held.release()
    assert [one.name for one in store.logs.iterdir()] == ["y.log"]
    assert len(list(store.all_keys())) == 6


def test_without_locks_only_old_work_folders_are_swept(
    store: Store, six: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)  # as on a platform that has nothing else
    young, old = store.temporary / "1-young", store.temporary / "1-old"
    young.mkdir()
    old.mkdir()
    (old / ".owner").touch()
    then = time.time() - 2 * upkeep.ABANDONED_SECONDS
    os.utime(old, (then, then))
    upkeep.sweep(store)
    assert list(store.temporary.iterdir()) == [young]


def test_collect_reports_what_it_did(store: Store, six: list[str]) -> None:
    (store.temporary / "trash-1-2").mkdir()
    report = upkeep.clean(store, 0)
    assert (report.entries, report.leavings, report.left_entries, report.left_bytes) == (6, 1, 0, 0)
    assert report.bytes > 0


def test_other_versions_are_listed_not_touched(store: Store, six: list[str]) -> None:
    other = store.root.parent / "kernels-v0"
    other.mkdir()
    (other / "format.json").write_text('{"schema": 0}')
    assert upkeep.other_versions(store) == [other]
    upkeep.clean(store, 0, in_use_seconds=0)
    assert other.is_dir()
