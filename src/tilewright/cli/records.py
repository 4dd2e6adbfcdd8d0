"""`tilewright records`: measured choices: list them, forget them, carry them to another machine, compare them."""

from __future__ import annotations

import hashlib
import json as json_text
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli.common import AsJson, Summaries, print_json, say, short_name, show, table
from tilewright.errors import RequestError, UnknownNameError, counted

if TYPE_CHECKING:
    from tilewright.dispatch.records import Record, Records
    from tilewright.dispatch.results import Result

_Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Records, by the ids that `ls` shows.")]
_SHORTEST = 4


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Summaries,
        no_args_is_help=True,
        rich_markup_mode=None,
        help="Manage measured choices: list, forget, export, merge.",
    )
    group.command("ls")(ls)
    group.command("forget")(forget)
    group.command("export")(export)
    group.command("merge")(merge)
    group.command("diff")(diff)
    app.add_typer(group, name="records")


def _records() -> Records:
    from tilewright.dispatch.records import records

    store = records()
    store.refresh()
    return store


def id_of(record: Record) -> str:
    """What distinguishes a record from all others, short enough to type."""
    from tilewright.dispatch.records import identity_key

    return hashlib.sha256(repr(identity_key(record)).encode()).hexdigest()[:12]


def _named(records: Records, ids: Sequence[str]) -> Callable[[Record], bool]:
    known = [id_of(record) for record in records.all()]
    for word in ids:
        if len(word) < _SHORTEST or not any(identity.startswith(word) for identity in known):
            raise UnknownNameError(
                f"{word!r} is no record", rule="record-id", value=word, remedy="`tilewright records ls` shows their ids"
            )
    return lambda record: id_of(record).startswith(tuple(ids))


def _description(record: Record) -> str:
    """The problem in words where its op can be asked."""
    from tilewright import ops
    from tilewright.errors import TilewrightError

    try:
        text: str = ops.op(record.op).problem_from_dict(dict(record.problem)).describe()
    except TilewrightError:  # of an op or a version that is not here
        return f"{record.op} {json_text.dumps(dict(record.problem))}"
    return text


def _here(record: Record) -> bool:
    from tilewright.dispatch.records import machine

    there = record.machine.get("fingerprint")
    return bool(there) and machine(record.target).get("fingerprint") == there


def ls(json: AsJson = False) -> None:
    """List measured choices, newest first."""
    records = _records()
    newest = sorted(records.all(), key=lambda record: -record.date)
    if json:
        print_json(
            {
                "path": str(records.path),
                "records": [{"id": id_of(record), "here": _here(record), **record.to_dict()} for record in newest],
            }
        )
        return
    shown = table("id", "time us", "day", "here", "target", "problem", "winner", fold=["target", "problem", "winner"],
                  right=["time us"])  # fmt: skip
    for record in newest:
        day = time.strftime("%Y-%m-%d", time.gmtime(record.date))
        seconds = f"{record.winner.seconds * 1e6:.1f}"
        where = f"{record.target} x{record.threads}" if record.threads else record.target
        shown.add_row(
            id_of(record),
            seconds,
            day,
            "yes" if _here(record) else "no",
            where,
            _description(record),
            short_name(record.winner.name),
        )
    if newest:
        show(shown)
    say(f"{counted(len(newest), 'record')} in {records.path}")


def forget(
    ids: _Ids = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget every record.")] = False,
    elsewhere: Annotated[bool, typer.Option("--elsewhere", help="Forget records of other machines.")] = False,
) -> None:
    """Remove records; dispatch uses models and estimates again."""
    if not (ids or everything or elsewhere):
        raise RequestError(
            "no record to forget is named",
            rule="option-missing",
            remedy="give ids, --all or --elsewhere",
        )
    records = _records()
    named = _named(records, ids or [])
    count = records.forget(
        lambda record: everything or (bool(ids) and named(record)) or (elsewhere and not _here(record))
    )
    say(f"{count} forgotten, {len(records.all())} kept in {records.path}")


def export(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Output file; - means standard output.  A .csv or .parquet file gets every result of the store, "
            "failures too; any other the choices as JSON.",
        ),
    ],
    ids: _Ids = None,
) -> None:
    """Write records to a file that `merge` reads on another machine."""
    from tilewright.codegen.folder import write_if_changed
    from tilewright.tune.export import FORMATS

    records = _records()
    named = _named(records, ids or [])
    wanted = [record for record in records.all() if not ids or named(record)]
    text = "" if file.endswith(FORMATS) else _as_json(wanted)
    if file == "-":
        typer.echo(text, nl=False)
        return
    path = Path(file)
    if not file or path.exists():
        raise RequestError(
            f"{file or 'the empty name'} {'is there already' if file else 'is no file'}",
            rule="foreign-file",
            value=file,
            remedy="name a new file",
        )
    if file.endswith(FORMATS):
        say(f"{_write_table(path, records, wanted if ids else None)} results written to {path}")
        return
    write_if_changed(path, text.encode())
    say(f"{counted(len(wanted), 'record')} written to {path}")


def _as_json(listed: Sequence[Record]) -> str:
    from tilewright.dispatch.records import SCHEMA

    return json_text.dumps({"schema": SCHEMA, "records": [record.to_dict() for record in listed]}, indent=1) + "\n"


def _write_table(path: Path, records: Records, listed: Sequence[Record] | None) -> int:
    """All results of the store, or those about the same problems on the same devices as some records."""
    from tilewright.dispatch.results import Unreadable, canonical
    from tilewright.tune import export as tables

    tables.demand_writable(path)

    def about(op: str, problem: Any, device: Any, threads: int) -> tuple[Any, ...]:
        return op, canonical(problem), device.get("fingerprint"), threads

    wanted = (
        None
        if listed is None
        else {about(record.op, record.problem, record.machine, record.threads) for record in listed}
    )
    try:
        rows = [row for row in records.results.all()
                if wanted is None or about(row.op, row.problem, row.device, row.threads) in wanted]  # fmt: skip
    except Unreadable as error:
        raise _unusable(records.path, str(error)) from None
    tables.write(path, rows)
    return len(rows)


def merge(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File written by `export`, or a store (.db).")],
    json: AsJson = False,
) -> None:
    """Add the records of another machine; of two records for the same problem the newer one is kept."""
    from tilewright.tune.export import FORMATS

    if _is_store(file) or file.suffix in FORMATS:
        _merge_results(file, json=json)
        return
    read, wrong = _read(file)
    taken = _records().merge(read, newest=True)
    if json:
        print_json({"taken": taken, "older": len(read) - taken, "unreadable": wrong})
    else:
        for text in wrong[:10]:
            say(f"left out, {text}")
        say(f"{taken} taken, {len(read) - taken} were there as new or newer, {len(wrong)} cannot be read")
    if wrong:
        raise typer.Exit(1)


def _merge_results(file: Path, *, json: bool) -> None:
    """A store with its choices, or a table."""
    from tilewright.dispatch.results import Choice, Results, Unreadable
    from tilewright.tune import export as tables

    choices: list[Choice] = []
    if not _is_store(file):
        results = tables.read(file)
    elif not file.is_file():
        raise _unusable(file, "there is no such store")
    else:
        store = Results(file)
        try:
            results, choices = list(store.all()), store.choices()
        except Unreadable as error:
            raise _unusable(file, str(error)) from None
        finally:
            store.close()
    taken = _records().take(results, choices)
    if json:
        print_json({"taken": taken, "older": len(results) - taken, "unreadable": []})
    else:
        say(f"{taken} results taken, {len(results) - taken} were there as new or newer")


def _is_store(file: Path) -> bool:
    """By its name, or by how it begins: `bench --store` takes any name."""
    from tilewright.dispatch.schema import MAGIC

    if file.suffix == ".db":
        return True
    try:
        if not file.is_file():  # a pipe is read once
            return False
        with file.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # whoever reads it says why not


def _read(file: Path) -> tuple[list[Record], list[str]]:
    """The records of a file that `export` wrote, and what is wrong with those that cannot be read."""
    from tilewright import jsontext
    from tilewright.dispatch.records import SCHEMA, read_record

    try:
        data: Any = jsontext.loads(jsontext.read(file))
        if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("records"), list):
            raise ValueError(f"it is no list of records of schema {SCHEMA}")
    except (OSError, ValueError) as error:
        raise _unusable(file, str(getattr(error, "strerror", "") or error)) from None
    read: list[Record] = []
    wrong: list[str] = []
    for index, entry in enumerate(data["records"]):
        try:
            read.append(read_record(entry))
        except ValueError as error:
            wrong.append(f"record {index + 1}: {error}")
    return read, wrong


def _unusable(file: Path, why: str) -> RequestError:
    return RequestError(
        f"{file} cannot be read: {why}",
        rule="records-file",
        value=str(file),
        remedy="give a file that `tilewright records export` wrote (JSON, .csv, .parquet), or a store (.db)",
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a comparison: records by what they measure, and without any choice the fastest of what was."""

    records: Mapping[Any, Record]
    fastest: Callable[[], dict[Any, Record]]
    chosen: bool  # whether something was chosen there


def _side(file: Path | None) -> _Side:
    """This machine's store, another one, a table, or what `export` wrote."""
    from tilewright.dispatch.records import Records, identity_key
    from tilewright.dispatch.results import Unreadable
    from tilewright.tune import export as tables

    if file is not None and file.suffix in tables.FORMATS:
        rows = tables.read(file)
        return _Side({}, lambda: _fastest(rows), chosen=False)
    if file is not None and not _is_store(file):
        listed, wrong = _read(file)
        for text in wrong[:10]:
            say(f"{file}: left out, {text}")
        return _Side({identity_key(record): record for record in listed}, lambda: _quickest(listed), chosen=True)
    if file is not None and not file.is_file():
        raise _unusable(file, "there is no such store")
    store = _records() if file is None else Records(file.parent, file.name)

    def fastest() -> dict[Any, Record]:
        try:
            return _fastest(store.results.all())
        except Unreadable as error:
            raise _unusable(store.path, str(error)) from None

    try:
        chosen = store.results.has_choices()
    except Unreadable as error:
        raise _unusable(store.path, str(error)) from None
    listed = list(store.all())
    if chosen and store.empty:  # damaged, which was reported: nothing of it may be said to be missing
        raise _unusable(store.path, "its choices are damaged")
    return _Side({identity_key(record): record for record in listed}, fastest, chosen)


def _about(op: str, problem: Any, machine: Mapping[str, Any], threads: int) -> tuple[Any, ...]:
    """What a measurement without a choice is of."""
    from tilewright.dispatch.results import canonical

    return machine.get("fingerprint"), threads, op, canonical(problem)


def _quickest(listed: Iterable[Record]) -> dict[Any, Record]:
    """Records, each with the fastest of its kernels as if it were chosen."""
    return {
        _about(record.op, record.problem, record.machine, record.threads): replace(
            record, choice=min(record.timings, key=lambda each: (each.seconds, each.digest)).digest
        )
        for record in listed
    }


def _fastest(rows: Iterable[Result]) -> dict[Any, Record]:
    """The fastest right kernel of each problem, device and threads."""
    from tilewright.dispatch.records import Record, Timing

    best: dict[Any, Result] = {}
    for row in rows:
        if row.status == "ok" and row.seconds is not None:
            key = _about(row.op, row.problem, row.device, row.threads)
            known = best.get(key)
            if known is None or (row.seconds, row.kernel.digest) < (known.seconds or 0.0, known.kernel.digest):
                best[key] = row
    return {
        key: Record(
            row.op, row.problem, row.threads, row.kernel.arch, row.kernel.digest,
            (Timing(row.kernel.digest, row.kernel.name, row.kernel.spec, row.seconds or 0.0, row.spread,
                    row.error or 0.0),),
            row.method, row.versions, row.device,
        )
        for key, row in best.items()
    }  # fmt: skip


def diff(
    file: Annotated[
        Path, typer.Argument(metavar="A", help="File written by `export` (JSON or table), or a store (.db).")
    ],
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[B]", help="Second file; default: this machine's store.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the records that differ: only on one side, another winner, another time of the same winner.

    Where a side has no choices (a sweep's store, a table) the fastest kernels that were measured are compared.
    """
    sides = _side(file), _side(other)
    if all(each.chosen for each in sides):
        first, second = (each.records for each in sides)
    else:
        first, second = (each.fastest() for each in sides)
        lacks = [str(path or "this machine's store") for path, each in zip((file, other), sides, strict=True)
                 if not each.chosen]  # fmt: skip
        say(f"nothing was chosen in {' and '.join(lacks)}: the fastest kernels that were measured are compared")
    keys = dict.fromkeys([*first, *second])
    rows = [_difference(first.get(key), second.get(key)) for key in keys]
    changed = [row for row in rows if row["what"] != "same"]
    if json:
        print_json(changed)
        return
    shown = table("id", "what", "A us", "B us", "problem", "A", "B", fold=["problem", "A", "B"],
                  right=["A us", "B us"])  # fmt: skip
    for row in changed:
        times = [f"{seconds * 1e6:.1f}" if seconds is not None else "" for seconds in row["seconds"]]
        shown.add_row(row["id"], row["what"], *times, row["problem"], *map(short_name, row["winners"]))
    if changed:
        show(shown)
    say(f"{len(changed)} differ, {len(rows) - len(changed)} are the same")


def _difference(record: Record | None, other: Record | None) -> dict[str, Any]:
    there = [each for each in (record, other) if each is not None]
    if len(there) == 1:
        what = "only A" if other is None else "only B"
    elif there[0].choice != there[1].choice:
        what = "other winner"
    else:
        what = "same" if there[0].winner.seconds == there[1].winner.seconds else "other time"
    return {
        "id": id_of(there[0]),
        "what": what,
        "problem": _description(there[0]),
        "winners": [each.winner.name if each is not None else "" for each in (record, other)],
        "seconds": [each.winner.seconds if each is not None else None for each in (record, other)],
    }
