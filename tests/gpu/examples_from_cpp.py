"""The C++ examples on a GPU, and GEMMs in padded copies there: all built, all run, all right.

    python tests/gpu/examples_from_cpp.py WORK [--target sm_90a] [--examples gemm conv/01_basic ...]

With nvcc and g++; without a GPU, --only-build does everything but to run them.  Exits with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.cpp import programs  # noqa: E402

EXAMPLES = ROOT / "examples" / "cpp"


def export_copies(folder: Path, target: str) -> None:
    """Kernels that take rows of whole accesses only."""
    import tilewright as tw
    from tilewright import ops

    op, specs = ops.op("gemm"), list[Any]()
    forms: tuple[dict[str, Any], ...] = ({}, {"epilogue": "MultiDAdd", "num_d": 2})
    for form in forms:
        odd = tw.GemmProblem(m=13, n=11, k=7, **form)
        specs += [spec for spec in op.candidates(op.signature_of(odd), target) if op.supports(spec, odd)][:2]
    tw.Registry(target, specs=specs).export(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--examples", nargs="*", default=[])
    parser.add_argument("--only-build", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    kernels, copies = options.work / f"kernels-{options.target}", options.work / "copies"
    start = time.perf_counter()
    export = (sys.executable, str(EXAMPLES / "export_kernels.py"), str(kernels), "--target", options.target)
    print(programs.call(*export, *(("--examples", *options.examples) if options.examples else ())).strip())
    export_copies(copies, options.target)
    print(f"kernels: {time.perf_counter() - start:.0f} s")
    start = time.perf_counter()
    names = sorted(file.relative_to(EXAMPLES).as_posix()[:-4] for file in EXAMPLES.glob("*/*.cpp"))
    wanted = [name for name in names if not options.examples or {name, name.partition("/")[0]} & set(options.examples)]
    programs.runtime()
    programs.with_header(EXAMPLES / f"{wanted[0]}.cpp", options.work / "first")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        goals = {name: options.work / name.replace("/", "_") for name in wanted}
        jobs = {name: pool.submit(programs.with_header, EXAMPLES / f"{name}.cpp", goal) for name, goal in goals.items()}
        ready = {name: str(job.result()) for name, job in jobs.items()}
    device = programs.program(programs.CPP / "tests" / "test_device.cpp", options.work / "test_device")
    print(f"{len(ready)} programs: {time.perf_counter() - start:.0f} s")
    if options.only_build:
        return 0
    backend = "hip" if options.target.startswith("gfx") else "cuda"
    words = {name: (program, str(kernels), "--target", options.target) for name, program in ready.items()}
    words["padded copies"] = (str(device), "copies", backend, str(copies))
    wrong = 0
    for name, command in words.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            wrong += 1
            print(f"{name}: status {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-600:]}")
    print(f"{len(words) - wrong} of {len(words)} right on {options.target}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
