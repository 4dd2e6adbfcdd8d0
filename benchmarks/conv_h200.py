"""Our convolutions beside PyTorch's (cuDNN, benchmark mode) on an NVIDIA GPU, interleaved in one run.

    python benchmarks/conv_h200.py                          the shapes of known networks, every direction
    python benchmarks/conv_h200.py --random SEED --count N  problems nobody tuned for (see _conv_h200_shapes.py)
    python benchmarks/conv_h200.py --sweep                  every kernel that serves a problem, not the chosen ones only
    python benchmarks/conv_h200.py --fused                  bias and ReLU beside the plain convolution
    python benchmarks/conv_h200.py --layout nchw            memory whose channels come first, of both
    python benchmarks/conv_h200.py --dtype fp32             another element type of both, cuDNN without TF32
    python benchmarks/conv_h200.py --dry-run                a rehearsal without a GPU: nothing of it means anything

bf16, channels-last where nothing else is said (results of other types lie in files named after them), the cache cold.
Every kernel is checked against a float64 convolution before it is timed.  How the time is taken says _cuda_timing.py.
Default: what the registry selects with nothing measured.  Measured: the fastest of a race of its own; the numbers
reported come from another race.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _conv_h200_operands import TYPES, ConvOperands
from _conv_h200_shapes import SHAPES, VARIANTS, Shape, drawn
from _cuda_report import provenance
from _cuda_timing import Clock, GraphClock, HostClock, Run, spread
from _h200_bench import Kernels

from tilewright.backends.cuda import driver
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.problem import channels_first

RESULTS = Path(__file__).parent / "results"
RESULT, RANDOM_RESULT = RESULTS / "conv_h200.json", RESULTS / "conv_h200_random.json"


class ConvBench(Kernels):
    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        super().__init__(options, clock, arch)
        self.far = options.far
        self.rows: list[dict[str, Any]] = []

    def run_of(self, spec: KernelSpec, one: Any) -> Run:
        if self.dry:
            return lambda: one.out.copy_(one.exact()[0])
        return super().run_of(spec, one)

    def problem(self, shape: Shape, variant: str) -> ConvProblem:
        made = replace(shape.problem(variant), dtype=self.options.dtype, dtype_out="", dtype_d="")
        if self.options.layout == "nhwc":
            return made
        return made.laid(**{f"{one}_strides": channels_first(getattr(made, f"{one}_shape")) for one in "xwy"})

    def searched(self, problems: Sequence[ConvProblem], enough: Callable[[], bool]) -> None:
        """cuDNN looks for its algorithms, a third of a second a problem, while our compilers run."""
        for problem in problems:
            if enough():
                break
            ConvOperands(problem, self.clock.device, problem.num_d > 0).peer()()
        self.clock.wait()

    def one(self, shape: Shape, variant: str) -> None:
        one = ConvOperands(self.problem(shape, variant), self.clock.device)
        default = self.default(one.problem)
        entrants = self.checked(self.candidates(one.problem) if self.options.measured else [default], one)
        if not entrants:
            print(f"{variant} {shape.name}: no kernel", flush=True)
            return
        medians, winner = self.race({name: call for name, (_, call) in entrants.items()}, default.name)
        names = list(dict.fromkeys(name for name in (default.name, winner) if name in entrants))
        calls = [self.clock.captured(one.peer()), *(entrants[name][1] for name in names)]
        peer, *ours = self.clock.rounds(calls, self.options.rounds, "cold")
        times = dict(zip(names, ours, strict=True))
        made: dict[str, Any] = {"shape": shape.name, "group": shape.group, "variant": variant}
        made |= {"flops": one.problem.flops, "bytes": one.problem.bytes, "cudnn": statistics.median(peer)}
        for label, name in (("default", default.name), ("measured", winner)):
            if name in times:
                made[label] = {"kernel": name, "seconds": statistics.median(times[name])} | spread(peer, times[name])
        if self.options.sweep:
            made["sweep"] = medians
        self.rows.append(made)
        said = "  ".join(
            f"{label} {made[label]['seconds'] * 1e6:7.1f} us {made[label]['ratio']:6.3f}"
            for label in ("default", "measured")
            if label in made
        )
        print(f"{variant:15} {shape.name:40} cuDNN {made['cudnn'] * 1e6:7.1f} us  {said}  {winner}", flush=True)

    def pair(self, shape: Shape) -> tuple[ConvProblem, ConvProblem]:
        """The plain convolution, and the same with bias and ReLU."""
        plain = self.problem(shape, "forward")
        return plain, replace(plain, epilogue="Relu", num_d=1)

    def fused(self, shape: Shape) -> None:
        """Bias and ReLU beside the plain convolution, each with its fastest kernel, or the one selected by default."""
        took = []
        for problem in self.pair(shape):
            one = ConvOperands(problem, self.clock.device, problem.num_d > 0)
            asked = self.candidates(problem) if self.options.measured else [self.default(problem)]
            entrants = self.checked(asked, one)
            if not entrants:
                return
            _, winner = self.race({name: call for name, (_, call) in entrants.items()})
            took.append(entrants[winner][1])
        plain, fused = self.clock.rounds(took, self.options.rounds, "cold")
        ratio = statistics.median(fused) / statistics.median(plain)
        self.rows.append({"shape": shape.name, "variant": "fused", "fused_over_plain": ratio})
        print(f"fused {shape.name}: {ratio:.3f} of plain", flush=True)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Geometric means of cuDNN's time over ours, by direction and by kind of shape."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for label in ("default", "measured"):
            if label in row:
                for part in (row["variant"], f"{row['variant']} {row['group']}"):
                    found.setdefault(f"{label} {part}", []).append(math.log(row[label]["ratio"]))
        if "fused_over_plain" in row:
            found.setdefault("fused over plain", []).append(math.log(row["fused_over_plain"]))
    return {name: math.exp(statistics.fmean(logs)) for name, logs in sorted(found.items())}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, metavar="SEED")
    parser.add_argument("--count", type=int, default=60, help="of random problems")
    parser.add_argument("--directions", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--only", nargs="+", metavar="PART", help="shapes whose names or groups contain one of these")
    parser.add_argument("--sweep", action="store_true", help="keep the times of every kernel of the race")
    parser.add_argument(
        "--far", type=float, default=2.0, help="no kernel is timed that is estimated so many times slower"
    )
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--layout", choices=("nhwc", "nchw"), default="nhwc", help="of memory")
    parser.add_argument("--dtype", choices=tuple(TYPES), default="bf16", help="of operands and results")
    parser.add_argument("--no-measured", action="store_false", dest="measured", help="default selection only")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="no shape begins after these")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why and not options.dry_run:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    started = time.perf_counter()
    if options.dry_run:
        clock: Clock = HostClock()
        bench = ConvBench(options, clock, "sm_90a")
    else:
        from tilewright.runtime import cuda

        clock = GraphClock(cuda.device().cache_bytes)
        bench = ConvBench(options, clock, cuda.device().arch)
    shapes = SHAPES if options.random is None else drawn(options.random, options.count)
    if options.only:
        shapes = [one for one in shapes if any(part in one.name or part == one.group for part in options.only)]
    problems = [bench.problem(one, variant) for one in shapes for variant in options.directions]
    if options.fused:
        problems = [problem for one in shapes for problem in bench.pair(one)]
    with ThreadPoolExecutor(1) as aside:
        building = aside.submit(bench.build, problems, every=options.measured)
        bench.searched(problems, building.done)
        building.result()
    place = options.output or (RESULT if options.random is None else RANDOM_RESULT)
    if options.dtype != "bf16":
        place = place.with_name(f"{place.stem}_{options.dtype}{place.suffix}")
    said = provenance(options, clock)
    for shape in shapes:
        if time.perf_counter() - started > options.most_seconds:
            break
        for variant in () if options.fused else options.directions:
            bench.one(shape, variant)
        if options.fused:
            bench.fused(shape)
        result = said | {"summary": summary(bench.rows), "wrong": bench.wrong, "rows": bench.rows}
        place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")  # a run cut short keeps what it has
    for name, value in summary(bench.rows).items():
        print(f"{name}: {value:.3f}")
    print(f"{time.perf_counter() - started:.0f} s after the start")
    if bench.wrong:
        raise SystemExit("wrong results:\n" + "\n".join(bench.wrong[:20]))


if __name__ == "__main__":
    main()
