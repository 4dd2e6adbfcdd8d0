"""Toolchains that are there: found, listed, verified, removed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.errors import RequestError, ToolchainError
from tilewright.toolchains.fetch import file_digest

MANIFEST = "manifest.json"
FILES = "files.txt"  # a line for each file: digest or link target, and its path
FORMAT = 1
NAMES = ("rocm",)


@dataclass(frozen=True, slots=True)
class Installed:
    """One toolchain folder with a manifest."""

    prefix: Path
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def version(self) -> str:
        return str(self.manifest["version"])

    @property
    def hipcc(self) -> Path:
        return self.prefix / "bin" / "hipcc"

    @property
    def headers(self) -> Path:
        """The folder that holds `ck_tile/`."""
        return self.prefix / "include"

    @property
    def digest(self) -> str:
        """Of everything inside."""
        return str(self.manifest["files_sha256"])


def folder() -> Path:
    return settings.current().cache_dir.absolute() / "toolchains"


def default_prefix(name: str) -> Path:
    return folder() / name


def read(prefix: Path) -> Installed | None:
    """The toolchain in a folder; None when there is none.  A manifest that cannot be read is an error."""
    file = prefix / MANIFEST
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError, RecursionError) as error:
        raise _damaged(prefix, str(error)) from error
    if (
        not isinstance(data, dict)
        or data.get("format") != FORMAT
        or not {"name", "version", "files_sha256"} <= set(data)
    ):
        raise _damaged(prefix, f"its manifest is not of format {FORMAT}")
    return Installed(prefix, data)


def _damaged(prefix: Path, what: str) -> ToolchainError:
    return ToolchainError(
        f"the toolchain in {prefix} cannot be used: {what}",
        rule="toolchain-damaged",
        value=str(prefix),
        remedy="tilewright toolchain install rocm --force",
    )


def folder_error(error: OSError, prefix: Path) -> ToolchainError:
    """The one error for a disk that refuses: full, read-only, a file in the way, somebody else's folder."""
    where = error.filename or prefix
    return ToolchainError(
        f"the toolchain {prefix} cannot be written: {error.strerror or error} ({where})",
        rule="toolchain-folder",
        value=str(where),
        remedy="free some space or give another folder: --prefix for the toolchain, TILEWRIGHT_CACHE_DIR for downloads",
    )


def places() -> list[Path]:
    """Where a toolchain may be: the folder the setting rocm_path names, then the cache."""
    path = settings.current().rocm_path
    prefixes = [Path(path).expanduser()] if path else []
    return [*prefixes, *(default_prefix(name) for name in NAMES)]


def in_force(name: str) -> Path:
    """The folder of the compiler that builds use, as far as settings name one; else the place under the cache."""
    now = settings.current()
    if now.hipcc:
        first = now.hipcc.split()[0]  # flags may follow
        return Path(shutil.which(first) or first).expanduser().resolve().parent.parent
    return Path(now.rocm_path).expanduser().absolute() if now.rocm_path else default_prefix(name)


def all_installed() -> list[Installed]:
    return [toolchain for place in dict.fromkeys(places()) if (toolchain := read(place)) is not None]


def record(prefix: Path) -> str:
    """Write the list of all files into the folder; answers the digest of that list."""
    text = "".join(f"{what}  {path}\n" for path, what in _contents(prefix))
    (prefix / FILES).write_text(text, encoding="utf-8")
    return hashlib.sha256(text.encode()).hexdigest()


def _contents(prefix: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(prefix.rglob("*")):
        name = path.relative_to(prefix).as_posix()
        if name in (MANIFEST, FILES):
            continue
        if path.is_symlink():
            yield name, f"link:{path.readlink()}"
        elif path.is_file():
            yield name, file_digest(path)


def verify(toolchain: Installed, advance: Callable[[int, int], None] | None = None) -> list[str]:
    """What is wrong with a toolchain's files; an empty list when all are as they were installed."""
    try:
        text = (toolchain.prefix / FILES).read_text(encoding="utf-8")
    except OSError as error:
        return [f"{FILES} cannot be read: {error}"]
    if hashlib.sha256(text.encode()).hexdigest() != toolchain.digest:
        return [f"{FILES} is not the list the manifest names"]
    lines = text.splitlines()
    problems = []
    for done, line in enumerate(lines, 1):
        expected, _, name = line.partition("  ")
        path = toolchain.prefix / name
        if expected.startswith("link:"):
            if not path.is_symlink() or f"link:{path.readlink()}" != expected:
                problems.append(f"{name}: the link is gone or points elsewhere")
        elif not path.is_file():
            problems.append(f"{name}: missing")
        elif file_digest(path) != expected:
            problems.append(f"{name}: changed")
        if advance is not None:
            advance(done, len(lines))
    return problems


def removed_name(prefix: Path) -> Path:
    """What a toolchain is called while it goes."""
    return prefix.with_name(f".{prefix.name}.removed")


def remove(prefix: Path) -> None:
    """Delete a toolchain.  It is renamed first: nobody finds one that is half gone."""
    if not (prefix / MANIFEST).is_file():
        raise RequestError(
            f"there is no toolchain in {prefix}",
            rule="no-toolchain",
            value=str(prefix),
            remedy="tilewright toolchain list shows what is installed",
        )
    doomed = removed_name(prefix)
    try:
        shutil.rmtree(doomed, ignore_errors=True)
        prefix.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise folder_error(error, prefix) from error
