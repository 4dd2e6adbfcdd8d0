"""A decoder of MessagePack, as far as compilers write it into code objects."""

from __future__ import annotations

import struct
from typing import Any

_DEEPEST = 64

# Type byte -> what the following bytes are: a number of this form, or the length of text, bytes, a list or a map.
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_LENGTHS = {
    0xC4: ("bytes", ">B"), 0xC5: ("bytes", ">H"), 0xC6: ("bytes", ">I"),
    0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"),
    0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I"),
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def decode(data: bytes) -> Any:
    """The first value; ValueError where the bytes are no MessagePack."""
    return _Reader(data).value(0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("it ends inside a value")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError(f"it nests deeper than {_DEEPEST}")
        kind = self._take(1)[0]
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind < 0x90:
            return self._compound("map", kind & 15, depth)
        if kind < 0xA0:
            return self._compound("list", kind & 15, depth)
        if kind < 0xC0:
            return self._compound("text", kind & 31, depth)
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind in _LENGTHS:
            what, form = _LENGTHS[kind]
            return self._compound(what, self._number(form), depth)
        raise ValueError(f"type byte {kind:#x} is not used by compilers")

    def _compound(self, what: str, size: int, depth: int) -> Any:
        if what == "bytes":
            return self._take(size)
        if what == "text":
            return self._take(size).decode("utf-8", "replace")
        if what == "list":
            return [self.value(depth + 1) for _ in range(size)]
        found: dict[Any, Any] = {}
        for _ in range(size):
            key = self.value(depth + 1)
            if isinstance(key, (list, dict)):
                raise ValueError("a key is no plain value")
            found[key] = self.value(depth + 1)
        return found
