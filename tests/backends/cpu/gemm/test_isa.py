"""Every ISA level: its instructions are in the code, and those of higher levels are not.

Levels this machine runs are executed by test_pipelines; the bf16 level is compiled here, and its
packing runs with the dot instruction spelled out in plain arithmetic.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.harness import prove
from tests.backends.cpu.gemm.shapes import calls
from tests.built import Built, why_not_compiled, why_not_run
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.build import Artifact, build_source
from tilewright.ops.gemm import legality
from tilewright.runtime.loader import load_kernel

BF16 = ("bf16", "bf16", "bf16")
INT8 = ("int8", "int8", "int32")
FP32 = ("fp32", "fp32", "fp32")
PACKING = [one for one in cpu.PIPELINES if one != "loops"]

BF16_SPECS = {one: catalog.spec(one, "x86_64_v4_bf16", BF16, "rrr", block=2, split_k=2) for one in PACKING}
BF16_SPECS["packed_turned"] = catalog.spec("packed", "x86_64_v4_bf16", BF16, "ccr", block=1)
BF16_SPECS["stream_turned"] = catalog.spec("stream", "x86_64_v4_bf16", BF16, "ccr", block=1)
# What must be in the code of a level (any line matching), and what must not.
LEVELS = {
    ("generic", FP32): (r"mulps.*%xmm", r"%[yz]mm"),
    ("x86_64_v3", FP32): (r"vfmadd\w+ps.*%ymm", r"%zmm"),
    ("x86_64_v3", INT8): (r"vpmaddwd.*%ymm", r"%zmm|vpdpbusd"),
    ("x86_64_v4", FP32): (r"vfmadd\w+ps.*%zmm", r"vpdpbusd|vdpbf16ps"),
    ("x86_64_v4", INT8): (r"vpmaddwd.*%zmm", r"vpdpbusd|vdpbf16ps"),
    ("x86_64_v4_vnni", INT8): (r"vpdpbusd.*%zmm", r"vdpbf16ps"),
}
LEVEL_SPECS = {
    (level, pipeline): catalog.spec(pipeline, level[0], level[1], "rrr")
    for level in LEVELS
    for pipeline in ("packed", "stream")
}
# Accumulators that fill the registers of AVX2, several steps of k in one turn.
FULL_SPEC = catalog.spec("packed", "x86_64_v3", INT8, "rcr", block=0, unroll=2)

KERNELS = (*BF16_SPECS.values(), *LEVEL_SPECS.values(), FULL_SPEC)


@pytest.fixture(autouse=True)
def compiler_of_x86() -> None:
    why = why_not_compiled("x86_64_v3")
    if why:
        pytest.skip(why)


def _code(kernel: Artifact) -> str:
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("objdump is not installed")
    command = [objdump, "-d", "--no-show-raw-insn", str(kernel.path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout


@pytest.mark.parametrize("name", sorted(BF16_SPECS))
def test_bf16_kernels_use_their_instruction(built: Built, name: str) -> None:
    assert legality.check(BF16_SPECS[name]) == []
    assert BF16_SPECS[name].schedule.warp_tile[2] == 2
    assert re.search(r"vdpbf16ps.*%zmm", _code(built.artifact(BF16_SPECS[name])))


@pytest.mark.parametrize(("level", "pipeline"), list(LEVEL_SPECS), ids=str)
def test_levels_use_what_they_have(built: Built, level: tuple[str, tuple[str, str, str]], pipeline: str) -> None:
    code = _code(built.artifact(LEVEL_SPECS[level, pipeline]))
    present, absent = LEVELS[level]
    assert re.search(present, code)
    assert not re.search(absent, code)


def test_accumulators_of_bytes_stay_in_registers(built: Built) -> None:
    """A compiler that adds the products of two steps before it adds them to a sum runs out of registers."""
    assert FULL_SPEC.schedule.warp_tile == (6, 16, 2)
    assert not re.search(r"vpaddd\s+-?0x[0-9a-f]+\(%r[sb]p\)", _code(built.artifact(FULL_SPEC)))


@pytest.mark.parametrize("name", sorted(BF16_SPECS))
def test_packing_of_bf16_pairs(name: str) -> None:
    """The kernel as rendered for the bf16 level, compiled for AVX-512 with the instruction emulated."""
    spec = BF16_SPECS[name]
    with settings.override(cxxflags="-DTW_EMULATE_BF16"):
        library = build_source(backend("cpu").render(spec), "x86_64_v4", op="gemm").path
    why = why_not_run("x86_64_v4")
    if why:
        pytest.skip(why)
    kernel = load_kernel(library, spec)
    for call in calls(spec, seed=900):
        prove(kernel, call)
