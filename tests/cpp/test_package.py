"""The CMake package, from a checkout and installed, and the examples as a user builds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpp import programs

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")
needs_cmake = pytest.mark.skipif(not programs.cmake(), reason="needs cmake")

EXAMPLES = programs.ROOT / "examples" / "cpp"
QUICK = ("gemm/01_basic", "conv/01_basic", "attention/01_basic")
BUILT = "-DEXAMPLES=" + ";".join(name.replace("/", "_") for name in QUICK)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "kernels"
    programs.call(sys.executable, str(EXAMPLES / "export_kernels.py"), str(folder), "--examples", *QUICK)
    return folder


def run_examples(folder: Path, kernels: Path) -> None:
    for name in QUICK:
        said = programs.call(str(folder / name.replace("/", "_")), str(kernels))
        assert "largest error beside float64" in said


def configured(source: Path, build: Path, *options: str) -> None:
    ninja = ("-G", "Ninja") if shutil.which("ninja") else ()
    cxx = programs.compiler()
    if len(cxx) > 1:
        pytest.skip("CMake takes a compiler of one word")
    programs.call("cmake", *ninja, f"-DCMAKE_CXX_COMPILER={cxx[0]}", "-S", str(source), "-B", str(build), *options)


def test_an_example_with_plain_compiler_flags(kernels: Path, tmp_path: Path) -> None:
    program = programs.program(EXAMPLES / "gemm/01_basic.cpp", tmp_path / "01_basic")
    assert "largest error beside float64" in programs.call(str(program), str(kernels))


def test_an_example_without_kernels_fails_with_a_remedy(tmp_path: Path) -> None:
    program = programs.program(EXAMPLES / "gemm/01_basic.cpp", tmp_path / "01_basic")
    finished = subprocess.run([program, tmp_path / "none.json"], capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert "[registry-file]" in finished.stderr
    assert "remedy:" in finished.stderr


def test_the_command_line_tells_where_the_package_is() -> None:
    place = programs.call(sys.executable, "-m", "tilewright", "--cmake-dir").strip()
    assert (Path(place) / "tilewright-config.cmake").is_file()


@needs_cmake
@pytest.mark.proof
def test_find_package_of_the_python_package(kernels: Path, tmp_path: Path) -> None:
    place = programs.call(sys.executable, "-m", "tilewright", "--cmake-dir").strip()
    configured(EXAMPLES, tmp_path / "build", f"-Dtilewright_DIR={place}", BUILT)
    programs.call("cmake", "--build", str(tmp_path / "build"), "-j", "2")
    run_examples(tmp_path / "build", kernels)


@needs_cmake
@pytest.mark.proof
def test_find_package_of_an_installed_prefix_that_was_moved(kernels: Path, tmp_path: Path) -> None:
    configured(programs.CPP, tmp_path / "library", "-DTILEWRIGHT_TESTS=ON")
    programs.call("cmake", "--build", str(tmp_path / "library"), "-j", "2")
    programs.call("cmake", "--install", str(tmp_path / "library"), "--prefix", str(tmp_path / "first"))
    (tmp_path / "first").rename(tmp_path / "second")
    configured(EXAMPLES, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'second'}", BUILT)
    programs.call("cmake", "--build", str(tmp_path / "build"), "-j", "2")
    run_examples(tmp_path / "build", kernels)
    config = next((tmp_path / "second").rglob("tilewright.pc"))
    if shutil.which("pkg-config"):
        env = {**os.environ, "PKG_CONFIG_PATH": str(config.parent)}
        assert "-ltilewright" in programs.call("pkg-config", "--libs", "tilewright", env=env)
    assert "prefix=${pcfiledir}" in config.read_text()


@needs_cmake
def test_another_version_is_refused(tmp_path: Path) -> None:
    place = programs.CPP / "cmake"
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(other CXX)\nfind_package(tilewright 9.0 CONFIG REQUIRED)\n"
    )
    words = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-Dtilewright_DIR={place}"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert "0.1.0" in finished.stderr
