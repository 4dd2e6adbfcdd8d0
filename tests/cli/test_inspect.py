"""`tilewright inspect` and `cache why`: every way to name a kernel, sources and machine code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.build.stubs import tiny_specs
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.build import Builder, inspected
from tilewright.cli.main import build_app

SPEC = tiny_specs(1)[0]


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    """What `specs --json` prints."""
    file = tmp_path / "specs.json"
    entries = [{"name": one.name, "digest": one.digest, "spec": one.to_dict()} for one in tiny_specs(2)]
    file.write_text(json.dumps({"specs": entries, "filtered": 0, "rejected": 0}))
    return file


def test_the_source_of_a_kernel(spec_file: Path) -> None:
    expected = [backend("cpu").render(one).text for one in tiny_specs(2)]
    done = shell("inspect", str(spec_file), "--source")
    assert done.exit_code == 0, done.output
    assert done.stdout == "\n".join(expected)


def test_a_file_of_specs_is_inspected_and_explained(spec_file: Path) -> None:
    done = shell("inspect", str(spec_file), "--json")
    assert done.exit_code == 0, done.output
    assert [one["name"] for one in json.loads(done.stdout)] == [one.name for one in tiny_specs(2)]
    done = shell("cache", "why", str(spec_file), "--json")
    assert [one["name"] for one in json.loads(done.stdout)] == [one.name for one in tiny_specs(2)]
    text = shell("inspect", str(spec_file)).stdout
    assert all(one.digest in text for one in tiny_specs(2))


def test_a_manifest_of_generated_kernels_is_a_file_of_specs(tmp_path: Path) -> None:
    from tilewright.codegen import generate

    generate(tiny_specs(2), tmp_path, jobs=1)
    done = shell("inspect", str(tmp_path / "manifest.json"), "--source")
    assert done.exit_code == 0, done.output
    assert all(one.name in done.stdout for one in tiny_specs(2))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"specs": [1]}', '{"op": 5, "signature": 1}'])
def test_a_file_without_specs_is_an_error_of_the_request(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    for words in (("inspect", str(file)), ("cache", "why", str(file)), ("inspect", str(file), "--source")):
        done = shell(*words)
        assert done.exit_code == 1, done.output
        assert "[spec-file]" in done.stderr


@pytest.mark.skipif(not (shutil.which("objdump") or shutil.which("llvm-objdump")), reason="no disassembler here")
def test_machine_code_as_text() -> None:
    library = Builder().build_one(SPEC).path
    named = shell("inspect", SPEC.name, "--asm")
    assert named.exit_code == 0, named.output
    assert "ret" in named.stdout
    assert named.stdout.count("\n") > 20
    assert shell("inspect", str(library), "--asm").stdout == named.stdout


def test_the_kernel_of_another_compiler_is_not_shown_instead() -> None:
    """A store holds kernels of several compilers and flags: inspected is the one that calls load."""
    library = Builder().build_one(SPEC).path
    with settings.override(cxxflags="-DTILEWRIGHT_TEST_OF_INSPECT"):
        later = Builder().build_one(SPEC).path
        assert inspected.inspect_kernel(SPEC.name).path == str(later)
    assert later != library
    assert inspected.inspect_kernel(SPEC.name).path == str(library)


def test_without_a_disassembler_that_is_said(tmp_path: Path) -> None:
    library = Builder().build_one(SPEC).path
    with settings.override(objdump=str(tmp_path / "none")):
        done = shell("inspect", str(library), "--asm")
    assert done.exit_code == 2
    assert "[no-disassembler]" in done.stderr
    assert "TILEWRIGHT_OBJDUMP" in done.stderr


def test_one_answer_at_a_time(spec_file: Path) -> None:
    done = shell("inspect", str(spec_file), "--asm", "--source")
    assert done.exit_code == 1
    assert "ask for one" in done.stderr


def test_the_source_of_a_file_nobody_knows(tmp_path: Path) -> None:
    copy = tmp_path / "some.so"
    shutil.copy(Builder().build_one(SPEC).path, copy)
    done = shell("inspect", str(copy), "--source")
    assert done.exit_code == 1
    assert "[inspect-source]" in done.stderr


@pytest.mark.parametrize(
    "axes", [("--datatype", "bf16", "--layout", "rcr"), ("--datatype", "int8", "--epilogue", "relu")]
)
@pytest.mark.usefixtures("needs_compiler")
def test_every_name_that_specs_prints_is_taken(axes: tuple[str, ...]) -> None:
    names = shell("specs", "gemm", "--pool", "tiny", "--target", "generic", *axes).stdout.split()
    assert names
    for name in names:
        assert name in shell("cache", "why", name).stdout
        source = shell("inspect", name, "--source")
        assert source.exit_code == 0, source.output
        assert source.stdout == shell("inspect", name, "--source", "--target", "cpu").stdout or name in source.stdout
