"""`tilewright wrap`, end to end: what it prints, writes and answers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner, Result

from tests.build.stubs import tiny_specs
from tilewright.cli.main import build_app
from tilewright.codegen import generate

APP = build_app()
SPECS = tiny_specs(3)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(APP, ["wrap", *arguments])


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    return generate(SPECS, tmp_path / "kernels", jobs=1).folder


def test_generate_then_wrap_needs_no_pattern(tmp_path: Path) -> None:
    kernels, out = str(tmp_path / "k"), str(tmp_path / "o")
    made = CliRunner().invoke(
        APP, ["generate", "gemm", "--target", "generic", "--pool", "tiny", "--limit", "2", "-o", kernels]
    )
    assert made.exit_code == 0, made.stderr
    done = run("--kernel-dir", kernels, "--output-dir", out)
    assert done.exit_code == 0, done.stderr
    assert " written, 0 unchanged, 0 removed" in done.stdout
    assert list((tmp_path / "o").glob("*.cpp"))


def test_counts_of_written_and_unchanged(kernels: Path, tmp_path: Path) -> None:
    request = ("--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "out"), "--parallel")
    assert "3 written, 0 unchanged, 0 removed" in run(*request).stdout
    assert "0 written, 3 unchanged, 0 removed" in run(*request).stdout
    generate(SPECS[1:], kernels, jobs=1)
    done = run(*request, "-v")
    assert "0 written, 2 unchanged, 1 removed" in done.stdout
    assert f"removed {SPECS[0].name}.cpp" in done.stdout


def test_the_hint_has_no_more_compilers_than_memory_holds(
    kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.build import jobs

    monkeypatch.setattr(jobs, "host_facts", lambda: SimpleNamespace(cores=64))
    request = ("--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "out"), "--generate-makefile")
    for free, least in ((0, 1), (1 << 50, len(SPECS))):
        monkeypatch.setattr(jobs, "available_memory", lambda free=free: free)
        assert f"-j {least}\n" in run(*request).stderr


@pytest.mark.parametrize(
    ("option", "name", "how"),
    [
        ("--generate-cmake", "CMakeLists.txt", "cmake -S"),
        ("--generate-ninja", "build.ninja", "ninja -C"),
        ("--generate-makefile", "Makefile", "make -C"),
    ],
)
def test_each_build_system_is_a_file_and_a_hint(
    kernels: Path, tmp_path: Path, option: str, name: str, how: str
) -> None:
    out = tmp_path / "my out"
    done = run("--kernel-dir", str(kernels), "--output-dir", str(out), option)
    assert done.exit_code == 0, done.stderr
    assert f"{out / name}: written" in done.stdout
    assert f"build: {how} '{out}'" in done.stderr
    hint = next(line for line in done.stderr.splitlines() if line.startswith("build: "))
    assert re.search(r"(-j|--parallel) [1-9]\d*$", hint), "a number: all at once may be more than memory holds"
    written = {path.name for path in out.iterdir()} - {f"{spec.name}.cpp" for spec in SPECS} - {"wrappers.json"}
    assert written - {"Makefile.objects"} == {name}


def test_foreign_files_are_mentioned_only_to_those_who_ask(kernels: Path, tmp_path: Path) -> None:
    (kernels / "notes.hpp").write_text("", encoding="utf-8")
    request = ("--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "out"))
    assert "notes.hpp" not in run(*request).output
    assert "ignored notes.hpp: not in the manifest" in run(*request, "--verbose").stderr


def test_kernels_that_are_left_out_are_named(kernels: Path, tmp_path: Path) -> None:
    (kernels / f"{SPECS[0].name}.cpp").unlink()
    manifest = kernels / "manifest.json"
    odd = f'{SPECS[1].name}"$x.cpp'
    manifest.write_text(manifest.read_text().replace(f'"file": "{SPECS[1].name}.cpp"', f'"file": {json.dumps(odd)}'))
    (kernels / f"{SPECS[1].name}.cpp").rename(kernels / odd)
    request = ("--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "out"), "--generate-ninja")
    done = run(*request)
    assert done.exit_code == 0, done.stderr
    assert f"left out '{SPECS[0].name}.cpp': in the manifest, but gone" in done.stderr
    assert "its name has characters" in done.stderr
    assert "1 written" in done.stdout
    assert set(json.loads(run(*request, "--json").stdout)["left_out"]) == {f"{SPECS[0].name}.cpp", odd}


def test_json_for_machines(kernels: Path, tmp_path: Path) -> None:
    done = run("--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "out"), "--generate-ninja", "--json")
    data = json.loads(done.stdout)
    assert len(data["written"]) == 3
    assert data["build_files"] == {"build.ninja": True}
    assert data["archs"] == ["generic"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--kernel-dir", "{0}/nowhere"), "kernel-dir"),
        (("--kernel-dir", "{0}/empty"), "no-kernels"),
        (("--kernel-dir", "{0}/kernels", "--pattern", "*.hpp"), "no-kernels"),
        (("--kernel-dir", "{0}/kernels", "--pattern", ""), ""),
    ],
)
def test_nothing_to_wrap_is_exit_code_1(kernels: Path, tmp_path: Path, arguments: tuple[str, ...], rule: str) -> None:
    (tmp_path / "empty").mkdir()
    out = tmp_path / "out"
    done = run(*(one.format(tmp_path) for one in arguments), "--output-dir", str(out), "--generate-cmake")
    if not rule:
        assert done.exit_code == 0
        return
    assert done.exit_code == 1
    assert f"error: [{rule}]" in done.stderr
    assert "remedy:" in done.stderr
    assert done.stdout == ""
    assert not out.exists()


def test_a_folder_below_a_file_is_exit_code_1(kernels: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = run("--kernel-dir", str(kernels), "--output-dir", str(tmp_path / "file" / "below"))
    assert done.exit_code == 1
    assert "[output-folder]" in done.stderr
    assert done.stderr.count("error:") == 1


def test_missing_options_are_exit_code_1() -> None:
    assert run().exit_code == 1
