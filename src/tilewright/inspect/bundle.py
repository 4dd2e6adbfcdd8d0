"""Device code inside host libraries: clang's offload bundles, plain or compressed.

Read by hand: no Python library knows them, and clang's own tool is not where kernels are only looked at.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from importlib import import_module

from tilewright.dataclass import dataclass
from tilewright.inspect.elf import damaged

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
_ZLIB, _ZSTD = 0, 1


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of a bundle; the target is as clang writes it: hipv4-amdgcn-amd-amdhsa--gfx942."""

    target: str
    data: bytes


class NoDecoder(Exception):
    """The bundle is compressed with what this Python cannot decompress."""


def members(data: bytes, what: str) -> Iterator[Member]:
    """Every entry of every bundle in a section; a library of several sources has several."""
    at = 0
    while True:
        plain, packed = data.find(MAGIC, at), data.find(COMPRESSED, at)
        if plain < 0 and packed < 0:
            return
        if plain >= 0 and (packed < 0 or plain < packed):
            yield from _plain(data, plain, what)
            at = plain + len(MAGIC)
        else:
            inner, size = _decompressed(data, packed, what)
            yield from _plain(inner, 0, what)
            at = packed + size


def _plain(data: bytes, start: int, what: str) -> Iterator[Member]:
    try:
        (count,) = struct.unpack_from("<Q", data, start + len(MAGIC))
        at = start + len(MAGIC) + 8
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            target = data[at + 24 : at + 24 + length].decode("ascii", "replace")
            at += 24 + length
            if start + offset + size > len(data):
                raise damaged(what, f"the code for {target} ends after its bundle")
            if size:
                yield Member(target, data[start + offset : start + offset + size])
    except struct.error:
        raise damaged(what, "a bundle of device code ends inside its table") from None


def _decompressed(data: bytes, start: int, what: str) -> tuple[bytes, int]:
    """The plain bundle, and the bytes the compressed one takes."""
    try:
        version, method = struct.unpack_from("<HH", data, start + 4)
        if version == 1:
            head, whole = 20, len(data) - start
        elif version == 2:
            head, whole = 24, struct.unpack_from("<I", data, start + 8)[0]
        elif version == 3:
            head, whole = 32, struct.unpack_from("<Q", data, start + 8)[0]
        else:
            raise damaged(what, f"it holds a compressed bundle of version {version}")
    except struct.error:
        raise damaged(what, "a compressed bundle ends inside its header") from None
    body = data[start + head : start + whole]
    if method == _ZLIB:
        try:
            return zlib.decompressobj().decompress(body), whole
        except zlib.error as error:
            raise damaged(what, f"a compressed bundle is damaged: {error}") from None
    if method != _ZSTD:
        raise damaged(what, f"it holds a bundle compressed by method {method}")
    return _zstd(body), whole


def _zstd(body: bytes) -> bytes:
    for name, call in (("compression.zstd", "decompress"), ("zstandard", "decompress")):
        try:
            module = import_module(name)
        except ImportError:
            continue
        plain: bytes = getattr(module, call)(body)
        return plain
    raise NoDecoder
