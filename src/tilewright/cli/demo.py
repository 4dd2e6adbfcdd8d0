"""`tilewright demo`: the kernels a user would get, built, run and verified, beside NumPy and PyTorch."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import AsJson, Jobs, Target, print_json, progress, say, show, table
from tilewright.errors import RequestError, counted

if TYPE_CHECKING:
    from tilewright.dispatch.registry import Registry
    from tilewright.ops.base import KernelSpec, Op
    from tilewright.ops.demo import Demo

_MODULES = {"NumPy": "numpy", "PyTorch": "torch"}
_MOST_SECONDS = 0.15  # of timing one library on one problem
_WITH_RATES, _MOST_COLUMNS = 96, 100  # columns of a screen: for rates and errors, and of the table without kernels
_REST = 0.05  # seconds in which the threads of another library, which spin after their work, go to sleep

TIER_MEANINGS = {
    "locked": "pinned by the lock file",
    "measured": "the fastest of those timed here",
    "model": "by a learned model",
    "heuristic": "by the backend's estimate",
    "built": "the best of those that are built",
    "padded": "in zero-padded copies",
    "fallback": "the kernel that serves everything",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    op: str
    title: str
    problem: str
    kernel: str
    tier: str
    seconds: float
    gflops: float
    max_error: float
    error_over_bound: float
    ok: bool
    peers: Mapping[str, float]  # seconds by library


def register(app: typer.Typer) -> None:
    app.command("demo")(_demo)


def _shown(names: list[str]) -> list[tuple[Op, Demo]]:
    """The ops that have something to show."""
    from tilewright import ops

    # Of all of them, an op that is broken is left out; `tilewright doctor` says what is wrong with it.
    chosen = [ops.op(name) for name in names] if names else list(ops.all_ops().values())
    with_demo = [(op, getattr(op, "demo", None)) for op in chosen]
    for op, demo in with_demo:
        if demo is None and names:
            raise RequestError(
                f"the op {op.name} has no demo", rule="no-demo", value=op.name, remedy="name another op, or none"
            )
    return [(op, demo) for op, demo in with_demo if demo is not None]


def _demo(
    op: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="The ops to show; all by default.")] = None,
    target: Target = "",
    jobs: Jobs = 0,
    repeat: Annotated[int, typer.Option(help="Maximum number of timed runs per problem.", min=1)] = 25,
    every: Annotated[
        bool, typer.Option("--all", help="Also problems that no library here compares with, and the kernels' names.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Select, build, run and verify kernels for a few problems, and compare with NumPy and PyTorch."""
    from tilewright.arch import host_facts
    from tilewright.backends.base import resolve_target
    from tilewright.dispatch.registry import Registry
    from tilewright.runtime.devices import device_of
    from tilewright.runtime.host import thread_count

    shown = _shown(list(op or []))
    registry = Registry(resolve_target(target or None).name)
    if not every:
        shown = [(op, _compared(op, demo, registry.kind)) for op, demo in shown]
    _build(registry, shown, jobs)
    rows = _run(registry, shown, repeat)
    if json:
        from tilewright.ops.base import plain

        print_json({"target": registry.target, "threads": thread_count(), "rows": plain(rows)})
    else:
        on_host = registry.kind == "cpu"
        device = host_facts().model if on_host else str(device_of(registry.target).identity.get("model", ""))
        threads = f", {thread_count()} threads" if on_host else ""
        _show(rows, f"{device}{threads}, {registry.target}", _notes(shown), every)
    wrong = sum(not row.ok for row in rows)
    say(f"{len(rows) - wrong} of {len(rows)} results verified against a float64 reference")
    if wrong:
        raise typer.Exit(3)


def _compared(op: Op, demo: Demo, kind: str) -> Demo:
    """The problems that an installed library computes too; of an op without peers, all."""
    peers = [peer for name, peer in demo.peers.items() if _is_installed(name)]
    if not peers:
        return demo
    known = {title: op.problem(values) for title, values in demo.problems.items()}
    kept = {title for title, problem in known.items() if any(peer(problem, kind) is not None for peer in peers)}
    return replace(demo, problems={title: values for title, values in demo.problems.items() if title in kept})


def _is_installed(library: str) -> bool:
    return importlib.util.find_spec(_MODULES.get(library, library)) is not None


def _build(registry: Registry, shown: list[tuple[Op, Demo]], jobs: int) -> None:
    """Build the kernels that will be chosen, in parallel; a call would build them one by one, on first use."""
    from tilewright.dispatch.registry import Registry
    from tilewright.runtime.host import clock

    start = clock()
    problems = {op.name: [op.problem(values) for values in demo.problems.values()] for op, demo in shown}
    specs = _selected(registry, problems.values())
    with progress("generate and compile") as advance:
        Registry(registry.target, specs.values()).build(max_workers=jobs or None, progress=advance)
    count = counted(sum(map(len, problems.values())), "problem")
    chosen = f"{counted(len(specs), 'kernel')} chosen for {count} on {registry.target}"
    say(f"{chosen}, built in {clock() - start:.1f} s")


def _selected(registry: Registry, problems: Iterable[list[Any]]) -> dict[str, KernelSpec]:
    """The kernels of the problems.  What selection and calls compile for themselves is compiled side by side."""
    from concurrent.futures import ThreadPoolExecutor

    from tilewright.runtime import fast_path

    with ThreadPoolExecutor() as pool:
        called = pool.submit(fast_path.library)
        selections = pool.map(
            lambda some: [stage for problem in some for stage in registry.select(problem).stages], problems
        )
        specs = {stage.spec.digest: stage.spec for stages in selections for stage in stages}
        called.result()
    return specs


def _run(registry: Registry, shown: list[tuple[Op, Demo]], repeat: int) -> list[Row]:
    rows: list[Row] = []
    total = sum(len(demo.problems) for _, demo in shown)
    with progress("run and verify") as advance:
        for op, demo in shown:
            for title, values in demo.problems.items():
                rows.append(_row(registry, title, op.problem(values), demo, repeat))
                advance(len(rows), total)
    return rows


def _row(registry: Registry, title: str, problem: Any, demo: Demo, repeat: int) -> Row:
    from tilewright.dispatch.problem_run import run_problem

    first = run_problem(registry, problem, repeat=1, seed=1, verify=True)
    runs = _runs(first["seconds"], repeat)
    time.sleep(_REST)  # the reference is NumPy's
    report = run_problem(registry, problem, repeat=runs, seed=1, verify=False)
    peers = {name: _peer_seconds(name, call, problem, registry.kind, repeat) for name, call in demo.peers.items()}
    return Row(
        op=problem.op,
        title=title,
        problem=first["problem"],
        kernel=first["kernel"],
        tier=first["tier"],
        seconds=report["seconds"],
        gflops=report["gflops"],
        max_error=first["max_error"],
        error_over_bound=first["error_over_bound"],
        ok=first["ok"],
        peers={name: seconds for name, seconds in peers.items() if seconds is not None},
    )


def _runs(seconds: float, repeat: int) -> int:
    return max(1, min(repeat, int(_MOST_SECONDS / max(seconds, 1e-9))))


def _peer_seconds(name: str, peer: Any, problem: Any, kind: str, repeat: int) -> float | None:
    """Median seconds of another library's call; None where it is not installed or has no such call."""
    if not _is_installed(name):
        return None
    if name == "PyTorch":
        _same_threads()
    call = peer(problem, kind)
    if call is None:
        return None
    _timed(call)
    first = _timed(call)
    seconds = statistics.median([first, *(_timed(call) for _ in range(_runs(first, repeat) - 1))])
    time.sleep(_REST)
    return seconds


def _same_threads() -> None:
    import torch

    from tilewright.runtime.host import thread_count

    torch.set_num_threads(thread_count())


def _timed(call: Callable[[], object]) -> float:
    from tilewright.runtime.host import clock

    start = clock()
    call()
    return clock() - start


def _show(rows: list[Row], title: str, notes: Mapping[str, list[str]], kernels: bool) -> None:
    """The table; a narrow screen has room for fewer columns, and the names of kernels are wider than most."""
    width = shutil.get_terminal_size((_MOST_COLUMNS, 25)).columns
    peers = list(dict.fromkeys(name for row in rows for name in row.peers))
    columns: dict[str, Callable[[Row], str]] = {
        "time us": lambda row: f"{row.seconds * 1e6:.1f}" if row.ok else "WRONG",
        **({"GFLOP/s": lambda row: f"{row.gflops:.1f}"} if width >= _WITH_RATES else {}),
        **{f"x {name}": partial(_speedup, name) for name in peers},
        **({"error": lambda row: f"{row.error_over_bound:.3f}"} if width >= _WITH_RATES else {}),
    }
    names = ["kernel"] if kernels else []
    shown = table("op", "problem", *columns, "tier", *names, fold=["problem", *names], right=list(columns), title=title)
    for row in rows:
        cells = [cell(row) for cell in columns.values()]
        shown.add_row(row.op, row.title, *cells, row.tier, *([row.kernel] if names else []))
    show(shown)
    for line in _legend(rows, peers, notes, list(columns)):
        for part in textwrap.wrap(line, min(width, _MOST_COLUMNS), subsequent_indent=" " * 10) or [""]:
            say(part)


def _notes(shown: list[tuple[Op, Demo]]) -> dict[str, list[str]]:
    """How libraries compute what they have no call for."""
    notes: dict[str, list[str]] = {}
    for _, demo in shown:
        for name, note in demo.peer_notes.items():
            notes.setdefault(name, []).append(note)
    return notes


def _speedup(name: str, row: Row) -> str:
    return f"{row.peers[name] / row.seconds:.2f}" if name in row.peers else "-"


def _legend(rows: list[Row], peers: list[str], notes: Mapping[str, list[str]], columns: list[str]) -> list[str]:
    """What each column means."""
    lines = ["", "time us   median of the whole Python call, in microseconds; each library is timed alone"]
    if "GFLOP/s" in columns:
        lines.append("GFLOP/s   operations of the problem per second, in 10^9")
    if peers:
        lines.append(f"x         speedup: the time of {' or '.join(peers)} over ours; - if it has no such call")
    lines += [f"          {name} computes {'; '.join(notes[name])}" for name in peers if notes.get(name)]
    if "error" in columns:
        lines.append("error     largest error relative to the allowed bound; over 1 is WRONG")
    seen = [f"{tier}: {meaning}" for tier, meaning in TIER_MEANINGS.items() if any(row.tier == tier for row in rows)]
    lines.append(f"tier      how the kernel was selected; {'; '.join(seen)}")
    if "PyTorch" not in peers and importlib.util.find_spec("torch") is None:
        lines.append("PyTorch is not installed here; if it is, a column compares with it")
    return lines
