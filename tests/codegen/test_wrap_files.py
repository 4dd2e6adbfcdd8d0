"""Build files to the byte for each kind of compiler, and really used where a GPU compiler is on this machine."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright
from tilewright.backends.base import ObjectRules, backend
from tilewright.build.ninja_run import ninja_binary
from tilewright.codegen import collect, generate
from tilewright.codegen.build_files import BUILD_SYSTEMS, Layout, Unit
from tilewright.codegen.wrap import wrap
from tilewright.runtime.abi import KernelEntry

HEADERS = (Path("/opt/some where/tilewright/include"), Path("/opt/some where/tilewright/backends/x/include"))

CPU = ObjectRules(
    "CXX", "CXX", ("c++",), ("-O3", "-fPIC", "-DTEXT=a 'b' \"c\" $d;e", "-mavx2"), HEADERS,
    ("-pthread", "-nodefaultlibs"), ("-Wl,--as-needed", "-lm"),
)  # fmt: skip
HIP = ObjectRules(
    "CXX", "HIPCXX", ("hipcc",), ("-x", "hip", "-std=c++17", "-O3", "-fPIC", "--offload-arch=gfx942"), HEADERS,
    ("--offload-arch=gfx942",),
)  # fmt: skip
CUDA = ObjectRules(
    "CUDA", "CUDACXX", ("nvcc",),
    ("-std=c++17", "-O3", "-Xcompiler=-fPIC", "-gencode=arch=compute_90a,code=sm_90a"), HEADERS,
    ("-gencode=arch=compute_90a,code=sm_90a", "-cudart=shared"), ("-lcuda",), "--options-file ",
)  # fmt: skip


def layout(suffix: str, rules: dict[str, ObjectRules]) -> Layout:
    archs = list(rules)
    units = (
        Unit("kernel_a", f"kernel_a{suffix}", "kernel_a", archs[0]),
        Unit("kernel b", f"kernel b{suffix}", "kernel_20b", archs[-1]),
        Unit("kernel_c", f"kernel_c{suffix}", "kernel_c", archs[0]),
    )
    return Layout(units, rules, "../the kernels")


LAYOUTS = {
    "cpu": layout(".cpp", {"generic": replace(CPU, compile_flags=CPU.compile_flags[:-1]), "x86_64_v3": CPU}),
    "hip": layout(".cpp", {"gfx942": HIP}),
    "cuda": layout(".cu", {"sm_90a": CUDA}),
}


@pytest.mark.parametrize("system", BUILD_SYSTEMS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_build_files_are_the_golden_ones(target: str, system: str, golden: Callable[[str, str], None]) -> None:
    for name, text in BUILD_SYSTEMS[system](LAYOUTS[target]).items():
        golden(f"wrap_{target}_{name}", text)


@pytest.mark.parametrize("system", BUILD_SYSTEMS)
@pytest.mark.parametrize("target", LAYOUTS)
def test_each_include_folder_is_named_once(target: str, system: str) -> None:
    text = "".join(BUILD_SYSTEMS[system](LAYOUTS[target]).values())
    for folder in HEADERS:
        assert text.count(str(folder)) == 1


def test_flags_of_two_archs_are_joined_word_for_word() -> None:
    both = layout(
        ".cpp",
        {
            "gfx90a": replace(HIP, link_flags=("--offload-arch", "gfx90a"), libraries=("-lx",)),
            "gfx942": replace(HIP, link_flags=("--offload-arch", "gfx942"), libraries=("-lx",)),
        },
    )
    assert both.link_flags() == ("--offload-arch", "gfx90a", "--offload-arch", "gfx942")
    assert both.libraries() == ("-lx",)


# -- a stand-in for a generated kernel, small enough to compile in a second ----------------------------

KERNEL = """
#include <tilewright/export.h>
#ifdef __HIP__
#include <hip/hip_runtime.h>
#endif
namespace {
__global__ void touch(float *x) { *x = NUMBER; }
int check(const void *, char *, size_t) { return 0; }
int64_t workspace(const void *, int64_t) { return NUMBER; }
int launch(const void *, void *workspace, void *stream) {
  touch<<<1, 1, 0, static_cast<STREAM>(stream)>>>(static_cast<float *>(workspace));
  return 0;
}
}  // namespace
TW_EXPORT_KERNEL("{}", check, workspace, launch, nullptr, nullptr, 0)
"""


def _works(compiler: str) -> bool:
    """Whether it is there and finds the host's compiler, which nvcc asks first."""
    found = shutil.which(compiler)
    words = [str(found), "-E", "-x", "c++", os.devnull]
    return bool(found) and subprocess.run(words, capture_output=True, check=False).returncode == 0


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


COMPILED = {
    "cmake": re.compile(r"Building \w+ object \S+?/([^/\n]+)\.c\w+\.o"),
    "ninja": re.compile(r"\] kernel (.+)"),
}


def _build(folder: Path, system: str) -> list[str]:
    if system == "cmake":
        if not (folder / "build").exists():
            _run(folder, "cmake", "-S", ".", "-B", "build")
        said = _run(folder, "cmake", "--build", "build")
    else:
        said = _run(folder, ninja_binary())
    return sorted(name.replace(" ", "_") for name in COMPILED[system].findall(said))  # as CMake shows them


def _kernels_of(library: Path) -> int:
    """How many kernels its table lists; where the GPU's runtime is missing, how many fit into its section."""
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError as error:
        if "cannot open shared object file" not in str(error) or str(library) in str(error):
            raise
        line = next(
            one for one in _run(library.parent, "readelf", "-SW", str(library)).splitlines() if "tw_table" in one
        )
        return int(line.split("PROGBITS")[1].split()[2], 16) // ctypes.sizeof(KernelEntry)
    count = ctypes.c_int64(0)
    loaded.tw_kernels(ctypes.byref(count))
    return count.value


# Not Make: what it asks of the compiler is what Ninja asks, and each compile takes seconds.
@pytest.mark.sampled(2)
@pytest.mark.parametrize("system", ["cmake", "ninja"])
@pytest.mark.parametrize(
    ("target", "stream"),
    [
        ("cuda", "cudaStream_t"),
        pytest.param("hip", "hipStream_t", marks=pytest.mark.amd),
    ],
)
def test_gpu_compilers_build_one_library_of_many(tmp_path: Path, target: str, stream: str, system: str) -> None:
    if system == "cmake" and not shutil.which("cmake"):
        pytest.skip("cmake is not on this machine")
    if target == "cuda" and not _works("nvcc"):
        pytest.skip("no nvcc on the path that finds a compiler of the host")
    kernels, out = tmp_path / "the kernels", tmp_path / "out"
    kernels.mkdir()
    out.mkdir()
    plan = replace(LAYOUTS[target], units=LAYOUTS[target].units[:2])
    if target == "hip":  # where the tests of AMD find it, which need not be on the path
        driver = backend("hip").toolchain().driver
        plan = replace(plan, rules={name: replace(one, compiler=driver) for name, one in plan.rules.items()})
    ours = tmp_path / "include"  # a copy: nobody edits it while we build
    shutil.copytree(Path(tilewright.__file__).parent / "include", ours)
    rules = {
        name: replace(
            one, include_dirs=(ours,), libraries=(), link_flags=tuple(w for w in one.link_flags if "cudart" not in w)
        )
        for name, one in plan.rules.items()
    }
    for number, unit in enumerate(plan.units, 1):
        text = KERNEL.replace("NUMBER", str(number)).replace("STREAM", stream)
        (kernels / f"{unit.name}.hpp").write_text(text, encoding="utf-8")
        (out / unit.wrapper).write_text(f"#include <{unit.name}.hpp>\n", encoding="utf-8")
    for name, text in BUILD_SYSTEMS[system](Layout(plan.units, rules, plan.kernel_dir)).items():
        (out / name).write_text(text, encoding="utf-8")
    assert _build(out, system) == ["kernel_a", "kernel_b"]
    assert _kernels_of((out / "build" if system == "cmake" else out) / plan.library) == 2
    assert _build(out, system) == []
    stamp = time.time() + 2
    os.utime(kernels / "kernel b.hpp", (stamp, stamp))
    assert _build(out, system) == ["kernel_b"]


def test_device_code_is_compressed_where_the_compiler_can(tmp_path: Path) -> None:
    """Kernels that need no CK Tile header: nothing is compiled here."""
    for target, flag in (("gfx942", True), ("generic", False)):
        kernels, out = tmp_path / target, tmp_path / f"{target}-lib"
        specs = collect("gemm", target, pool="tiny", axes={"datatypes": ("fp32",)}).specs[:1]
        generate(specs, kernels)
        plain = wrap(kernels, out, build_systems=("ninja",))
        before = (out / "build.ninja").read_text(encoding="utf-8")
        report = wrap(kernels, out, build_systems=("ninja",), offload_compress=True)
        after = (out / "build.ninja").read_text(encoding="utf-8")
        assert ("--offload-compress" in after) == flag
        assert "--offload-compress" not in before
        assert any("does not compress" in note for note in report.notes) == (not flag)
        assert not any("does not compress" in note for note in plain.notes)
