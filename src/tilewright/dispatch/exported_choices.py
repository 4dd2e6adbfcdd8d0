"""Choices that a registry's JSON takes along for C++: pins of a lock file, and winners of measurements.

A problem is known by the numbers that the selection library takes of its measured form (`Op.measured_as`), which C++
makes too.  A measurement names the machine it was made on, and counts on such a one only.

    {"op", "signature", "numbers": [...], "digest", "tier": "locked" or "measured", "threads", "seconds", "machine",
     "family": of a pin, the problems it speaks for beside its own (`Engine.family`); empty for none}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright import ops
from tilewright.dispatch import locks
from tilewright.dispatch.records import Record, machine, records, threads_of
from tilewright.native.judge import native_kernels
from tilewright.ops.base import KernelSpec


def choices(
    specs: Iterable[KernelSpec], target: str, lock: Path | str | None = None, measured: bool = False
) -> list[dict[str, Any]]:
    """Of these kernels alone: a pin to another is left to Python."""
    pins = locks.read(Path(lock)).values() if lock is not None else ()
    return of(specs, target, pins, list(_made_here(target)) if measured else [])


def of(
    specs: Iterable[KernelSpec], target: str, pins: Iterable[locks.Pin], measurements: Iterable[Record]
) -> list[dict[str, Any]]:
    """The same of pins and measurements that somebody else collected."""
    known = {spec.digest: spec for spec in specs}
    return [*_of_pins(pins, known, target), *_of_records(measurements, known, target)]


def _of_pins(pins: Iterable[locks.Pin], known: Mapping[str, KernelSpec], target: str) -> Iterator[dict[str, Any]]:
    for pin in pins:
        if pin.target == target and pin.digest in known:
            row = _row(known[pin.digest], pin.problem)
            if row is not None:
                yield {**row, "tier": "locked", "family": pin.family, "threads": 0, "seconds": 0.0, "machine": {}}


def _made_here(target: str) -> Iterator[Record]:
    here = machine(target)
    for record in records().all():
        if here and record.machine.get("fingerprint") == here.get("fingerprint"):
            yield record


def _of_records(
    measurements: Iterable[Record], known: Mapping[str, KernelSpec], target: str
) -> Iterator[dict[str, Any]]:
    for record in measurements:
        if record.target == target and record.choice in known:
            row = _row(known[record.choice], record.problem)
            if row is not None:
                words = {name: value for name, value in record.machine.items() if name != "fingerprint"}
                yield {**row, "tier": "measured", "threads": threads_of(target, record.threads),
                       "seconds": record.winner.seconds, "machine": words}  # fmt: skip


def _row(spec: KernelSpec, problem: Mapping[str, Any]) -> dict[str, Any] | None:
    kernels = native_kernels((spec,))
    if kernels is None:
        return None
    numbers = [int(number) for number in kernels.problem(ops.op(spec.op).problem_from_dict(problem))]
    return {"op": spec.op, "signature": spec.to_dict()["signature"], "numbers": numbers, "digest": spec.digest}
