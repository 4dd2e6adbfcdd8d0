"""What an op says so that its AMD kernels can be drawn, executed and judged.  Nothing else here knows an op.

To have another op's kernels executed:

1. Make a folder named as the op beside `gemm/` and `conv/`, with a module `proving.py` whose `PROVING` has what
   `Proving` asks for.  Nothing else is told: `python -m tests.amd_emulated.random_run SEED COUNT --op OP` finds it, and
   so does `make test-amd-emulated SEED=n COUNT=m OP=op`.
2. A problem is a frozen dataclass of plain values (JSON carries it to the worker and back): sizes, strides, gaps,
   offsets, kinds of numbers (`number_formats.KINDS`), and `seed`, from which the operands' bits are drawn.
3. `draw(seed, index)` picks a kernel out of the op's pools and problems for it, from `random.Random(f"... {seed}
   {index}")` alone: entry `index` must not depend on the count.  `Entry.problems` are those `supports` says yes to,
   `Entry.refused` some it says no to: the kernel's own check in C must say the same of each.
4. `prepare(spec, problem)` makes a `Call` in the worker: operands in `fenced.Memory`, drawn by `number_formats.draw`,
   and the op's ctypes struct with their addresses.  `Call.expected` gives for every result what the float64 definition
   says and how far off a right element may be (`oracle.Expected`), from the operands' bits and never by the product's
   code.
   `oracle.expected` does fused work, rounding and their bounds for whoever has sums of products (`oracle.Sums`); an op
   that has not (a softmax) makes its own `Expected` with a bound derived in its docstring.  Where no single element has
   a value of its own (parts of keys, whose bounds are the kernel's), `Call.judge` judges all results at once; attention
   asks the product's float64 reference there, which other tests hold against PyTorch and ONNX.
5. `multiplies` says whether a launch must execute matrix instructions: one that should and does not is wrong.

To execute one kernel while writing it, with no draw:

    workers = Workers(needs.checkout())                   # see conftest.py for what must be at hand
    library = Builder().build_one(spec).path
    print(workers.prove_drawn(spec, library, problem, must_serve=True, limit=240.0))

What the emulator lacks (an instruction, scratch, a launch parameter) comes back as the outcome's `detail`.
"""

from __future__ import annotations

import ctypes
import importlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from tests.amd_emulated.emulator import HERE, MODELLED
from tests.amd_emulated.fenced import Memory
from tests.amd_emulated.oracle import Expected, Judgement
from tilewright.arch import all_archs
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

LOOPS = 0.1  # of draws where a pool has other kernels too
SIGNATURE_TRIES = 40  # of one signature: some have no legal schedule


class Problem(Protocol):
    """Everything about one call, as plain values."""

    @property
    def seed(self) -> int: ...

    def label(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(slots=True)
class Entry:
    """One row of a seed."""

    index: int
    pool: str
    spec: KernelSpec
    problems: list[Any]
    refused: list[Any]  # the kernel must say no
    rules: Counter[str]  # what was drawn before and refused


def drawn_entry(
    words: str,
    index: int,
    kernel: Callable[[random.Random, Counter[str]], tuple[str, KernelSpec]],
    problems: Callable[[random.Random, KernelSpec], tuple[list[Any], list[Any]]],
) -> Entry:
    """Entry `index` of the seed that `words` tell: a kernel, then problems for it, from one generator."""
    rng = random.Random(words)
    rules: Counter[str] = Counter()
    pool, spec = kernel(rng, rules)
    served, refused = problems(rng, spec)
    return Entry(index, pool, spec, served, refused, rules)


def by_pipeline(proposed: Iterable[KernelSpec], rules: Counter[str]) -> dict[str, list[KernelSpec]]:
    """What a pool proposes, by pipeline."""
    every: dict[str, list[KernelSpec]] = {}
    for one in proposed:
        every.setdefault(one.schedule.pipeline, []).append(one)
    if not every:
        rules["the pool proposes nothing"] += 1
    return every


def drawn_kernel(
    rng: random.Random,
    rules: Counter[str],
    propose: Callable[[], tuple[str, Iterable[KernelSpec]]],
    vary: Callable[[KernelSpec], KernelSpec] = lambda one: one,
) -> tuple[str, KernelSpec]:
    """A pool and a legal kernel of what `propose` draws of it: a pipeline, then a schedule.

    Loops are kept where there is nothing else, and `LOOPS` of the times beside others.
    """
    while True:
        pool, proposed = propose()
        every = by_pipeline(proposed, rules)
        if not every:
            continue
        fast = [one for one in every if one != "loops"]
        pipeline = rng.choice(fast) if fast and (rng.random() > LOOPS or "loops" not in every) else "loops"
        for _ in range(SIGNATURE_TRIES):
            spec = vary(rng.choice(every[pipeline]))
            broken = [one.rule for one in op(spec.op).check(spec)]
            if not broken:
                return pool, spec
            rules[broken[0]] += 1


@dataclass(slots=True)
class Call:
    """A problem in memory, ready to be launched."""

    args: ctypes.Structure
    memory: Mapping[str, Memory]  # all operands
    written: tuple[str, ...]  # those of them that are results
    expected: Callable[[], Mapping[str, Expected]]  # of each result, in its shape
    multiplies: bool  # a launch without a matrix instruction would be wrong
    packed: Callable[[int], None] | None = None  # puts the address of a packed operand into the arguments
    judge: Callable[[], Judgement] | None = None  # in the stead of `expected`, of results that are judged together
    keep: list[Any] = field(default_factory=list)  # whatever else must live as long


class Proving(Protocol):
    """An op's part."""

    def draw(self, seed: int, index: int) -> Entry: ...

    def problem(self, data: dict[str, Any]) -> Problem:
        """What `to_dict` of a problem gave, as a problem."""

    def plain(self, spec: KernelSpec, seed: int) -> Problem:
        """A small problem every kernel of this kind serves: taken where a drawn one takes the emulator too long."""

    def inputs(self, spec: KernelSpec) -> str:
        """What is multiplied, in few words: a column of the table."""

    def prepare(self, spec: KernelSpec, problem: Any) -> Call: ...


@lru_cache(maxsize=8)
def proving(op: str) -> Proving:
    if op not in proven():
        raise SystemExit(f"no kernels of {op!r} are drawn here: use {' or '.join(proven())}")
    found: Proving = importlib.import_module(f"tests.amd_emulated.{op}.proving").PROVING
    return found


def proven() -> tuple[str, ...]:
    """Ops whose kernels can be drawn."""
    return tuple(sorted(one.parent.name for one in HERE.glob("*/proving.py")))


_wanted: list[str] = []  # archs to draw from instead of all


def draw_only(archs: Iterable[str]) -> None:
    """Kernels are drawn of these archs alone from now on; of none: of all."""
    _wanted[:] = archs


def modelled(rdna: int = 1) -> tuple[str, ...]:
    """Archs that are emulated and known to the product; RDNA `rdna` times for four times of CDNA."""
    known = [all_archs()[one] for one in _wanted or MODELLED if one in all_archs()]
    return tuple(one.name for one in known for _ in range(4 if one.family == "cdna" else rdna))
