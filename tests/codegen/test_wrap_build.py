"""Wrapped kernels really built with CMake, Ninja and Make: loaded, run, and compiled again only where needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.build.stubs import tiny_specs
from tilewright import ops, settings
from tilewright.arch import runnable_host_archs
from tilewright.build.ninja_run import ninja_binary
from tilewright.codegen import generate
from tilewright.codegen.wrap import wrap
from tilewright.dispatch import kernels as adopted
from tilewright.errors import RequestError, ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime.bindings.gemm import samples
from tilewright.runtime.loader import Kernel, load_kernel, load_library

GEMM = ops.op("gemm")
SECONDS = 300  # a build tool that waits for someone must not stop the tests
# The best arch of this machine beside the generic one, where there is another: two sets of flags.
ARCH = runnable_host_archs()[0].name
SPECS: list[KernelSpec] = [
    *tiny_specs(3),
    GEMM.fallback_spec(GemmProblem(m=1, n=1, k=1, layout="ccr").signature, ARCH),
]

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no c++ on the path")
pytestmark = needs_compiler


def _ninja() -> str:
    try:
        return ninja_binary()
    except ToolchainError:
        return ""


@dataclass(frozen=True)
class System:
    """One build system: its commands, and how to read from its words which kernels it compiled."""

    name: str
    tool: str
    compiled: re.Pattern[str]
    library: str = "libdispatcher_kernels.so"

    def configure(self, folder: Path, *words: str) -> None:
        if self.name == "cmake":
            tool(folder, self.tool, "-S", ".", "-B", "build", *words)

    def build(self, folder: Path, *words: str, env: dict[str, str] | None = None) -> list[str]:
        """Build and give the names of the kernels compiled, in order of their names."""
        place = ["--build", "build"] if self.name == "cmake" else []
        return sorted(self.compiled.findall(tool(folder, self.tool, *place, *words, env=env)))


def tool(folder: Path, *command: str, env: dict[str, str] | None = None) -> str:
    clean = {key: value for key, value in os.environ.items() if key not in ("CXX", "CXXFLAGS", "LDFLAGS", "MAKEFLAGS")}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False, env={**clean, **(env or {})}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SYSTEMS = [
    System("cmake", shutil.which("cmake") or "", re.compile(r"Building CXX object \S+?/([^/\n]+)\.cpp\.o")),
    System("ninja", _ninja(), re.compile(r"\] kernel (.+)")),
    System("make", shutil.which("make") or "", re.compile(r"^\[\d+/\d+\] (.+)", re.MULTILINE)),
]


@pytest.fixture(params=SYSTEMS, ids=lambda one: one.name)
def system(request: pytest.FixtureRequest) -> System:
    found: System = request.param
    if not found.tool:
        pytest.skip(f"{found.name} is not on this machine")
    return found


@pytest.fixture(autouse=True)
def quick_compiles() -> Iterator[None]:
    with settings.override(cxxflags="-O1"):
        yield


@pytest.fixture(autouse=True)
def include_dirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """A copy of our headers, in a folder whose name needs quoting, that a test may edit."""
    from tilewright.backends.cpu import toolchain

    copies = []
    for number, folder in enumerate(toolchain.include_dirs(("gemm",))):
        copies.append(tmp_path / "our headers $x #1" / str(number))
        shutil.copytree(folder, copies[-1])
    monkeypatch.setattr(toolchain, "include_dirs", lambda ops=(): tuple(copies))
    return tuple(copies)


def later(path: Path) -> None:
    """Make a file newer than everything there is, without waiting for the clock."""
    stamp = time.time() + 2
    os.utime(path, (stamp, stamp))


def older(folder: Path) -> None:
    """Everything below a folder becomes a little older, so that what is touched next is newer."""
    stamp = time.time() - 100
    for path in folder.rglob("*"):
        os.utime(path, (stamp, stamp))


def verify(kernel: Kernel) -> None:
    """Run a kernel on sizes that are a multiple of nothing and compare with the reference."""
    s: Any = kernel.spec.signature
    problem = GemmProblem(m=13, n=11, k=17, dtype_a=s.dtype_a, dtype_b=s.dtype_b, layout=s.layout, dtype_c=s.dtype_c)
    made = samples.named(samples.sample(problem))
    a, b = (np.asarray(made[name][0], np.float64) for name in "ab")
    found = np.asarray(kernel(made["a"][0], made["b"][0]), np.float64)
    tolerance = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.6e-2}[s.dtype_c]
    np.testing.assert_allclose(found, a @ b, rtol=tolerance, atol=tolerance * 8)


def test_built_loaded_run_and_rebuilt(system: System, tmp_path: Path, include_dirs: tuple[Path, ...]) -> None:
    kernels = generate(SPECS, tmp_path / "my kernels", jobs=1).folder
    out = wrap(kernels, tmp_path / "my build", build_systems=[system.name]).folder
    names = sorted(spec.name for spec in SPECS)
    system.configure(out)
    older(tmp_path)
    assert system.build(out) == names, "each kernel is an object of its own, and progress names it"
    built = out / "build" if system.name == "cmake" else out
    library = built / system.library

    loaded = load_library(library)
    assert sorted(one.name for one in loaded) == names, "the table of the library lists every kernel once"
    for one in loaded:
        verify(one)
    assert load_kernel(library, SPECS[2]).spec == SPECS[2]

    before = library.stat().st_mtime_ns
    assert system.build(out) == [], "nothing changed"
    assert library.stat().st_mtime_ns == before

    later(kernels / f"{SPECS[1].name}.cpp")
    assert system.build(out) == [SPECS[1].name], "one kernel was touched"
    assert library.stat().st_mtime_ns != before
    older(tmp_path)

    wrap(kernels, out, build_systems=[system.name])
    assert system.build(out) == [], "wrapping again changed no file"

    header = "tilewright/cpu/gemm/loops/kernel.h"
    later(next(folder / header for folder in include_dirs if (folder / header).exists()))
    assert system.build(out) == names, "a header of all was touched"


def test_a_kernel_added_or_removed_changes_the_library_and_no_other_object(system: System, tmp_path: Path) -> None:
    kernels = generate(SPECS[:2], tmp_path / "kernels", jobs=1).folder
    out = wrap(kernels, tmp_path / "out", build_systems=[system.name]).folder
    built = out / "build" if system.name == "cmake" else out
    system.configure(out)
    assert len(system.build(out)) == 2

    generate(SPECS[:3], kernels, jobs=1)
    wrap(kernels, out)
    assert system.build(out) == [SPECS[2].name]
    shutil.copy(built / system.library, tmp_path / "three.so")  # a name of its own: a loaded library stays loaded
    assert len(load_library(tmp_path / "three.so")) == 3

    generate(SPECS[1:3], kernels, jobs=1)
    wrap(kernels, out)
    assert system.build(out) == []
    shutil.copy(built / system.library, tmp_path / "two.so")
    assert {one.spec for one in load_library(tmp_path / "two.so")} == set(SPECS[1:3])


def test_other_flags_compile_again(system: System, tmp_path: Path) -> None:
    kernels = generate(SPECS[:1], tmp_path / "kernels", jobs=1).folder
    out = wrap(kernels, tmp_path / "out", build_systems=[system.name]).folder
    system.configure(out)
    assert len(system.build(out)) == 1
    with settings.override(cxxflags="-O1 -DSOME='a b'"):
        wrap(kernels, out)
    assert len(system.build(out)) == 1
    assert system.build(out) == []


@pytest.fixture
def other_compiler(tmp_path: Path) -> Callable[[], int]:
    """A compiler of another name, in a folder with a space, that counts how often it was called."""
    record = tmp_path / "calls"
    path = tmp_path / "some tools" / "my-c++"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\necho call >> "{record}"\nexec c++ "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return lambda: len(record.read_text().split()) if record.exists() else 0


def test_the_compiler_can_be_named_from_outside(
    system: System, tmp_path: Path, other_compiler: Callable[[], int]
) -> None:
    kernels = generate(SPECS[:2], tmp_path / "kernels", jobs=1).folder
    out = wrap(kernels, tmp_path / "out", build_systems=[system.name]).folder
    path = tmp_path / "some tools" / "my-c++"
    (tmp_path / "plain").symlink_to(path)  # an environment variable has no way to quote
    if system.name == "cmake":
        system.configure(out, f"-DCMAKE_CXX_COMPILER={path}")
        system.build(out)
    elif system.name == "make":
        system.build(out, f"CXX='{path}'")
    else:
        system.build(out, env={"CXX": str(tmp_path / "plain")})
    assert other_compiler() >= 3, "two objects and a library"


@pytest.mark.skipif(not SYSTEMS[0].tool, reason="cmake is not on this machine")
def test_cmake_takes_the_compiler_of_the_environment(tmp_path: Path, other_compiler: Callable[[], int]) -> None:
    kernels = generate(SPECS[:1], tmp_path / "kernels", jobs=1).folder
    out = wrap(kernels, tmp_path / "out", build_systems=["cmake"]).folder
    (tmp_path / "plain").symlink_to(tmp_path / "some tools" / "my-c++")
    tool(out, SYSTEMS[0].tool, "-S", ".", "-B", "build", env={"CXX": str(tmp_path / "plain")})
    tool(out, SYSTEMS[0].tool, "--build", "build")
    assert other_compiler() >= 2


def test_a_kernel_with_a_space_in_its_name(system: System, tmp_path: Path) -> None:
    """Ours never have one, yet the folder is the user's."""
    kernels = generate(SPECS[:2], tmp_path / "kernels", jobs=1).folder
    old, new = f"{SPECS[0].name}.cpp", "a  kernel, renamed.cpp"
    (kernels / old).rename(kernels / new)
    manifest = kernels / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"file": "{old}"', f'"file": "{new}"'))
    out = wrap(kernels, tmp_path / "out", build_systems=[system.name]).folder
    system.configure(out)
    system.build(out)
    built = out / "build" if system.name == "cmake" else out
    assert len(load_library(built / system.library)) == 2
    assert system.build(out) == []
    later(kernels / new)
    assert len(system.build(out)) == 1


@pytest.mark.parametrize("name", ["a b", "it's", 'say "x"', "100% $HOME", "no#1", "a=b & (c)"])
def test_folders_of_any_name_are_built_in(
    system: System, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quotes, dollars, hashes and blanks in the names of all folders: kernels, wrappers and headers."""
    from tilewright.backends.cpu import toolchain

    top = tmp_path / name
    copies = []
    for number, folder in enumerate(toolchain.include_dirs(("gemm",))):
        copies.append(top / name / str(number))
        shutil.copytree(folder, copies[-1])
    monkeypatch.setattr(toolchain, "include_dirs", lambda ops=(): tuple(copies))
    kernels = generate(SPECS[:1], top / f"kernels {name}", jobs=1).folder
    if system.name == "cmake" and '"' in name:
        with pytest.raises(RequestError, match="cmake cannot build"):
            wrap(kernels, top / f"out {name}", build_systems=[system.name])
        return
    with settings.override(cxxflags="-O0"):
        out = wrap(kernels, top / f"out {name}", build_systems=[system.name]).folder
    system.configure(out)
    assert len(system.build(out)) == 1
    assert system.build(out) == []
    later(kernels / f"{SPECS[0].name}.cpp")
    assert len(system.build(out)) == 1


@pytest.mark.skipif(not _ninja(), reason="ninja is not on this machine")
def test_a_registry_runs_the_kernels_of_a_library_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopted, "_adopted", {})  # what this test adopts is no other test's
    out = wrap(generate(SPECS, tmp_path / "kernels", jobs=1).folder, tmp_path / "out", build_systems=["ninja"]).folder
    tool(out, _ninja())
    library = out / "libdispatcher_kernels.so"
    assert {one.spec for one in tw.load_library(str(library))} == set(SPECS)
    # Frozen and with an empty store: nothing but the library can serve.
    with settings.override(frozen=True, cache_dir=tmp_path / "store", measure=False):
        registry = tw.Registry(ARCH).add_library(library)
        assert set(registry.specs()) == set(SPECS)
        assert registry.build() == {}
        assert [one.library_path for one in registry.kernels()] == [library] * len(SPECS)
        a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(8, dtype=np.float32).reshape(4, 2)
        np.testing.assert_array_equal(registry.run("gemm", a, b), a @ b)
        if ARCH != "generic":
            small = tw.Registry("generic").add_library(library)
            assert {one.arch for one in small.specs()} == {"generic"}, "what the target cannot run is left out"


@pytest.mark.skipif(not _ninja(), reason="ninja is not on this machine")
@pytest.mark.skipif(ARCH == "generic", reason="this machine runs one arch only")
def test_a_library_of_another_arch_is_refused(tmp_path: Path) -> None:
    out = wrap(generate(SPECS[3:], tmp_path / "k", jobs=1).folder, tmp_path / "out", build_systems=["ninja"]).folder
    tool(out, _ninja())
    with pytest.raises(RequestError, match="runs none of them") as caught:
        tw.Registry("generic").add_library(out / "libdispatcher_kernels.so")
    assert caught.value.rule == "spec-arch"


@pytest.mark.skipif(shutil.which("nm") is None or not _ninja(), reason="needs nm and ninja")
def test_objects_of_two_archs_share_no_function_the_linker_could_mix_up(tmp_path: Path) -> None:
    archs = [one.name for one in runnable_host_archs()]
    if len(archs) < 2:
        pytest.skip("this machine runs one arch only")
    signature = GemmProblem(m=1, n=1, k=1, dtype_a="bf16", dtype_b="bf16", layout="rcr").signature
    specs = [next(iter(GEMM.candidates(signature, name))) for name in archs]
    out = wrap(generate(specs, tmp_path / "kernels", jobs=1).folder, tmp_path / "out", build_systems=["ninja"]).folder
    tool(out, _ninja())
    weak = []
    for spec in specs:
        said = tool(out, "nm", f"objects.ninja/{spec.name}.o")
        weak.append({line.split()[-1] for line in said.splitlines() if re.search(r" [WVu] ", line)})
    assert any(len(names) > 2 for names in weak), "there was something to mix up"
    for one, other in combinations(weak, 2):
        assert one & other == {"tw_abi_version", "tw_kernels"}
