"""Our GEMM kernels beside torch.matmul (cuBLAS) on an NVIDIA GPU, interleaved in one run.

    python benchmarks/gemm_h200.py                      everything: bf16 and fp16, cold and warm, default and measured
    python benchmarks/gemm_h200.py --quick              a dozen shapes, bf16, cold
    python benchmarks/gemm_h200.py --sweep F.json.gz    every default kernel on every shape (for fit_cuda.py)
    python benchmarks/gemm_h200.py --random SEED        problems nobody tuned for (_h200_random.py says from what)
    python benchmarks/gemm_h200.py --kernels PART...    the kernels whose names contain a part, beside cuBLAS
    python benchmarks/gemm_h200.py --dry-run            a rehearsal without a GPU: nothing of it means anything

Every kernel is checked against float64 (on the GPU, through PyTorch) before it is timed.  How the time is taken
says _cuda_timing.py: graph replays, contestants in turn, the median of the rounds counts.  Default: what the
registry selects with nothing measured.  Measured: the fastest default kernel of a race of its own on this
machine; the numbers reported come from another race, so that luck in the first does not count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _cuda_report import copy_goal, goals, line, provenance, summary, write
from _cuda_timing import CACHES, Clock, GraphClock, HostClock, copy_bandwidth, spread
from _h200_bench import GEMM, Kernels
from _h200_operands import Operands, problem_of
from _h200_race import RandomBench
from _h200_random import FAMILIES, LAYOUTS
from _h200_shapes import FP8, QUICK, SHAPES, Shape, group_of, name_of
from _packed_sweep import PackedSweep

from tilewright.backends.cuda import driver
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

RESULTS = Path(__file__).parent / "results"
RESULT, RANDOM_RESULT = RESULTS / "gemm_h200.json", RESULTS / "gemm_h200_random.json"
HOPELESS = 1.5  # a sweep looks at a kernel once more only below this multiple of the best so far


def rcr(shape: Shape, dtype: str) -> GemmProblem:
    return problem_of(*shape, dtype)


class Bench(Kernels):
    """The fixed shapes."""

    def __init__(self, options: argparse.Namespace, clock: Clock, arch: str) -> None:
        super().__init__(options, clock, arch)
        if options.sweep:
            self.far = float("inf")
        self.rows: list[dict[str, Any]] = []
        self.fp8_rows: list[dict[str, Any]] = []

    # -- the comparison ----------------------------------------------------------------------------------------------

    def shape(self, shape: Shape, dtype: str) -> None:
        one = Operands(rcr(shape, dtype), self.clock.device)
        ours: dict[str, KernelSpec] = {"default": self.default(one.problem)}
        if self.options.measured:
            measured = self.fastest(one)
            if measured is not None:
                ours["measured"] = measured
        ready = self.checked({spec.digest: spec for spec in ours.values()}.values(), one)
        calls = {"cublas": self.clock.captured(one.peer())}
        # The same kernel twice would only lengthen the race: both names then share its times.
        calls |= {name: call for name, (_, call) in ready.items()}
        for l2 in self.options.l2:
            times = self.clock.rounds(list(calls.values()), self.options.rounds, l2)
            self.row(shape, dtype, l2, one.problem, ours, dict(zip(calls, times, strict=True)))

    def row(
        self,
        shape: Shape,
        dtype: str,
        l2: str,
        problem: GemmProblem,
        ours: dict[str, KernelSpec],
        times: dict[str, list[float]],
    ) -> None:
        m, n, k = shape
        made: dict[str, Any] = {"shape": name_of(shape), "group": group_of(shape), "m": m, "n": n, "k": k}
        made |= {"dtype": dtype, "l2": l2, "seconds": {"cublas": statistics.median(times["cublas"])}, "kernels": {}}
        for name, spec in ours.items():
            if spec.name not in times:
                continue
            made["seconds"][name] = statistics.median(times[spec.name])
            made["kernels"][name] = spec.name
            made[f"{name}_over_cublas"] = spread(times["cublas"], times[spec.name])
        if not made["kernels"]:
            return
        best = min(made["seconds"][name] for name in made["kernels"])
        made |= {"tflops": problem.flops / best / 1e12, "bytes_per_second": problem.bytes / best}
        self.rows.append(made)
        print(line(made), flush=True)

    def fp8(self) -> None:
        """fp8 beside our own bf16 on large squares, each with its default and its fastest kernel."""
        for shape in self.options.fp8:
            half, byte = (Operands(rcr(shape, dtype), self.clock.device) for dtype in ("bf16", "fp8_e4m3"))
            for name in ("default", "measured") if self.options.measured else ("default",):
                specs = [self.default(one.problem) if name == "default" else self.fastest(one) for one in (half, byte)]
                ready = [self.checked([spec], one) for spec, one in zip(specs, (half, byte), strict=True) if spec]
                calls = [call for found in ready for _, call in found.values()]
                if len(calls) < 2:
                    continue
                bf16, fp8 = self.clock.rounds(calls, self.options.rounds, "cold")
                ratio = spread(bf16, fp8)
                made: dict[str, Any] = {
                    "shape": name_of(shape),
                    "selection": name,
                    "dtype": "fp8_e4m3",
                    "over_bf16": ratio,
                }
                made |= {"bf16": statistics.median(bf16), "fp8": statistics.median(fp8), "kernel": next(iter(ready[1]))}
                self.fp8_rows.append(made)
                took = f"{made['fp8'] * 1e6:.1f} us"
                print(f"fp8 {made['shape']} {name}: {took}, {ratio['ratio']:.2f} of our bf16", flush=True)

    # -- other modes -------------------------------------------------------------------------------------------------

    def sweep_shape(self, shape: Shape, dtype: str, specs: Sequence[KernelSpec] | None = None) -> dict[str, Any]:
        """Seconds of every kernel, cold; a hopeless one is looked at once."""
        one = Operands(rcr(shape, dtype), self.clock.device)
        peer = self.clock.captured(one.peer())
        took = {"cublas": statistics.median(self.clock.rounds([peer], 5, "cold")[0])}
        best, once = float("inf"), []
        wanted = self.candidates(one.problem) if specs is None else specs
        for spec in wanted:
            for name, (_, call) in self.checked([spec], one).items():
                seconds = self.clock.rounds([call], 1, "cold")[0]
                if seconds[0] <= HOPELESS * best:
                    seconds += self.clock.rounds([call], self.options.rounds - 1, "cold")[0]
                else:
                    once.append(name)
                took[name] = statistics.median(seconds)
                best = min(best, took[name])
        m, n, k = shape
        fastest = min((name for name in took if name != "cublas"), key=took.__getitem__, default="none")
        print(f"{dtype} {name_of(shape)}: cuBLAS {took['cublas'] * 1e6:.1f} us, best of {len(took) - 1} "
              f"{best * 1e6:.1f} us ({took['cublas'] / best:.3f}) {fastest}", flush=True)  # fmt: skip
        return {"m": m, "n": n, "k": k, "dtype": dtype, "layout": "rcr", "seconds": took, "looked_at_once": once}

    def sweep(self, shapes: Sequence[Shape], place: Path) -> None:
        problems = [rcr(shape, dtype) for dtype in self.options.dtypes for shape in shapes]
        self.build(problems, every=True)
        kept = PackedSweep("gemm", self.registry.target, self.options.rounds, dry=self.dry)
        peers: list[dict[str, Any]] = []
        about = provenance(self.options, self.clock) | {"peers": peers}
        for problem in problems:
            row = self.sweep_shape((problem.m, problem.n, problem.k), problem.dtype_a)
            for spec in self.candidates(problem):
                if spec.name in row["seconds"]:
                    kept.add(problem, spec, row["seconds"][spec.name])
            cublas = {"cublas": round(row["seconds"]["cublas"] * 1e6, 3)}
            peers.append({"problem": problem.describe(), "microseconds": cublas, "once": row["looked_at_once"]})
            kept.write(place, about)  # a run cut short keeps what it has

    def named(self, shapes: Sequence[Shape], parts: Sequence[str], place: Path | None) -> None:
        """The kernels whose names contain one of the parts, from the smallest pool that has any."""
        rows = []
        for dtype in self.options.dtypes:
            arch, problems = self.registry.target, [rcr(shape, dtype) for shape in shapes]
            specs: list[KernelSpec] = []
            for pool in ("default", "tests", "full", "profiler"):
                proposed = GEMM.proposals(pool, arch, datatypes=[dtype], layouts=["rcr"])
                specs = [one for one in proposed if any(part in one.name for part in parts) and not GEMM.check(one)]
                if specs:
                    break
            if not specs:
                raise SystemExit(f"no pool has a {dtype} kernel whose name contains {' or '.join(parts)}")
            specs = list({one.digest: one for one in specs}.values())
            self.build_specs(specs)
            for shape, problem in zip(shapes, problems, strict=True):
                serving = [one for one in specs if not GEMM.supports(one, problem)]
                rows.append(self.sweep_shape(shape, dtype, serving))
                for name, seconds in sorted(rows[-1]["seconds"].items(), key=lambda one: one[1]):
                    ratio = rows[-1]["seconds"]["cublas"] / seconds
                    print(f"    {seconds * 1e6:9.1f} us {ratio:6.3f} {name}", flush=True)
        if place is not None:
            write(place, provenance(self.options, self.clock) | {"rows": rows})

    def compare(self, shapes: Sequence[Shape], place: Path) -> None:
        problems = [rcr(shape, dtype) for dtype in self.options.dtypes for shape in shapes]
        problems += [rcr(shape, dtype) for shape in self.options.fp8 for dtype in ("bf16", "fp8_e4m3")]
        self.build(problems, every=self.options.measured)
        result = provenance(self.options, self.clock)
        result["copy_bytes_per_second"] = copy_bandwidth(self.clock, 1 << 22 if self.dry else 1 << 30)
        print(f"copy bandwidth: {result['copy_bytes_per_second'] / 1e9:.0f} GB/s", flush=True)
        for dtype in self.options.dtypes:
            for shape in shapes:
                self.shape(shape, dtype)
                write(place, result | {"unfinished": True, "rows": self.rows})  # a run cut short keeps what it has
        self.fp8()
        for row in self.rows:
            copy_goal(row, result["copy_bytes_per_second"])
        result |= {"summary": summary(self.rows), "goals": goals(self.rows, self.fp8_rows)}
        result |= {"wrong": self.wrong, "rows": self.rows, "fp8": self.fp8_rows}
        write(place, result)
        for name, value in result["summary"].items():
            print(f"{name}: {value:.3f}")
        for goal in result["goals"]:
            print(f"{'met   ' if goal['met'] else 'missed'} {goal['goal']}: {goal['found']:.3f}")
        print(f"written: {place}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a dozen shapes, bf16, cold")
    parser.add_argument("--random", type=int, metavar="SEED", help="problems drawn with this seed, cold")
    parser.add_argument("--count", type=int, default=120, help="of random problems")
    families = (*FAMILIES, "batched")
    parser.add_argument("--families", nargs="+", choices=families, default=list(FAMILIES), help="of random ones")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="of random ones")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="no random problem begins after these")
    parser.add_argument("--sweep", type=Path, metavar="OUT.json.gz", help="times of every default kernel, cold")
    also = "further tma_ws kernels in the race of random ones: [[m, n, stages or 0, [cluster], way], ...]"
    parser.add_argument("--also", type=Path, metavar="IN.json", help=also)
    parser.add_argument("--kernels", nargs="+", metavar="PART", help="time the kernels with such a name, cold")
    parser.add_argument("--dry-run", action="store_true", help="rehearse on the CPU with torch.matmul as every kernel")
    parser.add_argument("--dtypes", nargs="+", choices=("bf16", "fp16", "fp32", "tf32", "int8", "fp8_e4m3"))
    parser.add_argument("--l2", nargs="+", choices=CACHES, default=list(CACHES))
    parser.add_argument("--no-measured", action="store_false", dest="measured", help="default selection only")
    parser.add_argument("--rounds", type=int, help="default: 21, of random problems 11, in a sweep 5")
    parser.add_argument("--shape", nargs=3, type=int, action="append", metavar=("M", "N", "K"), help="only these")
    parser.add_argument("--output", type=Path, help="where the JSON goes (default: in benchmarks/results)")
    options = parser.parse_args()
    drawn = options.random is not None
    looks = (options.sweep and not drawn) or options.kernels
    options.rounds = max(2, options.rounds or (11 if drawn else 5 if looks else 21))
    options.dtypes = options.dtypes or (["bf16"] if looks or options.quick else ["bf16", "fp16"])
    if options.quick:
        options.l2 = ["cold"]
    options.fp8 = () if options.shape or looks else FP8[:1] if options.quick else FP8
    return options


def fixed(options: argparse.Namespace, clock: Clock, arch: str) -> Bench:
    """The modes with a list of shapes."""
    shapes: Sequence[Any] = [tuple(one) for one in options.shape or ()] or (QUICK if options.quick else SHAPES)
    bench = Bench(options, clock, arch)
    if options.sweep:
        bench.sweep(shapes, options.sweep)
    elif options.kernels:
        bench.named(shapes, options.kernels, options.output)
    else:
        bench.compare(shapes, options.output or RESULT)
    return bench


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why and not options.dry_run:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    if options.dry_run:
        clock: Clock = HostClock()
        arch = "sm_90a"
        options.fp8 = ((256, 256, 256),) if options.fp8 else ()
    else:
        from tilewright.runtime import cuda

        clock, arch = GraphClock(cuda.device().cache_bytes), cuda.device().arch
    whole = not (options.shape or options.quick or options.dry_run)
    if not whole and not (options.output or options.sweep or options.kernels):
        raise SystemExit("a run of a part is not the result of this benchmark: say where it goes with --output")
    started = time.perf_counter()
    if options.random is not None:
        drawn = RandomBench(options, clock, arch)
        drawn.compare(options.output or RANDOM_RESULT)
        bench: Kernels = drawn
    else:
        bench = fixed(options, clock, arch)
    print(f"{time.perf_counter() - started:.0f} s after the start")
    if bench.wrong:
        raise SystemExit("wrong results:\n" + "\n".join(bench.wrong))


if __name__ == "__main__":
    main()
