"""ELF files as far as inspections need them: sections, symbols and notes, read by pyelftools.

This module adds what the library does not have: files inside files (device code in host libraries), and one error
for whatever is wrong with the bytes, which may come from anywhere.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilewright.dataclass import dataclass
from tilewright.errors import InspectionError

if TYPE_CHECKING:
    from elftools.elf.sections import Section as Parsed

MAGIC = b"\x7fELF"
MACHINE_X86_64, MACHINE_CUDA, MACHINE_AMDGPU = "EM_X86_64", "EM_CUDA", "EM_AMDGPU"  # as the library calls them

_HEADER_BYTES = 64
_MACHINE_AT = slice(18, 20)
_EXECUTABLE = 4


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    flags: int
    offset: int
    size: int
    stored: bool  # False: zeros that are not in the file
    parsed: Parsed


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    address: int
    size: int
    is_function: bool


def damaged(what: str, why: str) -> InspectionError:
    return InspectionError(
        f"{what} cannot be read: {why}",
        rule="code-object",
        value=what,
        remedy="give a library or code object that a build made; `tilewright cache verify` finds damaged entries",
    )


@contextmanager
def _reading(what: str, part: str) -> Iterator[None]:
    """Whatever the library meets in bytes that are no such file is one error."""
    try:
        yield
    except InspectionError:
        raise
    except Exception as error:
        raise damaged(what, f"{part} {str(error) or type(error).__name__}") from error


class Elf:
    """A 64-bit little-endian file in memory; whatever is wrong with it is an InspectionError, never a crash."""

    def __init__(self, data: bytes, what: str) -> None:
        from elftools.elf.elffile import ELFFile  # here: most builds look into no file, and it takes 20 ms

        self.data, self.what = data, what
        if data[:4] != MAGIC:
            raise damaged(what, "it is not an ELF file")
        if data[4:6] != b"\x02\x01":
            raise damaged(what, "it is not a 64-bit little-endian ELF file")
        with _reading(what, "its tables are damaged:"):
            self._file = ELFFile(io.BytesIO(data))
            self.machine: str | int = self._file["e_machine"]
            self.flags = int(self._file["e_flags"])
            self.sections = tuple(map(self._section, self._file.iter_sections()))

    def _section(self, parsed: Parsed) -> Section:
        stored = parsed["sh_type"] != "SHT_NOBITS"
        section = Section(parsed.name, parsed["sh_flags"], parsed["sh_offset"], parsed["sh_size"], stored, parsed)
        if stored and section.offset + section.size > len(self.data):
            raise damaged(self.what, f"the section {section.name} ends after the file")
        return section

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def bytes_of(self, section: Section) -> bytes:
        return self.data[section.offset : section.offset + section.size] if section.stored else b""

    def code_bytes(self) -> int:
        """Bytes of the sections the machine may execute."""
        return sum(section.size for section in self.sections if section.flags & _EXECUTABLE)

    @property
    def end(self) -> int:
        """Where the file ends: with the last of its tables and sections, whichever that is."""
        head = self._file.header
        ends = [head[f"e_{table}off"] + head[f"e_{table}entsize"] * head[f"e_{table}num"] for table in ("sh", "ph")]
        ends += [section.offset + section.size for section in self.sections if section.stored]
        return int(max(ends))

    def symbols(self) -> Iterator[Symbol]:
        """From the full table where the file has one, else from the exported names."""
        from elftools.elf.sections import SymbolTableSection

        tables = [section.parsed for section in self.sections if isinstance(section.parsed, SymbolTableSection)]
        full = [table for table in tables if table["sh_type"] == "SHT_SYMTAB"]
        with _reading(self.what, "its symbols are damaged:"):
            for table in full or tables:
                for symbol in table.iter_symbols():
                    yield Symbol(
                        symbol.name, symbol["st_value"], symbol["st_size"], symbol["st_info"]["type"] == "STT_FUNC"
                    )

    def notes(self) -> Iterator[tuple[str, int | str, bytes]]:
        """Owner, type (by the name pyelftools has for it, if any) and content of every note."""
        from elftools.elf.sections import NoteSection

        with _reading(self.what, "its notes are damaged:"):
            for section in self.sections:
                if isinstance(section.parsed, NoteSection):
                    for note in section.parsed.iter_notes():
                        yield note["n_name"] or "", note["n_type"], note["n_descdata"]


def embedded(data: bytes, machine: str) -> Iterator[bytes]:
    """Files for another machine that are embedded whole in this one, as our CUDA libraries hold their device code."""
    from elftools.elf.enums import ENUM_E_MACHINE

    code = ENUM_E_MACHINE[machine].to_bytes(2, "little")
    at = data.find(MAGIC, 1)
    while at >= 0:
        end = at + 1
        head = data[at : at + _HEADER_BYTES]
        if head[4:6] == b"\x02\x01" and len(head) == _HEADER_BYTES and head[_MACHINE_AT] == code:
            end = at + Elf(data[at:], "the code inside").end
            yield data[at:end]
        at = data.find(MAGIC, end)
