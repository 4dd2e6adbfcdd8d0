"""Training data of learned selection on an NVIDIA GPU: random problems, the default kernels that have a hope, verified.

    python benchmarks/sweep_h200.py SEED --count 600 --kinds bf16 fp16 fp8 fused --output one.json.gz
    tilewright learn train gemm --data one.json.gz [two.json.gz ...]
    python benchmarks/sweep_h200.py SEED --op conv --count 300 --kinds bf16 fp16 --output conv.json.gz

Products: half from `benchmarks/_h200_random.py`, half from `tilewright problems show gemm random:SEED:COUNT` (with
--families-only none of these), kinds in turn (one named twice comes twice as often).  bf16 and fp16 give their own;
fp8 is fp8_e4m3 and gives bf16 or fp32; fused is bf16 with one of FUSED.
Convolutions: half from `benchmarks/_conv_h200_shapes.py`, half of random:SEED:COUNT,
directions in turn, of bf16 and fp16.  Kernels of a problem: those of the default pool whose estimate is within FAR of
the lowest; of fused ones, each signature of which has kernels of its own to build, no more than FEW.  Kernels are built
ahead while others are measured; every kernel is checked against float64 before it is timed; how time is taken says
_cuda_timing.py (cold caches).  All take part in a short race, those near the fastest in a longer one, which counts.
Problems of one signature follow each other, so that the kernels of the next are built meanwhile; --most-kernels limits
how many a signature has (those that are among the first for most of its problems), since a GPU that waits for compilers
learns nothing.
With --again the near ones run a second race of their own after that, which is written to another file: the fastest of
many is fast by luck too, and `learn evaluate --again` does not credit it with that.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from _conv_h200_operands import ConvOperands
from _conv_h200_shapes import VARIANTS
from _conv_h200_shapes import drawn as drawn_convolutions
from _cuda_timing import Clock, GraphClock, HostClock, Run
from _h200_operands import OUTPUT_ROUNDING, Operands, Wrong, problem_of
from _h200_random import FAMILIES, LAYOUTS, Drawn, draw_one
from _machine import command_line
from _packed_sweep import PackedSweep

from tilewright import ops
from tilewright.backends.base import backend
from tilewright.backends.cuda import driver
from tilewright.dispatch import kernels
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem
from tilewright.ops.conv.options import problem as conv_problem
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.engine import engine
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime.loader import load_kernel
from tilewright.tune.build_queue import BuildQueue, LocalBuilds

GEMM = ops.op("gemm")
KINDS = ("bf16", "fp16", "fp8", "fused")
CONV_KINDS = ("bf16", "fp16")
MOST_BYTES, MOST_FLOPS = 1 << 30, 3e11  # of a convolution: larger ones take long and teach little more
FUSED = (("MultiDAdd", 1), ("Gelu", 1), ("Relu", 0), ("Silu", 0), ("MultiDMultiply", 2))
FAR = 1.6  # of the lowest estimate: beyond it, no kernel of six hundred problems was the fastest but one
LEAST, FEW = 8, 12  # kernels of a problem, however far; of a fused one at most
NEAR = 1.12  # of the fastest in the first race
FIRST_ROUNDS, SHORT = 3, 40e-6
SAVED_EVERY = 10.0  # seconds
REHEARSAL = 32


def sizes(
    seed: int, count: int, dtype_of: Any, shrink: int, names: Sequence[str], shipped_too: bool = True
) -> Iterator[Drawn]:
    """Problems of both distributions in turn, or of the first alone; families in turn."""
    draw = random.Random(seed)
    shipped = engine(GEMM).random(seed + 1, count, "cuda")
    for index in range(count):
        dtype, turn = dtype_of(index), index // 2 if shipped_too else index
        if index % 2 == 0 or not shipped_too:
            yield draw_one(draw, names[turn % len(names)], dtype, LAYOUTS, shrink)
            continue
        one = shipped[index // 2]
        m, n, k = (max(1, one[axis] // shrink) for axis in "mnk")
        if dtype == "fp8_e4m3" and not (m % 2 and n % 2 and k % 2):
            m, n, k = (m if m <= 16 else _up(m, 16)), _up(n, 16), _up(k, 16)
        yield Drawn("", m, n, k, one["layout"], dtype)


def _up(size: int, grain: int) -> int:
    return -(-size // grain) * grain


def problems(
    seed: int,
    count: int,
    kinds: list[str],
    shrink: int = 1,
    layouts: Sequence[str] = LAYOUTS,
    fused: int = len(FUSED),
    families: Sequence[str] = tuple(FAMILIES),
    shipped_too: bool = True,
) -> list[GemmProblem]:
    """`fused` limits how many of FUSED are drawn from."""
    draw = random.Random(seed + 2)

    def dtype_of(index: int) -> str:
        kind = kinds[index % len(kinds)]
        return {"fp8": "fp8_e4m3", "fused": "bf16"}.get(kind, kind)

    found = []
    for index, one in enumerate(sizes(seed, count, dtype_of, shrink, families, shipped_too)):
        layout = one.layout if one.layout in layouts else draw.choice(list(layouts))
        made, kind = problem_of(one.m, one.n, one.k, one.dtype, layout), kinds[index % len(kinds)]
        if kind == "fp8" and draw.random() < 0.3:
            made = replace(made, dtype_c="fp32", dtype_d="fp32")
        if kind == "fused":
            epilogue, num_d = draw.choice(FUSED[:fused])
            made = replace(made, epilogue=epilogue, num_d=num_d)
        found.append(made)
    return list(dict.fromkeys(found))


class Fused(Operands):
    """Operands with what is fused behind the product."""

    def __init__(self, problem: GemmProblem, device: str) -> None:
        super().__init__(problem, device)
        self.ds = tuple(torch.randn_like(self.out) for _ in range(problem.num_d))
        self._checked: tuple[Any, Any] | None = None

    def exact(self) -> tuple[Any, Any]:
        if self._checked is None:
            value, tolerance = super().exact()
            p = self.problem
            if p.epilogue != "PassThrough":
                # Rounding is of the result; errors of the sum pass through slopes of at most 1.13, or a product.
                tolerance = (tolerance - value.abs() * OUTPUT_ROUNDING[p.dtype_c]).clamp_min_(0.0).mul_(1.2)
                for one in self.ds:
                    if p.epilogue == "MultiDMultiply":
                        value, tolerance = value * one.double(), tolerance * one.double().abs()
                    else:
                        value = value + one.double()
                act: Any = {"Relu": torch.relu, "Gelu": torch.nn.functional.gelu, "Silu": torch.nn.functional.silu}
                value = act.get(p.epilogue, lambda same: same)(value)
                rounding = OUTPUT_ROUNDING[p.dtype_c] * (1 + p.num_d)
                tolerance = tolerance + 2e-6 * (1 + value.abs()) + value.abs() * rounding
            self._checked = value, tolerance
        return self._checked

    def ours(self, kernel: Any) -> Run:
        more = {"ds": self.ds} if self.ds else {}
        return lambda: kernel(self.a, self.b, out=self.out, **more)


def convolutions(seed: int, count: int, kinds: Sequence[str], shrink: int = 1) -> list[ConvProblem]:
    """Of both distributions in turn, directions in turn."""
    ours, shipped = drawn_convolutions(seed, count), engine(ops.op("conv")).random(seed + 1, count, "cuda")
    found: list[ConvProblem] = []
    for index in range(count):
        variant, kind = VARIANTS[index // 2 % len(VARIANTS)], kinds[index // 6 % len(kinds)]
        if index % 2 == 0:
            made = ours[index // 2].problem(variant, kind)
        else:
            made = conv_problem({**shipped[index // 2], "variant": variant, "datatype": kind})
        if shrink > 1:
            size = tuple(
                min(one, 6 + window * dilation)
                for one, window, dilation in zip(made.size, made.window, made.dilation, strict=True)
            )
            made = replace(made, batch=1, size=size, x_strides=(), y_strides=())
        if not problem_violations(made) and made.bytes < MOST_BYTES and made.flops < MOST_FLOPS:
            found.append(made)
    return list(dict.fromkeys(found))


def hopeful(problem: Any, target: str) -> list[KernelSpec]:
    estimate, op = backend("cuda").estimate, ops.op(problem.op)
    serving = [one for one in op.candidates(problem.signature, target) if not op.supports(one, problem)]
    guessed = sorted(((estimate(one, problem, 1), one) for one in serving), key=lambda each: each[0])
    most = FEW if problem.variant == "multi_d" else len(guessed)
    far = FAR * min((seconds for seconds, _ in guessed), default=0.0)
    least = LEAST if problem.op == "gemm" else 3  # a floor or a kernel of another kind may take a hundred times as long
    return [one for index, (seconds, one) in enumerate(guessed[:most]) if index < least or seconds <= far]


Plan = list[tuple[Any, list[KernelSpec]]]


def planned(asked: Sequence[Any], target: str, most: int, lot: int = 1_000_000) -> Plan:
    """Problems with their kernels, signature after signature; so many of each, then of each again."""
    by_signature: dict[Any, Plan] = {}
    for one in asked:
        by_signature.setdefault(one.signature, []).append((one, hopeful(one, target)))
    lots: list[list[Plan]] = []
    for mine in by_signature.values():
        often = Counter(spec.digest for _, specs in mine for spec in specs[:LEAST])
        often.update({spec.digest: 0 for _, specs in mine for spec in specs})
        kept = {digest for digest, _ in often.most_common(most)}
        found = [(one, [spec for spec in specs if spec.digest in kept]) for one, specs in mine]
        lots.append([found[at : at + lot] for at in range(0, len(found), lot)])
    return [one for turn in zip_longest(*lots, fillvalue=[]) for each in turn for one in each]


class Sweep:
    def __init__(self, options: argparse.Namespace, clock: Clock, target: str) -> None:
        self.options, self.clock, self.target = options, clock, target
        self.dry = isinstance(clock, HostClock)
        self.first, self.again = (PackedSweep(options.op, target, options.rounds) for _ in range(2))
        self.wrong: list[str] = []

    def ready(self, problem: Any, specs: list[KernelSpec]) -> dict[KernelSpec, Run]:
        made: Any = Fused if problem.op == "gemm" else ConvOperands
        operands = made(problem, self.clock.device)
        found = {}
        for spec in specs:
            try:
                run = (
                    operands.ours(kernels.kernel(spec))
                    if not self.dry
                    else lambda: operands.out.copy_(operands.exact()[0])
                )
                operands.check(spec.name, run, self.clock)
                found[spec] = self.clock.captured(run)
            except (Wrong, TilewrightError) as error:
                self.wrong.append(f"{spec.name}: {error}")
                print(f"WRONG: {self.wrong[-1]}", flush=True)
        return found

    def race(self, problem: Any, ready: dict[KernelSpec, Run]) -> None:
        def timed(specs: list[KernelSpec], rounds: int, middle: Any = statistics.median) -> dict[KernelSpec, float]:
            times = self.clock.rounds([ready[one] for one in specs], rounds, "cold")
            return {one: float(middle(taken)) for one, taken in zip(specs, times, strict=True)}

        medians = timed(list(ready), FIRST_ROUNDS, min)  # of three looks two may be disturbed
        best = min(medians.values())
        near = [one for one, seconds in medians.items() if seconds <= NEAR * best]
        rounds = self.options.rounds * (2 if best < SHORT else 1)
        medians |= timed(near, rounds)
        for one, seconds in medians.items():
            self.first.add(problem, one, seconds)
        if self.options.again is not None:
            for one, seconds in timed(near, rounds).items():
                self.again.add(problem, one, seconds)

    def adopted(self, wanted: dict[str, KernelSpec], folder: Path) -> set[str]:
        """Kernels that were built elsewhere, as DIGEST.so."""
        found = [load_kernel(path, wanted[path.stem]) for path in folder.glob("*.so") if path.stem in wanted]
        kernels.adopt(found)
        print(f"{len(found)} kernels were built elsewhere", flush=True)
        return {one.spec.digest for one in found}

    def save(self) -> None:
        about = {"command": self.options.command, "torch": torch.__version__}
        self.first.write(self.options.output, about)
        if self.options.again is not None:
            self.again.write(self.options.again, about)

    def run(self) -> None:
        options, started = self.options, time.perf_counter()
        shrink = REHEARSAL if self.dry else 1
        asked: list[Any]
        if options.op == "conv":
            asked = list(convolutions(options.seed, options.count, options.kinds, shrink))
        else:
            drawn = problems(
                options.seed, options.count, options.kinds, shrink, options.layouts, options.fused, options.families,
                not options.families_only,
            )  # fmt: skip
            asked = list(drawn)
        plan = planned(asked, self.target, options.most_kernels, options.lot)
        wanted = {spec.digest: spec for _, specs in plan for spec in specs}
        print(f"{len(plan)} problems, {len(wanted)} kernels, {time.perf_counter() - started:.0f} s to plan", flush=True)
        given = self.adopted(wanted, options.libraries) if options.libraries is not None else set()
        build_queue = BuildQueue((one for one in wanted.values() if one.digest not in given), LocalBuilds(options.jobs))
        if options.build_only:
            build_queue.build_all()
            print(f"built in {time.perf_counter() - started:.0f} s")
            return
        if not self.dry:
            build_queue.start()
        saved, waited = time.perf_counter(), 0.0
        try:
            for index, (problem, specs) in enumerate(plan):
                now = time.perf_counter()
                if now - started > options.most_seconds:
                    print(f"cut short: {index} of {len(plan)} problems")
                    break
                if not self.dry:
                    _, failed = build_queue.wait([one for one in specs if one.digest not in given])
                    specs = [one for one in specs if one.digest not in failed]
                    waited += time.perf_counter() - now
                ready = self.ready(problem, specs)
                if len(ready) > 1:
                    self.race(problem, ready)
                if time.perf_counter() - saved > SAVED_EVERY:
                    self.save()
                    saved = time.perf_counter()
        finally:
            build_queue.stop()
            self.save()
        took = time.perf_counter() - started
        print(f"{len(self.first.results)} times in {took:.0f} s, of which {waited:.0f} s waiting for compilers")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--op", choices=("gemm", "conv"), default="gemm")
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, help="of convolutions bf16 and fp16; default: all there are"
    )
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    more = "of the products of _h200_random.py; one named twice comes twice as often"
    parser.add_argument("--families", nargs="+", choices=tuple(FAMILIES), default=list(FAMILIES), help=more)
    parser.add_argument("--families-only", action="store_true", help="no products of the shipped distribution")
    parser.add_argument("--fused", type=int, default=len(FUSED), help="of FUSED, the first so many")
    parser.add_argument("--most-kernels", type=int, default=10_000, help="of one signature")
    parser.add_argument(
        "--lot",
        type=int,
        default=1_000_000,
        help="problems of a signature before the next's: a run that is cut short has some of each",
    )
    parser.add_argument("--rounds", type=int, default=7, help="of the longer race; twice that for short kernels")
    parser.add_argument("--libraries", type=Path, help="a folder of kernels built elsewhere, DIGEST.so")
    parser.add_argument("--jobs", type=int, help="compilers at once")
    parser.add_argument("--most-seconds", type=float, default=float("inf"), help="no problem begins after these")
    parser.add_argument("--build-only", action="store_true", help="build the kernels, measure nothing")
    parser.add_argument("--dry-run", action="store_true", help="a rehearsal on the CPU: nothing of it means anything")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--again", type=Path, help="where the second race of the near ones goes")
    options = parser.parse_args()
    known = KINDS if options.op == "gemm" else CONV_KINDS
    options.kinds = options.kinds or list(known)
    if not set(options.kinds) <= set(known):
        parser.error(f"the kinds of {options.op} are {', '.join(known)}")
    options.command = command_line()
    return options


def main() -> None:
    options = parsed()
    why = driver.why_unavailable()
    if why and not options.dry_run:
        raise SystemExit(f"no NVIDIA GPU: {why}")
    if options.dry_run:
        Sweep(options, HostClock(), "sm_90a").run()
        return
    from tilewright.runtime import cuda

    sweep = Sweep(options, GraphClock(cuda.device().cache_bytes), cuda.device().arch)
    sweep.run()
    if sweep.wrong:
        raise SystemExit(f"{len(sweep.wrong)} wrong results; the first: {sweep.wrong[0]}")


if __name__ == "__main__":
    main()
