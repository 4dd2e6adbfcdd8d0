"""Kills at random moments of a sweep on the CPU: no row that was told as finished is lost, none is measured twice.

    python benchmarks/kills.py --seed 20261115 --kills 200

A sweep of GEMM problems runs in a process of its own, and is killed (SIGKILL) at moments drawn by the seed: the whole
process group, the sweep alone, or the worker that runs the kernels.  It is started again each time, and goes on.  After
every kill the store must be sound and hold every row that was told; a sweep that comes to its end must have exactly the
rows, all with the status, of one that nobody disturbed.  Then the next one begins with an empty store, until there were
enough kills.  The first begins with no kernels built, so that some kills meet compilers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _machine import RESULTS, provenance

from tilewright import ops
from tilewright.dispatch.results import Results
from tilewright.runtime.timing import Method
from tilewright.tune.sweep import Options, Sweep, candidates

TARGET = "generic"
KINDS = ("group", "driver", "worker")
LONGEST = 3.0  # seconds from the first row of a life, or of every fourth from its start, to its kill

Key = tuple[str, int]  # kernel and problem
Rows = dict[Key, tuple[str, str]]  # status and reason


def drive(store: Path, problems: int) -> None:
    """The sweep that is killed; it prints a row when it is finished."""
    gemm = ops.op("gemm")
    asked = [gemm.problem({"m": size, "n": 8, "k": 8}) for size in range(1, problems + 1)]
    options = Options(Method(rounds=2, sample_seconds=1e-5, seed=7), patience=0.0, batch=2, jobs=1)
    one = Sweep(gemm, TARGET, Results(store), options)
    one.run(one.plan(asked, candidates(gemm, TARGET)), on_row=lambda row, _: _tell(row))
    print("end", flush=True)


def _tell(row: Any) -> None:
    print(row.kernel.digest, row.problem["m"], flush=True)


@dataclass
class Life:
    """One process of the sweep, from its start to its end."""

    store: Path
    problems: int

    def __post_init__(self) -> None:
        command = [sys.executable, __file__, "--drive", str(self.store), "--problems", str(self.problems)]
        # A file, not a pipe: nothing that was told waits for us to read it.
        self._said = self.store.with_suffix(".said")
        with self._said.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, start_new_session=True)

    def workers(self) -> list[int]:
        """Processes of the sweep that run kernels."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, ValueError):
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and b"tilewright.tune.worker" in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
        return found

    def kill(self, kind: str) -> bool:
        """Whether there was something to kill."""
        if self.process.poll() is not None:
            return False
        if kind == "worker":
            mine = self.workers()
            for one in mine[:1]:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            return bool(mine)
        with suppress(ProcessLookupError):
            (os.killpg if kind == "group" else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True

    def told(self) -> list[Key]:
        lines = [one.split() for one in self._said.read_text().splitlines(keepends=True) if one.endswith("\n")]
        return [(digest, int(size)) for digest, size in (one for one in lines if len(one) == 2)]

    @property
    def ended(self) -> bool:
        return "end\n" in self._said.read_text()

    def words(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode("utf-8", "replace")[-2000:]


@dataclass
class Count:
    """What came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    during: Counter[str] = field(default_factory=Counter)  # what the sweep was doing
    lives: int = 0
    sweeps: int = 0
    told: int = 0
    lost: int = 0
    twice: int = 0
    damaged: int = 0
    incomplete: int = 0
    other_status: int = 0
    others: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not (self.lost or self.twice or self.damaged or self.incomplete or self.other_status)


def rows_of(store: Path) -> Rows:
    return {(one.kernel.digest, one.problem["m"]): (one.status, one.reason) for one in Results(store).all()}


def undisturbed(folder: Path, problems: int) -> Rows:
    """The rows of a sweep that nobody kills."""
    life = Life(folder / "undisturbed.db", problems)
    life.process.wait()
    if not life.ended:
        raise SystemExit(f"the sweep does not even run undisturbed: {life.words()}")
    return rows_of(life.store)


class Tried:
    """Sweeps under kills, one after another."""

    def __init__(self, seed: int, kills: int, problems: int, folder: Path, longest: float = LONGEST) -> None:
        self._draw, self._kills, self._problems = random.Random(seed), kills, problems
        self._folder, self._longest = folder, longest
        self.count = Count()
        self._finished: list[Rows] = []

    def run(self) -> Count:
        while sum(self.count.kills.values()) < self._kills:
            self._sweep(self._folder / f"{self.count.sweeps}.db")
        expected = undisturbed(self._folder, self._problems)
        for rows in self._finished:
            self.count.incomplete += len(expected.keys() ^ rows.keys())
            changed = [rows[key] for key, one in expected.items() if key in rows and rows[key][0] != one[0]]
            self.count.other_status += len(changed)
            self.count.others += [": ".join(one) for one in changed]
        return self.count

    def _sweep(self, store: Path) -> None:
        """One sweep to its end, with kills as long as there are any left."""
        told: set[Key] = set()
        ended = False
        while not ended:
            ended = self._life(store, told)
        self.count.sweeps += 1
        self._finished.append(rows_of(store))

    def _life(self, store: Path, told: set[Key]) -> bool:
        """From a start to a kill, or to the end; whether it was the end."""
        life = Life(store, self._problems)
        self.count.lives += 1
        for kind in self._moments(life):
            if not life.kill(kind):
                continue
            self.count.kills[kind] += 1
            rows = len(life.told())
            self.count.during["measuring" if rows else "starting, planning or building"] += 1
            if kind != "worker":
                break
        life.process.wait()
        self._look(life, told)
        if life.process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"the sweep failed by itself: {life.words()}")
        return life.ended

    def _moments(self, life: Life) -> Iterator[str]:
        """What is to be killed, each when its time has come; nothing more once the sweep is at its end."""
        while sum(self.count.kills.values()) < self._kills:
            kind, early, wait = self._draw.choice(KINDS), self._draw.random() < 0.25, self._draw.random()
            while not early and not life.told():  # starting and building take their time
                if life.process.poll() is not None:
                    return
                time.sleep(0.01)
            ends = time.monotonic() + wait * self._longest
            while time.monotonic() < ends:
                if life.process.poll() is not None:
                    return
                time.sleep(0.002)
            yield kind

    def _look(self, life: Life, told: set[Key]) -> None:
        """The store after a life: sound, and with all that was told in it."""
        said = life.told()
        self.count.told += len(said)
        self.count.twice += sum(one in told for one in said) + len(said) - len(set(said))
        told.update(said)
        if not life.store.exists():
            self.count.lost += len(told)
            return
        self.count.damaged += bool(Results(life.store).check())
        self.count.lost += len(told - rows_of(life.store).keys())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--problems", type=int, default=120)
    parser.add_argument("--output", type=Path, default=RESULTS / "kills.json")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive is not None:
        drive(args.drive, args.problems)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(Path(folder) / "cache")  # nothing is built yet
        start = time.monotonic()
        count = Tried(args.seed, args.kills, args.problems, Path(folder)).run()
        seconds = time.monotonic() - start
    data = {
        **provenance(f"python benchmarks/kills.py --seed {args.seed} --kills {args.kills} --problems {args.problems}"),
        "seed": args.seed, "kills": dict(count.kills), "while": dict(count.during), "sweeps": count.sweeps,
        "starts": count.lives, "rows_told": count.told, "rows_lost": count.lost, "rows_told_twice": count.twice,
        "stores_damaged": count.damaged, "rows_missing_or_extra": count.incomplete,
        "rows_with_another_status": count.other_status, "other_statuses": count.others, "seconds": round(seconds, 1),
    }  # fmt: skip
    args.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in data.items() if name not in ("machine", "versions")}, indent=1))
    return 0 if count.right else 1


if __name__ == "__main__":
    sys.exit(main())
