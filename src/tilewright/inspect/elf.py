"""Just enough ELF: sections, symbols, notes of 64-bit little-endian files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.errors import InspectionError

MAGIC = b"\x7fELF"
MACHINE_X86_64, MACHINE_CUDA, MACHINE_AMDGPU = 62, 190, 224

_NOTE, _SYMBOLS, _DYNAMIC_SYMBOLS, _NO_BITS = 7, 2, 11, 8
_FUNCTION = 2
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    address: int
    size: int
    is_function: bool
    section: int


def damaged(what: str, why: str) -> InspectionError:
    return InspectionError(
        f"{what} cannot be read: {why}",
        rule="code-object",
        value=what,
        remedy="give a library or code object that a build made; `tilewright cache verify` finds damaged entries",
    )


class Elf:
    """A file in memory; offsets that leave it are an error, never a crash."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data, self.what = data, what
        if data[:4] != MAGIC:
            raise damaged(what, "it is not an ELF file")
        if data[4:6] != b"\x02\x01":
            raise damaged(what, "it is not a 64-bit little-endian ELF file")
        head = self._unpack(_HEADER, 0)
        self.machine, self.flags = head[2], head[7]
        self.sections = self._sections(head[6], head[11], head[12], head[13])

    def _unpack(self, form: struct.Struct, at: int) -> tuple[int, ...]:
        if at < 0 or at + form.size > len(self.data):
            raise damaged(self.what, "it ends before its tables do")
        return form.unpack_from(self.data, at)

    def _sections(self, start: int, size: int, count: int, names_index: int) -> tuple[Section, ...]:
        if count and size != _SECTION.size:
            raise damaged(self.what, f"its section headers have {size} bytes")
        raw = [self._unpack(_SECTION, start + index * size) for index in range(count)]
        if names_index >= len(raw):
            return ()
        names = self._slice(raw[names_index][4], raw[names_index][5])
        return tuple(Section(_text(names, one[0]), one[1], one[2], one[3], one[4], one[5], one[6]) for one in raw)

    def _slice(self, offset: int, size: int) -> bytes:
        if offset + size > len(self.data):
            raise damaged(self.what, "a section ends after the file")
        return self.data[offset : offset + size]

    def section(self, name: str) -> Section | None:
        return next((one for one in self.sections if one.name == name), None)

    def bytes_of(self, section: Section) -> bytes:
        return b"" if section.kind == _NO_BITS else self._slice(section.offset, section.size)

    def code_bytes(self) -> int:
        """Bytes of the sections the machine may execute."""
        return sum(one.size for one in self.sections if one.flags & 4)

    def symbols(self) -> Iterator[Symbol]:
        """From the full table where the file has one, else from the exported names."""
        for wanted in (_SYMBOLS, _DYNAMIC_SYMBOLS):
            tables = [one for one in self.sections if one.kind == wanted]
            for table in tables:
                if table.link >= len(self.sections):
                    raise damaged(self.what, "a symbol table has no names")
                names = self.bytes_of(self.sections[table.link])
                data = self.bytes_of(table)
                for at in range(0, len(data) - _SYMBOL.size + 1, _SYMBOL.size):
                    name, info, _other, section, address, size = _SYMBOL.unpack_from(data, at)
                    yield Symbol(_text(names, name), address, size, info & 15 == _FUNCTION, section)
            if tables:
                return

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """Owner, type and content of every note."""
        for section in self.sections:
            if section.kind != _NOTE:
                continue
            data, at = self.bytes_of(section), 0
            while at + 12 <= len(data):
                owner_size, size, kind = struct.unpack_from("<III", data, at)
                at += 12
                owner = data[at : at + owner_size].rstrip(b"\0").decode("ascii", "replace")
                at += -(-owner_size // 4) * 4
                if at + size > len(data):
                    raise damaged(self.what, "a note ends after its section")
                yield owner, kind, data[at : at + size]
                at += -(-size // 4) * 4


def embedded(data: bytes, machine: int) -> Iterator[bytes]:
    """Files for another machine that lie whole inside this one, as our CUDA libraries hold their device code."""
    at = data.find(MAGIC, 1)
    while at >= 0:
        end = at + 1
        if data[at + 4 : at + 6] == b"\x02\x01" and at + _HEADER.size <= len(data):
            head = _HEADER.unpack_from(data, at)
            if head[2] == machine:
                # The file ends with the last of its tables and sections, whichever that is.
                whole = Elf(data[at:], "the code inside")
                ends = [one.offset + one.size for one in whole.sections if one.kind != _NO_BITS]
                end = at + max(*ends, head[6] + head[11] * head[12], head[5] + head[9] * head[10])
                yield data[at:end]
        at = data.find(MAGIC, end)


def _text(names: bytes, at: int) -> str:
    end = names.find(b"\0", at)
    return names[at : end if end >= 0 else None].decode("utf-8", "replace")
