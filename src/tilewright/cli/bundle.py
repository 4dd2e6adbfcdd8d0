"""`tilewright bundle ...`: kernels for several targets in one file, for machines that must not compile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.common import (
    AsJson,
    Expression,
    Jobs,
    Summaries,
    fit,
    numbers,
    print_json,
    progress,
    say,
    show,
    table,
    words,
)
from tilewright.errors import RequestError, counted

File = Annotated[Path, typer.Argument(metavar="FILE", help="A bundle.")]
Several = Annotated[list[str] | None, typer.Option("--problems", metavar="[OP=]SET|FILE", help=(
    'A recording, a JSON file {"OP": [problems]}, or with OP= a problem set or file of that op; may be repeated.'
))]  # fmt: skip
Record = Annotated[
    list[Path] | None,
    typer.Option("--record", metavar="FILE", help="A recording of a program (`tilewright record`); may be repeated."),
]
Pool = Annotated[
    list[str] | None,
    typer.Option("--pool", metavar="[OP=]POOL", help="All kernels of a pool, of one op or of all; may be repeated."),
]
Targets = Annotated[
    list[str] | None, typer.Option("--targets", "--target", metavar="ARCH,...", help="Archs to build kernels for.")
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The bundle to write.")]
Threads = Annotated[
    list[str] | None,
    typer.Option(
        "--threads", metavar="N,...", help="Thread counts that CPU kernels are chosen for; default: this CPU's."
    ),
]
Loss = Annotated[
    str, typer.Option("--loss", metavar="SHARE", help="Most time to lose by a kernel that is not the best: 3% or 0.03.")
]
MaxSize = Annotated[
    str,
    typer.Option("--max-size", metavar="SIZE", help="Largest file, such as 20MB; more loss is accepted to fit."),
]
LockFile = Annotated[
    Path | None, typer.Option("--lock", metavar="FILE", help="A lock file that is in force with the bundle.")
]
Limit = Annotated[int, typer.Option("--limit", min=0, help="At most so many kernels of a pool and op; 0 means all.")]
Fallback = Annotated[bool, typer.Option("--fallback/--no-fallback", help="Add a fallback kernel for each signature.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse to write a bundle that does not cover every problem.")]
Page = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page too.")]
OfOp = Annotated[str, typer.Option("--op", help="Problems of this op only.")]

_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(%?)")
_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*([kKMG]?i?)[bB]?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Summaries, no_args_is_help=True, rich_markup_mode=None,
        help="Kernels for several targets in one file, for machines without a compiler.",
    )  # fmt: skip
    for name, command in (
        ("build", _build), ("check", _check), ("coverage", _coverage), ("diff", _diff), ("list", _list),
        ("show", _show), ("wheel", _wheel),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="bundle")


def _build(
    output: Output,
    targets: Targets = None,
    problems: Several = None,
    record: Record = None,
    pool: Pool = None,
    lock: LockFile = None,
    loss: Loss = "",
    max_size: MaxSize = "",
    threads: Threads = None,
    filter: Expression = "",
    limit: Limit = 0,
    fallback: Fallback = True,
    strict: Strict = False,
    jobs: Jobs = 0,
    json: AsJson = False,
) -> None:
    """Build kernels for problems or pools on several targets, and write them with all they need into one file.

    No GPU is needed, only compilers.  The same inputs give the same bytes.
    """
    from tilewright.bundle.build import Wish, build

    wish = Wish(
        targets=words(targets),
        what=[*(_with_op(word) for word in problems or ()), *(("", str(word)) for word in record or ())],
        pools=[_with_op(word) for word in pool or ()],
        expression=filter,
        limit=limit,
        threads=_thread_counts(threads),
        loss=_share(loss) if loss else None,
        max_bytes=_size(max_size) if max_size else 0,
        lock=lock,
        fallback=fallback,
        strict=strict,
    )
    with progress("bundle") as advance:
        report = build(output, wish, jobs=jobs, progress=advance)
    if json:
        print_json(report.to_dict())
    else:
        typer.echo(fit(str(report)))


def _with_op(text: str) -> tuple[str, str]:
    """`OP=WORD` as an op and a word; a word alone has no op."""
    from tilewright import ops

    op, equals, word = text.partition("=")
    if equals and op in ops.op_names():
        return op, word
    return "", text


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"--loss {text!r} is no share", rule="bundle-loss", value=text, remedy="give 3% or 0.03")
    return float(match[1]) / (100 if match[2] else 1)


def _thread_counts(texts: Sequence[str] | None) -> tuple[int, ...]:
    counts = numbers("--threads", texts)
    if 0 in counts:
        raise RequestError(
            "--threads 0: kernels are chosen for a number of threads",
            rule="option-value",
            value=0,
            remedy="give 1 or more, or leave --threads out for this CPU's",
        )
    return counts


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match is not None else 0
    if not size:
        raise RequestError(
            f"--max-size {text!r} is no size", rule="bundle-size", value=text, remedy="give 20MB, or 512kB"
        )
    return size


def _check(files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Bundles.")]) -> None:
    """Read every byte of bundles and compare it with their digests; say whether this machine can use them."""
    from tilewright.build.bundled import Bundle
    from tilewright.bundle.build import size_text

    for path in files:
        bundle = Bundle(path)
        count = bundle.file.check()
        kernels = sum(1 for target in bundle.targets for _ in bundle.specs(target))
        typer.echo(f"{path}: {count} files, {size_text(bundle.file.size)}, as they were written; {kernels} kernels")


def _coverage(file: File, targets: Targets = None, op: OfOp = "", html: Page = None, json: AsJson = False) -> None:
    """For every problem and target: the kernel, its tier, the expected loss, and what is missing and why."""
    from tilewright.build.bundle_file import BundleFile
    from tilewright.bundle import coverage
    from tilewright.bundle.plan import covered
    from tilewright.codegen.folder import demand_replaceable, write_if_changed

    if html is not None:
        demand_replaceable(html, coverage.MARK.encode())
    with BundleFile(file) as bundle:
        rows = coverage.rows_of(bundle, words(targets), op)
        if html is not None:
            write_if_changed(html, coverage.page(bundle, rows).encode())
    if json:
        print_json(rows)
        return
    rows_table = table(*coverage.COLUMNS, fold=("kernel", "why"), right=("threads", "loss"))
    for row in rows:
        rows_table.add_row(*coverage.cells(row))
    show(rows_table)
    say(f"{sum(map(covered, rows))} of {len(rows)} problems are covered")


def _diff(first: File, second: File, json: AsJson = False) -> None:
    """List the differences of two bundles: kernels, libraries, files, and the kernels of each problem."""
    from tilewright.build.bundle_file import BundleFile
    from tilewright.bundle.compare import compare
    from tilewright.ops.base import plain

    with BundleFile(first) as before, BundleFile(second) as after:
        for each in (before, after):
            each.check()  # manifests are compared, and must be true of the bytes
        differences = compare(before, after)
    if json:
        print_json([plain(difference) for difference in differences])
        return
    for difference in differences:
        typer.echo(str(difference))
    say(counted(len(differences), "difference") if differences else "no difference")


def _list(json: AsJson = False) -> None:
    """List the bundles of installed packages, which are in force without being named."""
    from tilewright import plugins
    from tilewright.build import bundled
    from tilewright.errors import TilewrightError

    rows: list[dict[str, Any]] = []
    for name in plugins.names(bundled.GROUP):
        row: dict[str, Any] = {"name": name, "package": plugins.package_of(bundled.GROUP, name)}
        try:
            bundle = bundled.Bundle(bundled.installed_path(name))
            row |= {"path": str(bundle.path), "targets": list(bundle.targets), "kernels": len(bundle.libraries)}
        except TilewrightError as error:
            row["error"] = error.message
        rows.append(row)
    if json:
        print_json(rows)
        return
    if not rows:
        say("no installed package brings a bundle (`tilewright bundle wheel` makes one that does)")
    for row in rows:
        summary = row.get("error") or f"{row['kernels']} kernels for {', '.join(row['targets'])}: {row['path']}"
        typer.echo(f"{row['name']} ({row['package']}): {summary}")


def _show(file: File, json: AsJson = False) -> None:
    """List the contents of a bundle, with the size of every item."""
    from tilewright.build.bundle_file import BundleFile
    from tilewright.bundle.build import size_text

    with BundleFile(file) as bundle:
        manifest, size = bundle.manifest, bundle.size
    if json:
        print_json({name: value for name, value in manifest.items() if name not in ("files", "coverage")})
        return
    by, host = manifest.get("created_by"), manifest.get("host")
    typer.echo(f"{file}: {size_text(size)}, made by {by} for {host}, ABI {manifest['abi'][0]}")
    contents = table("bytes", "kind", "target", "name", "compiler", fold=("compiler",), right=("bytes",))
    for target, part in manifest["targets"].items():
        for kernel in sorted(part["kernels"], key=lambda entry: (entry["op"], entry["name"])):
            role, compiler = str(kernel.get("role", "")), str(kernel.get("compiler", ""))
            contents.add_row(str(kernel["bytes"]), role, target, kernel["name"], compiler)
    for kind, rows in _others(manifest):
        for row in rows:
            contents.add_row(str(row["bytes"]), kind, "", row["file"], "")
    show(contents)


def _others(manifest: dict[str, Any]) -> Sequence[tuple[str, Sequence[dict[str, Any]]]]:
    kinds = ("support", "models", "locks", "records")
    return [("selection", list(manifest["selection"].values())), *((kind, manifest.get(kind, [])) for kind in kinds)]


def _wheel(
    file: File,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write to.")] = Path(),
    name: Annotated[str, typer.Option("--name", help="Name of the package; default: tilewright-bundle-FILE.")] = "",
    version: Annotated[str, typer.Option("--version", help="Version of the package.")] = "0.1.0",
) -> None:
    """Write a package with a bundle in it, which Tilewright finds where it is installed."""
    from tilewright.bundle.wheel import write_wheel

    typer.echo(str(write_wheel(file, output, name=name, version=version)))
