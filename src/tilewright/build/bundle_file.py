"""Bundles as files: many libraries, and what is known of them, in one archive.

    model.twb
      manifest.json            what is inside: targets, kernels, coverage, and the digest of every other file
      registry/<target>.json   the kernels of a target with their specs
      kernels/<digest>.so      libraries as the store has them
      select/, support/        selection libraries, and what calls need beside kernels
      models/, locks/, records/

It is a ZIP archive of one form only: entries are stored as they are, in the order of their names, without comments,
extra fields or times.  So the same files are the same bytes, any ZIP program can list them, and a reader needs no
decompression.  Whatever else calls itself a bundle is refused, by one error that says what is wrong with which file.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright import jsontext
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import FileError

FORMAT, VERSION = "tilewright-bundle", 1
ENDING = ".twb"
MANIFEST = "manifest.json"
MOST_BYTES = (1 << 32) - 1  # sizes and places are numbers of 32 bits; 64-bit archives are not read
MOST_FILES = (1 << 16) - 1
MOST_MANIFEST = 256 << 20

_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
_LOCAL_MARK, _CENTRAL_MARK, _END_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_NEEDS, _CREATED_BY = 20, 20 | 3 << 8  # version 2.0 of the format; made on Unix
_DATE = 1 << 5 | 1  # 1980-01-01, the first day that there is
# How every bundle begins: a file that is stored as it is, of that day; other people's archives compress or are younger.
HEAD = _LOCAL.pack(_LOCAL_MARK, _NEEDS, 0, 0, 0, _DATE, 0, 0, 0, 0, 0)[:14]
_MODE = (stat.S_IFREG | 0o644) << 16
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*"
_CHUNK = 1 << 20


def bundle_error(path: object, why: str, rule: str, remedy: str = "") -> FileError:
    """What is wrong with a bundle, as one sentence."""
    usual = "copy it again, or make it anew with `tilewright bundle build`"
    return FileError(f"the bundle {path} cannot be used: {why}", rule=rule, value=str(path), remedy=remedy or usual)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the archive: where its bytes are."""

    name: str
    start: int
    size: int
    crc: int


class BundleFile:
    """An opened bundle.  What is read of it is checked first; nothing is unpacked."""

    _file = -1  # closed
    _close = staticmethod(os.close)  # also when the interpreter ends, and names of modules are gone

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().absolute()
        self._file = _opened(self.path)
        try:
            self.entries = self._directory()
            self.manifest = self._manifest()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; what was loaded from it stays loaded."""
        if self._file >= 0:
            self._close(self._file)
            self._file = -1

    def __enter__(self) -> BundleFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """Every file but the manifest, with its `sha256` and `bytes`."""
        files: Mapping[str, Mapping[str, Any]] = self.manifest["files"]
        return files

    def read(self, name: str) -> bytes:
        """The content of a file, which is what the manifest says it is."""
        entry, facts = self.entries.get(name), self.files.get(name)
        if entry is None or facts is None:
            raise self.error(f"it holds no {name}", "bundle-missing-file")
        data = self._bytes(entry.start, entry.size)
        if len(data) != entry.size or sha256(data).hexdigest() != facts["sha256"]:
            raise self.error(f"{name} is not what was put into it (its digest differs)", "bundle-digest")
        return data

    def json(self, name: str) -> Any:
        """The same of a file of JSON."""
        try:
            return jsontext.loads(self.read(name))
        except ValueError as error:
            raise self.error(f"{name} is no JSON: {error}", "bundle-content") from None

    def check(self) -> int:
        """Read every byte: of the files, and of what is between them; the answer counts the files."""
        for name in self.files:
            self.read(name)
        strange = sorted(set(self.entries) - set(self.files) - {MANIFEST})
        if strange:
            raise self.error(f"{strange[0]} is in it, and its manifest does not name it", "bundle-stray-file")
        at = 0
        for chunk in archive({name: self._bytes(entry.start, entry.size) for name, entry in self.entries.items()}):
            if self._bytes(at, len(chunk)) != chunk:
                raise self.error("its directory was changed after it was written", "bundle-archive")
            at += len(chunk)
        if at != self.size:
            raise self.error(f"{self.size - at} bytes follow its end", "bundle-archive")
        return len(self.entries)

    def error(self, why: str, rule: str, remedy: str = "") -> FileError:
        return bundle_error(self.path, why, rule, remedy)

    def _bytes(self, start: int, size: int) -> bytes:
        try:
            return os.pread(self._file, size, start)
        except OSError as error:
            raise self.error(error.strerror or str(error), "bundle-unreadable", "check its disk") from None

    def _directory(self) -> dict[str, Entry]:
        """The files by name, as the directory at the end lists them."""
        size = self.size
        end = self._bytes(max(0, size - _END.size), _END.size)
        if len(end) < _END.size or end[:4] != _END_MARK:
            begins = self._bytes(0, 4) == _LOCAL_MARK
            raise self._broken("it was cut off, or continued" if begins else "it is no ZIP archive")
        _, disk, first, here, count, length, start, comment = _END.unpack(end)
        if disk or first or here != count or comment or start + length + _END.size != size:
            raise self._broken("its directory is not where its end says")
        table, at, entries = self._bytes(start, length), 0, dict[str, Entry]()
        for _ in range(count):
            entry, at = self._entry(table, at, start)
            if entry.name in entries:
                raise self._broken(f"{entry.name} is in it twice")
            entries[entry.name] = entry
        if at != length:
            raise self._broken("its directory is longer than what it lists")
        return entries

    def _entry(self, table: bytes, at: int, end: int) -> tuple[Entry, int]:
        """One line of the directory, and where the next one begins; `end` is where the files end."""
        if at + _CENTRAL.size > len(table):
            raise self._broken("its directory is cut off")
        (mark, _, _, flags, method, _, _, crc, packed, size, name_size, extra, comment, _, _, _, place) = (
            _CENTRAL.unpack_from(table, at)
        )
        text = table[at + _CENTRAL.size : at + _CENTRAL.size + name_size]
        name = text.decode("ascii", "replace")
        if mark != _CENTRAL_MARK or len(text) != name_size:
            raise self._broken("its directory is cut off")
        if not re.fullmatch(_NAME, name):
            raise self._broken(f"it has a file {name!r:.80}, whose name leads elsewhere")
        if method or packed != size:
            raise self._broken(f"{name} is compressed, where files are stored as they are")
        if flags or extra or comment:
            raise self._broken(f"{name} has an entry of another form")
        start = place + _LOCAL.size + name_size
        if start + size > end:
            raise self._broken(f"{name} says that it has {size} bytes, which are not there")
        if self._bytes(place, _LOCAL.size + name_size) != _local(text, size, crc):
            raise self._broken(f"{name} does not begin where the directory says")
        return Entry(name, start, size, crc), at + _CENTRAL.size + name_size

    def _broken(self, why: str) -> FileError:
        return self.error(why, "bundle-archive")

    def _manifest(self) -> dict[str, Any]:
        entry = self.entries.get(MANIFEST)
        if entry is None:
            raise self.error(f"it has no {MANIFEST}", "bundle-manifest")
        if entry.size > MOST_MANIFEST:
            raise self.error(f"{MANIFEST} is larger than {MOST_MANIFEST >> 20} MiB", "bundle-manifest")
        text = self._bytes(entry.start, entry.size)
        if zlib.crc32(text) != entry.crc:
            raise self.error(f"{MANIFEST} is not what was put into it (its checksum differs)", "bundle-digest")
        try:
            data = jsontext.loads(text)
        except ValueError as error:
            raise self.error(f"{MANIFEST} is no JSON: {error}", "bundle-manifest") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise self.error(f"{MANIFEST} is not that of a bundle", "bundle-manifest")
        if data.get("version") != VERSION:
            raise self.error(
                f"it has version {data.get('version')!r:.20}, and this Tilewright reads {VERSION}",
                "bundle-version",
                "make it anew with this version, or use the one that made it",
            )
        wrong = _misshapen(data)
        if wrong:
            raise self.error(f"{MANIFEST} has no usable {wrong}", "bundle-manifest")
        return data


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # of a pipe, opening would wait for a writer
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or str(error)
        raise bundle_error(path, why, "bundle-unreadable", "give the path of a bundle that may be read") from None
    kind, size = os.fstat(file).st_mode, os.fstat(file).st_size
    if not stat.S_ISREG(kind) or size > MOST_BYTES:
        os.close(file)
        why = "it is no regular file" if not stat.S_ISREG(kind) else "it is larger than 4 GiB"
        raise bundle_error(path, why, "bundle-unreadable", "give the path of a bundle")
    return file


# The shape of a manifest: what reads it further need not ask.
_FACTS = {"sha256": str, "bytes": int}
_KERNEL = {"digest": str, "name": str, "op": str, "file": str, **_FACTS}
_NAMED_FILE = {"file": str, **_FACTS}


def _misshapen(data: Mapping[str, Any]) -> str:
    """The first part of a manifest that is not as it should be; empty where all are."""
    abi, targets, tables = data.get("abi"), data.get("targets"), ("targets", "selection", "files")
    if not isinstance(abi, list) or len(abi) != 2 or not all(type(number) is int for number in abi):
        return "'abi'"
    for name in tables:
        if not isinstance(data.get(name), dict):
            return repr(name)
    for name in ("support", "models", "locks", "records", "coverage"):
        rows = data.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            return repr(name)
    if not all(_has(facts, _FACTS) for facts in data["files"].values()):
        return "'files'"
    for row in data.get("coverage", []):
        stages = row.get("stages", [])
        if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
            return "'coverage'"
    assert isinstance(targets, dict)
    unlisted = set[str]()
    for target, part in targets.items():
        kernels = part.get("kernels") if isinstance(part, dict) else None
        if not isinstance(kernels, list) or not _has(part, {"backend": str, "registry": str}):
            return f"'targets.{target}'"
        if not all(_has(kernel, _KERNEL) for kernel in kernels):
            return f"'targets.{target}.kernels'"
        unlisted |= {part["registry"], *(kernel["file"] for kernel in kernels)} - data["files"].keys()
    named = [*data["selection"].values(), *(row for name in ("support", "models", "locks", "records")
             for row in data.get(name, []))]  # fmt: skip
    if not all(_has(row, _NAMED_FILE) for row in named):
        return "'selection', 'models', 'locks' or 'records'"
    unlisted |= {row["file"] for row in named} - data["files"].keys()
    return f"'files': it lists no {min(unlisted):.80}" if unlisted else ""


def _has(row: Any, fields: Mapping[str, type]) -> bool:
    return isinstance(row, dict) and all(type(row.get(name)) is kind for name, kind in fields.items())


# -- writing ---------------------------------------------------------------------------------------------------------


def _local(name: bytes, size: int, crc: int) -> bytes:
    return _LOCAL.pack(_LOCAL_MARK, _NEEDS, 0, 0, 0, _DATE, crc, size, size, len(name), 0) + name


def archive(files: Mapping[str, bytes]) -> Iterator[bytes]:
    """The bytes of the archive of these files, in pieces."""
    if len(files) > MOST_FILES:
        raise bundle_error("", f"{len(files)} files are more than {MOST_FILES}", "bundle-size", "take fewer kernels")
    central, at = list[bytes](), 0
    for name in sorted(files):
        content, text = files[name], name.encode("ascii")
        crc, size = zlib.crc32(content), len(content)
        yield _local(text, size, crc)
        for start in range(0, size, _CHUNK):
            yield content[start : start + _CHUNK]
        central.append(
            _CENTRAL.pack(
                _CENTRAL_MARK, _CREATED_BY, _NEEDS, 0, 0, 0, _DATE, crc, size, size, len(text), 0, 0, 0, 0, _MODE, at
            )
            + text
        )
        at += _LOCAL.size + len(text) + size
    table = b"".join(central)
    if at + len(table) + _END.size > MOST_BYTES:
        raise bundle_error("", "it would be larger than 4 GiB", "bundle-size", "give --max-size, or fewer targets")
    yield table
    yield _END.pack(_END_MARK, 0, 0, len(central), len(central), len(table), at, 0)
