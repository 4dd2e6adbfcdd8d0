"""AMD code objects: what the compiler's metadata and the instructions say."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.arch import Arch, all_archs
from tilewright.errors import InspectionError
from tilewright.inspect import amd_model, amd_waits, bundle, disassembly, elf
from tilewright.inspect.disassembly import Instruction, NoDisassembly
from tilewright.inspect.elf import Elf, damaged
from tilewright.inspect.report import Function, Inspection, Instructions, Occupancy, Resources

_METADATA_NOTE = ("AMDGPU", 32)
_MATRIX = ("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_")
_MEMORY = re.compile(r"^(?:global|buffer|flat|tbuffer)_(load|store)_(?:lds_)?(.+)$")
_LDS_GRANULE = 512

# The end of a mnemonic names what one lane moves.  Longer names first: dwordx4 also ends what begins as dword.
_WIDTHS = (
    ("dwordx4", 16), ("b128", 16), ("dwordx3", 12), ("b96", 12), ("dwordx2", 8), ("b64", 8),
    ("dword", 4), ("b32", 4), ("short", 2), ("u16", 2), ("i16", 2), ("b16", 2), ("byte", 1), ("u8", 1), ("i8", 1),
    ("b8", 1), ("format_xyzw", 16), ("format_x", 4),
)  # fmt: skip


def code_objects(data: bytes, what: str) -> Iterator[tuple[str, bytes]]:
    """Every AMD code object of a file with its target: the file itself, or the bundles in a host library."""
    if data[: len(bundle.MAGIC)] == bundle.MAGIC or data[:4] == bundle.COMPRESSED:
        yield from _of_bundle(data, what)
        return
    binary = Elf(data, what)
    if binary.machine == elf.MACHINE_AMDGPU:
        yield "", data
        return
    section = binary.section(".hip_fatbin")
    if section is not None:
        yield from _of_bundle(binary.bytes_of(section), what)


def _of_bundle(data: bytes, what: str) -> Iterator[tuple[str, bytes]]:
    for member in bundle.members(data, what):
        if "amdgcn" in member.target:
            yield member.target, member.data


def recognises(data: bytes) -> bool:
    if data[: len(bundle.MAGIC)] == bundle.MAGIC or data[:4] == bundle.COMPRESSED:
        return True
    if data[:4] != elf.MAGIC:
        return False
    code = Elf(data, "the file")
    return code.machine == elf.MACHINE_AMDGPU or code.section(".hip_fatbin") is not None


def metadata(code: Elf) -> Mapping[str, Any]:
    """The compiler's description of every kernel."""
    for owner, kind, content in code.notes():
        if (owner, kind) == _METADATA_NOTE:
            return _unpacked(content, code.what)
    raise damaged(code.what, "it has no AMDGPU metadata note")


def _unpacked(content: bytes, what: str) -> Mapping[str, Any]:
    import msgpack

    try:
        notes = msgpack.unpackb(content, strict_map_key=False, unicode_errors="replace")
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: a list or table as a key
        raise damaged(what, f"its metadata is no MessagePack: {str(error) or type(error).__name__}") from None
    if not isinstance(notes, dict):
        raise damaged(what, "its metadata is no table")
    return notes


def occupancy(arch: Arch, registers: int, shared_bytes: int, threads: int) -> Occupancy | None:
    """Warps of one kernel a SIMD can hold: by the hardware, by registers, and by whole blocks in LDS."""
    if not (arch.simds and arch.simd_registers and arch.register_granule):
        return None
    warps_of_block = max(1, -(-threads // arch.warp_size))
    granule = arch.register_granule
    reserved = max(granule, -(-registers // granule) * granule)
    by_registers = arch.simd_registers // reserved
    limits = {"the hardware": arch.warps_per_simd, "registers": by_registers}
    if shared_bytes:
        blocks = arch.scratch_bytes // (-(-shared_bytes // _LDS_GRANULE) * _LDS_GRANULE)
        # Blocks come whole; their warps spread over the SIMDs.
        limits["LDS"] = -(-blocks * warps_of_block // arch.simds)
    limited_by = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[limited_by], arch.warps_per_simd, limited_by, threads)


def count(code: Sequence[Instruction], promised: tuple[str, ...] = (), copied: tuple[str, ...] = ()) -> Instructions:
    """Beginnings of mnemonics: `promised` count beside the matrix instructions, `copied` as copies."""
    matrix: Counter[str] = Counter()
    copies: Counter[str] = Counter()
    moves: dict[str, Counter[int]] = {"load": Counter(), "store": Counter()}
    for instruction in code:
        if instruction.mnemonic.startswith(copied):
            copies[instruction.mnemonic] += 1
        if instruction.mnemonic.startswith((*_MATRIX, *promised)):
            matrix[re.sub(r"_e(?:32|64)$", "", instruction.mnemonic)] += 1
            continue
        memory = _MEMORY.match(instruction.mnemonic)
        if memory:
            # ubyte_d16_hi and the like: the half of a register it goes to does not change the width.
            kind = re.sub(r"_d16(?:_hi)?|^d16_(?:hi_)?", "", memory.group(2))
            width = next((size for name, size in _WIDTHS if kind.endswith(name)), 0)
            moves[memory.group(1)][width] += 1
    return Instructions(
        total=len(code),
        matrix=dict(matrix.most_common()),
        loads=dict(moves["load"]),
        stores=dict(moves["store"]),
        copies=dict(copies.most_common()),
        recognized=disassembly.recognized(code),
    )


def _function(
    kernel: Mapping[str, Any],
    code: Elf,
    arch: Arch | None,
    disassembled: dict[str, list[Instruction]],
    promised: tuple[str, ...],
    copied: tuple[str, ...],
) -> Function:
    def number(key: str) -> int:
        return int(kernel.get(key, 0))

    symbol = str(kernel.get(".name", kernel.get(".symbol", "?")))
    place = next((entry for entry in code.symbols() if entry.name == symbol and entry.is_function), None)
    size = place.size if place is not None else 0
    agprs = number(".agpr_count")
    # Where the two kinds share one file the count of VGPRs holds both; of two files (gfx908) it is the larger's.
    shared_file = arch is not None and 0 < arch.accumulator_registers <= arch.simd_registers - arch.vector_registers
    vgprs = number(".vgpr_count") - (agprs if shared_file else 0)
    threads = number(".max_flat_workgroup_size")
    resources = Resources(
        vgprs=vgprs,
        agprs=agprs,
        sgprs=number(".sgpr_count"),
        shared_bytes=number(".group_segment_fixed_size"),
        scratch_bytes=number(".private_segment_fixed_size"),
        vgpr_spills=number(".vgpr_spill_count"),
        sgpr_spills=number(".sgpr_spill_count"),
    )
    use = None if arch is None else occupancy(arch, number(".vgpr_count"), resources.shared_bytes, threads)
    if symbol not in disassembled:
        return Function(symbol, size, resources, use)
    inside = [
        instruction
        for instruction in disassembled[symbol]
        if place is None or instruction.address < place.address + size
    ]
    model = amd_model.code_model(symbol, inside, arch, use.warps) if arch is not None and use is not None else None
    instructions = count(inside, promised, copied)
    # What the tool does not name may be the wait itself.
    waits = amd_waits.check(inside, arch.name) if arch is not None and instructions.recognized is None else None
    return Function(symbol, size, resources, use, instructions, model, waits)


def _target(notes: Mapping[str, Any], bundled: str) -> str:
    """gfx942 of amdgcn-amd-amdhsa--gfx942:xnack-."""
    return str(notes.get("amdhsa.target") or bundled).partition(":")[0].rpartition("-")[2]


def code_target(arch: str) -> str:
    """The GPU that code of an arch is compiled for: an arch of one's own may have any name."""
    known = all_archs().get(arch)
    flags = known.compile_flags if known is not None else ()
    return next((flag.partition("=")[2] for flag in flags if flag.startswith("--offload-arch=")), arch)


def inspect(
    path: Path,
    tools: Sequence[Path] = (),
    arch: str = "",
    promised: tuple[str, ...] = (),
    copied: tuple[str, ...] = (),
) -> Inspection:
    """Look into a code object, or into those of one arch in a host library (the only one, if none is named)."""
    what = path.name
    notes: list[str] = []
    objects = [(Elf(raw, what), raw, target) for target, raw in _objects(path)]
    described = [(metadata(code), code, raw, target) for code, raw, target in objects]
    archs = sorted({_target(notes, target) for notes, _, _, target in described})
    wanted = code_target(arch) or (archs[0] if len(archs) == 1 else "")
    if not described or wanted not in archs:
        held = ", ".join(archs) or "no AMD device code"
        raise InspectionError(
            f"{what} holds {held}" + (f", not {arch}" if arch else "; name one" if archs else ""),
            rule="code-object",
            value=held,
            remedy="give a code object or library of one AMD arch",
        )
    facts = all_archs().get(arch or wanted)
    if facts is None:
        notes.append(f"there are no arch facts of {wanted}: no occupancy")
    functions: list[Function] = []
    size = 0
    for described_by, code, raw, target in described:
        if _target(described_by, target) != wanted:
            continue
        size += code.code_bytes()
        try:
            text = _disassembled(raw, tools)
        except NoDisassembly as error:
            text = {}
            if str(error) not in notes:
                notes.append(str(error))
        kernels = described_by.get("amdhsa.kernels", ())
        functions += [_function(kernel, code, facts, text, promised, copied) for kernel in kernels]
    if any(function.resources is not None and function.resources.scratch_bytes for function in functions):
        notes.append("scratch memory is slow: a smaller tile or fewer threads a block may avoid it")
    return Inspection(str(path), "amdgpu", wanted, size, tuple(functions), tuple(notes))


def slowest_model(functions: Sequence[Function]) -> amd_model.CodeModel | None:
    """Of the function whose main loop multiplies most; of two that do, the slower one."""
    models = [function.model for function in functions if function.model is not None]
    return max(models, key=lambda model: (model.clocks["matrix"], -model.matrix_issue), default=None)


def holds(path: Path, beginnings: Sequence[str], tools: Sequence[Path] = ()) -> bool:
    """Whether device code with one of these mnemonics is inside; NoDisassembly where nobody can look."""
    tool = disassembly.find_disassembler(tools)
    objects = [raw for _, raw in _objects(path)]
    if not objects:
        raise damaged(path.name, "it holds no AMD device code")
    with tempfile.TemporaryDirectory(prefix="tilewright-inspect-") as folder:
        code = Path(folder) / "code.o"
        for raw in objects:
            code.write_bytes(raw)
            if disassembly.shows(disassembly.listing(code, tool), beginnings):
                return True
    return False


def listings(path: Path, tools: Sequence[Path] = ()) -> str:
    """The device code as the disassembler shows it; NoDisassembly where nobody can look."""
    tool = disassembly.find_disassembler(tools)
    objects = [raw for _, raw in _objects(path)]
    if not objects:
        raise damaged(path.name, "it holds no AMD device code")
    texts = []
    with tempfile.TemporaryDirectory(prefix="tilewright-inspect-") as folder:
        code = Path(folder) / "code.o"
        for raw in objects:
            code.write_bytes(raw)
            texts.append(disassembly.listing(code, tool))
    return "\n".join(texts)


def _objects(path: Path) -> list[tuple[str, bytes]]:
    try:
        return list(code_objects(path.read_bytes(), path.name))
    except bundle.NoDecoder:
        raise InspectionError(
            f"{path.name} holds device code compressed with zstd, which this Python cannot decompress",
            rule="compressed-code",
            value=path.name,
            remedy="install the package `zstandard`, or compile without --offload-compress",
        ) from None


def _disassembled(raw: bytes, tools: Sequence[Path]) -> dict[str, list[Instruction]]:
    tool = disassembly.find_disassembler(tools)
    with tempfile.TemporaryDirectory(prefix="tilewright-inspect-") as folder:
        path = Path(folder) / "code.o"
        path.write_bytes(raw)
        return disassembly.disassemble(path, tool)
