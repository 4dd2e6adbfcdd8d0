"""How many compilers may run at once: cores, the setting, and the memory that is free."""

from __future__ import annotations

from pathlib import Path

from tilewright.arch import host_facts
from tilewright.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class JobLimit:
    jobs: int
    reason: str


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes this process may still use: of the machine, or of its container where that is less."""
    limits: list[int] = []
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) << 10)
    except OSError:
        return None
    for limit, used in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        most, now = _number(root / limit), _number(root / used)
        if most is not None and now is not None:
            limits.append(max(0, most - now))
    return min(limits, default=None)


def job_limit(
    count: int, memory_per_job: int, *, setting: int = 0, max_workers: int | None = None, memory: int | None = None
) -> JobLimit:
    """The tightest of the limits, and which one it was."""
    cores = host_facts().cores
    limits = [
        (max(1, count), f"{count} kernel{'s' if count != 1 else ''} to build"),
        (cores, f"{cores} core{'s' if cores != 1 else ''}"),
    ]
    if setting:
        limits.append((setting, f"the setting jobs={setting}"))
    if max_workers is not None:
        limits.append((max(1, max_workers), f"max_workers={max_workers}"))
    free = available_memory() if memory is None else memory
    if free is not None and memory_per_job > 0:
        limits.append(
            (max(1, free // memory_per_job), f"{free >> 20} MiB free at {memory_per_job >> 20} MiB for each compiler")
        )
    jobs, reason = min(limits, key=lambda limit: limit[0])
    return JobLimit(jobs, reason)
