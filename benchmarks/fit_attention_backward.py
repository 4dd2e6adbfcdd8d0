"""Time kernels of attention's gradients on problems drawn by seed, and fit the constants of their estimate to them.

    python benchmarks/fit_attention_backward.py --time one.json --seed 1      on the GPU: every legal kernel of `grad`
                                                                              of every plan; at most --seconds
    python benchmarks/fit_attention_backward.py one.json --judge two.json     anywhere: constants fitted to the first,
                                                                              regret on both, before and after
    python benchmarks/fit_attention_backward.py one.json --write              the same, and arch/fits.json has them

The regret is the time of the kernel that the estimate chooses over the fastest one's, of the same stage; and of plans,
the time of the one that the rule takes (accumulators of dq, or of all in so many splits) over the fastest plan's, each
by its fastest kernels.  The search is that of fit_cuda.py.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from _machine import command_line, provenance
from fit_cuda import Constants, Seconds, Shape, fit, mean_regret, regrets, rounded, tell

from tilewright import ops
from tilewright.arch import arch as arch_by_name
from tilewright.arch import facts
from tilewright.backends.cuda.attention_backward.rates import rates
from tilewright.native.judge import judge
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.base import plain

BACKWARD = ops.op("attention_backward")
MOST = 1.2e12  # products and sums of a problem: a few milliseconds
PARTS = (2, 3, 4, 6, 8, 16)  # that are timed where the plan has some, whatever the rule takes


# -- on the GPU --------------------------------------------------------------------------------------------------------


def drawn(seed: int, count: int) -> list[Any]:
    """Shapes of any size, few blocks as often as many."""
    from attention_backward_h200 import Shape as Sizes

    rng = random.Random(seed)
    found: list[Any] = []
    while len(found) < count:
        rows = round(math.exp(rng.uniform(math.log(128), math.log(8192))))
        head, group, heads_kv = rng.choice((64, 128, 128, 96)), rng.choice((1, 1, 4, 8)), rng.choice((1, 2, 4, 8, 16))
        keys = rows if rng.random() < 0.8 else round(math.exp(rng.uniform(math.log(77), math.log(4096))))
        causal = keys >= rows and rng.random() < 0.6
        one = Sizes(rng.choice((1, 1, 2, 4, 16)), heads_kv * group, heads_kv, rows, keys, head, causal)
        if one.problem().flops < MOST:
            found.append(one)
    return found


def plans_of(problem: AttentionBackwardProblem, arch: str) -> list[Sequence[AttentionBackwardProblem]]:
    from tilewright.ops.attention_backward.plans import stages_of

    kinds = dict.fromkeys(plan[1].accumulate for plan in BACKWARD.split_plans(problem, arch).values())
    found = [stages_of(problem, kind) for kind in kinds if kind != "all"]
    return found + [stages_of(problem, "all", parts) for parts in PARTS if "all" in kinds]


def specs_of(stage: AttentionBackwardProblem, arch: str) -> list[Any]:
    found = BACKWARD.candidates(stage.signature, arch)
    legal = [one for one in found if not BACKWARD.check(one) and not BACKWARD.supports(one, stage)]
    return [one for one in legal if one.schedule.pipeline != "loops"]


def measured(seed: int, count: int, rounds: int, seconds: float) -> dict[str, Any]:
    import torch
    from attention_backward_h200 import Operands, Race

    from tilewright.backends.cuda import driver
    from tilewright.dispatch import kernels

    arch, began, shapes = driver.available_archs()[0], time.perf_counter(), drawn(seed, count)
    known = [[(plan, [specs_of(stage, arch) for stage in plan]) for plan in plans_of(shape.problem(), arch)]
             for shape in shapes]  # fmt: skip
    kernels.build([spec for plans in known for _, stages in plans for specs in stages for spec in specs])
    print(f"built in {time.perf_counter() - began:.0f} s", flush=True)
    race, begun = Race(rounds), time.perf_counter()
    rows: list[dict[str, Any]] = []
    for shape, plans in zip(shapes, known, strict=True):
        if time.perf_counter() - begun > seconds:
            print(f"{len(shapes) - len(rows)} shapes left out")
            break
        operands = Operands(shape)
        entries, runs = [], []
        for plan, stages in plans:
            between = operands.between(plan[1])
            for stage, specs in zip(plan, stages, strict=True):
                for spec in specs:
                    runs.append(operands.stage(kernels.kernel(spec), stage, between))
                    entries.append({"problem": plain(stage), "spec": spec.to_dict()})
        for entry, taken in zip(entries, race.seconds(runs), strict=True):
            entry["seconds"] = taken
        rows.append({"shape": asdict(shape), "entries": entries})
        del operands, runs
        torch.cuda.empty_cache()
    return {**provenance(command_line()), "gpu": torch.cuda.get_device_name(), "arch": arch, "seed": seed, "rows": rows}


# -- anywhere ----------------------------------------------------------------------------------------------------------


def read(paths: Sequence[Path]) -> tuple[list[Shape], list[dict[str, Any]]]:
    """The stages with two kernels or more, and the rows as they are."""
    shapes, rows = [], []
    for path in paths:
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            rows.append(row)
            groups: dict[Any, list[tuple[Any, float]]] = {}
            for entry in row["entries"]:
                problem = BACKWARD.problem_from_dict(entry["problem"])
                groups.setdefault(problem, []).append((BACKWARD.spec_from_dict(entry["spec"]), entry["seconds"]))
            for problem, mine in groups.items():
                seconds = np.array([taken for _, taken in mine])
                shapes.append(Shape(problem, tuple(spec for spec, _ in mine), seconds, problem.accumulate))
    return shapes, rows


class Table:
    """Seconds of all kernels under any constants, as the selection library counts."""

    def __init__(self, shapes: Sequence[Shape], arch: str) -> None:
        self.arch, self.asked = arch, []
        for shape in shapes:
            mine = judge(shape.kernels, range(len(shape.kernels)))
            if mine is None:
                raise SystemExit("no C++ compiler builds the selection library, which holds the estimate")
            self.asked.append((mine, shape.problem, np.ones(len(shape.kernels), bool)))

    def __call__(self, values: Constants) -> list[Seconds]:
        found = []
        for mine, problem, every in self.asked:
            mine.use_rates(self.arch, values)
            found.append(mine.estimates(problem, 1, every).copy())
        return found


def plan_regrets(rows: Sequence[dict[str, Any]], arch: str) -> list[tuple[float, str]]:
    """Of the plan that the rule takes: in the number of parts nearest to its own that was timed."""
    from tilewright.backends.cuda.attention_backward.parts import best_parts

    found = []
    for row in rows:
        times: dict[tuple[str, int], dict[str, float]] = {}
        for entry in row["entries"]:
            p = BACKWARD.problem_from_dict(entry["problem"])
            if p.family == "dot":
                continue
            parts = p.dkv_heads // p.heads_kv if p.accumulate == "all" else 1
            mine = times.setdefault((p.accumulate, parts), {})
            mine[p.family] = min(entry["seconds"], mine.get(p.family, math.inf))
        whole = {key: sum(stages.values()) for key, stages in times.items() if "grad" in stages}
        grad = next(
            BACKWARD.problem_from_dict(e["problem"]) for e in row["entries"] if e["problem"]["family"] == "grad"
        )
        if ("dq", 1) not in whole:
            continue
        parts = best_parts(grad, arch_by_name(arch))
        shared = [key for key in whole if key[0] == "all"]
        nearest = min(shared, key=lambda key: abs(math.log(key[1] / parts)), default=("dq", 1))
        chosen = ("dq", 1) if parts == 1 else nearest
        best = min(whole, key=lambda key: whole[key])
        found.append((whole[chosen] / whole[best], f"{grad.describe()}: took {chosen}, best {best}"))
    return found


def told_plans(title: str, rows: Sequence[dict[str, Any]], arch: str) -> None:
    found = plan_regrets(rows, arch)
    if not found:
        return
    print(f"{title}, plans: regret {mean_regret([regret for regret, _ in found]):.4f}, worst {max(found)[0]:.3f}")
    for regret, text in sorted(found, reverse=True)[:8]:
        print(f"    {regret:.3f} {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", type=Path, nargs="*", help="files of --time that constants are fitted to")
    parser.add_argument("--judge", type=Path, nargs="+", default=[], help="such files that nothing is fitted to")
    parser.add_argument("--time", type=Path, help="time kernels and write this file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="no shape is begun after so many")
    parser.add_argument("--looks", type=int, default=2000)
    parser.add_argument("--write", action="store_true", help="put the constants into arch/fits.json")
    options = parser.parse_args()
    if options.time:
        result = measured(options.seed, options.count, options.rounds, options.seconds)
        options.time.write_text(json.dumps(result) + "\n", encoding="utf-8")
        print(f"{len(result['rows'])} shapes, {sum(len(row['entries']) for row in result['rows'])} times")
        return
    shapes, rows = read([*options.times])
    others, more = read([*options.judge])
    if not shapes:
        raise SystemExit("no file has times; make one with --time")
    arch = str(shapes[0].kernels[0].arch)
    before = dict(rates(arch_by_name(arch)))
    parts = [(name, part, Table(part, arch)) for name, part in (("fitted to", shapes), ("others", others)) if part]

    def both(title: str, values: Constants) -> None:
        for name, part, table in parts:
            tell(f"{title}, {len(part)} stages ({name})", part, regrets(part, table(values)))
            errors = [float(np.median(guess / shape.seconds)) for guess, shape in zip(table(values), part, strict=True)]
            print(f"    estimate over time: median {np.median(errors):.3f}, "
                  f"P10 {np.quantile(errors, 0.1):.3f}, P90 {np.quantile(errors, 0.9):.3f}")  # fmt: skip

    both("before", before)
    told_plans("before", [*rows, *more], arch)
    if not options.looks:
        return
    after = rounded(fit(shapes, before, parts[0][2], options.looks))
    both("after", after)
    for name, value in after.items():
        print(f"{name} = {value:.3g}" + ("" if value == before[name] else f"  # was {before[name]:.3g}"))
    if options.write:
        place = Path(facts.__file__).with_name("fits.json")
        fits = json.loads(place.read_text(encoding="utf-8"))
        fits["fits"].setdefault(arch, {}).setdefault("attention_backward", {}).update(after)
        place.write_text(json.dumps(fits, indent=2) + "\n", encoding="utf-8")
        print(f"written: {place.name}; run it again with --looks 0 for the plans that the rule takes now")


if __name__ == "__main__":
    main()
