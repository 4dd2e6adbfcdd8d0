"""CPU seconds that kernels for AMD GPUs take to compile, with and without each lever; no GPU is needed.

    python benchmarks/compile_hip.py            prints the numbers and writes benchmarks/results/compile_hip.json
    python benchmarks/compile_hip.py --quick    one kernel, one and two workers

TILEWRIGHT_ROCM_PATH names the toolchain (`tilewright toolchain install rocm` sets one up).  The seconds are user and
system time of all processes of the one command a build runs.  A lever comes on top of those before it; the last
column is what a build of several kernels does, the one before it what a build of a single kernel does.  How much
several workers gain is wall time and wants a quiet machine, as does generating.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _machine import RESULTS, provenance

import tilewright
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.backends.hip import precompiled
from tilewright.backends.hip.gemm.ck_tile.templates import example_kernel, gemm_profile
from tilewright.backends.hip.toolchain import HipToolchain, find_toolchain
from tilewright.build import Builder
from tilewright.build.prepare import prepare
from tilewright.build.store import Store
from tilewright.errors import ToolchainError, counted
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

ARCH = "gfx942"
TARGET_CPU_SECONDS, TARGET_GENERATE_SECONDS = 16.0, 3.0
WORKERS = (1, 2, 4)

# In the order in which they are switched on.
LEVERS = {
    "naive": "all of CK Tile's headers, both passes see them, every tail its own types",
    "leaner includes": "only the headers the kernel needs",
    "shared tails": "one type of pipeline and kernel for all tails",
    "lean host pass": "the host's pass sees no CK Tile, as if the device's code were compiled alone",
    "precompiled header": "of the device's pass, with the templates of an example kernel",
}
WHOLE = ("ck_tile/core.hpp", "ck_tile/host.hpp", "ck_tile/ops/gemm.hpp", "ck_tile/ops/epilogue.hpp")
GUARD, DEVICE = "#if defined(__HIP_DEVICE_COMPILE__)", "  Device<Config>::template run<variant>(x);\n#endif"


def kernels() -> dict[str, KernelSpec]:
    """One of each kind of tails, and a fused one."""
    plain = replace(example_kernel(ARCH).schedule, tile=(128, 128, 64), pad=(False, False, False))
    signature = example_kernel(ARCH).signature
    fused = replace(signature, variant="multi_d", epilogue="FastGelu", num_d=2)
    packed = replace(signature, variant="preshuffle")
    found = {
        "compv3": (signature, plain),
        "mem, eight stages": (signature, replace(plain, pipeline="mem", tile=(32, 32, 32), warp_tile=(16, 16, 16))),
        "preshuffle": (
            packed,
            replace(plain, pipeline="preshuffle", scheduler="default", warp_grid=(1, 4, 1), warp_tile=(16, 16, 32)),
        ),
        "compv4, FastGelu of two Ds": (fused, replace(plain, pipeline="compv4")),
    }
    return {label: _legal(KernelSpec("gemm", *both, ARCH)) for label, both in found.items()}


def alike() -> list[KernelSpec]:
    """For workers: kernels that take about the same time."""
    example = example_kernel(ARCH)
    tiles = ((64, 64, 32), (128, 64, 32), (64, 128, 32), (128, 128, 32))
    return [_legal(KernelSpec("gemm", example.signature, replace(example.schedule, tile=tile), ARCH)) for tile in tiles]


def _legal(spec: KernelSpec) -> KernelSpec:
    broken = list(op("gemm").check(spec))
    if broken:
        raise SystemExit(f"{spec.name} is not legal: {broken[0]}")
    return spec


def cpu_seconds(command: Sequence[str], tools: HipToolchain, work: Path) -> float:
    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime

    before, environment = used(), settings.child_environment(tools.environment(work))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return round(used() - before, 2)


def without(levers: str, place: Path) -> Path:
    """Our headers as they would be before a lever: CK Tile in both passes, and tails as types where asked for."""
    ours = Path(tilewright.__file__).parent / "backends" / "hip" / "include"
    shutil.copytree(ours, place)
    folder = place / "tilewright" / "hip"
    naive = levers != "shared tails"
    for path in folder.glob("*.h"):
        text = path.read_text(encoding="utf-8")
        if path.name == "gemm.h":
            name, known = (
                ("Naive<Config>", "Naive<Config>::template known<variant>()")
                if naive
                else ("Device<Config>", "Device<Config>::lds_bytes > 0")
            )
            body = f"{GUARD}\n{DEVICE}"
            if body not in text:
                raise SystemExit("gemm.h is not what this benchmark was written for")
            device = f"#ifdef __HIP_DEVICE_COMPILE__\n  {name}::template run<variant>(x);\n"
            text = text.replace(body, f"{device}#else\n  static_assert({known});\n#endif")
            declared = "template <class> struct Device;\ntemplate <class> struct Naive;"
            text = text.replace("template <class Config> struct Device;", declared)
        text = text.replace(GUARD, "#if 1")
        if path.name == Path(gemm_profile().glue).name and naive:
            text += (Path(__file__).parent / "_hip_naive.h").read_text(encoding="utf-8")
        path.write_text(text, encoding="utf-8")
    return place


def measured(spec: KernelSpec, tools: HipToolchain, work: Path) -> dict[str, float]:
    """Seconds by lever."""
    text, found = backend("hip").render(spec).text, {}
    for lever in LEVERS:
        source, output = work / f"{spec.name}.hpp", work / "kernel.so"
        first: list[str] = []
        now = text
        if lever not in ("lean host pass", "precompiled header"):
            place = work / lever.replace(" ", "-")
            first = [f"-I{place if place.exists() else without(lever, place)}"]
            now = text.replace(GUARD, "#if 1")
        if lever == "naive":
            now = "".join(f"#include <{one}>\n" for one in WHOLE) + now
            # As the glue would have it, were it the first to be read.
            now = "#define CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT 0\n" + now
        source.write_text(now, encoding="utf-8")
        with settings.override(cache_dir=work / ("with" if lever == "precompiled header" else "nothing")):
            command = tools.command(source, output, ARCH, "gemm")
        found[lever] = cpu_seconds([*tools.driver, *first, *command[len(tools.driver) :]], tools, work)
    return found


def make_precompiled(tools: HipToolchain, work: Path) -> dict[str, float]:
    with settings.override(cache_dir=work / "with"):
        todo = tools.preparation(ARCH, "gemm", precompiled.WORTH_KERNELS)
        if todo is None:
            raise SystemExit("the precompiled header is there before it was made")
        seconds = cpu_seconds(todo.command, tools, work)
        todo.part.replace(todo.output)
        return {"cpu_seconds": seconds, "mib": round(todo.output.stat().st_size / (1 << 20), 1)}


def parallel(tools: HipToolchain, workers: Sequence[int], work: Path) -> dict[str, Any]:
    """Wall seconds of a whole build with so many compilers at once, the precompiled header at hand."""
    specs, seconds = alike(), dict[str, float]()
    with settings.override(cache_dir=work / "with"):
        store = Store()
        with store.workspace() as folder:
            prepare([(tools, ARCH, "gemm")] * precompiled.WORTH_KERNELS, store, folder)
        for count in workers:
            start = time.perf_counter()
            Builder(Store(work / f"workers-{count}")).build_many(specs, max_workers=count)
            seconds[str(count)] = round(time.perf_counter() - start, 2)
            print(f"{len(specs)} kernels by {counted(count, 'worker')}: {seconds[str(count)]:.1f} s", flush=True)
    most = seconds[str(workers[0])]
    speed_up = {count: round(most / one, 2) for count, one in seconds.items()}
    return {"kernels": [one.name for one in specs], "seconds": seconds, "speed_up": speed_up}


def generated(work: Path) -> dict[str, Any]:
    """The whole legal pool of one type and layout to files, three times, each a process as a user starts it."""
    command = [sys.executable, "-m", "tilewright.cli.main", "generate", "gemm", "--target", ARCH, "--pool", "full"]
    command += ["--datatype", "fp16", "--layout", "rcr", "--variants", "standard", "--json", "--output-dir"]
    seconds, headers = [], 0
    for turn in range(3):
        start = time.perf_counter()
        done = subprocess.run([*command, str(work / f"pool-{turn}")], capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - start)
        if done.returncode:
            raise SystemExit(done.stderr)
        headers = len(json.loads(done.stdout)["written"])
    middle = sorted(seconds)[1]
    return {"headers": headers, "seconds": round(middle, 2), "headers_a_second": round(headers / middle)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark compiling for AMD GPUs.")
    parser.add_argument("--quick", action="store_true", help="one kernel, one and two workers")
    parser.add_argument("--output", type=Path, default=RESULTS / "compile_hip.json")
    options = parser.parse_args()
    try:
        tools = find_toolchain()
        tools.ck_tile()
    except ToolchainError as error:
        print(f"nothing was measured: {error.message}; {error.remedy}")
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-compile-") as folder:
        work = Path(folder)
        header = make_precompiled(tools, work)
        print(f"precompiled header: {header['cpu_seconds']} s of CPU, {header['mib']} MiB", flush=True)
        for label, spec in list(kernels().items())[: 1 if options.quick else None]:
            seconds = measured(spec, tools, work)
            rows.append({"label": label, "kernel": spec.name, "cpu_seconds": seconds})
            print("  ".join(f"{lever} {one:.1f}" for lever, one in seconds.items()), label, flush=True)
        workers = parallel(tools, WORKERS[:2] if options.quick else WORKERS, work)
        generation = generated(work)
    print(f"{generation['headers']} headers in {generation['seconds']} s: {generation['headers_a_second']} a second")
    most = max(float(row["cpu_seconds"]["precompiled header"]) for row in rows)
    met = {
        "compile": most <= TARGET_CPU_SECONDS,
        "generate": generation["seconds"] <= TARGET_GENERATE_SECONDS,
    }
    print(f"most {most:.1f} s of CPU a kernel (target {TARGET_CPU_SECONDS:g}); " + str(met))
    result = {
        "benchmark": "compile_hip",
        **provenance("python benchmarks/compile_hip.py" + (" --quick" if options.quick else "")),
        "arch": ARCH,
        "hipcc": tools.identity.version,
        "levers": LEVERS,
        "targets": {"cpu_seconds": TARGET_CPU_SECONDS, "generate_seconds": TARGET_GENERATE_SECONDS},
        "most_cpu_seconds": most,
        "met": met,
        "precompiled_header": header,
        "rows": rows,
        "parallel": workers,
        "generate": generation,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if not all(met.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
