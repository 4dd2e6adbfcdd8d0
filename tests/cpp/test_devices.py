"""GPUs from C++: the driver is loaded at run time.  Here a stub stands in for it, whose memory is the host's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_same_choice import particular
from tilewright import ops
from tilewright.arch import all_archs
from tilewright.backends.cuda.driver import arch_of
from tilewright.dispatch import registry_json
from tilewright.native.judge import native_kernels
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.spec import VARIANTS

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

TESTS = programs.CPP / "tests"
LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so.7"}


def stub(backend: str, goal: Path) -> None:
    """A driver of a backend that has no device behind it."""
    flags = ("-DSTUB_HIP",) if backend == "hip" else ()
    shared = ("-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{goal.name}")
    programs.call(*programs.compiler(), *shared, *flags, str(TESTS / "stub_driver.cpp"), "-o", str(goal))


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both drivers' stubs and the program that asks them."""
    folder = tmp_path_factory.mktemp("stubs")
    for backend, name in LIBRARIES.items():
        stub(backend, folder / name)
    programs.program(TESTS / "test_device.cpp", folder / "test_device")
    return folder


def asked(stubs: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(stubs), **more}
    return subprocess.run([str(stubs / "test_device"), *words], capture_output=True, text=True, check=False, env=env)


def host_library(source: str, spec: KernelSpec, goal: Path, *defined: str) -> str:
    """A library of a kernel of a GPU that runs on the host."""
    text = json.dumps(json.dumps(spec.to_dict()))
    shared = ("-std=c++17", "-shared", "-fPIC", *programs.INCLUDES, f"-DSTUB_SPEC={text}", *defined)
    programs.call(*programs.compiler(), *shared, str(TESTS / source), "-o", str(goal), "-ldl")
    return str(goal)


def selection_files(specs: Sequence[KernelSpec]) -> dict[str, str]:
    described = native_kernels(specs[:1])
    assert described is not None
    library = registry_json.selection_library(described)
    if library is None:
        pytest.skip("the selection library cannot be had here")
    return {described.set_name: library}


def kernels(folder: Path, target: str) -> Path:
    """A registry of kernels of a GPU whose libraries run on the host."""
    op = ops.op("gemm")
    specs: list[KernelSpec] = []
    forms: tuple[dict[str, Any], ...] = ({}, {"epilogue": "MultiDAdd", "num_d": 2})
    for more in forms:
        signature = op.signature_of(tw.GemmProblem(m=64, n=64, k=64, **more))
        specs += list(op.candidates(signature, target))[:3]
    assert specs
    files = selection_files(specs)
    for clear, spec in zip((64, 256, 128) * 2, specs, strict=False):
        goal = folder / f"{spec.digest}.so"
        files[spec.digest] = host_library("stub_kernel.cpp", spec, goal, f"-DSTUB_CLEAR={clear}")
    (folder / "registry.json").write_text(registry_json.written(registry_json.to_dict(specs, target, files)))
    return folder


def convolutions(folder: Path, target: str) -> Path:
    """The same of convolutions that dense memory alone is taken for; nothing else serves them."""
    fused: dict[str, Any] = {"epilogue": "MultiDAdd", "num_d": 2, "full_d": 1}
    problems = [tw.ConvProblem(2, 8, 16, (7, 6), (3, 3), variant=variant) for variant in VARIANTS]
    specs = list(particular(target, [*problems, tw.ConvProblem(2, 8, 16, (7, 6), (3, 3), **fused)]).specs())
    files = selection_files(specs)
    for spec in specs:
        direction = f"-DSTUB_DIRECTION={VARIANTS.index(spec.signature.variant)}"
        files[spec.digest] = host_library("stub_conv.cpp", spec, folder / f"{spec.digest}.so", direction)
    data = registry_json.to_dict(specs, target, files)
    data["kernels"] = [entry for entry in data["kernels"] if not entry["fallback"]]
    (folder / "registry.json").write_text(registry_json.written(data))
    return folder


@pytest.mark.parametrize(("backend", "target"), [("cuda", "sm_90a"), ("hip", "gfx942")])
def test_kernels_run_on_a_stub(backend: str, target: str, stubs: Path, tmp_path: Path) -> None:
    finished = asked(stubs, "run", backend, str(kernels(tmp_path, target)))
    assert finished.returncode == 0, finished.stdout + finished.stderr  # of the copies and of the rest
    assert "device: 20 checked, 0 failed" in finished.stdout


@pytest.mark.parametrize(("backend", "target"), [("cuda", "sm_90a"), ("hip", "gfx942")])
def test_convolutions_run_in_copies_on_a_stub(backend: str, target: str, stubs: Path, tmp_path: Path) -> None:
    program = programs.program(TESTS / "test_device_conv.cpp", tmp_path / "test_device_conv")
    env = {**os.environ, "LD_LIBRARY_PATH": str(stubs)}
    said = programs.call(str(program), backend, str(convolutions(tmp_path, target)), env=env)
    assert "25 checked, 0 failed" in said, said


def test_the_archs_of_nvidia_are_those_of_python(stubs: Path) -> None:
    known = [name for name, arch in all_archs().items() if arch.backend == "cuda"]
    exact = [arch.capability for arch in all_archs().values() if arch.capability]
    for major, minor in [*exact, (8, 7), (9, 1), (10, 3), (12, 1), (13, 0), (7, 5)]:
        finished = asked(stubs, "arch", "cuda", *known, STUB_CAPABILITY=f"{major}.{minor}")
        assert finished.returncode == 0, finished.stderr
        mine, *runs = finished.stdout.split()
        assert mine == arch_of(major, minor)
        wanted = {mine, *all_archs()[mine].includes} if mine in all_archs() else set()
        assert set(runs) == wanted


def test_a_machine_without_a_driver_or_a_device(stubs: Path, tmp_path: Path) -> None:
    absent = asked(stubs, "arch", "cuda", "sm_80", LD_LIBRARY_PATH=str(tmp_path), TILEWRIGHT_CUDA_LIBRARY="./none.so")
    assert absent.returncode == 1
    assert absent.stderr.startswith("[device-library]")
    assert asked(stubs, "arch", "cuda", "sm_80", STUB_DEVICES="-1").stderr.startswith("[device-none]")
    assert asked(stubs, "arch", "cuda", "sm_80", STUB_DEVICES="0").stderr.startswith("[device-index]")
    assert "remedy:" in absent.stderr
