"""Our GEMM kernels beside torch.matmul (cuBLAS) on an NVIDIA GPU, interleaved in one run.

    python benchmarks/gemm_h200.py                      # everything: bf16 and fp16, cold and warm, default and measured
    python benchmarks/gemm_h200.py --quick              # a dozen shapes, bf16, cold
    python benchmarks/gemm_h200.py --no-measured --output result.json

Every contestant is a captured CUDA graph, so that host time is not in the numbers; contestants take turns in each
round and the median of the rounds counts.  Cold: a buffer twice the second-level cache is written before each replay,
outside the timed span.  Results are checked against float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import tilewright as tw
from tilewright.backends.cuda import driver, toolchain
from tilewright.dispatch.registry import Registry
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import cuda
from tilewright.runtime.loader import Kernel

WEIGHTS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (2112, 7168), (7168, 2048))
SHAPES: tuple[tuple[int, int, int], ...] = (
    *((size, size, size) for size in (512, 1024, 2048, 4096, 8192)),
    *((m, n, k) for m in (1, 16, 64, 256, 1024, 4096, 8192) for n, k in WEIGHTS),
    (4097, 4097, 4097),
    (1000, 1000, 1000),
    (333, 777, 555),
    (8192, 64, 8192),
    (64, 64, 65536),
    (128, 50304, 768),
    (16384, 1024, 256),
)
QUICK = ((512,) * 3, (2048,) * 3, (8192,) * 3, (1, 28672, 4096), (16, 4096, 4096), (64, 4096, 14336), (256, 6144, 4096),
         (1024, 2112, 7168), (4096, 7168, 2048), (4097,) * 3, (333, 777, 555), (64, 64, 65536))  # fmt: skip
FP8 = ((4096,) * 3, (8192,) * 3)
Run = Callable[[], Any]


def captured(run: Run, stream: Any) -> Any:
    """The call as a graph, after one call outside it (code is loaded, workspaces are made)."""
    with torch.cuda.stream(stream):
        run()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            run()
    return graph


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)


def race(runs: Sequence[Run], rounds: int, cold: bool, flush: Any) -> list[float]:
    """The median microseconds of each, all in turn in every round."""
    stream: Any = torch.cuda.Stream()
    graphs = [captured(run, stream) for run in runs]
    times: list[list[float]] = [[] for _ in runs]
    with torch.cuda.stream(stream):
        for graph in graphs:
            graph.replay()
        for _ in range(rounds):
            for index, graph in enumerate(graphs):
                if cold:
                    flush.zero_()
                else:
                    graph.replay()
                start, end = (_event(), _event())
                start.record()
                graph.replay()
                end.record()
                stream.synchronize()
                times[index].append(start.elapsed_time(end) * 1e3)
    return [statistics.median(one) for one in times]


def wrong(a: Any, b: Any, out: Any, run: Run) -> bool:
    """Whether the result is outside the rounding of its type; large ones are judged on a sample of rows."""
    out.fill_(float("nan"))
    run()
    torch.cuda.synchronize()
    rows = slice(None) if a.shape[0] <= 512 else torch.randperm(a.shape[0], device="cuda")[:512]
    left, right = a[rows].double(), b.double()
    exact, scale = left @ right.T, left.abs() @ right.abs().T
    error = (out[rows].double() - exact).abs()
    return not bool((error <= exact.abs() * 2.0**-8 + scale * 1e-5).all())


def problem_of(a: Any, b: Any, dtype: str) -> GemmProblem:
    return GemmProblem(a.shape[0], b.shape[0], a.shape[1], dtype, layout="rcr")


def kernel_run(kernel: Kernel, a: Any, b: Any, out: Any) -> Run:
    return lambda: kernel(a, b.T, out=out)


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.registry = Registry(cuda.device().arch)
        self.flush = torch.empty(2 * cuda.device().cache_bytes, dtype=torch.uint8, device="cuda")
        self.rows: list[dict[str, Any]] = []

    def operands(self, m: int, n: int, k: int, dtype: str) -> tuple[Any, Any, Any]:
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
        a, b = (torch.randn(rows, k, device="cuda").to(kind) for rows in (m, n))
        return a, b, torch.empty(m, n, device="cuda", dtype=kind)

    def shape(self, m: int, n: int, k: int, dtype: str) -> None:
        a, b, out = self.operands(m, n, k, dtype)
        problem = problem_of(a, b, dtype)
        default = self.registry.select(problem)
        ours = {"default": default.spec}
        if self.options.measured:
            ours["measured"] = self.fastest(problem, a, b, out)
        runs: list[Run] = [lambda: torch.matmul(a, b.T, out=out)]
        for spec in ours.values():
            run = kernel_run(self.registry.kernel(spec), a, b, out)
            if wrong(a, b, out, run):
                raise SystemExit(f"{spec.name} is wrong on {m}x{n}x{k} {dtype}")
            runs.append(run)
        for temperature in self.options.temperatures:
            took = race(runs, self.options.rounds, temperature == "cold", self.flush)
            row: dict[str, Any] = {"m": m, "n": n, "k": k, "dtype": dtype, "l2": temperature, "cublas_us": took[0]}
            for name, spec, one in zip(ours, ours.values(), took[1:], strict=True):
                row |= {f"{name}_us": one, f"{name}_ratio": took[0] / one, f"{name}_kernel": spec.name}
            row["tflops"] = 2 * m * n * k / took[-1] / 1e6
            row["gbytes"] = problem.bytes / took[-1] / 1e3
            self.rows.append(row)
            self.say(row)

    def fastest(self, problem: GemmProblem, a: Any, b: Any, out: Any) -> Any:
        """The measured choice: the default kernels that serve the problem, raced; the winner is remembered."""
        from tilewright import ops

        op = ops.op("gemm")
        specs = [one for one in self.registry.candidates(problem) if not op.supports(one, problem)]
        # The estimate is good to a tenth: what it calls twice as slow is not worth a compile.
        from tilewright.backends.base import backend

        guess = {one.digest: backend("cuda").estimate(one, problem, 1) for one in specs}
        least = min(guess.values())
        specs = [
            one for one in specs if guess[one.digest] <= 1.6 * least and one.schedule.pipeline != "generic"
        ] or specs
        self.registry_build(specs)
        runs = [kernel_run(self.registry.kernel(one), a, b, out) for one in specs]
        took = race(runs, max(3, self.options.rounds // 2), True, self.flush)
        return specs[took.index(min(took))]

    def registry_build(self, specs: Sequence[Any]) -> None:
        from tilewright.dispatch import kernels

        kernels.build(specs)

    def fp8(self) -> None:
        """fp8 beside our own bf16, on large squares."""
        for m, n, k in FP8:
            a, b, out = self.operands(m, n, k, "bf16")
            a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
            half = self.registry.select(problem_of(a, b, "bf16")).spec
            byte_problem = GemmProblem(m, n, k, "fp8_e4m3", dtype_c="bf16", layout="rcr")
            byte = self.registry.select(byte_problem).spec
            runs = [
                kernel_run(self.registry.kernel(half), a, b, out),
                kernel_run(self.registry.kernel(byte), a8, b8, out),
            ]
            took = race(runs, self.options.rounds, True, self.flush)
            row = {"m": m, "n": n, "k": k, "dtype": "fp8_e4m3", "l2": "cold", "our_bf16_us": took[0], "fp8_us": took[1]}
            self.rows.append(row | {"fp8_over_bf16": took[0] / took[1], "fp8_kernel": byte.name})
            print(f"fp8 {m}x{n}x{k}: {took[1]:.1f} us, {took[0] / took[1]:.2f} times our bf16", flush=True)

    def host_time(self) -> float:
        a, b, _ = self.operands(16, 64, 64, "bf16")
        tw.gemm(a, b.T)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(5000):
            tw.gemm(a, b.T)
        took = (time.perf_counter() - started) / 5000
        torch.cuda.synchronize()
        return took * 1e6

    def copy_bandwidth(self) -> float:
        one = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        two = torch.empty_like(one)
        return 2 * (1 << 30) / race([lambda: two.copy_(one)], 8, False, self.flush)[0] / 1e3

    @staticmethod
    def say(row: dict[str, Any]) -> None:
        text = f"{row['dtype']} {row['l2']:4} {row['m']}x{row['n']}x{row['k']}: cuBLAS {row['cublas_us']:.1f} us"
        for name in ("default", "measured"):
            if f"{name}_us" in row:
                text += f" | {name} {row[f'{name}_us']:.1f} us, {row[f'{name}_ratio']:.3f}"
        shown = row.get("measured_kernel", row["default_kernel"])
        print(f"{text} | {row['tflops']:.0f} TFLOP/s {row['gbytes']:.0f} GB/s {shown}", flush=True)


def mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("default", "measured"):
        for temperature in ("cold", "warm"):
            mine = [one for one in rows if one["l2"] == temperature and f"{name}_ratio" in one]
            if mine:
                ratios = [one[f"{name}_ratio"] for one in mine]
                found[f"{name} {temperature} geometric mean"] = mean(ratios)
                found[f"{name} {temperature} least"] = min(ratios)
                found[f"{name} {temperature} M<=16"] = mean([one[f"{name}_ratio"] for one in mine if one["m"] <= 16])
    return found


def machine() -> dict[str, Any]:
    one = cuda.device()
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        version = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        version = ""
    return {
        "gpu": one.name,
        "multiprocessors": one.facts.compute_units,
        "driver": version,
        "torch": torch.__version__,
        "cublas": torch.version.cuda,
        "compiler": toolchain.find_toolchain().identity.version,
        "tilewright": tw.__version__,
        "python": sys.version.split()[0],
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a dozen shapes, bf16, cold")
    parser.add_argument("--dtypes", nargs="+", choices=("bf16", "fp16"), default=["bf16", "fp16"])
    parser.add_argument("--l2", nargs="+", choices=("cold", "warm"), default=["cold", "warm"], dest="temperatures")
    parser.add_argument("--no-measured", action="store_false", dest="measured", help="default selection only")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--shape", nargs=3, type=int, action="append", metavar=("M", "N", "K"), help="only these")
    parser.add_argument("--output", type=Path, help="where the JSON goes (default: benchmarks/results/gemm_h200.json)")
    options = parser.parse_args()
    if driver.why_unavailable():
        raise SystemExit(f"no NVIDIA GPU: {driver.why_unavailable()}")
    if options.quick:
        options.dtypes, options.temperatures = ["bf16"], ["cold"]
    shapes: Sequence[tuple[int, ...]] = (
        [tuple(one) for one in options.shape] if options.shape else QUICK if options.quick else SHAPES
    )
    bench = Bench(options)
    for dtype in options.dtypes:
        for m, n, k in shapes:
            bench.shape(m, n, k, dtype)
    if not options.shape:
        bench.fp8()
    result: dict[str, Any] = {
        "machine": machine(),
        "summary": summary(bench.rows),
        "host_us_of_a_cached_call": bench.host_time(),
        "copy_gbytes": bench.copy_bandwidth(),
        "rows": bench.rows,
    }
    for name, value in result["summary"].items():
        print(f"{name}: {value:.3f}")
    print(f"host time of a cached call: {result['host_us_of_a_cached_call']:.2f} us")
    print(f"copy bandwidth: {result['copy_gbytes']:.0f} GB/s")
    place = options.output or Path(__file__).parent / "results" / "gemm_h200.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written: {place}")


if __name__ == "__main__":
    main()
