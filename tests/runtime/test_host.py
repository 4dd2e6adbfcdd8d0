"""Threads and scratch memory of the host."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import events, settings
from tilewright.errors import LoadError
from tilewright.runtime import host


def test_workspace_is_aligned_grows_and_is_reused() -> None:
    small = host.workspace(100)
    assert small % host.ALIGNMENT == 0
    assert host.workspace(50) == small
    large = host.workspace(1 << 20)
    assert large % host.ALIGNMENT == 0
    assert host.workspace(1 << 20) == large
    assert host.workspace(1) == large


def test_threads_never_share_a_workspace() -> None:
    barrier = threading.Barrier(4)
    found: list[int] = []

    def take() -> None:
        mine = host.workspace(4096)
        barrier.wait(10)  # all four hold theirs at once
        found.append(mine)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(found)) == 4


def test_one_thread_needs_no_team() -> None:
    assert host.team(1) == 0
    assert host.team(0) == 0


def test_teams_are_made_once_and_say_their_size() -> None:
    from tilewright.runtime.abi import HostTeam

    two, three = host.team(2), host.team(3)
    assert host.team(2) == two != three
    assert HostTeam.from_address(two).threads == 2
    assert HostTeam.from_address(three).threads == 3


def test_a_damaged_team_library_is_refused(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "team.so"
    path.write_bytes(b"nothing")
    with pytest.raises(LoadError, match="thread team"):
        host.load_team_library(path)


def test_the_thread_count_is_a_setting() -> None:
    with settings.override(threads=3):
        assert host.thread_count() == 3


@pytest.mark.parametrize("shape", [(65, 70, 200), (1, 300, 500), (300, 2, 41)])
def test_results_do_not_depend_on_the_thread_count(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    spec = tw.Registry().select(tw.GemmProblem(m=m, n=n, k=k)).spec
    kernel = tw.Registry().kernel(spec)
    results = []
    for threads in (1, 2, 3):
        with settings.override(threads=threads):
            results.append(kernel(a, b).tobytes())
    assert results[0] == results[1] == results[2]


def test_without_a_team_kernels_run_on_the_calling_thread_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_library", None)
    monkeypatch.setattr(host, "_alone", False)
    with settings.override(frozen=True, cache_dir=tmp_path, thread_pool="own"), events.recorded() as seen:
        assert (host.team(2), host.team(3)) == (0, 0)
    warned = [event for event in seen if isinstance(event, events.Warned)]
    assert [event.rule for event in warned] == ["team-library"]
    assert "calling thread alone" in warned[0].message
