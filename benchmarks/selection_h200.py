"""Selection with the model beside selection by the estimate alone, on random GEMM problems of an NVIDIA GPU.

    python benchmarks/selection_h200.py SEED [--count 180] [--dtypes bf16 fp16] [--output F.json]
    python benchmarks/selection_h200.py SEED --dry-run --output F.json      a rehearsal: its times mean nothing

Both are what the registry selects with nothing measured, once with the setting `models` and once without.  The kernels
both chose, and torch.matmul beside them, take turns in one race (_cuda_timing.py says how; caches cold), checked
against float64 first.  Where both chose the same kernel it runs once and counts for both.  By family: the geometric
mean and P10 of each selection's rate over torch.matmul's, and of the model's over the estimate's.  Problems:
_h200_random.py; the seed is to be drawn after the training of the model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _cuda_report import geometric_mean, provenance, write
from _cuda_timing import Clock, GraphClock, HostClock
from _h200_bench import SHORT, Kernels
from _h200_operands import Operands, Wrong
from _h200_race import REHEARSAL, distribution, p10, wanted_of
from _h200_random import FAMILIES, LAYOUTS, Drawn, random_problems

from tilewright import settings
from tilewright.backends.cuda import driver
from tilewright.dispatch import learned, model_files
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

Row = dict[str, Any]
BOTH = {"model": True, "estimate": False}
RESULT = Path(__file__).parent / "results" / "selection_h200.json"
RATIOS = (("model", "cublas"), ("estimate", "cublas"), ("model", "estimate"))  # whose rate over whose


class Selections(Kernels):
    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        super().__init__(options, clock, arch)
        self.rows: list[Row] = []

    def chosen(self, problem: GemmProblem) -> dict[str, KernelSpec]:
        found = {}
        for name, asked in BOTH.items():
            with settings.override(models=asked, measure=False):
                found[name] = self.registry.select(problem).spec
        return found

    def decided(self, problem: GemmProblem) -> str:
        """Which tier decides where the model may."""
        with settings.override(models=True, measure=False):
            return self.registry.select(problem).tier

    def problem(self, drawn: Drawn) -> None:
        one = Operands(wanted_of(drawn), self.clock.device)
        ours = self.chosen(one.problem)
        ready = self.checked({spec.digest: spec for spec in ours.values()}.values(), one)
        if any(spec.name not in ready for spec in ours.values()):
            return
        try:
            peer = one.peer()
            one.check_peer("PyTorch", peer, self.clock)
        except Wrong as error:
            self.wrong.append(str(error))
            return
        calls = {"cublas": self.clock.captured(peer)} | {name: call for name, (_, call) in ready.items()}
        rounds = self.options.rounds
        first = self.clock.rounds(list(calls.values()), 1, "cold")
        rounds *= 2 if min(times[0] for times in first) < SHORT else 1
        times = dict(zip(calls, self.clock.rounds(list(calls.values()), rounds, "cold"), strict=True))
        seconds = {"cublas": statistics.median(times["cublas"])}
        seconds |= {name: statistics.median(times[spec.name]) for name, spec in ours.items()}
        row: Row = {"family": drawn.family, "shape": drawn.name, "layout": drawn.layout, "dtype": drawn.dtype}
        row |= {"decided": self.decided(one.problem), "same": ours["model"].digest == ours["estimate"].digest}
        row |= {"seconds": seconds, "kernels": {name: spec.name for name, spec in ours.items()}}
        self.rows.append(row)

    def compare(self, place: Path) -> None:
        options, started = self.options, time.perf_counter()
        shrink = REHEARSAL if self.dry else 1
        drawn = random_problems(options.seed, options.count, options.dtypes, options.families, options.layouts, shrink)
        self.build_specs(
            list({spec.digest: spec for one in drawn for spec in self.chosen(wanted_of(one)).values()}.values())
        )
        head = provenance(options, self.clock) | {
            "seed": options.seed, "count": options.count, "distribution": distribution(),
        }  # fmt: skip
        try:
            for index, one in enumerate(drawn):
                if time.perf_counter() - started > options.most_seconds:
                    head["cut_short"] = f"{index} of {len(drawn)} problems in {options.most_seconds:.0f} s"
                    print(head["cut_short"])
                    break
                self.problem(one)
        finally:  # a run that ends in an error keeps what it has
            write(place, head | {"summary": summary(self.rows), "wrong": self.wrong, "rows": self.rows})
        tell(summary(self.rows))


def summary(rows: Sequence[Row]) -> list[Row]:
    """By family and over all: geometric mean, P10 and least of every ratio, and how often both chose the same."""
    found: list[Row] = []
    for family in (*dict.fromkeys(row["family"] for row in rows), "all"):
        mine = [row for row in rows if family in (row["family"], "all")]
        if not mine:
            continue
        one: Row = {"family": family, "problems": len(mine), "same": sum(row["same"] for row in mine)}
        one["by_the_model"] = sum(row["decided"] == "model" for row in mine)
        for ours, peer in RATIOS:
            ratios = [row["seconds"][peer] / row["seconds"][ours] for row in mine]
            one[f"{ours}_over_{peer}"] = {"mean": geometric_mean(ratios), "p10": p10(ratios), "least": min(ratios)}
        one["beaten"] = all(
            one["model_over_cublas"][number] >= one["estimate_over_cublas"][number] for number in ("mean", "p10")
        )
        found.append(one)
    return found


def tell(found: Sequence[Row]) -> None:
    """Mean / P10 / least of each."""
    for one in found:
        told = [
            f"{ours} over {peer} " + " ".join(f"{value:.3f}" for value in one[f"{ours}_over_{peer}"].values())
            for ours, peer in RATIOS
        ]
        counts = f"{one['problems']} problems, {one['same']} same, {one['by_the_model']} by the model"
        print(f"{one['family']:<8}{counts}; {'; '.join(told)}; {'beaten' if one['beaten'] else 'NOT beaten'}")


def rehearsed() -> None:
    """A machine without the GPU is taken for the one the model knows."""
    known = next(one for one in model_files.at_hand() if "sm_90a" in one.card.targets)
    identity = dict(known.card.devices[0])

    def machine(_: str) -> dict[str, Any]:
        return identity

    vars(learned)["machine"] = machine


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=180)
    parser.add_argument("--families", nargs="+", choices=(*FAMILIES, "batched"), default=list(FAMILIES))
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--dtypes", nargs="+", choices=("bf16", "fp16"), default=["bf16", "fp16"])
    parser.add_argument("--rounds", type=int, default=11, help="twice as many for short kernels")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="no problem begins after these")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.dry_run and not options.output:
        raise SystemExit("a rehearsal is not the result of this benchmark: say where it goes with --output")
    return options


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why and not options.dry_run:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    if options.dry_run:
        rehearsed()
        bench = Selections(options, HostClock(), "sm_90a")
    else:
        from tilewright.runtime import cuda

        bench = Selections(options, GraphClock(cuda.device().cache_bytes), cuda.device().arch)
    bench.compare(options.output or RESULT)
    if bench.wrong:
        raise SystemExit("wrong results:\n" + "\n".join(bench.wrong))


if __name__ == "__main__":
    main()
