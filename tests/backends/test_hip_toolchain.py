from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import amd_toolchain
from tilewright import settings
from tilewright.backends.base import op_kernels
from tilewright.backends.hip import toolchain as hip
from tilewright.backends.hip.ck_tile import ops_with_profiles, profile_of, read_headers
from tilewright.backends.hip.profiles import HasProfiles
from tilewright.errors import ToolchainError

FMHA_TRAITS = """template <bool kDoFp8StaticQuant_, index_t kBlockPerCu_ = -1, bool kSkipMinSeqlenQ_ = false>
struct TileFmhaTraits {};"""
VERSION = "HIP version: 6.4.43482-0f2d60242\nAMD clang version 19.0.0git\nTarget: x86_64\nInstalledDir: /somewhere\n"


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No toolchain, no /opt/rocm, nothing on the path; what was found before is forgotten."""
    monkeypatch.setattr(hip, "USUAL", tmp_path / "opt")
    monkeypatch.setattr("shutil.which", lambda name, **_: name if Path(name).is_absolute() else None)
    hip.forget()
    with settings.override(cache_dir=tmp_path / "cache", hipcc="", rocm_path="", ck_tile=""):
        yield
    hip.forget()


def make_rocm(folder: Path, says: str = VERSION, code: int = 0) -> Path:
    hipcc = folder / "bin" / "hipcc"
    hipcc.parent.mkdir(parents=True)
    hipcc.write_text(f"#!/bin/sh\ncat <<'END'\n{says}END\nexit {code}\n")
    hipcc.chmod(0o755)
    return folder


def make_headers(folder: Path, *, newer: bool = False, older: bool = False) -> Path:
    parameters = "index_t kM_" if newer else "index_t kBlockSize_, index_t kM_, memory_operation_enum MemoryOperation_"
    launch = "template <int kBlockPerCu>" if newer else "template <int MaxThreadPerBlock, int MinBlockPerCu>"
    files = {
        "core.hpp": "// core",
        "host/kernel_launch.hpp": launch,
        "ops/epilogue/cshuffle_epilogue.hpp": f"template <{parameters}>\nstruct CShuffleEpilogueProblem {{}};",
    }
    if not older:
        files["ops/grouped_convolution.hpp"] = "// came with the version"
        for op in ops_with_profiles():
            known = op_kernels("hip", op)
            assert isinstance(known, HasProfiles)
            needs = known.header_needs("mid-2025")
            assert needs is not None
            every = (one for each in needs.kinds.values() for one in each)
            files |= {one.removeprefix("ck_tile/"): f"// of {op}" for one in every}
        files["ops/gemm/pipeline/gemm_pipeline_problem.hpp"] = "struct UniversalGemmPipelineProblem;"
        files["ops/fmha/pipeline/tile_fmha_traits.hpp"] = FMHA_TRAITS
        files["ops/fmha/pipeline/tile_fmha_shape.hpp"] = (
            "template <typename Gemm4WarpTile_>\nstruct TileFmhaBwdShape {};"
        )
    for name, text in files.items():
        path = folder / "ck_tile" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_no_compiler_names_the_command_that_installs_one() -> None:
    with pytest.raises(ToolchainError) as caught:
        hip.find_toolchain()
    assert caught.value.rule == "no-hipcc"
    assert "tilewright toolchain install rocm" in caught.value.remedy


def test_the_usual_places_are_searched_newest_first(tmp_path: Path) -> None:
    for name in ("rocm-6.4.1", "rocm-6.10.0", "rocm-5.7.0"):
        make_rocm(tmp_path / "opt" / name)
    found = hip.find_toolchain()
    assert found.driver == (str(tmp_path / "opt/rocm-6.10.0/bin/hipcc"),)
    assert found.where == "the usual folder"
    assert found.identity.kind == "hipcc"
    assert found.identity.version == "HIP 6.4.43482-0f2d60242, AMD clang version 19.0.0git"


def test_an_installed_toolchain_comes_before_the_usual_places(tmp_path: Path) -> None:
    make_rocm(tmp_path / "opt" / "rocm")
    make_rocm(tmp_path / "cache" / "toolchains" / "rocm")
    found = hip.find_toolchain()
    assert found.where == "the installed toolchain"
    assert len(hip.candidates()) == 2


def test_a_setting_is_the_only_candidate(tmp_path: Path) -> None:
    make_rocm(tmp_path / "opt" / "rocm")
    mine = make_rocm(tmp_path / "mine")
    with settings.override(rocm_path=str(mine)):
        assert hip.find_toolchain().root == mine
    with settings.override(hipcc=f"{mine}/bin/hipcc --some-flag"):
        found = hip.find_toolchain()
        assert found.driver == (f"{mine}/bin/hipcc", "--some-flag")
    with settings.override(rocm_path=str(tmp_path / "nothing")), pytest.raises(ToolchainError, match="no bin/hipcc"):
        hip.find_toolchain()
    with settings.override(hipcc="nothing-here"), pytest.raises(ToolchainError, match="not on this machine"):
        hip.find_toolchain()


@pytest.mark.parametrize(("says", "code"), [("no compiler\n", 0), (VERSION, 1)])
def test_what_does_not_answer_like_a_compiler_is_an_error(tmp_path: Path, says: str, code: int) -> None:
    make_rocm(tmp_path / "opt" / "rocm", says, code)
    with pytest.raises(ToolchainError) as caught:
        hip.find_toolchain()
    assert caught.value.rule == "broken-hipcc"


def test_a_broken_compiler_does_not_hide_a_good_one(tmp_path: Path) -> None:
    make_rocm(tmp_path / "opt" / "rocm", "nonsense\n")
    make_rocm(tmp_path / "opt" / "rocm-6.4.0")
    assert hip.find_toolchain().root == tmp_path / "opt" / "rocm-6.4.0"


def test_headers_are_found_beside_the_compiler_and_by_the_setting(tmp_path: Path) -> None:
    rocm = make_rocm(tmp_path / "opt" / "rocm")
    with pytest.raises(ToolchainError, match="no CK Tile headers") as caught:
        hip.find_toolchain().ck_tile()
    assert caught.value.rule == "no-headers"
    hip.forget()
    make_headers(rocm / "include")
    assert hip.find_toolchain().ck_tile().folder == rocm / "include"
    mine = make_headers(tmp_path / "mine")
    for given in (mine, mine / "ck_tile"):
        with settings.override(ck_tile=str(given)):
            assert hip.find_toolchain().ck_tile().folder == mine
    with settings.override(ck_tile=str(tmp_path)), pytest.raises(ToolchainError, match=r"core\.hpp is missing"):
        hip.find_toolchain()


def test_headers_of_another_version_are_refused_with_their_profile(tmp_path: Path) -> None:
    assert profile_of(make_headers(tmp_path / "mid")) == "mid-2025"
    rocm = make_rocm(tmp_path / "opt" / "rocm")
    make_headers(rocm / "include", newer=True)
    found = hip.find_toolchain()
    assert found.headers is not None
    assert found.headers.profile == ""
    with pytest.raises(ToolchainError, match="fit no profile") as caught:
        found.ck_tile()
    assert caught.value.rule == "headers-version"


def test_a_version_is_told_without_the_headers_of_any_one_op(tmp_path: Path) -> None:
    folder = make_headers(tmp_path / "mine")
    shutil.rmtree(folder / "ck_tile" / "ops" / "gemm")
    assert profile_of(folder) == "mid-2025"


def test_a_kernel_whose_headers_are_not_there_is_one_clear_error(tmp_path: Path) -> None:
    rocm = make_rocm(tmp_path / "opt" / "rocm")
    make_headers(rocm / "include")
    source = tmp_path / "kernel.hpp"
    source.write_text("#include <ck_tile/core.hpp>\n  #  include <ck_tile/ops/telepathy.hpp>\n")
    with pytest.raises(ToolchainError, match=r"no ck_tile/ops/telepathy\.hpp") as caught:
        hip.find_toolchain().command(source, tmp_path / "k.so", "gfx942")
    assert caught.value.rule == "headers-lack"


def test_the_identity_depends_on_compiler_and_headers_but_on_no_place(tmp_path: Path) -> None:
    def identity(folder: Path, says: str = VERSION, core: str = "// core") -> str:
        make_headers(make_rocm(folder, says) / "include")
        (folder / "include" / "ck_tile" / "core.hpp").write_text(core)
        with settings.override(rocm_path=str(folder)):
            return hip.find_toolchain().identity.digest

    first = identity(tmp_path / "a")
    assert identity(tmp_path / "b", VERSION.replace("/somewhere", "/elsewhere")) == first
    assert identity(tmp_path / "c", core="// edited") != first
    assert identity(tmp_path / "d", VERSION.replace("19.0.0git", "20.0.0git")) != first


def test_commands_hold_their_flags(tmp_path: Path) -> None:
    rocm = make_rocm(tmp_path / "opt" / "rocm")
    make_headers(rocm / "include")
    found = hip.find_toolchain()
    source, output = Path("k.cpp"), Path("k.so")
    library = found.command(source, output, "gfx942")
    assert library[0] == str(rocm / "bin" / "hipcc")
    assert {"--offload-arch=gfx942", "-shared", "-fPIC", "-O3", "-std=c++17"} <= set(library)
    assert library[library.index("-isystem") + 1] == str(rocm / "include")
    assert library[-4:] == [str(output), "-x", "hip", str(source)]
    one = found.object_command(source, Path("k.o"), "gfx90a")
    assert "-c" in one
    assert "-shared" not in one
    device = found.code_object_command(source, Path("k.hsaco"), "gfx950")
    assert {"--cuda-device-only", "--no-gpu-bundle-output"} <= set(device)
    assert "-shared" not in device
    # No place is a flag: flags are part of the key.
    assert not any("/" in flag for flag in found.flags("gfx942"))
    assert found.environment(tmp_path) == {"TMPDIR": str(tmp_path)}


def test_a_kernel_is_hip_whatever_its_name_ends_in(tmp_path: Path) -> None:
    """hipcc goes by the ending, and takes the .hpp our kernels have for a C++ header: no HIP headers are found then."""
    make_rocm(tmp_path / "opt" / "rocm")
    found = hip.find_toolchain()
    for make in (found.command, found.object_command, found.code_object_command):
        words = make(Path("k.hpp"), Path("k.out"), "gfx942")
        assert words[-3:] == ["-x", "hip", "k.hpp"], make.__name__
    assert hip.object_rules("gfx942").compile_flags[:2] == ("-x", "hip")


def test_a_host_arch_is_refused(tmp_path: Path) -> None:
    make_rocm(tmp_path / "opt" / "rocm")
    with pytest.raises(ToolchainError) as caught:
        hip.find_toolchain().flags("generic")
    assert caught.value.rule == "arch-backend"


def test_tools_are_found_beside_the_compiler(tmp_path: Path) -> None:
    rocm = make_rocm(tmp_path / "opt" / "rocm")
    objdump = rocm / "llvm" / "bin" / "llvm-objdump"
    objdump.parent.mkdir(parents=True)
    objdump.write_text("")
    found = hip.find_toolchain()
    assert found.tool("llvm-objdump") == objdump
    with pytest.raises(ToolchainError, match="llvm-nothing"):
        found.tool("llvm-nothing")


def test_rules_for_build_files_need_no_compiler() -> None:
    rules = hip.object_rules("gfx942")
    assert rules.compiler == ("hipcc",)
    assert "--offload-arch=gfx942" in rules.compile_flags
    assert "-shared" not in rules.compile_flags


def test_headers_are_read_once(tmp_path: Path) -> None:
    make_headers(tmp_path)
    assert read_headers(tmp_path) is read_headers(tmp_path)


KERNEL = """
#include <hip/hip_runtime.h>
#include <ck_tile/core.hpp>
__global__ void twice(ck_tile::half_t* x) { x[threadIdx.x] = ck_tile::type_convert<ck_tile::half_t>(2.0f); }
extern "C" int run(ck_tile::half_t* x) { twice<<<1, 64>>>(x); return hipGetLastError(); }
"""


@pytest.mark.amd
class TestRealCompiler:
    """With the toolchain TILEWRIGHT_ROCM_PATH names."""

    @pytest.fixture
    def tools(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[hip.HipToolchain]:
        monkeypatch.undo()
        hip.forget()
        with amd_toolchain.in_force():
            yield hip.find_toolchain()

    def run(self, tools: hip.HipToolchain, command: list[str], work: Path) -> None:
        environment = settings.child_environment(tools.environment(work))
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr

    @pytest.mark.parametrize("ending", [".cpp", ".hpp"])
    def test_a_code_object_holds_the_kernel(self, tools: hip.HipToolchain, tmp_path: Path, ending: str) -> None:
        source, output = tmp_path / f"twice{ending}", tmp_path / "twice.hsaco"
        source.write_text(KERNEL)
        tools.ck_tile()
        self.run(tools, tools.code_object_command(source, output, "gfx942"), tmp_path)
        notes = subprocess.run(
            [tools.tool("llvm-readelf"), "--notes", output], capture_output=True, text=True, check=True
        ).stdout
        assert "amdgcn-amd-amdhsa--gfx942" in notes
        assert "twice" in notes

    def test_objects_of_two_kernels_link_into_one_library(self, tools: hip.HipToolchain, tmp_path: Path) -> None:
        objects = []
        for name in ("first", "second"):
            source, output = tmp_path / f"{name}.cpp", tmp_path / f"{name}.o"
            source.write_text(KERNEL.replace("twice", name).replace("int run(", f"int run_{name}("))
            self.run(tools, tools.object_command(source, output, "gfx90a"), tmp_path)
            objects.append(str(output))
        library = tmp_path / "both.so"
        self.run(tools, [*tools.driver, "-shared", "-o", str(library), *objects], tmp_path)
        command = [str(tools.tool("llvm-readelf")), "--needed-libs", "--symbols", str(library)]
        symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "libamdhip64" in symbols
        assert "__device_stub__first" in symbols
        assert "__device_stub__second" in symbols

    def test_a_precompiled_header_serves_the_device_pass(self, tools: hip.HipToolchain, tmp_path: Path) -> None:
        header, packed = tmp_path / "all.hpp", tmp_path / "all.pch"
        lines = KERNEL.strip().splitlines()
        header.write_text("\n".join(lines[:2]) + "\n")
        source, output = tmp_path / "twice.cpp", tmp_path / "twice.hsaco"
        source.write_text("\n".join(lines[2:]) + "\n")
        self.run(tools, tools.precompile_command(header, packed, "gfx942"), tmp_path)
        command = tools.code_object_command(source, output, "gfx942")
        self.run(tools, [*command, *tools.use_precompiled(packed)], tmp_path)
        assert output.read_bytes()[:4] == b"\x7fELF"
