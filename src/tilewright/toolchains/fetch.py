"""Downloads that can be interrupted, resumed and trusted.

A file under its own name is complete and its digest was right when it got that name; everything
unfinished ends in `.part`.  Both are checked again before use.  Over urllib: an installation fetches some dozens of
files once, which is no reason for everybody to have an HTTP library.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import shutil
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewright.errors import ToolchainError

ATTEMPTS = 3
PAUSE_SECONDS = 1.0  # before a second attempt; doubled before the third
TIMEOUT_SECONDS = 30
AT_ONCE = 6
_CHUNK = 1 << 18

Advance = Callable[[int, int], None]  # (bytes done, bytes in all)


@dataclass(frozen=True, slots=True)
class Item:
    """A file to fetch: where it is, the name it gets, and what proves it right."""

    url: str
    name: str
    sha256: str
    size: int = 0  # 0 when nobody reported


class Unreachable(ToolchainError):
    """The other side did not answer, or has no such file (`missing`)."""

    def __init__(self, message: str, *, missing: bool = False, **fields: str) -> None:
        super().__init__(message, **fields)
        self.missing = missing


class Stopped(Exception):
    """Another download failed; this one gives up quietly."""


def file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def shown(url: str) -> str:
    """A URL for people: without the password that may stand in it."""
    parts = urllib.parse.urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


class Fetcher:
    """Opens URLs with this machine's proxies and certificates, and keeps downloads in one folder."""

    def __init__(self, proxies: dict[str, str] | None = None, cafile: str = "") -> None:
        handlers: list[urllib.request.BaseHandler] = []
        if proxies:
            handlers.append(urllib.request.ProxyHandler({**urllib.request.getproxies(), **proxies}))
        if cafile and Path(cafile).is_file():
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=cafile)))
        self._opener = urllib.request.build_opener(*handlers)

    def open(self, url: str, headers: dict[str, str] | None = None) -> IO[bytes]:
        parts = urllib.parse.urlsplit(url)
        headers = {"User-Agent": "tilewright", **(headers or {})}
        if parts.username:
            secret = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
        request = urllib.request.Request(shown(url), headers=headers)
        try:
            answer: IO[bytes] = self._opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            raise Unreachable(
                f"{shown(url)} answers {error.code} {error.reason}",
                missing=error.code in (404, 410, 403),
                rule="download-failed",
                remedy="run the command again later; finished downloads are kept",
            ) from error
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            local = isinstance(reason, FileNotFoundError) or (parts.scheme == "file" and "No such file" in str(reason))
            raise Unreachable(
                f"{shown(url)} cannot be reached: {reason}",
                missing=local,
                rule="download-failed",
                remedy="check the network and its proxy settings; finished downloads are kept",
            ) from error
        return answer

    def read(self, url: str, headers: dict[str, str] | None = None) -> bytes:
        """A small file as bytes; an answer cut short is tried again."""
        for attempt in range(ATTEMPTS):
            try:
                with self.open(url, headers) as answer:
                    return answer.read()
            except (OSError, http.client.HTTPException) as error:
                if attempt + 1 == ATTEMPTS:
                    raise Unreachable(
                        f"{shown(url)} broke off: {error}", rule="download-failed", remedy="run the command again"
                    ) from error
                time.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def fetch(
        self,
        item: Item,
        folder: Path,
        advance: Callable[[int], None] | None = None,
        stop: threading.Event | None = None,
    ) -> Path:
        """The file in `folder`, complete and verified.  `advance` hears of every byte, kept or new."""
        reported = 0  # bytes reported so far: taken back when the download starts again

        def report(count: int) -> None:
            nonlocal reported
            reported += count
            if advance is not None:
                advance(count)

        folder.mkdir(parents=True, exist_ok=True)
        final, part = folder / item.name, folder / f"{item.name}.part"
        if final.exists():
            if file_digest(final) == item.sha256:
                report(final.stat().st_size)
                return final
            final.unlink()  # damaged since it was stored: fetched again
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            report(-reported)
            try:
                self._continue(item, part, report, stop)
            except Unreachable as error:
                if error.missing or attempt + 1 == ATTEMPTS:
                    raise
                continue
            except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
                problem = f"broke off: {error}"
                continue
            size = part.stat().st_size
            if item.size and size < item.size:
                problem = f"is cut short: {size} of {item.size} bytes"
                if urllib.parse.urlsplit(item.url).scheme == "file":
                    part.unlink()
                continue
            digest = file_digest(part)
            if digest == item.sha256:
                part.replace(final)
                return final
            part.unlink()
            problem = f"has the digest {digest[:16]}..., not {item.sha256[:16]}..."
        raise ToolchainError(
            f"{shown(item.url)} {problem}",
            rule="download-digest" if "digest" in problem else "download-failed",
            value=item.name,
            remedy="run the command again: finished downloads are kept; "
            "if it stays so, the mirror is damaged or in the middle of an update",
        )

    def _continue(self, item: Item, part: Path, report: Callable[[int], None], stop: threading.Event | None) -> None:
        have = part.stat().st_size if part.exists() else 0
        if item.size and have > item.size:
            part.unlink()
            have = 0
        if have and have == item.size:
            report(have)
            return
        resumable = have and urllib.parse.urlsplit(item.url).scheme != "file"
        with self.open(item.url, {"Range": f"bytes={have}-"} if resumable else {}) as answer:
            continued = bool(resumable) and getattr(answer, "status", 200) == 206
            report(have if continued else 0)
            with part.open("ab" if continued else "wb") as file:
                while chunk := answer.read(_CHUNK):
                    if stop is not None and stop.is_set():
                        raise Stopped
                    file.write(chunk)
                    report(len(chunk))

    def fetch_all(self, items: Sequence[Item], folder: Path, advance: Advance | None = None) -> list[Path]:
        """All files, several at once; the first failure stops the others and is the one raised."""
        total = sum(item.size for item in items)
        done = 0
        lock, stop = threading.Lock(), threading.Event()

        def count(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                if advance is not None:
                    advance(done, total)

        def fetch_item(item: Item) -> Path | None:
            if stop.is_set():
                return None
            try:
                return self.fetch(item, folder, count, stop)
            except Stopped:
                return None
            except BaseException:
                stop.set()
                raise

        # The largest first: none is left to run alone at the end.
        order = sorted(items, key=lambda item: -item.size)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(fetch_item, item) for item in order]
            try:
                failed: BaseException | None = None
                for future in futures:
                    with suppress(Stopped):
                        failed = failed or future.exception()
            except BaseException:
                stop.set()  # an interrupt: the threads end at their next chunk
                raise
        if failed is not None:
            raise failed
        return [folder / item.name for item in items]


def free_bytes(folder: Path) -> int:
    """Free space where `folder` is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
