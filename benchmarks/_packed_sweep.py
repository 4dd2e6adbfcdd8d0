"""A GPU's sweep as `learn train` and fit_cuda.py read it (`tilewright.learn.packed`): times of kernels on problems."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright import ops
from tilewright.dispatch.measure import versions_of
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import OK, KernelRow, Result
from tilewright.learn import packed
from tilewright.ops.base import KernelSpec, plain

REHEARSED = {"model": "rehearsal", "fingerprint": "0" * 16}


class PackedSweep:
    """Results of one op on the device of a target, each by the same method."""

    def __init__(self, op: str, target: str, rounds: int, *, dry: bool = False) -> None:
        self.op, self.results = ops.op(op), list[Result]()
        self._machine = REHEARSED if dry else machine(target) or REHEARSED
        self._method = {"kind": "graph replays in turn, median", "rounds": rounds, "l2": "cold"}
        self._versions: Mapping[str, str] | None = {} if dry else None

    def add(self, problem: Any, spec: KernelSpec, seconds: float) -> None:
        if self._versions is None:
            self._versions = versions_of(spec)
        kernel = KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict())
        fields = plain(self.op.measured_as(problem))
        self.results.append(
            Result(self.op.name, fields, self._machine, 0, kernel, OK, seconds, method=self._method,
                   versions=self._versions, date=0.0)
        )  # fmt: skip

    def write(self, place: Path, about: Mapping[str, Any]) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        packed.write(place, self.op.name, self.results, about)
