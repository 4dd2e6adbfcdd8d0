"""Whole models on a GPU: PyTorch eager, as a CUDA graph and compiled, beside ours, interleaved in one process.

    python benchmarks/models_h200.py                         all within 300 seconds; writes results/models_h200.json
    python benchmarks/models_h200.py --only "decode batch 1,ResNet-50"   those whose names contain one of these
    python benchmarks/models_h200.py --budget 120            seconds; what does not fit is listed as left out
    python benchmarks/models_h200.py --device cpu --tiny     a rehearsal without a GPU: nothing of it means anything

Ours is the forward written with `tw.*` calls (`_models.py`), or for `drop-in` the model after `replace_modules`, with
our `scaled_dot_product_attention`; a training step is the latter.  Weights are random, bf16; contexts are drawn by the
seed.  Compiled means torch.compile's default mode; `in Inductor` PyTorch's forward, compiled with our kernels where
they measure faster (`tilewright.torch.inductor`); `+ graph` that the call is captured and replayed, for both sides
by the same code.  Kernels of all models are built first, side by side.

Each result is compared with the same model in float64 before it is timed (its cache stays bf16): the root mean square
of our error may be twice that of PyTorch's eager forward, the largest three times.  A turn is a few forwards between
two waits for the device; a ratio is PyTorch's time over ours, round by round.  What fails is listed with its error and
ends nothing, but the exit code.  Results are written after every model.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import gc
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from _cuda_timing import GraphClock, HostClock
from _machine import RESULTS, command_line, provenance
from _model_race import geometric_mean, ratios, rounding, shown, times
from _models import Calls, Case, DropIn, Exact, Plain, built
from _models_h200_cases import Entry, entries, tiny_entries

import tilewright.torch
from tilewright.torch import inductor

SEED = 23
BUDGET = 300.0
LAYERS = 2
TURN_SECONDS = 0.015
COMPILE_SECONDS = 30.0  # that must be left to begin compiling a model
AUTOTUNE_SECONDS = 90.0
GOALS = {"eager": 1.25, "graph": 1.10, "compiled + graph": 1.05}
# ratio: (theirs, ours)
PAIRS = {
    "eager": ("torch eager", "ours eager"),
    "drop-in": ("torch eager", "ours drop-in"),
    "graph": ("torch graph", "ours graph"),
    "compiled": ("torch compiled", "ours compiled"),
    "compiled + graph": ("torch compiled + graph", "ours compiled + graph"),
    "in Inductor + graph": ("torch compiled + graph", "ours in Inductor + graph"),
    "max-autotune + graph": ("torch max-autotune + graph", "ours compiled + graph"),
    "graph beside compiled": ("torch compiled + graph", "ours graph"),
}

Run = Callable[[], Any]


class Bench:
    """The device, its clock, and the time that is left."""

    def __init__(self, device: str, budget: float, seed: int, backend: str) -> None:
        self.device, self.seed, self.backend = device, seed, backend
        self.clock = GraphClock(1 << 20) if device == "cuda" else HostClock()
        self._ends = time.perf_counter() + budget
        self.began = time.perf_counter()

    @property
    def left(self) -> float:
        return self._ends - time.perf_counter()

    def built(self, case: Case) -> tuple[Any, Any]:
        return built(case, self.seed, torch.bfloat16, self.device)

    def compiled(self, run: Callable[..., Any], mode: str | None) -> Callable[..., Any]:
        """`mode` of torch.compile, or "ours": its default mode, with our kernels where they measure faster."""
        chosen: dict[str, Any] = {"options": inductor.options()} if mode == "ours" else {"mode": mode}
        if self.backend != "inductor":
            made: Callable[..., Any] = torch.compile(run, backend=self.backend, fullgraph=True, dynamic=False)
        else:
            made = torch.compile(run, fullgraph=True, dynamic=False, **chosen)
        return made

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter() - self.began:5.0f} s] {text}", flush=True)


# -- contestants -------------------------------------------------------------------------------------------------------


class Contestant:
    """A call that is timed, and what it made last."""

    def __init__(self, run: Run, wrap: Callable[[Run], Run] | None = None) -> None:
        self._made: list[Any] = [None]

        def kept() -> None:
            self._made[0] = run()

        self.run = kept if wrap is None else wrap(kept)

    def result(self) -> Any:
        self.run()
        return self._made[0]


Makers = Iterator[tuple[str, Callable[[], Contestant]]]  # whatever takes long happens in the call


def shared(model: Any) -> Any:
    """Modules of their own with the same tensors."""
    return copy.deepcopy(model, {id(one): one for one in (*model.parameters(), *model.buffers())})


def with_ours(model: Any) -> Any:
    replaced = shared(model)
    tilewright.torch.replace_modules(replaced)
    return replaced


def as_double(model: Any) -> Any:
    """The model in float64; its caches stay as they are, and are written to as in every forward."""
    double = shared(model)
    for module in double.modules():
        for name, one in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if one.is_floating_point() and name not in ("keys", "values"):
                wide = one.detach().double()
                setattr(module, name, torch.nn.Parameter(wide) if isinstance(one, torch.nn.Parameter) else wide)
    return double


def forwards(bench: Bench, entry: Entry, model: Any, x: Any) -> Makers:
    def eager(kit: Plain, of: Any = model) -> Run:
        return lambda: of(kit, x)

    captured = bench.clock.captured
    yield "torch eager", lambda: Contestant(eager(Plain()))
    yield "ours eager", lambda: Contestant(eager(Calls()))
    yield "ours drop-in", lambda: Contestant(eager(DropIn(), with_ours(model)))
    yield "torch graph", lambda: Contestant(eager(Plain()), captured)
    yield "ours graph", lambda: Contestant(eager(Calls()), captured)
    made: dict[str, Run] = {}

    def compiled(name: str, kit: Plain, mode: str | None = None) -> Run:
        if name not in made:
            call = bench.compiled(lambda given: model(kit, given), mode)
            made[name] = lambda: call(x)
        return made[name]

    if entry.compiled and bench.left > COMPILE_SECONDS:
        yield "torch compiled", lambda: Contestant(compiled("torch", Plain()))
        yield "torch compiled + graph", lambda: Contestant(compiled("torch", Plain()), captured)
        yield "ours compiled", lambda: Contestant(compiled("ours", Calls()))
        yield "ours compiled + graph", lambda: Contestant(compiled("ours", Calls()), captured)
    if entry.compiled and bench.left > COMPILE_SECONDS:
        yield "ours in Inductor + graph", lambda: Contestant(compiled("inductor", Plain(), "ours"), captured)
    if entry.autotuned and bench.left > AUTOTUNE_SECONDS:
        mode = "max-autotune-no-cudagraphs"
        yield "torch max-autotune + graph", lambda: Contestant(compiled("autotuned", Plain(), mode), captured)


def training_step(model: Any, kit: Plain, x: Any, labels: Any) -> Run:
    """Forward, backward and a step of SGD; gives the gradients, of the weights before the step."""
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=1e-5)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(kit, x).float(), labels).backward()
        optimizer.step()
        return [one.grad for one in weights]

    return step


def trainings(bench: Bench, model: Any, x: Any, labels: Any) -> Makers:
    def step(ours: bool, wrap: Callable[[Run], Run] | None = None) -> Contestant:
        mine = copy.deepcopy(model)
        if ours:
            tilewright.torch.replace_modules(mine)
        return Contestant(training_step(mine, Plain(), x, labels), wrap)

    captured = bench.clock.captured
    yield "torch eager", lambda: step(False)
    yield "ours eager", lambda: step(True)
    yield "torch graph", lambda: step(False, captured)
    yield "ours graph", lambda: step(True, captured)


def prepared(bench: Bench, entry: Entry) -> tuple[Makers, Callable[[], Any], float]:
    """Who takes part, what makes the result in float64, and what rounding may add to an error."""
    model, x = bench.built(entry.case)
    if not entry.training:
        return forwards(bench, entry, model, x), lambda: as_double(model)(Exact(), x.double()), rounding(model)
    model.train()
    labels = torch.randint(0, 1000, (x.shape[0],), device=bench.device)

    def gradients() -> Any:
        return training_step(as_double(model), Exact(), x.double(), labels)()

    return trainings(bench, model, x, labels), gradients, rounding(model)


# -- checks and times --------------------------------------------------------------------------------------------------


def _flat(result: Any) -> list[Any]:
    return [one.detach().double() for one in (result if isinstance(result, list) else [result])]


def errors(result: Any, right: list[Any]) -> dict[str, float]:
    """Root mean square and largest error, as parts of those of the right result; of gradients the worst tensor's
    largest would be its noise, so all count as one."""
    squares = sum((one - other).square().sum().item() for one, other in zip(_flat(result), right, strict=True))
    largest = max((one - other).abs().max().item() for one, other in zip(_flat(result), right, strict=True))
    return {
        "rms": math.sqrt(squares / sum(one.square().sum().item() for one in right)),
        "largest": largest / max(one.abs().max().item() for one in right),
    }


def why_wrong(mine: dict[str, float], theirs: dict[str, float], more: float) -> str:
    for name, most in (("rms", 2 * theirs["rms"] + more), ("largest", 3 * theirs["largest"] + more)):
        if not mine[name] <= most:
            return f"wrong: its {name} error is {mine[name]:.3g} of the result's, and {most:.3g} are allowed"
    return ""


def scope(training: bool) -> Any:
    return contextlib.nullcontext() if training else torch.inference_mode()


def measured(bench: Bench, entry: Entry, rounds: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": entry.case.name, "about": entry.case.about, "kind": entry.kind, "layers": entry.layers, "errors": {},
        "failed": {},
    }  # fmt: skip
    makers, exact, more = prepared(bench, entry)
    ready: dict[str, Contestant] = {}
    with scope(entry.training):
        right = _flat(exact())
        for name, make in makers:
            try:
                one = make()
                # A captured training step has stepped before: its gradients are of other weights, by a part of 1e-5.
                row["errors"][name] = errors(one.result(), right)
                wrong = why_wrong(row["errors"][name], row["errors"]["torch eager"], more)
                if wrong:
                    raise ArithmeticError(wrong)
                ready[name] = one
            except Exception as error:  # whoever fails, the others are timed
                row["failed"][name] = f"{type(error).__name__}: {error}"[:300]
                bench.say(f"{entry.case.name}: {name}: {row['failed'][name]}")
        del right
        taken = raced(bench, ready, rounds)
    row["seconds"] = {name: times(each) for name, each in taken.items()}
    row["ratio"] = {
        name: ratios(taken[theirs], taken[ours])
        for name, (theirs, ours) in PAIRS.items()
        if theirs in taken and ours in taken
    }
    return row


def timed(bench: Bench, run: Run, repeats: int) -> float:
    bench.clock.wait()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    bench.clock.wait()
    return (time.perf_counter() - start) / repeats


def raced(bench: Bench, ready: dict[str, Contestant], rounds: int) -> dict[str, list[float]]:
    """Seconds of a call of each, round by round; the order turns."""
    repeats: dict[str, int] = {}
    for name, one in ready.items():
        timed(bench, one.run, 2)
        repeats[name] = max(2, min(300, round(TURN_SECONDS / timed(bench, one.run, 3))))
    taken: dict[str, list[float]] = {name: [] for name in ready}
    names = list(ready)
    for index in range(rounds):
        first = index % max(1, len(names))
        for name in names[first:] + names[:first]:
            ready[name].run()
            taken[name].append(timed(bench, ready[name].run, repeats[name]))
    return taken


def build_kernels(bench: Bench, chosen: list[Entry], workers: int) -> None:
    """Run our side of every model once, side by side: compilers are most of it."""

    def once(entry: Entry) -> None:
        try:
            makers, _, _ = prepared(bench, entry)
            with scope(entry.training):
                for name, make in makers:
                    if name in ("ours eager", "ours drop-in"):
                        make().run()
        except Exception as error:  # it is said where the model is measured
            bench.say(f"{entry.case.name}: building kernels: {type(error).__name__}: {error}"[:300])

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(once, chosen))
    bench.clock.wait()
    clean(bench)
    bench.say(f"kernels of {len(chosen)} models are built")


def clean(bench: Bench) -> None:
    gc.collect()
    torch._dynamo.reset()
    if bench.device == "cuda":
        torch.cuda.empty_cache()


# -- results -----------------------------------------------------------------------------------------------------------


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Geometric means of the median ratios: of all models, and of each kind."""
    found: dict[str, dict[str, float]] = {}
    for kind in ("all", *dict.fromkeys(row["kind"] for row in rows)):
        mine = [row["ratio"] for row in rows if kind in ("all", row["kind"])]
        means = {name: [one[name]["median"] for one in mine if name in one] for name in PAIRS}
        found[kind] = {name: geometric_mean(each) for name, each in means.items() if each}
    return found


def show(rows: list[dict[str, Any]], means: dict[str, dict[str, float]], left_out: list[str]) -> None:
    """The table, last on the screen."""
    for row in rows:
        print(f"{row['model']} ({row['about']})")
        for name, (theirs, ours) in PAIRS.items():
            if name in row["ratio"]:
                us = [1e6 * row["seconds"][who]["median"] / row["layers"] for who in (theirs, ours)]
                print(f"    {name:<22}{us[0]:10.1f} {us[1]:10.1f} us a layer   {shown(row['ratio'][name])}")
        for name, why in row["failed"].items():
            print(f"    {name:<22}failed: {why[:120]}")
    for kind, each in means.items():
        print(f"geometric mean, {kind}: " + ", ".join(f"{name} {ratio:.3f}" for name, ratio in each.items()))
    if left_out:
        print("left out for time: " + ", ".join(left_out))
    print("goals: " + ", ".join(f"{name} {goal:.2f}" for name, goal in GOALS.items()))


def written(place: Path, head: dict[str, Any], rows: list[dict[str, Any]], left_out: list[str]) -> None:
    body = {**head, "summary": summary(rows), "left_out": left_out, "rows": rows}
    place.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Whole models on a GPU beside PyTorch.")
    parser.add_argument("--only", default="", help="parts of names with commas between")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds; models that do not fit are left out")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--layers", type=int, default=LAYERS, help="of decoders and encoders")
    parser.add_argument("--workers", type=int, default=16, help="models whose kernels are built side by side")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile on either side")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument(
        "--tiny", action="store_true", help="a rehearsal with tiny sizes; nothing is written by default"
    )
    parser.add_argument("--backend", default="", help="of torch.compile; default inductor, in a rehearsal aot_eager")
    parser.add_argument("--output", type=Path, help="result file")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA device: --device cpu --tiny rehearses the script")
    return options


def main() -> None:
    options = parsed()
    bench = Bench(
        options.device, options.budget, options.seed, options.backend or ("aot_eager" if options.tiny else "inductor")
    )
    makes = tiny_entries(options.seed) if options.tiny else entries(options.seed, options.layers)
    words = [one.strip() for one in options.only.split(",")]
    chosen = [one for one in makes if any(word in one.case.name for word in words)]
    if options.no_compile:
        chosen = [replace(one, compiled=False, autotuned=False) for one in chosen]
    small = chosen if options.tiny else entries(options.seed, 1)
    names = {one.case.name for one in chosen}
    if not chosen:
        raise SystemExit(f"--only {options.only!r} is in none of: {', '.join(one.case.name for one in makes)}")
    build_kernels(bench, [one for one in small if one.case.name in names], options.workers)
    head = {"benchmark": "models_h200", **provenance(command_line()), "seed": options.seed, "goals": GOALS}
    head["gpu"] = torch.cuda.get_device_name() if options.device == "cuda" else ""
    place = options.output or (None if options.tiny or options.only else RESULTS / "models_h200.json")
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for entry in chosen:
        if bench.left < 5:
            left_out.append(entry.case.name)
            continue
        try:
            rows.append(measured(bench, entry, options.rounds))
        except Exception as error:  # such as a full memory: the others go on
            rows.append({"model": entry.case.name, "about": entry.case.about, "kind": entry.kind,
                         "layers": entry.layers, "errors": {}, "seconds": {}, "ratio": {},
                         "failed": {"all": f"{type(error).__name__}: {error}"[:300]}})  # fmt: skip
        bench.say(
            entry.case.name + ": " + ", ".join(f"{n} {one['median']:.2f}" for n, one in rows[-1]["ratio"].items())
        )
        clean(bench)
        if place is not None:
            written(place, head, rows, left_out)
    if place is not None:
        written(place, head, rows, left_out)
        print(f"written to {place.name}")
    show(rows, summary(rows), left_out)
    raise SystemExit(1 if any(row["failed"] for row in rows) else 0)


if __name__ == "__main__":
    main()
