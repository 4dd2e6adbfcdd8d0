"""`tilewright demo`: the whole path on a small kernel set: declare, generate, build, choose, run, verify."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import console, print_json, progress, say

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.gemm.problem import GemmProblem


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    problem: str
    kernel: str
    tier: str
    seconds: float
    gflops: float
    max_error: float
    error_over_bound: float
    ok: bool
    numpy_ratio: float  # NumPy's fp32 time over ours


def _kernel_set(target: str) -> Registry:
    """What the demo declares: plain kernels of four types, one fused, one for packed weights."""
    from tilewright.dispatch.registry import Registry

    registry = Registry(target or None)
    registry.add_pool("gemm", "default", datatypes=("fp32",), layouts=("rrr", "rcr"))
    registry.add_pool("gemm", "tiny", datatypes=("fp16", "bf16", "int8"), layouts=("rcr",))
    registry.add_pool(
        "gemm", "tiny", datatypes=("fp32",), layouts=("rcr",), variants=("multi_d",), epilogues=("Relu",), num_d=(1,)
    )
    registry.add_pool("gemm", "tiny", datatypes=("fp32",), layouts=("rcr",), variants=("preshuffle",))
    return registry


def _problems() -> list[GemmProblem]:
    from tilewright.ops.gemm.problem import GemmProblem

    return [
        GemmProblem(m=256, n=256, k=256),
        GemmProblem(m=1024, n=1024, k=1024),
        GemmProblem(m=509, n=251, k=127),
        GemmProblem(m=16, n=2048, k=2048, layout="rcr"),
        GemmProblem(m=16, n=2048, k=2048, layout="rcr", preshuffled=True),
        GemmProblem(m=512, n=512, k=512, layout="rcr", epilogue="Relu", num_d=1),
        GemmProblem(m=512, n=512, k=512, dtype_a="bf16", layout="rcr"),
        GemmProblem(m=512, n=512, k=512, dtype_a="fp16", layout="rcr"),
        GemmProblem(m=512, n=512, k=512, dtype_a="int8", layout="rcr"),
        GemmProblem(m=64, n=64, k=64, layout="crr"),
    ]


def _numpy_seconds(problem: GemmProblem, repeat: int) -> float:
    import statistics

    import numpy as np

    from tilewright.runtime.host import clock

    a = np.ones((problem.m, problem.k), np.float32)
    b = np.ones((problem.k, problem.n), np.float32)
    out = np.empty((problem.m, problem.n), np.float32)
    times = []
    for _ in range(repeat + 1):
        start = clock()
        np.matmul(a, b, out=out)
        times.append(clock() - start)
    return statistics.median(times[1:])


def _row(registry: Registry, problem: GemmProblem, repeat: int) -> Row:
    from tilewright.dispatch.rehearse import run_problem

    report = run_problem(registry, problem, repeat=repeat, seed=1, verify=True)
    return Row(
        problem=report["problem"],
        kernel=report["kernel"],
        tier=report["tier"],
        seconds=report["seconds"],
        gflops=report["gflops"],
        max_error=report["max_error"],
        error_over_bound=report["error_over_bound"],
        ok=report["ok"],
        numpy_ratio=_numpy_seconds(problem, repeat) / report["seconds"],
    )


def _table(rows: list[Row], title: str) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for label in ("problem", "kernel", "tier"):
        table.add_column(label, overflow="fold")
    for label in ("time us", "GFLOP/s", "max error", "of bound", "x NumPy fp32"):
        table.add_column(label, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.problem,
            row.kernel,
            row.tier,
            f"{row.seconds * 1e6:.1f}",
            f"{row.gflops:.1f}",
            f"{row.max_error:.2g}" if row.ok else "WRONG",
            f"{row.error_over_bound:.3f}",
            f"{row.numpy_ratio:.2f}",
        )
    return table


def _demo(
    target: Annotated[str, typer.Option(help="Arch or backend; by default the best this machine has.")] = "",
    jobs: Annotated[int, typer.Option(help="Compilers at once; 0 means by cores and memory.")] = 0,
    repeat: Annotated[int, typer.Option(help="Timed runs of each problem.", min=1)] = 9,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Declare a small kernel set, build it in parallel, run and verify a handful of problems."""
    from tilewright.arch import host_facts
    from tilewright.runtime.host import clock, thread_count

    registry = _kernel_set(target)
    say(f"declared {len(registry)} kernels for {registry.target}")
    start = clock()
    with progress("generate and compile") as advance:
        registry.build(max_workers=jobs or None, progress=advance)
    say(f"built in {clock() - start:.1f} s (what the store had was not compiled again)")
    rows = []
    problems = _problems()
    with progress("run and verify") as advance:
        for index, problem in enumerate(problems):
            rows.append(_row(registry, problem, repeat))
            advance(index + 1, len(problems))
    if json:
        from tilewright.ops.base import plain

        print_json({"target": registry.target, "threads": thread_count(), "rows": plain(rows)})
    else:
        console().print(_table(rows, f"{host_facts().model}, {thread_count()} thread(s), {registry.target}"))
    wrong = sum(not row.ok for row in rows)
    say(f"{len(rows) - wrong} of {len(rows)} problems verified against the float64 reference")
    if wrong:
        raise typer.Exit(3)


def register(app: typer.Typer) -> None:
    app.command("demo")(_demo)
