"""CPU kernels: what the disassembler of the host shows of them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.inspect.code_objects import elf, fake_objdump
from tilewright import ops, settings
from tilewright.arch import host_facts
from tilewright.backends.base import backend
from tilewright.build import build_one
from tilewright.build.inspected import inspect_kernel, inspect_spec
from tilewright.cli.main import build_app
from tilewright.errors import InspectionError
from tilewright.inspect import demand_promises, x86
from tilewright.inspect.disassembly import Instruction
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

needs_objdump = pytest.mark.skipif(
    host_facts().machine != "x86_64" or not (shutil.which("objdump") or shutil.which("llvm-objdump")),
    reason="needs an x86-64 host with objdump",
)


def spec(arch: str, dtype: str = "fp32", pipelines: Iterable[str] = ("packed", "stream", "direct")) -> KernelSpec:
    problem = GemmProblem(m=512, n=512, k=512, dtype_a=dtype, dtype_b=dtype)
    found = ops.op("gemm").candidates(problem.signature, arch)
    return next(one for one in found if one.schedule.pipeline in pipelines)


@needs_objdump
@pytest.mark.parametrize(
    ("arch", "dtype", "mnemonic", "extension", "bits"),
    [
        ("x86_64_v3", "fp32", "vfmadd", "fma", 256),
        ("x86_64_v4", "fp32", "vfmadd", "avx512f", 512),
        ("x86_64_v4_vnni", "int8", "vpdpbusd", "avx512_vnni", 512),
        ("x86_64_v4_bf16", "bf16", "vdpbf16ps", "avx512_bf16", 512),
    ],
)
def test_kernels_hold_what_their_arch_has(arch: str, dtype: str, mnemonic: str, extension: str, bits: int) -> None:
    found = demand_promises(inspect_spec(spec(arch, dtype)))
    assert found.keeps_promises is True
    assert found.arch == arch
    (one,) = found.functions
    assert one.instructions is not None
    assert any(name.startswith(mnemonic) for name in one.instructions.matrix)
    assert extension in one.instructions.extensions
    assert max(one.instructions.vector_bits) == bits
    assert one.instructions.loads
    assert 0 < one.code_bytes <= found.code_bytes
    assert one.instructions.stack_moves is not None


@needs_objdump
def test_a_kernel_of_any_cpu_promises_nothing() -> None:
    found = demand_promises(inspect_spec(spec("generic")))
    assert (found.promises, found.keeps_promises) == ((), None)


@needs_objdump
def test_the_command_finds_kernels_by_name_digest_and_file() -> None:
    mine = spec("x86_64_v3")
    path = build_one(mine).path
    outputs = []
    for word in (mine.name, mine.digest[:16], str(path)):
        done = CliRunner().invoke(build_app(), ["inspect", word, "--json"])
        assert done.exit_code == 0, done.output
        outputs.append(json.loads(done.output))
    assert outputs[0] == outputs[1]
    assert outputs[2] | {"path": ""} == outputs[0] | {"path": ""}
    assert (outputs[0]["name"], outputs[0]["keeps_promises"]) == (mine.name, True)
    done = CliRunner().invoke(build_app(), ["inspect", mine.name])
    for word in ("kernel ", "digest ", "arch        x86_64_v3 (x86-64 code)", "matrix      vfmadd", "a heuristic"):
        assert word in done.output


LISTING = """
0000000000001000 <other>:
    1000:\tret
0000000000001100 <hot>:
    1100:\tvmovups 0x40(%rax),%zmm0
    1104:\tvbroadcastss (%rsi,%rdx,4),%zmm1
    1108:\tvfmadd231ps (%rbx),%zmm1,%zmm0
    110c:\tvfmadd231ss %xmm1,%xmm2,%xmm3
    1110:\tvmovaps %zmm0,0x80(%rsp)
    1114:\tvmovups %ymm0,(%rdi)
    1118:\tret
"""


def test_counts(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_bytes(elf(62, [(".text", 1, 6, b"\0" * 0x200, 0)]))
    with settings.override(objdump=str(fake_objdump(tmp_path, LISTING))):
        found = x86.inspect(path)
        (one,) = found.functions
        assert one.symbol == "hot"
        code = one.instructions
        assert code is not None
        assert (code.total, code.matrix) == (7, {"vfmadd231ps": 1})  # a scalar one is no vector work
        assert (code.loads, code.stores, code.stack_moves) == ({64: 3}, {32: 1}, 1)
        assert code.vector_bits == {512: 4, 128: 1, 256: 1}
        assert code.extensions == ("avx", "fma", "avx512f")
        promised = dataclasses.replace(found, name="k", promises=("vpdp",))
        with pytest.raises(InspectionError, match=r"should multiply with vpdp\*"):
            demand_promises(promised)
        fake_objdump(tmp_path, LISTING.replace("\tret\n", "\t(bad)\n", 1))  # in another function than the hottest
        unknown = dataclasses.replace(x86.inspect(path), name="k", promises=("vpdp",))
        assert demand_promises(unknown).keeps_promises is None
        assert dataclasses.replace(unknown, promises=("vfmadd",)).keeps_promises is True
        assert backend("cpu").recognises(path.read_bytes())
        assert inspect_kernel(str(path)).kind == "x86-64"


def test_no_disassembler_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    path = tmp_path / "kernel.so"
    path.write_bytes(elf(62, [(".text", 1, 6, b"\0" * 16, 0)]))
    found = x86.inspect(path)
    assert (found.functions, found.code_bytes) == ((), 16)
    assert "no disassembler was found" in found.notes[0]


def test_code_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_bytes(elf(183, [(".text", 1, 6, b"", 0)]))
    with pytest.raises(InspectionError, match="machine EM_AARCH64"):
        x86.inspect(path)


def test_an_empty_function_counts_nothing() -> None:
    assert x86.count([Instruction(0, "ret", "")]).matrix_count == 0


def test_what_a_spec_promises_counts() -> None:
    """An op whose kernels do not multiply and add promises other instructions, which then matter."""
    code = [Instruction(0, "vmulps", "%ymm0,%ymm1,%ymm2"), Instruction(4, "vfmadd231ss", "%xmm0,%xmm1,%xmm2")]
    assert x86.count(code).matrix == {}
    assert x86.count(code, ("vmulps",)).matrix == {"vmulps": 1}
    assert x86.count(code, ("vfmadd",)).matrix == {}, "one of a scalar is no vector work, promised or not"
