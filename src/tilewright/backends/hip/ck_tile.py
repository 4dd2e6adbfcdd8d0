"""The CK Tile headers: where they are and which version of their interface they speak.

The headers carry no version number, so a version is told by what the templates look like: the profile of a version
says by which files and which words in them.  Headers that an op needs beyond those are asked for when a kernel of it is
compiled.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.backends.hip.profiles import profile
from tilewright.errors import ToolchainError

MID_2025 = "mid-2025"
NEWER = "newer"
OLDER = "older"
SUPPORTED = (MID_2025,)

_CORE = Path("ck_tile/core.hpp")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(ck_tile/[^>\n]+)>", re.M)

REMEDY = (
    "`tilewright toolchain install rocm` brings the headers that are known to work; "
    "or set TILEWRIGHT_CK_TILE to a folder that holds ck_tile/"
)


@dataclass(frozen=True, slots=True)
class Headers:
    """One set of headers: the folder that holds `ck_tile/`, its profile and the digest of its files."""

    folder: Path
    profile: str
    digest: str

    def require(self, profiles: tuple[str, ...] = SUPPORTED) -> None:
        """An error unless the headers are of a profile that kernels are generated for."""
        if self.profile not in profiles:
            raise ToolchainError(
                f"the CK Tile headers in {self.folder} are of the {self.profile} profile; "
                f"kernels are generated for {' and '.join(profiles)}",
                rule="headers-version",
                value=self.profile,
                remedy=REMEDY,
            )

    def demand(self, text: str) -> None:
        """An error unless every header of CK Tile that a source includes is there."""
        for name in _INCLUDE.findall(text):
            if not (self.folder / name).is_file():
                raise ToolchainError(
                    f"the CK Tile headers in {self.folder} have no {name}, which this kernel includes",
                    rule="headers-lack",
                    value=name,
                    remedy=REMEDY,
                )


def has_headers(folder: Path) -> bool:
    return (folder / _CORE).is_file()


def profile_of(folder: Path) -> str:
    """Tell the version by what the one known version brought and by templates that changed after it."""
    known = profile(MID_2025)
    if not any((folder / one).is_file() for one in known.brought):
        return OLDER
    same = all(re.search(pattern, _text(folder / file)) for file, pattern in known.told_by)
    return MID_2025 if same else NEWER


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _tree_digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted((folder / "ck_tile").rglob("*.hpp")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()


@lru_cache(maxsize=16)
def read_headers(folder: Path) -> Headers:
    """The headers in a folder, read once a process; none there is an error."""
    if not has_headers(folder):
        raise ToolchainError(
            f"there are no CK Tile headers in {folder}: {_CORE} is missing",
            rule="no-headers",
            value=str(folder),
            remedy=REMEDY,
        )
    return Headers(folder, profile_of(folder), _tree_digest(folder))
