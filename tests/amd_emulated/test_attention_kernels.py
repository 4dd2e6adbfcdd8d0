"""CK Tile's attention kernels executed in the emulator, every family of them, against the float64 reference.

Results go to build/amd_emulated_attention.json, and from there into the table of docs/amd.md.  Seeds are fresh each run
unless CATALOG_SEED names one; a failure says which it was.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import amd_toolchain
from tests.amd_emulated import needs
from tests.amd_emulated.attention.catalog import Case, cases, drawn
from tests.amd_emulated.conftest import checkout
from tests.amd_emulated.workers import ROOT, Workers
from tilewright.backends.base import backend
from tilewright.build import Builder
from tilewright.errors import ToolchainError
from tilewright.ops.base import plain

SEED = int(os.environ.get("CATALOG_SEED") or random.SystemRandom().randrange(1 << 20))
DRAWN = 6  # problems beside those of the catalogue
Row = dict[str, Any]


class Executor:
    """A process an arch: the fake runtime has one device."""

    def __init__(self, folder: Path) -> None:
        self._environment = Workers(folder).environment()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self.rows: list[Row] = []

    def ask(self, arch: str, request: Row) -> list[Row]:
        if arch not in self._running:
            command = [sys.executable, "-m", "tests.amd_emulated.attention.executed"]
            self._running[arch] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=self._environment
            )
        worker = self._running[arch]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
        if not line:
            self._running.pop(arch)
            pytest.fail(f"the emulating process ended with {worker.wait()}, seed {SEED}")
        found: list[Row] = json.loads(line)
        return found

    def close(self) -> None:
        for one in self._running.values():
            one.terminate()
            one.wait()


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    folder = checkout()
    assert not needs.wrong()
    try:
        with amd_toolchain.in_force():
            backend("hip").toolchain()
    except ToolchainError as error:
        pytest.skip(f"AMD kernels are not executed: {error}")
    found = Executor(folder)
    yield found
    found.close()
    place = ROOT / "build" / "amd_emulated_attention.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text(json.dumps({"seed": SEED, "rows": found.rows}, indent=1) + "\n", encoding="utf-8")


@pytest.mark.parametrize("case", cases(), ids=lambda one: str(one.label))
def test_kernel(case: Case, executor: Executor) -> None:
    spec = case.spec
    library = Builder().build_one(spec).path
    problems = [plain(one) for one in (case.problem, *case.more, *drawn(case, SEED, DRAWN))]
    request = {"spec": spec.to_dict(), "library": str(library), "problems": problems, "seed": SEED}
    results = executor.ask(case.arch, request)
    wrong = [one for one in results if one["detail"]]
    executor.rows.append({"shows": case.shows, "arch": case.arch, "kernel": spec.name, "results": results})
    assert not wrong, f"seed {SEED}: {wrong}"
    assert not any(launch["scratch"] for one in results for launch in one["launches"])
