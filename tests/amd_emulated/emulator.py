"""AMD code objects executed on the host, by the instruction emulator of a tinygrad checkout.

The checkout decodes instructions and turns most of them into native functions.  What it lacks or has
otherwise than the hardware is executed by `cdna_ops.c`: matrix and buffer instructions, atomics, the program
counter as data.  The launch loop is ours too: waves of a workgroup take turns of random length, so that a
missing barrier shows, and registers and local memory start out poisoned, so that a value nobody wrote shows.

This module is imported only in the worker process, whose module path holds the checkout.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import mmap
import random
import re
import shutil
import struct
import subprocess
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tests.amd_emulated.code_object import CodeObject, KernelInfo, parse, unbundle

HERE = Path(__file__).parent
MODELLED = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")  # GPUs whose instructions are known here
# Kernels of gfx1250, whose instructions are not: built with TW_MATRIX_AS_GFX1250 for gfx1201.  An arch of the file
# beside this one, so that only those draw it who name the file (TILEWRIGHT_ARCH_FILES).
STAND_IN = "gfx1250_by_gfx1201"
LANES, EXEC, M0, POISON = (
    64,
    126,
    124,
    0x7FC5A5A5,
)  # POISON: a NaN, also as two halves, and no plausible address or index
MOST_INSTRUCTIONS = 20_000_000
MOST_THREADS = 1024
PACKET_BYTES = 64
MOST_CODE = 1 << 19  # bytes; each instruction takes a step and, of new kinds, a compiled function
QUANTUM, ENDED, BARRIER, UNKNOWN, OUTSIDE, ERROR = 0, 1, 2, 3, 4, 16
REASONS = {1: "a broadcast pattern that is not modelled", 2: "an access outside local memory", 3: "a scalar operand",
           4: "an exchange between lanes while some are switched off"}  # fmt: skip


class EmulationError(RuntimeError):
    """The code did what the emulator cannot do, or what no code may do."""


class Wave(ctypes.Structure):
    _fields_ = (
        ("sgpr", ctypes.c_void_p),
        ("vgpr", ctypes.c_void_p),
        ("acc", ctypes.c_void_p),
        ("lds", ctypes.c_void_p),
        ("lds_bytes", ctypes.c_uint64),
    )


class Step(ctypes.Structure):
    _fields_ = (
        ("native", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("compiled", ctypes.c_void_p),
        ("argument_count", ctypes.c_uint8),
        ("arguments", ctypes.c_uint8 * 6),
        ("barrier", ctypes.c_uint8),
        ("count", ctypes.c_uint64),
    )


class MfmaShape(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("m", "n", "k", "blocks", "type_a", "type_b"))


class MemoryOp(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("bytes", "store", "sign", "half", "atomic"))


class Access(ctypes.Structure):
    _fields_ = (
        ("op", MemoryOp),
        *((name, ctypes.c_int32) for name in ("length", "lanes", "addr", "data", "saddr", "offset", "in_acc")),
    )


class LocalOp(ctypes.Structure):
    _fields_ = (("op", MemoryOp), *((name, ctypes.c_int32) for name in ("count", "step", "lanes")))


def compile_c(source: Path, *flags: str, name: str = "") -> Path:
    """A shared library from a C file of this folder, kept in the system's temporary folder by content."""
    compiler = next((one for one in ("clang", "cc", "gcc") if shutil.which(one)), None)
    if compiler is None:
        raise EmulationError("no C compiler (clang, cc or gcc) on the path")
    text = source.read_bytes() + " ".join((compiler, *flags)).encode()
    folder = Path(tempfile.gettempdir()) / "tilewright-amd-emulated" / hashlib.sha256(text).hexdigest()[:16]
    library = folder / (name or f"{source.stem}.so")
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{library.name}.{uuid.uuid4().hex}.part"  # another process may compile it too
        command = [compiler, "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", *flags, "-o", str(part), str(source), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or done.stderr:
            raise EmulationError(f"{source.name} does not compile cleanly: {done.stderr[:2000]}")
        part.replace(library)
    return library


TYPES = {"F16": 0, "BF16": 1, "F32": 2, "I8": 3, "FP8": 4, "BF8": 5}
FNUZ = {4: 6, 5: 7}  # gfx942 reads 8-bit floats without infinities and with another bias
NARROWED = {0xD2A2: 6, 0xD2A3: 7}  # v_cvt_pk_fp8_f32, v_cvt_pk_bf8_f32, and what they make on gfx942
# gfx90a numbers a few matrix instructions otherwise than its successors.
GFX90A_MFMA = {0x66: (32, 32, 8, 1, "BF16"), 0x67: (16, 16, 16, 1, "BF16"), 0x63: (32, 32, 4, 2, "BF16"),
               0x64: (16, 16, 4, 4, "BF16"), 0x65: (4, 4, 4, 16, "BF16"),
               0x54: (32, 32, 8, 1, "I8"), 0x55: (16, 16, 16, 1, "I8")}  # fmt: skip
ONLY_GFX950 = ("F8F6F4", "16X16X32_BF16", "16X16X32_F16", "32X32X16_BF16", "32X32X16_F16", "16X16X64_I8", "32X32X32_I8")
MFMA_CODES = range(0x2D, 0x80)
# v_wmma_f32_16x16x16_f16 and _bf16, of RDNA 4 also _fp8_fp8, _fp8_bf8, _bf8_fp8, _bf8_bf8: by number, the types of A, B
WMMA = {"rdna3": {64: (0, 0), 65: (1, 1)},
        "rdna4": {64: (0, 0), 65: (1, 1), 70: (4, 4), 71: (4, 5), 72: (5, 4), 73: (5, 5)}}  # fmt: skip
RDNA3_INVALIDATE = (0x38 << 8 | 43, 0x38 << 8 | 44)  # buffer_gl0_inv, buffer_gl1_inv
RDNA4_INVALIDATE = (0xEE << 10 | 43, 0xEE << 10 | 44, 0xEE << 10 | 79)  # global_inv, global_wb, global_wbinv
SCALED_PREFIX = b"\xac\xd3"  # of a matrix instruction with scales, the only one of 16 bytes
# Local memory: bytes, store, sign, half, accesses; reads of bytes that leave the other half of a register among them.
LOCAL = {
    30: (1, 1, 0, 0, 1), 31: (2, 1, 0, 0, 1), 13: (4, 1, 0, 0, 1), 77: (8, 1, 0, 0, 1), 222: (12, 1, 0, 0, 1),
    223: (16, 1, 0, 0, 1), 84: (1, 1, 0, 2, 1), 85: (2, 1, 0, 2, 1), 14: (4, 1, 0, 0, 2), 15: (4, 1, 0, 0, 2),
    78: (8, 1, 0, 0, 2), 79: (8, 1, 0, 0, 2), 54: (4, 0, 0, 0, 1), 55: (4, 0, 0, 0, 2), 56: (4, 0, 0, 0, 2),
    57: (1, 0, 1, 0, 1), 58: (1, 0, 0, 0, 1), 59: (2, 0, 1, 0, 1), 60: (2, 0, 0, 0, 1), 86: (1, 0, 0, 1, 1),
    87: (1, 0, 0, 2, 1), 88: (1, 0, 1, 1, 1), 89: (1, 0, 1, 2, 1), 90: (2, 0, 0, 1, 1), 91: (2, 0, 0, 2, 1),
    118: (8, 0, 0, 0, 1), 119: (8, 0, 0, 0, 2), 120: (8, 0, 0, 0, 2), 254: (12, 0, 0, 0, 1), 255: (16, 0, 0, 0, 1),
}  # fmt: skip
FAR_APART = (15, 79, 56, 120)  # of these two accesses an offset counts 64 elements
RDNA_HALVES = {160 + one: 84 + one for one in range(8)}  # what moves half a register has other numbers there
DS_BPERMUTE = 63
VOP1, SWAPPED = 0x3F, {0x59: 16, 0x5A: 32}  # v_permlane16_swap_b32, v_permlane32_swap_b32: lanes of a row
ATOMICS = {"ADD": 0, "ADD_F32": 1, "PK_ADD_F16": 2, "PK_ADD_BF16": 3, "SWAP": 4, "CMPSWAP": 5}


def _mfma_of(name: str, target: str) -> MfmaShape | None:
    """`V_MFMA_F32_32X32X8_F16`, `..._4X4X4_16B_F16`, `..._BF8_FP8` as numbers; None where the GPU lacks it."""
    words = name.removeprefix("V_MFMA_").split("_")
    m, n, k = (int(one) for one in words[1].split("X"))
    rest = words[2:]
    blocks = int(rest.pop(0)[:-1]) if rest[0].endswith("B") and rest[0][:-1].isdigit() else 1
    if rest == ["F8F6F4"]:
        rest = ["FP8", "FP8"]
    if any(one not in TYPES for one in rest) or (target != "gfx950" and any(one in name for one in ONLY_GFX950)):
        return None
    types = [TYPES[one] for one in (*rest, rest[0])[:2]]
    if target == "gfx90a" and (min(types) > 3 or (types[0] == 3 and blocks == 1)):
        return None
    if target == "gfx942":
        types = [FNUZ.get(one, one) for one in types]
    return MfmaShape(m, n, k, blocks, *types)


def _buffer_of(name: str) -> MemoryOp | None:
    word = name.removeprefix("BUFFER_")
    if word.startswith("ATOMIC_"):
        kind = word.removeprefix("ATOMIC_")
        return MemoryOp(4, 2, 0, 0, ATOMICS[kind]) if kind in ATOMICS else None
    action, _, what = word.partition("_")
    if action not in ("LOAD", "STORE") or "FORMAT" in what:
        return None
    return _moved(action == "STORE", what)


def _moved(store: bool, what: str) -> MemoryOp | None:
    """What a load or store moves, by the last words of its name, as CDNA or RDNA spell it; None of others."""
    half = 2 if "D16_HI" in what else 1 if "D16" in what else 0
    kind = what.replace("D16_HI", "").replace("D16", "").strip("_")
    narrow = {"UBYTE": 1, "SBYTE": 1, "BYTE": 1, "USHORT": 2, "SSHORT": 2, "SHORT": 2}
    words = re.fullmatch(r"DWORD(?:X([234]))?|[UIB](8|16|32|64|96|128)", kind)
    if kind not in narrow and not words:
        return None
    size = narrow.get(kind) or (int(words[2]) // 8 if words and words[2] else 4 * int(words[1] or 1) if words else 0)
    return MemoryOp(size, int(store), int(kind in ("SBYTE", "SSHORT", "I8", "I16")), half, 0)


def local_of(op: int, lanes: int = LANES) -> LocalOp:
    size, *rest, count = LOCAL[op]
    return LocalOp(MemoryOp(size, *rest, 0), count, size * (64 if op in FAR_APART else 1), lanes)


def rdna_local(code: int) -> LocalOp | None:
    """What RDNA's instruction does in local memory, by its first word; None of others."""
    known = code >> 18 & 0xFF
    op = RDNA_HALVES.get(known, known)
    moves = code >> 26 == 0x36 and op in LOCAL and (known in RDNA_HALVES) == (op in RDNA_HALVES.values())
    return local_of(op, LANES // 2) if moves else None


def family_of(target: str) -> str:
    """What the checkout calls a GPU's instruction set."""
    return "cdna" if target.startswith("gfx9") else "rdna4" if target.startswith("gfx12") else "rdna3"


class Checkout:
    """The emulator module of the checkout, and the tables of what is executed natively."""

    def __init__(self) -> None:
        self.emu: Any = importlib.import_module("test.mockgpu.amd.emu")
        self.native = ctypes.CDLL(str(compile_c(HERE / "cdna_ops.c")))
        self.native.tw_run.argtypes = (
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64
        )  # fmt: skip
        self.kept: list[Any] = []  # C structs that steps point at
        self._whole: dict[type, type] = {}
        decode = self.emu.decode_inst
        setattr(self.emu, "decode_inst", lambda code, arch: self._decode(decode, code, arch))  # noqa: B010
        self.found: dict[tuple[str, int, int], tuple[str, Any] | None] = {}

    def _decode(self, decode: Any, code: bytes, arch: str) -> Any:
        inst = decode(code, arch)
        if type(inst).__name__ == "VOP3PX2" and code[2:4] != SCALED_PREFIX:
            inst = decode(code[:8] + bytes(8), arch)  # told by the words after: a short one before an MFMA
        return self._whole_registers(inst, arch)

    def _whole_registers(self, inst: Any, arch: str) -> Any:
        """On CDNA a 16-bit operand in v128 and above is that register, not the high half of one 128 below.

        The checkout knows only the other reading, and decides by operand widths: said to be 32 bits wide, an
        operand is read and written whole, and the operation itself still takes its low half.  A class of its own
        keeps such instructions apart in the checkout's cache.
        """
        kind = type(inst)
        if arch != "cdna" or kind.__name__.removesuffix("_LIT") not in ("VOP1", "VOP2", "VOPC"):
            return inst
        widths = inst.canonical_op_bits
        fields = {
            name: inst._raw >> one.lo & one.mask for name, one in kind._fields if name in ("src0", "vsrc1", "vdst")
        }
        if 16 not in widths.values():
            return inst
        if 240 <= fields["src0"] <= 248:  # an inline number, which is converted by its width
            if max(fields.get("vsrc1", 0), fields.get("vdst", 0)) >= 128:
                raise EmulationError(f"{inst!r}: a 16-bit constant with a register above v127 is not modelled")
            return inst
        if kind not in self._whole:
            self._whole[kind] = type(kind.__name__, (kind,), {"__module__": kind.__module__})
        inst.__class__ = self._whole[kind]
        inst.__dict__["canonical_op_bits"] = {name: 32 if width == 16 else width for name, width in widths.items()}
        return inst

    def _address(self, function: str) -> int:
        return int(ctypes.cast(getattr(self.native, function), ctypes.c_void_p).value or 0)

    def special(self, code: int, target: str) -> tuple[str, Any] | None:
        """(C function, its data) for an instruction's first word, or None: the checkout does it."""
        emu = self.emu
        family = family_of(target)
        if family != "cdna":  # without matrix instructions: what the checkout has is enough, but for caches and LDS
            local = rdna_local(code)
            if local is not None:  # the checkout looks where lanes point that take no part
                return "tw_local", local
            if code >> 24 == 0xCC and (types := WMMA[family].get(code >> 16 & 0x7F)):
                return "tw_wmma", (ctypes.c_int32 * 3)(*types, family == "rdna3")
            old = code >> 18 in RDNA3_INVALIDATE if family == "rdna3" else code >> 14 in RDNA4_INVALIDATE
            return ("tw_skip", ctypes.c_int32(8 if family == "rdna3" else 12)) if old else None
        if code >> 23 == 0x1A7 and (code >> 16 & 0x7F) in MFMA_CODES:
            return self._lookup("mfma", code >> 16 & 0x7F, target)
        if target == "gfx950" and code >> 25 == VOP1 and (code >> 9 & 0xFF) in SWAPPED:
            return "tw_swap_rows", ctypes.c_int32(SWAPPED[code >> 9 & 0xFF])
        if target == "gfx942" and code >> 16 in NARROWED:
            return "tw_narrow", ctypes.c_int32(NARROWED[code >> 16])
        if code >> 26 == 0x38:
            return self._lookup("buffer", code >> 18 & 0x7F, target)
        if code >> 26 == 0x37 and (code >> 14 & 3) in (0, 2):
            return self._lookup("flat" if code >> 14 & 3 == 0 else "global", code >> 18 & 0x7F, target)
        if code >> 26 == 0x36 and (code >> 17 & 0xFF) in (226, 227):  # ds_read_b64_tr_b8, _b16
            return "tw_read_transposed", ctypes.c_int32((code >> 17 & 0xFF) - 225)
        if code >> 26 == 0x36 and (code >> 17 & 0xFF) == DS_BPERMUTE:
            return "tw_bpermute", ctypes.c_int32(0)
        if code >> 26 == 0x36 and (code >> 17 & 0xFF) in LOCAL:
            return "tw_local", local_of(code >> 17 & 0xFF)
        if code >> 26 == 0x36 and code >> 25 & 1:
            raise EmulationError(f"local memory and accumulation registers: {code:08x} is not modelled")
        if code >> 23 == 0x17D:
            names = {int(one.value): one.name for one in emu.irc.SOP1Op}
            kind = {"S_GETPC_B64": 0, "S_SETPC_B64": 1, "S_SWAPPC_B64": 2}.get(names.get(code >> 8 & 0xFF, ""))
            return None if kind is None else ("tw_pc", ctypes.c_int32(kind))
        return None

    def _lookup(self, family: str, op: int, target: str) -> tuple[str, Any] | None:
        key = (family + target, op, 0)
        if key not in self.found:
            self.found[key] = self._make(family, op, target)
        return self.found[key]

    def _make(self, family: str, op: int, target: str) -> tuple[str, Any] | None:
        irc = self.emu.irc
        if family == "mfma" and target == "gfx90a" and op in GFX90A_MFMA:
            m, n, k, blocks, kind = GFX90A_MFMA[op]
            return "tw_mfma", MfmaShape(m, n, k, blocks, TYPES[kind], TYPES[kind])
        enum = {"mfma": irc.VOP3POp, "buffer": irc.MUBUFOp, "flat": irc.FLATOp, "global": irc.GLOBALOp}[family]
        name = next((one.name for one in enum if int(one.value) == op), "")
        if family == "mfma" and name.startswith("V_MFMA") and "SCALE" not in name:
            shape = _mfma_of(name, target)
            if shape is None:
                raise EmulationError(f"{name} on {target} is not modelled")
            return "tw_mfma", shape
        if family == "buffer" and name:
            described = _buffer_of(name)
            return None if described is None else ("tw_buffer", described)
        if "_ATOMIC_" in name:
            kind = name.partition("_ATOMIC_")[2]
            if kind == "CMPSWAP_X2":
                return "tw_global_atomic", MemoryOp(8, 2, 0, 0, ATOMICS["CMPSWAP"])
            return ("tw_global_atomic", MemoryOp(4, 2, 0, 0, ATOMICS[kind])) if kind in ATOMICS else None
        return None

    def fill(self, step: Step, pc: int, target: str) -> str:
        """Prepare the instruction at an address; returns its name for the counts."""
        emu = self.emu
        words = struct.unpack("<4I", ctypes.string_at(pc, 16))
        native = self.special(words[0], target)
        if native is not None:
            function, data = native
            self.kept.append(data)
            step.data, step.native = ctypes.addressof(data), self._address(function)
            return self._native_name(words[0], function)
        try:
            access = self._access(pc, target)
            if access is not None:
                self.kept.append(access)
                step.data, step.native = ctypes.addressof(access), self._address("tw_memory")
                return "tw_memory"
            (program, runtime), inst = emu._decode_at(pc, family_of(target))
        except EmulationError:
            raise
        except Exception as error:  # the checkout's own: whatever it does not know
            known = " ".join(f"{one:08x}" for one in words)
            raise EmulationError(f"an instruction that is not modelled ({known}): {error}") from error
        arguments = program.arg.globals
        step.argument_count = len(arguments)
        for index, one in enumerate(arguments):
            step.arguments[index] = one
        step.barrier = int(type(inst).__name__ == "SOPP" and inst.op in emu._BARRIER_OPS)
        self.kept.append(runtime)
        step.compiled = ctypes.cast(runtime.fxn, ctypes.c_void_p).value
        return str(emu._op_name(inst))

    def _access(self, pc: int, target: str) -> Access | None:
        """A load or store of global memory; the checkout rounds its address down to a whole word."""
        family = family_of(target)
        inst = self.emu.decode_inst(ctypes.string_at(pc, 16), family)
        kind = type(inst).__name__
        space, _, rest = str(self.emu._op_name(inst)).partition("_")
        action, _, what = rest.partition("_")
        if kind not in ("FLAT", "GLOBAL", "VFLAT", "VGLOBAL") or action not in ("LOAD", "STORE"):
            return None
        moved = _moved(action == "STORE", what)
        if moved is None:
            return None
        raw = {name: inst._raw >> one.lo & one.mask for name, one in type(inst)._fields}
        width = 24 if "ioffset" in raw else 13
        offset = raw.get("ioffset", raw.get("offset", 0))
        offset -= (offset >> (width - 1)) << width
        data = raw.get("data", raw.get("vsrc")) if moved.store else raw["vdst"]
        saddr = raw["saddr"] if space == "GLOBAL" and raw["saddr"] < M0 else -1
        lanes = LANES if family == "cdna" else LANES // 2
        addr = raw.get("addr", raw.get("vaddr"))
        return Access(moved, inst.size(), lanes, addr, data, saddr, offset, raw.get("acc", 0))

    def _native_name(self, code: int, function: str) -> str:
        if function in ("tw_mfma", "tw_wmma"):
            return f"V_{function[3:7].upper()}_{code >> 16 & 0x7F:02X}"
        return function


@dataclass(slots=True)
class Program:
    """A code object in memory, with the steps met so far."""

    code: CodeObject
    memory: mmap.mmap
    base: int
    steps: Any
    names: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    kernarg: bytes


@dataclass(slots=True)
class Counts:
    """What one launch executed, by instruction name, in wave instructions."""

    instructions: Counter[str] = field(default_factory=Counter)
    workgroups: int = 0

    @property
    def matrix(self) -> int:
        return sum(count for name, count in self.instructions.items() if name.startswith(("V_MFMA", "V_WMMA")))


def load(image: bytes) -> Program:
    code = parse(image)
    size = -(-code.span // 4096) * 4096 + 4096  # the decoder reads a few words ahead
    memory = mmap.mmap(-1, size)
    for one in code.segments:
        memory[one.address : one.address + len(one.data)] = one.data
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return Program(code, memory, base, (Step * (size // 4))())


def refuse(code: CodeObject, info: KernelInfo, launch: Launch) -> None:
    """An error that says why, for what is not modelled: executed all the same it would give meaningless numbers."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > MOST_THREADS:
        raise EmulationError(f"{launch.block} is {threads} threads, and a block has at most {MOST_THREADS}")
    if info.scratch:
        raise EmulationError(
            f"{info.name} keeps {info.scratch} bytes a lane in scratch memory, which is not modelled: "
            "a rule should refuse kernels that spill"
        )
    if code.span > MOST_CODE:
        raise EmulationError(
            f"the code object has {code.span} bytes, more than the {MOST_CODE} that are modelled: "
            "a rule should refuse kernels with so much unrolled code"
        )


def device_image(bundle: bytes, target: str) -> bytes:
    for name, image in unbundle(bundle).items():
        if name.rpartition("--")[2].partition(":")[0] == target:
            return image
    raise EmulationError(f"the library holds no code for {target}: {', '.join(unbundle(bundle))}")


_HIDDEN: dict[str, tuple[str, str, int]] = {
    **{f"hidden_block_count_{axis}": ("<I", "grid", index) for index, axis in enumerate("xyz")},
    **{f"hidden_group_size_{axis}": ("<H", "block", index) for index, axis in enumerate("xyz")},
    "hidden_grid_dims": ("<H", "dims", 0),
    "hidden_dynamic_lds_size": ("<I", "lds", 0),
}


def kernarg_block(
    info: KernelInfo, grid: tuple[int, ...], block: tuple[int, ...], lds: int, explicit: list[bytes]
) -> bytes:
    """The argument segment: the given values at their offsets, and the hidden ones the compiler asked for."""
    out = bytearray(info.kernarg_bytes)
    given = iter(explicit)
    facts = {"grid": grid, "block": block, "dims": (3,), "lds": (lds,)}
    for one in info.args:
        if not one.kind.startswith("hidden_"):
            value = next(given)
        elif one.kind in _HIDDEN:
            layout, source, index = _HIDDEN[one.kind]
            value = struct.pack(layout, facts[source][index])
        else:
            continue  # remainders, offsets and unused pointers are zero
        if len(value) != one.size:
            raise EmulationError(f"argument at {one.offset} has {len(value)} bytes, expected {one.size}")
        out[one.offset : one.offset + one.size] = value
    return bytes(out)


class Device:
    """Runs launches; one a worker."""

    def __init__(self, checkout: Checkout, seed: int = 0) -> None:
        self.checkout = checkout
        self.random = random.Random(seed)

    def run(self, program: Program, name: str, launch: Launch) -> Counts:
        info = program.code.kernels[name]
        refuse(program.code, info, launch)
        packet = dispatch_packet(info, launch)
        arguments = ctypes.create_string_buffer(packet + launch.kernarg, len(packet) + len(launch.kernarg) + 64)
        for step in program.steps:
            step.count = 0
        counts = Counts()
        places = list(product(range(launch.grid[2]), range(launch.grid[1]), range(launch.grid[0])))
        self.random.shuffle(places)  # no order of workgroups is promised
        for z, y, x in places:
            self._workgroup(program, info, launch, ctypes.addressof(arguments) + PACKET_BYTES, (x, y, z))
            counts.workgroups += 1
        for index, known in program.names.items():
            counts.instructions[known] += program.steps[index].count
        return counts

    def _workgroup(
        self, program: Program, info: KernelInfo, launch: Launch, kernarg: int, place: tuple[int, int, int]
    ) -> None:
        size = info.lds + launch.dynamic_lds
        lds = ctypes.create_string_buffer(b"\xff" * size, size + 64)
        waves = list(self._waves(program, info, launch, kernarg, place, lds, size))
        running, waiting = list(range(len(waves))), set[int]()
        spent = 0
        while running:
            ready = [one for one in running if one not in waiting]
            if not ready:
                waiting.clear()
                continue
            index = self.random.choice(ready)
            quantum = self.random.choice((3, 17, 60, 400, 3000))
            state = self._turn(program, *waves[index][:2], quantum)
            spent += quantum
            if state == ENDED:
                running.remove(index)
            elif state == BARRIER:
                waiting.add(index)
            if spent > MOST_INSTRUCTIONS:
                raise EmulationError("the kernel does not end")

    def _turn(self, program: Program, wave: Wave, buffers: Any, quantum: int) -> int:
        checkout, code = self.checkout, program.code
        while True:
            state = int(
                checkout.native.tw_run(ctypes.addressof(wave), buffers, program.steps, program.base, code.span, quantum)
            )
            if state in (QUANTUM, ENDED, BARRIER):
                return state
            words = ctypes.cast(wave.sgpr, ctypes.POINTER(ctypes.c_uint32))
            pc = words[256] | words[257] << 32
            if state != UNKNOWN:
                why = "a jump out of the code" if state == OUTSIDE else REASONS.get(state - ERROR, "an error")
                raise EmulationError(f"{why} at {pc - program.base:#x}")
            index = (pc - program.base) // 4
            program.names[index] = checkout.fill(program.steps[index], pc, code.target)

    def _waves(
        self,
        program: Program,
        info: KernelInfo,
        launch: Launch,
        kernarg: int,
        place: tuple[int, int, int],
        lds: Any,
        size: int,
    ) -> Iterator[tuple[Wave, Any, Any]]:
        emu = self.checkout.emu
        bx, by, bz = launch.block
        total = bx * by * bz
        user = _user_registers(info, kernarg)
        family = family_of(program.code.target)
        lanes = LANES if family == "cdna" else LANES // 2
        for start in range(0, total, lanes):
            state = emu._init_wave(
                program.base + info.entry, start, total, bx, by, bz, kernarg, info.rsrc2, info.scratch, family,
                *place, user, lanes,
            )  # fmt: skip
            vgpr = state._vgpr_mv
            for at in range(lanes, len(vgpr)):
                vgpr[at] = POISON
            scratch = ctypes.create_string_buffer(max(1, info.scratch * lanes))
            addresses = [state.sgpr_buf._buf.va_addr, state.vgpr_buf._buf.va_addr, 0, ctypes.addressof(lds),
                         ctypes.addressof(scratch), state.accvgpr_buf._buf.va_addr]  # fmt: skip
            wave = Wave(addresses[0], addresses[1], addresses[5], addresses[3], size)
            yield wave, (ctypes.c_void_p * 6)(*addresses), (state, scratch)


def dispatch_packet(info: KernelInfo, launch: Launch) -> bytes:
    """What the queue holds of a launch; kernels whose arrays the compiler moved to LDS read sizes from it."""
    sizes = [one * many for one, many in zip(launch.block, launch.grid, strict=True)]
    packed = struct.pack("<2x4H2x5I", 3, *launch.block, *sizes, info.scratch, info.lds + launch.dynamic_lds)
    return packed.ljust(PACKET_BYTES, b"\0")


def _user_registers(info: KernelInfo, kernarg: int) -> list[int]:
    """User scalar registers in the order of the descriptor's property bits; only the packet, which lies before the
    arguments, and these are real."""
    places, values = {1: kernarg - PACKET_BYTES, 3: kernarg}, list[int]()
    for bit, count in enumerate((4, 2, 2, 2, 2, 2, 1)):
        if info.properties >> bit & 1:
            values += [places[bit] & 0xFFFFFFFF, places[bit] >> 32] if bit in places else [0] * count
    return values + [0] * (info.user_sgprs - len(values))
