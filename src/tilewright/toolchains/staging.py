"""The folder an installation is prepared in, and what is left of one that was killed.

A toolchain is made beside its final place and published by a rename.  Where it is made is noted first, under the lock
every installation holds: whoever comes next finds a note that nobody holds the lock for, and clears away what it names.

    <cache>/toolchains/.lock        held while an installation runs
    <cache>/toolchains/.staging     JSON: the folder it works in, and the one it is for
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewright.errors import ToolchainError
from tilewright.toolchains import installed

NOTE = ".staging"
PARTIAL = ".partial"
DOWNLOADS = "downloads"
# Longer than anybody waits before going on with an installation that broke off.
UNUSED_SECONDS = 86400.0


@contextmanager
def only_one() -> Iterator[None]:
    """Two installations at once would share their downloads: the second is told to wait."""
    import filelock

    folder = installed.folder()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # Never a marker file instead, which would outlive an installation that is killed.
        with filelock.FileLock(folder / ".lock", blocking=False, fallback_to_soft=False):
            yield
    except filelock.Timeout:
        raise ToolchainError(
            "another installation is running",
            rule="toolchain-busy",
            value=str(folder),
            remedy="wait until it is done and look with `tilewright toolchain list`",
        ) from None


@contextmanager
def work_folder(prefix: Path) -> Iterator[Path]:
    """An empty folder beside `prefix`, gone at the end; call it under `only_one`."""
    note = installed.folder() / NOTE
    prefix.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{prefix.name}.", suffix=PARTIAL, dir=prefix.parent))
    try:
        note.write_text(json.dumps({"work": str(work), "prefix": str(prefix)}), encoding="utf-8")
        work.chmod(0o755)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        note.unlink(missing_ok=True)


def publish(work: Path, prefix: Path) -> None:
    """The folder under its final name; what was there before goes."""
    old = None
    if prefix.exists():
        old = _replaced(prefix)
        shutil.rmtree(old, ignore_errors=True)
        prefix.rename(old)
    try:
        work.rename(prefix)
    except OSError:
        if old is not None:
            old.rename(prefix)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def _replaced(prefix: Path) -> Path:
    return prefix.with_name(f".{prefix.name}.replaced")


def sweep() -> int:
    """Clear away what a killed installation or removal left; answers the bytes.  Nothing while one is at work."""
    if not installed.folder().is_dir():
        return 0
    try:
        with only_one():
            return sweep_held()
    except (ToolchainError, OSError):
        return 0  # it is at work, or the folder is somebody else's


def sweep_held(*, keep_downloads: bool = False) -> int:
    """As `sweep`, for who holds the lock.  Downloads that are fresh, or kept, save the next installation work."""
    folder = installed.folder()
    doomed: list[Path] = []
    for prefix in (*(installed.default_prefix(name) for name in installed.NAMES), *_noted(doomed)):
        doomed += prefix.parent.glob(f".{prefix.name}.*{PARTIAL}")
        old = _replaced(prefix)
        if old.is_dir() and not prefix.exists() and (old / installed.MANIFEST).is_file():
            old.rename(prefix)  # killed between the two renames: what was there before is whole
        doomed += [old, installed.removed_name(prefix)]
    downloads = folder / DOWNLOADS
    if not keep_downloads and _unused(downloads):
        doomed.append(downloads)
    freed = 0
    for fromkey in dict.fromkeys(doomed):
        if fromkey.is_dir():
            size = _bytes(fromkey)
            shutil.rmtree(fromkey, ignore_errors=True)
            freed += size if not fromkey.exists() else 0
    (folder / NOTE).unlink(missing_ok=True)
    return freed


def _noted(doomed: list[Path]) -> list[Path]:
    """The place the last installation was for, if it did not end; its work folder is added to what goes."""
    try:
        note = json.loads((installed.folder() / NOTE).read_text(encoding="utf-8"))
        work, prefix = Path(note["work"]), Path(note["prefix"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not work.name.startswith(f".{prefix.name}.") or work.suffix != PARTIAL:
        return []  # nothing we ever wrote
    doomed.append(work)
    return [prefix]


def _unused(folder: Path) -> bool:
    newest = 0.0
    with suppress(OSError):
        newest = max((path.stat().st_mtime for path in (folder, *folder.iterdir())), default=0.0)
    return newest > 0 and time.time() - newest > UNUSED_SECONDS


def _bytes(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            size += 0 if path.is_symlink() or not path.is_file() else path.stat().st_size
    return size
