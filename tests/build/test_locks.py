"""The store's locks: one owner at a time, free when the owner dies, no file left, no error where there are none."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest

from tests.build.stubs import Stub, in_child, tiny_specs, wait_code
from tilewright.build import Store, build_many
from tilewright.build.locks import FileLock

UseStub = Callable[..., Stub]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def taken_by_child(place: Path) -> int:
    """A child that holds the lock until it is killed."""

    def body() -> None:
        lock = FileLock(place)
        assert lock.acquire()
        place.with_name("taken").touch()
        time.sleep(60)

    pid = in_child(body)
    while not place.with_name("taken").exists():
        time.sleep(0.002)
    return pid


def test_a_lock_is_one_at_a_time_and_leaves_no_file(place: Path) -> None:
    first, second = FileLock(place), FileLock(place)
    assert first.acquire()
    assert first.genuine
    assert not second.acquire()
    assert not second.held
    first.release()
    first.release()  # twice does no harm
    assert second.acquire()
    assert second.held
    second.release()
    assert not place.exists()


def test_the_lock_of_a_dead_process_is_free(place: Path) -> None:
    pid = taken_by_child(place)
    lock = FileLock(place)
    assert not lock.acquire()
    os.kill(pid, signal.SIGKILL)
    assert wait_code(pid) == -signal.SIGKILL
    assert lock.acquire()
    lock.release()
    assert not place.exists()


def test_a_forked_child_keeps_its_parents_lock_from_nobody(place: Path) -> None:
    """The child inherits the descriptor; it must neither hold the lock on nor give it away."""
    lock = FileLock(place)
    assert lock.acquire()

    def body() -> None:
        lock.release()
        place.with_name("left").touch()
        time.sleep(60)

    pid = in_child(body)
    while not place.with_name("left").exists():
        time.sleep(0.002)
    assert place.exists()
    assert not FileLock(place).acquire()
    lock.release()
    again = FileLock(place)
    assert again.acquire(), "a child that lives on keeps the lock"
    again.release()
    os.kill(pid, signal.SIGKILL)
    wait_code(pid)


def test_threads_are_alone_inside(place: Path) -> None:
    inside, seen = 0, []

    def body() -> None:
        nonlocal inside
        for _ in range(20):
            lock = FileLock(place)
            while not lock.acquire():
                time.sleep(0.0005)
            inside += 1
            seen.append(inside)
            time.sleep(0.0002)
            inside -= 1
            lock.release()

    threads = [threading.Thread(target=body) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert seen == [1] * 120


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "gone" / "lock").acquire()
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_lets_everybody_in(place: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    first, second = FileLock(place), FileLock(place)
    assert first.acquire()
    assert second.acquire()
    assert not first.genuine
    first.release()
    second.release()
    assert not place.exists()


def test_a_platform_without_locks_lets_everybody_in(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)
    first, second = FileLock(place), FileLock(place)
    assert first.acquire()
    assert second.acquire()
    assert not second.genuine
    first.release()
    assert not place.exists()


def test_any_other_error_is_the_callers(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    lock = FileLock(place)
    with pytest.raises(OSError, match="Input/output"):
        lock.acquire()
    assert not lock.held


def test_builds_work_without_locks(store: Store, use_stub: UseStub, monkeypatch: pytest.MonkeyPatch) -> None:
    use_stub()

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert len(build_many(tiny_specs(3))) == 3
