"""Worker processes that emulate, one for each GPU; a worker that dies is an answer, and is replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.amd_emulated.proof import Call
from tilewright.ops.base import KernelSpec

ROOT = Path(__file__).parents[2]


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

    def prove(self, spec: KernelSpec, library: Path, calls: list[Call], seed: int) -> dict[str, Any]:
        """Results of the calls; a worker that ended instead raises with how."""
        worker = self._worker(spec.arch)
        assert worker.stdin is not None
        assert worker.stdout is not None
        fields = ("why", "m", "n", "k", "batch", "slack", "alpha", "beta", "in_place")
        request = {
            "spec": json.loads(spec.to_json()),
            "library": str(library),
            "seed": seed,
            "calls": [{name: getattr(one, name) for name in fields} for one in calls],
        }
        try:
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        code = worker.wait()
        del self._running[spec.arch]
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise AssertionError(f"{spec.name}: the emulating process ended with {how}")

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
