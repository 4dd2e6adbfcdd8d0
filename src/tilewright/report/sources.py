"""What a report is made from: results and choices out of stores and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.dispatch.results import Choice, Result, Results, Unreadable
from tilewright.errors import FileError, RequestError
from tilewright.tune import export


@dataclass(frozen=True, slots=True)
class Source:
    """One file, or more: all their results, and the choices that were saved."""

    names: tuple[str, ...]  # without their folders: a page is passed on
    results: tuple[Result, ...]
    choices: tuple[Choice, ...] = ()


def read(paths: Sequence[Path], *, op: str = "", arch: str = "") -> Source:
    """The results of some files, of one op and of one arch's kernels where they are named."""
    results: list[Result] = []
    choices: list[Choice] = []
    for path in paths:
        read, chosen = _table(path) if path.suffix in export.FORMATS else _store(path)
        results += read
        choices += chosen
    kept = [result for result in results if (not op or result.op == op) and (not arch or result.kernel.arch == arch)]
    if not kept:
        wanted = " and ".join(f"of {word}" for word in (op, arch) if word)
        raise RequestError(
            f"{', '.join(map(str, paths))}: there are no results{' ' + wanted if wanted else ''}",
            rule="report-empty",
            value=len(results),
            remedy="measure some: `tilewright bench OP --problems validation`, or name other files",
        )
    return Source(tuple(path.name for path in paths), _newest(kept, len(paths)), tuple(choices))


def _newest(results: Sequence[Result], files: int) -> tuple[Result, ...]:
    """Several files may describe the same thing: the newest counts."""
    if files == 1:
        return tuple(results)
    newest: dict[tuple[object, ...], Result] = {}
    for result in results:
        key = export.key_of(result)
        if key not in newest or newest[key].date <= result.date:
            newest[key] = result
    return tuple(newest.values())


def _table(path: Path) -> tuple[list[Result], list[Choice]]:
    return export.read(path), []


def _store(path: Path) -> tuple[list[Result], list[Choice]]:
    if not path.is_file():
        raise _unusable(path, "it is no regular file" if path.exists() else "there is no such file")
    store = Results(path)
    try:
        return list(store.all()), store.choices()
    except Unreadable as error:
        raise _unusable(path, str(error)) from None
    finally:
        store.close()


def _unusable(path: Path, why: str) -> FileError:
    return FileError(
        f"{path} cannot be used: {why}",
        rule="results-file",
        value=str(path),
        remedy="give stores (.db) that `bench --store` made, or tables (.csv, .parquet) that `bench --output` wrote",
    )
