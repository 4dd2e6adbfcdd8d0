"""Source distributions from the Python indexes pip is configured for, without building anything.

pip itself runs a package's build code even to download it, so only its configuration is asked; the
indexes are read by their simple API, as JSON or HTML.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright import settings
from tilewright.errors import ToolchainError
from tilewright.toolchains.fetch import Fetcher, Item, Unreachable, shown

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.2"
_ANCHOR = re.compile(r"<a\b[^>]*?href\s*=\s*[\"']([^\"']+)[\"'][^>]*>", re.IGNORECASE)
_CONFIG_LINE = re.compile(r"^([^=\s]+)\s*=\s*'(.*)'$")
_DEFAULT_INDEX = re.compile(r"\(default:?\s+(https?://\S+?)\)")


@dataclass(frozen=True, slots=True)
class PipConfig:
    """Where pip would look, and how it would get there."""

    indexes: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    cert: str = ""
    proxy: str = ""

    def fetcher(self) -> Fetcher:
        proxies = {"http": self.proxy, "https": self.proxy} if self.proxy else None
        return Fetcher(proxies, self.cert)


def _pip_commands() -> Iterator[list[str]]:
    yield [sys.executable, "-m", "pip"]
    for name in ("pip", "pip3"):
        path = shutil.which(name)
        if path:
            yield [path]


def _output_of(command: list[str], *words: str) -> str | None:
    try:
        answer = subprocess.run(
            [*command, "--disable-pip-version-check", *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env=settings.child_environment({"COLUMNS": "1000"}),
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def read_config(listing: str, help_text: str) -> PipConfig:
    """The configuration from what `pip config list` and `pip help download` print."""
    values: dict[str, str] = {}
    order = ("global", "site", "user", "install", "download", ":env:")  # later ones win, as in pip

    def rank(line: str) -> int:
        section = line.split(".", 1)[0]
        return order.index(section) if section in order else -1

    for line in sorted(listing.splitlines(), key=rank):
        match = _CONFIG_LINE.match(line.strip())
        if match and rank(line) >= 0:
            values[match[1].rsplit(".", 1)[-1]] = match[2].replace("\\n", " ")
    # pip joins wrapped help lines at spaces only, so the default stands in one piece.
    default = _DEFAULT_INDEX.search(" ".join(help_text.split()))
    main = values.get("index-url") or (default[1] if default else "")
    no_index = values.get("no-index", "").lower() in ("1", "true", "yes", "on")
    urls = [url for url in (main, *values.get("extra-index-url", "").split()) if url]
    indexes = () if no_index else tuple(dict.fromkeys(urls))
    links = tuple(values.get("find-links", "").split())
    return PipConfig(indexes, links, values.get("cert", ""), values.get("proxy", ""))


def pip_config() -> PipConfig:
    """pip's configuration on this machine; no pip is an error that says so."""
    for command in _pip_commands():
        listing = _output_of(command, "config", "list")
        if listing is not None:
            return read_config(listing, _output_of(command, "help", "download") or "")
    raise ToolchainError(
        "there is no pip to ask for the configured Python index",
        rule="no-pip",
        remedy="install pip (python3 -m ensurepip, or apt-get install python3-pip) and run the command again",
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """A source distribution an index offers."""

    version: str
    url: str
    file_name: str
    sha256: str
    size: int


def _entries(data: bytes, page: str) -> Iterator[tuple[str, str, str, int]]:
    """(file name, url, sha256, size) for every file on a project page."""
    if data.lstrip()[:1] == b"{":
        listing: dict[str, Any] = json.loads(data)
        for file in listing.get("files", ()):
            digest = file.get("hashes", {}).get("sha256", "")
            yield file["filename"], urllib.parse.urljoin(page, file["url"]), digest, int(file.get("size") or 0)
        return
    for match in _ANCHOR.finditer(data.decode("utf-8", "replace")):
        url = urllib.parse.urljoin(page, html.unescape(match[1]))
        url, _, fragment = url.partition("#")
        digest = dict(urllib.parse.parse_qsl(fragment)).get("sha256", "")
        yield urllib.parse.unquote(url.rsplit("/", 1)[-1]), url, digest, 0


def _version(file_name: str, project: str) -> str:
    """The version in a source distribution's file name; empty for other files and projects."""
    if not file_name.endswith(".tar.gz"):
        return ""
    name, dash, version = file_name.removesuffix(".tar.gz").rpartition("-")
    return version if dash and re.sub(r"[-_.]+", "-", name).lower() == project else ""


def version_key(version: str) -> tuple[tuple[int, ...], int]:
    """Enough of PEP 440 for one line of releases: numbers, then the number of the post release."""
    numbers, _, post = version.partition(".post")
    parts = tuple(int(number) for number in numbers.split(".") if number.isdecimal())
    return parts, int(post) if post.isdecimal() else -1


def distributions(config: PipConfig, project: str) -> list[Distribution]:
    """Every source distribution of a project, over all indexes; at least one of them must answer."""
    fetcher = config.fetcher()
    offers: list[Distribution] = []
    problems: list[str] = []
    for place in config.find_links:
        folder = Path(urllib.parse.unquote(place.removeprefix("file://"))).expanduser()
        for file in sorted(folder.glob("*.tar.gz")) if folder.is_dir() else ():
            version = _version(file.name, project)
            if version:
                url = file.absolute().as_uri()
                offers.append(Distribution(version, url, file.name, "", file.stat().st_size))
    for index in config.indexes:
        page = f"{index.rstrip('/')}/{project}/"
        try:
            data = _page(fetcher, page)
        except Unreachable as error:
            problems.append(error.message)
            continue
        for name, url, digest, size in _entries(data, page):
            version = _version(name, project)
            if version:
                offers.append(Distribution(version, url, name, digest, size))
    if not offers:
        looked = "; ".join(problems) or ", ".join(shown(index) for index in config.indexes) or "no index is configured"
        raise ToolchainError(
            f"no source distribution of {project} was found: {looked}",
            rule="no-headers",
            value=project,
            remedy="configure an index that has it (pip config set global.index-url URL) and run the command again, "
            "or set TILEWRIGHT_CK_TILE to a folder that holds the ck_tile headers",
        )
    return offers


def _page(fetcher: Fetcher, page: str) -> bytes:
    if page.startswith("file:"):
        # A folder served as an index keeps its page in index.html.
        return fetcher.read(page + "index.html")
    return fetcher.read(page, {"Accept": _ACCEPT})


def choose(offers: list[Distribution], tested: str, line: str) -> Distribution:
    """The tested version, else the newest of its line."""
    exact = [offer for offer in offers if offer.version == tested]
    if exact:
        return max(exact, key=lambda offer: bool(offer.sha256))
    same = [offer for offer in offers if offer.version == line or offer.version.startswith((line + ".", line + "p"))]
    if not same:
        newest = ", ".join(sorted({offer.version for offer in offers}, key=version_key)[-5:])
        raise ToolchainError(
            f"the index has no {line} release, only others (the newest: {newest})",
            rule="no-headers",
            value=tested,
            remedy="set TILEWRIGHT_CK_TILE to a folder that holds the ck_tile headers",
        )
    return max(same, key=lambda offer: version_key(offer.version))


def as_item(offer: Distribution, known_sha256: str) -> Item:
    digest = offer.sha256 or known_sha256
    if not digest:
        raise ToolchainError(
            f"the index gives no SHA256 digest for {offer.file_name}, and none was recorded for it",
            rule="no-headers",
            value=offer.file_name,
            remedy="use an index that gives digests",
        )
    return Item(offer.url, offer.file_name, digest, offer.size)
