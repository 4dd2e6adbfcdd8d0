"""Host time of cached calls of all three ops beside PyTorch's own, interleaved in one run, as a user writes them.

    python benchmarks/call_times.py                 on a GPU; writes results/call_times_h200.json
    python benchmarks/call_times.py --device cpu    on the CPU; writes results/call_times_cpu.json
    python benchmarks/call_times.py --quick         few rounds, nothing written
    python benchmarks/call_times.py --breakdown     where the time of a call goes, step by step; nothing written

A turn is a hundred calls that only queue work on a GPU: its queue is empty when the turn begins and never full, so the
clock sees the host alone.  Problems are tiny, so that the device keeps up.  On the CPU small calls also stand beside
the bare launch of their kernels, with one thread: `over` is what the call takes more, with arrays of NumPy's and of
PyTorch's.  Everything runs under `torch.inference_mode`.  `slow_path` counts the calls of the timed turns that C did
not serve alone.

Of a breakdown, `parse` is from the entry in C until arguments have names, `read` the facts of options and operands,
`look up` finds the prepared call, `allocate` checks addresses and makes results, `launch` is all launches with their
stream and workspace; `around` is the rest: the clock, Python's part of the call, the answer.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _machine import command_line, provenance
from torch.nn import functional

import tilewright as tw
from tilewright import settings
from tilewright.runtime import calls, fast_path
from tilewright.runtime.plans import Plan

RESULTS = Path(__file__).parent / "results"
CALLS = 100
GOALS = {"gemm": 9e-6, "conv": 10e-6, "attention": 12e-6, "attention+": 15e-6}  # on the H200's machine
OVER_GOALS = {"gemm": 1.5e-6, "conv": 1.5e-6, "attention": 3e-6, "attention+": 3e-6}  # on the CPU, over the bare kernel

Calls = dict[str, Callable[[], object]]


class SlowPath:
    """Counts the calls that C did not serve alone."""

    def __init__(self) -> None:
        self.count = 0
        run_slow = calls.Caller.run_slow

        def counted(*operands: Any) -> Any:
            self.count += 1
            return run_slow(*operands)

        setattr(calls.Caller, "run_slow", counted)  # noqa: B010  a class type checkers would not let us change


def gemm(random: Callable[..., Any]) -> Calls:
    a, w, bias = random(16, 256), random(128, 256), random(128)
    out, turned = random(16, 128), w.T
    return {
        "gemm": lambda: tw.gemm(a, turned),
        "gemm (w.T in the call)": lambda: tw.gemm(a, w.T),
        "gemm out=": lambda: tw.gemm(a, w.T, out=out),
        "gemm bias relu": lambda: tw.gemm(a, w.T, bias=bias, epilogue="relu"),
        "torch.matmul": lambda: torch.matmul(a, w.T),
        "torch.addmm": lambda: torch.addmm(bias, a, w.T),
    }


def conv(random: Callable[..., Any]) -> Calls:
    x = random(1, 64, 14, 14).to(memory_format=torch.channels_last)
    w = random(64, 64, 3, 3).to(memory_format=torch.channels_last)
    out = functional.conv2d(x, w, padding=1)
    return {
        "conv": lambda: tw.conv(x, w, padding=1, layout="nchw"),
        "conv out=": lambda: tw.conv(x, w, padding=1, layout="nchw", out=out),
        "torch conv2d": lambda: functional.conv2d(x, w, padding=1),
    }


def attention(random: Callable[..., Any]) -> Calls:
    device = random(1).device
    q, k, v = (random(1, 8, 128, 64) for _ in range(3))
    one, keys, values = random(4, 8, 1, 64), random(4, 2, 512, 64), random(4, 2, 512, 64)
    lengths = torch.tensor([512, 300, 17, 400], dtype=torch.int32, device=device)
    pages = random(128, 64, 2, 64)
    table = torch.arange(32, dtype=torch.int32, device=device).reshape(4, 8)
    query = random(4, 1, 8, 64)
    out = torch.empty_like(q)
    sdpa = functional.scaled_dot_product_attention
    return {
        "attention prefill": lambda: tw.attention(q, k, v, causal=True, layout="bhsd"),
        "attention prefill out=": lambda: tw.attention(q, k, v, causal=True, layout="bhsd", out=out),
        "attention decode": lambda: tw.attention(one, keys, values, layout="bhsd"),
        "attention+ num_splits=4": lambda: tw.attention(one, keys, values, layout="bhsd", num_splits=4),
        "attention+ seqlens_k": lambda: tw.attention(one, keys, values, layout="bhsd", seqlens_k=lengths),
        "attention+ block_table": lambda: tw.attention(query, pages, pages, seqlens_k=lengths, block_table=table),
        "attention+ return_lse": lambda: tw.attention(q, k, v, causal=True, layout="bhsd", return_lse=True),
        "torch SDPA prefill": lambda: sdpa(q, k, v, is_causal=True),
        "torch SDPA decode": lambda: sdpa(one, keys, values, enable_gqa=True),
    }


def small(random: Callable[..., Any]) -> Calls:
    """Calls whose kernels take next to no time, for what a call adds to them on the CPU."""
    a, b, out = random(4, 16), random(16, 16), random(4, 16)
    x, w = random(1, 4, 4, 16), random(16, 1, 1, 16)
    image = random(1, 4, 4, 16)
    q, k, v, result = (random(1, 2, 1, 16) for _ in range(4))
    return {
        "gemm": lambda: tw.gemm(a, b),
        "gemm out=": lambda: tw.gemm(a, b, out=out),
        "conv": lambda: tw.conv(x, w),
        "conv out=": lambda: tw.conv(x, w, out=image),
        "attention": lambda: tw.attention(q, k, v, causal=True),
        "attention out=": lambda: tw.attention(q, k, v, causal=True, out=result),
    }


def bare(call: Callable[[], object]) -> Callable[[int], float]:
    """Seconds of so many launches of the kernel that a call takes, by a loop of C's: nothing of Python is in them."""
    plans: list[Any] = []
    run = Plan.run

    def noted(plan: Any, addresses: Any, scalars: Any) -> None:
        plans.append((plan, list(addresses), list(scalars)))
        run(plan, addresses, scalars)

    setattr(Plan, "run", noted)  # noqa: B010  a class type checkers would not let us change
    try:
        with settings.override(events="/dev/null"):  # other settings: it is planned anew
            kept = call()
    finally:
        setattr(Plan, "run", run)  # noqa: B010
    (plan, addresses, scalars), stage = plans[-1], plans[-1][0].stages[0]
    args = stage.filled([addresses[one.slot] for one in stage.request.pointers], scalars)
    space = ctypes.create_string_buffer(max(1, plan.scratch_bytes) + 64)
    aligned = -(-ctypes.addressof(space) // 64) * 64
    native = fast_path.library()
    assert native is not None
    assert len(plan.stages) == 1

    def launches(count: int, _kept: object = (kept, space)) -> float:
        start = time.perf_counter()
        native.launch_often(stage.kernel.launch, args, aligned, plan.team, count)
        return (time.perf_counter() - start) / count

    return launches


def over_bare(rounds: int) -> dict[str, Any]:
    """What cached calls take over the bare launch, least of all rounds and the median of them."""
    found: dict[str, Any] = {}
    makers: dict[str, Callable[..., Any]] = {
        "numpy": lambda *shape: np.random.default_rng(1).standard_normal(shape, dtype=np.float32),
        "torch": torch.randn,
    }
    for library, random in makers.items():
        for name, call in small(random).items():
            launches = bare(call)
            for _ in range(3):
                call()
            ours, kernels = [], []
            for _ in range(20 * rounds):  # short turns: some of them are nobody else's
                kernels.append(launches(CALLS))
                start = time.perf_counter()
                for _ in range(CALLS):
                    call()
                ours.append((time.perf_counter() - start) / CALLS)
            times = {"least": min(ours), "bare": min(kernels), "over": min(ours) - min(kernels)}
            times["median_over"] = statistics.median(ours) - statistics.median(kernels)
            most = OVER_GOALS[name.split(maxsplit=1)[0]]
            verdict = "met" if times["over"] <= most else "missed"
            ours_us, bare_us, over_us, median_us, most_us = (
                1e6 * one for one in (times["least"], times["bare"], times["over"], times["median_over"], most)
            )
            print(
                f"{library:<6} {name:<16} {ours_us:6.2f} us, bare kernel {bare_us:5.2f}, over {over_us:5.2f} (median "
                f"{median_us:5.2f})  goal {most_us:.1f}: {verdict}",
                flush=True,
            )
            found[f"{library} {name}"] = times
    return found


def broken_down(contestants: Calls, wait: Callable[[], object]) -> None:
    """Microseconds of each step of our calls, the median of five hundred, and of those without the clock."""
    native = fast_path.library()
    assert native is not None
    times = (ctypes.c_int64 * (len(fast_path.STEPS) + 1))()
    print(f"{'':<26} {'call':>7}" + "".join(f" {one:>9}" for one in (*fast_path.STEPS, "around")), flush=True)
    for name, call in contestants.items():
        if name.startswith("torch"):
            continue
        whole, parts = [], []
        for turn in range(1000):
            if turn % CALLS == 0:
                wait()
            native.clock(times if turn % 2 else None)
            start = time.perf_counter_ns()
            call()
            took = time.perf_counter_ns() - start
            if turn % 2:
                parts.append([after - before for before, after in itertools.pairwise(times)])
            else:
                whole.append(took)
        native.clock(None)
        each = [statistics.median(column) / 1e3 for column in zip(*parts, strict=True)]
        all_of_it = statistics.median(whole) / 1e3
        row = "".join(f" {one:9.2f}" for one in (*each, all_of_it - sum(each)))
        print(f"{name:<26} {all_of_it:7.2f}{row}", flush=True)


def timed(contestants: Calls, rounds: int, wait: Callable[[], object]) -> dict[str, dict[str, float]]:
    """Least and median seconds of a call, over interleaved turns."""
    turns: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            turns[name].append((time.perf_counter() - start) / CALLS)
    wait()
    return {
        name: {"least": min(seconds), "median": statistics.median(seconds), "most": max(seconds)}
        for name, seconds in turns.items()
    }


def goal(name: str) -> float | None:
    return GOALS.get(name.split(maxsplit=1)[0])


def measure(device: str, rounds: int) -> dict[str, Any]:
    """No rounds: where the time goes, not how long it is."""
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    slow = SlowPath()
    table: dict[str, Any] = {}
    for contestants in (make(lambda *shape: torch.randn(*shape, device=device).to(dtype)) for make in OPS):
        for call in contestants.values():
            for _ in range(3):
                call()
        before = slow.count
        if not rounds:
            broken_down(contestants, wait)
            continue
        found = timed(contestants, rounds, wait)
        for name, times in found.items():
            most = goal(name) if device == "cuda" else None
            verdict = (
                "" if most is None else f"  goal {most * 1e6:4.0f}: {'met' if times['median'] <= most else 'missed'}"
            )
            print(
                f"{name:<26} least {times['least'] * 1e6:7.2f} us  median {times['median'] * 1e6:7.2f}{verdict}",
                flush=True,
            )
        print(f"calls that C did not serve alone: {slow.count - before}", flush=True)
        table |= found
    answer: dict[str, Any] = {
        "calls": table,
        "slow_path": slow.count - 3 * sum(not name.startswith("torch") for name in table),
    }
    if device == "cpu" and rounds:
        with settings.override(threads=1):
            answer["over_bare"] = over_bare(rounds)
    return answer


OPS = (gemm, conv, attention)


def main() -> None:
    parser = argparse.ArgumentParser(description="Host time of cached calls beside PyTorch's own.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing written")
    parser.add_argument("--breakdown", action="store_true", help="where the time of a call goes; nothing written")
    parser.add_argument("--output", type=Path, help="result file")
    options = parser.parse_args()
    with torch.inference_mode():
        found = measure(options.device, 0 if options.breakdown else 3 if options.quick else 31)
    place = options.output or RESULTS / f"call_times_{'h200' if options.device == 'cuda' else 'cpu'}.json"
    if not options.quick and not options.breakdown:
        head = provenance(command_line())
        if options.device == "cuda":
            head["device"] = torch.cuda.get_device_name()
        text = json.dumps({"benchmark": "call_times", **head, "goals": GOALS, **found}, indent=1)
        place.write_text(text + "\n", encoding="utf-8")
        print(f"written to {place}")


if __name__ == "__main__":
    main()
