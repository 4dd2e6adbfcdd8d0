"""What gemm_h200.py says of its numbers: where they come from, summaries, and the goals they are held against."""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import math
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _cuda_timing import CACHES, Clock
from _h200_shapes import ODD, name_of
from _machine import command_line, commit, installed

Row = dict[str, Any]
SELECTIONS = ("default", "measured")
LARGE_WEIGHTS = 200e6  # bytes above which the few-row shapes are held against the copy bandwidth


def provenance(options: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    """Machine, driver, versions, method and date."""
    found: dict[str, Any] = {
        "command": command_line(),
        "date": datetime.date.today().isoformat(),
        "method": {
            "rounds": options.rounds,
            "clock": "CUDA events around one replay of a captured graph; contestants in turn, medians",
            "cold": f"{clock.flush_bytes} bytes (twice the second-level cache) written before every timed replay",
            "clean": "the same, then as many others read, so that nothing is left to be written back",
            "warm": "one untimed replay of the same graph before every timed one",
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "",
            "tilewright": installed("tilewright"),
            "commit": commit(),
        },
    }
    if clock.device == "cpu":
        return found | {"dry_run": True, "machine": {"gpu": "none: a rehearsal"}}
    from tilewright.backends.cuda import toolchain
    from tilewright.runtime import cuda

    one = cuda.device()
    found["machine"] = {
        "gpu": one.name,
        "arch": one.arch,
        "multiprocessors": one.facts.compute_units,
        "l2_bytes": one.cache_bytes,
        "memory_bytes": one.memory_info()[1],
        "driver": driver_version(),
    }
    found["versions"]["compiler"] = toolchain.find_toolchain().identity.version
    return found


def driver_version() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    asked = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.partition("\n")[0].strip()


def write(place: Path, result: dict[str, Any]) -> None:
    """As JSON; compressed where the name ends so."""
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1) + "\n"
    if place.suffix == ".gz":
        place.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        place.write_text(text, encoding="utf-8")


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def ratios(rows: Sequence[Row], name: str, keep: Callable[[Row], bool]) -> list[float]:
    key = f"{name}_over_cublas"
    return [row[key]["ratio"] for row in rows if key in row and keep(row)]


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """Geometric means and the least, by selection, cache and type."""
    found: dict[str, float] = {}
    for name in SELECTIONS:
        for l2 in CACHES:
            for dtype in sorted({row["dtype"] for row in rows}):
                mine = [row for row in rows if row["l2"] == l2 and row["dtype"] == dtype]
                every = ratios(mine, name, lambda row: True)
                if not every:
                    continue
                head = f"{name}, {l2}, {dtype}"
                found[f"{head}: geometric mean"] = geometric_mean(every)
                found[f"{head}: least"] = min(every)
                few = ratios(mine, name, lambda row: int(row["m"]) <= 16)
                if few:
                    found[f"{head}: geometric mean, M <= 16"] = geometric_mean(few)
    return found


def copy_goal(row: Row, copy: float) -> None:
    """Few rows against large weights: the part of the copy bandwidth they reach, and cuBLAS reaches."""
    if row["m"] > 16 or row["n"] * row["k"] * 2 <= LARGE_WEIGHTS:
        return
    moved = row["bytes_per_second"] * min(row["seconds"][name] for name in row["kernels"])
    row["of_copy"] = {name: moved / seconds / copy for name, seconds in row["seconds"].items()}


def goals(rows: Sequence[Row], fp8_rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The goals that this run can judge; cold caches, both types together."""
    cold = [row for row in rows if row["l2"] == "cold"]
    found: list[dict[str, Any]] = []

    def add(goal: str, wanted: float, values: Sequence[float]) -> None:
        if values:
            value = values[0] if len(values) == 1 else geometric_mean(values)
            found.append({"goal": f"{goal}, at least {wanted:g}", "wanted": wanted, "found": value,
                          "met": value >= wanted})  # fmt: skip

    for name, wanted in zip(SELECTIONS, (1.00, 1.03), strict=True):
        every = ratios(cold, name, lambda row: True)
        add(f"{name} selection, geometric mean of cuBLAS", wanted, every)
        add(f"{name} selection, least shape", 0.92, [min(every)] if every else [])
        add(
            f"{name} selection, M <= 16, geometric mean of cuBLAS", 1.15, ratios(cold, name, lambda row: row["m"] <= 16)
        )
        parts = [row["of_copy"][name] for row in cold if name in row.get("of_copy", {})]
        add(f"{name} selection, M <= 16 with over 200 MB of weights, of the copy bandwidth", 0.85, parts)
        odd = [row for row in cold if row["shape"] == name_of(ODD) and name in row["seconds"]]
        rates = [2.0 * row["m"] * row["n"] * row["k"] / row["seconds"][name] / 1e12 for row in odd]
        add(f"{name} selection, TFLOP/s on {name_of(ODD)}", 3 * 93.0, rates)
        twice = [row["over_bf16"]["ratio"] for row in fp8_rows if row["selection"] == name]
        add(f"{name} selection, fp8 over our bf16 on large squares", 1.6, twice)
    return found


def line(row: Row) -> str:
    text = f"{row['dtype']} {row['l2']:5} {row['shape']:>17}: cuBLAS {row['seconds']['cublas'] * 1e6:8.1f} us"
    for name in SELECTIONS:
        if name in row["kernels"]:
            text += f" | {name} {row['seconds'][name] * 1e6:8.1f} us {row[f'{name}_over_cublas']['ratio']:.3f}"
    shown = row["kernels"].get("measured") or row["kernels"]["default"]
    return f"{text} | {row['tflops']:.0f} TFLOP/s {row['bytes_per_second'] / 1e9:.0f} GB/s {shown}"
