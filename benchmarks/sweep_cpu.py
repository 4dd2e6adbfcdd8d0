"""Training data of learned selection on a CPU: random problems, every default kernel, through the tile engine.

    python benchmarks/sweep_cpu.py SEED [--op gemm] [--count 240] [--targets T...] [--kinds K...] [--threads 1 2]
        --store sweep.db --output sweep.json.gz
    tilewright learn train gemm --data sweep.json.gz --target T

Problems: those of `tilewright problems show OP random:SEED:COUNT`; of GEMM every other six have their sizes rounded to
a multiple of 8 to 128, as most sizes in use are; of conv a third is channels-first, and some first layers are of larger
images.  Targets and kinds (element types; of conv the directions, in fp32)
take turns a few problems at a time, thread counts too, so that a run that ends early has some of each.  Kernels are
built before anything is measured.  The same command goes on where it ended (the store knows); --build-only stops after
the building.

--least is for a machine that others use too, or whose processors are somebody's threads (with two of them half of the
medians of a virtual machine that was left alone were spread by a fifth and more): every kernel is checked and timed in
this process, in turns, and the least of the rounds counts instead of the median; what was measured by then is written
when the time is over.  --again FILE takes every other round for a second file, to judge by (`train_models.py --judge
NAME=FILE,AGAIN`): whoever was the fastest by luck is not so twice.
"""

from __future__ import annotations

import argparse
import random
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from _machine import command_line

from tilewright import ops, settings
from tilewright.arch import runnable_host_archs
from tilewright.backends.base import resolve_target
from tilewright.build import Builder
from tilewright.dispatch import kernels
from tilewright.dispatch.records import machine
from tilewright.dispatch.results import OK, KernelRow, Result, Results
from tilewright.learn import packed
from tilewright.ops.base import KernelSpec, Op, plain
from tilewright.ops.engine import engine
from tilewright.runtime import samples
from tilewright.runtime.bindings import binding
from tilewright.runtime.devices import device_of
from tilewright.runtime.timing import Method
from tilewright.tune.sweep import Options, Sweep, Work, candidates

FEW_CHANNELS = 8  # of a first layer
GRAINS = (8, 16, 32, 64, 128)
TURN = 12  # problems of one target and kind at a time
KINDS = {"gemm": ("fp32", "bf16", "int8"), "conv": ("forward", "backward_data", "backward_weight")}
# Of --least: rounds of a half, of all of them, how long for a problem; and the rounds after which a kernel that never
# came within HOPELESS of the fastest runs no more (2 would be too near: a thread that has to wait doubles a time).
LEAST_ROUNDS, MOST_ROUNDS, PROBLEM_SECONDS, FIRST_LOOK, HOPELESS = 9, 120, 0.16, 4, 3.0


def problems(op: Op, seed: int, count: int, kind: str) -> list[Any]:
    drawn = engine(op).random(seed, count, "cpu")
    draw = random.Random(seed)
    if op.name != "gemm":
        return [op.problem({**_as_images_lie(draw, one), "variant": kind, "datatype": "fp32"}) for one in drawn]
    found = []
    for index, one in enumerate(drawn):
        values = dict(one)
        if index // 6 % 2:
            grain = draw.choice(GRAINS)
            values |= {axis: max(1, round(one[axis] / grain)) * grain for axis in "mnk" if one[axis] > grain}
        found.append(op.problem(values | {"datatype": kind}))
    return found


def _as_images_lie(draw: random.Random, values: Mapping[str, Any]) -> dict[str, Any]:
    """Every third problem channels-first; every other first layer with an image three times as wide and high."""
    found = dict(values)
    if draw.random() < 1 / 3:
        found["layout"] = "nchw"
    if values["channels"] <= FEW_CHANNELS and draw.random() < 0.5:
        sizes = [int(one) for one in values["size"].split("x")]
        found |= {"size": "x".join(str(one if index < len(sizes) - 2 else 3 * one) for index, one in enumerate(sizes)),
                  "batch": max(1, values["batch"] // 4)}  # fmt: skip
    return found


def turns(options: argparse.Namespace) -> Iterator[tuple[str, int, list[Any]]]:
    """A target, a number of threads, and a few problems."""
    asked = [problems(options.op, options.seed + at, options.count, kind) for at, kind in enumerate(options.kinds)]
    for first in range(0, options.count, TURN):
        for one in asked:
            for target in options.targets:
                mine = one[first : first + TURN]
                yield target, options.threads[first // TURN % len(options.threads)], mine


def sweep_of(target: str, store: Results, options: argparse.Namespace) -> Sweep:
    method = Method(rounds=options.rounds, sample_seconds=options.sample)
    return Sweep(options.op, target, store, Options(method=method, jobs=options.jobs, patience=options.patience))


def build(options: argparse.Namespace) -> None:
    specs = {
        spec.digest: spec
        for target, _, mine in turns(options)
        for problem in mine
        for spec in options.op.candidates(options.op.signature_of(problem), target)
        if not options.op.supports(spec, problem)
    }
    started = time.perf_counter()
    Builder().build_many(list(specs.values()), max_workers=options.jobs)
    print(f"{len(specs)} kernels ready in {time.perf_counter() - started:.0f} s", flush=True)


def measure(options: argparse.Namespace) -> None:
    store, started, done = Results(options.store), time.perf_counter(), 0
    for target, threads, mine in turns(options):
        if time.perf_counter() - started > options.most_seconds:
            print("cut short: the same command goes on", flush=True)
            break
        with settings.override(threads=threads):
            one = sweep_of(target, store, options)
            work: Work = one.plan(mine, candidates(options.op, target))
            if work.total:
                progress = one.run(work)
                done += progress.done
                failed = ", ".join(f"{count} {word}" for word, count in progress.failed.items())
                took = time.perf_counter() - started
                print(
                    f"{took:6.0f} s {done} times, {target} {mine[0].describe()} {threads} threads {failed}", flush=True
                )
    about = {"command": command_line()}
    name = options.op.name
    count = packed.write(options.output, name, store.all(" WHERE p.op = ?", [name]), about)
    print(f"{count} times in {options.output}")


def least(options: argparse.Namespace) -> None:
    """Each problem's kernels in turns, the least of the rounds."""
    rows: tuple[list[Result], list[Result]] = [], []
    op, started = options.op, time.perf_counter()
    about = {"command": command_line()}
    for target, threads, mine in turns(options):
        if time.perf_counter() - started > options.most_seconds:
            break
        with settings.override(threads=threads):
            for problem in mine:
                found = least_of(op, op.measured_as(problem), target, threads, halves=2 if options.again else 1)
                for put, name in zip(rows, ("one", "other"), strict=True):
                    both = {
                        spec: times[name] if options.again else min(times.values()) for spec, times in found.items()
                    }
                    put += as_results(problem=op.measured_as(problem), times=both, target=target, threads=threads)
    count = packed.write(options.output, op.name, rows[0], about)
    if options.again:
        packed.write(options.again, op.name, rows[1], about)
    print(f"{count} times in {time.perf_counter() - started:.0f} s")


def least_of(op: Op, problem: Any, target: str, threads: int, halves: int) -> dict[KernelSpec, dict[str, float]]:
    """Seconds by kernel, of one half of the rounds and of the other; `halves` says how many of them must be whole."""
    bound, device, clock = binding(op.name), device_of(target), time.perf_counter
    sample = samples.make(bound, problem, secrets.randbelow(2**32), device)
    judge, runs = samples.judge(bound, problem, sample), {}
    for spec in op.candidates(op.signature_of(problem), target):
        if op.supports(spec, problem):
            continue
        samples.poison_results(bound, sample)
        run = samples.runner(bound, kernels.kernel(spec), problem, sample, device, threads)
        run()
        if judge(spec)[0].ok:
            runs[spec] = run
    best = {spec: {"one": float("inf"), "other": float("inf")} for spec in runs}
    end, turn = clock() + PROBLEM_SECONDS, 0
    while turn < halves * LEAST_ROUNDS or (clock() < end and turn < MOST_ROUNDS):
        half = "other" if turn % 2 else "one"
        if turn == FIRST_LOOK and runs:
            first = {spec: min(times.values()) for spec, times in best.items()}
            runs = {spec: run for spec, run in runs.items() if first[spec] <= HOPELESS * min(first.values())}
        for spec, run in runs.items():
            before = clock()
            run()
            best[spec][half] = min(best[spec][half], clock() - before)
        turn += 1
    return best


def as_results(problem: Any, times: dict[KernelSpec, float], target: str, threads: int) -> list[Result]:
    method = {"kind": "interleaved rounds, least", "rounds": LEAST_ROUNDS}
    return [
        Result(problem.op, plain(problem), machine(target), threads,
               KernelRow(spec.digest, spec.name, spec.arch, spec.to_dict()), OK, seconds, method=method,
               versions={}, date=0.0)
        for spec, seconds in times.items()
    ]  # fmt: skip


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--op", default="gemm", choices=sorted(KINDS))
    parser.add_argument("--count", type=int, default=240, help="of a target and kind")
    parser.add_argument("--targets", nargs="+", help="default: the best this machine runs, and x86_64_v3")
    parser.add_argument("--kinds", nargs="+", help=f"default: {', '.join(KINDS['gemm'])}; {', '.join(KINDS['conv'])}")
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 1], help="in turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sample", type=float, default=0.001, help="seconds a sample takes about")
    parser.add_argument("--patience", type=float, default=2.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--jobs", type=int, default=None, help="compilers at once")
    parser.add_argument("--most-seconds", type=float, default=float("inf"))
    parser.add_argument("--least", action="store_true", help="others use the machine: the least of the rounds counts")
    parser.add_argument("--again", type=Path, help="with --least: every other round, for this file")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.op, options.kinds = ops.op(options.op), options.kinds or KINDS[options.op]
    known = [one.name for one in runnable_host_archs()]
    options.targets = options.targets or list(dict.fromkeys([resolve_target(None).name, "x86_64_v3"]))
    for one in options.targets:
        if one not in known:
            raise SystemExit(f"this machine does not run {one}: it runs {', '.join(known)}")
    return options


def main() -> None:
    options = parsed()
    build(options)
    if not options.build_only:
        (least if options.least else measure)(options)


if __name__ == "__main__":
    main()
