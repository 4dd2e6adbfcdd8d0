"""`tilewright bench OP`: kernels against each other on one problem; the winner can be remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli._gemm_options import GemmOptions, takes_gemm
from tilewright.cli.common import console, print_json, progress, say

if TYPE_CHECKING:
    from tilewright.dispatch.records import Record
    from tilewright.ops.base import KernelSpec


def _bench_gemm(
    options: GemmOptions,
    save: Annotated[bool, typer.Option("--save", help="Remember the winner: dispatch will choose it.")] = False,
    pool: Annotated[str, typer.Option(help="Measure the kernels of this pool instead of the default ones.")] = "",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=1)] = 9,
    jobs: Annotated[int, typer.Option(help="Compilers at once; 0 means by cores and memory.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
) -> None:
    """Build, check and time every kernel that serves one GEMM."""
    from tilewright import events

    problem = options.problem()
    wrong: list[str] = []
    with options.settings() as registry, progress("build") as advance, events.recorded() as heard:
        specs = None if not pool else _pool(registry, problem, pool)
        total = len(specs if specs is not None else registry.candidates(problem))
        done = 0

        def on_event(event: events.Event) -> None:
            nonlocal done
            if isinstance(event, events.KernelBuilt):
                done += 1
                advance(done, max(done, total))

        record = registry.measure(problem, specs, rounds=rounds, save=save, max_workers=jobs or None, on_event=on_event)
        wrong = [one.message for one in heard if isinstance(one, events.Warned) and one.rule == "wrong-result"]
    for one in wrong:
        say(f"left out, its result is wrong: {one}")
    if json:
        print_json(record.to_dict())
        return
    _table(record, problem)
    say("remembered: dispatch chooses the winner from now on" if save else "not remembered; use --save for that")


def _pool(registry: Any, problem: Any, name: str) -> list[KernelSpec]:
    """The pool's kernels with exactly the problem's signature."""
    from tilewright import ops

    op = ops.op(problem.op)
    s = op.signature_of(problem)
    datatype = s.dtype_a if s.dtype_a == s.dtype_b else f"{s.dtype_a}:{s.dtype_b}"
    proposed = op.proposals(
        name,
        registry.target,
        datatypes=(datatype,),
        layouts=(s.layout,),
        variants=(s.variant,),
        epilogues=(s.epilogue,),
        outputs=(s.dtype_c,),
        num_d=(s.num_d,),
    )
    return [spec for spec in proposed if spec.signature == s and not op.check(spec)]


def _table(record: Record, problem: Any) -> None:
    from rich.table import Table

    table = Table(title=f"{problem.describe()} on {record.target}, {record.threads} thread(s)", title_justify="left")
    table.add_column("kernel", no_wrap=True)
    for label in ("time us", "GFLOP/s", "spread", "error/bound", "of best"):
        table.add_column(label, justify="right")
    best = record.timings[0].seconds
    for one in record.timings:
        mark = " *" if one.digest == record.choice else ""
        table.add_row(
            one.name + mark,
            f"{one.seconds * 1e6:.1f}",
            f"{problem.flops / one.seconds / 1e9:.1f}",
            f"{one.spread * 100:.1f}%",
            f"{one.error:.3f}",
            f"{best / one.seconds:.2f}",
        )
    console().print(table)


def register(app: typer.Typer) -> None:
    commands = typer.Typer(no_args_is_help=True, help="Time kernels against each other on one problem.")
    commands.command("gemm")(takes_gemm(_bench_gemm))
    app.add_typer(commands, name="bench")
