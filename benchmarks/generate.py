"""How long 5,000 specs take from pool to files, how much memory, and what a second run writes.

    python benchmarks/generate.py            prints the numbers and writes benchmarks/results/generate.json

Every run is a process of its own through the command line, as a user would start it: start-up,
enumeration, legality, rendering and writing are all inside the time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilewright.arch import host_facts
from tilewright.errors import counted

RESULTS = Path(__file__).parent / "results" / "generate.json"
TARGET_SECONDS, TARGET_BYTES = 5.0, 300 << 20
REQUEST = [
    "--target",
    "x86_64_v4",
    "--pool",
    "full",
    "--datatype",
    "fp32,bf16,fp16,int8",
    "--layout",
    "rrr,rcr,crr,ccr",
]

# Runs the command in a child and reports the child's own peak, which a parent's would hide.
WATCHED = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
sys.stderr.write(done.stderr)
sys.stdout.write(json.dumps({"peak_bytes": peak, "report": json.loads(done.stdout or "null")}))
sys.exit(done.returncode)
"""


def one_run(count: int, jobs: int, place: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tilewright.cli.main", "generate", "gemm", *REQUEST]
    command += ["--limit", str(count), "--jobs", str(jobs), "--json", "-o", str(place)]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", WATCHED, *command], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    data = json.loads(done.stdout)
    report = data["report"]
    return {
        "seconds": round(seconds, 3),
        "peak_mib": round(data["peak_bytes"] / (1 << 20), 1),
        "written": len(report["written"]),
        "unchanged": len(report["unchanged"]),
        "processes": report["processes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmark generation.")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for _ in range(options.repeat):
        place = Path(tempfile.mkdtemp(prefix="tilewright-generate-"))
        try:
            cold, again = (one_run(options.count, options.jobs, place) for _ in range(2))
        finally:
            shutil.rmtree(place)
        rows.append({"cold": cold, "again": again})
        print(
            f"{cold['written']} specs: {cold['seconds']:.2f} s, peak {cold['peak_mib']:.0f} MiB, "
            f"{counted(cold['processes'], 'process')}; again: {again['seconds']:.2f} s, {again['written']} written"
        )
    middle = sorted(row["cold"]["seconds"] for row in rows)[len(rows) // 2]
    peak = max(row["cold"]["peak_mib"] for row in rows)
    rewritten = max(row["again"]["written"] for row in rows)
    met = middle <= TARGET_SECONDS and peak * (1 << 20) < TARGET_BYTES and rewritten == 0
    print(
        f"median {middle:.2f} s (target {TARGET_SECONDS:.0f}), peak {peak:.0f} MiB (target {TARGET_BYTES >> 20}), "
        f"second run wrote {rewritten} (target 0): {'met' if met else 'MISSED'}"
    )
    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "benchmark": "generate",
        "command": "python benchmarks/generate.py",
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu": host_facts().model, "cores": host_facts().cores, "system": platform.platform()},
        "versions": {
            "python": platform.python_version(),
            "tilewright": version("tilewright"),
            "jinja2": version("jinja2"),
        },
        "count": options.count,
        "median_seconds": middle,
        "peak_mib": peak,
        "second_run_written": rewritten,
        "met": met,
        "runs": rows,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
