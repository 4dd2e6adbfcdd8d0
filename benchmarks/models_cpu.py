"""Whole models on the CPU: PyTorch eager beside ours, with default settings, interleaved in one process.

    python benchmarks/models_cpu.py                     all; writes results/models_cpu.json
    python benchmarks/models_cpu.py --models vit,whisper --dtypes fp32
    python benchmarks/models_cpu.py --own               also on threads of our own, as if PyTorch's were not shared
    python benchmarks/models_cpu.py --quick             few rounds, nothing written

`replaced` is the model after `replace_modules`, with our `scaled_dot_product_attention`; `packed` the same with
`pack=True`; `calls` is its forward written with `tw.*` calls (`_models.py`).  Each result is compared with float64
first: our error may be twice PyTorch's own on the same model and type, and what sums of k products in fp32 add in each
layer, about the root of k units in the last place.  A turn is a few forwards; a ratio is PyTorch's time over ours,
round by round: its median, quartiles and extremes are written.  Rounds in which other programs took more than a tenth
of the machine count only where there are no others.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from _machine import RESULTS, command_line, provenance
from _model_race import asked_for, geometric_mean, ratios, rounding, times
from _models import CASES, Calls, Case, DropIn, Plain, built

import tilewright.torch
from tilewright import settings
from tilewright.arch import host_facts
from tilewright.runtime import host

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SEED = 23
TURN_SECONDS = 0.1
BUSY = 0.1  # of the machine, by others
GOAL = 1.15

Forward = Callable[[], Any]


def contestants(case: Case, dtype: torch.dtype, own: bool) -> tuple[dict[str, Forward], Any, float]:
    """The forwards by name, the result in float64, and what rounding may add to errors."""
    model, x = built(case, SEED, dtype)
    exact = copy.deepcopy(model).double()(Plain(), x.double())
    replaced = copy.deepcopy(model)
    tilewright.torch.replace_modules(replaced)

    def forward(of: Any, kit: Plain, pool: str = "") -> Forward:
        def call() -> Any:
            with settings.override(thread_pool=pool) if pool else nullcontext():
                return of(kit, x)

        return call

    packed = copy.deepcopy(model)
    tilewright.torch.replace_modules(packed, pack=True)
    found = {
        "torch": lambda: model(Plain(), x),
        "replaced": lambda: replaced(DropIn(), x),
        "packed": lambda: packed(DropIn(), x),
        "calls": lambda: model(Calls(), x),
    }
    if own:
        found["replaced, own threads"] = forward(replaced, DropIn(), "own")
        found["calls, own threads"] = forward(model, Calls(), "own")
    return found, exact, rounding(model)


def checked(forwards: dict[str, Forward], exact: Any, more: float) -> dict[str, float]:
    """The largest error of each, as a part of the largest element; too large a one ends the run."""
    largest = exact.abs().max().item()
    errors = {name: (call().double() - exact).abs().max().item() / largest for name, call in forwards.items()}
    most = 2 * errors["torch"] + more
    for name, error in errors.items():
        if not error <= most:
            raise SystemExit(f"{name} is wrong by {error:.3g} of the largest element, and {most:.3g} are allowed")
    return errors


def busy_seconds() -> float:
    """What all processes have used so far, of all cores."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    used = sum(map(int, words[:3])) + sum(map(int, words[5:8]))
    return used / 100


def round_of(forwards: dict[str, Forward], repeats: int, first: int) -> tuple[dict[str, float], float]:
    """Seconds of a forward of each, and how much of the machine others used meanwhile; `first` turns the order."""
    names = list(forwards)
    seconds: dict[str, float] = {}
    begun, mine, all_used = time.perf_counter(), time.process_time(), busy_seconds()
    for name in names[first:] + names[:first]:
        call = forwards[name]
        call()  # what the one before left in caches and spinning is not its fault
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        seconds[name] = (time.perf_counter() - start) / repeats
    passed = time.perf_counter() - begun
    others = busy_seconds() - all_used - (time.process_time() - mine)
    return seconds, max(0.0, others) / (passed * host_facts().cores)


def raced(forwards: dict[str, Forward], rounds: int) -> dict[str, Any]:
    start = time.perf_counter()
    forwards["torch"]()
    repeats = max(1, min(50, round(TURN_SECONDS / (time.perf_counter() - start))))
    all_rounds = [round_of(forwards, repeats, index % len(forwards)) for index in range(rounds)]
    quiet = [seconds for seconds, others in all_rounds if others <= BUSY]
    counted = quiet if len(quiet) >= 3 else [seconds for seconds, _ in all_rounds]
    found: dict[str, Any] = {
        "rounds": len(counted),
        "disturbed": rounds - len(quiet),
    }
    each = {name: [one[name] for one in counted] for name in forwards}
    found["seconds"] = {name: times(taken) for name, taken in each.items()}
    found["ratio"] = {name: ratios(each["torch"], each[name]) for name in list(forwards)[1:]}
    return found


def show(row: dict[str, Any]) -> None:
    words = [f"torch {row['seconds']['torch']['median'] * 1e3:8.2f} ms"]
    for name, ratio in row["ratio"].items():
        ms = row["seconds"][name]["median"] * 1e3
        words.append(f"{name} {ms:8.2f} ({ratio['median']:.2f}, {ratio['quartile_1']:.2f}-{ratio['quartile_3']:.2f})")
    print(f"{row['model']:<16}{row['dtype']:<6}{'  '.join(words)}  disturbed {row['disturbed']}", flush=True)


def mean_ratios(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the median ratios: of all rows, and of each type."""
    found: dict[str, Any] = {}
    for dtype in ("all", *dict.fromkeys(row["dtype"] for row in rows)):
        mine = [row["ratio"] for row in rows if dtype in ("all", row["dtype"])]
        found[dtype] = {name: geometric_mean(one[name]["median"] for one in mine) for name in mine[0]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Whole models on the CPU beside PyTorch.")
    parser.add_argument("--models", default="", help="names with commas between; default all")
    parser.add_argument("--dtypes", default="", help="fp32, bf16")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--own", action="store_true", help="also on threads of our own")
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing written")
    parser.add_argument("--output", type=Path, help="result file")
    options = parser.parse_args()
    models = asked_for(options.models, [one.name for one in CASES], parser)
    dtypes = asked_for(options.dtypes, list(DTYPES), parser)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for case in CASES:
            for dtype in dtypes if case.name in models else ():
                forwards, exact, more = contestants(case, DTYPES[dtype], options.own)
                errors = checked(forwards, exact, more)
                found = raced(forwards, 3 if options.quick else options.rounds)
                rows.append({"model": case.name, "about": case.about, "dtype": dtype, "errors": errors, **found})
                show(rows[-1])
    means = mean_ratios(rows)
    for dtype, each in means.items():
        print(f"geometric mean, {dtype}: " + ", ".join(f"{name} {ratio:.3f}" for name, ratio in each.items()))
    whole = len(models) == len(CASES) and len(dtypes) == len(DTYPES) and not options.quick
    place = options.output or (RESULTS / "models_cpu.json" if whole else None)
    if place is not None:
        head = {"benchmark": "models_cpu", **provenance(command_line()), "seed": SEED, "goal": GOAL}
        head |= {"threads": host.thread_count(), "torch_threads": torch.get_num_threads()}
        head["openmp"] = Path(host.openmp_library()).name
        text = json.dumps({**head, "summary": means, "rows": rows}, indent=1)
        place.write_text(text + "\n", encoding="utf-8")
        print(f"written to {place}")


if __name__ == "__main__":
    main()
