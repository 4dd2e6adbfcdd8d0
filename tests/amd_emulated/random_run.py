"""Kernels of a seed, built and executed: python -m tests.amd_emulated.random_run SEED COUNT [options].

Rows go to a file as they come, and right rows of the same kernel and problems that are there are not made again, so a
run that was killed goes on where it was.  Several kernels at a time, each built by a process of its own and executed by
another: code that ends the process, or never ends, is a row that says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.amd_emulated import needs, random_report
from tests.amd_emulated.emulator import MODELLED, STAND_IN
from tests.amd_emulated.proving import Entry, Problem, draw_only, proven, proving
from tests.amd_emulated.results import emulator_version
from tests.amd_emulated.waits import touched_early
from tests.amd_emulated.workers import ROOT, TooLong, Workers
from tilewright.arch import all_archs
from tilewright.backends.base import backend
from tilewright.build import Builder
from tilewright.build.prepare import prepare
from tilewright.errors import TilewrightError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

BUILD_SECONDS, PROBLEM_SECONDS = 900.0, 240.0
STORE = "tilewright-store"  # as tests/conftest.py names it
KERNELS_A_WORKER = 100  # then a fresh one: libraries are never unloaded
RIGHT, WRONG = "right", "wrong"


class BuildFailed(RuntimeError):
    """The kernel could not be built."""


def build(spec: KernelSpec) -> tuple[Path, float]:
    """The library of a kernel, from the store or compiled by a process of its own, and what that took of a core."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.amd_emulated.build_one"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(ROOT)])},
    )
    try:
        said, wrong = child.communicate(spec.to_json(), timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired as error:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise BuildFailed(f"it does not compile in {BUILD_SECONDS:.0f} s") from error
    if child.returncode:
        raise BuildFailed(f"it does not compile: {wrong.strip()[-1500:]}")
    path, seconds = said.split("\n")[:2]
    return Path(path), float(seconds)


class Rows:
    """The file of rows; the last of an index counts."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        self.rows: dict[int, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(json.JSONDecodeError):  # the last line of a killed run
                    row = json.loads(line)
                    self.rows[row["index"]] = row

    def held(self, index: int, digest: str) -> dict[str, Any] | None:
        """A right row of the same kernel and problems: what was wrong may have been mended elsewhere."""
        row = self.rows.get(index)
        return row if row and row["verdict"] == RIGHT and row["digest"] == digest else None

    def put(self, row: dict[str, Any]) -> None:
        with self._lock:
            self.rows[row["index"]] = row
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def digest(entry: Entry, key: str) -> str:
    """Of all that decides a row: the kernel's key in the store, and the problems."""
    problems = [one.to_dict() for one in (*entry.problems, *entry.refused)]
    return hashlib.sha256(json.dumps([key, problems], sort_keys=True).encode()).hexdigest()[:16]


def _outcomes(entry: Entry, library: Path, workers: Workers) -> Iterator[dict[str, Any]]:
    for one, must_serve in [*((x, True) for x in entry.problems), *((x, False) for x in entry.refused)]:
        yield {**_outcome(entry.spec, library, one, must_serve, workers), "problem": one.to_dict()}


def _outcome(spec: KernelSpec, library: Path, one: Problem, must_serve: bool, workers: Workers) -> dict[str, Any]:
    try:
        return workers.prove_drawn(spec, library, one, must_serve, PROBLEM_SECONDS)
    except AssertionError as error:
        return {"label": one.label(), "verdict": WRONG, "detail": str(error)}
    except TooLong as error:
        smaller = proving(spec.op).plain(spec, one.seed)
        why = f"{one.label()} did not end in {PROBLEM_SECONDS:.0f} s; {smaller.label()} in its stead"
        if one == smaller:
            return {"label": one.label(), "verdict": WRONG, "detail": str(error)}
        found = _outcome(spec, library, smaller, True, workers)
        return {**found, "instead_of": one.label(), "detail": f"{why}: {found['detail']}" if found["detail"] else ""}


def make_row(entry: Entry, key: str, workers: Workers) -> dict[str, Any]:
    spec, started = entry.spec, time.perf_counter()
    row: dict[str, Any] = {
        "index": entry.index,
        "digest": digest(entry, key),
        "name": spec.name,
        "pool": entry.pool,
        "arch": spec.arch,
        "inputs": proving(spec.op).inputs(spec),
        "pipeline": spec.schedule.pipeline,
        "spec": json.loads(spec.to_json()),
        "rules": dict(entry.rules),
        "problems": [],
    }
    try:
        library, row["cpu_seconds"] = build(spec)
        row["build_seconds"] = round(time.perf_counter() - started, 1)
        started = time.perf_counter()
        row["early"] = touched_early(spec, library)
        row["problems"] = list(_outcomes(entry, library, workers))
    except BuildFailed as error:
        row["detail"] = str(error)
    row["run_seconds"] = round(time.perf_counter() - started, 1)
    wrong = [one for one in row["problems"] if one["verdict"] == WRONG]
    row["verdict"] = WRONG if wrong or not row["problems"] or row.get("early") else RIGHT
    if row.get("early"):
        row["detail"] = row["early"]
    if wrong:
        row["detail"] = f"{wrong[0]['label']}: {wrong[0]['detail']}"
    return row


def _work(todo: Iterator[int], lock: threading.Lock, draw: Callable[[int], Entry], rows: Rows) -> None:
    workers, made = Workers(needs.checkout()), 0
    while True:
        with lock:
            index = next(todo, None)
        if index is None:
            break
        entry = draw(index)
        key = Builder().key_of(entry.spec).key
        held = rows.held(index, digest(entry, key))
        if held is None:
            held = make_row(entry, key, workers)
            rows.put(held)
            made += 1
            if made % KERNELS_A_WORKER == 0:
                workers.close()
        detail = f": {held.get('detail', '')[:300]}" if held["verdict"] == WRONG else ""
        print(f"{index:4} {held['verdict']:5} {held['name']}{detail}", flush=True)
    workers.close()


_DRAWING = threading.Lock()


def in_turn(name: str, seed: int, archs: Sequence[str], index: int) -> Entry:
    """Entry `index` of a seed, of the arch whose turn it is: of each there are as many."""
    with _DRAWING:
        draw_only((archs[index % len(archs)],))
        return proving(name).draw(seed, index)


def run(
    name: str, seed: int, indices: list[int], jobs: int, path: Path, archs: Sequence[str] = MODELLED
) -> list[dict[str, Any]]:
    """The rows of an op's indices, made or found."""
    rows, lock, todo, draw = Rows(path), threading.Lock(), iter(indices), partial(in_turn, name, seed, archs)
    builder = Builder()
    cdna = {one for one in archs if all_archs()[one].family == "cdna"}  # the others have nothing to share
    with builder.store.workspace() as work:  # what all compiles share, once for all
        for arch in sorted(cdna):
            prepare([(backend("hip").toolchain(), arch, name)] * len(indices), builder.store, work)
    team = [threading.Thread(target=_work, args=(todo, lock, draw, rows)) for _ in range(jobs)]
    for one in team:
        one.start()
    for one in team:
        one.join()
    return [rows.rows[index] for index in indices if index in rows.rows]


def _ruled(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the rule that refuses its kernel now, where it was wrong and one does."""
    of = op(row["spec"]["op"])
    broken = [one.rule for one in of.check(of.spec_from_dict(row["spec"]))]
    return {**row, "now_refused": ", ".join(broken)} if broken and row["verdict"] != RIGHT else row


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Draw AMD kernels by seed, build and execute them.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--op", choices=proven(), default="gemm")
    parser.add_argument(
        "--arch",
        action="append",
        choices=(*MODELLED, STAND_IN),
        help="draw of this one alone, or of several in turn; all, unless one is named",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, action="append", help="an index to repeat; the document is left alone")
    parser.add_argument("--so-far", action="store_true", help="write what an unfinished run has, and execute nothing")
    parser.add_argument("--results", type=Path, default=ROOT / "build")
    parser.add_argument("--document", type=Path)
    return parser.parse_args()


def _own_store() -> None:
    """The store of the tests: kernels of the catalog and of other seeds are found there, the user's is left alone."""
    given = Path(os.environ.get("TILEWRIGHT_CACHE_DIR") or ROOT / ".pytest_cache").expanduser().absolute()
    os.environ["TILEWRIGHT_CACHE_DIR"] = str(given if given.name == STORE else given / STORE)


def main() -> int:
    given = _parsed()
    _own_store()
    said = needs.missing() or needs.wrong()
    try:
        compiler = backend("hip").toolchain().identity.version
    except TilewrightError as error:
        said, compiler = said or str(error), ""
    if said:
        print(f"AMD kernels are not executed, and nothing was changed: {said}", file=sys.stderr)
        return 2
    of_op = "" if given.op == "gemm" else f"_{given.op}"
    of_op += "".join(f"_{arch}" for arch in given.arch or ())
    indices, path = given.only or list(range(given.count)), given.results / f"amd_random{of_op}_{given.seed}.jsonl"
    if given.so_far:
        held = Rows(path).rows
        found = [held[index] for index in indices if index in held]
    else:
        archs = [one for one in given.arch or MODELLED if one in all_archs()]
        found = run(given.op, given.seed, indices, max(1, given.jobs), path, archs)
    wrong = [one for one in found if one["verdict"] != RIGHT]
    print(f"{given.op}, seed {given.seed}: {len(found)} kernels, {len(found) - len(wrong)} right, {len(wrong)} wrong")
    for one in wrong:
        print(f"  index {one['index']} {one['name']}: {one.get('detail', '')}")
        print(f"    again: make test-amd-emulated OP={given.op} SEED={given.seed} ONLY={one['index']}")
    if given.document and not (given.only or given.arch) and (len(found) == given.count or given.so_far):
        facts = random_report.Facts(given.seed, given.count, compiler, emulator_version(needs.checkout()), given.op)
        random_report.write(given.document, facts, [_ruled(one) for one in found])
    return 1 if wrong or len(found) < len(indices) else 0


if __name__ == "__main__":
    sys.exit(main())
