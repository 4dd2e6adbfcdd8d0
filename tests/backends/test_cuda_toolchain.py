"""The CUDA compilers: found in order in fake trees, identified by what they say; NVRTC for real where it is."""

from __future__ import annotations

import importlib.machinery
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.cuda.gemm import names as make
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.backends.cuda import nvrtc, places, toolchain
from tilewright.backends.cuda.doctor import compilers
from tilewright.backends.cuda.toolchain import CudaToolchain
from tilewright.build import build_one
from tilewright.errors import RequestError, ToolchainError
from tilewright.ops import KernelSpec
from tilewright.ops.gemm.pools import signatures

pytestmark = pytest.mark.tools  # a CUDA compiler

VERSION = "Cuda compilation tools, release 13.0, V13.0.88"


def program(path: Path, text: str = f"echo '{VERSION}'") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def library(folder: Path, name: str = "libnvrtc.so.13") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return folder / name


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    toolchain.forget()
    yield
    toolchain.forget()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no CUDA: tests put some into usr/, site/nvidia or bin/ (the path)."""
    monkeypatch.setattr(places, "USUAL", tmp_path / "usr")
    monkeypatch.setattr(places, "SYSTEM_LIBRARIES", (tmp_path / "lib",))
    monkeypatch.setattr(places, "_package", lambda name: [tmp_path / "site" / name])

    def which(name: str) -> str | None:
        path = tmp_path / "bin" / name
        return str(path) if path.is_file() else None

    monkeypatch.setattr(places, "which", which)
    return tmp_path


def found() -> list[tuple[str, str]]:
    return [(Path(one.driver[0]).name, one.where) for one in toolchain.candidates()]


def test_nothing_at_all(machine: Path) -> None:
    assert found() == []
    for kind, said, rule in (
        ("auto", "nvcc and NVRTC are not", "no-nvcc"),
        ("nvcc", "nvcc is not", "no-nvcc"),
        ("nvrtc", "NVRTC is not", "no-nvrtc"),
    ):
        with settings.override(cuda_compiler=kind), pytest.raises(ToolchainError, match=said) as caught:
            toolchain.find_toolchain()
        assert caught.value.rule == rule
        assert "tilewright[cuda]" in (caught.value.remedy or "")


def test_the_order_of_places(machine: Path) -> None:
    wheels = machine / "site" / "nvidia"
    program(wheels / "cu13" / "bin" / "nvcc")
    library(wheels / "cuda_nvrtc" / "lib", "libnvrtc.so.12")
    library(wheels / "cu13" / "lib")
    assert found() == [
        ("nvcc", "NVIDIA's wheels"),
        ("libnvrtc.so.13", "NVIDIA's wheels"),
        ("libnvrtc.so.12", "NVIDIA's wheels"),
    ]
    newest = program(machine / "usr" / "cuda-13.2" / "bin" / "nvcc")
    program(machine / "usr" / "cuda-9.1" / "bin" / "nvcc")
    library(machine / "usr" / "cuda-13.2" / "lib64", "libnvrtc.so.13.2.78")
    (machine / "usr" / "cuda-13.2" / "lib64" / "libnvrtc.so.13").symlink_to("libnvrtc.so.13.2.78")
    (machine / "usr" / "cuda").symlink_to("cuda-13.2")
    mine = program(machine / "bin" / "nvcc")
    paths = [Path(one.driver[0]) for one in toolchain.candidates() if one.kind == "nvcc"]
    assert paths[0] == mine
    assert paths[1].resolve() == newest
    assert len(paths) == 4  # one installation with two names counts once
    libraries = [Path(one.driver[0]) for one in toolchain.candidates() if one.kind == "nvrtc"]
    assert libraries[0].resolve().parent.parent == newest.parent.parent
    assert len(libraries) == 3


def test_the_setting_picks_the_kind(machine: Path) -> None:
    program(machine / "usr" / "cuda" / "bin" / "nvcc")
    library(machine / "usr" / "cuda" / "lib64")
    library(machine / "lib", "libnvrtc.so.12.8.93")
    own = library(machine / "own", "libnvrtc.so.13")
    for changes, expected in (
        ({}, ["nvcc", "libnvrtc.so.13", "libnvrtc.so.12.8.93"]),
        ({"cuda_compiler": "nvcc"}, ["nvcc"]),
        ({"cuda_compiler": "nvrtc"}, ["libnvrtc.so.13", "libnvrtc.so.12.8.93"]),
        ({"nvrtc": str(own)}, ["libnvrtc.so.13"]),
        ({"cuda_compiler": "nvcc", "nvrtc": str(own)}, ["nvcc"]),
    ):
        with settings.override(**changes):
            assert [name for name, _ in found()] == expected
    with settings.override(nvrtc=str(machine / "none")), pytest.raises(ToolchainError, match="setting nvrtc") as caught:
        toolchain.find_toolchain()
    assert caught.value.rule == "no-nvrtc"
    with pytest.raises(RequestError, match="auto, nvcc, nvrtc"), settings.override(cuda_compiler="clang"):
        pass


@pytest.mark.usefixtures("needs_compiler")
def test_a_broken_one_is_passed_over(machine: Path) -> None:
    program(machine / "bin" / "nvcc", "exit 3")
    program(machine / "usr" / "cuda" / "bin" / "nvcc")
    assert toolchain.find_toolchain().where == "the usual folder"
    (machine / "usr" / "cuda" / "bin" / "nvcc").unlink()
    library(machine / "usr" / "cuda" / "lib64")  # an empty file is no NVRTC
    toolchain.forget()
    with pytest.raises(ToolchainError, match="exited with 3") as caught:
        toolchain.find_toolchain()
    assert caught.value.rule == "broken-nvcc"
    with settings.override(cuda_compiler="nvrtc"), pytest.raises(ToolchainError, match="no usable NVRTC") as caught:
        toolchain.find_toolchain()
    assert caught.value.rule == "broken-nvrtc"


ZIG = """case "$*" in
  *--version) echo clang version 22.1.0;;
  *-dumpmachine) echo x86_64-linux-gnu;;
  version) echo 0.17.0;;
esac"""


def test_nvcc_is_of_no_use_where_only_zig_compiles_for_the_host(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail at the first kernel; NVRTC asks no compiler of the host about itself."""
    nvcc = program(machine / "usr" / "cuda" / "bin" / "nvcc")
    zig = program(machine / "wheel" / "zig", ZIG)
    monkeypatch.setenv("PATH", str(machine / "bin"))
    with settings.override(cxx=f"{zig} c++"):
        with pytest.raises(ToolchainError, match=r"asks gcc or clang\+\+ about the host.*only zig 0.17.0") as caught:
            toolchain.find_toolchain()
        assert caught.value.rule == "broken-nvcc"
        with settings.override(nvcc=f"{nvcc} -ccbin /opt/gcc"):
            assert toolchain.find_toolchain().identity.kind == "nvcc"
        program(machine / "bin" / "gcc")
        toolchain.forget()
        assert toolchain.find_toolchain().identity.kind == "nvcc"


def test_tools_beside_the_compiler_in_wheels_and_in_triton(machine: Path) -> None:
    assert places.tool("nvdisasm") is None
    last = program(machine / "site" / "triton" / "backends" / "nvidia" / "bin" / "nvdisasm")
    assert places.tool("nvdisasm") == last
    wheel = program(machine / "site" / "nvidia" / "cu13" / "bin" / "nvdisasm")
    assert places.tool("nvdisasm") == wheel
    first = program(machine / "bin" / "nvdisasm")
    assert places.tool("nvdisasm") == first


@pytest.mark.usefixtures("needs_compiler")
def test_doctor_shows_each_compiler_and_why_not(machine: Path) -> None:
    def said() -> list[tuple[str, bool | None, str]]:
        return [(Path(one.what).name, one.ok, one.text) for one in compilers()]

    ((what, ok, text),) = said()
    assert (what, ok) == ("nvcc, NVRTC", None)
    assert "tilewright[cuda]" in text
    program(machine / "bin" / "nvcc", "echo 'release 11.8, V11.8.89'")
    program(machine / "usr" / "cuda" / "bin" / "nvcc")
    library(machine / "usr" / "cuda" / "lib64")
    old, good, broken, tool = said()
    assert old[:2] == ("nvcc", False)
    assert "CUDA 11.8" in old[2]
    assert "TILEWRIGHT_NVCC" in old[2]
    assert good[:2] == ("nvcc", True)
    assert good[2].endswith("the usual folder; used")
    assert broken[:2] == ("libnvrtc.so.13", False)
    assert tool[:2] == ("nvdisasm", None)
    assert "opcode" in tool[2]
    with settings.override(nvcc=str(machine / "none")):
        ((_, ok, text),) = said()
    assert ok is False
    assert "unset TILEWRIGHT_NVCC" in text


def test_packages_that_are_not_there_have_no_folders() -> None:
    assert places._package("no_such_package_of_ours") == []


# -- the real ones ---------------------------------------------------------------------------------------------------


def real(kind: str) -> CudaToolchain:
    try:
        with settings.override(cuda_compiler=kind):
            return toolchain.find_toolchain()
    except ToolchainError as error:
        pytest.skip(f"{error.message}; `pip install tilewright[cuda]` brings both compilers")


def spec(target: str = "sm_90a") -> KernelSpec:
    one = next(iter(signatures(["bf16"], ["rcr"], ["standard"], (), (), [0])))
    return KernelSpec("gemm", one, make.skinny(1, 1, 4), target)


@pytest.mark.parametrize("kind", ["nvcc", "nvrtc"])
def test_each_builds_a_kernel_under_a_key_of_its_own(kind: str, tmp_path: Path) -> None:
    tools = real(kind)
    assert tools.identity.kind == kind
    assert tools.version >= toolchain.OLDEST
    with settings.override(cuda_compiler=kind, cache_dir=tmp_path):
        made = build_one(spec())
    assert made.manifest["inputs"]["compiler"]["kind"] == kind
    assert backend("cuda").holds(made.path, backend("cuda").promises(spec()).multiply)
    headers = made.manifest["inputs"]["headers"]
    assert ("stdint.h" in headers) == (kind == "nvrtc")  # the stand-ins are ours, so their contents count


def test_the_wheels_hold_a_whole_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the system's CUDA: what `pip install tilewright[cuda]` brings is enough."""
    monkeypatch.setattr(places, "USUAL", tmp_path)
    monkeypatch.setattr(places, "which", lambda name: None)
    monkeypatch.setattr(places, "SYSTEM_LIBRARIES", ())
    wheels = places.compilers()
    if not wheels:
        pytest.skip("NVIDIA's wheels are not installed; `pip install tilewright[cuda]` brings them")
    with settings.override(cuda_compiler="nvcc", cache_dir=tmp_path / "store"):
        tools = toolchain.find_toolchain()
        assert tools.where == "NVIDIA's wheels"
        assert build_one(spec()).path.exists()
    assert places.tool("nvdisasm") is not None


def test_what_does_not_compile_says_where(tmp_path: Path) -> None:
    tools = real("nvrtc")
    source = tmp_path / "wrong.cu"
    source.write_text('extern "C" __global__ void f() { nothing(); }\n')
    done = subprocess.run(
        tools.cubin_command(source, tmp_path / "wrong.cubin", "sm_90a"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "wrong.cu(1): error" in done.stderr
    assert not (tmp_path / "wrong.cubin").exists()


def test_nvrtc_as_a_program_refuses_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvrtc.main([str(tmp_path / "libnvrtc.so.13")]) == 1
    assert "libnvrtc.so.13" in capsys.readouterr().err
    plain = importlib.machinery.PathFinder.find_spec("_ctypes")
    assert plain is not None
    assert plain.origin
    assert nvrtc.main([plain.origin, "a.cu", "a.cubin"]) == 1
    assert "nvrtc" in capsys.readouterr().err
