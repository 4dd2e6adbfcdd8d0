"""Members of a model's file, which is a zip file, without `zipfile` where it is one as we write them.

A first call reads the model of its op, and `zipfile` takes as long to import as the model to read.  Anything that is
not as `model_files` writes it (another compression, a comment, 64-bit sizes) is for `zipfile`; so is a damaged file,
which it reports in words.  Each member's checksum is compared either way.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zipfile

_END = struct.Struct("<4s4H2LH")  # of the central directory
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_STORED, _DEFLATED = 0, 8


class Archive:
    """A zip file in memory: the sizes of its members, and each member's bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._entries = _entries(data)
        self.sizes: Mapping[str, int] = (
            {name: entry[3] for name, entry in self._entries.items()} if self._entries is not None else _sizes(data)
        )

    def read(self, name: str) -> bytes:
        """A KeyError where there is none of that name."""
        content = None
        if self._entries is not None:
            if name not in self._entries:
                raise KeyError(f"There is no item named {name!r} in the archive")
            content = _member(self._data, name, *self._entries[name])
        return _by_zipfile(self._data, name) if content is None else content


_Entry = tuple[int, int, int, int, int]  # compression, checksum, bytes in the file, bytes, where it begins


def _entries(data: bytes) -> dict[str, _Entry] | None:
    """The directory of a file as we write it; None of any other."""
    at = len(data) - _END.size
    if at < 0:
        return None
    sign, disk, first, here, count, length, start, comment = _END.unpack_from(data, at)
    if sign != b"PK\5\6" or disk or first or comment or here != count or start + length != at:
        return None
    entries: dict[str, _Entry] = {}
    for _ in range(count):
        if start + _ENTRY.size > at:
            return None
        sign, _, _, flags, kind, _, _, check, packed, size, name, extra, note, _, _, _, place = _ENTRY.unpack_from(
            data, start
        )
        if sign != b"PK\1\2" or flags or extra or note or kind not in (_STORED, _DEFLATED):
            return None
        word = data[start + _ENTRY.size : start + _ENTRY.size + name]
        if not word.isascii() or max(packed, size, place) == 0xFFFFFFFF:
            return None
        entries[word.decode("ascii")] = kind, check, packed, size, place
        start += _ENTRY.size + name
    return entries if start == at and len(entries) == count else None


def _member(data: bytes, name: str, kind: int, check: int, packed: int, size: int, place: int) -> bytes | None:
    if place + _LOCAL.size > len(data):
        return None
    sign, _, flags, local_kind, _, _, _, _, _, length, extra = _LOCAL.unpack_from(data, place)
    start = place + _LOCAL.size + length + extra
    word = data[place + _LOCAL.size : place + _LOCAL.size + length]
    if sign != b"PK\3\4" or flags or local_kind != kind or word != name.encode() or start + packed > len(data):
        return None
    raw = data[start : start + packed]
    if kind == _DEFLATED:
        unpacker = zlib.decompressobj(-15)
        try:
            raw = unpacker.decompress(raw, size + 1)
        except zlib.error:
            return None
        if not unpacker.eof:
            return None
    return raw if len(raw) == size and zlib.crc32(raw) == check else None


def _sizes(data: bytes) -> dict[str, int]:
    with _zip_file(data) as archive:
        return {member.filename: member.file_size for member in archive.infolist()}


def _by_zipfile(data: bytes, name: str) -> bytes:
    with _zip_file(data) as archive:
        return archive.read(name)


@contextmanager
def _zip_file(data: bytes) -> Iterator[zipfile.ZipFile]:
    """What is no zip file is a ValueError, as other damage is."""
    import io
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from None
