"""Unpacking of .deb files and source archives without dpkg and without root.

Everything lands inside one folder: absolute links are turned inwards, and a name or link that
would leave the folder is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from tilewright.errors import ToolchainError

_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # each is a link to its twin under usr/
Keep = Callable[[str], bool]  # asked with a path inside the package, such as usr/bin/lld


def _damaged(path: Path, what: str) -> ToolchainError:
    return ToolchainError(
        f"{path.name} cannot be unpacked: {what}", rule="unpack", value=path.name, remedy="run the command again"
    )


class _Member:
    """Part of a file, readable as a file of its own."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        data = self._file.read(size)
        self._left -= len(data)
        return data


def _find_data(path: Path, file: IO[bytes]) -> tuple[str, int]:
    """Stand at the start of the data member; answers its name and size."""
    if file.read(8) != b"!<arch>\n":
        raise _damaged(path, "it is no Debian package")
    while len(header := file.read(60)) == 60:
        name, size = header[:16].decode("ascii", "replace").strip().rstrip("/"), int(header[48:58])
        if name.startswith("data.tar"):
            return name, size
        file.seek(size + size % 2, os.SEEK_CUR)
    raise _damaged(path, "it has no data member")


@contextmanager
def _data_tar(path: Path) -> Iterator[tarfile.TarFile]:
    with path.open("rb") as file:
        name, size = _find_data(path, file)
        kind = name.removeprefix("data.tar").removeprefix(".")
        member = _Member(file, size)
        if kind != "zst":
            mode = {"": "r|", "gz": "r|gz", "xz": "r|xz", "bz2": "r|bz2"}.get(kind)
            if mode is None:
                raise _damaged(path, f"its data are packed as {kind}")
            with tarfile.open(fileobj=member, mode=mode) as tar:  # type: ignore[call-overload]
                yield tar
            return
        tool = shutil.which("zstd")
        if tool is None:
            raise ToolchainError(
                f"{path.name} is packed with zstd, and there is no zstd command here",
                rule="unpack",
                value=path.name,
                remedy="apt-get install zstd",
            )
        with subprocess.Popen([tool, "-dc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            feeder = threading.Thread(target=_feed, args=(member, process.stdin), daemon=True)
            feeder.start()
            with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
                yield tar
            process.stdout.read()


def _feed(member: _Member, pipe: IO[bytes]) -> None:
    try:
        with pipe:
            while chunk := member.read(1 << 18):
                pipe.write(chunk)
    except BrokenPipeError:
        return  # the reader had enough or failed; it says so itself


def prepare_root(root: Path) -> None:
    """The folders every Debian system has, with /bin, /lib ... as links into /usr."""
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")


def _inside(name: str, path: Path) -> PurePosixPath:
    parts = [part for part in PurePosixPath(name).parts if part not in (".", "/")]
    if ".." in parts:
        raise _damaged(path, f"{name} leaves the folder")
    if parts and parts[0] in _MERGED:
        parts.insert(0, "usr")
    return PurePosixPath(*parts)


def _link_target(inside: PurePosixPath, target: str, path: Path) -> str:
    """A link's target relative to the link, inside the root."""
    goal = PurePosixPath(target)
    goal = _inside(target, path) if goal.is_absolute() else PurePosixPath(os.path.normpath(inside.parent / goal))
    if goal.parts[:1] == ("..",):
        raise _damaged(path, f"the link {inside} leaves the folder")
    return os.path.relpath(goal, inside.parent)


def unpack_deb(path: Path, root: Path, keep: Keep) -> None:
    """Unpack the files of one package for which `keep` says yes."""
    try:
        with _data_tar(path) as tar:
            unpack_tar(tar, root, path, lambda name: name if keep(name) else None)
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise _damaged(path, str(error)) from error


def unpack_tar(tar: tarfile.TarFile, root: Path, path: Path, rename: Callable[[str], str | None]) -> int:
    """Unpack what `rename` gives a place; answers how many files that were."""
    real_root = root.resolve()
    count = 0
    for member in tar:
        inside = _inside(member.name, path)
        place = rename(str(inside))
        if place is None or not inside.parts or member.isdir():
            continue
        goal = root / place
        goal.parent.mkdir(parents=True, exist_ok=True)
        if not goal.parent.resolve().is_relative_to(real_root):
            raise _damaged(path, f"{place} leaves the folder through a link")
        if goal.is_symlink() or goal.is_file():
            goal.unlink()
        if member.issym():
            goal.symlink_to(_link_target(PurePosixPath(place), member.linkname, path))
        elif member.islnk():
            first = rename(str(_inside(member.linkname, path)))
            if first is None or not (root / first).is_file():
                raise _damaged(path, f"{place} is a second name of {member.linkname}, which is left out")
            shutil.copy2(root / first, goal)
        elif member.isfile():
            content = tar.extractfile(member)
            assert content is not None
            with content, goal.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 18)
            goal.chmod(0o755 if member.mode & 0o111 else 0o644)
        else:
            continue  # devices and pipes are of no use here
        count += 1
    return count
