"""Fit the constants of the CUDA estimate of GEMM to a sweep, so that default selection loses little.

    python benchmarks/gemm_h200.py --random SEED --sweep one.json.gz      on the GPU; with another seed: two.json.gz
    python benchmarks/fit_cuda.py one.json.gz --judge two.json.gz         anywhere: constants fitted to the first,
                                                                          regret on both, before and after
    python benchmarks/fit_cuda.py one.json.gz --write                     the same, and the arch table has them
    python benchmarks/fit_cuda.py --judge two.json.gz --looks 0           the regret of the constants as they are

What counts is the regret: the time of the kernel the estimate chooses over the fastest one's, as a geometric mean
over the shapes, by family of random problems.  It jumps where a choice changes, so the search lowers a smooth
stand-in, the expected regret of a choice that wavers between kernels of nearly equal estimates, with a little of the
squared error of the logarithms, which keeps the constants near what they are named after.  What is fitted are the
numbers of `gemm` in arch/fits.json, of the arch whose kernels the sweep holds.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilewright import ops
from tilewright.arch import facts
from tilewright.backends.cuda.gemm import rates
from tilewright.learn import packed
from tilewright.learn.data import collect
from tilewright.native.judge import Judge, judge

Constants = dict[str, float]
Seconds: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Guess = Callable[[Constants], Sequence[Seconds]]  # of every kernel of every shape, under these constants

WAVER = 0.02  # estimates closer than this (of their logarithm) may change places
ERROR_WEIGHT = 1.0
STAY_WEIGHT = 1e-4  # of the squared logarithm a constant moved: what hardly matters stays where it is
STEP, LEAST_STEP = 0.20, 0.004  # of the logarithm of a constant


@dataclass(frozen=True)
class Shape:
    """What a sweep says of one shape: every kernel that served it and its seconds."""

    problem: Any
    kernels: tuple[Any, ...]
    seconds: Seconds
    family: str = ""

    @property
    def name(self) -> str:
        return str(self.problem.describe())


def read_sweep(path: Path) -> list[Shape]:
    """The problems of a packed sweep; kernels that this version does not know are left out."""
    found = collect(ops.op("gemm"), packed.read(path), held=())
    return [Shape(one.problem, one.specs, one.seconds, one.family) for one in found.groups if len(one.specs) > 1]


def of_the_pool(shape: Shape) -> Shape:
    """Without kernels that default selection does not choose from."""
    pool = {one.digest for one in ops.op("gemm").candidates(shape.problem.signature, shape.kernels[0].arch)}
    kept = [at for at, one in enumerate(shape.kernels) if one.digest in pool]
    return replace(shape, kernels=tuple(shape.kernels[at] for at in kept), seconds=shape.seconds[kept])


def sweeps(paths: Sequence[Path], every: bool) -> list[Shape]:
    found = [one for path in paths for one in read_sweep(path)]
    return [one for shape in found if len((one := shape if every else of_the_pool(shape)).kernels) > 1]


# -- constants -------------------------------------------------------------------------------------------------------


def arch_of(shapes: Sequence[Shape]) -> str:
    return str(shapes[0].kernels[0].arch)


def constants_of(arch: str) -> Constants:
    """The numbers that are fitted; those of fp32 and tf32 kernels are not."""
    return {name: value for name, value in rates.constants(arch)._asdict().items() if isinstance(value, float)}


def rounded(values: Constants) -> Constants:
    """As they are written into the file."""
    return {name: float(f"{value:.3g}") for name, value in values.items()}


def rewritten(table: str, arch: str, values: Constants) -> str:
    """The text of arch/fits.json with these numbers; everything else stays."""
    fits = json.loads(table)
    fits["fits"].setdefault(arch, {}).setdefault("gemm", {}).update(values)
    return json.dumps(fits, indent=2) + "\n"


# -- how good ---------------------------------------------------------------------------------------------------------


class Table:
    """The kernels of a sweep, each with its problem; seconds under any constants, as the selection library counts."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._arch = arch_of(shapes)
        self._asked = [(self._judge(shape), shape.problem, np.ones(len(shape.kernels), bool)) for shape in shapes]

    @staticmethod
    def _judge(shape: Shape) -> Judge:
        made = judge(shape.kernels, range(len(shape.kernels)))
        if made is None:
            raise SystemExit("no C++ compiler builds the selection library, which holds the estimate")
        return made

    def __call__(self, values: Constants) -> list[Seconds]:
        constants = rates.constants(self._arch)._replace(**values)  # type: ignore[arg-type]
        tried, estimates = rates.named(constants, self._arch), []
        for mine, problem, every in self._asked:
            mine.use_rates(self._arch, tried)
            estimates.append(mine.estimates(problem, 1, every).copy())
        return estimates


def regrets(shapes: Sequence[Shape], guesses: Sequence[Seconds]) -> list[float]:
    """Chosen over best, for each shape."""
    return [
        float(shape.seconds[int(np.argmin(guess))] / shape.seconds.min())
        for shape, guess in zip(shapes, guesses, strict=True)
    ]


def mean_regret(found: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, found)) / len(found))


def loss(shapes: Sequence[Shape], guesses: Sequence[Seconds]) -> float:
    total = 0.0
    for shape, seconds in zip(shapes, guesses, strict=True):
        guess = np.log(np.maximum(seconds, 1e-12))
        lost = np.log(shape.seconds / shape.seconds.min())
        chance = np.exp(-(guess - guess.min()) / WAVER)
        error = guess - np.log(shape.seconds)
        near = np.exp(-2.0 * lost)  # how slow a hopeless kernel is does not matter
        total += float((chance * lost).sum() / chance.sum())
        total += ERROR_WEIGHT * float((near * error**2).sum() / near.sum())
    return total / len(shapes)


# -- the search --------------------------------------------------------------------------------------------------------


def moves(names: Sequence[str], steps: Constants, generator: np.random.Generator) -> Iterator[Constants]:
    """One constant at a time, both ways, then a few all together."""
    for name in generator.permutation(names):
        for sign in (1.0, -1.0):
            yield {str(name): sign * steps[str(name)]}
    for _ in range(max(1, len(names) // 2)):
        draw = generator.standard_normal(len(names))
        yield {name: float(part) * steps[name] / 2 for name, part in zip(names, draw, strict=True)}


def fit(shapes: Sequence[Shape], before: Constants, guess: Guess, looks: int = 4000, seed: int = 0) -> Constants:
    """The constants with the least loss a pattern search finds."""
    # A constant that changes nothing here is left as it is.
    names = [name for name in before if _matters(name, shapes, before, guess)]
    if not names:
        raise SystemExit("no constant changes an estimate of these kernels")
    generator = np.random.default_rng(seed)
    best, steps = dict(before), dict.fromkeys(names, STEP)

    def judged(values: Constants) -> float:
        moved = sum(math.log(values[name] / before[name]) ** 2 for name in names) / len(names)
        return loss(shapes, guess(values)) + STAY_WEIGHT * moved

    least, left = judged(before), looks
    while left > 0 and max(steps.values()) > LEAST_STEP:
        for move in moves(names, steps, generator):
            tried = best | {name: best[name] * math.exp(by) for name, by in move.items()}
            found = judged(tried)
            left -= 1
            better = found < least - 1e-9
            if better:
                best, least = tried, found
            if len(move) == 1:
                name = next(iter(move))
                steps[name] = min(0.5, steps[name] * 1.3) if better else max(LEAST_STEP / 2, steps[name] * 0.8)
            if left <= 0:
                break
    return best


def _matters(name: str, shapes: Sequence[Shape], values: Constants, guess: Guess) -> bool:
    here = loss(shapes, guess(values))
    return any(loss(shapes, guess({**values, name: values[name] * by})) != here for by in (1.3, 1 / 1.3))


def held_out(shapes: Sequence[Shape], looks: int) -> list[float]:
    """Regrets of shapes the constants were not fitted to: each half judged by the other's."""
    found: list[float] = []
    before = constants_of(arch_of(shapes))
    for part in (0, 1):
        mine = [one for index, one in enumerate(shapes) if index % 2 != part]
        fitted = fit(mine, before, Table(mine), looks)
        found += regrets(shapes[part::2], Table(shapes[part::2])(fitted))
    return found


def tell(title: str, shapes: Sequence[Shape], found: Sequence[float]) -> None:
    print(f"{title}: regret {mean_regret(found):.4f}, P90 {np.quantile(found, 0.9):.3f}, worst {max(found):.3f}")
    for family in dict.fromkeys(shape.family for shape in shapes):
        mine = [regret for regret, shape in zip(found, shapes, strict=True) if shape.family == family]
        if family:
            print(f"    {family:<8} {len(mine):>4} {mean_regret(mine):.4f}, worst {max(mine):.3f}")
    worst = sorted(zip(found, shapes, strict=True), key=lambda one: -one[0])[:6]
    print("".join(f"    {regret:.3f} {shape.name}\n" for regret, shape in worst if regret > 1.02), end="")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweep", type=Path, nargs="*", help="files of gemm_h200.py --sweep or sweep_h200.py")
    parser.add_argument("--judge", type=Path, nargs="+", default=[], help="such files that nothing is fitted to")
    parser.add_argument("--looks", type=int, default=4000, help="evaluations of the model; 0 fits nothing")
    parser.add_argument("--hold-out", action="store_true", help="also fit halves, each judged by the other's shapes")
    parser.add_argument("--every", action="store_true", help="every kernel of the sweeps, not those of the pool alone")
    parser.add_argument("--write", action="store_true", help="put the constants into arch/fits.json")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    shapes, others = (sweeps(paths, options.every) for paths in (options.sweep, options.judge))
    if not shapes and not others:
        raise SystemExit("no sweep has a shape with two kernels or more")
    arch = arch_of(shapes or others)
    before = constants_of(arch)
    parts = [(name, part, Table(part)) for name, part in (("fitted to", shapes), ("others", others)) if part]

    def both(title: str, values: Constants) -> None:
        for name, part, table in parts:
            tell(f"{title}, {len(part)} shapes ({name})", part, regrets(part, table(values)))

    both("before", before)
    if not shapes or not options.looks:
        return
    after = rounded(fit(shapes, before, parts[0][2], options.looks))
    both("after", after)
    if options.hold_out:
        order = [*shapes[0::2], *shapes[1::2]]
        tell("held out", order, held_out(shapes, options.looks // 2))
    for name, value in after.items():
        changed = "" if value == before[name] else f"  # was {before[name]:.3g}"
        print(f"{name} = {value:.3g}{changed}")
    if options.write:
        place = Path(facts.__file__).with_name("fits.json")
        place.write_text(rewritten(place.read_text(encoding="utf-8"), arch, after), encoding="utf-8")
        print(f"written: {place.name}")


if __name__ == "__main__":
    main()
