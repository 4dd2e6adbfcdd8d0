"""`generate`: specs to a folder of instance files and one manifest, touching only what changed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tilewright.arch import host_facts
from tilewright.codegen.collect import Rejection, split_legal
from tilewright.codegen.files import Emitted, emit_many
from tilewright.codegen.folder import demand_ours, foreign, held, output_error, output_folder, write_if_changed
from tilewright.codegen.manifest import MANIFEST, MANIFEST_SCHEMA, NotOurs, OtherVersion, read_manifest
from tilewright.codegen.workers import Progress, chunks, emit_in_processes, processes_for
from tilewright.errors import InternalError, RequestError
from tilewright.ops.base import KernelSpec


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, by file name."""

    folder: Path
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    rejected: tuple[Rejection, ...]
    manifest_written: bool
    processes: int
    seconds: float


def generate(
    specs: Iterable[KernelSpec],
    output_dir: Path,
    jobs: int = 0,
    on_progress: Progress | None = None,
    *,
    add: bool = False,
) -> Report:
    """Render the legal specs into `output_dir` and list them in its manifest.

    The folder mirrors the request: files that an earlier run wrote and this one does not ask for
    are removed, unless `add` keeps them.  Files that someone else wrote or edited are never
    removed.  `jobs` 0 means one for each core; few specs are rendered in this process.
    """
    start = time.perf_counter()
    legal: dict[KernelSpec, None] = {}
    rejected: list[Rejection] = []
    for verdict in split_legal(specs):
        if isinstance(verdict, Rejection):
            rejected.append(verdict)
        else:
            legal[verdict] = None
    wanted = list(legal)
    folder = output_folder(output_dir)
    processes = processes_for(len(wanted), jobs or host_facts().cores)
    with _whole(folder, {spec.name for spec in wanted}), held(folder):
        before = _listed_before(folder, add)
        demand_ours(folder, [spec.name for spec in wanted], before)
        if processes > 1:
            emitted = emit_in_processes(wanted, folder, processes, on_progress)
        else:
            emitted = _emit_here(wanted, folder, on_progress)
        emitted.sort(key=lambda file: file.name)
        _demand_distinct(emitted)
        files = {file.file_name for file in emitted}
        stale = {name: entry for name, entry in before.items() if name not in files}
        entries = [(file.name, file.entry) for file in emitted]
        if add:
            entries.extend((str(entry["name"]), json.dumps(entry)) for entry in stale.values())
        manifest_written = write_if_changed(folder / MANIFEST, _manifest_text(entries))
        removed = () if add else _remove(folder, stale)
    return Report(
        folder=folder,
        written=tuple(file.file_name for file in emitted if file.written),
        unchanged=tuple(file.file_name for file in emitted if not file.written),
        removed=removed,
        rejected=tuple(rejected),
        manifest_written=manifest_written,
        processes=processes,
        seconds=time.perf_counter() - start,
    )


@contextmanager
def _whole(folder: Path, names: Collection[str]) -> Iterator[None]:
    """Where a kernel cannot be written, those before it go again, and so do folders that were made for them."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    before = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in list(folder.iterdir()):
                if path.name not in before and path.stem in names:
                    path.unlink(missing_ok=True)
        for path in created:
            with suppress(OSError):
                path.rmdir()
        raise


def _emit_here(specs: Sequence[KernelSpec], folder: Path, on_progress: Progress | None) -> list[Emitted]:
    emitted: list[Emitted] = []
    for chunk in chunks(specs):
        emitted.extend(emit_many(chunk, folder))
        if on_progress is not None:
            on_progress(len(emitted), len(specs))
    return emitted


def _demand_distinct(emitted: Sequence[Emitted]) -> None:
    for file, other in pairwise(emitted):
        if file.name == other.name:
            raise InternalError(f"two specs share the name {file.name}", rule="name-unique", value=file.name)


def _manifest_text(entries: list[tuple[str, str]]) -> bytes:
    """One kernel a line, by name: two manifests can be compared with any text tool."""
    lines = ",\n".join(f"    {entry}" for _, entry in sorted(entries))
    return f'{{\n  "schema": {MANIFEST_SCHEMA},\n  "kernels": [\n{lines}\n  ]\n}}\n'.encode()


def _listed_before(folder: Path, add: bool) -> Mapping[str, dict[str, Any]]:
    """The entries of an earlier run by file name; a manifest that is not ours is nothing to write over."""
    path = folder / MANIFEST
    try:
        return read_manifest(folder)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise output_error(path, error) from None
    except NotOurs:
        raise foreign(path) from None
    except OtherVersion as error:
        if not add:
            return {}  # nothing of it is ours to remove
        raise RequestError(
            f"{path} cannot be added to: {error}",
            rule="manifest",
            value=str(path),
            remedy="generate without adding, or into an empty folder",
        ) from None


def _remove(folder: Path, stale: Mapping[str, dict[str, Any]]) -> tuple[str, ...]:
    """Remove files of an earlier run, each only if it still is what that run wrote."""
    removed: list[str] = []
    for name, entry in sorted(stale.items()):
        path = folder / name
        if path.name != name:
            continue  # a manifest may only speak of files in its own folder
        with suppress(OSError):
            if hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]:
                path.unlink()
                removed.append(name)
    return tuple(removed)
