"""How anything is timed, on any device: one method, one kind of sample, rounds that interleave.

A sample is the mean time of a number of calls.  Where several sets of buffers are given the calls
rotate through them; with a flush each call finds the caches cold, and only the calls are timed.
On the host the clock is the processor's; on a device it is the device's own, read by events.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilewright.dataclass import dataclass

if TYPE_CHECKING:
    from tilewright.runtime.gpu import Gpu

Run = Callable[[], object]

MOST_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class Method:
    """How times are taken; part of every record."""

    rounds: int = 9
    sample_seconds: float = 0.002  # a sample repeats the call until it takes about this long
    warmups: int = 2
    seed: int = 0
    flush: bool = False  # empty the caches before every call
    buffers: int = 1  # sets of operands the calls rotate through


class Stopwatch(Protocol):
    """Times calls on a device."""

    def sample(self, runs: Sequence[Run], repeats: int, flush: bool = False) -> float:
        """Mean seconds of `repeats` calls, which rotate through `runs`."""


class HostStopwatch:
    """The processor's clock.  The flush writes a buffer larger than the caches between the calls."""

    def __init__(self, cache_bytes: int) -> None:
        self._flush_bytes = flush_bytes(cache_bytes)
        self._buffer: ctypes.Array[ctypes.c_char] | None = None

    def sample(self, runs: Sequence[Run], repeats: int, flush: bool = False) -> float:
        clock, count = time.perf_counter, len(runs)
        if not flush:
            start = clock()
            for index in range(repeats):
                runs[index % count]()
            return (clock() - start) / repeats
        total = 0.0
        for index in range(repeats):
            self._empty_caches(index)
            start = clock()
            runs[index % count]()
            total += clock() - start
        return total / repeats

    def _empty_caches(self, turn: int) -> None:
        if self._buffer is None:
            self._buffer = ctypes.create_string_buffer(self._flush_bytes)
        # The value differs from turn to turn, so that no write is for nothing.
        ctypes.memset(self._buffer, turn & 0xFF, self._flush_bytes)


class EventStopwatch:
    """The device's clock: events around the calls, in the stream the calls go to.

    The flush is a fill in the same stream, outside the events.
    """

    def __init__(self, device: Gpu) -> None:
        self._device = device

    def sample(self, runs: Sequence[Run], repeats: int, flush: bool = False) -> float:
        device, count = self._device, len(runs)
        memory = device.allocate(flush_bytes(device.cache_bytes)) if flush else None
        marks = [device.new_event() for _ in range(2 * repeats if flush else 2)]
        try:
            with device.active():
                for index in range(repeats):
                    if memory is not None:
                        device.fill(memory.address, index & 0xFF, memory.nbytes)
                    if memory is not None or index == 0:
                        marks[2 * index].record()
                    runs[index % count]()
                    if memory is not None:
                        marks[2 * index + 1].record()
                if memory is None:
                    marks[1].record()
                marks[-1].synchronize()
                pairs = zip(marks[::2], marks[1::2], strict=True)
                return sum(stop.seconds_since(start) for start, stop in pairs) / repeats
        finally:
            for mark in marks:
                mark.close()
            if memory is not None:
                memory.free()


LEAST_FOR_SPREAD = 4  # samples: fewer have no quartiles


def flush_bytes(cache_bytes: int) -> int:
    """Enough to replace everything in a cache, whatever its replacement policy; never nothing."""
    return max(2 * cache_bytes, 8 << 20)


@dataclass(slots=True)
class Contestant:
    """Something timed beside others: its calls (one for each set of buffers) and the samples so far."""

    runs: Sequence[Run]
    repeats: int = 1
    samples: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float | None:
        """Interquartile range over the median; None where there are too few samples."""
        if len(self.samples) < LEAST_FOR_SPREAD or self.median <= 0:
            return None
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / self.median


_Raced = TypeVar("_Raced", bound=Contestant)


def race(contestants: Sequence[Contestant], method: Method, watch: Stopwatch) -> None:
    """Warm up, then alternate in each round, so that a drift of the machine affects all of them alike."""
    for contestant in contestants:
        took = 0.0
        for _ in range(max(1, method.warmups)):
            took = watch.sample(contestant.runs, len(contestant.runs))
        contestant.repeats = max(1, min(MOST_REPEATS, int(method.sample_seconds / max(took, 1e-7))))
        # Every set of buffers has its turn in every sample.
        contestant.repeats = -(-contestant.repeats // len(contestant.runs)) * len(contestant.runs)
    for turn in range(method.rounds):
        # Nobody always runs after the same neighbour.
        shift = turn % len(contestants)
        for contestant in (*contestants[shift:], *contestants[:shift]):
            contestant.samples.append(watch.sample(contestant.runs, contestant.repeats, method.flush))


def false_leaders(contestants: Sequence[_Raced], right: Callable[[_Raced], bool]) -> list[_Raced]:
    """Those in front, the fastest first, that a last look finds wrong.

    A kernel may be right once and wrong in later calls, by what it left in its workspace or in itself.  One that does
    less than it should is the fastest, so whoever leads is looked at again.
    """
    return list(
        itertools.takewhile(
            lambda contestant: not right(contestant), sorted(contestants, key=lambda contestant: contestant.median)
        )
    )


def measure(runs: Sequence[Run], method: Method, watch: Stopwatch) -> Contestant:
    """Time one thing alone."""
    alone = Contestant(runs)
    race([alone], method, watch)
    return alone
