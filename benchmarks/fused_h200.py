"""Fused epilogues on an NVIDIA GPU beside our plain kernel and PyTorch (eager, torch.compile), interleaved in one run.

    python benchmarks/fused_h200.py                            the two sizes we hold ourselves to, default selection
    python benchmarks/fused_h200.py --measured                 also the fastest default kernel, plain and fused
    python benchmarks/fused_h200.py --random SEED --count N    problems of a stated distribution instead

Epilogues: bias, bias_relu, bias_gelu (a row of n elements), residual (a whole matrix, added).  Drawn problems: bf16 or
fp16, any layout of A and B, m and n from 256 to 8192 and k from 128 to 8192, log-uniform, of at most 3e11 operations;
three in four have sizes that are multiples of 8.

Goal: the fused call takes at most 1.05 of the plain one's time, plus the time a copy takes for the bytes of D.  Every
result is checked against float64 before anything is timed; how time is taken says _cuda_timing.py (cold caches).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _cuda_report import geometric_mean, provenance
from _cuda_timing import Clock, GraphClock, Run, copy_bandwidth

import tilewright as tw
from tilewright import ops
from tilewright.backends.base import backend
from tilewright.backends.cuda import driver
from tilewright.dispatch import kernels
from tilewright.dispatch.registry import Registry
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

GEMM = ops.op("gemm")
RESULT = Path(__file__).parent / "results" / "fused_h200.json"
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-11}
EPILOGUES = {"plain": "PassThrough", "bias": "MultiDAdd", "bias_relu": "Relu", "bias_gelu": "Gelu",
             "residual": "MultiDAdd"}  # fmt: skip
NAMED = ((4096, 4096, 1024), (8192, 4096, 4096))
WORTH_A_LOOK = 1.6  # measured selection looks at kernels below this multiple of the lowest estimate
LIMIT = 1.05


@dataclass(frozen=True)
class Asked:
    m: int
    n: int
    k: int
    dtype: str = "bf16"
    layout: str = "rcr"

    @property
    def name(self) -> str:
        return f"{self.dtype} {self.layout} {self.m}x{self.n}x{self.k}"

    def problem(self, epilogue: str) -> GemmProblem:
        count = 0 if epilogue == "plain" else 1
        return GemmProblem(
            self.m, self.n, self.k, self.dtype, layout=self.layout, epilogue=EPILOGUES[epilogue], num_d=count,
            aligned=True,
        )  # fmt: skip


def drawn(seed: int, count: int) -> Iterator[Asked]:
    dice = random.Random(seed)

    def size(low: int, high: int, grain: int) -> int:
        value = round(math.exp(dice.uniform(math.log(low), math.log(high))))
        return max(grain, value // grain * grain)

    while count:
        grain = 8 if dice.random() < 0.75 else 1
        m, n, k = size(256, 8192, grain), size(256, 8192, grain), size(128, 8192, grain)
        if 2 * m * n * k <= 3e11:
            count -= 1
            yield Asked(m, n, k, dice.choice(("bf16", "fp16")), dice.choice(("rcr", "rrr", "crr", "ccr")))


class Operands:
    def __init__(self, asked: Asked, device: str) -> None:
        def matrix(rows: int, columns: int, by_rows: bool) -> Any:
            made = torch.randn(*((rows, columns) if by_rows else (columns, rows)), device=device)
            return made.to(TYPES[asked.dtype]) if by_rows else made.to(TYPES[asked.dtype]).T

        self.asked = asked
        self.a = matrix(asked.m, asked.k, asked.layout[0] == "r")
        self.b = matrix(asked.k, asked.n, asked.layout[1] == "r")
        self.bias = matrix(1, asked.n, True)[0]
        self.residual = matrix(asked.m, asked.n, True)
        self.out = torch.empty(asked.m, asked.n, device=device, dtype=TYPES[asked.dtype])
        product = self.a.double() @ self.b.double()
        self.exact: Callable[[str], Any] = lambda epilogue: finished(
            epilogue, product, self.bias.double(), self.residual.double()
        )
        self.size = self.a.double().abs() @ self.b.double().abs()

    def tensor(self, epilogue: str) -> Any:
        return self.residual if epilogue == "residual" else self.bias

    def check(self, epilogue: str, run: Run, clock: Clock) -> str:
        """What is wrong with a call's result, or nothing."""
        self.out.fill_(float("nan"))
        clock.wait()
        run()
        clock.wait()
        value = self.exact(epilogue)
        tolerance = (self.size + 4).mul_(1.2e-5).add_(value.abs(), alpha=ROUNDING[self.asked.dtype])
        bad = int((~((self.out.double() - value).abs_() <= tolerance)).sum())
        return f"{bad} of {value.numel()} elements of {self.asked.name} {epilogue}" if bad else ""


def finished(epilogue: str, product: Any, bias: Any, residual: Any) -> Any:
    if epilogue == "plain":
        return product
    if epilogue == "residual":
        return product + residual
    before = product + bias
    if epilogue == "bias":
        return before
    return torch.relu(before) if epilogue == "bias_relu" else torch.nn.functional.gelu(before)


def eager(epilogue: str, a: Any, b: Any, bias: Any, residual: Any) -> Any:
    if epilogue == "plain":
        return torch.matmul(a, b)
    if epilogue == "residual":
        return torch.addmm(residual, a, b)
    before = torch.addmm(bias, a, b)
    if epilogue == "bias":
        return before
    return torch.relu(before) if epilogue == "bias_relu" else torch.nn.functional.gelu(before)


class Bench:
    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        self.options, self.clock, self.registry = options, clock, Registry(arch)
        self.wrong: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.copy = copy_bandwidth(clock)
        print(f"copy bandwidth: {self.copy / 1e9:.0f} GB/s", flush=True)

    def default(self, problem: GemmProblem) -> KernelSpec:
        with tw.settings.override(measure=False):
            return self.registry.select(problem).spec

    def worth_a_look(self, problem: GemmProblem) -> list[KernelSpec]:
        serving = [one for one in self.registry.candidates(problem) if not GEMM.supports(one, problem)]
        estimates = {one.digest: backend("cuda").estimate(one, problem, 1) for one in serving}
        most = WORTH_A_LOOK * min(estimates.values())
        return [one for one in serving if estimates[one.digest] <= most]

    def build(self, asked: Sequence[Asked]) -> None:
        problems = [one.problem(epilogue) for one in asked for epilogue in self.options.epilogues]
        wanted = {spec.digest: spec for spec in map(self.default, problems)}
        if self.options.measured:
            wanted |= {spec.digest: spec for problem in problems for spec in self.worth_a_look(problem)}
        started = time.perf_counter()
        kernels.kernels(list(wanted.values()))
        print(f"{len(wanted)} kernels built in {time.perf_counter() - started:.1f} s", flush=True)

    def call(self, spec: KernelSpec, one: Operands, epilogue: str) -> Run | None:
        """A kernel on these operands, captured; a wrong one is told and left out."""
        kernel = kernels.kernel(spec)
        more: dict[str, Any] = {} if epilogue == "plain" else {"ds": (one.tensor(epilogue),)}

        def run() -> Any:
            return kernel(one.a, one.b, out=one.out, **more)

        why = one.check(epilogue, run, self.clock)
        if why:
            self.wrong.append(f"{spec.name}: {why}")
            print(f"WRONG: {self.wrong[-1]}", flush=True)
            return None
        return self.clock.captured(run)

    def fastest(self, one: Operands, epilogue: str) -> KernelSpec:
        problem = one.asked.problem(epilogue)
        entrants = {spec: self.call(spec, one, epilogue) for spec in self.worth_a_look(problem)}
        ready = {spec: run for spec, run in entrants.items() if run is not None}
        times = self.clock.rounds(list(ready.values()), 5, "cold")
        medians = {spec: statistics.median(taken) for spec, taken in zip(ready, times, strict=True)}
        order = sorted(medians, key=lambda spec: medians[spec])
        for spec in order[:4]:
            print(f"    {epilogue} {medians[spec] * 1e6:.1f} us {spec.name}", flush=True)
        return order[0]

    def asked(self, asked: Asked) -> None:
        one = Operands(asked, self.clock.device)
        calls: dict[str, Run] = {}
        names: dict[str, str] = {}
        for epilogue in self.options.epilogues:
            chosen = {"ours": self.default(asked.problem(epilogue))}
            if self.options.measured:
                chosen["measured"] = self.fastest(one, epilogue)
            for label, spec in chosen.items():
                run = self.call(spec, one, epilogue)
                if run is not None:
                    calls[f"{epilogue} {label}"] = run
                    names[f"{epilogue} {label}"] = spec.name
            peers: dict[str, Callable[..., Any]] = {"eager": eager}
            if self.options.compile and epilogue != "plain":
                torch._dynamo.reset()
                peers["compiled"] = torch.compile(eager, dynamic=False)
            for label, peer in peers.items():
                run = partial(peer, epilogue, one.a, one.b, one.bias, one.residual)
                run()
                calls[f"{epilogue} {label}"] = self.clock.captured(run)
        times = self.clock.rounds(list(calls.values()), self.options.rounds, "cold")
        medians = {name: statistics.median(taken) for name, taken in zip(calls, times, strict=True)}
        self.report(asked, medians, names)

    def report(self, asked: Asked, seconds: dict[str, float], names: dict[str, str]) -> None:
        for epilogue in self.options.epilogues:
            count = 0 if epilogue == "plain" else asked.n * (asked.m if epilogue == "residual" else 1)
            bytes_d = count * 2
            row: dict[str, Any] = {"problem": asked.name, "epilogue": epilogue, "bytes_d": bytes_d, "us": {}}
            for label in ("ours", "measured", "eager", "compiled"):
                if f"{epilogue} {label}" in seconds:
                    row["us"][label] = seconds[f"{epilogue} {label}"] * 1e6
            for label in ("ours", "measured"):
                if label in row["us"] and f"plain {label}" in seconds:
                    allowed = LIMIT * seconds[f"plain {label}"] + bytes_d / self.copy
                    row[f"{label}_of_plain"] = row["us"][label] * 1e-6 / seconds[f"plain {label}"]
                    row[f"{label}_of_allowed"] = row["us"][label] * 1e-6 / allowed
                    peers = [row["us"][peer] for peer in ("eager", "compiled") if peer in row["us"]]
                    row[f"{label}_over_torch"] = min(peers) / row["us"][label]
            row["kernels"] = {label: names.get(f"{epilogue} {label}", "") for label in ("ours", "measured")}
            self.rows.append(row)
            took = ", ".join(f"{label} {value:.1f}" for label, value in row["us"].items())
            ratios = ", ".join(f"{key} {value:.3f}" for key, value in row.items() if "_of_" in key or "_over_" in key)
            print(f"{asked.name} {epilogue}: {took} us; {ratios}", flush=True)
            for label, name in row["kernels"].items():
                if name:
                    print(f"    {label} {name}", flush=True)

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for epilogue in self.options.epilogues:
            mine = [row for row in self.rows if row["epilogue"] == epilogue]
            for key in ("ours_of_allowed", "measured_of_allowed", "ours_over_torch", "measured_over_torch"):
                values = [row[key] for row in mine if key in row]
                if values and epilogue != "plain":
                    found[f"{epilogue} {key}"] = {
                        "geometric_mean": geometric_mean(values), "least": min(values), "most": max(values),
                    }  # fmt: skip
        return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="SEED", help="draw problems")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--measured", action="store_true", help="also the fastest default kernel")
    parser.add_argument("--no-compile", action="store_false", dest="compile", help="without torch.compile")
    parser.add_argument("--epilogues", nargs="+", choices=tuple(EPILOGUES)[1:], default=list(EPILOGUES)[1:])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    options.epilogues = ["plain", *options.epilogues]
    return options


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    from tilewright.runtime import cuda

    clock = GraphClock(cuda.device().cache_bytes)
    bench = Bench(options, clock, cuda.device().arch)
    named = [Asked(*size) for size in NAMED]
    asked = named if options.random is None else list(drawn(options.random, options.count))
    bench.build(asked)
    result = provenance(options, clock) | {"copy_bytes_per_second": bench.copy, "limit": LIMIT}
    for one in asked:
        bench.asked(one)
        whole = result | {"summary": bench.summary(), "wrong": bench.wrong, "rows": bench.rows}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")  # what there is so far
    for name, value in bench.summary().items():
        print(name, " ".join(f"{key} {one:.3f}" for key, one in value.items()))
    if bench.wrong:
        raise SystemExit("wrong results:\n" + "\n".join(bench.wrong))


if __name__ == "__main__":
    main()
