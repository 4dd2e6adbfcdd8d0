"""Our gradients of attention beside the best of PyTorch's SDPA backends on an NVIDIA GPU, interleaved in one run.

    python benchmarks/attention_backward_h200.py                 the table that peers were measured on
    python benchmarks/attention_backward_h200.py --random SEED   problems nobody tuned for
    python benchmarks/attention_backward_h200.py --goals SEED    those, the shapes that have a goal, and packed lengths
    python benchmarks/attention_backward_h200.py --few           few heads of keys, short sequences: few blocks
    python benchmarks/attention_backward_h200.py --groups        causal groups whose rows no cache keeps; the first plan
    python benchmarks/attention_backward_h200.py --only 8192     shapes whose name has this
    python benchmarks/attention_backward_h200.py --wide          every kernel of the pool beside the default ones

bf16, the cache cold.  TFLOP/s count five products of the pairs that see each other.  `call` is all of
`tw.attention_backward`, `turns` the same with deterministic=True, `grad` the fastest kernel of that stage; behind are
all stages and kernels apart, with --goals those of the plan that a call takes.  Each kernel is held against float64 on
one head before it is timed, and so are PyTorch's: `error` is the largest of dq, dk and dv beside the largest gradient
of its kind.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from _attention_backward_packed import PackedOperands, PackedShape, drawn_packed
from _machine import command_line, provenance
from torch.nn.attention import SDPBackend, sdpa_kernel

import tilewright as tw
from tilewright.backends.cuda import driver
from tilewright.dispatch import kernels
from tilewright.ops import op
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings.attention_backward import stages

Run = Callable[[], Any]
BACKWARD = op("attention_backward")
RESULT = Path(__file__).parent / "results" / "attention_backward_h200.json"
SLEEP = 400_000  # cycles that hide what the host needs to queue a call
WIDEST = 2.0**-6  # of a gradient, beside the largest of its kind
PEERS = ("cudnn", "flash")
PACKED_GOAL, IN_TURNS_GOAL = 1.3, 1.2  # of padded SDPA; of the time of a call in any order


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    heads_kv: int
    rows: int
    keys: int
    head: int
    causal: bool

    @property
    def name(self) -> str:
        heads = f"{self.heads}/{self.heads_kv}"
        return f"b{self.batch} h{heads} {self.rows}x{self.keys} d{self.head}{' causal' if self.causal else ''}"

    def problem(self, **more: Any) -> AttentionBackwardProblem:
        window: dict[str, Any] = {"window_right": 0, "align": "bottom_right"} if self.causal else {}
        return AttentionBackwardProblem(
            self.batch, self.heads, self.rows, self.keys, self.head, self.heads_kv, self.head, dtype="bf16",
            **window, **more,
        )  # fmt: skip


def table() -> list[Shape]:
    found = []
    for head, heads in ((128, 16), (64, 32)):
        for batch, rows in ((2, 8192), (8, 2048), (32, 512)):
            found += [Shape(batch, heads, heads, rows, rows, head, causal) for causal in (False, True)]
    found.append(Shape(1, 32, 8, 4096, 4096, 128, True))
    found += [Shape(2, 8, 8, 8192, 8192, 256, causal) for causal in (False, True)]
    return found


def few() -> list[Shape]:
    """Fewer tiles of keys than a device has multiprocessors, or hardly more."""
    found = [Shape(1, 16, 2, 8192, 8192, 128, causal) for causal in (True, False)]
    found += [Shape(1, 32, 4, 4096, 4096, 128, True), Shape(4, 16, 2, 2048, 2048, 96, True)]
    found += [Shape(1, 8, 8, rows, rows, head, causal) for rows, head, causal in
              ((2048, 64, True), (1024, 128, True), (777, 64, False), (512, 128, True))]  # fmt: skip
    return [*found, Shape(2, 4, 4, 1024, 1024, 128, False), Shape(1, 64, 8, 8192, 8192, 128, True)]


def groups() -> list[Shape]:
    """Causal, four or eight query heads to one of keys: blocks of a head of keys must stay together (ws/host.h)."""
    found = [Shape(16, 32, 4, 1024, 1024, 128, True), Shape(16, 64, 8, 777, 777, 128, True)]
    found += [Shape(5, 64, 8, 3000, 3000, 128, True), Shape(16, 16, 4, 2048, 2048, 128, True)]
    return [*found, Shape(4, 32, 4, 4096, 4096, 64, True), Shape(1, 32, 8, 4096, 4096, 128, True)]


def drawn(seed: int, count: int) -> list[Shape]:
    rng = random.Random(seed)
    found: list[Shape] = []
    while len(found) < count:
        head, group, heads_kv = rng.choice((64, 128, 128, 96)), rng.choice((1, 1, 4, 8)), rng.choice((2, 4, 8))
        rows = rng.choice((512, 777, 1024, 2048, 3000, 4096, 8192))
        batch = max(1, min(16, 32768 // rows // rng.choice((1, 2, 4))))
        found.append(Shape(batch, heads_kv * group, heads_kv, rows, rows, head, rng.random() < 0.6))
    return found


def named() -> dict[Shape, float]:
    """Shapes that have a goal, in TFLOP/s of a whole call."""
    goals = {Shape(2, 16, 16, 8192, 8192, 128, False): 600.0, Shape(2, 16, 16, 8192, 8192, 128, True): 560.0}
    goals |= {Shape(2, 32, 32, 8192, 8192, 64, False): 480.0, Shape(2, 32, 32, 8192, 8192, 64, True): 450.0}
    return {**goals, Shape(1, 32, 8, 4096, 4096, 128, True): 480.0}


class Operands:
    """Random operands, ours with heads inside rows and PyTorch's the other way round, and float64 of one head."""

    def __init__(self, shape: Shape) -> None:
        s = self.shape = shape
        self.q, self.do = (self._made(s.rows, s.heads) for _ in range(2))
        self.k, self.v = (self._made(s.keys, s.heads_kv) for _ in range(2))
        causal: Any = "bottom_right" if s.causal else False
        self.asked: dict[str, Any] = {"causal": causal}
        self.out, self.lse = tw.attention(self.q, self.k, self.v, return_lse=True, **self.asked)
        self.results = {name: torch.empty_like(one) for name, one in (("dq", self.q), ("dk", self.k), ("dv", self.v))}
        self.problem = s.problem()

    def _made(self, lines: int, heads: int) -> Any:
        s = self.shape
        return torch.randn(s.batch, lines, heads, s.head, device="cuda", dtype=torch.float32).bfloat16()

    @cached_property
    def exact(self) -> dict[str, Any]:
        """Of the last sequence and head of keys."""
        s, group = self.shape, self.shape.heads // self.shape.heads_kv
        k, v = (one[-1, :, -1].double() for one in (self.k, self.v))
        dk, dv, dq = torch.zeros_like(k), torch.zeros_like(v), []
        for head in range(s.heads - group, s.heads):
            q, do = (one[-1, :, head].double() for one in (self.q, self.do))
            scores = q @ k.T * s.head**-0.5
            if s.causal:
                seen = torch.ones_like(scores, dtype=torch.bool).tril(s.keys - s.rows)
                scores = scores.masked_fill(~seen, float("-inf"))
            p = torch.softmax(scores, -1)
            del scores
            dp = do @ v.T
            ds = p * (dp - (dp * p).sum(-1, keepdim=True))
            dq.append(ds @ k * s.head**-0.5)
            dk += ds.T @ q * s.head**-0.5
            dv += p.T @ do
        return {"dq": torch.stack(dq, 1), "dk": dk, "dv": dv}

    def error(self, dq: Any, dk: Any, dv: Any) -> float:
        """The largest error of any gradient over the largest of its kind; of results with heads inside rows."""
        group = self.shape.heads // self.shape.heads_kv
        got = {"dq": dq[-1, :, -group:], "dk": dk[-1, :, -1], "dv": dv[-1, :, -1]}
        found = [(got[n].double() - e).abs().max() / e.abs().max() for n, e in self.exact.items()]
        return float(max(found)) if not any(torch.isnan(one) for one in found) else float("nan")

    # -- ours --------------------------------------------------------------------------------------

    def call(self, **more: Any) -> Run:
        def run() -> Any:
            return tw.attention_backward(
                self.do, self.q, self.k, self.v, self.out, self.lse, **self.results, **self.asked, **more
            )

        return run

    def stage(self, kernel: Any, problem: AttentionBackwardProblem, between: dict[str, Any]) -> Run:
        """One kernel of one stage."""
        (request,) = stages.alone(problem).stages
        args: Any = request.args
        start = ctypes.addressof(args)
        known = {
            "dout": self.do, "q": self.q, "k": self.k, "v": self.v, "out": self.out, "lse": self.lse, **self.results,
            **between, **{f"given_{name}": one for name, one in between.items()},
        }  # fmt: skip
        for pointer in request.pointers:
            ctypes.c_void_p.from_address(start + pointer.offset).value = known[stages.NAMES[pointer.slot]].data_ptr()
        space = torch.zeros(max(64, kernel.workspace_bytes(args, 1)), dtype=torch.uint8, device="cuda")

        def run(_held: Any = (args, space, known)) -> None:
            status = kernel.launch(start, space.data_ptr(), torch.cuda.current_stream().cuda_stream)
            assert status == 0, f"{kernel.name} answered {status}"

        return run

    def between(self, p: AttentionBackwardProblem) -> dict[str, Any]:
        made = {name: torch.empty(p.prepared("q"), device="cuda") for name in ("delta", "lse_log2")}
        return made | {f"{n}_sums": torch.empty(stages.sums_shape(p, n), device="cuda") for n in p.converted}

    # -- PyTorch's ---------------------------------------------------------------------------------

    def peer(self, backend: Any) -> Run:
        s = self.shape
        q, k, v, do = (one.transpose(1, 2).contiguous() for one in (self.q, self.k, self.v, self.do))
        for one in (q, k, v):
            one.requires_grad_()
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=s.causal, enable_gqa=s.heads != s.heads_kv
            )
        return lambda: torch.autograd.grad(out, (q, k, v), do, retain_graph=True)


class Race:
    """Contestants in turn, each behind writes that fill the cache and a wait that hides the host."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.full = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")

    def seconds(self, runs: Sequence[Run]) -> list[float]:
        taken: list[list[Any]] = [[] for _ in runs]
        for run in runs:
            run()
        for turn in range(self.rounds):
            for index in (*range(turn % len(runs), len(runs)), *range(turn % len(runs))):
                marks = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.full.fill_(turn)
                torch.cuda._sleep(SLEEP)
                marks[0].record()
                runs[index]()
                marks[1].record()
                taken[index].append(marks)
            torch.cuda.synchronize()
        return [statistics.median(a.elapsed_time(b) / 1e3 for a, b in one) for one in taken]


def grads(problem: AttentionBackwardProblem, arch: str, wide: bool) -> list[KernelSpec]:
    """Kernels of `grad` worth timing for a problem."""
    found = list(BACKWARD.candidates(problem.signature, arch))
    if wide:
        for pool in BACKWARD.pool_names:
            found += list(BACKWARD.proposals(pool, arch, **BACKWARD.axes_of(problem.signature)))
    legal = {one.digest: one for one in found if not BACKWARD.check(one) and not BACKWARD.supports(one, problem)}
    return [one for one in legal.values() if one.schedule.pipeline != "loops"]


def peers_of(one: Operands, row: dict[str, Any]) -> tuple[dict[str, Run], float]:
    """PyTorch's backends that take the problem, and the largest error of these."""
    runs: dict[str, Run] = {}
    errors = []
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        name = backend.name.split("_")[0].lower()
        try:
            run = one.peer(backend)
            errors.append(one.error(*(each.transpose(1, 2) for each in run())))
            runs[name] = run
        except RuntimeError as error:
            row[f"{name}_refused"] = str(error).splitlines()[0][:80]
    return runs, max(errors, default=0.0)


def poisoned(one: Operands, run: Run, more: Sequence[Any] = ()) -> float:
    """The error of what a run leaves in results that were NaN."""
    for each in (*one.results.values(), *more):
        each.fill_(float("nan"))
    run()
    return one.error(**one.results)


def stages_of(
    one: Operands, plan: Sequence[AttentionBackwardProblem], arch: str, wide: bool
) -> tuple[dict[str, Run], dict[str, float]]:
    """The kernels of all stages of a plan, and the error of each of `grad` with the other stages around it."""
    dot, problem, *converts = plan
    way = problem.accumulate + (f"/{problem.dkv_splits}" if problem.dkv_splits else "")
    between, runs, errors = one.between(problem), {}, {}
    for stage in (dot, *converts):
        spec = BACKWARD.candidates(stage.signature, arch)[0]
        runs[f"{stage.family}:{way}"] = one.stage(kernels.kernel(spec), stage, between)
    around = list(runs.values())
    for spec in grads(problem, arch, wide):
        run = one.stage(kernels.kernel(spec), problem, between)

        def whole(run: Run = run) -> None:
            for each in (around[0], run, *around[1:]):
                each()

        label = f"grad:{way}:{spec.schedule.label()}"
        runs[label], errors[label] = run, poisoned(one, whole, list(between.values()))
    return runs, errors


def measure(shape: Shape, arch: str, race: Race, wide: bool, first: bool = False) -> dict[str, Any]:
    """With `first` only kernels of the first plan are timed, which is that of a call."""
    one = Operands(shape)
    row: dict[str, Any] = {"shape": asdict(shape), "name": shape.name, "flops": one.problem.flops}
    peers, floor = peers_of(one, row)
    runs: dict[str, Run] = {"call": one.call(), "turns": one.call(deterministic=True)}
    errors = {name: poisoned(one, run) for name, run in runs.items()}
    plans = list(BACKWARD.split_plans(one.problem, arch).values())
    for plan in plans[:1] if first else plans:
        more, found = stages_of(one, plan, arch, wide)
        runs |= more
        errors |= found
    runs |= peers
    wrong = [f"{name} {error:.4f}" for name, error in errors.items() if not error <= max(2 * floor, WIDEST)]
    seconds = dict(zip(runs, race.seconds(list(runs.values())), strict=True))
    return row | {"error": errors, "wrong": wrong, "peer_error": floor, "seconds": seconds, "peers": list(peers)}


def measure_packed(shape: PackedShape, race: Race) -> dict[str, Any]:
    operands = PackedOperands(shape)
    row: dict[str, Any] = {"shape": asdict(shape), "name": shape.name, "flops": shape.flops}
    runs: dict[str, Run] = {"call": operands.call(), "turns": operands.call(deterministic=True)}
    errors = {}
    for name, run in runs.items():
        for result in operands.results.values():
            result.fill_(float("nan"))
        run()
        errors[name] = operands.error()
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        name = backend.name.split("_")[0].lower()
        try:
            runs[name] = operands.peer(backend)
            runs[name]()
        except RuntimeError as error:
            runs.pop(name, None)
            row[f"{name}_refused"] = str(error).splitlines()[0][:80]
    wrong = [f"{name} {error:.4f}" for name, error in errors.items() if not error <= WIDEST]
    seconds = dict(zip(runs, race.seconds(list(runs.values())), strict=True))
    return row | {
        "error": errors,
        "wrong": wrong,
        "seconds": seconds,
        "peers": [name for name in runs if name in PEERS],
    }


def wanted(shapes: Sequence[Shape | PackedShape], arch: str, wide: bool, first: bool = False) -> list[KernelSpec]:
    """Every kernel that is timed; with `first` those of the first plan, in turns or not."""
    found: dict[str, KernelSpec] = {}
    for shape in shapes:
        plans = list(BACKWARD.split_plans(shape.problem(), arch).values())
        if first:
            plans = [plans[0], next(iter(BACKWARD.split_plans(shape.problem(deterministic=True), arch).values()))]
        for plan in plans:
            for stage in plan:
                known = BACKWARD.candidates(stage.signature, arch)
                specs = grads(stage, arch, wide) if stage.family == "grad" else known
                found |= {one.digest: one for one in specs}
    return list(found.values())


def report(rows: Sequence[dict[str, Any]]) -> None:
    print("\nstages and kernels, microseconds (TFLOP/s of grad)\n")
    for row in rows:
        print(row["name"])
        for name, taken in sorted(row["seconds"].items(), key=lambda each: each[1]):
            if ":" in name:
                of = f" ({row['flops'] / taken / 1e12:.0f})" if name.startswith("grad") else ""
                print(f"    {taken * 1e6:9.1f}{of:7} {name}")
    print("\nTFLOP/s (five products); error beside the largest gradient\n")
    print(f"{'shape':38} {'cudnn':>6} {'flash':>6} {'call':>6} {'turns':>6} {'grad':>6}  ratio  error  peers'")
    ratios = []
    for row in rows:
        rates = {name: row["flops"] / taken / 1e12 for name, taken in row["seconds"].items()}
        best = max(rate for name, rate in rates.items() if name.startswith("grad:"))
        cudnn, flash = (rates.get(name, 0.0) for name in ("cudnn", "flash"))
        ratio = rates["call"] / max(cudnn, flash) if max(cudnn, flash) else float("nan")
        ratios += [ratio] if max(cudnn, flash) else []
        print(f"{row['name']:38} {cudnn:6.0f} {flash:6.0f} {rates['call']:6.0f} {rates['turns']:6.0f} {best:6.0f} "
              f"{ratio:6.2f} {row['error']['call']:6.4f} {row['peer_error']:6.4f}")  # fmt: skip
        for wrong in row["wrong"]:
            print(f"    WRONG {wrong}")
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"\ngeometric mean of ours over the best peer: {mean:.3f}, least {min(ratios):.3f}")


def ratio(row: dict[str, Any]) -> float:
    """How much faster a whole call is than the best of PyTorch's."""
    seconds = row["seconds"]
    return float(min(seconds[name] for name in row["peers"]) / seconds["call"])


def verdict(text: str, value: float, goal: float, least: bool = True) -> str:
    met = value >= goal if least else value <= goal
    return f"{text:56} {value:8.3f}  goal {goal:7.3f}  {'met' if met else 'MISSED'}"


def report_goals(rows: Sequence[dict[str, Any]], packed: Sequence[dict[str, Any]]) -> list[str]:
    """What was asked for, and what was measured: whole calls, and the slower grad kernels beside them."""
    goals = {shape.name: goal for shape, goal in named().items()}
    lines = []
    drawn_rows = [row for row in rows if row["name"] not in goals and row["peers"]]
    if drawn_rows:
        ratios = [ratio(row) for row in drawn_rows]
        lines.append(
            verdict(f"{len(ratios)} drawn over the best of SDPA: mean", statistics.geometric_mean(ratios), 1.05)
        )
        lines.append(verdict("    least", min(ratios), 0.92))
        kernel = [min(row["seconds"][name] for name in row["peers"]) / grad_seconds(row) for row in drawn_rows]
        lines.append(f"    kernels of grad alone beside its whole call: mean {statistics.geometric_mean(kernel):.3f}")
    for row in rows:
        if row["name"] in goals:
            rates = [row["flops"] / seconds / 1e12 for seconds in (row["seconds"]["call"], grad_seconds(row))]
            lines.append(verdict(row["name"] + " TFLOP/s", rates[0], goals[row["name"]]) + f", grad {rates[1]:.0f}")
    lines += [verdict(row["name"] + " over padded", ratio(row), PACKED_GOAL) for row in packed if row["peers"]]
    slower = [row["seconds"]["turns"] / row["seconds"]["call"] for row in (*rows, *packed)]
    if slower:
        lines.append(verdict("deterministic, time of the ordinary call: mean", statistics.geometric_mean(slower),
                             IN_TURNS_GOAL, least=False))  # fmt: skip
        lines.append(f"    most {max(slower):.3f}, least {min(slower):.3f}")
    return lines


def grad_seconds(row: dict[str, Any]) -> float:
    """Of the fastest kernel."""
    return float(min(seconds for name, seconds in row["seconds"].items() if name.startswith("grad:")))


def run_goals(options: argparse.Namespace) -> None:
    seed: int = options.goals
    torch.manual_seed(seed)
    shapes, packed = [*named(), *drawn(seed, options.count)], drawn_packed(seed)
    arch, started = driver.available_archs()[0], time.perf_counter()
    kernels.build(wanted([*shapes, *packed], arch, False, first=True))
    print(f"kernels built in {time.perf_counter() - started:.1f} s", flush=True)
    race, rows, begun = Race(options.rounds), [], time.perf_counter()
    packed_rows = [measure_packed(shape, race) for shape in packed]
    for shape in shapes:
        if time.perf_counter() - begun > options.seconds:
            print(f"left out: {shape.name}")
            continue
        rows.append(measure(shape, arch, race, False, first=True))
        torch.cuda.empty_cache()
    report(rows)
    for row in packed_rows:
        print(
            row["name"],
            {name: round(row["flops"] / taken / 1e12) for name, taken in row["seconds"].items()},
            *row["wrong"],
        )
    lines = report_goals(rows, packed_rows)
    print(f"\ngoals, seed {seed}, {time.perf_counter() - started:.0f} s\n" + "\n".join(lines))
    if options.output:
        result = {**provenance(command_line()), "gpu": torch.cuda.get_device_name(), "seed": seed, "goals": lines}
        text = json.dumps({**result, "rows": rows, "packed": packed_rows}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=None, metavar="SEED")
    parser.add_argument("--goals", type=int, default=None, metavar="SEED")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--few", action="store_true", help="shapes of few blocks instead of the table")
    parser.add_argument("--groups", action="store_true", help="causal groups of heads instead of the table")
    parser.add_argument("--only", default="")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=110.0, help="no shape is begun after so many")
    parser.add_argument("--output", type=Path, help="result file")
    options = parser.parse_args()
    if options.goals is not None:
        run_goals(options)
        return
    torch.manual_seed(options.random or 0)
    shapes = few() if options.few else table() if options.random is None else drawn(options.random, options.count)
    shapes = groups() if options.groups else shapes
    shapes = [one for one in shapes if options.only in one.name]
    arch, started = driver.available_archs()[0], time.perf_counter()
    specs = wanted(shapes, arch, options.wide, first=options.groups)
    kernels.build(specs)
    print(f"{len(specs)} kernels built in {time.perf_counter() - started:.1f} s", flush=True)
    race, rows, begun = Race(options.rounds), [], time.perf_counter()
    for shape in shapes:
        if time.perf_counter() - begun > options.seconds:
            print(f"left out: {shape.name}")
            continue
        rows.append(measure(shape, arch, race, options.wide, first=options.groups))
        print(f"{time.perf_counter() - begun:6.1f} s {shape.name} {rows[-1]['wrong'] or 'right'}", flush=True)
        torch.cuda.empty_cache()
    report(rows)
    if options.output:
        gpu = torch.cuda.get_device_name()
        result = {**provenance(command_line()), "gpu": gpu, "seed": options.random, "rows": rows}
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
