"""Where the time of a kernel that nobody has built goes: seconds of each program of nvcc's; no GPU is needed.

    python benchmarks/compile_stages.py --seed SEED               kernels that drawn problems choose, as first_calls.py
    python benchmarks/compile_stages.py --seed SEED --count 3

Of each kernel: the preprocessor, cicc (front end, LLVM: PTX) and ptxas, each run by itself as `nvcc --dryrun` tells;
nvcc whole, and what processors spent on it (`user`, `system`: faults of pages and starts of programs); the host's half,
which runs beside it; the link; and the one command that a build runs.  Least of some runs, seconds on the clock, so the
machine must have nothing else to do.  `split`: nvcc with `--split-compile 0`; `huge`: with large pages for ptxas.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import new_shapes

from tilewright.backends.base import backend
from tilewright.backends.cuda.toolchain import CudaToolchain, find_toolchain
from tilewright.dispatch.registry import Registry
from tilewright.ops.base import KernelSpec

ARCH = "sm_90a"
COUNT = 6  # kernels of an op
RUNS = 3


def seconds(command: Sequence[str] | str, environment: dict[str, str] | None = None) -> float:
    """Least of some runs."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        # nvcc tells its commands as a shell reads them.
        subprocess.run(command, shell=isinstance(command, str), env=environment, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


def programs(nvcc: Sequence[str], keep: Path) -> Iterator[tuple[str, float]]:
    """What nvcc starts, one after the other, each with what it takes."""
    told = subprocess.run(
        [*nvcc, "--dryrun", "--keep", "--keep-dir", str(keep)], check=True, capture_output=True, text=True
    )
    environment = dict(os.environ)
    for line in told.stderr.splitlines():
        words = line.removeprefix("#$ ").strip()
        setting = re.fullmatch(r"(\w+)=(.*)", words)
        if setting:
            environment[setting[1]] = setting[2]
        elif words and not words.startswith("rm "):
            yield Path(words.split()[0].strip('"')).name, seconds(words, environment)


def drawn(op: str, seed: int, count: int) -> list[KernelSpec]:
    registry, chosen = Registry(ARCH), dict[str, KernelSpec]()
    with new_shapes.as_trained_for(ARCH):
        for problem in new_shapes.stream(op, "bf16", 4096, seed, 10 * count):
            for stage in registry.select(problem).stages:
                chosen.setdefault(stage.spec.digest, stage.spec)
    return list(chosen.values())[:count]


def stages(spec: KernelSpec, toolchain: CudaToolchain, folder: Path) -> dict[str, float]:
    source, library = folder / f"{spec.name}.cu", folder / "kernel.so"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    cubin, assembly = library.with_suffix(".cubin"), library.with_suffix(".s")
    nvcc = toolchain.cubin_command(source, cubin, ARCH, op=spec.op)
    row = dict(programs(nvcc, folder))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    row["nvcc"] = seconds(nvcc)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    row["user"], row["system"] = (after.ru_utime - before.ru_utime) / RUNS, (after.ru_stime - before.ru_stime) / RUNS
    row["huge"] = seconds(nvcc, {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    row["split"] = seconds([*nvcc, "--split-compile", "0"])
    row["host"] = seconds(toolchain.host_command(source, cubin, assembly, spec.op))
    row["link"] = seconds([*toolchain.host.driver, "-shared", "-o", str(library), str(assembly), "-ldl"])
    row["all"] = seconds(toolchain.command(source, library, ARCH, spec.op))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=COUNT, help="kernels of an op")
    options = parser.parse_args()
    toolchain = find_toolchain()
    for op in new_shapes.DRAWS:
        rows = []
        for spec in drawn(op, options.seed, options.count):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(row := stages(spec, toolchain, Path(folder)))
            print(" ".join(f"{name} {value:.3f}" for name, value in row.items()), spec.name, flush=True)
        medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        print(f"{op} medians:", " ".join(f"{name} {value:.3f}" for name, value in medians.items()), flush=True)


if __name__ == "__main__":
    main()
