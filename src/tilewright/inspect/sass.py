"""Machine code of NVIDIA GPUs from 8.0 to 12.1, as far as the instructions that matter: by opcode, without any tool.

Every instruction has 16 bytes.  The lowest nine bits name the operation, the next three where its operands
come from; loads and stores say their width in bits 73 to 75, asynchronous copies from 10.0 on in bits 74 and 75.
Checked against nvdisasm by a test.  By hand, since builds look at every kernel, and nvdisasm is a download of its own
that most machines do not have.  Of an operation that is not in MNEMONICS nothing can be said, neither that it is there
nor that it is missing.
"""

from __future__ import annotations

import struct

from tilewright.inspect.disassembly import Instruction

KNOWN = range(80, 122)  # the compute capabilities, times ten, that write their instructions so
OTHER = "?"
_SIZE = 16
_OPERATIONS = {
    0x03C: "HMMA", 0x037: "IMMA", 0x03F: "DMMA", 0x07A: "QMMA", 0x1F0: "HGMMA", 0x1F1: "IGMMA",
    0x1F3: "QGMMA", 0x1B4: "UTMALDG", 0x1B5: "UTMASTG", 0x1B6: "UTMAREDG", 0x1BA: "UBLKCP", 0x1AE: "LDGSTS",
    0x181: "LDG", 0x186: "STG", 0x183: "LDL", 0x187: "STL",
}  # fmt: skip
MNEMONICS = tuple(_OPERATIONS.values())
_MEMORY = ("LDGSTS", "LDG", "STG")
_WIDTHS = (".U8", ".S8", ".U16", ".S16", "", ".64", ".128", "")
_COPY_WIDTHS = ("", ".64", ".128", "")
_NEWER_COPIES = 100  # the first compute capability, times ten, that writes them so


def decode(code: bytes, capability: int) -> list[Instruction]:
    """Every instruction of a function; those that do not matter here are called `?`."""
    instructions = []
    for number, (low, high) in enumerate(struct.iter_unpack("<QQ", code[: len(code) // _SIZE * _SIZE])):
        name = _OPERATIONS.get(low & 0x1FF, OTHER)
        if name == "LDGSTS" and capability >= _NEWER_COPIES:
            width = _COPY_WIDTHS[high >> 10 & 3]
        else:
            width = _WIDTHS[high >> 9 & 7] if name in _MEMORY else ""
        instructions.append(Instruction(number * _SIZE, name + width, ""))
    return instructions
