"""An output folder that is never half-written: temporary file, then rename, and only on change."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilewright.errors import MachineError, RequestError

TEMPORARY = ".tilewright-part"
# Templates write this into the first lines of every source.
SOURCE_MARK = b"Written by tilewright"
HEAD = 600

_REMEDIES = {
    errno.ENOSPC: "free some space or choose a folder on another disk",
    errno.EDQUOT: "free some of your quota or choose a folder on another disk",
    errno.ENOENT: "make the folder, or choose another",
    errno.ENOTDIR: "choose a path that is not a file",
    errno.EEXIST: "choose a path that is not a file",
    errno.ENAMETOOLONG: "choose a folder with a shorter path",
}


_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST)  # a file is named where a folder is meant: another name helps


def output_error(path: Path, error: OSError) -> MachineError | RequestError:
    reason = error.strerror or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0, "choose another output folder, or make this one writable")
    kind = RequestError if error.errno in _NO_FOLDER else MachineError
    return kind(f"cannot write {path}: {reason}", rule="output-folder", value=str(path), remedy=remedy)


def output_folder(text: str | Path, option: str = "--output-dir") -> Path:
    """The folder a person named; nothing at all, or what no build file can hold, is a mistake."""
    if not str(text).strip():
        raise RequestError(
            f"{option} is empty",
            rule="output-dir",
            value=str(text),
            remedy="name a folder; a dot means the current one",
        )
    demand_printable(Path(text))
    return Path(text).expanduser()


def demand_printable(place: Path) -> None:
    """Build files cannot express a line break or another control character, nor what is no Unicode."""
    odd = next(
        (letter for letter in str(place) if ord(letter) < 32 or ord(letter) == 127 or 0xD800 <= ord(letter) <= 0xDFFF),
        "",
    )
    if odd:
        raise RequestError(
            f"the path {str(place)!r} has the character {odd!r}, which build files cannot hold",
            rule="path-characters",
            value=str(place),
            remedy="rename the folder, or choose another",
        )


def foreign(path: Path) -> RequestError:
    """A file that someone else wrote is left alone, and said."""
    return RequestError(
        f"{path} exists, and tilewright did not write it",
        rule="foreign-file",
        value=str(path),
        remedy="choose another output, or move the file",
    )


def demand_replaceable(path: Path, mark: bytes) -> None:
    """A file that is going to be written over is one of ours, with `mark` in its first bytes, or holds nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  a pipe would be waited for
            raise foreign(path)
        with path.open("rb") as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        return
    except OSError as error:
        raise output_error(path, error) from None
    if head and mark not in head:
        raise foreign(path)


def demand_ours(folder: Path, names: Collection[str], listed: Collection[str]) -> None:
    """Whatever is there under the names of kernels must be ours: listed by an earlier run, or marked as written by one.

    Names are without their endings.
    """
    wanted = set(names)
    for entry in os.scandir(folder):
        name = entry.name
        if name in listed or name.rpartition(".")[0] not in wanted or not entry.is_file():
            continue
        try:
            with open(entry.path, "rb") as file:  # noqa: PTH123  thousands of them
                head = file.read(HEAD)
        except OSError as error:
            raise output_error(Path(entry.path), error) from None
        if SOURCE_MARK not in head:
            raise foreign(Path(entry.path))


def write_if_changed(path: Path, data: bytes) -> bool:
    """Give `path` the content `data`; True when that needed a write.  The file is old or new, never between."""
    try:
        if path.read_bytes() == data:
            return False
    except FileNotFoundError:
        pass  # it is new
    except OSError as error:
        raise output_error(path, error) from None
    part = _part(path)
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise output_error(path, error) from None
    return True


def demand_room(path: Path) -> None:
    """Say now what would keep `path` from being written later, after long work: nothing is left of the attempt."""
    try:
        if stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116  Path.exists hides some errors and not others
            raise RequestError(f"{path} is a folder", rule="output-folder", value=str(path), remedy="name a file in it")
    except FileNotFoundError:
        pass  # it is new
    except OSError as error:
        raise output_error(path, error) from None
    part = _part(path)
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise output_error(path, error) from None


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name[:120]}.{os.getpid()}-{threading.get_ident()}{TEMPORARY}")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder if need be and hold it against others who do the same: one changes a file of it at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise output_error(folder, error) from None
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)  # which also gives the lock back


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """`locked`, for folders that are ours alone: what a killed writer left is swept."""
    with locked(folder):
        for entry in os.scandir(folder):
            if entry.name.endswith(TEMPORARY):
                with suppress(OSError):
                    Path(entry.path).unlink()
        yield


def _lock(descriptor: int) -> None:
    # By hand: the library filelock locks files of its own, and a folder of a person's sources should get none.
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return  # no locks on this system: every single file is still whole, only the sweep may race
