"""What the proof rests on, tested by itself: number formats, matrix layouts, the readers of code objects."""

from __future__ import annotations

import ctypes
import io
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from tests.amd_emulated import code_object
from tests.amd_emulated.catalog import cases
from tests.amd_emulated.code_object import CodeObject, KernelInfo, Segment
from tests.amd_emulated.emulator import (
    HERE,
    LOCAL,
    PACKET_BYTES,
    RDNA_HALVES,
    Access,
    EmulationError,
    Launch,
    LocalOp,
    MemoryOp,
    MfmaShape,
    Wave,
    _moved,
    _user_registers,
    compile_c,
    dispatch_packet,
    local_of,
    rdna_local,
    refuse,
)
from tests.amd_emulated.workers import TooLong, Workers

NO_COMPILER = not any(shutil.which(one) for one in ("clang", "cc", "gcc"))
needs_c = pytest.mark.skipif(NO_COMPILER, reason="no C compiler for the emulator's instructions")


@pytest.fixture(scope="module")
def ops() -> Any:
    library = ctypes.CDLL(str(compile_c(HERE / "cdna_ops.c")))
    library.tw_element.restype = ctypes.c_float
    library.tw_round.argtypes = (ctypes.c_float, ctypes.c_int)
    library.tw_round.restype = ctypes.c_uint32
    return library


@needs_c
@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        (4, ml_dtypes.float8_e4m3fn),
        (5, ml_dtypes.float8_e5m2),
        (6, ml_dtypes.float8_e4m3fnuz),
        (7, ml_dtypes.float8_e5m2fnuz),
    ],
)
def test_every_byte_is_the_number_its_format_says(ops: Any, code: int, dtype: Any) -> None:
    expected = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    for place in range(4):
        got = np.array([ops.tw_element(one << 8 * place, place, code) for one in range(256)], np.float32)
        assert np.array_equal(got, expected, equal_nan=True)


@needs_c
def test_half_precision_both_ways(ops: Any) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    expected = halves.view(np.float16).astype(np.float32)
    got = np.array([ops.tw_element(int(one), 0, 0) for one in halves], np.float32)
    assert np.array_equal(got, expected, equal_nan=True)
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, 20000, dtype=np.uint64).astype(np.uint32)
    near = (rng.standard_normal(20000) * 2.0 ** rng.integers(-28, 18, 20000)).astype(np.float32)
    for values in (words.view(np.float32), near):
        with np.errstate(all="ignore"):
            wanted = {0: values.astype(np.float16), 1: values.astype(ml_dtypes.bfloat16)}
        for code, rounded in wanted.items():
            bits = np.array([ops.tw_round(float(one), code) for one in values], np.uint16)
            same = (bits == rounded.view(np.uint16)) | np.isnan(values)
            assert same.all()


@needs_c
@pytest.mark.parametrize(("code", "dtype"), [(6, ml_dtypes.float8_e4m3fnuz), (7, ml_dtypes.float8_e5m2fnuz)])
def test_floats_to_eight_bits(ops: Any, code: int, dtype: Any) -> None:
    """Into one half of a register, with signs taken off or turned; the other half stays."""
    rng = np.random.default_rng(code)
    near = (rng.standard_normal((2, 64)) * 2.0 ** rng.integers(-20, 18, (2, 64))).astype(np.float32)
    near[:, :4] = (0.0, -0.0, np.inf, np.nan)
    for high in (0, 1):
        registers = np.zeros((300, 64), np.uint32)
        registers[2:4], registers[1] = near.view(np.uint32), 0xABCD1234
        scalars = np.zeros(1024, np.uint32)
        scalars[126:128] = 0xFFFFFFFF
        words = np.array([0xD2A20001 | high << 14 | 1 << 8, 258 | 259 << 9 | 1 << 30], np.uint32)  # |v2|, -v3
        scalars[256], scalars[257] = words.ctypes.data & 0xFFFFFFFF, words.ctypes.data >> 32
        ops.tw_narrow(ctypes.byref(_wave(registers, scalars)), ctypes.byref(ctypes.c_int32(code)))
        with np.errstate(all="ignore"):
            first, second = np.abs(near[0]).astype(dtype).view(np.uint8), (-near[1]).astype(dtype).view(np.uint8)
        made = first.astype(np.uint32) | second.astype(np.uint32) << 8
        assert (registers[1] == (0x1234 | made << 16 if high else 0xABCD0000 | made)).all()


def _wave(registers: np.ndarray[Any, Any], scalars: np.ndarray[Any, Any]) -> Wave:
    return Wave(scalars.ctypes.data, registers.ctypes.data, registers.ctypes.data, 0, 0)


@needs_c
@pytest.mark.parametrize(("m", "k", "blocks"), [(32, 8, 1), (16, 16, 1), (16, 32, 1), (32, 16, 1), (4, 4, 16)])
def test_matrix_instructions_multiply(ops: Any, m: int, k: int, blocks: int) -> None:
    """A and B are laid out as the instruction set manual says, D is read back the same way."""
    rng = np.random.default_rng(m + k)
    a = rng.standard_normal((blocks, m, k)).astype(np.float16)
    b = rng.standard_normal((blocks, k, m)).astype(np.float16)
    registers = np.zeros((256, 64), np.uint32)
    groups = 64 // m if blocks == 1 else 1
    share = k // groups
    for lane in range(64):
        block, part = (0, lane // m) if blocks == 1 else (lane // m, 0)
        for name, first in (("a", 0), ("b", 16)):
            row = a[block, lane % m] if name == "a" else b[block, :, lane % m]
            packed = np.ascontiguousarray(row[part * share : (part + 1) * share]).view(np.uint32)
            registers[first : first + len(packed), lane] = packed
    # vdst v32, src0 v0, src1 v16, src2 the constant 0 (128)
    code = 32 | 0x1A7 << 23 | (256 << 32) | ((256 + 16) << 41) | (128 << 50)
    program = ctypes.create_string_buffer(struct.pack("<Q", code))
    scalars = np.zeros(260, np.uint32)
    at = ctypes.addressof(program)
    scalars[256], scalars[257] = at & 0xFFFFFFFF, at >> 32
    wave, shape = _wave(registers, scalars), MfmaShape(m, m, k, blocks, 0, 0)
    assert ops.tw_mfma(ctypes.byref(wave), ctypes.byref(shape)) == 0
    assert int(scalars[256]) | int(scalars[257]) << 32 == at + 8
    got = np.zeros((blocks, m, m), np.float32)
    for lane in range(64):
        for reg in range(m * m * blocks // 64):
            value = registers[32 + reg, lane : lane + 1].view(np.float32)[0]
            if m == 32:
                got[0, 8 * (reg // 4) + 4 * (lane // 32) + reg % 4, lane % 32] = value
            elif m == 16:
                got[0, 4 * (lane // 16) + reg, lane % 16] = value
            else:
                got[lane // 4, reg, lane % 4] = value
    assert np.allclose(got, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def test_metadata_is_read() -> None:
    message = b"\x83\xa1a\x01\xa1b\x92\xc2\xff\xd9\x01c\xcd\x01\x00"
    assert code_object.unpack_message(message) == {"a": 1, "b": [False, -1], "c": 256}
    with pytest.raises(code_object.BadCodeObject):
        code_object.unpack_message(b"\xc1")


def test_bundles_are_opened_and_other_files_refused() -> None:
    name, image = b"hipv4-amdgcn-amd-amdhsa--gfx942", b"code"
    head = code_object.BUNDLE_MAGIC + struct.pack("<QQQQ", 1, 100, len(image), len(name)) + name
    blob = head.ljust(100, b"\0") + image
    assert code_object.unbundle(blob) == {name.decode(): image}
    assert code_object.bundle_bytes(lambda offset, size: blob[offset : offset + size]) == len(blob)
    with pytest.raises(code_object.BadCodeObject):
        code_object.unbundle(b"CCOB" + blob)
    with pytest.raises(code_object.BadCodeObject):
        code_object.parse(b"MZ" + bytes(100))


def _info(**more: int) -> KernelInfo:
    fields: dict[str, Any] = {"name": "k", "entry": 0, "rsrc1": 0, "rsrc2": 0, "properties": 0, "lds": 0, "scratch": 0,
                              "kernarg_bytes": 0, "args": (), "vgprs": 0, "agprs": 0, "sgprs": 0}  # fmt: skip
    return KernelInfo(**{**fields, **more})


def _code(size: int) -> CodeObject:
    return CodeObject("gfx90a", (Segment(0, size, bytes(size)),), {})


@pytest.mark.parametrize(
    ("info", "size", "threads", "said"),
    [
        (_info(scratch=720), 64, 256, "720 bytes a lane in scratch memory"),
        (_info(), 890_000, 256, "890000 bytes"),
        (_info(), 64, 2048, "2048 threads"),
    ],
)
def test_what_is_not_modelled_is_an_error_that_says_so(info: KernelInfo, size: int, threads: int, said: str) -> None:
    launch = Launch((1, 1, 1), (threads, 1, 1), 0, b"")
    with pytest.raises(EmulationError, match=said):
        refuse(_code(size), info, launch)
    refuse(_code(64), _info(), Launch((1, 1, 1), (256, 1, 1), 0, b""))


def test_kernels_may_ask_the_queue_for_their_sizes() -> None:
    """Where the compiler moves an array to LDS it reads them there: 16 bits each from byte 4, all threads from 12."""
    packet = dispatch_packet(_info(lds=96), Launch((5, 3, 2), (64, 2, 1), 32, b""))
    assert len(packet) == PACKET_BYTES
    assert struct.unpack_from("<3H", packet, 4) == (64, 2, 1)
    assert struct.unpack_from("<5I", packet, 12) == (320, 6, 2, 0, 128)
    asked = _user_registers(_info(properties=0b1010, rsrc2=4 << 1), 0x1_0000_0040)
    assert asked == [0, 1, 0x40, 1]


def test_two_processes_may_compile_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second to end finds the library of the first, and its own part still there."""
    source, both = tmp_path / "one.c", threading.Barrier(2, timeout=10)
    source.write_text(f"int one; /* {tmp_path} */")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def compiler(command: list[str], **_: Any) -> Any:
        Path(command[command.index("-o") + 1]).write_bytes(b"library")
        both.wait()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", compiler)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    with ThreadPoolExecutor(2) as team:
        found = [one.result() for one in [team.submit(compile_c, source) for _ in range(2)]]
    assert found[0] == found[1]
    assert found[0].read_bytes() == b"library"
    assert [one.name for one in found[0].parent.iterdir()] == ["one.so"]


class _Ended:
    """A worker that is gone."""

    def __init__(self, code: int) -> None:
        self.stdin, self.stdout, self.code = io.StringIO(), io.StringIO(), code

    def wait(self, timeout: float = 0) -> int:
        return self.code


def test_a_worker_that_ends_is_an_answer() -> None:
    workers = Workers(Path("nowhere"))
    spec = cases()[0].spec
    workers._running[spec.arch] = cast(Any, _Ended(-11))
    with pytest.raises(AssertionError, match="ended with SIGSEGV"):
        workers.prove(spec, Path("library.so"), [], 1)
    assert not workers._running, "a fresh one serves the next"


def test_a_worker_that_does_not_answer_is_ended() -> None:
    workers = Workers(Path("nowhere"))
    spec = cases()[0].spec
    silent = subprocess.Popen([sys.executable, "-c", "input(); input()"], stdin=-1, stdout=-1, text=True)
    workers._running[spec.arch] = silent
    with pytest.raises(TooLong, match="no answer"):
        workers.ask(spec, {}, limit=0.2)
    assert silent.poll() is not None


def _local(ops: Any, op: LocalOp, words: tuple[int, int], registers: Any, memory: Any, exec_mask: int) -> int:
    """One instruction on local memory: addresses in v3; data in accumulation registers if bit 25 says so."""
    scalars = np.zeros(260, np.uint32)
    scalars[126], scalars[127] = exec_mask & 0xFFFFFFFF, exec_mask >> 32
    program = ctypes.create_string_buffer(struct.pack("<II", *words))
    at = ctypes.addressof(program)
    scalars[256], scalars[257] = at & 0xFFFFFFFF, at >> 32
    wave = Wave(
        scalars.ctypes.data, registers[0].ctypes.data, registers[1].ctypes.data, memory.ctypes.data, memory.size
    )
    return int(ops.tw_local(ctypes.byref(wave), ctypes.byref(op)))


@needs_c
@pytest.mark.parametrize(("lanes", "accumulates"), [(64, 0), (64, 1), (32, 0)])
@pytest.mark.parametrize("op", LOCAL)
def test_local_memory_is_read_and_written_by_active_lanes_alone(
    ops: Any, op: int, lanes: int, accumulates: int
) -> None:
    rng = np.random.default_rng(op)
    size, store, sign, half, count = LOCAL[op]
    registers = rng.integers(0, 1 << 32, (2, 32, lanes), dtype=np.uint64).astype(np.uint32)
    places = rng.permutation(lanes) * 16
    active = rng.random(lanes) < 0.5
    registers[0, 3] = np.where(active, places, 0xA7061400)  # nobody may look where the others point
    memory = rng.integers(0, 256, 1 << 17, dtype=np.uint8)
    offsets = (32, 33) if count == 2 else (48,)
    unit = local_of(op).step if count == 2 else 1
    low = sum(one << 8 * i for i, one in enumerate(offsets)) | 0x36 << 26
    if lanes == 64:
        low, local = low | op << 17 | accumulates << 25, local_of(op)
    else:
        low |= {old: new for new, old in RDNA_HALVES.items()}.get(op, op) << 18
        local = rdna_local(low) or pytest.fail("not known")
    before, old = registers.copy(), memory.copy()
    mask = int(sum(1 << lane for lane in range(lanes) if active[lane]))
    assert _local(ops, local, (low, 3 | 5 << 8 | 12 << 16 | 20 << 24), registers, memory, mask) == 0
    words = max(1, size // 4)
    for lane in np.nonzero(active)[0]:
        for i, offset in enumerate(offsets):
            at = int(places[lane]) + offset * unit
            first = (5, 12)[i] if store else 20 + i * words
            held = np.ascontiguousarray(before[accumulates, first : first + words, lane]).view(np.uint8)
            if store:
                old[at : at + size] = held[(2 if half == 2 else 0) :][:size]
                continue
            found = int.from_bytes(bytes(memory[at : at + min(size, 4)]), "little", signed=bool(sign))
            wanted = {0: found, 1: (int(held.view(np.uint32)[0]) & 0xFFFF0000) | found & 0xFFFF,
                      2: (int(held.view(np.uint32)[0]) & 0xFFFF) | found << 16}[half]  # fmt: skip
            assert int(registers[accumulates, first, lane]) == wanted & 0xFFFFFFFF
            last = memory[at + 4 * (words - 1) :][:4].view(np.uint32)[0]
            assert words == 1 or registers[accumulates, first + words - 1, lane] == last
    assert np.array_equal(memory, old)
    assert np.array_equal(registers[:, :, ~active], before[:, :, ~active])


def test_numbers_of_local_memory_on_rdna() -> None:
    assert rdna_local(0xD8D80000) is not None  # ds_load_b32
    assert rdna_local(0xD8380100) is not None  # ds_store_2addr_b32
    assert rdna_local(0x36 << 26 | 84 << 18) is None  # CDNA's number of a high half
    assert rdna_local(0x36 << 26 | 62 << 18) is None  # between lanes: not memory


@needs_c
def test_an_access_outside_local_memory_is_an_error(ops: Any) -> None:
    registers, memory = np.zeros((2, 32, 64), np.uint32), np.zeros(64, np.uint8)
    words = (54 << 17 | 0x36 << 26, 3 | 20 << 24)
    registers[0, 3, 7] = 61
    assert _local(ops, local_of(54), words, registers, memory, 1 << 7) == 2
    assert _local(ops, local_of(54), words, registers, memory, 1 << 6) == 0


@needs_c
def test_an_offset_brings_an_address_below_zero_back(ops: Any) -> None:
    """Addresses are 32 bits wide and wrap, and compilers count on it since GCN's second generation."""
    registers, memory = np.zeros((2, 32, 64), np.uint32), np.arange(64, dtype=np.uint8)
    registers[0, 3, 7] = (1 << 32) - 16
    assert _local(ops, local_of(54), (24 | 54 << 17 | 0x36 << 26, 3 | 20 << 24), registers, memory, 1 << 7) == 0
    assert registers[0, 20, 7] == memory[8:12].view(np.uint32)[0]
    assert _local(ops, local_of(54), (8 | 54 << 17 | 0x36 << 26, 3 | 20 << 24), registers, memory, 1 << 7) == 2


@needs_c
@pytest.mark.parametrize("lanes", [64, 32])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_global_memory_is_read_and_written_at_any_address(ops: Any, size: int, lanes: int) -> None:
    """Compilers load two bytes at odd addresses: the hardware takes them, a word-indexed memory does not."""
    rng = np.random.default_rng(size)
    memory, scalars = rng.integers(0, 256, 4096, dtype=np.uint8), np.zeros(260, np.uint32)
    registers = np.zeros((64, lanes), np.uint32)
    places = rng.permutation(2048 // size)[:lanes] * size + 3
    registers[4] = places
    base = int(memory.ctypes.data) - 16
    scalars[6], scalars[7], scalars[126], scalars[127] = base & 0xFFFFFFFF, base >> 32, 0xFFFFFFFF, 0xFFFFFFFF
    wave = _wave(registers, scalars)
    words = max(1, size // 4)
    load = Access(MemoryOp(size, 0, 0, 0, 0), 8, lanes, 4, 8, 6, 16, 0)
    assert ops.tw_memory(ctypes.byref(wave), ctypes.byref(load)) == 0
    assert int(scalars[256]) == 8
    held = np.ascontiguousarray(registers[8 : 8 + words].T).view(np.uint8)[:, :size]
    assert np.array_equal(held, [memory[one : one + size] for one in places])
    before = memory.copy()
    registers[8 : 8 + words] ^= 0xFFFFFFFF
    store = Access(MemoryOp(size, 1, 0, 0, 0), 8, lanes, 4, 8, 6, 16, 0)
    assert ops.tw_memory(ctypes.byref(wave), ctypes.byref(store)) == 0
    for one in places:
        before[one : one + size] ^= 0xFF
    assert np.array_equal(memory, before)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("UBYTE", (1, 0, 0)), ("SSHORT", (2, 1, 0)), ("SHORT_D16_HI", (2, 0, 2)), ("SBYTE_D16", (1, 1, 1)),
        ("DWORD", (4, 0, 0)), ("DWORDX3", (12, 0, 0)), ("I8", (1, 1, 0)), ("U16", (2, 0, 0)), ("D16_HI_I8", (1, 1, 2)),
        ("D16_B16", (2, 0, 1)), ("B96", (12, 0, 0)), ("B128", (16, 0, 0)), ("LDS_DWORD", None), ("TR_B64", None),
    ],
)  # fmt: skip
def test_loads_are_known_by_their_names(name: str, wanted: tuple[int, int, int] | None) -> None:
    found = _moved(False, name)
    assert (found and (found.bytes, found.sign, found.half)) == wanted


@needs_c
def test_lanes_read_registers_of_all_64_lanes(ops: Any) -> None:
    """ds_bpermute_b32 v20, v3, v5: of lanes that are switched off nothing is read and nothing written."""
    rng = np.random.default_rng(64)
    registers = rng.integers(0, 1 << 32, (32, 64), dtype=np.uint64).astype(np.uint32)
    source = rng.permutation(64)
    registers[3] = 4 * source
    active = rng.random(64) < 0.7
    before, scalars = registers.copy(), np.zeros(260, np.uint32)
    mask = int(sum(1 << lane for lane in range(64) if active[lane]))
    scalars[126], scalars[127] = mask & 0xFFFFFFFF, mask >> 32
    program = ctypes.create_string_buffer(struct.pack("<II", 63 << 17 | 0x36 << 26, 3 | 5 << 8 | 20 << 24))
    at = ctypes.addressof(program)
    scalars[256], scalars[257] = at & 0xFFFFFFFF, at >> 32
    wave = _wave(registers, scalars)
    assert ops.tw_bpermute(ctypes.byref(wave), None) == 0
    wanted = np.where(active, np.where(active[source], before[5][source], 0), before[20])
    assert np.array_equal(registers[20], wanted)
    assert int(scalars[256]) | int(scalars[257]) << 32 == at + 8
