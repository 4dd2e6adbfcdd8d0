"""How a GPU is timed by the benchmarks: graph replays between events, contestants in turn, the cache cold or warm.

Before every timed replay, outside the events:
    cold    a buffer of twice the second-level cache is written, as Triton's do_bench does: the cache holds no operand,
            but lines that must be written back while the kernel runs
    clean   another of that size is read after that, so that nothing is left to be written back either
    warm    the same graph is replayed once untimed, and a kernel that only waits follows it
Each way the GPU is busy while the host queues the events and the replay, so that no host time is between the events.

`HostClock` stands in where there is no GPU: a rehearsal of the scripts, its numbers mean nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

Run = Callable[[], Any]

CACHES = ("cold", "clean", "warm")
WAIT_CYCLES = 60_000  # about 30 microseconds: more than the host needs to queue two events and a replay
MOST_QUEUED = 256  # timed replays between two looks at the clock
LEAST_FREE = 0.25  # of the device's memory, before a capture


class Clock(Protocol):
    """Something that times calls on a device."""

    device: str
    flush_bytes: int

    def captured(self, run: Run) -> Run:
        """The call in the form that is timed; it has run once when this returns."""

    def rounds(self, calls: Sequence[Run], rounds: int, l2: str) -> list[list[float]]:
        """Seconds of every call in every round; in a round all take their turn."""

    def wait(self) -> None:
        """Until the device is done."""


class GraphClock:
    device = "cuda"

    def __init__(self, cache_bytes: int) -> None:
        self.flush_bytes = 2 * cache_bytes
        self._written = torch.empty(self.flush_bytes, dtype=torch.uint8, device=self.device)
        self._read = torch.zeros(self.flush_bytes // 4, dtype=torch.float32, device=self.device)
        self._sum = torch.zeros((), dtype=torch.float32, device=self.device)
        self._stream: Any = torch.cuda.Stream()
        self._marks = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(MOST_QUEUED)
        ]

    def captured(self, run: Run) -> Run:
        """As a graph, after one call outside it: code is loaded then, and workspaces are made.

        `torch.cuda.graph` would also collect garbage and empty PyTorch's cache, far longer than a capture takes.  But
        PyTorch keeps the pool of each graph that is gone, and nothing takes memory from there: where it gets short,
        the cache is emptied.
        """
        free, total = torch.cuda.mem_get_info()
        if free < LEAST_FREE * total:
            torch.cuda.empty_cache()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            run()
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            try:
                run()
            finally:
                graph.capture_end()

        def replay(_held: Run = run) -> None:  # what the call holds, the graph reads
            graph.replay()

        return replay

    def rounds(self, calls: Sequence[Run], rounds: int, l2: str) -> list[list[float]]:
        times: list[list[float]] = [[] for _ in calls]
        if not calls:
            return times
        with torch.cuda.stream(self._stream):
            for call in calls:
                call()
            queued: list[int] = []
            for turn in range(rounds):
                shift = turn % len(calls)  # nobody always follows the same neighbour
                for index in (*range(shift, len(calls)), *range(shift)):
                    self._queue(calls[index], len(queued), l2)
                    queued.append(index)
                    if len(queued) == MOST_QUEUED:
                        self._collect(queued, times)
            self._collect(queued, times)
        return times

    def _queue(self, call: Run, slot: int, l2: str) -> None:
        start, end = self._marks[slot]
        if l2 != "warm":
            self._written.fill_(slot & 0xFF)
            if l2 == "clean":
                torch.sum(self._read, 0, out=self._sum)
        else:
            call()
            torch.cuda._sleep(WAIT_CYCLES)
        start.record(self._stream)
        call()
        end.record(self._stream)

    def _collect(self, queued: list[int], times: list[list[float]]) -> None:
        self._stream.synchronize()
        for (start, end), index in zip(self._marks, queued, strict=False):
            times[index].append(start.elapsed_time(end) / 1e3)
        queued.clear()

    def wait(self) -> None:
        torch.cuda.synchronize()


class HostClock:
    device = "cpu"
    flush_bytes = 1 << 20

    def captured(self, run: Run) -> Run:
        run()
        return run

    def rounds(self, calls: Sequence[Run], rounds: int, l2: str) -> list[list[float]]:
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(rounds):
            for index, call in enumerate(calls):
                started = time.perf_counter()
                call()
                times[index].append(max(1e-9, time.perf_counter() - started))
        return times

    def wait(self) -> None:
        pass


def spread(peer: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """The peer's time over ours: of the medians, and how far single rounds stray from that."""
    paired = sorted(a / b for a, b in zip(peer, ours, strict=True))
    low, _, high = statistics.quantiles(paired, n=4, method="inclusive") if len(paired) > 1 else paired * 3
    return {
        "ratio": statistics.median(peer) / statistics.median(ours),
        "low": paired[0],
        "quartile_1": low,
        "quartile_3": high,
        "high": paired[-1],
    }


def copy_bandwidth(clock: Clock, nbytes: int = 1 << 30) -> float:
    """Bytes read plus bytes written a second: the better of the driver's copy of a large buffer and a kernel's."""
    source = torch.full((nbytes // 4,), 90.0, dtype=torch.float32, device=clock.device)
    target = torch.empty_like(source)
    copies = [clock.captured(run) for run in (lambda: target.copy_(source), lambda: torch.mul(source, 1.0, out=target))]
    return 2 * nbytes / min(statistics.median(taken) for taken in clock.rounds(copies, 9, "cold"))
