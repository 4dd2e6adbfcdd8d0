"""Suites of a package archive: signed release file, then indexes whose digests it holds."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright import settings
from tilewright.errors import ToolchainError
from tilewright.toolchains.apt_sources import stanzas
from tilewright.toolchains.fetch import Fetcher, Item, Unreachable, shown

_OPENERS: dict[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    "": bytes,
}


@dataclass(frozen=True, slots=True)
class Release:
    """What a suite says of itself, and how far that can be believed."""

    suite: str
    url: str  # of the archive
    digests: dict[str, tuple[str, int]]  # path under the suite -> (sha256, size)
    components: tuple[str, ...]
    date: str
    signature: str  # "checked", or why not


def _signed_text(text: str) -> str:
    """The part of an InRelease file that its signature covers."""
    if "-----BEGIN PGP SIGNED MESSAGE-----" not in text:
        return text
    body = text.split("-----BEGIN PGP SIGNED MESSAGE-----", 1)[1].split("-----BEGIN PGP SIGNATURE-----", 1)[0]
    _, _, body = body.partition("\n\n")  # the armour's own headers end at the first empty line
    return "\n".join(line[2:] if line.startswith("- ") else line for line in body.splitlines())


def check_signature(data: bytes, keyrings: tuple[str, ...], what: str) -> str:
    """ "checked", or the reason why nothing can be said; a wrong signature is an error."""
    verifier = shutil.which("gpgv")
    if verifier is None:
        return "not checked: gpgv is not installed"
    # gpgv reads only binary keyrings.
    known = [
        keyring
        for keyring in keyrings
        if Path(keyring).is_file() and not Path(keyring).read_bytes().startswith(b"-----BEGIN")
    ]
    if not known:
        return "not checked: no keyring is configured for this archive"
    with tempfile.TemporaryDirectory(prefix="tilewright-gpgv-") as folder:
        file = Path(folder) / "InRelease"
        file.write_bytes(data)
        command = [verifier, "--homedir", folder, "--status-fd", "1"]
        for keyring in known:
            command += ["--keyring", keyring]
        answer = subprocess.run(
            [*command, str(file)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=settings.child_environment(),
        )
    status = [line.split() for line in answer.stdout.splitlines() if line.startswith("[GNUPG:]")]
    words = {line[1] for line in status if len(line) > 1}
    if "BADSIG" in words or not words & {"VALIDSIG", "NO_PUBKEY", "ERRSIG"}:
        raise ToolchainError(
            f"the signature of {what} is wrong",
            rule="archive-signature",
            value=what,
            remedy="the mirror or the network is damaged or hostile; try another mirror in apt's configuration",
        )
    return "checked" if "VALIDSIG" in words else "not checked: this machine does not know the archive's keys"


def read_release(fetcher: Fetcher, url: str, suite: str, keyrings: tuple[str, ...]) -> Release:
    """The suite's release file; `Unreachable` with `missing` where the archive has no such suite."""
    place = f"{url}/dists/{suite}"
    try:
        data = fetcher.read(f"{place}/InRelease")
        signature = check_signature(data, keyrings, shown(f"{place}/InRelease"))
    except Unreachable as error:
        if not error.missing:
            raise
        data = fetcher.read(f"{place}/Release")
        signature = "not checked: the suite has no InRelease file"
    fields = next(stanzas(_signed_text(data.decode("utf-8", "replace"))), {})
    digests: dict[str, tuple[str, int]] = {}
    for line in fields.get("sha256", "").splitlines():
        words = line.split()
        if len(words) == 3 and words[1].isdecimal():
            digests[words[2]] = (words[0], int(words[1]))
    if not digests:
        raise ToolchainError(
            f"{shown(place)} has a release file without SHA256 digests",
            rule="archive-index",
            value=suite,
            remedy="the mirror is damaged; try again later or configure another one for apt",
        )
    return Release(suite, url, digests, tuple(fields.get("components", "").split()), fields.get("date", ""), signature)


def read_packages(fetcher: Fetcher, release: Release, component: str, folder: Path, arch: str = "amd64") -> str:
    """The text of one Packages index, in the best form the archive offers, verified."""
    base = f"{component}/binary-{arch}/Packages"
    for suffix, opener in _OPENERS.items():
        known = release.digests.get(base + suffix)
        if known is None:
            continue
        digest, size = known
        place = f"{release.url}/dists/{release.suite}"
        # By-hash names never change their content: a mirror in the middle of an update still serves them.
        for path in (f"{component}/binary-{arch}/by-hash/SHA256/{digest}", base + suffix):
            try:
                file = fetcher.fetch(Item(f"{place}/{path}", f"Packages-{digest[:16]}{suffix}", digest, size), folder)
            except Unreachable as error:
                if error.missing:
                    continue
                raise
            return opener(file.read_bytes()).decode("utf-8", "replace")
    return ""
