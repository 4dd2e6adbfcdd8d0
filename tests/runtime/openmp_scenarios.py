"""What test_thread_pool.py has processes of their own do: `python -m tests.runtime.openmp_scenarios NAME LIBRARY`.

The library is openmp_pool.cpp, compiled with -fopenmp; loading it brings an OpenMP runtime into the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import settings
from tilewright.runtime import host
from tilewright.runtime.abi import HostTeam

RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
NESTED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
MOST = 64


class Notes(ctypes.Structure):
    _fields_ = (("ids", ctypes.c_long * MOST), ("times", ctypes.c_int64 * MOST), ("arrived", ctypes.c_int64))


def run(handle: int, count: int, body: Any) -> list[int]:
    """The ids of the threads that computed each index; each was computed once."""
    notes = Notes()
    team = HostTeam.from_address(handle)
    RUN(team.run)(handle, count, ctypes.cast(body, ctypes.c_void_p), ctypes.addressof(notes))
    assert list(notes.times[:count]) == [1] * count, list(notes.times[:count])
    return list(notes.ids[:count])


def region(library: Any) -> list[int]:
    ids = (ctypes.c_long * MOST)()
    count = library.region_threads(ids, MOST)
    return list(ids[:count])


def me() -> int:
    return threading.get_native_id()


def settled(ids: list[int], wanted: list[int]) -> bool:
    time.sleep(0.001)
    return sorted(ids) == sorted(wanted)


def shared(library: Any) -> None:
    """The team's threads are OpenMP's, and stay the same."""
    library.set_threads(3)
    theirs = region(library)
    with settings.override(threads=3):
        # NumPy's threads spin for a while after they start, on a busy machine for long: until then ours come instead.
        assert any(settled(run(host.team(3), 3, library.note_and_meet), theirs) for _ in range(2000))
    with settings.override(threads=3, thread_pool="openmp"):
        for _ in range(20):
            assert sorted(run(host.team(3), 3, library.note_and_meet)) == sorted(theirs)
    assert region(library) == theirs
    with settings.override(threads=2, thread_pool="openmp"):  # fewer are to work: the region keeps all its threads
        assert set(run(host.team(2), 40, library.note)) <= set(theirs)
        assert len(set(run(host.team(2), 2, library.note_and_meet))) == 2
    assert region(library) == theirs
    assert "omp" in Path(host.openmp_library()).name


def own(library: Any) -> None:
    library.set_threads(3)
    theirs = region(library)
    with settings.override(threads=3, thread_pool="own"):
        found = set(run(host.team(3), 3, library.note_and_meet))
    assert found & set(theirs) == {me()}
    assert len(found) == 3


def contested(library: Any) -> None:
    """While another thread keeps a core busy OpenMP's threads are not waited for, but where they are asked for."""
    library.set_threads(2)
    theirs = set(region(library)) - {me()}
    library.spin.argtypes = (ctypes.c_double,)
    spinning = threading.Thread(target=library.spin, args=(4.0,))
    with settings.override(threads=2):
        handle = host.team(2)
        run(handle, 2, library.note_and_meet)
        spinning.start()
        helpers = set()
        for _ in range(400):  # who else is there is looked up now and then
            time.sleep(0.001)
            helpers = set(run(handle, 2, library.note_and_meet)) - {me()}
            if not helpers & theirs:
                break
        assert len(helpers) == 1
        assert not helpers & theirs
        with settings.override(thread_pool="openmp"):
            assert set(run(host.team(2), 2, library.note_and_meet)) == {me(), *theirs}
        spinning.join()
        run(handle, 2, library.note)
        time.sleep(0.05)
        assert set(run(handle, 2, library.note_and_meet)) == {me(), *theirs}


def kept_off(library: Any) -> None:
    """Our workers keep off the core of their caller; what others set for them stays in force."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return
    with settings.override(threads=2, thread_pool="own"):
        handle = host.team(2)
        (worker,) = set(run(handle, 2, library.note_and_meet)) - {me()}
        for core in (*cores[:2], *cores[:2]):
            os.sched_setaffinity(me(), {core})
            run(handle, 2, library.note)
            assert os.sched_getaffinity(worker) == set(cores) - {core}
        os.sched_setaffinity(worker, {cores[1]})  # as `taskset` would
        for core in cores[:2]:
            os.sched_setaffinity(me(), {core})
            run(handle, 2, library.note)
            assert os.sched_getaffinity(worker) == {cores[1]}


def late(path: str) -> None:
    """A runtime that is loaded behind the first call."""
    with settings.override(threads=2):
        handle = host.team(2)
        a = np.ones((200, 200), np.float32)
        tw.gemm(a, a)
        assert host.openmp_library() == ""
        library = ctypes.CDLL(path)
        library.set_threads(2)
        theirs = region(library)
        for _ in range(64):
            run(handle, 2, library.note)
        assert sorted(run(handle, 2, library.note_and_meet)) == sorted(theirs)
        assert host.team(2) == handle


def numbers(library: Any) -> None:
    """Without a number from anybody OpenMP's own is the most; a number that was given rules."""
    library.set_threads(1)
    assert set(run(host.team(4), 9, library.note)) == {me()}
    with settings.override(threads=3):
        assert len(set(run(host.team(3), 3, library.note_and_meet))) == 3


def limited(library: Any) -> None:
    """OMP_THREAD_LIMIT=1: one thread does the work of all."""
    with settings.override(threads=4):
        assert set(run(host.team(4), 11, library.note)) == {me()}


def nested(library: Any) -> None:
    library.set_threads(2)
    region(library)
    with settings.override(threads=2):
        handle = host.team(2)
    found: list[int] = []

    def body(_: int) -> None:
        found.append(len(set(run(handle, 7, library.note))))

    kept = NESTED(body)
    library.inside_region(kept, None)
    assert found == [1]
    assert len(set(run(handle, 2, library.note_and_meet))) == 2


def product() -> bytes:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((300, 201), np.float32), rng.standard_normal((201, 173), np.float32)
    made = np.asarray(tw.gemm(a, b))
    assert np.allclose(made, a @ b, atol=1e-3)
    return made.tobytes()


def child_of_fork(work: Callable[[], None]) -> None:
    """Forks; the child does the work, and its fate is ours."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(9)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def fork(library: Any) -> None:
    """OpenMP's threads stay behind: the child works alone, the parent goes on."""
    library.set_threads(3)
    region(library)
    with settings.override(threads=3):
        before = product()
        handle = host.team(3)
        assert host.openmp_library()

        def work() -> None:
            assert host.openmp_library() == ""
            assert set(run(handle, 7, library.note)) == {me()}
            assert product() == before

        child_of_fork(work)
        assert len(set(run(handle, 3, library.note_and_meet))) == 3
        assert product() == before


def fork_first(library: Any) -> None:
    """The process that used OpenMP forks before our team was there: the child has a team of its own."""
    library.set_threads(3)
    region(library)

    def work() -> None:
        with settings.override(threads=2):
            assert host.openmp_library() == ""
            assert len(set(run(host.team(2), 2, library.note_and_meet))) == 2
            product()

    child_of_fork(work)


def callers(library: Any) -> None:
    """Threads of the user: each index once, and nobody waits for ever."""
    library.set_threads(2)
    failures: list[BaseException] = []
    with settings.override(threads=2):
        handle, right = host.team(2), product()

    def work() -> None:
        try:
            with settings.override(threads=2):
                for _ in range(40):
                    run(handle, 5, library.note)
                    assert product() == right
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures, failures[0]


def bits(library: Any) -> None:
    """The same on any number of threads of either pool, also where the caller flushes denormals."""
    library.set_threads(3)
    region(library)
    rng = np.random.default_rng(2)
    a = rng.standard_normal((150, 64), np.float32)
    b = (rng.standard_normal((64, 170)) * 1e-39).astype(np.float32)

    def all_counts() -> set[bytes]:
        found = set()
        for pool in ("own", "openmp"):
            for count in (1, 2, 3, 5):
                with settings.override(threads=count, thread_pool=pool):
                    found.add(np.asarray(tw.gemm(a, b)).tobytes())
        return found

    (plain,) = all_counts()
    assert np.frombuffer(plain, np.float32).any()
    if library.flush_denormals():
        (flushed,) = all_counts()
        assert flushed != plain


def exits(library: Any) -> None:
    """The interpreter ends while a thread of the user is at work."""
    library.set_threads(2)
    a = np.ones((300, 300), np.float32)

    def work() -> None:
        while True:
            tw.gemm(a, a)

    threading.Thread(target=work, daemon=True).start()
    for _ in range(20):
        tw.gemm(a, a)


def main(name: str, path: str) -> None:
    if name == "late":
        return late(path)
    return globals()[name](ctypes.CDLL(path))  # type: ignore[no-any-return]


if __name__ == "__main__":
    main(*sys.argv[1:])
