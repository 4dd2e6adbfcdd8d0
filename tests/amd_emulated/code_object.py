"""Reading AMD code objects: the bundle inside a host library, the ELF image, its kernels and their metadata.

Written for the emulator, so it takes only what a loader on a real machine takes: the loadable segments,
the kernel descriptors and the argument layout of the metadata note.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
ELF_MAGIC = b"\x7fELF"
NOTE_AMDGPU_METADATA = 32
PT_LOAD, PT_NOTE, SHT_SYMTAB, SHT_DYNSYM = 1, 4, 2, 11


class BadCodeObject(ValueError):
    """The bytes are not what the format says."""


def unbundle(blob: bytes) -> dict[str, bytes]:
    """Entries of an offload bundle by their target id (`hipv4-amdgcn-amd-amdhsa--gfx942`)."""
    if not blob.startswith(BUNDLE_MAGIC):
        raise BadCodeObject("not an uncompressed offload bundle")
    at = len(BUNDLE_MAGIC)
    (count,) = struct.unpack_from("<Q", blob, at)
    at += 8
    found = {}
    for _ in range(count):
        offset, size, name_size = struct.unpack_from("<QQQ", blob, at)
        at += 24
        found[blob[at : at + name_size].decode()] = blob[offset : offset + size]
        at += name_size
    return found


def bundle_bytes(read: Any) -> int:
    """Size of a bundle of which only its start is known; `read(offset, size)` gives bytes of it."""
    if read(0, len(BUNDLE_MAGIC)) != BUNDLE_MAGIC:
        raise BadCodeObject("not an uncompressed offload bundle")
    at = len(BUNDLE_MAGIC)
    (count,) = struct.unpack("<Q", read(at, 8))
    at += 8
    end = 0
    for _ in range(count):
        offset, size, name_size = struct.unpack("<QQQ", read(at, 24))
        at += 24 + name_size
        end = max(end, offset + size)
    return end


def unpack_message(data: bytes) -> Any:
    """The MessagePack subset of the metadata: maps, arrays, strings, integers, booleans, nil."""
    value, _ = _unpack(data, 0)
    return value


_SIZED = {  # tag: (struct format of the length or the number, what follows)
    0xC4: (">B", "bytes"), 0xC5: (">H", "bytes"), 0xC6: (">I", "bytes"),
    0xD9: (">B", "str"), 0xDA: (">H", "str"), 0xDB: (">I", "str"),
    0xDC: (">H", "array"), 0xDD: (">I", "array"), 0xDE: (">H", "map"), 0xDF: (">I", "map"),
    0xCC: (">B", "number"), 0xCD: (">H", "number"), 0xCE: (">I", "number"), 0xCF: (">Q", "number"),
    0xD0: (">b", "number"), 0xD1: (">h", "number"), 0xD2: (">i", "number"), 0xD3: (">q", "number"),
    0xCA: (">f", "number"), 0xCB: (">d", "number"),
}  # fmt: skip


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag <= 0x8F:
        kind, size = "map", tag & 15
    elif tag <= 0x9F:
        kind, size = "array", tag & 15
    elif tag <= 0xBF:
        kind, size = "str", tag & 31
    elif tag in _SIZED:
        layout, kind = _SIZED[tag]
        (size,) = struct.unpack_from(layout, data, at)
        at += struct.calcsize(layout)
    else:
        raise BadCodeObject(f"MessagePack tag {tag:#x} is not used in metadata")
    if kind == "number":
        return size, at
    if kind in ("str", "bytes"):
        raw = data[at : at + size]
        return (raw.decode() if kind == "str" else raw), at + size
    items = []
    for _ in range(size * (2 if kind == "map" else 1)):
        one, at = _unpack(data, at)
        items.append(one)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items), at


@dataclass(frozen=True, slots=True)
class Argument:
    offset: int
    size: int
    kind: str  # by_value, global_buffer, hidden_block_count_x, ...


@dataclass(frozen=True, slots=True)
class KernelInfo:
    name: str
    entry: int  # virtual address of the first instruction
    rsrc1: int
    rsrc2: int
    properties: int
    lds: int  # static bytes
    scratch: int  # bytes a lane
    kernarg_bytes: int
    args: tuple[Argument, ...]
    vgprs: int
    agprs: int
    sgprs: int
    spilled: int = 0  # vector registers that did not fit

    @property
    def user_sgprs(self) -> int:
        return (self.rsrc2 >> 1) & 31


@dataclass(frozen=True, slots=True)
class Segment:
    address: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CodeObject:
    target: str  # gfx942
    segments: tuple[Segment, ...]
    kernels: dict[str, KernelInfo]

    @property
    def span(self) -> int:
        return max(one.address + one.size for one in self.segments)


def parse(image: bytes) -> CodeObject:
    """A code object: what a device loader maps, and every kernel it holds."""
    if image[:4] != ELF_MAGIC or image[4] != 2:
        raise BadCodeObject("not a 64-bit ELF file")
    ph_at, sh_at = struct.unpack_from("<QQ", image, 32)
    ph_size, ph_count, sh_size, sh_count = struct.unpack_from("<HHHH", image, 54)
    segments, notes = [], []
    for index in range(ph_count):
        kind, _, offset, address, _, file_size, mem_size, _ = struct.unpack_from(
            "<IIQQQQQQ", image, ph_at + index * ph_size
        )
        if kind == PT_LOAD:
            segments.append(Segment(address, mem_size, image[offset : offset + file_size]))
        elif kind == PT_NOTE:
            notes.append(image[offset : offset + file_size])
    metadata = _metadata(notes)
    symbols = _symbols(image, sh_at, sh_size, sh_count)
    kernels = {}
    for one in metadata["amdhsa.kernels"]:
        kernels[one[".name"]] = _kernel(one, symbols[one[".symbol"]], segments)
    target = str(metadata.get("amdhsa.target", "")).rpartition("--")[2].partition(":")[0]
    return CodeObject(target, tuple(segments), kernels)


def _metadata(notes: list[bytes]) -> Any:
    for blob in notes:
        at = 0
        while at + 12 <= len(blob):
            name_size, size, kind = struct.unpack_from("<III", blob, at)
            data_at = at + 12 + (name_size + 3) // 4 * 4
            if kind == NOTE_AMDGPU_METADATA and blob[at + 12 : at + 12 + name_size].rstrip(b"\0") == b"AMDGPU":
                return unpack_message(blob[data_at : data_at + size])
            at = data_at + (size + 3) // 4 * 4
    raise BadCodeObject("no AMDGPU metadata note")


def _symbols(image: bytes, sh_at: int, sh_size: int, sh_count: int) -> dict[str, int]:
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, sh_at + index * sh_size) for index in range(sh_count)]
    found: dict[str, int] = {}
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind not in (SHT_SYMTAB, SHT_DYNSYM):
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, entry):
            name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", image, at)
            start = strings + name
            found[image[start : image.index(b"\0", start)].decode()] = value
    return found


def _kernel(meta: dict[str, Any], descriptor: int, segments: list[Segment]) -> KernelInfo:
    home = next(one for one in segments if one.address <= descriptor < one.address + len(one.data))
    raw = home.data[descriptor - home.address :][:64]
    lds, scratch, kernarg = struct.unpack_from("<III", raw, 0)
    (entry_offset,) = struct.unpack_from("<q", raw, 16)
    _, rsrc1, rsrc2, properties = struct.unpack_from("<IIIH", raw, 44)
    args = tuple(Argument(one[".offset"], one[".size"], one[".value_kind"]) for one in meta.get(".args", ()))
    return KernelInfo(
        name=meta[".name"],
        entry=descriptor + entry_offset,
        rsrc1=rsrc1,
        rsrc2=rsrc2,
        properties=properties,
        lds=max(lds, meta[".group_segment_fixed_size"]),
        scratch=max(scratch, meta[".private_segment_fixed_size"]),
        kernarg_bytes=max(kernarg, meta[".kernarg_segment_size"]),
        args=args,
        vgprs=meta[".vgpr_count"],
        agprs=meta.get(".agpr_count", 0),
        sgprs=meta[".sgpr_count"],
        spilled=meta.get(".vgpr_spill_count", 0),
    )
