"""The package archives this machine's apt is configured for.

Both forms of apt's configuration are read: one-line files (`sources.list`, `*.list`) and deb822
files (`*.sources`).  The answer names archives only; which suites of them are of use is decided
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

APT_DIR = Path("/etc/apt")
_SCHEMES = ("http", "https", "file")
_OPTIONS = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class AptSource:
    """One suite of one archive, as apt would read it."""

    url: str  # without a slash at its end
    suite: str
    components: tuple[str, ...]
    signed_by: tuple[str, ...] = ()  # keyring files; empty means apt's own trusted keys


def _source(url: str, suite: str, components: tuple[str, ...], signed_by: tuple[str, ...]) -> Iterator[AptSource]:
    url = re.sub(r"^copy:", "file:", url)
    scheme = url.split(":", 1)[0]
    # Discs and mirror lists have no address to build on; a suite that ends in a slash is one flat folder.
    if scheme in _SCHEMES and components and not suite.endswith("/"):
        yield AptSource(url.rstrip("/"), suite, components, signed_by)


def _one_line(text: str) -> Iterator[AptSource]:
    for line in text.splitlines():
        line = line.split("#", 1)[0].strip()
        options = _OPTIONS.search(line)
        if options:
            line = line[: options.start()] + line[options.end() :]
        words = line.split()
        if len(words) < 3 or words[0] != "deb":
            continue
        keys: tuple[str, ...] = ()
        for option in options.group(1).split() if options else ():
            if option.lower().startswith("signed-by="):
                keys = tuple(option.split("=", 1)[1].split(","))
        yield from _source(words[1], words[2], tuple(words[3:]), keys)


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a deb822 text; field names in lower case, continued lines joined by newlines."""
    fields: dict[str, str] = {}
    last = ""
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if fields:
                yield fields
            fields, last = {}, ""
        elif line[0] in " \t":
            if last:
                fields[last] += "\n" + line.strip()
        elif ":" in line:
            name, value = line.split(":", 1)
            last = name.strip().lower()
            fields[last] = value.strip()


def _deb822(text: str) -> Iterator[AptSource]:
    for fields in stanzas(text):
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false", "0"):
            continue
        signed = fields.get("signed-by", "")
        # A key may stand in the file itself; only files can be handed to a verifier.
        keys = () if "BEGIN PGP" in signed else tuple(signed.replace(",", " ").split())
        for url in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield from _source(url, suite, tuple(fields.get("components", "").split()), keys)


def read_sources(apt_dir: Path | None = None) -> list[AptSource]:
    """Every enabled source, in the order apt reads them; an empty list where there is no apt."""
    apt_dir = APT_DIR if apt_dir is None else apt_dir
    sources: list[AptSource] = []
    parts = apt_dir / "sources.list.d"
    files = [apt_dir / "sources.list", *(sorted(parts.iterdir()) if parts.is_dir() else ())]
    for file in files:
        reader = {".list": _one_line, ".sources": _deb822}.get(file.suffix)
        if reader is None or not file.is_file():
            continue
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except PermissionError:
            continue  # apt's sources may hold passwords only root may read; the others still serve
        sources.extend(reader(text))
    return list(dict.fromkeys(sources))


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive: its address, the suites configured, and the keyrings that sign it."""

    url: str
    suites: tuple[str, ...]
    signed_by: tuple[str, ...]


def archives(sources: list[AptSource], apt_dir: Path | None = None) -> list[Archive]:
    """The archives behind the sources, in their order.  Where no keyring is named, apt's trusted ones count."""
    trusted = (APT_DIR if apt_dir is None else apt_dir) / "trusted.gpg.d"
    default = tuple(str(keyring) for keyring in sorted(trusted.glob("*.gpg")) + sorted(trusted.glob("*.asc")))
    by_url: dict[str, list[AptSource]] = {}
    for source in sources:
        by_url.setdefault(source.url, []).append(source)
    answer = []
    for url, members in by_url.items():
        keys = [key for member in members for key in (member.signed_by or default)]
        answer.append(
            Archive(url, tuple(dict.fromkeys(member.suite for member in members)), tuple(dict.fromkeys(keys)))
        )
    return answer
