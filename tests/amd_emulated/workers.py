"""Worker processes that emulate, one for each GPU; a worker that dies is an answer, and is replaced."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.amd_emulated.proof import Call
from tests.amd_emulated.proving import Problem
from tilewright.ops.base import KernelSpec

ROOT = Path(__file__).parents[2]


class TooLong(RuntimeError):
    """The emulation did not end in the time it was given."""


class Workers:
    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self._running: dict[str, subprocess.Popen[str]] = {}

    def environment(self) -> dict[str, str]:
        """The checkout comes first: its `test` package stands where the standard library has one."""
        known = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.checkout), *known, str(ROOT)])}

    def _worker(self, arch: str) -> subprocess.Popen[str]:
        if arch not in self._running:
            self._running[arch] = subprocess.Popen(
                [sys.executable, "-m", "tests.amd_emulated.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=self.environment(),
            )
        return self._running[arch]

    def ask(self, spec: KernelSpec, request: dict[str, Any], limit: float | None = None) -> dict[str, Any]:
        """The answer to one request; a worker that ended instead, or took longer than the limit, raises with how."""
        worker = self._worker(spec.arch)
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps({"spec": json.loads(spec.to_json()), **request}) + "\n")
            worker.stdin.flush()
            if limit is not None and not select.select([worker.stdout], [], [], limit)[0]:
                self._drop(spec.arch)
                raise TooLong(f"{spec.name}: no answer of the emulating process in {limit:.0f} s")
            line = worker.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = self._drop(spec.arch)
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise AssertionError(f"{spec.name}: the emulating process ended with {how}")

    def _drop(self, arch: str) -> int:
        worker = self._running.pop(arch)
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
        try:
            return worker.wait(timeout=5)
        except subprocess.TimeoutExpired:
            worker.kill()
            return worker.wait()

    def prove(self, spec: KernelSpec, library: Path, calls: list[Call], seed: int) -> dict[str, Any]:
        """Results of the calls."""
        fields = ("why", "m", "n", "k", "batch", "slack", "alpha", "beta", "in_place")
        given = [{name: getattr(one, name) for name in fields} for one in calls]
        return self.ask(spec, {"library": str(library), "seed": seed, "calls": given})

    def prove_drawn(
        self, spec: KernelSpec, library: Path, one: Problem, must_serve: bool, limit: float
    ) -> dict[str, Any]:
        """The outcome of one drawn problem."""
        request = {"library": str(library), "seed": one.seed, "drawn": one.to_dict(), "must_serve": must_serve}
        return self.ask(spec, request, limit)

    def close(self) -> None:
        for one in self._running.values():
            if one.stdin is not None:
                one.stdin.close()
            try:
                one.wait(timeout=10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        self._running.clear()
