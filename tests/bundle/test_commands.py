"""`tilewright bundle ...` as a person types it."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.bundle.conftest import PROBLEMS, TARGETS
from tilewright.build.bundle_file import HEAD, BundleFile
from tilewright.bundle import coverage
from tilewright.bundle.build import Made
from tilewright.cli.main import build_app
from tilewright.codegen.folder import demand_replaceable


def bundle_command(*words: object) -> Result:
    return CliRunner().invoke(build_app(), ["bundle", *map(str, words)])


def test_build_says_what_it_made(made: Made, problems: Path, tmp_path: Path) -> None:
    goal = tmp_path / "model.twb"
    done = bundle_command(
        "build", "--problems", problems, "--targets", ",".join(TARGETS), "--threads", 2, "-o", goal, "--loss", "3%",
        "--max-size", "20MB", "-j", 2,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert goal.read_bytes() == made.path.read_bytes()
    assert all(target in done.stdout for target in TARGETS)
    assert "covered" in done.stdout


def test_check_and_show(made: Made) -> None:
    done = bundle_command("check", made.path)
    assert done.exit_code == 0, done.output
    assert "as they were written" in done.stdout
    done = bundle_command("show", made.path)
    assert done.exit_code == 0, done.output
    assert all(word in done.stdout for word in ("fallback", "choice", "select/", *TARGETS))
    assert json.loads(bundle_command("show", made.path, "--json").stdout)["format"] == "tilewright-bundle"


def test_check_names_the_file_that_was_changed(bundle: Path) -> None:
    data = bytearray(bundle.read_bytes())
    data[data.index(b"\x7fELF") + 64] ^= 1
    bundle.write_bytes(data)
    done = bundle_command("check", bundle)
    assert done.exit_code == 1
    assert "kernels/" in done.output


def test_coverage_as_a_table_and_a_page(made: Made, tmp_path: Path) -> None:
    page = tmp_path / "coverage.html"
    done = bundle_command("coverage", made.path, "--html", page)
    assert done.exit_code == 0, done.output
    assert "heuristic" in done.stdout
    assert "gemm m=64 n=128 k=256" in done.stdout
    text = page.read_text(encoding="utf-8")
    with BundleFile(made.path) as opened:  # sizes as `bundle build` told them
        assert coverage.target_sizes(opened.manifest) == {name: made.sizes[name] for name in made.kernels}
    assert "gemm m=64 n=128 k=256" in text
    assert "http" not in text
    rows = json.loads(bundle_command("coverage", made.path, "--json", "--op", "conv").stdout)
    assert len(rows) == len(PROBLEMS["conv"]) * len(TARGETS)


def test_no_threads_are_refused(tmp_path: Path) -> None:
    words = ("--targets", "generic", "--pool", "gemm:tiny", "--threads", "0,2")
    done = bundle_command("build", "-o", tmp_path / "a.twb", *words)
    assert done.exit_code == 1
    assert "--threads 0" in done.output
    assert not (tmp_path / "a.twb").exists()


def test_a_page_shows_what_is_missing_and_escapes_it(made: Made) -> None:
    row = {"text": "<b>", "target": "t", "threads": 1, "tier": "", "loss": None, "stages": [], "why": "a & b"}
    with BundleFile(made.path) as bundle:
        text = coverage.page(bundle, [row])
    assert "0 of 1 problems covered" in text
    assert "&lt;b&gt;" in text
    assert "a &amp; b" in text
    assert 'class="missing"' in text


def test_diff(made: Made, problems: Path, tmp_path: Path) -> None:
    same = bundle_command("diff", made.path, made.path)
    assert same.exit_code == 0
    assert "no difference" in same.output
    other = tmp_path / "other.twb"
    fewer = tmp_path / "fewer.json"
    fewer.write_text(json.dumps({"gemm": PROBLEMS["gemm"]}), encoding="utf-8")
    words = ("--problems", fewer, "--targets", "generic", "--threads", 2, "-o", other)
    assert not bundle_command("build", *words).exit_code
    found = json.loads(bundle_command("diff", other, made.path, "--json").stdout)
    kinds = {row["what"] for row in found}
    assert {"kernel", "problem", "file"} <= kinds
    assert "+ problem" in bundle_command("diff", other, made.path).stdout


def test_diff_does_not_call_a_damaged_bundle_the_same(made: Made, bundle: Path) -> None:
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    bundle.write_bytes(data)
    done = bundle_command("diff", made.path, bundle)
    assert done.exit_code
    assert "no difference" not in done.output
    assert "[bundle-digest]" in done.output


def test_a_wheel_is_one_and_always_the_same(made: Made, tmp_path: Path) -> None:
    done = bundle_command("wheel", made.path, "-o", tmp_path, "--name", "my-kernels", "--version", "1.2")
    assert done.exit_code == 0, done.output
    wheel = Path(done.stdout.strip())
    assert wheel.name.startswith("my_kernels-1.2-py3-none-linux_")
    first = wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("my_kernels/model.twb") == made.path.read_bytes()
        assert b"[tilewright.bundles]" in archive.read("my_kernels-1.2.dist-info/entry_points.txt")
    wheel.unlink()
    bundle_command("wheel", made.path, "-o", tmp_path, "--name", "my-kernels", "--version", "1.2")
    assert wheel.read_bytes() == first


@pytest.mark.parametrize(
    "words",
    [
        ("build", "-o", "x.twb"),
        ("build", "-o", "x.twb", "--targets", "generic", "--pool", "gemm=none-such"),
        ("build", "-o", "x.twb", "--targets", "generic", "--pool", "gemm=tiny", "--loss", "much"),
        ("build", "-o", "x.twb", "--targets", "generic", "--pool", "gemm=tiny", "--max-size", "-3"),
        ("build", "-o", "x.twb", "--targets", "generic", "--pool", "gemm=tiny", "--threads", "two"),
        ("check", "none.twb"),
        ("coverage", "none.twb"),
        ("diff", "none.twb", "none.twb"),
        ("show", "none.twb"),
        ("wheel", "none.twb"),
    ],
)
def test_mistakes_are_one_error(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = bundle_command(*words)
    assert done.exit_code == 1, done.output
    assert "remedy: " in done.output
    assert not list(tmp_path.iterdir())


def test_files_of_other_people_are_left_alone(made: Made, tmp_path: Path) -> None:
    """A bundle and its page are written over; what is no such file is not, nor waited for."""
    mine, page, archive = tmp_path / "problems.json", tmp_path / "mine.html", tmp_path / "mine.twb"
    mine.write_text('{"gemm": [{"m": 8, "n": 8, "k": 8}]}', encoding="utf-8")
    page.write_text("<!doctype html>mine", encoding="utf-8")
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("mine", "mine")
    os.mkfifo(tmp_path / "pipe")
    for path in (mine, archive, tmp_path / "pipe"):
        before = path.read_bytes() if path.is_file() else b""
        done = bundle_command("build", "--pool", "gemm=tiny", "--targets", "generic", "-o", path)
        assert done.exit_code == 1
        assert "[foreign-file]" in done.output
        assert not path.is_file() or path.read_bytes() == before
    before = page.read_bytes()
    assert "[foreign-file]" in bundle_command("coverage", made.path, "--html", page).output
    assert page.read_bytes() == before
    page.unlink()
    for _ in range(2):
        assert bundle_command("coverage", made.path, "--html", page).exit_code == 0
    damaged = tmp_path / "damaged.twb"
    damaged.write_bytes(made.path.read_bytes()[:3000])
    for old in (damaged, tmp_path / "empty.twb"):
        old.touch()
        demand_replaceable(old, HEAD)  # a bundle that is no longer whole, and a file that holds nothing


@pytest.mark.parametrize("name", ["../x", "Tilewright"])  # of which one would be written over
def test_a_wheel_with_a_name_that_is_none(made: Made, tmp_path: Path, name: str) -> None:
    done = bundle_command("wheel", made.path, "-o", tmp_path, "--name", name)
    assert done.exit_code == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--targets", "sm_75"), ("--op", "gemn")])
def test_coverage_of_what_a_bundle_has_nothing_of(made: Made, words: tuple[str, str]) -> None:
    done = bundle_command("coverage", made.path, *words)
    assert done.exit_code == 1
    assert words[1] in done.output
    assert "remedy: it has " in done.output


def test_list_without_any() -> None:
    done = bundle_command("list")
    assert done.exit_code == 0, done.output
