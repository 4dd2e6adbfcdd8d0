"""The CK Tile headers: where they are and which version of their interface they speak.

The headers carry no version number, so a version is told by what the templates look like: the profile of a version
says by which files and which words in them.  Headers on disk are held against every profile.  What an op needs beyond
is told apart: headers may be of a version and lack the files of some kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from tilewright import plugins, settings
from tilewright.backends.base import op_kernels
from tilewright.backends.hip.profiles import DEFAULT, HasProfiles, Profile, Sign, all_profiles, profile
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import ToolchainError
from tilewright.ops.spaces import kernels_group

_CORE = Path("ck_tile/core.hpp")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(ck_tile/[^>\n]+)>", re.M)
ALL = "*"  # every kind of kernel of an op

REMEDY = (
    "`tilewright toolchain install rocm` brings the headers that are known to work; "
    "or set TILEWRIGHT_CK_TILE to a folder that holds ck_tile/"
)


@dataclass(frozen=True, slots=True)
class Fit:
    """One set of headers beside one profile: what the profile expects and is not there, in words."""

    profile: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Headers:
    """One set of headers: the folder that holds `ck_tile/`, its profile (empty: none fits), the digest of its files."""

    folder: Path
    profile: str
    digest: str
    fits: tuple[Fit, ...] = ()
    age: str = ""  # where none fits: how old they are beside the profiles there are

    def require(self) -> None:
        """An error unless the headers are of a profile that kernels are generated for."""
        if self.profile:
            return
        nearest = min(self.fits, key=lambda fit: len(fit.missing))
        raise ToolchainError(
            f"the CK Tile headers in {self.folder} fit no profile ({self.age}); beside {nearest.profile}, the nearest: "
            f"{'; '.join(nearest.missing)}",
            rule="headers-version",
            value=str(self.folder),
            remedy=f"kernels are generated for {' and '.join(fit.profile for fit in self.fits)}: {REMEDY}",
        )

    def demand(self, text: str) -> None:
        """An error unless every header of CK Tile that a source includes is there."""
        for name in included(text):
            if not (self.folder / name).is_file():
                raise ToolchainError(
                    f"the CK Tile headers in {self.folder} have no {name}, which this kernel includes",
                    rule="headers-lack",
                    value=name,
                    remedy=REMEDY,
                )

    def lacks(self, op: str) -> dict[str, str]:
        """Kinds of kernels of an op that cannot be built with these headers (ALL: none can), each with the reason."""
        known = op_kernels("hip", op)
        if not self.profile or not isinstance(known, HasProfiles):
            return {}
        needs = known.header_needs(self.profile)
        if needs is None:
            return {ALL: f"not written for {self.profile}"}
        missing = _missing(self.folder, needs.told_by)
        if missing:
            return {ALL: "; ".join(missing)}
        usual = known.header_needs(DEFAULT)
        lacking = {
            kind: f"not written for {self.profile}"
            for kind in (usual.kinds if usual else ())
            if kind not in needs.kinds
        }
        for kind, files in needs.kinds.items():
            gone = [file for file in files if not (self.folder / file).is_file()]
            if gone:
                lacking[kind] = f"no {gone[0]}"
        return lacking


def included(text: str) -> list[str]:
    """CK Tile's headers that a text includes itself."""
    return list(_INCLUDE.findall(text))


def is_used(text: str) -> bool:
    """Whether a source includes CK Tile's headers."""
    return _INCLUDE.search(text) is not None


def has_headers(folder: Path) -> bool:
    return (folder / _CORE).is_file()


def folder_of(path: str) -> Path:
    """The folder that holds `ck_tile/`: it is given itself as often as the one above it."""
    folder = Path(path).expanduser()
    return folder.parent if folder.name == "ck_tile" and not has_headers(folder) else folder


def _missing(folder: Path, signs: Iterable[Sign]) -> tuple[str, ...]:
    """What of the signs is not there, in words."""
    lacking = []
    for file, pattern, what in signs:
        text = _text(folder / file)
        if text is None:
            lacking.append(f"no {file} ({what})")
        elif pattern and not re.search(pattern, text):
            lacking.append(f"{file} has no {what}")
    return tuple(lacking)


def fits(folder: Path) -> tuple[Fit, ...]:
    """The headers beside every profile, the newest first."""
    return tuple(
        Fit(profile.name, (*_missing(folder, profile.told_by), *_too_old(folder, profile)))
        for profile in all_profiles()
    )


def _too_old(folder: Path, known: Profile) -> list[str]:
    """Templates may look as in a later version before its files came."""
    if any((folder / file).is_file() for file in known.brought):
        return []
    return [f"none of the files that came with {known.name}: {', '.join(known.brought)}"]


def profile_of(folder: Path) -> str:
    """The newest profile the headers fit; empty where none does."""
    return next((fit.profile for fit in fits(folder) if not fit.missing), "")


def age_of(folder: Path) -> str:
    """For people: between which profiles headers lie, told by the files that came with each."""
    known = all_profiles()
    has: Mapping[str, str] = {
        version.name: next((file for file in version.brought if (folder / file).is_file()), "") for version in known
    }
    newest = next((name for name, file in has.items() if file), "")
    if not newest:
        return f"they are older than {known[-1].name}"
    later = [version.name for version in known if version.since > profile(newest).since]
    before = f", and nothing that came with {later[-1]}" if later else ""
    return f"they have {has[newest]}, which came with {newest}{before}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _tree_digest(folder: Path) -> str:
    digest = sha256()
    for path in sorted((folder / "ck_tile").rglob("*.hpp")):
        content = sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


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
    fitting = profile_of(folder)
    return Headers(folder, fitting, _tree_digest(folder), fits(folder), "" if fitting else age_of(folder))


def chosen() -> str:
    """The profile sources are written for: the setting's, else that of the headers a setting names, else the usual one.

    What lies on this machine does not count: the same request gives the same source everywhere.  Where kernels are
    built, the toolchain asks for the profile of the headers it has.
    """
    now = settings.current()
    return _chosen(now.ck_tile_profile, now.ck_tile)


@lru_cache(maxsize=16)
def _chosen(name: str, path: str) -> str:
    if name:
        return profile(name).name
    if not path:
        return DEFAULT
    headers = read_headers(folder_of(path))
    headers.require()  # sources for other headers than a person named would say nothing of it
    return headers.profile


def forget() -> None:
    """Look again the next time."""
    read_headers.cache_clear()
    _chosen.cache_clear()


def ops_with_profiles() -> list[str]:
    """Ops whose kernels instantiate CK Tile."""
    return [name for name in plugins.names(kernels_group("hip")) if isinstance(op_kernels("hip", name), HasProfiles)]
