"""A package archive, a Python index and an apt configuration made by the test, with a compiler of a few lines."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import http.server
import io
import lzma
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.toolchains.recipe import Recipe, load_recipe

ROCM = "7.2.4+dfsg-1~exp1"
HEADERS = "csrc/composable_kernel/include/"

# Stands in for the loader that came with the compiler: writes the output it is asked for.
LOADER = b"""#!/bin/sh
output=
while [ $# -gt 0 ]; do
    case $1 in -o) output=$2;; --version) echo "clang version 22.0";; esac
    shift
done
[ -z "$output" ] || echo built > "$output"
"""


def _tar(files: Mapping[str, bytes], links: Mapping[str, str], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{mode}") as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mode = 0o755 if data.startswith(b"#!") else 0o644
            tar.addfile(info, io.BytesIO(data))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


def _ar(members: Mapping[str, bytes]) -> bytes:
    parts = [b"!<arch>\n"]
    for name, data in members.items():
        parts.append(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
        parts.append(data + b"\n" * (len(data) % 2))
    return b"".join(parts)


def make_deb(files: Mapping[str, bytes], links: Mapping[str, str] | None = None, packed: str = "xz") -> bytes:
    data = _tar({f"./{name}": content for name, content in files.items()}, links or {}, packed)
    return _ar({"debian-binary": b"2.0\n", "control.tar.xz": _tar({}, {}, "xz"), f"data.tar.{packed}": data})


@dataclass
class FakeArchive:
    """Suites with packages, written as a mirror would hold them."""

    root: Path
    suites: dict[str, list[str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def add(
        self,
        suite: str,
        name: str,
        version: str,
        files: Mapping[str, bytes] | None = None,
        **fields: str,
    ) -> Path:
        """A package; keyword names are control fields (`depends`, `provides`, `source`)."""
        file = self.root / "pool" / f"{name}_{version.rpartition(':')[2]}_amd64.deb"
        file.parent.mkdir(parents=True, exist_ok=True)
        data = make_deb(files if files is not None else {f"usr/share/doc/{name}/copyright": b"free"})
        file.write_bytes(data)
        lines = [f"Package: {name}", f"Version: {version}", "Architecture: amd64", "Installed-Size: 8"]
        lines += [f"{key.title()}: {value}" for key, value in fields.items()]
        digest = hashlib.sha256(data).hexdigest()
        lines += [f"Filename: pool/{file.name}", f"Size: {len(data)}", f"SHA256: {digest}"]
        self.suites.setdefault(suite, []).append("\n".join(lines) + "\n")
        return file

    def drop(self, suite: str, name: str) -> None:
        self.suites[suite] = [one for one in self.suites[suite] if not one.startswith(f"Package: {name}\n")]

    def write(self) -> FakeArchive:
        for suite, paragraphs in self.suites.items():
            folder = self.root / "dists" / suite / "main" / "binary-amd64"
            folder.mkdir(parents=True, exist_ok=True)
            text = "\n".join(paragraphs).encode()
            lines = [f"Suite: {suite}", "Components: main", "Date: today", "SHA256:"]
            for name, data in (("Packages.xz", lzma.compress(text)), ("Packages.gz", gzip.compress(text, mtime=0))):
                (folder / name).write_bytes(data)
                lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/{name}")
            (self.root / "dists" / suite / "InRelease").write_text("\n".join(lines) + "\n")
        return self


def standard_archive(root: Path) -> FakeArchive:
    """What the recipe needs, spread over suites as the real archive does it."""
    archive = FakeArchive(root)
    llvm = "usr/lib/llvm-22/bin/"
    hip = f"clang-22, rocm-device-libs-22 (= {ROCM}), libamdhip64-dev (>= 7.1.0~), rocminfo, libstdc++-16-dev"
    archive.add("experimental", "hipcc", ROCM, source="rocm-llvm", depends=f"libc6 (>= 2.38), {hip}")
    archive.add("experimental", "rocm-device-libs-22", ROCM, source="rocm-llvm")
    archive.add("experimental", "libamdhip64-dev", "7.2.4-1~exp2", source="rocm-hipamd", depends="libamd-comgr-dev")
    archive.add("experimental", "libamd-comgr-dev", ROCM, source="rocm-llvm")
    archive.add("sid", "hipcc", "7.1.0-1", source="rocm-llvm")
    archive.add("sid", "libamdhip64-dev", "7.1.0-1", source="rocm-hipamd")
    archive.add("sid", "libamd-comgr-dev", "7.1.0-1", source="rocm-llvm")
    tools = {llvm + "clang": b"binary", llvm + "clang++": b"binary", llvm + "lld": b"binary", llvm + "opt": b"binary"}
    archive.add("sid", "clang-22", "1:22.1.8-3", tools, depends="virtual-library | nothing, libclang-rt-22-dev")
    archive.add("sid", "real-library", "1.0", provides="virtual-library (= 1.0)")
    archive.add("sid", "libc6", "2.43-7", {"usr/lib64/ld-linux-x86-64.so.2": LOADER})
    archive.add("bookworm", "libc6-dev", "2.36-9", {"usr/include/stdio.h": b"// stdio"}, depends="libc6 (= 2.36-9)")
    archive.add("bookworm", "libc6", "2.36-9", {"lib/x86_64-linux-gnu/libc.so.6": b"binary"})
    for major in ("9", "12"):
        archive.add("bookworm", f"libstdc++-{major}-dev", f"{major}.2.0-14", depends="libc6-dev")
    return archive


def write_sdist(folder: Path, version: str, *, headers: bool = True) -> Path:
    top = f"flash_attn-{version}/"
    files = {top + "LICENSE": b"BSD", top + "setup.py": b"raise SystemExit('must not run')"}
    if headers:
        files[top + HEADERS + "ck_tile/core.hpp"] = b"// core"
        files[top + HEADERS + "ck_tile/remod.py"] = b"# a script"
        files[top + HEADERS + "ck/other.hpp"] = b"// not wanted"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"flash_attn-{version}.tar.gz"
    file.write_bytes(_tar(files, {}, "gz"))
    return file


def write_index(root: Path, *versions: str, headers: bool = True) -> str:
    """A folder that is a Python index; answers its URL."""
    page = root / "flash-attn"
    lines = ["<!DOCTYPE html><html><body>"]
    for version in versions:
        file = write_sdist(root / "files", version, headers=headers)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(f'<a href="../files/{file.name}#sha256={digest}" data-requires-python="&gt;=3.9">{file.name}</a>')
    page.mkdir(parents=True, exist_ok=True)
    (page / "index.html").write_text("\n".join(lines))
    return root.as_uri()


def write_apt(root: Path, url: str) -> Path:
    (root / "sources.list.d").mkdir(parents=True)
    text = f"Types: deb\nURIs: {url}\nSuites: bookworm bookworm-updates\nComponents: main\n"
    (root / "sources.list.d" / "debian.sources").write_text(text)
    return root


def recipe(**changes: Any) -> Recipe:
    """The real recipe without its record of tested versions, which no fake can match."""
    return dataclasses.replace(load_recipe(), **{"tested": {}, **changes})


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.requests.append((self.path, wanted))
        file = self.server.root / self.path.lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        data = file.read_bytes()
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        cut = self.server.cuts.get(file.name, [])
        if cut:
            body = body[: cut.pop(0)]
            self.close_connection = True
        self.wfile.write(body)
        if file.name in self.server.stalls:
            self.server.stalled.set()
            self.server.stop.wait(60)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


class Mirror(http.server.ThreadingHTTPServer):
    """Serves a folder with ranges; `cuts` ends an answer early, `stalls` lets it hang."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.requests: list[tuple[str, str]] = []
        self.cuts: dict[str, list[int]] = {}
        self.stalls: set[str] = set()
        self.stalled, self.stop = threading.Event(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def mirror(root: Path) -> Iterator[Mirror]:
    server = Mirror(root)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        server.server_close()
