"""Code objects made by hand: an ELF file with sections, symbols and an AMDGPU metadata note, and bundles of them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgpack

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
KERNEL = {
    ".name": "kernel_one",
    ".symbol": "kernel_one.kd",
    ".vgpr_count": 172,
    ".agpr_count": 64,
    ".sgpr_count": 40,
    ".group_segment_fixed_size": 32768,
    ".private_segment_fixed_size": 16,
    ".vgpr_spill_count": 4,
    ".sgpr_spill_count": 0,
    ".max_flat_workgroup_size": 256,
    ".wavefront_size": 64,
}

# What llvm-objdump prints of such a kernel; the last line is padding behind the symbol's 40 bytes.
LISTING = """
code.o:\tfile format elf64-amdgpu

Disassembly of section .text:

0000000000001000 <kernel_one>:
\ts_load_dwordx4 s[4:7], s[0:1], 0x0                         // 000000001000: C00A0100 00000000
\tglobal_load_dwordx4 v[0:3], v4, s[8:9]                     // 000000001004: DC5C8000 00020005
\tbuffer_load_dwordx2 v[6:7], v4, s[0:3], 0 offen            // 000000001008: DC548000 06060004
\tbuffer_load_ushort v8, v4, s[0:3], 0 offen                 // 00000000100C: DC548000 06060004
\tglobal_load_lds_dwordx4 v[12:13], off                      // 000000001010: DC548000 06060004
\tds_read_b128 v[16:19], v4                                  // 000000001014: D8EC07F8 08000004
\tv_mfma_f32_32x32x8_f16 a[0:15], v[20:21], v[22:23], a[0:15]// 000000001018: D3CD0000 04020D08
\tv_mfma_f32_32x32x8_f16 a[0:15], v[20:21], v[22:23], a[0:15]// 00000000101C: D3CD0000 04020D08
\tglobal_store_short_d16_hi v5, v24, s[2:3]                  // 000000001020: DC7C8000 00020005
\ts_endpgm                                                   // 000000001024: BF810000
\ts_nop 0                                                    // 000000001028: BF800000
"""


def code_object(
    arch: str = "gfx942", kernels: list[dict[str, Any]] | None = None, note: bytes | None = None, size: int = 40
) -> bytes:
    """An AMD code object of 40 bytes of code at 0x1000 a kernel, or as many as are asked for."""
    kernels = [KERNEL] if kernels is None else kernels
    if note is None:
        note = msgpack.packb(
            {
                "amdhsa.kernels": kernels,
                "amdhsa.target": f"amdgcn-amd-amdhsa--{arch}:sramecc+:xnack-",
                "amdhsa.version": [1, 2],
            }
        )
    content = struct.pack("<III", 7, len(note), 32) + b"AMDGPU\0\0" + note + b"\0" * (-len(note) % 4)
    names = b"\0" + b"".join(str(one[".name"]).encode() + b"\0" for one in kernels)
    symbols, at = b"\0" * 24, 1
    for index, one in enumerate(kernels):
        symbols += struct.pack("<IBBHQQ", at, 2, 0, 2, 0x1000 + 0x100 * index, size)
        at += len(str(one[".name"])) + 1
    return elf(
        224,
        [
            (".note", 7, 0, content, 0),
            (".text", 1, 6, b"\0" * 64, 0),
            (".symtab", 2, 0, symbols, 4),
            (".strtab", 3, 0, names, 0),
        ],
    )


def elf(machine: int, sections: list[tuple[str, int, int, bytes, int]]) -> bytes:
    """An ELF file of (name, type, flags, content, link)."""
    names, offsets = b"\0", []
    for name in (*(one[0] for one in sections), ".shstrtab"):
        offsets.append(len(names))
        names += name.encode() + b"\0"
    body, table = b"", b"\0" * 64
    for (_, kind, flags, content, link), at in zip((*sections, ("", 3, 0, names, 0)), offsets, strict=True):
        each = 24 if kind == 2 else 0
        table += struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, 64 + len(body), len(content), link, 0, 4, each)
        body += content
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    count = len(sections) + 2
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, count, count - 1)
    return head + body + table


def bundle(members: dict[str, bytes]) -> bytes:
    """A clang offload bundle: an empty entry for the host, then code objects by arch."""
    entries = {"host-x86_64-unknown-linux-gnu--": b""} | {
        f"hipv4-amdgcn-amd-amdhsa--{arch}": data for arch, data in members.items()
    }
    size = len(BUNDLE) + 8 + sum(24 + len(target) for target in entries)
    table, body = BUNDLE + struct.pack("<Q", len(entries)), b""
    for target, data in entries.items():
        table += struct.pack("<QQQ", size + len(body), len(data), len(target)) + target.encode()
        body += data
    return table + body


def host_library(fatbin: bytes) -> bytes:
    return elf(62, [(".text", 1, 6, b"\0" * 16, 0), (".hip_fatbin", 1, 2, fatbin, 0)])


def fake_objdump(folder: Path, listing: str = LISTING, status: int = 0) -> Path:
    """A disassembler that prints what it is told to."""
    text = folder / "listing.txt"
    text.write_text(listing, encoding="utf-8")
    tool = folder / "objdump"
    tool.write_text(f"#!/bin/sh\ncat '{text}'\n[ {status} = 0 ] || echo 'no such target' >&2\nexit {status}\n")
    tool.chmod(0o755)
    return tool
