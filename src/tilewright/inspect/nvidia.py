"""NVIDIA cubins: what ptxas wrote about a kernel, and its instructions; in full where nvdisasm is at hand."""

from __future__ import annotations

import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilewright.arch import Arch, all_archs
from tilewright.errors import InspectionError
from tilewright.inspect import elf, sass
from tilewright.inspect.disassembly import Instruction, NoDisassembly, written_by
from tilewright.inspect.elf import Elf, damaged
from tilewright.inspect.report import Function, Inspection, Instructions, Occupancy, Resources

KIND = "nvidia"
FATBIN = bytes.fromhex("50ed55ba")  # how a file with code for several GPUs begins
# Multiply-accumulate of whole tiles: by a warpgroup (wgmma), by a warp (mma.sync).
WARPGROUP, WARP = ("HGMMA", "QGMMA", "IGMMA"), ("HMMA", "QMMA", "IMMA", "DMMA")
# What moves tiles without registers: TMA and asynchronous copies of a thread (cp.async).
COPIES = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "LDGSTS")

_INFO = ".nv.info"
_FORM_WITH_SIZE = 4  # of an attribute; the others keep their value in the same word
# Attributes: symbol and number in the file's section, three numbers in that of the function.
_REGISTERS, _FRAME, _STACK, _THREADS = 0x2F, 0x11, 0x12, 0x05
_RESERVED_SHARED = 1024  # the system's own of every block
_SHARED_GRANULE = 128
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
_LINE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_LABEL = re.compile(r"^\.text\.(\S+):$")


def cubins(data: bytes, what: str) -> Iterator[bytes]:
    """Every cubin of a file: the file itself, or those inside a host library or among code for several GPUs."""
    if data[:4] != FATBIN and Elf(data, what).machine == elf.MACHINE_CUDA:
        yield data
    else:
        yield from elf.embedded(data, elf.MACHINE_CUDA)


def recognises(data: bytes) -> bool:
    if data[:4] == FATBIN:
        return next(cubins(data, "the file"), None) is not None
    if data[:4] != elf.MAGIC:
        return False
    code = Elf(data, "the file")
    return code.section(".nv_fatbin") is not None or next(cubins(data, "the file"), None) is not None


def _capability(code: Elf) -> int:
    # From CUDA 13 on (version 8 of the file's form) the number is one byte further up.
    return (code.flags >> 8 if code.data[8] >= 8 else code.flags) & 0xFF


def arch_of(code: Elf, wanted: str = "") -> str:
    """The arch a cubin is for: the file has the compute capability alone, so `wanted`, if it is of that one."""
    number = _capability(code)
    of_it = [name for name, arch in all_archs().items() if arch.capability and _number(arch.capability) == number]
    return wanted if wanted in of_it else next(iter(of_it), f"sm_{number}")


def _number(capability: tuple[int, int]) -> int:
    return capability[0] * 10 + capability[1]


def attributes(data: bytes, what: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The entries of a section .nv.info: number and words."""
    at = 0
    while at + 4 <= len(data):
        form, number, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form != _FORM_WITH_SIZE:
            yield number, (value,)
            continue
        if at + value > len(data):
            raise damaged(what, "an entry about a kernel ends after its section")
        yield number, struct.unpack_from(f"<{value // 4}I", data, at)
        at += value


def _numbers(code: Elf) -> dict[str, dict[int, int]]:
    """Registers and stack of every kernel, by its name."""
    section = code.section(_INFO)
    if section is None:
        raise damaged(code.what, "it has no section .nv.info")
    names = [symbol.name for symbol in code.symbols()]
    numbers_of: dict[str, dict[int, int]] = {}
    for number, words in attributes(code.bytes_of(section), code.what):
        if number in (_REGISTERS, _FRAME, _STACK) and len(words) == 2:
            if words[0] >= len(names):
                raise damaged(code.what, "it describes a function it does not name")
            numbers_of.setdefault(names[words[0]], {})[number] = words[1]
    # Subroutines of a kernel (a division of 64-bit numbers) are described too, but are in its section.
    return {name: numbers for name, numbers in numbers_of.items() if code.section(f".text.{name}") is not None}


def occupancy(arch: Arch, registers: int, shared_bytes: int, threads: int) -> Occupancy | None:
    """Warps of one kernel a scheduler can hold: blocks come whole, their warps spread over the schedulers."""
    if not (arch.simds and arch.simd_registers and arch.register_granule):
        return None
    warps = max(1, -(-threads // arch.warp_size))
    each = -(-warps // arch.simds)
    reserved = max(1, -(-registers // arch.register_granule)) * arch.register_granule
    taken = -(-shared_bytes // _SHARED_GRANULE) * _SHARED_GRANULE + _RESERVED_SHARED
    blocks = {
        "the hardware": arch.warps_per_simd // each,
        "registers": arch.simd_registers // reserved // each,
        "shared memory": (arch.scratch_bytes + _RESERVED_SHARED) // taken,
    }
    limited_by = min(blocks, key=lambda name: blocks[name])
    held = min(-(-blocks[limited_by] * warps // arch.simds), arch.warps_per_simd)
    return Occupancy(held, arch.warps_per_simd, limited_by, threads)


def _width(mnemonic: str) -> int:
    return next((_WIDTHS[word] for word in mnemonic.split(".") if word in _WIDTHS), 4)


def count(
    code: Sequence[Instruction], promised: tuple[str, ...] = (), recognized: tuple[str, ...] | None = None
) -> Instructions:
    """`promised`: beginnings of mnemonics that count beside the matrix instructions; `recognized`: see Instructions."""
    matrix: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    stack = 0
    for instruction in code:
        name = instruction.mnemonic.partition(".")[0]
        if name in WARPGROUP or name in WARP or (promised and instruction.mnemonic.startswith(promised)):
            matrix[instruction.mnemonic] += 1
        if name in COPIES:
            copies[instruction.mnemonic] += 1
        if name in ("LDG", "LDGSTS"):
            loads[_width(instruction.mnemonic)] += 1
        elif name == "STG":
            stores[_width(instruction.mnemonic)] += 1
        elif name in ("LDL", "STL"):
            stack += 1
    return Instructions(
        total=len(code),
        matrix=dict(matrix.most_common()),
        loads=dict(loads),
        stores=dict(stores),
        copies=dict(copies.most_common()),
        stack_moves=stack,
        recognized=recognized,
    )


def listing(path: Path, tool: str) -> str:
    """What nvdisasm writes of a cubin; NoDisassembly where it cannot."""
    if not tool:
        raise NoDisassembly("nvdisasm was not found (in the CUDA toolkit, or `pip install nvidia-cuda-nvdisasm`)")
    return written_by(tool, "-c", str(path))


def listings(path: Path, tool: str) -> str:
    """The device code of a cubin or a library as nvdisasm shows it; NoDisassembly where there is none."""
    data = path.read_bytes()
    objects = list(cubins(data, path.name))
    if not objects:
        raise _refused(data, path.name, (), "")
    texts = []
    with tempfile.TemporaryDirectory(prefix="tilewright-inspect-") as folder:
        code = Path(folder) / "code.cubin"
        for raw in objects:
            code.write_bytes(raw)
            texts.append(listing(code, tool))
    return "\n".join(texts)


def disassemble(raw: bytes, tool: str) -> dict[str, list[Instruction]]:
    """The instructions of a cubin by function; NoDisassembly where nobody can say."""
    with tempfile.TemporaryDirectory(prefix="tilewright-inspect-") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(raw)
        text = listing(path, tool)
    functions: dict[str, list[Instruction]] = {}
    symbol = ""
    for line in text.splitlines():
        label, instruction = _LABEL.match(line), _LINE.match(line)
        if label:
            symbol = label[1]
        elif instruction:
            functions.setdefault(symbol, []).append(
                Instruction(int(instruction[1], 16), instruction[2], instruction[3])
            )
    if not functions:
        raise NoDisassembly(f"{Path(tool).name} found no code")
    return functions


def by_opcode(code: Elf) -> dict[str, list[Instruction]]:
    """The instructions that matter of each kernel, without a tool; NoDisassembly for GPUs that are not known."""
    if _capability(code) not in sass.KNOWN:
        raise NoDisassembly(f"the opcodes of {arch_of(code)} are not known here")
    start = ".text."
    return {
        section.name.removeprefix(start): sass.decode(code.bytes_of(section), _capability(code))
        for section in code.sections
        if section.name.startswith(start)
    }


def holds(path: Path, beginnings: Sequence[str]) -> bool:
    """Whether device code with one of these mnemonics is inside; NoDisassembly where opcodes cannot say."""
    objects = [Elf(raw, path.name) for raw in cubins(path.read_bytes(), path.name)]
    if not objects:
        raise damaged(path.name, "it holds no NVIDIA device code")
    wanted = tuple(beginnings)
    every = (instruction for code in objects for inside in by_opcode(code).values() for instruction in inside)
    if any(instruction.mnemonic.startswith(wanted) for instruction in every):
        return True
    strange = [mnemonic for mnemonic in wanted if mnemonic not in sass.MNEMONICS]
    if strange:
        raise NoDisassembly(f"the opcodes of {', '.join(strange)} are not known here")
    return False


def _instructions(code: Elf, raw: bytes, tool: str, promised: tuple[str, ...]) -> tuple[dict[str, Instructions], str]:
    """By nvdisasm, else by opcode, else none; and what there is to say about it."""
    try:
        return {symbol: count(inside, promised) for symbol, inside in disassemble(raw, tool).items()}, ""
    except NoDisassembly as error:
        why = str(error)
    try:
        named = by_opcode(code)
    except NoDisassembly as error:
        return {}, f"{why} and {error}: instructions are not counted"
    counted = {symbol: count(inside, promised, sass.MNEMONICS) for symbol, inside in named.items()}
    return counted, f"{why}: instructions are named by their opcodes only"


def _function(
    symbol: str,
    numbers: Mapping[int, int],
    code: Elf,
    arch: Arch | None,
    counts: Mapping[str, Instructions],
    dynamic_shared: int,
) -> Function:
    text, shared, own = (code.section(f"{start}.{symbol}") for start in (".text", ".nv.shared", _INFO))
    words = dict(attributes(code.bytes_of(own), code.what)) if own is not None else {}
    threads = 1
    for extent in words.get(_THREADS, (arch.max_threads if arch is not None else 1024,)):
        threads *= extent
    # From Hopper on the section counts the system's part of a block's shared memory in.
    reserved = _RESERVED_SHARED if code.section(".nv.shared.reserved.0") is not None else 0
    resources = Resources(
        vgprs=numbers.get(_REGISTERS, 0),
        agprs=0,
        sgprs=0,
        shared_bytes=max(0, shared.size - reserved) if shared is not None else 0,
        # The stack of a kernel that calls nothing is its frame; ptxas says both.
        scratch_bytes=max(numbers.get(_FRAME, 0), numbers.get(_STACK, 0)),
        vgpr_spills=0,
        sgpr_spills=0,
        dynamic_shared_bytes=dynamic_shared,
    )
    use = None
    if arch is not None:
        use = occupancy(arch, resources.vgprs, resources.shared_bytes + dynamic_shared, threads)
    return Function(symbol, text.size if text is not None else 0, resources, use, counts.get(symbol))


def _refused(data: bytes, what: str, archs: Sequence[str], arch: str) -> InspectionError:
    if archs:
        held, rule = ", ".join(archs), "code-object"
        remedy = "give a cubin or a library of one NVIDIA arch"
    elif Elf(data, what).section(".nv_fatbin") is not None:
        held, rule = "NVIDIA's device code only compressed", "compressed-code"
        remedy = "compile with `-Xfatbinary -no-compress`, or take the cubin out with `cuobjdump -xelf all`"
    else:
        held, rule, remedy = "no NVIDIA device code", "code-object", "give a cubin or a library that holds one"
    more = "" if not archs else f", not {arch}" if arch else "; name one"
    return InspectionError(f"{what} holds {held}{more}", rule=rule, value=held, remedy=remedy)


def inspect(
    path: Path,
    tool: str = "",
    arch: str = "",
    dynamic_shared: Mapping[str, int] | None = None,
    promised: tuple[str, ...] = (),
) -> Inspection:
    """Look into a cubin, or into those of one arch in a host library (the only one, if none is named).

    `tool` is nvdisasm; `dynamic_shared` what each launch of a kernel asks for beyond what its code fixes; `promised`
    beginnings of mnemonics that count beside the matrix instructions.
    """
    data, what = path.read_bytes(), path.name
    objects = [(Elf(raw, what), raw) for raw in cubins(data, what)]
    archs = sorted({arch_of(code, arch) for code, _ in objects})
    wanted = arch or (archs[0] if len(archs) == 1 else "")
    if wanted not in archs:
        raise _refused(data, what, archs, arch)
    facts = all_archs().get(wanted)
    notes = [] if facts is not None else [f"there are no arch facts of {wanted}: no occupancy"]
    functions: list[Function] = []
    shared = dynamic_shared or {}
    size = 0
    for code, raw in objects:
        if arch_of(code, wanted) != wanted:
            continue
        size += code.code_bytes()
        counted, note = _instructions(code, raw, tool, promised)
        if note and note not in notes:
            notes.append(note)
        for symbol, numbers in _numbers(code).items():
            functions.append(_function(symbol, numbers, code, facts, counted, shared.get(symbol, 0)))
    if any(function.resources is not None and function.resources.scratch_bytes for function in functions):
        notes.append("local memory is slow: a smaller tile or a simpler epilogue may avoid it")
    return Inspection(str(path), KIND, wanted, size, tuple(functions), tuple(notes))
