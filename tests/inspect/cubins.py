"""Cubins made by hand: an ELF file with what ptxas writes about a kernel, and instructions of 16 bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.inspect.code_objects import elf

NAME = "kernel_one"
# Opcode (with where its operands come from), width of a load or store.
HGMMA, UTMALDG, UTMASTG, OTHER = (0x9F0, 0), (0x5B4, 0), (0x3B5, 0), (0x919, 0)
CODE = (UTMALDG, HGMMA, HGMMA, (0x981, 6), (0x981, 2), (0xFAE, 5), (0x986, 4), (0x983, 4), UTMASTG, OTHER)

# What nvdisasm prints of such a kernel.
LISTING = f"""\t.target\tsm_90a

//--------------------- .text.{NAME} --------------------------
\t.section\t.text.{NAME},"ax",@progbits
{NAME}:
.text.{NAME}:
        /*0000*/                   UTMALDG.3D.MULTICAST [UR8], [UR6], UR4 ;
        /*0010*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
.L_x_1:
        /*0020*/              @!P0 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0030*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0040*/             @!UP1 LDG.E.U16 R4, desc[UR4][R2.64] ;
        /*0050*/                   LDGSTS.E.64 [R3], desc[UR4][R2.64] ;
        /*0060*/                   STG.E desc[UR4][R2.64], R5 ;
        /*0070*/                   LDL R1, [R2] ;
        /*0080*/                   UTMASTG.3D [UR8], [UR6] ;
        /*0090*/                   EXIT ;
"""


def instructions(code: Sequence[tuple[int, int]] = CODE) -> bytes:
    return b"".join(struct.pack("<QQ", 0x7000 | opcode, width << 9) for opcode, width in code)


def _entry(number: int, *words: int) -> bytes:
    return struct.pack(f"<BBH{len(words)}I", 4, number, 4 * len(words), *words)


def cubin(
    capability: int = 90,
    *,
    registers: int = 168,
    frame: int = 0,
    shared: int = 2048,
    threads: tuple[int, ...] = (384, 1, 1),
    info: bytes | None = None,
    code: Sequence[tuple[int, int]] = CODE,
    form: int = 8,
) -> bytes:
    """A kernel and a subroutine of its own; `form` 7 is how files were written before CUDA 13."""
    names = b"\0" + NAME.encode() + b"\0inner\0"
    inner = len(NAME) + 2
    symbols = b"\0" * 24 + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 4, 0, 16 * len(code))
    symbols += struct.pack("<IBBHQQ", inner, 0x02, 0, 4, 0, 16)
    if info is None:
        info = _entry(0x2F, 1, registers) + struct.pack("<BBH", 3, 0x1B, 255) + _entry(0x11, 1, frame)
        info += _entry(0x12, 1, frame) + _entry(0x11, 2, 0)
    own = struct.pack("<BBH", 1, 0x2A, 0) + (_entry(0x05, *threads) if threads else b"")
    file = elf(
        190,
        [
            (".strtab", 3, 0, names, 0),
            (".symtab", 2, 0, symbols, 1),
            (".nv.info", 0x70000000, 0, info, 2),
            (f".text.{NAME}", 1, 6, instructions(code), 0),
            (f".nv.info.{NAME}", 0x70000000, 0, own, 2),
            (f".nv.shared.{NAME}", 1, 3, b"\0" * shared, 0),
            *([(".nv.shared.reserved.0", 8, 3, b"", 0)] if capability >= 90 else []),
        ],
    )
    flags = 0x6000004 | capability << 8 if form >= 8 else 0x500 | capability
    return file[:8] + bytes([form]) + file[9:48] + struct.pack("<I", flags) + file[52:]


def host_library(*images: bytes) -> bytes:
    """A library as our host half makes it: the device's code as it is, among read-only data."""
    inside = b"".join(b"\x7fELF not one" + b"\0" * 51 + one + b"\0" for one in images)
    return elf(62, [(".text", 1, 6, b"\0" * 16, 0), (".rodata", 1, 2, inside, 0)])
