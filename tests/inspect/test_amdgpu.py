"""AMD code objects: read from files made by hand, and from what the compiler makes where it is there."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.inspect import code_objects
from tests.inspect.amd_listings import MAIN_LOOP, code
from tests.inspect.code_objects import KERNEL, bundle, code_object, fake_objdump, host_library
from tilewright import ops, settings
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.build import promises
from tilewright.build.inspected import inspect_kernel
from tilewright.build.promises import demand_kept
from tilewright.cli.main import build_app
from tilewright.errors import InspectionError, RequestError
from tilewright.inspect import amdgpu, demand_promises
from tilewright.inspect.disassembly import NoDisassembly
from tilewright.inspect.elf import Elf
from tilewright.ops.gemm import GemmProblem


@pytest.fixture
def objdump(tmp_path: Path) -> Iterator[Path]:
    tool = fake_objdump(tmp_path)
    with settings.override(objdump=str(tool)):
        yield tool


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "kernel.co"
        path.write_bytes(data)
        return path

    return write


def test_a_code_object(written: Callable[[bytes], Path], objdump: Path) -> None:
    found = amdgpu.inspect(written(code_object()))
    assert (found.kind, found.arch, found.code_bytes) == ("amdgpu", "gfx942", 64)
    (one,) = found.functions
    assert one.resources is not None
    assert (one.resources.vgprs, one.resources.agprs, one.resources.sgprs) == (108, 64, 40)
    assert (one.resources.shared_bytes, one.resources.scratch_bytes, one.resources.vgpr_spills) == (32768, 16, 4)
    assert one.code_bytes == 40
    assert one.instructions is not None
    assert one.instructions.total == 10  # what follows the symbol is padding
    assert one.instructions.matrix == {"v_mfma_f32_32x32x8_f16": 2}
    assert one.instructions.loads == {16: 2, 8: 1, 2: 1}
    assert one.instructions.stores == {2: 1}


def test_registers_of_two_files_are_not_subtracted(written: Callable[[bytes], Path], objdump: Path) -> None:
    """gfx908 has accumulation registers beside the others, and counts the larger of the two."""
    (function,) = amdgpu.inspect(written(code_object("gfx908"))).functions
    assert function.resources is not None
    assert (function.resources.vgprs, function.resources.agprs) == (172, 64)


def test_the_page_for_people(
    written: Callable[[bytes], Path], objdump: Path, golden: Callable[[str, str], None], tmp_path: Path
) -> None:
    text = str(amdgpu.inspect(written(code_object())))
    golden("inspect_amdgpu.txt", text.replace(f"{tmp_path}/", "") + "\n")


@pytest.mark.parametrize(
    ("name", "registers", "shared", "threads", "expected"),
    [
        ("gfx942", 59, 0, 256, (8, "the hardware")),
        ("gfx942", 179, 0, 256, (2, "registers")),  # as the compiler says for these counts
        ("gfx942", 300, 0, 256, (1, "registers")),
        ("gfx90a", 179, 0, 256, (2, "registers")),
        ("gfx1100", 99, 0, 256, (12, "registers")),
        ("gfx1100", 164, 0, 256, (9, "registers")),
        ("gfx1201", 70, 0, 256, (16, "the hardware")),
        ("gfx942", 59, 32768, 256, (2, "LDS")),
        ("gfx942", 59, 40000, 256, (1, "LDS")),
        ("gfx950", 59, 40000, 256, (4, "LDS")),
    ],
)
def test_occupancy(name: str, registers: int, shared: int, threads: int, expected: tuple[int, str]) -> None:
    found = amdgpu.occupancy(arch(name), registers, shared, threads)
    assert found is not None
    assert (found.warps, found.limited_by) == expected


def test_no_occupancy_without_facts(written: Callable[[bytes], Path], objdump: Path) -> None:
    found = amdgpu.inspect(written(code_object("gfx1030")))
    assert found.functions[0].occupancy is None
    assert any("gfx1030" in note for note in found.notes)


def test_code_inside_a_host_library(written: Callable[[bytes], Path], objdump: Path) -> None:
    other = {**KERNEL, ".name": "other"}
    both = bundle({"gfx942": code_object()}) + b"\0" * 100 + bundle({"gfx942": code_object(kernels=[other])})
    found = amdgpu.inspect(written(host_library(both)))
    assert [one.symbol for one in found.functions] == ["kernel_one", "other"]
    assert found.functions[1].instructions is None  # the disassembler did not speak of it


def test_one_arch_of_several(written: Callable[[bytes], Path], objdump: Path) -> None:
    path = written(host_library(bundle({"gfx942": code_object(), "gfx90a": code_object("gfx90a")})))
    assert amdgpu.inspect(path, arch="gfx90a").arch == "gfx90a"
    for asked in ("", "gfx950"):
        with pytest.raises(InspectionError, match="gfx90a, gfx942"):
            amdgpu.inspect(path, arch=asked)


def compressed(data: bytes, version: int, method: int) -> bytes:
    body = zlib.compress(data) if method == 0 else data
    head = {1: 20, 2: 24, 3: 32}[version]
    size = {1: b"", 2: struct.pack("<I", head + len(body)), 3: struct.pack("<Q", head + len(body))}[version]
    raw = b"CCOB" + struct.pack("<HH", version, method) + size
    return raw.ljust(head, b"\0") + body


@pytest.mark.parametrize("version", [1, 2, 3])
def test_compressed_bundles(written: Callable[[bytes], Path], objdump: Path, version: int) -> None:
    found = amdgpu.inspect(written(host_library(compressed(bundle({"gfx942": code_object()}), version, 0))))
    assert found.arch == "gfx942"


def test_a_compression_nobody_here_knows(written: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("tilewright.inspect.bundle.import_module", missing)
    with pytest.raises(InspectionError, match="zstd") as caught:
        amdgpu.inspect(written(host_library(compressed(b"", 2, 1))))
    assert caught.value.rule == "compressed-code"
    with pytest.raises(InspectionError, match="method 7"):
        amdgpu.inspect(written(host_library(compressed(b"", 2, 7))))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\x01\x01" + b"\0" * 60, "64-bit"),
        (b"nothing", "not an ELF"),
        (code_object()[:100], "tables are damaged"),
        (code_object(note=b"\xc1"), "no MessagePack"),
        (code_object(note=b"\x92\x01"), "no MessagePack"),
        (code_object(note=b"\x81\x90\x01"), "no MessagePack"),
        (code_object(note=b"\x91" * 5000), "no MessagePack"),
        (code_object(note=b"\x01"), "no table"),
        (code_objects.elf(224, [(".text", 1, 6, b"", 0)]), "no AMDGPU metadata"),
        (code_objects.elf(62, [(".text", 1, 6, b"", 0)]), "no AMD device code"),
        (host_library(bundle({"gfx942": code_object()})[:200]), "ends"),
    ],
)
def test_damaged_files_are_one_clear_error(written: Callable[[bytes], Path], data: bytes, words: str) -> None:
    with pytest.raises(InspectionError, match=words):
        amdgpu.inspect(written(data))


@given(st.data())
def test_no_damage_crashes_the_reader(data: st.DataObject) -> None:
    raw = bytearray(host_library(bundle({"gfx942": code_object()})))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(1, len(raw)))]
    try:
        for target, code in amdgpu.code_objects(bytes(raw), "sample"):
            amdgpu._target(amdgpu.metadata(Elf(code, "sample")), target)
    except InspectionError:
        pass  # the one way to say so


@pytest.mark.parametrize(("tool", "words"), [("missing", "did not answer"), ("failing", "no such target")])
def test_without_a_disassembler_the_rest_is_shown(
    written: Callable[[bytes], Path], tmp_path: Path, tool: str, words: str
) -> None:
    path = tmp_path / "none" if tool == "missing" else fake_objdump(tmp_path, status=1)
    with settings.override(objdump=str(path)):
        found = amdgpu.inspect(written(code_object()))
    assert found.functions[0].instructions is None
    assert found.functions[0].resources is not None
    assert any(words in note and "not counted" in note for note in found.notes)
    assert "registers" in str(found)


# -- promises --------------------------------------------------------------------------------------------------------


def spec_of(name: str = "gfx942") -> Any:
    problem = GemmProblem(m=256, n=256, k=256, dtype_a="fp16", dtype_b="fp16", layout="rcr")
    return next(iter(ops.op("gemm").candidates(problem.signature, name)))


def test_a_kernel_without_matrix_instructions_breaks_its_promise(
    written: Callable[[bytes], Path], objdump: Path, tmp_path: Path
) -> None:
    path = written(code_object())
    good = backend("hip").inspect(path, spec_of())
    assert (good.keeps_promises, good.matrix_count) == (True, 2)
    assert demand_promises(good) is good
    fake_objdump(tmp_path, code_objects.LISTING.replace("v_mfma_f32_32x32x8_f16", "v_fma_f32"))
    bad = backend("hip").inspect(path, spec_of())
    with pytest.raises(InspectionError, match="v_mfma_") as caught:
        demand_promises(bad)
    assert caught.value.rule == "no-matrix-instruction"
    fake_objdump(tmp_path, status=1)
    unknown = backend("hip").inspect(path, spec_of())
    assert unknown.keeps_promises is None
    demand_promises(unknown)


def test_a_kernel_without_the_copies_it_promised_is_not_published(
    written: Callable[[bytes], Path], objdump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, owner = written(code_object()), backend("hip")
    promised = replace(owner.promises(spec_of()), copies=("global_load_lds",))
    monkeypatch.setattr(type(owner), "promises", lambda self, spec: promised)
    assert demand_kept(spec_of(), path) == "kept"
    fake_objdump(tmp_path, code_objects.LISTING.replace("global_load_lds_dwordx4", "global_load_dwordx4"))
    with pytest.raises(InspectionError, match="should copy with global_load_lds") as caught:
        demand_kept(spec_of(), path)
    assert caught.value.rule == "no-copy-instruction"
    fake_objdump(tmp_path, status=1)
    assert demand_kept(spec_of(), path).startswith("undecided")


@pytest.mark.parametrize("word", ["<unknown>", ".long"])
def test_an_instruction_the_disassembler_does_not_know_may_be_the_promised_one(
    written: Callable[[bytes], Path], objdump: Path, tmp_path: Path, word: str
) -> None:
    path = written(code_object())
    fake_objdump(tmp_path, code_objects.LISTING.replace("v_mfma_f32_32x32x8_f16", word))
    found = demand_promises(backend("hip").inspect(path, spec_of()))
    assert found.keeps_promises is None
    assert "v_mfma_" in found.undecided
    assert "does not know every instruction" in str(found)
    with pytest.raises(NoDisassembly, match="every instruction"):
        amdgpu.holds(path, ("v_mfma_",))
    # Padding behind the kernel is none of its instructions.
    padded = code_objects.LISTING.replace("v_mfma_f32_32x32x8_f16", "v_fma_f32").replace("s_nop", word)
    fake_objdump(tmp_path, padded)
    assert backend("hip").inspect(path, spec_of()).keeps_promises is False


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_shows_a_file(written: Callable[[bytes], Path], objdump: Path) -> None:
    path = written(host_library(bundle({"gfx942": code_object()})))
    done = CliRunner().invoke(build_app(), ["inspect", str(path)])
    assert done.exit_code == 0, done.output
    assert "VGPR 108, AGPR 64, SGPR 40" in done.output
    done = CliRunner().invoke(build_app(), ["inspect", str(path), "--json"])
    data = json.loads(done.output)
    assert (data["arch"], data["matrix_count"], data["functions"][0]["resources"]["vgprs"]) == ("gfx942", 2, 108)


def test_a_file_with_no_code_is_refused(written: Callable[[bytes], Path]) -> None:
    with pytest.raises(RequestError) as caught:
        inspect_kernel(str(written(b"text")))
    assert caught.value.rule == "inspect-file"


def test_a_name_that_is_no_kernel_is_refused() -> None:
    done = CliRunner().invoke(build_app(), ["inspect", "gemm_of_nothing"])
    assert done.exit_code == 1
    assert "kernel-name" in done.output


# -- the compiler's own ----------------------------------------------------------------------------------------------

SAMPLE = """
#include <hip/hip_runtime.h>
typedef float f4 __attribute__((ext_vector_type(4)));
typedef _Float16 h4 __attribute__((ext_vector_type(4)));
extern "C" __global__ __launch_bounds__(256) void one(const h4 *a, const h4 *b, f4 *c) {
  __shared__ h4 shared[256];
  shared[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  c[threadIdx.x] = __builtin_amdgcn_mfma_f32_16x16x16f16(shared[255 - threadIdx.x], b[threadIdx.x], c[threadIdx.x],
                                                         0, 0, 0);
}
"""


@pytest.mark.amd
@pytest.mark.parametrize("how", ["command", "code_object_command"])
def test_what_the_compiler_makes(tmp_path: Path, how: str) -> None:
    import subprocess

    toolchain: Any = backend("hip").toolchain()
    source, output = tmp_path / "sample.hip", tmp_path / "sample.so"
    source.write_text(SAMPLE)
    subprocess.run(getattr(toolchain, how)(source, output, "gfx942"), check=True, env=settings.child_environment())
    found = inspect_kernel(str(output))
    (one,) = found.functions
    assert (found.arch, one.symbol) == ("gfx942", "one")
    assert one.resources is not None
    assert one.resources.shared_bytes == 2048
    assert one.occupancy is not None
    assert one.occupancy.threads == 256
    assert one.instructions is not None
    assert one.instructions.matrix == {"v_mfma_f32_16x16x16_f16": 1}
    assert one.instructions.loads == {8: 2, 16: 1}
    assert one.instructions.stores == {16: 1}


def test_a_main_loop_has_a_model_and_goes_into_the_manifest(written: Callable[[bytes], Path], tmp_path: Path) -> None:
    instructions = code(MAIN_LOOP)
    lines = [f"\t{i.mnemonic} {i.operands}  // {0x1000 + i.address:012X}: 00000000" for i in instructions]
    size = 4 * len(instructions)
    tool = fake_objdump(tmp_path, "\n".join(["0000000000001000 <kernel_one>:", *lines]) + "\n")
    path = written(code_object(size=size))
    with settings.override(objdump=str(tool)):
        (function,) = amdgpu.inspect(path).functions
        assert function.model is not None
        assert "a model from the code, not a measurement" in str(amdgpu.inspect(path))
        spec = next(iter(ops.op("gemm").proposals("default", "gfx942", datatypes=("fp16",), layouts=("rcr",))))
        facts = promises.read_code(spec, path)
    assert facts["waits"] == "kept"
    kept = facts["code_model"]
    assert json.loads(json.dumps(kept)) == function.model.to_dict()
    assert (kept["waves"], kept["matrix_instructions"]) == (2, 2)  # waves as 172 registers allow


def test_a_missing_wait_is_an_error_after_the_findings(written: Callable[[bytes], Path], tmp_path: Path) -> None:
    early = code(["ds_read_b32 v1, v0", "v_add_u32_e32 v2, v1, v1", "s_endpgm"])
    lines = [f"\t{i.mnemonic} {i.operands}  // {0x1000 + i.address:012X}: 00000000" for i in early]
    tool = fake_objdump(tmp_path, "\n".join(["0000000000001000 <kernel_one>:", *lines]) + "\n")
    with settings.override(objdump=str(tool)):
        done = CliRunner().invoke(build_app(), ["inspect", str(written(code_object()))])
    assert done.exit_code == 2
    assert "missing-wait" in done.output
    assert "v1 of ds_read_b32" in done.output
