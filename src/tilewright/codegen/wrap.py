"""`wrap`: one small source a generated kernel, and build files that make one library of them all.

The folder of kernels is read, never changed.  The output folder mirrors it: a wrapper whose kernel
is gone goes too, and build files of earlier runs are kept in step.  Only files that carry our mark
and are still listed in our own record are replaced or removed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import KernelsDefaults, ObjectRules, backend, kernels_of
from tilewright.codegen.build_files import (
    BUILD_SYSTEMS,
    MAKE_OBJECTS,
    MARK,
    OBJECT_LIST,
    Layout,
    Unit,
    demand_buildable,
)
from tilewright.codegen.folder import demand_printable, foreign, held, output_error, output_folder, write_if_changed
from tilewright.codegen.manifest import MANIFEST, read_manifest
from tilewright.errors import RequestError, TilewrightError, UnknownNameError, nearest
from tilewright.ops import op as op_by_name
from tilewright.ops.base import KernelSpec

RECORD = "wrappers.json"  # what we wrote into the output folder
RECORD_SCHEMA = 1
THREADS = 8  # waiting for a disk, not computing

# What a compiler, a shell and three build systems all read as a plain name; kernels we name always are.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_+@,-][A-Za-z0-9_ .+@,-]*")
_SAFE = re.compile(r"[A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class WrapReport:
    """What a run did, by file name; `left_out` and `ignored` hold names with the reason."""

    folder: Path
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    build_files: Mapping[str, bool]  # whether each was written now
    build_systems: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]  # kernels of the manifest that were asked for and cannot be wrapped
    ignored: tuple[tuple[str, str], ...]  # other files, and kernels that the pattern does not ask for
    archs: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what a person should know of the compiler before building
    compile_memory: int = 0  # bytes the largest compile needs at its peak, whatever the compiler


def wrap(
    kernel_dir: Path,
    output_dir: Path,
    *,
    pattern: str = "",
    build_systems: Iterable[str] = (),
    parallel: bool = False,
    offload_compress: bool = False,
) -> WrapReport:
    """Write a wrapper for each kernel of `kernel_dir` that `generate` listed and `pattern` matches.

    No pattern means every kernel.  `build_systems` are names of `BUILD_SYSTEMS`; those of earlier
    runs in the folder are written again with them.  `parallel` writes with several threads, `offload_compress`
    compresses device code where the compiler can.
    """
    wanted = tuple(dict.fromkeys(build_systems))
    for name in wanted:
        if name not in BUILD_SYSTEMS:
            raise UnknownNameError(
                f"{name!r} is no build system", rule="build-system", value=name, remedy=nearest(name, [*BUILD_SYSTEMS])
            )
    source, folder = output_folder(kernel_dir, "--kernel-dir"), output_folder(output_dir)
    for place in (source.resolve(), folder.resolve()):
        demand_printable(place)
    entries, left_out, ignored = _kernels(source, pattern)
    layout_rules = _rules(entries)
    notes = _notes(entries, layout_rules)
    if offload_compress:
        plain = [arch for arch, rules in layout_rules.items() if not rules.compress_flags]
        notes += (f"the compiler of {', '.join(plain)} does not compress device code",) if plain else ()
        layout_rules = {arch: rules.compressed() for arch, rules in layout_rules.items()}
    units = _units(entries)
    _demand_apart(source, folder, entries, units)
    wrappers = {unit.wrapper: _wrapper_text(str(entry["file"])) for unit, entry in zip(units, entries, strict=True)}
    with held(folder):
        before = _read_record(folder)
        systems = tuple(system for system in BUILD_SYSTEMS if system in wanted or system in before.systems)
        layout = Layout(units, layout_rules, _way(folder, source))
        for system in systems:
            demand_buildable(system, layout, folder.resolve())
        files = {name: text for system in systems for name, text in BUILD_SYSTEMS[system](layout).items()}
        _demand_ours(folder, [*wrappers, *files], before)
        # The record first, with old and new: a run that dies halfway still knows its own files.
        digests = {name: _digest(text) for name, text in {**wrappers, **files}.items()}
        _write_record(folder, systems, {**before.digests, **digests})
        written = _write_all(folder, wrappers, THREADS if parallel else 1)
        written_files = _write_all(folder, files, 1)
        removed, kept = _remove(folder, {k: v for k, v in before.digests.items() if k not in digests})
        _write_record(folder, systems, {**kept, **digests})
    return WrapReport(
        folder=folder,
        written=tuple(name for name in wrappers if name in written),
        unchanged=tuple(name for name in wrappers if name not in written),
        removed=removed,
        build_files={name: name in written_files for name in files},
        build_systems=systems,
        left_out=left_out,
        ignored=ignored,
        archs=tuple(layout_rules),
        notes=notes,
        compile_memory=max(map(_compile_memory, entries), default=0) if systems else 0,
    )


def _compile_memory(entry: Mapping[str, Any]) -> int:
    """What one compile needs; of a kernel whose spec another version wrote, what any of the op does."""
    try:
        spec = op_by_name(str(entry["op"])).spec_from_dict(dict(entry.get("spec") or {}))
        return kernels_of(arch_by_name(str(entry["arch"])).backend, spec).compile_memory(spec, "")
    except TilewrightError:
        return KernelsDefaults().compile_memory(KernelSpec("", None, None, ""), "")


# -- what there is to wrap -----------------------------------------------------------------------------


_Reasons = tuple[tuple[str, str], ...]


def _kernels(folder: Path, pattern: str) -> tuple[list[dict[str, Any]], _Reasons, _Reasons]:
    """The manifest's entries to wrap, by file name; kernels that cannot be; what nobody asked for.  With reasons."""
    present = _present(folder)
    listed = _manifest(folder, present)
    ignored: dict[str, str] = {name: "not in the manifest" for name in present if name not in listed}
    ignored.pop(MANIFEST, None)
    left_out: dict[str, str] = {}
    kernels: list[dict[str, Any]] = []
    for name, entry in sorted(listed.items()):
        if pattern and not fnmatch.fnmatchcase(name, pattern):
            ignored[name] = f"does not match {pattern}"
        elif not _PLAIN_NAME.fullmatch(name):
            left_out[name] = "its name has characters that compilers or build files read otherwise"
        elif name not in present:
            left_out[name] = "in the manifest, but gone"
        else:
            kernels.append(entry)
    if not kernels:
        some = next((name for name in sorted(listed) if name in present), "")
        raise RequestError(
            f"{folder} has no kernel to wrap"
            + (f" that matches {pattern!r}" if pattern else f": its {MANIFEST} lists none that is there"),
            rule="no-kernels",
            value=pattern or str(folder),
            remedy=f'its kernels are named like {some}: leave --pattern out, or give "*{Path(some).suffix}"'
            if some
            else "generate them again: tilewright generate OP --output-dir ...",
        )
    return kernels, tuple(left_out.items()), tuple(sorted(ignored.items()))


def _present(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except OSError as error:
        reason = "there is no such folder" if isinstance(error, FileNotFoundError) else error.strerror
        raise RequestError(
            f"{folder} cannot be read: {reason}",
            rule="kernel-dir",
            value=str(folder),
            remedy="give the folder that `tilewright generate --output-dir` wrote",
        ) from None


def _manifest(folder: Path, present: set[str]) -> dict[str, dict[str, Any]]:
    """The kernels that `generate` wrote, by file name."""
    path = folder / MANIFEST
    remedy = "write the kernels with `tilewright generate --output-dir`, which leaves a manifest beside them"
    if MANIFEST not in present:
        what = "is empty" if not present else f"has no {MANIFEST}, so the target of its files is unknown"
        raise RequestError(f"{folder} {what}", rule="no-kernels", value=str(folder), remedy=remedy)
    try:
        return read_manifest(folder)
    except (OSError, ValueError) as error:
        raise RequestError(
            f"{path} cannot be used: {error}", rule="manifest", value=str(path), remedy="generate the kernels again"
        ) from None


def _units(entries: Sequence[Mapping[str, Any]]) -> tuple[Unit, ...]:
    units: list[Unit] = []
    taken: set[str] = set()
    for entry in entries:
        stem = Path(str(entry["file"])).stem
        plain = "".join(letter if _SAFE.match(letter) else f"_{ord(letter):02x}" for letter in stem)
        name = plain
        while name in taken:
            name = f"{name}_"
        taken.add(name)
        arch = str(entry["arch"])
        units.append(Unit(stem, stem + backend(arch_by_name(arch).backend).wrapper_suffix, name, arch))
    return tuple(units)


def _rules(entries: Sequence[Mapping[str, Any]]) -> dict[str, ObjectRules]:
    ops: dict[str, set[str]] = {}
    for entry in entries:
        ops.setdefault(str(entry["arch"]), set()).add(str(entry["op"]))
    names = {name: arch_by_name(name).backend for name in sorted(ops)}
    if len(set(names.values())) > 1:
        listing = ", ".join(f"{name} ({owner})" for name, owner in names.items())
        raise RequestError(
            f"the folder holds kernels of several compilers: {listing}; one library has one",
            rule="one-backend",
            value=listing,
            remedy="generate each into a folder of its own, or choose some with --pattern",
        )
    return {name: backend(owner).object_rules(name, sorted(ops[name])) for name, owner in names.items()}


def _notes(entries: Sequence[Mapping[str, Any]], rules: Mapping[str, ObjectRules]) -> tuple[str, ...]:
    """What the backend has to say of its compiler, and kernels that were written for other headers than these."""
    notes = {rule.note: None for rule in rules.values() if rule.note}
    for entry in entries:
        written, here = str(entry.get("headers", "")), rules[str(entry["arch"])].headers
        if written and here and written != here:
            notes[
                f"the kernels were written for headers of {written}, and those found here are of {here}: generate them "
                "again with TILEWRIGHT_CK_TILE set to these headers"
            ] = None
    return tuple(notes)


def _demand_apart(source: Path, folder: Path, entries: Sequence[Mapping[str, Any]], units: Sequence[Unit]) -> None:
    """A wrapper must not land on a kernel: `x.hpp` may have `x.cpp` beside it, `x.cpp` may not."""
    if source.resolve() != folder.resolve():
        return
    files = {str(entry["file"]) for entry in entries}
    clash = next((unit.wrapper for unit in units if unit.wrapper in files), "")
    if clash:
        raise RequestError(
            f"{folder} is the folder of the kernels, and the wrapper {clash} would replace its kernel",
            rule="output-dir",
            value=str(folder),
            remedy="choose another folder for the wrappers",
        )


# -- what is written -----------------------------------------------------------------------------------


def _wrapper_text(kernel: str) -> str:
    # Angle brackets: a kernel may have its wrapper's own name, and only the kernel's folder is searched.
    return f"// {MARK}: compiles one kernel as an object of its own.\n#include <{kernel}>\n"


def _way(folder: Path, source: Path) -> str:
    """From the output folder to the kernels, so that both can move together."""
    try:
        return Path(os.path.relpath(source.resolve(), folder.resolve())).as_posix()
    except ValueError:  # another drive
        return source.resolve().as_posix()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Record:
    """What earlier runs left in the output folder."""

    systems: tuple[str, ...]
    digests: Mapping[str, str]  # by file name


def _read_record(folder: Path) -> _Record:
    """Nothing where there is no record or it cannot be trusted: then nothing of the folder is ours to remove."""
    try:
        data = jsontext.loads((folder / RECORD).read_bytes())
        if data["schema"] != RECORD_SCHEMA:
            return _Record((), {})
        files = {str(name): str(digest) for name, digest in data["files"].items() if Path(name).name == name}
        return _Record(tuple(map(str, data["build_systems"])), files)
    except FileNotFoundError:
        return _Record((), {})
    except OSError as error:
        raise output_error(folder / RECORD, error) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        return _Record((), {})


def _write_record(folder: Path, systems: Sequence[str], digests: Mapping[str, str]) -> None:
    data = {"schema": RECORD_SCHEMA, "build_systems": list(systems), "files": dict(sorted(digests.items()))}
    write_if_changed(folder / RECORD, (json.dumps(data, indent=1) + "\n").encode())


def _demand_ours(folder: Path, names: Iterable[str], before: _Record) -> None:
    """A file of the same name that someone else wrote is left alone, and said."""
    for name in names:
        path = folder / name
        if name in before.digests or not os.path.lexists(path):
            continue
        try:
            with path.open("rb") as file:
                head = file.readline(200).decode("utf-8", "replace")
        except OSError as error:
            raise output_error(path, error) from None
        mark = f"{MAKE_OBJECTS}/" if name == OBJECT_LIST else MARK  # a linker reads it, so it bears no comment
        if mark not in head:
            raise foreign(path)


def _write_all(folder: Path, texts: Mapping[str, str], threads: int) -> set[str]:
    def write(name: str) -> bool:
        return write_if_changed(folder / name, texts[name].encode())

    if threads == 1 or len(texts) < threads:
        return {name for name in texts if write(name)}
    with ThreadPoolExecutor(threads) as pool:
        return {name for name, wrote in zip(texts, pool.map(write, texts), strict=True) if wrote}


def _remove(folder: Path, stale: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Remove files of earlier runs that still are what we wrote; those someone edited become theirs."""
    removed: list[str] = []
    kept: dict[str, str] = {}
    for name, digest in sorted(stale.items()):
        path = folder / name
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() == digest:
                path.unlink()
                removed.append(name)
        except FileNotFoundError:
            continue
        except OSError:
            kept[name] = digest  # the next run tries again
    return tuple(removed), kept
