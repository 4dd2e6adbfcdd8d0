"""NVIDIA cubins: read from files made by hand, and from what the compiler makes where it is there."""

from __future__ import annotations

import dataclasses
import json
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.backends.cuda.gemm import names as make
from tests.inspect.code_objects import elf, fake_objdump
from tests.inspect.cubins import CODE, HGMMA, LISTING, NAME, OTHER, UTMALDG, UTMASTG, cubin, host_library
from tilewright import settings
from tilewright.arch import all_archs, arch
from tilewright.backends.base import backend
from tilewright.backends.cuda import places
from tilewright.backends.cuda.backend import CudaBackend
from tilewright.build.inspected import inspect_file
from tilewright.build.promises import demand_kept
from tilewright.errors import InspectionError, ToolchainError
from tilewright.inspect import Inspection, demand_promises, nvidia, sass, x86
from tilewright.inspect.disassembly import NoDisassembly
from tilewright.inspect.elf import Elf
from tilewright.ops import KernelSpec
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.schedule import GemmSchedule
from tilewright.ops.gemm.spec import GemmSignature

pytestmark = pytest.mark.tools  # a CUDA compiler

SAMPLE = Path(__file__).with_name("sample.cu")


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "kernel.cubin"
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def nvdisasm(tmp_path: Path) -> str:
    return str(fake_objdump(tmp_path, LISTING))


def test_a_cubin(written: Callable[[bytes], Path], nvdisasm: str) -> None:
    found = nvidia.inspect(written(cubin(frame=16)), nvdisasm)
    assert (found.kind, found.arch, found.code_bytes) == ("nvidia", "sm_90a", 16 * len(CODE))
    (one,) = found.functions  # not the subroutine
    assert one.symbol == NAME
    assert one.resources is not None
    assert (one.resources.vgprs, one.resources.scratch_bytes) == (168, 16)
    assert one.resources.shared_bytes == 1024  # what the system takes of each block is not the kernel's
    assert one.occupancy is not None
    assert one.occupancy.threads == 384
    assert one.instructions is not None
    assert one.instructions.total == len(CODE)
    assert one.instructions.matrix == {"HGMMA.64x256x16.F32.BF16": 2}
    assert one.instructions.copies == {"UTMALDG.3D.MULTICAST": 1, "LDGSTS.E.64": 1, "UTMASTG.3D": 1}
    assert one.instructions.loads == {16: 1, 2: 1, 8: 1}
    assert one.instructions.stores == {4: 1}
    assert one.instructions.stack_moves == 1
    assert any("local memory is slow" in note for note in found.notes)


def test_without_nvdisasm_instructions_are_known_by_their_opcodes(written: Callable[[bytes], Path]) -> None:
    found = nvidia.inspect(written(cubin()))
    (one,) = found.functions
    assert one.instructions is not None
    assert one.instructions.matrix == {"HGMMA": 2}
    assert one.instructions.copies == {"UTMALDG": 1, "LDGSTS.64": 1, "UTMASTG": 1}
    assert one.instructions.loads == {16: 1, 2: 1, 8: 1}
    assert one.instructions.stores == {4: 1}
    assert any("nvdisasm was not found" in note and "opcodes only" in note for note in found.notes)


def test_nothing_is_counted_where_nobody_knows_the_code(written: Callable[[bytes], Path], tmp_path: Path) -> None:
    path = written(cubin(130))
    for tool in ("", str(fake_objdump(tmp_path, status=1)), str(tmp_path / "none")):
        found = nvidia.inspect(path, tool)
        assert found.functions[0].instructions is None
        assert any("sm_130" in note and "not counted" in note for note in found.notes)
    with pytest.raises(NoDisassembly, match="sm_130"):
        nvidia.holds(path, ["HMMA"])
    assert found.functions[0].occupancy is None
    assert any("no arch facts of sm_130" in note for note in found.notes)


def test_the_page_for_people(
    written: Callable[[bytes], Path], nvdisasm: str, golden: Callable[[str, str], None], tmp_path: Path
) -> None:
    text = str(nvidia.inspect(written(cubin()), nvdisasm, dynamic_shared={NAME: 197888}))
    golden("inspect_nvidia.txt", text.replace(f"{tmp_path}/", "") + "\n")


@pytest.mark.parametrize(("form", "capability", "name"), [(8, 90, "sm_90a"), (7, 80, "sm_80"), (7, 90, "sm_90a")])
def test_both_forms_of_the_file(written: Callable[[bytes], Path], form: int, capability: int, name: str) -> None:
    found = nvidia.inspect(written(cubin(capability, form=form)))
    assert found.arch == name
    assert found.functions[0].resources is not None
    assert found.functions[0].resources.shared_bytes == (1024 if capability == 90 else 2048)


@pytest.mark.parametrize(
    ("name", "registers", "shared", "threads", "expected"),
    [
        ("sm_90a", 168, 0, 384, (3, "registers")),
        ("sm_90a", 32, 0, 1024, (16, "the hardware")),
        ("sm_90a", 40, 0, 1024, (8, "registers")),  # a second block would need 80 registers of each lane too many
        ("sm_90a", 128, 0, 128, (4, "registers")),
        ("sm_90a", 32, 232448, 256, (2, "shared memory")),
        ("sm_90a", 32, 76800, 256, (6, "shared memory")),  # three of 75 KiB and 1 KiB fill 228
        ("sm_90a", 32, 76801, 256, (4, "shared memory")),
        ("sm_80", 32, 82944, 256, (4, "shared memory")),  # two of 81 KiB and 1 KiB fill 164
    ],
)
def test_occupancy(name: str, registers: int, shared: int, threads: int, expected: tuple[int, str]) -> None:
    found = nvidia.occupancy(arch(name), registers, shared, threads)
    assert found is not None
    assert (found.warps, found.limited_by) == expected


def test_code_inside_a_host_library(written: Callable[[bytes], Path]) -> None:
    data = host_library(cubin(), cubin(registers=40))
    assert CudaBackend().recognises(data)
    assert not x86.recognises(data)
    found = inspect_file(written(data))
    assert [one.resources.vgprs for one in found.functions if one.resources is not None] == [168, 40]


def test_one_arch_of_several(written: Callable[[bytes], Path]) -> None:
    path = written(host_library(cubin(), cubin(80)))
    assert nvidia.inspect(path, arch="sm_80").arch == "sm_80"
    for asked in ("", "sm_100a"):
        with pytest.raises(InspectionError, match="sm_80, sm_90a"):
            nvidia.inspect(path, arch=asked)


def test_code_is_of_any_arch_of_its_capability(written: Callable[[bytes], Path], tmp_path: Path) -> None:
    """A file of one's own may have another arch of the same instructions."""
    table = tmp_path / "archs.json"
    entry = json.loads(resources.files("tilewright.arch").joinpath("specs.json").read_text(encoding="utf-8"))
    table.write_text(json.dumps({"schema": 1, "archs": {"my_hopper": entry["archs"]["sm_90a"]}}), encoding="utf-8")
    path = written(cubin())
    with settings.override(arch_files=str(table)):
        assert nvidia.inspect(path, arch="my_hopper").arch == "my_hopper"
        assert nvidia.inspect(path).arch == "sm_90a"


def test_compressed_code_and_none_are_refused(written: Callable[[bytes], Path]) -> None:
    packed = elf(62, [(".nv_fatbin", 1, 2, b"\x50\xed\x55\xba" + b"\0" * 60, 0)])
    assert nvidia.recognises(packed)
    with pytest.raises(InspectionError) as caught:
        nvidia.inspect(written(packed))
    assert caught.value.rule == "compressed-code"
    nothing = elf(62, [(".text", 1, 6, b"\0" * 16, 0)])
    assert not nvidia.recognises(nothing)
    assert not nvidia.recognises(b"text")
    with pytest.raises(InspectionError, match="no NVIDIA device code"):
        nvidia.inspect(written(nothing))
    with pytest.raises(InspectionError, match="no NVIDIA device code"):
        nvidia.holds(written(nothing), ["HMMA"])


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (struct.pack("<BBH", 4, 0x2F, 80), "ends after its section"),
        (struct.pack("<BBHII", 4, 0x2F, 8, 9, 40), "does not name"),
    ],
)
def test_damaged_descriptions(written: Callable[[bytes], Path], info: bytes, said: str) -> None:
    with pytest.raises(InspectionError, match=said):
        nvidia.inspect(written(cubin(info=info)))


def test_a_file_cut_short_is_refused(written: Callable[[bytes], Path]) -> None:
    whole = cubin()
    for end in (10, 60, len(whole) - 100):
        with pytest.raises(InspectionError):
            nvidia.inspect(written(whole[:end]))


def signature(datatype: str, epilogue: str = "") -> GemmSignature:
    variant, fused = ("multi_d", [epilogue]) if epilogue else ("standard", ())
    return next(iter(signatures([datatype], ["rcr"], [variant], fused, (), [1 if epilogue else 0])))


PLAIN, FUSED = signature("bf16"), signature("bf16", "Gelu")


@pytest.mark.parametrize(
    ("one", "schedule", "code", "rule"),
    [
        (PLAIN, make.tma_ws(PLAIN, 128, 128, 4, (1, 1)), (UTMALDG, HGMMA, UTMASTG), ""),
        (PLAIN, make.tma_ws(PLAIN, 128, 128, 4, (1, 1)), (UTMALDG, OTHER, UTMASTG), "no-matrix-instruction"),
        (PLAIN, make.tma_ws(PLAIN, 128, 128, 4, (1, 1)), (UTMALDG, (0x23C, 0), UTMASTG), "no-matrix-instruction"),
        (PLAIN, make.tma_ws(PLAIN, 128, 128, 4, (1, 1)), (UTMALDG, HGMMA), "no-copy-instruction"),
        (PLAIN, make.tma_ws(PLAIN, 128, 128, 4, (1, 1), store="direct"), (UTMALDG, HGMMA), ""),
        (FUSED, make.tma_ws(FUSED, 128, 128, 4, (1, 1)), (UTMALDG, HGMMA, UTMASTG), ""),
        (FUSED, make.tma_ws(FUSED, 128, 128, 4, (1, 1)), (UTMALDG, HGMMA), "no-copy-instruction"),
        (PLAIN, make.skinny(1, 1, 8), ((0x23C, 0), OTHER), ""),
        (PLAIN, make.skinny(1, 1, 8), (OTHER,), "no-matrix-instruction"),
        (PLAIN, make.fallback_schedule(PLAIN, arch("sm_90a")), (OTHER,), ""),
    ],
)
def test_promises(
    written: Callable[[bytes], Path], one: GemmSignature, schedule: GemmSchedule, code: Any, rule: str
) -> None:
    spec = KernelSpec("gemm", one, schedule, "sm_90a")
    path = written(host_library(cubin(code=code)))
    with settings.override(objdump="/nonexistent/nvdisasm"):
        found = backend("cuda").inspect(path, spec)
    assert (found.name, found.digest) == (spec.name, spec.digest)
    if not rule:
        assert demand_promises(found) is found
    else:
        with pytest.raises(InspectionError, match="should") as caught:
            demand_promises(found)
        assert caught.value.rule == rule
    promised = backend("cuda").promises(spec)
    if promised.multiply:
        assert backend("cuda").holds(path, promised.multiply) == (rule != "no-matrix-instruction")
    with settings.override(objdump="/nonexistent/nvdisasm"):  # as a build looks at it before it is published
        if rule:
            with pytest.raises(InspectionError) as refused:
                demand_kept(spec, path)
            assert refused.value.rule == rule
        else:
            assert demand_kept(spec, path) == ("kept" if promised.multiply else "nothing promised")


def test_what_opcodes_cannot_tell_is_unknown_not_wrong(written: Callable[[bytes], Path], tmp_path: Path) -> None:
    """An op of another package may promise instructions whose opcodes are not known here."""
    path = written(cubin(code=(UTMALDG, OTHER)))
    spec = KernelSpec("gemm", PLAIN, make.tma_ws(PLAIN, 128, 128, 4, (1, 1)), "sm_90a")

    def look(promises: tuple[str, ...], copies: tuple[str, ...] = (), tool: str = "") -> Inspection:
        return nvidia.inspect(path, tool, "sm_90a", promised=promises).of(spec, promises, copies)

    unknown = demand_promises(look(("FMUL", "HGMMA")))
    assert (unknown.keeps_promises, unknown.undecided) == (None, ("FMUL", "HGMMA"))
    assert "FMUL or HGMMA not seen" in str(unknown)
    assert unknown.to_dict()["undecided"] == ["FMUL", "HGMMA"]
    assert look((), ("UTMALDG", "SYNCS")).keeps_promises is None
    with pytest.raises(NoDisassembly, match="FMUL"):
        nvidia.holds(path, ("FMUL", "HGMMA"))
    for promises, copies in ((("HGMMA",), ()), (("FMUL",), ("UTMASTG",))):
        assert look(promises, copies).keeps_promises is False
    # Where nvdisasm read everything, it is known.
    tool = str(fake_objdump(tmp_path, LISTING))
    assert look(("FMUL",), tool=tool).keeps_promises is False
    assert look(("EXIT",), tool=tool).keeps_promises is True


def test_code_that_was_read_in_part_only_is_unknown(written: Callable[[bytes], Path]) -> None:
    path = written(host_library(cubin(code=(OTHER,)), cubin(code=(OTHER,))))
    found = dataclasses.replace(nvidia.inspect(path), promises=("HGMMA",))
    assert found.keeps_promises is False
    read, unread = found.functions
    half = dataclasses.replace(found, functions=(read, dataclasses.replace(unread, instructions=None)))
    assert demand_promises(half).keeps_promises is None


@pytest.mark.parametrize("names", [nvidia.WARPGROUP, nvidia.WARP, nvidia.COPIES])
def test_every_instruction_our_own_kernels_may_promise_is_decided_by_its_opcode(names: tuple[str, ...]) -> None:
    assert set(names) <= set(sass.MNEMONICS)


# -- the compiler's own ----------------------------------------------------------------------------------------------


TARGETS = [name for name, entry in all_archs().items() if entry.family == "nvidia"]


def made(target: str, folder: Path) -> Path:
    try:
        tools: Any = backend("cuda").toolchain()
    except ToolchainError as error:
        pytest.skip(f"no CUDA compiler: {error.message}")
    output = folder / "sample.cubin"
    command = tools.cubin_command(SAMPLE, output, target)
    subprocess.run(command, check=True, env=settings.child_environment(), capture_output=True)
    return output


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_compiler_makes(target: str, tmp_path: Path) -> None:
    path = made(target, tmp_path)
    found = nvidia.inspect(path)
    (one,) = found.functions
    assert (found.arch, one.symbol) == (target, "sample")
    assert one.resources is not None
    assert (one.resources.shared_bytes, one.resources.scratch_bytes) == (64, 256)
    assert one.resources.vgprs > 20
    assert one.occupancy is not None
    assert one.occupancy.threads == 128
    assert one.instructions is not None
    more = {"sm_89": {"QMMA"}, "sm_120": {"QMMA"}, "sm_90a": {"HGMMA", "QGMMA", "IGMMA"}}.get(target, set())
    assert set(one.instructions.matrix) == {"HMMA", "IMMA", "DMMA"} | more
    tensors = {"UTMASTG": 1, "UTMAREDG": 1} if target in ("sm_90a", "sm_100", "sm_120") else {}
    assert one.instructions.copies == {"LDGSTS.128": 1, "LDGSTS": 1, "LDGSTS.64": 1} | tensors
    assert {1, 2, 4, 8, 16} == set(one.instructions.loads)
    assert one.instructions.stack_moves
    assert nvidia.holds(path, ["IMMA"])
    assert nvidia.holds(path, nvidia.WARPGROUP) == (target == "sm_90a")


@pytest.mark.parametrize("target", TARGETS)
def test_our_reading_of_opcodes_is_that_of_nvdisasm(target: str, tmp_path: Path) -> None:
    tool = places.tool("nvdisasm")
    if tool is None:
        pytest.skip("nvdisasm is not at hand; `pip install tilewright[cuda]` brings it")
    (raw,) = nvidia.cubins(made(target, tmp_path).read_bytes(), "sample")
    theirs = nvidia.disassemble(raw, str(tool))
    ours = nvidia.by_opcode(Elf(raw, "sample"))
    assert [one.address for one in theirs["sample"]] == [one.address for one in ours["sample"]]

    def plain(counts: dict[str, int]) -> Counter[str]:
        names: Counter[str] = Counter()
        for name, number in counts.items():
            names[name.partition(".")[0]] += number
        return names

    left, right = nvidia.count(theirs["sample"]), nvidia.count(ours["sample"])
    assert plain(dict(left.matrix)) == plain(dict(right.matrix))
    assert plain(dict(left.copies)) == plain(dict(right.copies))
    assert (left.loads, left.stores, left.stack_moves) == (right.loads, right.stores, right.stack_moves)
