"""The CMake package, from a checkout and installed, and the examples as a user builds them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")
needs_pkg_config = pytest.mark.skipif(not shutil.which("pkg-config"), reason="needs pkg-config")
needs_cmake = pytest.mark.skipif(not programs.cmake(), reason="needs cmake")

EXAMPLES = programs.ROOT / "examples" / "cpp"
QUICK = ("gemm/01_basic", "conv/01_basic", "attention/01_basic")
BUILT = "-DEXAMPLES=" + ";".join(name.replace("/", "_") for name in QUICK)
QUICKLY = "-DCMAKE_CXX_FLAGS=-O0"  # compiling is most of the time


def exported(folder: Path, *examples: str) -> Path:
    programs.call(sys.executable, str(EXAMPLES / "export_kernels.py"), str(folder), "--examples", *examples)
    return folder


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("exported") / "kernels", *QUICK)


def run_examples(folder: Path, kernels: Path) -> None:
    for name in QUICK:
        said = programs.call(str(folder / name.replace("/", "_")), str(kernels))
        assert "largest error beside float64" in said


def with_pkg_config(folder: Path, place: Path, kernels: Path, *link: str) -> None:
    """An example, compiled by one command that knows nothing but what pkg-config says."""
    env = {**os.environ, "PKG_CONFIG_PATH": str(place)}
    said = programs.call("pkg-config", "--cflags", "--libs", "tilewright", env=env)
    goal = folder / "with_pkg_config"
    words = ("-std=c++17", "-O0", str(EXAMPLES / "gemm" / "01_basic.cpp"), *shlex.split(said), *link, "-o", str(goal))
    programs.call(*programs.compiler(), *words)
    assert "largest error beside float64" in programs.call(str(goal), str(kernels))


def configured(source: Path, build: Path, *options: str) -> None:
    ninja = ("-G", "Ninja") if shutil.which("ninja") else ()
    cxx = programs.compiler()
    if len(cxx) > 1:
        pytest.skip("CMake takes a compiler of one word")
    programs.call("cmake", *ninja, f"-DCMAKE_CXX_COMPILER={cxx[0]}", "-S", str(source), "-B", str(build), *options)


def test_an_example_with_plain_compiler_flags(tmp_path: Path) -> None:
    program = programs.program(EXAMPLES / "gemm/01_basic.cpp", tmp_path / "01_basic", header=False)
    kernels = exported(tmp_path / "kernels", "gemm/01_basic")  # of those of conv and attention each takes seconds
    assert "largest error beside float64" in programs.call(str(program), str(kernels))


def test_an_example_without_kernels_fails_with_a_remedy(tmp_path: Path) -> None:
    program = programs.program(EXAMPLES / "gemm/01_basic.cpp", tmp_path / "01_basic", header=False)
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
    configured(EXAMPLES, tmp_path / "build", f"-Dtilewright_DIR={place}", BUILT, QUICKLY)
    programs.call("cmake", "--build", str(tmp_path / "build"), "-j", "2")
    run_examples(tmp_path / "build", kernels)


@needs_cmake
@pytest.mark.proof
def test_find_package_of_an_installed_prefix_that_was_moved(kernels: Path, tmp_path: Path) -> None:
    configured(programs.CPP, tmp_path / "library", "-DTILEWRIGHT_TESTS=ON", QUICKLY)
    programs.call("cmake", "--build", str(tmp_path / "library"), "-j", "2")
    programs.call("cmake", "--install", str(tmp_path / "library"), "--prefix", str(tmp_path / "first"))
    (tmp_path / "first").rename(tmp_path / "second")
    configured(EXAMPLES, tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'second'}", BUILT, QUICKLY)
    programs.call("cmake", "--build", str(tmp_path / "build"), "-j", "2")
    run_examples(tmp_path / "build", kernels)
    config = next((tmp_path / "second").rglob("tilewright.pc"))
    assert "prefix=${pcfiledir}" in config.read_text()
    if shutil.which("pkg-config"):
        with_pkg_config(tmp_path, config.parent, kernels, f"-Wl,-rpath,{config.parents[1]}")


@needs_pkg_config
@pytest.mark.proof
def test_pkg_config_of_the_python_package(kernels: Path, tmp_path: Path) -> None:
    """From a wheel: the sources of libtilewright are compiled with the program."""
    pytest.importorskip("pip")
    wheel = (sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation", "--target")
    copy = tmp_path / "checkout"  # setuptools writes beside what it builds
    parts = ("src", "cpp", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
    for part in parts:
        whole = shutil.copytree if (programs.ROOT / part).is_dir() else shutil.copyfile
        copy.mkdir(exist_ok=True)
        whole(programs.ROOT / part, copy / part)
    programs.call(*wheel, str(tmp_path / "installed"), str(copy))
    with_pkg_config(tmp_path, tmp_path / "installed" / "tilewright" / "cpp" / "cmake", kernels)


@needs_pkg_config
def test_pkg_config_knows_all_sources_and_the_version() -> None:
    env = {**os.environ, "PKG_CONFIG_PATH": programs.call(sys.executable, "-m", "tilewright", "--cmake-dir").strip()}
    said = shlex.split(programs.call("pkg-config", "--libs", "tilewright", env=env))
    named = {Path(word).resolve() for word in said if word.endswith(".cpp")}
    assert named == {file.resolve() for file in (programs.CPP / "src").glob("*.cpp")}
    assert programs.call("pkg-config", "--modversion", "tilewright", env=env).strip() == tw.__version__


@needs_cmake
@pytest.mark.parametrize(
    ("said", "optimised"), [("", True), ("-DCMAKE_BUILD_TYPE=Debug", False), ("-DCMAKE_CXX_FLAGS=-O0", False)]
)
def test_the_library_is_optimised_where_nobody_says_how_to_build(said: str, optimised: bool, tmp_path: Path) -> None:
    """By the commands of docs/cpp.md opening a bundle took three times as long."""
    configured(programs.CPP, tmp_path, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *said.split())
    commands = [row["command"] for row in json.loads((tmp_path / "compile_commands.json").read_text())]
    assert commands
    assert [" -O2 " in command for command in commands] == [optimised] * len(commands)


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
