"""An output folder that is never half-written: temporary file, then rename, and only on change."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewright.errors import MachineError

TEMPORARY = ".tilewright-part"

_REMEDIES = {
    errno.ENOSPC: "free some space or choose a folder on another disk",
    errno.EDQUOT: "free some of your quota or choose a folder on another disk",
    errno.ENOTDIR: "choose a path that is not a file",
    errno.EEXIST: "choose a path that is not a file",
    errno.ENAMETOOLONG: "choose a folder with a shorter path",
}


def output_error(path: Path, error: OSError) -> MachineError:
    reason = error.strerror or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "choose another output folder, or make this one writable")
    return MachineError(f"cannot write {path}: {reason}", rule="output-folder", value=str(path), remedy=remedy)


def write_if_changed(path: Path, data: bytes) -> bool:
    """Give `path` the content `data`; True when that needed a write.  The file is old or new, never between."""
    try:
        if path.read_bytes() == data:
            return False
    except FileNotFoundError:
        pass  # it is new
    except OSError as error:
        raise output_error(path, error) from None
    part = path.with_name(f".{path.name[:120]}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise output_error(path, error) from None
    return True


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Create the folder if need be and hold it against other writers; sweep what a killed one left."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise output_error(folder, error) from None
    try:
        _lock(descriptor)
        for entry in os.scandir(folder):
            if entry.name.endswith(TEMPORARY):
                with suppress(OSError):
                    Path(entry.path).unlink()
        yield
    finally:
        os.close(descriptor)  # which also gives the lock back


def _lock(descriptor: int) -> None:
    # By hand: the library filelock locks files of its own, and a folder of a person's sources should get none.
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return  # no locks on this system: every single file is still whole, only the sweep may race
