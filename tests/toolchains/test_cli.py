from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.toolchains.conftest import World
from tests.toolchains.fake_archive import recipe
from tilewright import settings
from tilewright.cli.main import build_app
from tilewright.toolchains import apt_sources
from tilewright.toolchains import install as installing


@pytest.fixture(autouse=True)
def fake_machine(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.archive.write()
    monkeypatch.setattr(apt_sources, "APT_DIR", world.apt)
    monkeypatch.setattr(installing, "load_recipe", recipe)


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["toolchain", *words])


def test_install_list_verify_and_remove(world: World) -> None:
    made = run("install", "rocm", "--yes")
    assert made.exit_code == 0, made.output
    prefix = world.cache / "toolchains" / "rocm"
    assert made.stdout.strip() == str(prefix)
    assert "unpacking" in made.stderr
    assert "TILEWRIGHT_ROCM_PATH" not in made.stderr

    assert "already installed" in run("install", "rocm").stderr
    listed = run("list")
    assert f"rocm  {prefix}  ROCm 7.2.4" in listed.stdout
    (entry,) = json.loads(run("list", "--json").stdout)
    assert (entry["prefix"], entry["version"]) == (str(prefix), "7.2.4")
    assert "complete" in run("verify").stdout

    (prefix / "bin" / "lld").write_text("changed")
    damaged = run("verify")
    assert damaged.exit_code == 2
    assert "bin/lld: changed" in damaged.stderr
    assert "--force" in damaged.stderr

    assert run("remove").exit_code == 0
    assert not prefix.exists()
    assert "none is installed" in run("list").stderr


def test_a_prefix_elsewhere_is_told_how_to_use(world: World) -> None:
    made = run("install", "rocm", "--prefix", str(world.prefix), "--yes", "-v")
    assert made.exit_code == 0, made.output
    assert f"TILEWRIGHT_ROCM_PATH={world.prefix}" in made.stderr
    assert "clang-22 1:22.1.8-3 (sid)" in made.stderr
    assert run("verify", "--prefix", str(world.prefix)).exit_code == 0


def test_many_notes_are_cut_without_verbose() -> None:
    made = run("install", "--yes")
    assert made.stderr.count("note: ") == 4
    assert "more like these; -v shows them" in made.stderr


def test_a_machine_without_apt_exits_with_two(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt_sources, "APT_DIR", world.root / "nowhere")
    refused = run("install", "rocm", "--yes")
    assert refused.exit_code == 2
    assert "[not-debian-like]" in refused.stderr
    assert "ROCm's own packages" in refused.stderr


def test_if_possible_is_no_failure_only_for_causes_outside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = next((world.root / "mirror" / "pool").glob("clang-22_*"))
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + b"?")
    assert run("install", "--yes", "--if-possible").exit_code == 2
    damaged.write_bytes(data)
    monkeypatch.setattr(apt_sources, "APT_DIR", world.root / "nowhere")
    told = run("install", "--yes", "--if-possible")
    assert told.exit_code == 0
    assert "not installed: this machine has no apt configuration" in told.stderr


def test_an_unknown_toolchain_is_a_request_error() -> None:
    refused = run("install", "rocn")
    assert refused.exit_code == 1
    assert "did you mean 'rocm'" in refused.stderr


def test_verify_looks_at_the_toolchain_in_force(world: World, tmp_path: Path) -> None:
    assert run("install", "rocm", "--yes").exit_code == 0
    assert run("install", "rocm", "--prefix", str(world.prefix), "--yes").exit_code == 0
    (world.prefix / "bin" / "lld").write_text("changed")
    assert run("verify").exit_code == 0
    for given in ({"rocm_path": str(world.prefix)}, {"hipcc": f"{world.prefix}/bin/hipcc -v"}):
        with settings.override(**given):
            damaged = run("verify")
        assert (damaged.exit_code, "bin/lld: changed" in damaged.stderr) == (2, True)
    other = tmp_path / "opt"
    (other / "bin").mkdir(parents=True)
    (other / "bin" / "hipcc").touch()
    with settings.override(rocm_path=str(other)):
        refused = run("verify")
    assert refused.exit_code == 1
    assert f"{other} has a compiler that" in refused.stderr


def test_commands_say_what_they_cleared_away(world: World) -> None:
    left = world.cache / "toolchains" / ".rocm.abcd.partial"
    left.mkdir(parents=True)
    (left / "large").write_bytes(bytes(3 << 20))
    listed = run("list")
    assert "removed 3 MiB that an installation left" in listed.stderr
    assert not left.exists()


@pytest.mark.parametrize("command", ["verify", "remove"])
def test_nothing_installed_is_a_request_error(command: str, tmp_path: Path) -> None:
    refused = run(command, "--prefix", str(tmp_path / "nothing"))
    assert refused.exit_code == 1
    assert "[no-toolchain]" in refused.stderr
