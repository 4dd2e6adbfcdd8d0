"""Cores this process may use: by its affinity and by the quotas of its control groups, from files made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.arch import host
from tilewright.arch.host import quota_cores, usable_cores
from tilewright.runtime import host as runtime_host


def fake(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


OWN = "proc/self/cgroup"
V1 = "4:memory:/x\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n"


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({OWN: "0::/\n"}, None),
        ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        ({OWN: "0::/a b/c\n", "sys/fs/cgroup/a b/c/cpu.max": "300000 100000\n"}, 3),
        # The tightest of the own group and those around it.
        (
            {
                OWN: "0::/slice/job\n",
                "sys/fs/cgroup/slice/job/cpu.max": "800000 100000\n",
                "sys/fs/cgroup/slice/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
            },
            1.5,
        ),
        # A container sees its own group at the top, whatever its path is called outside.
        ({OWN: "0::/../../outside\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4),
        # Version 1, mounted under either name.
        (
            {
                OWN: V1,
                "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            {
                OWN: V1,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "50000\n",
            },
            2,
        ),
        (
            {
                OWN: V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
        ),
        # Nonsense is no limit.
        ({OWN: "nonsense\n::\n0::/\n", "sys/fs/cgroup/cpu.max": "0 0\n"}, None),
        ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": "some text\n"}, None),
        ({OWN: "0::/\n", "sys/fs/cgroup/cpu.max": ""}, None),
    ],
)
def test_the_quota_of_the_control_groups(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    assert quota_cores(fake(tmp_path, files)) == cores


@pytest.mark.parametrize(("quota", "cores"), [("250000", 2), ("50000", 1), ("3200000", 8), ("max", 8)])
def test_whole_cores_within_affinity_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    root = fake(tmp_path, {OWN: "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota} 100000\n"})
    assert usable_cores(root) == cores


@pytest.mark.parametrize(
    ("asked", "cores", "threads"), [("", 8, 8), ("3", 8, 3), ("3,2", 8, 3), ("64", 8, 8), ("junk", 8, 8), ("2", 1, 1)]
)
def test_the_default_number_of_threads(monkeypatch: pytest.MonkeyPatch, asked: str, cores: int, threads: int) -> None:
    facts = host.HostFacts("some CPU", "x86_64", frozenset(), cores, 1, 1, 1)
    monkeypatch.setattr(runtime_host, "host_facts", lambda: facts)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    runtime_host._default_threads.cache_clear()
    try:
        assert runtime_host.thread_count() == threads
        with settings.override(threads=5):
            assert runtime_host.thread_count() == 5
    finally:
        runtime_host._default_threads.cache_clear()
