"""x86-64 libraries: the hottest function, its multiply-add instructions, vector widths and traffic to the stack.

There is no metadata to read, so everything comes from the disassembly.  The hottest function is the
one with the most multiply-add instructions: a guess that holds for kernels, whose work is nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.inspect import disassembly, elf
from tilewright.inspect.disassembly import Instruction, NoDisassembly
from tilewright.inspect.elf import Elf, damaged
from tilewright.inspect.report import Function, Inspection, Instructions

FMA = ("vfmadd", "vfmsub", "vfnmadd", "vfnmsub")
DOT = ("vpdp", "vdpbf16ps", "vdpphps", "vpmaddwd", "vpmaddubsw", "pmaddwd", "tdp")
_SCALAR = ("ss", "sd", "sh")  # one multiply-add of a scalar is no vector work

_REGISTER = re.compile(r"%([xyz])mm\d+")
_BITS = {"x": 128, "y": 256, "z": 512}
_MEMORY = re.compile(r"-?(?:0x[0-9a-f]+)?\(%[^)]*\)")
_STACK = re.compile(r"-?(?:0x[0-9a-f]+)?\(%r[sb]p(?:,[^)]*)?\)")
_MOVE = re.compile(r"^v?mov(?:a|u|dqa|dqu|dqa32|dqa64|dqu8|dqu16|dqu32|dqu64)p?[sd]?$")

# ISA extension -> what shows that it is used.
_SIGNS: tuple[tuple[str, re.Pattern[str], re.Pattern[str] | None], ...] = (
    ("sse", re.compile(r"^(?:mul|add|mova|movu)[ps][sd]$"), None),
    ("avx", re.compile(r"^v(?:add|mul|mov|broadcast)"), None),
    ("fma", re.compile(r"^vfn?m(?:add|sub)"), None),
    ("f16c", re.compile(r"^vcvt(?:ph2ps|ps2ph)$"), None),
    ("avx2", re.compile(r"^vp"), re.compile(r"%ymm")),
    ("avx512f", re.compile(r""), re.compile(r"%zmm|\{%k\d\}")),
    ("avx512_vnni", re.compile(r"^vpdp"), None),
    ("avx512_bf16", re.compile(r"^v(?:dpbf16ps|cvtneps2bf16|cvtne2ps2bf16)"), None),
    ("amx", re.compile(r"^(?:tdp|tile)"), None),
)


def recognises(data: bytes) -> bool:
    """A library of the host without device code inside."""
    if data[:4] != elf.MAGIC:
        return False
    code = Elf(data, "the file")
    if code.machine != elf.MACHINE_X86_64 or any("fatbin" in section.name.lower() for section in code.sections):
        return False
    return next(elf.embedded(data, elf.MACHINE_CUDA), None) is None


def count(code: Sequence[Instruction], promised: tuple[str, ...] = ()) -> Instructions:
    """`promised`: beginnings of mnemonics that count beside the multiply-adds."""
    matrix: Counter[str] = Counter()
    vectors: Counter[int] = Counter()
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    extensions: set[str] = set()
    stack = 0
    for instruction in code:
        registers = _REGISTER.findall(instruction.operands)
        fused = instruction.mnemonic.startswith(FMA) and not instruction.mnemonic.endswith(_SCALAR)
        if fused or instruction.mnemonic.startswith((*DOT, *(name for name in promised if not name.startswith(FMA)))):
            matrix[instruction.mnemonic] += 1
        if not registers:
            continue
        bits = max(_BITS[letter] for letter in registers)
        vectors[bits] += 1
        extensions.update(name for name, sign, where in _SIGNS if _shows(instruction, sign, where))
        if not _MEMORY.search(instruction.operands):
            continue
        moves = _MOVE.match(instruction.mnemonic) is not None
        if moves and _STACK.search(instruction.operands):
            stack += 1
        elif moves and _MEMORY.search(instruction.operands.rpartition(",")[2] or instruction.operands):
            stores[bits // 8] += 1
        else:
            loads[bits // 8] += 1
    return Instructions(
        total=len(code),
        matrix=dict(matrix.most_common()),
        loads=dict(loads),
        stores=dict(stores),
        vector_bits=dict(vectors),
        extensions=tuple(name for name, _, _ in _SIGNS if name in extensions),
        stack_moves=stack,
        recognized=disassembly.recognized(code),
    )


def _shows(instruction: Instruction, sign: re.Pattern[str], where: re.Pattern[str] | None) -> bool:
    return bool(sign.match(instruction.mnemonic)) and (where is None or bool(where.search(instruction.operands)))


def inspect(path: Path, tools: Sequence[Path] = (), arch: str = "", promised: tuple[str, ...] = ()) -> Inspection:
    code = Elf(path.read_bytes(), path.name)
    if code.machine != elf.MACHINE_X86_64:
        raise damaged(path.name, f"it is for machine {code.machine}, not x86-64")
    notes: list[str] = []
    functions: tuple[Function, ...] = ()
    try:
        text = disassembly.disassemble(path, disassembly.find_disassembler(tools))
        functions = (_hottest(code, text, promised),)
        notes.append("the function shown is the one with the most multiply-add instructions")
    except NoDisassembly as error:
        notes.append(str(error))
    return Inspection(str(path), "x86-64", arch, code.code_bytes(), functions, tuple(notes))


def holds(path: Path, beginnings: Sequence[str], tools: Sequence[Path] = ()) -> bool:
    """Whether vector code with one of these mnemonics is inside; NoDisassembly where nobody can look."""
    text = disassembly.listing(path, disassembly.find_disassembler(tools))
    scalar_ends = "".join(f"(?<!{end})" for end in _SCALAR)  # of FMA only: vpdpbusd ends like one
    fused = [beginning for beginning in beginnings if beginning.startswith(FMA)]
    others = [beginning for beginning in beginnings if beginning not in fused]
    return (bool(fused) and disassembly.shows(text, fused, ends=scalar_ends)) or (
        bool(others) and disassembly.shows(text, others)
    )


def _hottest(code: Elf, text: dict[str, list[Instruction]], promised: tuple[str, ...]) -> Function:
    counted = {symbol: count(inside, promised) for symbol, inside in text.items()}
    symbol = max(counted, key=lambda name: (counted[name].matrix_count, counted[name].total))
    inside = text[symbol]
    unknown = [recognized for counts in counted.values() if (recognized := counts.recognized) is not None]
    place = next((entry for entry in code.symbols() if entry.name == symbol and entry.size), None)
    size = place.size if place is not None else inside[-1].address - inside[0].address
    # A function that was not read whole may be the one that multiplies.
    shown = replace(counted[symbol], recognized=unknown[0] if unknown else None)
    return Function(symbol, size, instructions=shown)
