"""Random problems on the GPU: default and measured selection beside torch.matmul and beside a tuned cublasLt.

Tuned cublasLt: the fastest, in a race of its own, of what its heuristic offers (_cublaslt.py).  Measured: the fastest
of our default kernels whose estimate is within `FAR` of the best, in such a race.  What is reported comes from one
more race of the four, so that luck in the first does not count.  With --sweep the times of the first are kept:
fit_cuda.py fits the estimate to them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _cublaslt import CublasLt, LtError
from _cuda_report import geometric_mean, provenance, write
from _cuda_timing import Clock, Run, spread
from _h200_bench import GEMM, SHORT, Kernels
from _h200_operands import Operands, Wrong, problem_of
from _h200_random import FAMILIES, Drawn, random_problems
from _packed_sweep import PackedSweep

from tilewright.backends.base import backend
from tilewright.backends.cuda.gemm.tma_ws.proposals import WAYS, tma_ws
from tilewright.backends.cuda.gemm.tma_ws.shape import most_stages
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.spec import GemmSignature

Row = dict[str, Any]
PEERS = {"cublas", "tuned"}
SWEEP_FAR = 3.0  # a sweep looks a little further than a measured selection
SAVED_EVERY = 20
REHEARSAL = 32  # how much smaller problems are on a CPU
# What a family's default and measured selection should reach of torch.matmul, as a geometric mean.
WANTED = {"large": (1.00, 1.03), "decode": (1.15, 1.15), "odd": (2.0, 2.0)}
WANTED_ELSE = (1.05, 1.10)
WANTED_P10, WANTED_LEAST = {"default": 0.92, "measured": 0.97}, {"default": 0.80}


class RandomBench(Kernels):
    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        super().__init__(options, clock, arch)
        if options.sweep:
            self.far = SWEEP_FAR
        self.rows: list[Row] = []
        self.swept = PackedSweep("gemm", arch, options.rounds, dry=self.dry)
        self.swept_peers: list[Row] = []
        self.without: list[str] = []
        self.lt = None if self.dry else self._tuned_peer()
        self.also = json.loads(options.also.read_text(encoding="utf-8")) if options.also else []

    def _tuned_peer(self) -> CublasLt | None:
        try:
            return CublasLt(self.clock.device)
        except (LtError, OSError) as error:
            print(f"no tuned cublasLt: {error}")
            return None

    def candidates(self, problem: GemmProblem) -> list[KernelSpec]:
        """The default kernels and those a person named, without those of no hope."""
        known = super().candidates(problem)
        if not self.also:
            return known
        further = [one for one in self._further(problem.signature) if not GEMM.supports(one, problem)]
        limit = self.far * backend("cuda").estimate(known[0], problem, 1)
        hopeful = [one for one in further if backend("cuda").estimate(one, problem, 1) <= limit]
        return list({one.digest: one for one in (*known, *hopeful)}.values())

    def _further(self, signature: GemmSignature) -> list[KernelSpec]:
        """tma_ws kernels of --also that are legal; 0 stages are as many as fit; the store may be named last."""
        found = []
        for m, n, stages, cluster, label, *store in self.also:
            schedule = tma_ws(signature, m, n, stages or 2, tuple(cluster), WAYS[label], *store)
            fit = min(16, most_stages(signature, schedule, self.registry.arch.scratch_bytes))
            spec = KernelSpec("gemm", signature, replace(schedule, stages=stages or fit), self.registry.target)
            if not GEMM.check(spec):
                found.append(spec)
        return found

    def peers(self, one: Operands, tf32: bool) -> dict[str, Run]:
        """torch.matmul and the fastest offer of cublasLt, checked and captured; without those that refuse."""
        found: dict[str, Run] = {}
        call = one.peer()
        try:
            one.check_peer("PyTorch", call, self.clock)
            found["cublas"] = self.clock.captured(call)
        except (RuntimeError, TypeError) as error:  # types, sizes or layouts it does not take
            self.without.append(f"PyTorch, {one.problem.describe()}: {str(error).splitlines()[0]}")
        if self.lt is None or one.problem.batch > 1:
            return found
        offers: dict[str, Run] = {}
        for index, offer in enumerate(self._offers(one, tf32)):
            try:
                offers[str(index)] = self.clock.captured(offer)
            except LtError:  # offered, and refused when called
                continue
        _, winner = self.race(offers)
        if winner:
            one.check_peer("cublasLt", offers[winner], self.clock)
            found["tuned"] = offers[winner]
        else:
            self.without.append(f"cublasLt, {one.problem.describe()}: no offer")
        return found

    def _offers(self, one: Operands, tf32: bool) -> list[Callable[[], None]]:
        assert self.lt is not None
        try:
            return self.lt.offers(one.a, one.b, one.out, tf32)
        except LtError:
            return []

    def problem(self, drawn: Drawn) -> None:
        one = Operands(wanted_of(drawn), self.clock.device)
        ours: dict[str, KernelSpec] = {"default": self.default(one.problem)}
        wanted = self.candidates(one.problem) if self.options.measured else [ours["default"]]
        ready = self.checked(wanted, one)
        if self.options.measured:
            medians, winner = self.race({name: call for name, (_, call) in ready.items()}, ours["default"].name)
            if winner:
                ours["measured"] = ready[winner][0]
        try:
            calls = self.peers(one, drawn.dtype == "tf32")
        except Wrong as error:
            self.wrong.append(str(error))
            return
        names = {name: spec.name for name, spec in ours.items() if spec.name in ready}
        calls |= {name: ready[name][1] for name in dict.fromkeys(names.values())}
        short = self.options.measured and min(medians.values(), default=1.0) < SHORT
        rounds = self.options.rounds * (2 if short else 1)
        times = dict(zip(calls, self.clock.rounds(list(calls.values()), rounds, "cold"), strict=True))
        self._row(drawn, names, times)
        if self.options.measured:
            self._sweep_row(drawn, ready, medians)

    def _sweep_row(self, drawn: Drawn, ready: dict[str, tuple[KernelSpec, Run]], medians: dict[str, float]) -> None:
        for name, seconds in medians.items():
            self.swept.add(wanted_of(drawn), ready[name][0], seconds)
        peers = {name: round(self.rows[-1]["seconds"][name] * 1e6, 3) for name in PEERS & set(self.rows[-1]["seconds"])}
        self.swept_peers.append({"problem": drawn.name, "family": drawn.family, "microseconds": peers})

    def _row(self, drawn: Drawn, names: dict[str, str], times: dict[str, list[float]]) -> None:
        row: Row = {"family": drawn.family, "shape": drawn.name, "layout": drawn.layout, "dtype": drawn.dtype}
        row |= {"m": drawn.m, "n": drawn.n, "k": drawn.k, "batch": drawn.batch, "kernels": names}
        taken: dict[str, list[float]] = {name: times[name] for name in ("cublas", "tuned") if name in times}
        taken |= {name: times[kernel] for name, kernel in names.items()}
        row["seconds"] = {name: statistics.median(one) for name, one in taken.items()}
        for name in names:
            for peer in ("cublas", "tuned"):
                if peer in taken:
                    row[f"{name}_over_{peer}"] = spread(taken[peer], taken[name])
        self.rows.append(row)
        print(line(row), flush=True)

    def compare(self, place: Path) -> None:
        options, started = self.options, time.perf_counter()
        shrink = REHEARSAL if self.dry else 1
        drawn = random_problems(
            options.random, options.count, options.dtypes, options.families, options.layouts, shrink
        )
        self.build((wanted_of(one) for one in drawn), every=options.measured)
        result = provenance(options, self.clock) | {
            "seed": options.random, "count": options.count, "distribution": distribution(),
        }  # fmt: skip
        try:
            for index, one in enumerate(drawn):
                if time.perf_counter() - started > options.most_seconds:
                    result["cut_short"] = f"{index} of {len(drawn)} problems in {options.most_seconds:.0f} s"
                    print(f"cut short: {result['cut_short']}")
                    break
                self.problem(one)
                if index % SAVED_EVERY == SAVED_EVERY - 1:
                    self._save(place, result | {"unfinished": True})
        finally:  # a run that ends in an error keeps what it has
            self._save(place, result)
        tell(summary(self.rows))
        if self.without:
            print(f"{len(self.without)} times a peer had nothing; first: {self.without[0]}")

    def _save(self, place: Path, head: Row) -> None:
        told = {"summary": summary(self.rows), "without_a_peer": self.without, "wrong": self.wrong}
        write(place, head | told | {"rows": self.rows})
        if not self.options.sweep:
            return
        kept = {key: head[key] for key in ("command", "date", "machine", "versions", "seed", "distribution")}
        kept |= {"pruned": f"estimates over {self.far} of the best", "peers": self.swept_peers}
        self.swept.write(self.options.sweep, kept)


def wanted_of(drawn: Drawn) -> GemmProblem:
    return problem_of(drawn.m, drawn.n, drawn.k, drawn.dtype, drawn.layout, drawn.batch)


def distribution() -> dict[str, Any]:
    return {"sizes": "log-uniform; see benchmarks/_h200_random.py", "families": FAMILIES}


def p10(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


def summary(rows: Sequence[Row]) -> list[Row]:
    """By family and over all: geometric mean, P10 and least of every ratio, and how far rounds stray."""
    found: list[Row] = []
    for family in (*dict.fromkeys(row["family"] for row in rows), "all"):
        mine = [row for row in rows if family in (row["family"], "all")]
        for ratio in ("default_over_cublas", "measured_over_cublas", "default_over_tuned", "measured_over_tuned"):
            have = [row for row in mine if ratio in row]
            values = [row[ratio]["ratio"] for row in have]
            if not values:
                continue
            strays = [(row[ratio]["quartile_3"] - row[ratio]["quartile_1"]) / row[ratio]["ratio"] for row in have]
            least = min(have, key=lambda row: float(row[ratio]["ratio"]))
            found.append({"family": family, "ratio": ratio, "count": len(values),
                          "geometric_mean": geometric_mean(values), "p10": p10(values), "least": min(values),
                          "least_problem": f"{least['dtype']} {least['layout']} {least['shape']}",
                          "half_of_the_rounds_within": statistics.median(strays)})  # fmt: skip
    return found


def wanted(one: Row) -> bool | None:
    """Whether a line of the summary reaches its goal; None where it has none."""
    selection, _, peer = one["ratio"].partition("_over_")
    if one["family"] == "all":
        return None
    if peer == "tuned":
        return bool(one["geometric_mean"] >= 1.0) if selection == "measured" else None
    mean = WANTED.get(one["family"], WANTED_ELSE)[selection == "measured"]
    reached = one["geometric_mean"] >= mean and one["p10"] >= WANTED_P10[selection]
    return bool(reached and one["least"] >= WANTED_LEAST.get(selection, 0.0))


def tell(found: Sequence[Row]) -> None:
    print(f"{'family':<8}{'ratio':<22}{'n':>4}{'mean':>7}{'P10':>7}{'least':>7}{'stray':>7}")
    for one in found:
        verdict = {True: "met", False: "missed", None: ""}[wanted(one)]
        stray = one["half_of_the_rounds_within"]
        print(f"{one['family']:<8}{one['ratio']:<22}{one['count']:>4}{one['geometric_mean']:>7.3f}{one['p10']:>7.3f}"
              f"{one['least']:>7.3f}{stray:>7.3f} {verdict:<7}{one['least_problem']}")  # fmt: skip


def line(row: Row) -> str:
    text = f"{row['family']:<7}{row['dtype']} {row['layout']} {row['shape']:>17}:"
    for name, seconds in row["seconds"].items():
        over = row.get(f"{name}_over_cublas", {}).get("ratio")
        text += f" {name} {seconds * 1e6:.1f}" + (f" ({over:.2f})" if over else "")
    shown = [row["kernels"].get("default", "none"), row["kernels"].get("measured", "none")]
    return text + " " + " < ".join(one.partition("_sm_")[0] for one in dict.fromkeys(shown))
