"""What is shipped: the source distribution is the whole tree, the wheel the whole package, and the metadata is true."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def tracked() -> list[str]:
    """Every file git knows of; in a source distribution, which has no git, there is nothing to compare with."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this tree is no git checkout")
    done = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"git cannot read this checkout: {done.stderr.strip()}")
    return sorted(name for name in done.stdout.split("\0") if name and (ROOT / name).is_file())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has: a build writes into the folder it is run in."""
    version = pytest.importorskip("setuptools", reason="without setuptools no package can be built").__version__
    if int(version.partition(".")[0]) < 77:
        pytest.skip(f"setuptools {version} does not read an SPDX license")
    copy = tmp_path_factory.mktemp("tree")
    for name in tracked():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    return copy


def built(tree: Path, hook: str, goal: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(goal)], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return goal / done.stdout.splitlines()[-1]


def test_the_source_distribution_holds_everything_git_has(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(built(tree, "build_sdist", tmp_path)) as archive:
        inside = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    made = {name for name in inside if "egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert sorted(inside - made) == tracked()


def test_the_wheel_holds_the_package_with_its_headers_and_data(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built(tree, "build_wheel", tmp_path)) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        said = archive.read(metadata).decode()
        licenses = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
    package = {name.removeprefix("src/") for name in tracked() if name.startswith("src/")}
    cpp = {f"tilewright/{name}" for name in tracked() if name.startswith("cpp/") and "/tests/" not in name}
    assert len(cpp) > 20
    assert inside == package | cpp
    assert licenses
    assert "License-Expression: Apache-2.0\n" in said
    assert "Project-URL" not in said
    assert "Typing :: Typed" in said


def test_the_version_is_the_same_everywhere() -> None:
    import tilewright

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{tilewright.__version__}"' in text


def test_hooks_and_make_run_the_same_commands() -> None:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"^lint-(?:types|text):.*\n((?:\t.*\n)+)", make, re.MULTILINE)).splitlines()
    assert all(line.startswith("\t@") for line in lines if "$(CXX_SOURCES)" in line), "40 KB of names would be echoed"
    commands = [line.strip().removeprefix("@") for line in lines if not line.startswith("\t@echo ")]
    tools = [re.sub(r" (-|--check|\.|\$).*", "", command.removeprefix("$(BIN)/")) for command in commands]
    assert {"ruff check", "ruff format", "clang-format", "mypy", "lint-imports"} <= set(tools)
    for tool in tools:
        assert f"entry: .venv/bin/{tool}" in hooks, f"make lint runs {tool}, a commit does not"
