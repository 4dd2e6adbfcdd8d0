"""Libraries in processes of their own, taking turns on the CPU: what gemm_cpu.py, conv_cpu.py and trees.py share.

A library that is not in turn is stopped, so that its waiting threads cost nobody a core.  A ratio is the median of the
peer over our median: above 1 we are faster.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT, provenance

from tilewright import settings

SLOW_SECONDS = 0.5  # a peer this slow is timed in few rounds: its place is clear
SLOW_ROUNDS = 3
HOPELESS_SECONDS = 1.0
QUIET_CORES = 0.05  # what others may use of the CPU beside a shape's race; else it is run again
MOST_ATTEMPTS = 5


class Worker:
    """A library's process; stopped except while it answers."""

    def __init__(
        self,
        name: str,
        threads: int,
        options: dict[str, Any],
        script: Path,
        variables: dict[str, str] | None = None,
    ) -> None:
        # Our own process needs no BLAS threads: there NumPy only computes references.
        blas = "1" if name == "tilewright" else str(threads)
        usual = {"OMP_NUM_THREADS": blas, "OPENBLAS_NUM_THREADS": blas, "MKL_NUM_THREADS": blas}
        variables = usual | (variables or {})
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, str(script), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=settings.child_environment(variables),
        )
        self.versions = self.ask({"do": "start", "threads": threads, **options})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.kill(self._process.pid, signal.SIGCONT)
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the {self.name} process died with exit code {self._process.wait()} on {request}")
        os.kill(self._process.pid, signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{self.name} on {request}: {answer['error']}")
        return answer

    @property
    def process(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Bench:
    """The processes of the libraries that are raced, and the seed of their operands.

    A benchmark's own says what it asks of them: `measure` is one line of its table.
    """

    def __init__(self, options: argparse.Namespace, peers: Sequence[str], script: Path, **more: Any) -> None:
        self.options, self.peers, self.seed = options, tuple(peers), secrets.randbelow(2**32)
        extra = {"mode": options.mode, "store": str(options.store.absolute()), **more}
        self.workers: dict[str, Worker] = {}
        try:
            for name in ("tilewright", *peers):
                self.workers[name] = Worker(name, options.threads, extra, script)
        except BaseException:
            self.end()
            raise
        self.versions = {key: text for one in self.workers.values() for key, text in one.versions.items()}

    def measure(self, *problem: Any) -> dict[str, Any]:
        raise NotImplementedError

    def end(self) -> None:
        for one in self.workers.values():
            one.end()


@dataclass
class Entrant:
    """One thing that is timed on a shape: a library and the form of the call."""

    label: str
    worker: Worker
    key: str
    repeats: int = 1
    rounds: int = 0
    samples: list[float] = field(default_factory=list)

    def turn(self) -> float:
        return float(self.worker.ask({"do": "time", "key": self.key, "repeats": self.repeats})["seconds"])

    def calibrate(self, options: argparse.Namespace) -> None:
        took = self.turn()
        self.repeats = max(1, min(100_000, round(options.turn / max(took, 1e-7))))
        self.rounds = options.rounds if took < SLOW_SECONDS else min(options.rounds, SLOW_ROUNDS)
        if took > HOPELESS_SECONDS:  # seconds a call: the first turn says enough
            self.rounds, self.samples = 1, [took]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


def seconds_of_all() -> float:
    """CPU time of everybody on this machine so far, and what a hypervisor took from it; 0 where nobody says."""
    try:
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _idle, _waits, hard, soft, stolen = map(int, words[1:9])
    return (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")


def seconds_of(processes: set[int]) -> float:
    """CPU time of these processes so far."""
    ticks = 0
    for process in processes:
        try:
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(words[11]) + int(words[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def race(entrants: list[Entrant], options: argparse.Namespace) -> float:
    """Runs rounds until nobody else works beside them; returns how many cores others used in those that are kept."""
    for one in entrants:
        one.calibrate(options)
    fixed = {one.label: list(one.samples) for one in entrants}
    racers = {os.getpid(), *(one.worker.process for one in entrants)}
    attempts: list[tuple[float, dict[str, list[float]]]] = []
    for number in range(MOST_ATTEMPTS):
        time.sleep(number)  # what disturbed the last one may be over
        for one in entrants:
            one.samples = list(fixed[one.label])
        start, everybody, ours = time.monotonic(), seconds_of_all(), seconds_of(racers)
        rounds(entrants, options)
        others = seconds_of_all() - everybody - (seconds_of(racers) - ours)
        attempts.append((max(0.0, others / (time.monotonic() - start)), {one.label: one.samples for one in entrants}))
        if attempts[-1][0] <= QUIET_CORES:
            break
    beside, samples = min(attempts, key=lambda attempt: attempt[0])
    for one in entrants:
        one.samples = samples[one.label]
    return beside


def rounds(entrants: list[Entrant], options: argparse.Namespace) -> None:
    """Rounds of turns; nobody always follows the same neighbour."""
    for number in range(options.rounds):
        shift = number % len(entrants)
        for one in (*entrants[shift:], *entrants[:shift]):
            if len(one.samples) < one.rounds:
                time.sleep(options.pause)
                one.samples.append(one.turn())


def ratio(over: Entrant, ours: Entrant) -> dict[str, float]:
    """The other's time over ours: of the medians, and how far single rounds stray from that."""
    paired = sorted(a / b for a, b in zip(over.samples, ours.samples, strict=False))
    low, _, high = statistics.quantiles(paired, n=4, method="inclusive") if len(paired) > 1 else paired * 3
    return {
        "ratio": over.median / ours.median,
        "low": paired[0],
        "quartile_1": low,
        "quartile_3": high,
        "high": paired[-1],
    }


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


# -- what is asked, and what is kept -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usual:
    """Where nobody says otherwise."""

    dtypes: str  # comma-separated
    count: int  # of random problems
    turn: float  # seconds
    pause: float


def parser_of(about: str, example: str, usual: Usual) -> argparse.ArgumentParser:
    """The options every race has."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="a few shapes, few rounds, nothing written")
    parser.add_argument("--dtypes", default=usual.dtypes, help="comma-separated")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--rounds", type=int, default=0, help="turns of each library a shape; 0 means as usual")
    parser.add_argument("--shapes", default="", help=f"only shapes whose name matches, e.g. '{example}'")
    parser.add_argument("--random", type=int, metavar="SEED", help="problems drawn with this seed instead of the list")
    parser.add_argument("--count", type=int, default=usual.count, help="of random problems")
    parser.add_argument("--mode", choices=("select", "measured"), default="select", help="measured: tune first")
    parser.add_argument("--turn", type=float, default=usual.turn, help="seconds of one turn")
    parser.add_argument("--pause", type=float, default=usual.pause, help="seconds between turns")
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "benchmark-store", help="kernel store")
    parser.add_argument("--output", type=Path, help="result file; a run of everything has one by itself")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    return parser


def listed(parser: argparse.ArgumentParser, name: str, given: str, known: Sequence[str]) -> list[str]:
    """The words of a comma-separated option, each of them one that is known."""
    found = given.split(",")
    for one in found:
        if one not in known:
            parser.error(f"--{name}: {one!r} is none of {', '.join(known)}")
    return found


def tell(found: dict[str, dict[str, Any]]) -> None:
    """A summary's geometric means, each with its worst shape and whether it meets what it is held to."""
    for name, one in found.items():
        verdict = f" (target {one['target']}): {'met' if one['met'] else 'MISSED'}" if one["target"] else ""
        print(f"{name}: geometric mean {one['geometric_mean']:.3f} over {one['shapes']} shapes, P10 {one['p10']:.2f}, "
              f"least {one['least']:.2f} at {one['least_shape']}{verdict}")  # fmt: skip


def noise_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """What other work ran beside the race, for the result file."""
    beside = [row["others_cores"] for row in rows]
    return {
        "median_cores_of_others": statistics.median(beside) if beside else 0.0,
        "most_cores_of_others": max(beside, default=0.0),
        "shapes_never_quiet": sum(one > QUIET_CORES for one in beside),
    }


def kept(options: argparse.Namespace, name: str, *, whole: bool) -> argparse.Namespace:
    """A run of everything has a result file by itself."""
    if options.output is None and whole and not options.quick and not options.shapes:
        options.output = RESULTS / f"{name}{'' if options.random is None else '_random'}.json"
    return options


def run(
    name: str,
    wanted: Sequence[tuple[Any, ...]],
    bench: Bench,
    head: str,
    line: Callable[[dict[str, Any]], str],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Race every problem and print its line; the rows, and what a result file begins with."""
    about = provenance(shlex.join(["python", f"benchmarks/{name}.py", *sys.argv[1:]]))
    options, rows = bench.options, []
    if about["machine"]["cores"] < options.threads:
        print(f"note: {options.threads} threads, and cores: {about['machine']['cores']}; the times mean little")
    try:
        print(head)
        for problem in wanted:
            rows.append(bench.measure(*problem))
            print(line(rows[-1]), flush=True)
    finally:
        bench.end()
    about["versions"] |= bench.versions
    method = {"threads": options.threads, "rounds": options.rounds, "turn_seconds": options.turn}
    method |= {"pause_seconds": options.pause, "mode": options.mode, "seed": bench.seed}
    if options.random is not None:
        method |= {"drawn_with": options.random, "count": options.count}
    return rows, {"benchmark": name, **about, "method": method, "noise": noise_of(rows)}


def finish(options: argparse.Namespace, result: dict[str, Any], found: dict[str, dict[str, Any]]) -> None:
    """Write the result where it is kept; with --check a target that is missed ends the process with 1."""
    if options.output is not None:
        written(options.output, result)
    if options.check and not all(one["met"] for one in found.values()):
        raise SystemExit(1)


def written(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
