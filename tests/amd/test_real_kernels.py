"""Real CK Tile kernels through the whole path: registry, store, inspection, wrappers, a person's own build.

One instance takes some twenty seconds of a core, so there are few, built side by side, and each shows
something no other does.  What they compute is shown by tests/amd_emulated.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tilewright as tw
from tests import amd_toolchain
from tests.amd_emulated.catalog import cases
from tilewright import events, settings
from tilewright.arch import all_archs
from tilewright.backends.base import backend
from tilewright.build import Builder, build_many
from tilewright.build.builder import Artifact
from tilewright.build.inspected import inspect_kernel, inspect_spec
from tilewright.build.ninja_run import ninja_binary
from tilewright.cli.main import build_app
from tilewright.errors import CompileError, DeviceError
from tilewright.inspect import demand_promises
from tilewright.inspect.amdgpu import code_objects
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import accumulator
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.runtime.abi import KernelEntry

pytestmark = pytest.mark.amd

KNOWN = {one.label: one.spec for one in cases()}
# On gfx942, in one registry: a fused epilogue, the preshuffled weights, 8-bit floats in another layout.
OURS = [KNOWN["MultiDAdd, one D"], KNOWN["preshuffle fp16"], KNOWN["compv3 fp8"]]
# The other GPUs, with other pipelines.
OTHERS = [KNOWN["compv4 bf16 on gfx90a"], KNOWN["mem int8 on gfx950"]]


@pytest.fixture(scope="module")
def registry() -> tw.Registry:
    return tw.Registry(target="gfx942", specs=OURS)


@pytest.fixture(scope="module")
def built(registry: tw.Registry) -> Mapping[str, Artifact]:
    """By digest; what an earlier run built with the same compiler, headers and flags comes out of the store."""
    with amd_toolchain.in_force():
        return {**registry.build(), **build_many(OTHERS)}


def tool(name: str, *words: str | Path) -> str:
    toolchain: Any = backend("hip").toolchain()
    command = [str(toolchain.tool(name)), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_registry_builds_them_all(registry: tw.Registry, built: Mapping[str, Artifact]) -> None:
    assert {one.digest for one in (*OURS, *OTHERS)} == set(built)
    for one in built.values():
        assert one.spec is not None
        needed = tool("llvm-readelf", "--needed-libs", "--dyn-syms", one.path)
        assert "libamdhip64.so" in needed
        assert "tw_kernels" in needed
        assert one.manifest["promises"] == "kept"
        assert "ROCm" in one.manifest["compiler"]
    with events.recorded() as heard:
        found = registry.build()
    assert [one.cached for one in heard if isinstance(one, events.KernelBuilt)] == [True] * len(OURS)
    assert {name: one.path for name, one in found.items()} == {one.digest: built[one.digest].path for one in OURS}


def test_running_without_a_device_is_one_clear_error(
    registry: tw.Registry, built: Mapping[str, Artifact], tmp_path: Path
) -> None:
    del built
    a = b = np.ones((64, 64), np.float16)
    with settings.override(hip_library=str(tmp_path / "none.so")), pytest.raises(DeviceError) as caught:
        registry.run("gemm", a, b.T, epilogue="MultiDAdd", ds=[a])
    assert caught.value.rule == "device-library"
    assert "HIP runtime" in caught.value.message
    assert "TILEWRIGHT_HIP_LIBRARY" in caught.value.remedy


@pytest.mark.parametrize("spec", [*OURS, *OTHERS], ids=lambda one: one.name)
def test_inspection_says_what_the_compilers_own_tools_say(spec: KernelSpec, built: Mapping[str, Artifact]) -> None:
    found = demand_promises(inspect_spec(spec))
    assert found.keeps_promises is True
    assert found.arch == spec.arch
    said = _metadata(built[spec.digest].path, spec.arch)
    assert len(found.functions) == len(said) > 0
    for one in found.functions:
        assert one.resources is not None
        assert one.instructions is not None
        told = said[one.symbol]
        assert one.resources.vgprs + one.resources.agprs == told["vgpr_count"]
        assert one.resources.sgprs == told["sgpr_count"]
        assert one.resources.vgpr_spills == told["vgpr_spill_count"]
        assert one.resources.sgpr_spills == told["sgpr_spill_count"]
        assert one.resources.scratch_bytes == told["private_segment_fixed_size"]
        assert one.resources.shared_bytes == told["group_segment_fixed_size"]
        # Every tail multiplies with matrix instructions; what shuffles the weights only moves them.
        multiplies = "pack_b" not in one.symbol
        assert multiplies or spec.schedule.pipeline == "preshuffle"
        assert (one.instructions.matrix_count > 0) is multiplies
        assert (one.resources.shared_bytes > 0) is multiplies
        assert one.occupancy is not None
        assert one.occupancy.warps >= 1
        # Legal schedules were chosen so that none spills: the inspection must say it, not leave it out.
        assert one.resources.vgpr_spills == 0
        assert "spills      none" in str(found)


def _metadata(library: Path, arch: str) -> dict[str, dict[str, int]]:
    """What llvm-readelf prints of the notes, by kernel."""
    (code,) = [raw for target, raw in code_objects(library.read_bytes(), "library") if arch in target]
    path = library.parent.parent / f"{library.parent.name}.notes.o"
    try:
        path.write_bytes(code)
        text = tool("llvm-readelf", "--notes", path)
    finally:
        path.unlink(missing_ok=True)
    found = {}
    for part in re.split(r"\n  - \.(?:agpr_count|args)", text)[1:]:
        name = re.search(r"\.name:\s+(\S+)", part)
        if name:
            found[name[1]] = {key: int(value) for key, value in re.findall(r"\n    \.(\w+):\s+(\d+)", part)}
    return found


def test_the_command_shows_a_built_kernel(built: Mapping[str, Artifact]) -> None:
    spec = OURS[0]
    del built
    done = CliRunner().invoke(build_app(), ["inspect", spec.digest[:16], "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert (data["name"], data["arch"], data["keeps_promises"]) == (spec.name, "gfx942", True)
    assert data["matrix_count"] > 0
    shown = CliRunner().invoke(build_app(), ["inspect", spec.name])
    assert "v_mfma_f32_32x32x8_f16" in shown.stdout


def test_a_real_error_of_the_real_compiler_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = KNOWN["compv3 fp16"]
    owner = backend("hip")
    good = owner.render(spec)
    assert "#include <tilewright/hip/" in good.text
    bad = replace(good, text=good.text.replace("#include <tilewright/hip/", "#include <tilewright/hap/", 1))
    monkeypatch.setattr(type(owner), "render", lambda self, one: bad)
    with pytest.raises(CompileError, match=r"fatal error: 'tilewright/hap/\S+' file not found") as caught:
        Builder().build_one(spec)
    assert Path(caught.value.log_path).is_file()
    assert "hipcc" in caught.value.reproduce


def test_generated_wrapped_and_built_by_ninja(tmp_path: Path) -> None:
    """The commands a person types, then Ninja with what they wrote; one more kernel compiles only itself."""
    kernels, out = tmp_path / "kernels", tmp_path / "build"

    def command(*words: str | Path) -> str:
        done = CliRunner().invoke(build_app(), list(map(str, words)))
        assert done.exit_code == 0, done.output
        return done.stdout

    chosen = ["--preselected", "fp16_rcr_essential", "--filter", "c.pipeline == 'compv4'", "--limit", "2"]
    command("generate", "gemm", "--target", "gfx942", *chosen, "--output-dir", kernels)
    command("wrap", "--kernel-dir", kernels, "--output-dir", out, "--pattern", "*.hpp", "--generate-ninja")
    names = sorted(one.stem for one in kernels.glob("*.hpp"))
    assert len(names) == 2
    assert _ninja(out) == names, "each kernel is an object of its own, and progress names it"
    library = out / "libdispatcher_kernels.so"
    sections = tool("llvm-readelf", "-SW", library)
    table = next(line for line in sections.splitlines() if "tw_table" in line)
    assert int(table.split("PROGBITS")[1].split()[2], 16) == 2 * ctypes.sizeof(KernelEntry)
    found = inspect_kernel(str(library))
    assert (found.arch, found.matrix_count > 0) == ("gfx942", True)
    assert len(list(code_objects(library.read_bytes(), "library"))) == 2
    assert _ninja(out) == []
    (kernels / f"{names[1]}.hpp").touch()
    assert _ninja(out, "-n") == names[1:], "one kernel was touched"


def _ninja(folder: Path, *words: str) -> list[str]:
    done = subprocess.run([ninja_binary(), *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(re.findall(r"\] kernel (.+)", done.stdout))


def _loops(dtype: str, out: str, arch: str) -> KernelSpec:
    signature = GemmSignature("multi_d", dtype, dtype, accumulator(dtype), out, out, "rcr", "Gelu", 1)
    return op("gemm").fallback_spec(signature, arch)


EVERY = [name for name, one in all_archs().items() if one.backend == "hip"]


@pytest.mark.parametrize(
    "spec",
    [
        *(_loops("bf16", "bf16", one) for one in EVERY),
        _loops("int8", "int32", "gfx908"),
        _loops("int8", "int8", "gfx1250"),
    ],
    ids=lambda one: one.name,
)
def test_the_loops_compile_for_every_amd_gpu(tmp_path: Path, spec: KernelSpec) -> None:
    toolchain: Any = backend("hip").toolchain()
    source, output = tmp_path / "loops.hpp", tmp_path / "loops.hsaco"
    source.write_text(backend("hip").render(spec).text)
    command = toolchain.code_object_command(source, output, spec.arch, "gemm")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings.child_environment())
    assert done.returncode == 0, done.stderr
    found = inspect_kernel(str(output))
    assert found.arch == spec.arch
    (one,) = found.functions
    assert one.resources is not None
    assert one.resources.shared_bytes == 2 * 16 * 65 * 4
    assert (one.resources.vgpr_spills, one.resources.scratch_bytes) == (0, 0)
    assert one.instructions is not None
    assert one.instructions.matrix_count == 0, "plain loops: the floor under everything"
