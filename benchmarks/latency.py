"""The small costs around a kernel: import, load, call, choose, compile.

    python benchmarks/latency.py             prints the numbers and writes benchmarks/results/latency.json
    python benchmarks/latency.py --quick     fewer repeats and compiles, nothing written

Imports and loads happen in fresh processes.  Differences are taken between interleaved turns in one
process.  Compiling is the CPU time of the compiler and everything it starts, one kernel at a time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _machine import RESULTS, ROOT, provenance

import tilewright as tw
from tilewright import ops, settings
from tilewright.build import Builder

TARGETS = {
    "import_seconds": 0.2,
    "load_seconds": 3e-3,
    "gemm_over_bare_seconds": 1.5e-6,
    "conv_over_bare_seconds": 1.5e-6,
    "attention_over_bare_seconds": 3e-6,
    "select_seconds": 100e-6,
    "compile_cpu_seconds": 1.0,
}
DATATYPES = ("fp32", "fp16", "bf16", "int8", "fp8_e4m3", "fp8_e5m2")

# Load every kernel of a list, one after the other, each timed from the store lookup to the open library.
LOADER = """
import json, sys, time
from tilewright import ops
from tilewright.dispatch import kernels
specs = [ops.op(one["op"]).spec_from_dict(one) for one in json.load(sys.stdin)]
times = []
for spec in specs:
    start = time.perf_counter()
    kernels.kernel(spec)
    times.append(time.perf_counter() - start)
print(json.dumps(times))
"""


def child(code: str, text: str = "", *options: str) -> str:
    """A fresh interpreter with our settings."""
    now = settings.current()
    extra = {"TILEWRIGHT_CACHE_DIR": str(now.cache_dir), "TILEWRIGHT_THREADS": str(now.threads)}
    command = [sys.executable, *options, "-c", code]
    environment = settings.child_environment(extra)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def import_times(repeats: int) -> dict[str, Any]:
    """What `import tilewright` and `import tilewright; tilewright.gemm` add to a bare interpreter."""
    clocked = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"

    def median(statement: str) -> float:
        return statistics.median(float(child(clocked.format(statement))) for _ in range(repeats))

    return {
        "import_seconds": median("import tilewright"),
        "import_and_gemm_seconds": median("import tilewright; tilewright.gemm"),
        "numpy_alone_seconds": median("import numpy"),
    }


def load_times(specs: list[tw.KernelSpec], repeats: int) -> dict[str, Any]:
    """Loading built kernels: the first of a process also looks at compiler and headers."""
    Builder().build_many(specs)
    text = json.dumps([spec.to_dict() for spec in specs])
    runs = [json.loads(child(LOADER, text)) for _ in range(repeats)]
    return {
        "load_seconds": statistics.median(one for run in runs for one in run[1:]),
        "load_worst_seconds": max(statistics.median(run[index] for run in runs) for index in range(1, len(specs))),
        "load_first_seconds": statistics.median(run[0] for run in runs),
        "kernels_loaded": len(specs),
    }


def fastest(calls: dict[str, Callable[[], object]], rounds: int, repeats: int) -> dict[str, float]:
    """Seconds a call of each in its fastest turn, from interleaved turns: the least that other programs disturbed."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            samples[name].append((time.perf_counter() - start) / repeats)
    return {name: min(times) for name, times in samples.items()}


def bare_call(problem: tw.GemmProblem, a: Any, b: Any, out: Any, bias: Any = None) -> Callable[[], object]:
    """The C function with prepared arguments."""
    from tilewright.dispatch.registry import default_registry
    from tilewright.runtime import host
    from tilewright.runtime.arrays import address_of
    from tilewright.runtime.bindings import binding

    registry, threads = default_registry(), host.thread_count()
    kernel = registry.kernel(registry.select(problem).spec)
    args: Any = binding(problem.op).dense(problem).stages[0].args
    args.a, args.b, args.e, args.alpha = address_of(a), address_of(b), address_of(out), 1.0
    if bias is not None:
        args.d[0], args.d_row_stride[0] = address_of(bias), 0
    owner, scratch = host.aligned_buffer(max(1, kernel.workspace_bytes(args, threads)))
    stream = host.team(threads)
    launch, address = kernel.launch, ctypes.addressof(args)

    def call(_keep: object = (owner, args)) -> None:
        launch(address, scratch, stream)

    return call


SMALL = ((16, 16, 16), (17, 19, 23))


def small_calls(m: int, n: int, k: int) -> dict[str, Callable[[], object]]:
    import numpy as np

    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    out, bias = np.empty((m, n), np.float32), np.ones(n, np.float32)
    return {
        "bare": bare_call(tw.GemmProblem(m=m, n=n, k=k), a, b, out),
        "bare_bias_relu": bare_call(tw.GemmProblem(m=m, n=n, k=k, epilogue="Relu", num_d=1), a, b, out, bias),
        "gemm": lambda: tw.gemm(a, b),
        "gemm_out": lambda: tw.gemm(a, b, out=out),
        "gemm_bias_relu": lambda: tw.gemm(a, b, ds=(bias,), epilogue="relu"),
        "gemm_bias_relu_out": lambda: tw.gemm(a, b, ds=(bias,), epilogue="relu", out=out),
        "matmul": lambda: tw.matmul(a, b),
        "numpy_matmul": lambda: np.matmul(a, b),
        "numpy_matmul_out": lambda: np.matmul(a, b, out=out),
    }


def call_times(rounds: int, repeats: int) -> dict[str, Any]:
    """Small problems, so that the kernel hides nothing: what Python adds to it."""
    found: dict[str, dict[str, float]] = {}
    for m, n, k in SMALL:
        calls = small_calls(m, n, k)
        for one in (*calls.values(), *calls.values()):  # plan first
            one()
        found[f"{m}x{n}x{k} fp32"] = fastest(calls, rounds, repeats)
    over = [
        of[name] - of["bare_bias_relu" if "bias" in name else "bare"]
        for of in found.values()
        for name in of
        if name.startswith(("gemm", "matmul"))
    ]
    return {"gemm_over_bare_seconds": max(over), "call_seconds": found}


def bare_sample(problem: Any) -> tuple[Callable[[], object], dict[str, Any]]:
    """The C function on operands that were made up for a problem, and those by their names."""
    from tilewright.dispatch.registry import default_registry
    from tilewright.runtime import host
    from tilewright.runtime.arrays import address_of
    from tilewright.runtime.bindings import binding

    registry, threads, bound = default_registry(), host.thread_count(), binding(problem.op)
    kernel = registry.kernel(registry.select_stage(problem).spec)
    sample, (stage,) = bound.sample(problem), bound.dense(problem).stages
    args: Any = stage.args
    address = ctypes.addressof(args)
    for one in stage.pointers:
        ctypes.c_void_p.from_address(address + one.offset).value = address_of(sample.operands[one.slot])
    for number in stage.scalars:
        ctypes.c_double.from_address(address + number.offset).value = sample.scalars[number.index]
    owner, scratch = host.aligned_buffer(max(1, kernel.workspace_bytes(args, threads)))
    launch, stream = kernel.launch, host.team(threads)

    def call(_keep: object = (owner, args, sample)) -> None:
        launch(address, scratch, stream)

    return call, {slot.name: one for slot, one in zip(bound.slots, sample.operands, strict=True)}


def other_calls() -> dict[str, dict[str, Callable[[], object]]]:
    """Small calls of the other ops beside their bare kernels."""
    bare_conv, of_conv = bare_sample(tw.ConvProblem(1, 8, 8, (6, 6), (3, 3), before=(1, 1), after=(1, 1)))
    x, w, y = of_conv["x"], of_conv["w"], of_conv["out"]
    bare_attention, of_attention = bare_sample(tw.AttentionProblem(1, 4, 1, 16, 32, 2))
    q, k, v, o = (of_attention[name] for name in ("q", "k", "v", "out"))
    return {
        "conv": {
            "bare": bare_conv,
            "conv": lambda: tw.conv(x, w, padding=1),
            "conv_out": lambda: tw.conv(x, w, padding=1, out=y),
        },
        "attention": {
            "bare": bare_attention,
            "attention": lambda: tw.attention(q, k, v),
            "attention_out": lambda: tw.attention(q, k, v, out=o),
        },
    }


def other_call_times(rounds: int, repeats: int) -> dict[str, Any]:
    """What Python adds to small calls of the other ops."""
    found: dict[str, Any] = {"other_call_seconds": {}}
    for name, calls in other_calls().items():
        for one in (*calls.values(), *calls.values()):  # plan first
            one()
        times = found["other_call_seconds"][name] = fastest(calls, rounds, repeats)
        found[f"{name}_over_bare_seconds"] = max(times.values()) - times["bare"]
    return found


def select_times(repeats: int) -> dict[str, Any]:
    """Choosing for a problem never seen: of a known signature, and the first of a signature."""
    from tilewright.dispatch.registry import default_registry

    registry = default_registry()
    registry.select(tw.GemmProblem(m=7, n=7, k=7))
    times = []
    for index in range(repeats):
        problem = tw.GemmProblem(m=64 + index, n=96 + 3 * index, k=128 + 7 * index)
        start = time.perf_counter()
        registry.select(problem)
        times.append(time.perf_counter() - start)
    first = []
    for epilogue in ("Relu", "Gelu", "FastGelu", "Silu", "Sigmoid", "Tanh"):
        for count in (0, 1, 2):
            problem = tw.GemmProblem(m=64, n=64, k=64, epilogue=epilogue, num_d=count)
            start = time.perf_counter()
            registry.select(problem)
            first.append(time.perf_counter() - start)
    return {
        "select_seconds": statistics.median(times),
        "select_first_of_signature_seconds": statistics.median(first),
    }


def kernels_to_compile(quick: bool) -> Iterator[tuple[str, tw.KernelSpec]]:
    """For each datatype and pipeline the default kernel with the largest register block."""
    op, target = ops.op("gemm"), tw.Registry().target
    for datatype in DATATYPES[: 1 if quick else None]:
        largest: dict[str, tw.KernelSpec] = {}
        for variant, layout in (("standard", "rrr"), ("standard", "rcr"), ("preshuffle", "rcr")):
            axes: dict[str, Any] = {"datatypes": (datatype,), "variants": (variant,), "layouts": (layout,)}
            for spec in op.proposals("default", target, **axes):
                if op.check(spec):
                    continue
                known = largest.setdefault(spec.schedule.pipeline, spec)
                rows, columns, _ = spec.schedule.warp_tile
                if rows * columns > known.schedule.warp_tile[0] * known.schedule.warp_tile[1]:
                    largest[spec.schedule.pipeline] = spec
        plain = op.signature_of(tw.GemmProblem(m=1, n=1, k=1, dtype_a=datatype))
        largest.setdefault("loops", op.fallback_spec(plain, target))
        fused = tw.GemmProblem(m=1, n=1, k=1, dtype_a=datatype, epilogue="Gelu", num_d=2)
        for spec in op.candidates(op.signature_of(fused), target):
            if spec.schedule.pipeline == "packed":
                largest.setdefault("packed, Gelu of two Ds", spec)
        for pipeline, spec in largest.items():
            yield f"{datatype} {pipeline}", spec


def compile_times(quick: bool) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-latency-") as place, settings.override(cache_dir=Path(place)):
        for label, spec in kernels_to_compile(quick):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start = time.perf_counter()
            Builder().build_one(spec)
            wall = time.perf_counter() - start
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            rows[label] = {"cpu_seconds": cpu, "wall_seconds": wall, "kernel": spec.name}
            print(f"  compile {label:<32} {cpu:6.2f} s of CPU", flush=True)
    slowest = max(rows, key=lambda one: rows[one]["cpu_seconds"])
    return {
        "compile_cpu_seconds": rows[slowest]["cpu_seconds"],
        "compile_slowest": slowest,
        "compile_median_cpu_seconds": statistics.median(one["cpu_seconds"] for one in rows.values()),
        "compile": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The small costs around a kernel.")
    parser.add_argument("--quick", action="store_true", help="few repeats, fp32 compiles only, nothing written")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "benchmark-store", help="kernel store")
    parser.add_argument("--output", type=Path, help="result file; a run that is not quick has one by itself")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    options = parser.parse_args()
    if options.output is None and not options.quick:
        options.output = RESULTS / "latency.json"
    head = provenance(shlex.join(["python", "benchmarks/latency.py", *sys.argv[1:]]))
    settings.configure(cache_dir=options.store, threads=options.threads, measure=False)
    found: dict[str, Any] = {}
    found |= import_times(3 if options.quick else 15)
    found |= load_times(
        [spec for _, spec in kernels_to_compile(options.quick)][:12], repeats=3 if options.quick else 15
    )
    found |= call_times(*((51, 200) if options.quick else (301, 500)))
    found |= other_call_times(*((51, 200) if options.quick else (301, 500)))
    found |= select_times(50 if options.quick else 500)
    found |= compile_times(options.quick)
    met = {name: found[name] <= target for name, target in TARGETS.items()}
    for name, target in TARGETS.items():
        value, most = (f"{one * 1e6:.1f} us" if one < 1e-3 else f"{one * 1e3:.1f} ms" for one in (found[name], target))
        print(f"{name.removesuffix('_seconds'):<18} {value:>10}  (at most {most}: {'met' if met[name] else 'MISSED'})")
    if options.output is not None:
        method = {"threads": options.threads}
        result = {"benchmark": "latency", **head, "method": method, "targets": TARGETS, "met": met, **found}
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"written to {options.output}")
    if options.check and not all(met.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
