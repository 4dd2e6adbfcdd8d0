"""What the host CPU is and which arch levels it runs."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.arch.facts import Arch, arch, archs_of
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import RequestError


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the operating system says about the CPU."""

    model: str
    machine: str
    flags: frozenset[str]
    cores: int  # cores this process may use (affinity, its container's quota), not cores of the box
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int


def _cache_bytes(level: int, kind: str) -> int:
    for index in range(8):
        place = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
        try:
            if int((place / "level").read_text()) != level:
                continue
            if (place / "type").read_text().strip() not in (kind, "Unified"):
                continue
            text = (place / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1)
        return int(text.rstrip("KMG")) * scale
    return 0


def _cpuinfo() -> tuple[str, frozenset[str]]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor(), frozenset()
    model, flags = "", frozenset[str]()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        key = key.strip()
        if key == "model name" and not model:
            model = value.strip()
        elif key in ("flags", "Features") and not flags:
            flags = frozenset(value.split())
    return model, flags


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _quota(text: str) -> float | None:
    """Cores of `quota period` in microseconds; None where there is no limit or no sense."""
    words = text.split()
    if len(words) < 2 or not (words[0].isdecimal() and words[1].isdecimal()):
        return None  # `max 100000` and `-1 100000` mean no limit
    quota, period = int(words[0]), int(words[1])
    return quota / period if quota and period else None


def quota_cores(root: Path = Path("/")) -> float | None:
    """Cores the CPU quota of this process's control groups leaves it (versions 1 and 2); None without one.

    The tightest of its own group and the groups around it counts.  Inside a container the path of the own group may
    be that outside: then only the top, which is the container, is there to be read.
    """
    quotas: list[float | None] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, inside = (*line.split(":", 2), "", "")[:3]
        own = Path(*(part for part in inside.split("/") if part not in ("", "..")))
        for group in (own, *own.parents):
            if not controllers:
                quotas.append(_quota(_text(root / "sys/fs/cgroup" / group / "cpu.max")))
            elif "cpu" in controllers.split(","):
                for mount in dict.fromkeys(("cpu", controllers)):
                    place = root / "sys/fs/cgroup" / mount / group
                    quotas.append(_quota(f"{_text(place / 'cpu.cfs_quota_us')} {_text(place / 'cpu.cfs_period_us')}"))
    return min((quota for quota in quotas if quota is not None), default=None)


def usable_cores(root: Path = Path("/")) -> int:
    """Cores by affinity and quota.  Half a core is not counted: a team that runs into its quota stalls as a whole."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    quota = quota_cores(root)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


@lru_cache(maxsize=1)
def host_facts() -> HostFacts:
    model, flags = _cpuinfo()
    return HostFacts(
        model=model or platform.machine(),
        machine=platform.machine(),
        flags=flags,
        cores=usable_cores(),
        # The fallbacks are small on purpose: a block that fits a small cache fits a large one.
        l1_bytes=_cache_bytes(1, "Data") or 32 << 10,
        l2_bytes=_cache_bytes(2, "Data") or 512 << 10,
        l3_bytes=_cache_bytes(3, "Data"),
    )


@lru_cache(maxsize=8)
def flags_digest(flags: frozenset[str]) -> str:
    return sha256(" ".join(sorted(flags)).encode()).hexdigest()[:16]


_other_l2: ContextVar[int] = ContextVar("bytes of the L2 of a host that is spoken of", default=0)
_other_flags: ContextVar[bool] = ContextVar("whether a host is spoken of that has other flags", default=False)


def l2_bytes() -> int:
    """A core's own second-level cache: of this host, or of the one that is spoken of (`speaking_of`)."""
    return _other_l2.get() or host_facts().l2_bytes


@lru_cache(maxsize=8)
def _dual_fma(flags: frozenset[str]) -> int:
    return int("avx512_bf16" in flags and "avx_vnni" in flags)


def dual_fma() -> int:
    """1 if this CPU starts two multiply-adds of 512 bits in a cycle, where others of the levels with bf16 start one.

    Zen 5 and Sapphire Rapids have AVX_VNNI, a Zen 4 has not.  0 of another CPU that is spoken of, of which no more is
    known.
    """
    return 0 if _other_flags.get() else _dual_fma(host_facts().flags)


@contextmanager
def speaking_of(device: Mapping[str, Any]) -> Iterator[None]:
    """Estimates are those of a device that was measured elsewhere, by its identity."""
    token = _other_l2.set(int(device.get("l2_bytes", 0)) if "flags" in device else 0)
    other = _other_flags.set("flags" in device and device["flags"] != flags_digest(host_facts().flags))
    try:
        yield
    finally:
        _other_flags.reset(other)
        _other_l2.reset(token)


def runnable_host_archs() -> tuple[Arch, ...]:
    """CPU archs this machine runs, best first; `generic` is always the last.

    The setting `host_level` takes levels away, as if the CPU were an older one; it cannot add any.
    """
    return _runnable(settings.current().host_level)


@lru_cache(maxsize=16)
def _runnable(limit: str) -> tuple[Arch, ...]:
    flags = host_facts().flags
    fit = [arch for arch in archs_of("cpu") if flags.issuperset(arch.requires)]
    if limit:
        most = _level(limit)
        fit = [level for level in fit if level.name == limit or level.name in most.includes]
    return tuple(sorted(fit, key=lambda level: len(level.includes), reverse=True))


def _level(name: str) -> Arch:
    level = arch(name)
    if level.family != "cpu":
        raise RequestError(
            f"host_level is {name!r}, which is no level of a CPU",
            rule="setting-value",
            value=name,
            remedy=f"use one of {', '.join(level.name for level in archs_of('cpu'))}",
        )
    return level


def best_host_arch() -> Arch:
    return runnable_host_archs()[0]
