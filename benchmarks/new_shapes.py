"""What a shape costs that was never seen before, its kernels built: streams of distinct sizes by a seed.

    python benchmarks/new_shapes.py                      selection, plans and whole calls on this CPU
    python benchmarks/new_shapes.py --target sm_90a      the same of a GPU where there is one (with PyTorch); elsewhere
                                                         selection, and plans less what needs the device

`select` is the time of `Registry.select`, `plan` that of selection and plan together (`Registry.plan`).  `call` is that
of a whole call less the time in which its kernels run: views of the operands, request, selection, plan, the result's
memory, and the preparation of the call for C.  Where nothing of the target runs here, the learned models are asked
as if on the device they were trained for, and kernels stand in for those that are not built: all of a plan is made but
a kernel's own check and the workspace it asks for, two functions of C.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from _machine import command_line, provenance

import tilewright as tw
from tilewright.arch import runnable_host_archs
from tilewright.backends.base import not_runnable
from tilewright.dispatch import kernels, learned, model_files
from tilewright.dispatch import registry as registries
from tilewright.dispatch.registry import Registry, default_registry
from tilewright.runtime import plans
from tilewright.runtime.bindings import binding
from tilewright.runtime.plans import Plan

COUNT = 2000


def gemm(r: random.Random, dtype: str, most: int) -> dict[str, Any]:
    return {"m": r.randrange(1, most), "n": 8 * r.randrange(1, most // 8), "k": 8 * r.randrange(1, most // 8),
            "dtype": dtype}  # fmt: skip


def conv(r: random.Random, dtype: str, most: int) -> dict[str, Any]:
    window, size = r.choice((1, 3, 3, 3, 5)), r.randrange(8, max(16, most // 16))
    return {"batch": r.randrange(1, 9), "channels": 8 * r.randrange(1, most // 32), "size": (size, size),
            "filters": 8 * r.randrange(1, most // 32), "window": (window, window),
            "stride": (r.choice((1, 1, 2)),) * 2, "padding": (window // 2,) * 2, "dtype": dtype}  # fmt: skip


def attention(r: random.Random, dtype: str, most: int) -> dict[str, Any]:
    heads, rows = r.choice((4, 8, 16)), r.randrange(1, most)
    return {"batch": r.randrange(1, 4), "heads_q": heads, "heads_kv": heads // r.choice((1, 2, 4)),
            "seqlen_q": rows, "seqlen_kv": r.randrange(rows, 2 * most), "head_dim": r.choice((64, 128)),
            "causal": r.random() < 0.5, "dtype": dtype}  # fmt: skip


DRAWS: dict[str, Callable[[random.Random, str, int], dict[str, Any]]] = {
    "gemm": gemm, "conv": conv, "attention": attention,
}  # fmt: skip


def stream(op: str, dtype: str, most: int, seed: int, count: int) -> list[Any]:
    """Problems of distinct sizes."""
    r, found = random.Random(f"{op} {seed}"), dict[Any, None]()
    while len(found) < count:
        found[_problem(op, DRAWS[op](r, dtype, most))] = None
    return list(found)


def _problem(op: str, values: dict[str, Any]) -> Any:
    if op == "gemm":
        return tw.GemmProblem(values["m"], values["n"], values["k"], values["dtype"])
    if op == "conv":
        return tw.ConvProblem(
            values["batch"], values["channels"], values["filters"], values["size"], values["window"],
            stride=values["stride"], before=values["padding"], dtype=values["dtype"],
        )  # fmt: skip
    causal: dict[str, Any] = {"window_right": 0} if values["causal"] else {}
    return tw.AttentionProblem(
        values["batch"], values["heads_q"], values["seqlen_q"], values["seqlen_kv"], values["head_dim"],
        heads_kv=values["heads_kv"], dtype_q=values["dtype"], **causal,
    )  # fmt: skip


def operands(problem: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function of the API, and what it is called with."""
    torch = sys.modules.get("torch") if problem_dtype(problem) == "bf16" else None

    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.float32) if torch is None else torch.zeros(shape, dtype=torch.bfloat16, device="cuda")

    p = problem
    if p.op == "gemm":
        return tw.matmul, (zeros(p.m, p.k), zeros(p.k, p.n)), {}
    if p.op == "conv":
        x, w = zeros(p.batch, *p.size, p.channels), zeros(p.filters, *p.window, p.channels)
        return tw.conv, (x, w), {"stride": p.stride, "padding": p.before, "layout": "nhwc"}
    q = zeros(p.batch, p.seqlen_q, p.heads_q, p.head_dim)
    k, v = (zeros(p.batch, p.seqlen_k, p.heads_kv, p.head_dim) for _ in range(2))
    return tw.attention, (q, k, v), {"causal": p.window_right == 0}


def problem_dtype(problem: Any) -> str:
    names = ("dtype_a", "dtype_q", "dtype")
    return next(str(getattr(problem, name)) for name in names if hasattr(problem, name))


def figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p10_us": 1e6 * ordered[len(ordered) // 10],
        "median_us": 1e6 * statistics.median(ordered),
        "p99_us": 1e6 * ordered[int(0.99 * len(ordered))],
        "count": len(ordered),
    }


def host_archs() -> list[str]:
    return [one.name for one in runnable_host_archs()]


def rss_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed_selection(registry: Registry, problems: list[Any]) -> Iterator[float]:
    for problem in problems:
        start = time.perf_counter()
        registry.select(problem)
        yield time.perf_counter() - start


def timed_calls(problems: list[Any]) -> Iterator[tuple[float, float]]:
    """Of each shape's first call: selection and plan; and the whole, less the time in which its kernels run."""
    running = planning = 0.0
    run, plan_of = Plan.run, Registry.plan

    def planned(registry: Registry, *given: Any) -> Plan:
        nonlocal planning
        start = time.perf_counter()
        plan = plan_of(registry, *given)
        planning += time.perf_counter() - start
        return plan

    def timed(plan: Plan, *given: Any) -> None:
        nonlocal running
        start = time.perf_counter()
        run(plan, *given)
        running += time.perf_counter() - start

    with mock.patch.object(Plan, "run", timed), mock.patch.object(Registry, "plan", planned):
        for problem in problems:
            call, arrays, keywords = operands(problem)
            running, planning, start = 0.0, 0.0, time.perf_counter()
            result = call(*arrays, **keywords)
            yield planning, time.perf_counter() - start - running
            del result  # giving memory back is not what is timed


class StandIn:
    """What a plan asks of a loaded kernel, of one that nobody built."""

    clear_bytes = 0

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def demanded_workspace(self, args: Any, threads: int) -> int:
        return 0


def timed_plans(registry: Registry, problems: list[Any]) -> Iterator[float]:
    """Selection and plan of kernels that do not run here."""
    stands = dict[str, StandIn]()

    def kernel(spec: Any) -> StandIn:
        known = stands.get(spec.digest)
        return known if known is not None else stands.setdefault(spec.digest, StandIn(spec))

    def fits(arch: str, place: Any, now: Any = None) -> None:
        pass

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(kernels, "kernel", kernel))
        patches.enter_context(mock.patch.object(kernels, "kernels", lambda specs: [kernel(spec) for spec in specs]))
        for module in (plans, registries):
            patches.enter_context(mock.patch.object(module, "demand_fits", fits))
        for problem in problems:
            bound = binding(problem.op)
            stages = tuple(bound.dense(stage).stages[0] for stage in registry.stages(problem))
            request = replace(bound.dense(problem), stages=stages)
            start = time.perf_counter()
            registry.plan(request)
            yield time.perf_counter() - start


def build(registry: Registry, problems: list[Any]) -> int:
    """Build every kernel that is chosen; how many these are."""
    chosen = {one.spec.digest: one.spec for problem in problems for one in registry.select(problem).stages}
    Registry(registry.target, chosen.values()).build()
    return len(chosen)


def as_trained_for(target: str) -> Any:
    """A machine like the one that a shipped model of the target knows."""
    cards = [model_files.shipped(name).card for name in model_files.shipped_names()]
    known = next((card.devices[0] for card in cards if target in card.targets and card.devices), {})
    return mock.patch.object(learned, "machine", return_value=dict(known))


def measure(op: str, target: str, seed: int, count: int, calls: bool) -> dict[str, Any]:
    dtype, most = ("fp32", 512) if calls and target in host_archs() else ("bf16", 4096)
    problems = stream(op, dtype, most, seed, count)
    registry = Registry(target)
    list(timed_selection(registry, stream(op, dtype, most, seed + 1, 32)))  # libraries loaded, kernels prepared
    before = rss_mib()
    row: dict[str, Any] = {"op": op, "target": target, "select": figures(list(timed_selection(registry, problems)))}
    row["tiers"] = sorted({registry.select(one).tier for one in problems[:50]})
    if calls:
        row["kernels"] = build(registry, problems)
        list(timed_calls(stream(op, dtype, most, seed + 1, 32)))
        default_registry()
        planning, whole = zip(*timed_calls(problems), strict=True)
        row |= {"plan": figures(list(planning)), "call": figures(list(whole))}
    elif not_runnable(target) is not None:
        fresh = Registry(target)
        list(timed_plans(fresh, stream(op, dtype, most, seed + 1, 32)))
        row["plan"] = figures(list(timed_plans(fresh, problems)))
    return row | {"rss_mib": round(rss_mib()), "more_mib": round(rss_mib() - before, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="")
    parser.add_argument("--ops", nargs="+", default=list(DRAWS), choices=list(DRAWS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--json", default="", help="a file for the numbers")
    given = parser.parse_args()
    target = Registry(given.target or None).target
    on_gpu = not_runnable(target) is None and target not in host_archs()
    calls = on_gpu or not given.target  # calls of NumPy's arrays choose the best arch of this CPU
    if on_gpu:
        import torch

        torch.zeros(1, device="cuda")
    rows = []
    for op in given.ops:
        if not_runnable(target) is None:
            row = measure(op, target, given.seed, given.count, calls)
        else:
            with as_trained_for(target):
                row = measure(op, target, given.seed, given.count, calls=False)
        rows.append(row)
        parts = [(name, row[name]) for name in ("select", "plan", "call") if name in row]
        whole = [
            f"{name} {one['median_us']:7.1f} us (P10 {one['p10_us']:.1f}, P99 {one['p99_us']:.1f})"
            for name, one in parts
        ]
        print(f"{op:10}{target:16}{'; '.join(whole)}; {row['rss_mib']} MiB (+{row['more_mib']}), {row['tiers']}")
    if given.json:
        told = {**provenance(command_line()), "seed": given.seed, "rows": rows}
        with open(given.json, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(told, file, indent=1)


if __name__ == "__main__":
    main()
