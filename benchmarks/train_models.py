"""Train the models that ship, out of the sweeps in benchmarks/results/sweeps: one command makes them all again.

    python benchmarks/train_models.py [NAME...]            src/tilewright/dispatch/models/NAME.twmodel and its card
    python benchmarks/train_models.py --judge NAME=FILE[,AGAIN] --seed SEED
                                                           how good one is on problems it has not seen: into its card

How the sweeps were made stands in them (`about`): sweep_h200.py and sweep_cpu.py.  Problems that are held out, and near
neighbours of them, are left out of every training (tests/dispatch/test_shipped_models.py proves it again).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright import ops
from tilewright.cli.learn import card_of
from tilewright.codegen.folder import write_if_changed
from tilewright.dispatch import model as models
from tilewright.dispatch import model_files
from tilewright.dispatch.results import Result, problem_digest
from tilewright.learn import evaluate, packed
from tilewright.learn import train as training
from tilewright.learn.data import Data, collect
from tilewright.ops.base import KernelSpec, plain

# Sweeps of kernels as they are now, and by the least of many rounds, count more than those of kernels that were changed
# since, and by medians of a machine that was never quiet.
NEWEST = (
    "19195678", "29379796", "24330069", "30469676", "63628869", "29379797", "57124243", "16511177", "17351177",
    "61803398", "53271609", "90417253", "2907117", "12915099", "55214276", "12338961", "38034824", "64713095",
    "30518842",
)  # fmt: skip
NEWEST_WEIGHT = 4.0
AGAIN = "_again"  # a second measurement of the near kernels of a sweep
SWEEPS = Path(__file__).parent / "results" / "sweeps"
SHIPPED = Path(model_files.__file__).parent / "models"


@dataclass(frozen=True)
class Recipe:
    """What a model is made from."""

    op: str
    patterns: tuple[str, ...]  # of sweeps
    target: str  # the arch whose kernels it is for
    settings: training.Settings
    halved: str = ""  # a seed that has no later one to be judged by: its own halves judge each other's training
    newest: float = NEWEST_WEIGHT  # what a problem of the newest sweeps counts


# On an H200 the estimate is near enough to begin from half of what it says; four thousand products bear larger trees.
H200 = training.Settings(trees=200, leaves=63, trust=0.5)
LARGER = replace(H200, trees=160, leaves=127, rate=0.12, folds=3)
# A CPU's few kernels a problem need few trees, and times of a machine that is never quiet want a broader look.
FEW = training.Settings(trees=150, leaves=31, sharp=5.0)
MODELS = {
    "gemm-h200": Recipe("gemm", ("h200_*", "*_h200_bf16_180755*"), "sm_90a", LARGER, "90417253"),
    "gemm-zen4-avx512": Recipe("gemm", ("cpu_*",), "x86_64_v4_bf16", FEW),
    "gemm-zen4-avx2": Recipe("gemm", ("cpu_*",), "x86_64_v3", FEW),
    "conv-h200": Recipe("conv", ("conv_h200_*",), "sm_90a", H200, "57124243"),
    # The estimate is far off for some kernels of convolution, and they are few: nearly all are asked about.
    "conv-zen4-avx512": Recipe("conv", ("conv_zen4_*",), "x86_64_v4_bf16", replace(FEW, far=5.0), "38034824"),
}


def of_the_pool(data: Data) -> Data:
    """Without kernels that default selection does not choose from (any more)."""
    pools: dict[Any, set[str]] = {}

    def inside(spec: KernelSpec) -> bool:
        key = (spec.signature, spec.arch)
        if key not in pools:
            pools[key] = {one.digest for one in data.op.candidates(*key)}
        return spec.digest in pools[key]

    groups = []
    for one in data.groups:
        kept = [at for at, spec in enumerate(one.specs) if inside(spec)]
        if len(kept) > 1:
            specs = tuple(one.specs[at] for at in kept)
            groups.append(replace(one, specs=specs, seconds=one.seconds[kept], estimates=one.estimates[kept]))
    return replace(data, groups=tuple(groups))


def data_of(files: Sequence[Path], recipe: Recipe, *, held: Sequence[Any] | None = None) -> Data:
    rows: list[Result] = [row for path in files for row in packed.read(path) if row.kernel.arch == recipe.target]
    return of_the_pool(collect(ops.op(recipe.op), rows, held=held))


def write(name: str, made: models.Model) -> None:
    SHIPPED.mkdir(exist_ok=True)
    model_files.write(SHIPPED / f"{name}{model_files.ENDING}", made)
    card = json.dumps(card_of(made), indent=1, sort_keys=True, default=dict) + "\n"
    write_if_changed(SHIPPED / f"{name}.card.json", card.encode())


def files_of(recipe: Recipe) -> list[Path]:
    return sorted(one for pattern in recipe.patterns for one in SWEEPS.glob(f"{pattern}.json.gz"))


def train(name: str) -> None:
    recipe = MODELS[name]
    files = files_of(recipe)
    data = newest_first(files, recipe)
    made = training.train(data, recipe.settings)
    made.card = replace(made.card, data={**made.card.data, "sources": [one.name for one in files]})
    found, guessed = made.card.metrics["cross_validation"], evaluate.score(evaluate.by_estimate(data)).to_dict()
    tell(f"{name}, cross-validation", found)
    if found["mean"] <= guessed["mean"]:
        tell(f"{name} is not written: the estimate is better", guessed)
        return
    if recipe.halved:
        made.card = replace(made.card, metrics={**made.card.metrics, "unseen": unseen(files, recipe, data)})
    write(name, made)
    print(f"{name}: {(SHIPPED / f'{name}{model_files.ENDING}').stat().st_size >> 10} KiB")


def newest_first(files: Sequence[Path], recipe: Recipe) -> Data:
    """The rows of sweeps, those of kernels as they are now with more weight."""
    data = data_of(files, recipe)
    now = data_of([one for one in files if any(seed in one.name for seed in NEWEST)], recipe)
    newest = {one.problem for one in now.groups}
    return replace(
        data,
        groups=tuple(replace(one, weight=recipe.newest if one.problem in newest else 1.0) for one in data.groups),
    )


def unseen(files: Sequence[Path], recipe: Recipe, every: Data) -> dict[str, Any]:
    """How good the same training is on the newest sweep: on each half of its problems when it gets the other half."""
    seed = recipe.halved
    mine, again = (
        [one for one in files if seed in one.name and (AGAIN in one.name) == second] for second in (False, True)
    )
    first, second = data_of(mine, recipe, held=()), data_of(again, recipe, held=()) if again else None
    lots = []
    for half in (0, 1):
        kept = {one.problem for one in first.groups if _half(one.problem) == half}
        rest = replace(every, groups=tuple(one for one in every.groups if one.problem not in kept))
        judge_by = replace(first, groups=tuple(one for one in first.groups if one.problem in kept))
        made = training.train(rest, replace(recipe.settings, folds=0))
        lots.append(by_both(made, judge_by, second))
    found = told({word: [one for each in lots for one in each[word]] for word in lots[0]}, int(seed))
    return {**found, "how": "half by half, each by the same training without it"}


def _half(problem: Any) -> int:
    return int(problem_digest(problem.op, plain(problem)), 16) % 2


def kind(problem: Any) -> str:
    if problem.op != "gemm":
        return str(problem.variant)
    return str("fused" if problem.variant == "multi_d" else problem.dtype_a)


def judge(name: str, files: list[Path], seed: int) -> None:
    """By a sweep it has not seen; into the card."""
    path = SHIPPED / f"{name}{model_files.ENDING}"
    made = model_files.read(path.read_bytes(), path.name)
    found = judged(made, files, MODELS[name], seed)
    made.card = replace(made.card, metrics={**made.card.metrics, "unseen": found})
    write(name, made)


def judged(made: models.Model, files: Sequence[Path], recipe: Recipe, seed: int) -> dict[str, Any]:
    """By a sweep, and by a second measurement of its near kernels where there is one."""
    first = data_of(files[:1], recipe, held=())
    second = data_of(files[1:], recipe, held=()) if files[1:] else None
    return told(by_both(made, first, second), seed)


Lots = dict[str, list[evaluate.Choice]]


def by_both(made: models.Model, first: Data, second: Data | None) -> Lots:
    """What the model and the estimate choose."""
    found = {"model": evaluate.by_model(made, first), "estimate": evaluate.by_estimate(first)}
    return found if second is None else {word: evaluate.again(one, first, second) for word, one in found.items()}


def told(lots: Lots, seed: int) -> dict[str, Any]:
    """For the card, and for people."""
    found: dict[str, Any] = {"seed": seed, "problems": len(lots["model"])}
    for word, chosen in lots.items():
        kinds = sorted({kind(one.problem) for one in chosen})
        found[word] = {
            "all": evaluate.score(chosen).to_dict(),
            **{each: evaluate.score([one for one in chosen if kind(one.problem) == each]).to_dict() for each in kinds},
        }
        for each, numbers in found[word].items():
            tell(f"{seed}: {word}, {each}", numbers)
    return found


def tell(title: str, numbers: dict[str, Any]) -> None:
    def three(one: dict[str, Any]) -> str:
        return f"{one['mean']:.1%} / {one['p10']:.1%} / {one['worst']:.1%}"

    print(f"{title}: {numbers['problems']} problems, mean / P10 / worst {three(numbers)}")
    for family, one in numbers.get("families", {}).items():
        print(f"    {family:<8} {one['problems']:>4}  {three(one)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--judge", nargs="+", default=[], metavar="NAME=FILE[,AGAIN]")
    parser.add_argument("--seed", type=int, default=0, help="of the problems it is judged by, for the card")
    options = parser.parse_args()
    for one in options.judge:
        name, _, files = one.partition("=")
        judge(name, [Path(path) for path in files.split(",")], options.seed)
    if not options.judge:
        for name in options.names or MODELS:
            train(name)


if __name__ == "__main__":
    main()
