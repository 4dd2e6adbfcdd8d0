"""Tables on a screen of 80 columns: numbers and keys stay whole, long names fold or are shortened by their digest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.build.stubs import tiny_specs, write_stub
from tilewright import ops, settings
from tilewright.build import Builder
from tilewright.cli import demo as demo_command
from tilewright.cli.common import short_name, show, table
from tilewright.cli.main import build_app
from tilewright.dispatch import records

SMALL = ("--m", "8", "--n", "8", "--k", "8", "--rounds", "1", "--repeat", "1")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def shell(*words: str, width: int = 80) -> str:
    done = CliRunner().invoke(build_app(), list(words))
    assert done.exit_code == 0, done.output
    assert all(len(line) <= width for line in done.stdout.splitlines()), done.stdout
    return done.stdout


def joined(text: str) -> str:
    """What was folded, in one piece: names have no blanks."""
    return re.sub(r"\s+", "", text)


def test_only_columns_that_fold_give_way(capsys: pytest.CaptureFixture[str]) -> None:
    shown = table("key", "number", "name", fold=["name"], right=["number"])
    shown.add_row("0123456789ab", "1234567.8", "n" * 150)
    show(shown)
    lines = capsys.readouterr().out.splitlines()
    assert "0123456789ab" in lines[1]
    assert "1234567.8" in lines[1]
    assert "".join(lines).count("n") >= 150
    assert max(map(len, lines)) <= 80


def test_a_wide_screen_folds_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = table("key", "name", fold=["name"])
    shown.add_row("0123456789ab", "n" * 150)
    show(shown)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert short_name("n" * 150) == "n" * 150


def test_a_name_is_shortened_by_its_digest() -> None:
    name = tiny_specs(1)[0].name
    short = short_name(name)
    assert len(short) == 32
    assert short.endswith(name[-8:])
    assert short_name("short") == "short"


def test_bench_shows_every_number_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(records._known, settings.current().cache_dir, records.Records(tmp_path))
    common = ("bench", "gemm", *SMALL[:8], "--target", "generic", "--threads", "1")
    text = shell(*common)
    # One round tells no spread.
    numbers = re.findall(r"^[* ]\s+\d+\.\d\s+\d+\.\d\s+-\s+\d\.\d{3}\s+\d\.\d\d\s+gemm_", text, re.MULTILINE)
    record = json.loads(CliRunner().invoke(build_app(), [*common, "--json"]).stdout)
    assert len(numbers) == len(record["timings"]) > 1
    for title in ("time us", "GFLOP/s", "spread", "error/bound", "of best"):
        assert title in text
    last = [line.split()[-1] for line in text.splitlines()]
    for one in record["timings"]:
        assert one["digest"][:8][-2:] in "".join(last)
    assert text.count("*") == 1
    done = CliRunner().invoke(build_app(), list(common))
    assert "* the winner" in done.stderr, "the star has a legend"


def test_cache_ls_shows_every_key_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = write_stub(tmp_path / "bin")
    with settings.override(cache_dir=tmp_path / "cache", cxx=str(stub.path)):
        built = list(Builder().build_many(tiny_specs(3)).values())
        text = shell("cache", "ls")
        monkeypatch.setenv("COLUMNS", "100")
        wider = shell("cache", "ls", width=100)
    for one in built:
        line = next(line for line in wider.splitlines() if line.startswith(one.key[:12]))
        assert str(one.manifest["name"])[-8:] in line, "a digest in two pieces is of no use"
        line = next(line for line in text.splitlines() if line.startswith(one.key[:12]))
        assert re.search(r"\d+(\.\d)? (B|KiB)\s+\d\.\d\d s\s+\d+ s ago", line)
        assert str(one.manifest["name"])[-8:] in line


KERNEL = "gemm_fp32_rcr_packed_256x1536x384_8x48x1_unroll2_prefetch8_x86_64_v4_bf16_f1c727fd"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its kernels, which take seconds: rows of their kind, the widest numbers among them."""

    def row(registry: Any, title: str, problem: Any, shown: Any, repeat: int) -> demo_command.Row:
        peers = dict.fromkeys(shown.peers, 0.12)
        tier, told = demo_command.TIER_MEANINGS, problem.describe()
        return demo_command.Row("gemm", title, told, KERNEL, list(tier)[-1], 0.0123456, 1234.5, 0.5, 0.25, True, peers)

    monkeypatch.setattr(demo_command, "_build", lambda *_: None)
    monkeypatch.setattr(demo_command, "_row", row)


@pytest.mark.parametrize(("columns", "numbers"), [(80, r"\d+\.\d +"), (100, r"\d+\.\d +\d+\.\d +")])
@pytest.mark.usefixtures("demo")
def test_demo_shows_every_number_on_lines_that_fit(columns: int, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shell("demo", "gemm", "--repeat", "1", "--target", "generic", width=columns)
    rows = re.findall(rf"^gemm +\S.* {numbers}\d+\.\d\d ", text, re.MULTILINE)
    assert len(rows) == 6, text
    assert "..." not in text
    assert KERNEL not in text


@pytest.mark.usefixtures("demo")
def test_no_line_of_the_demo_is_over_100_columns_whatever_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in ("100", "250", None):  # None: a pipe, where nobody says how wide a line may be
        monkeypatch.delenv("COLUMNS") if columns is None else monkeypatch.setenv("COLUMNS", columns)
        done = CliRunner().invoke(build_app(), ["demo", "--repeat", "1", "--target", "generic"])
        lines = (done.stdout + done.stderr).splitlines()
        assert len(lines) > 15
        assert [line for line in lines if len(line) > 100] == []


@pytest.mark.parametrize("libraries", [("NumPy",), ("NumPy", "PyTorch"), ()])
def test_the_demo_shows_what_another_library_computes_too(libraries: tuple[str, ...], monkeypatch: Any) -> None:
    conv: Any = ops.op("conv")
    monkeypatch.setattr(demo_command, "_is_installed", libraries.__contains__)
    monkeypatch.setitem(conv.demo.peers, "PyTorch", lambda *_: len)
    kept = demo_command._compared(conv, conv.demo, "cpu").problems
    alone = {title for title in conv.demo.problems if "depthwise" in title or "grad" in title}
    assert len(alone) == 3
    assert conv.demo.problems.keys() - kept.keys() == (alone if libraries == ("NumPy",) else set())


@pytest.mark.usefixtures("demo")
def test_the_demo_names_its_kernels_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    assert KERNEL in CliRunner().invoke(build_app(), ["demo", "gemm", "--all", "--target", "generic"]).stdout


@pytest.mark.usefixtures("demo")
def test_the_demo_explains_every_column_and_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    from tilewright.dispatch.selection import TIERS

    assert tuple(demo_command.TIER_MEANINGS) == TIERS
    done = CliRunner().invoke(build_app(), ["demo", "gemm", "--repeat", "1", "--target", "generic"])
    for column in ("time us", "GFLOP/s", "x ", "error", "tier"):
        assert re.search(rf"^{column}  +\w", done.stderr, re.MULTILINE), column


def test_doctor_shows_every_word(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path / "a place with a rather long name" / "that does not fit into a column"):
        done = CliRunner().invoke(build_app(), ["doctor"])
        assert all(len(line) <= 80 for line in done.stdout.splitlines())
        assert "that does not fit" in " ".join(done.stdout.split()) or "thatdoesnotfit" in joined(done.stdout)
    for word in ("compilers", "targets", "versions", "settings", "cpu path", "yes"):
        assert word in done.stdout


def test_rejections_show_counts_and_rules() -> None:
    text = shell("specs", "gemm", "--target", "x86_64_v3", "--pool", "tiny", "--output", "int8,fp32", "--why-not")
    assert re.search(r"^ +\d+ +dtype-output", text, re.MULTILINE)


def test_records_show_ids_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table_of_records = records.Records(tmp_path)
    monkeypatch.setitem(records._known, settings.current().cache_dir, table_of_records)
    shell("bench", "gemm", *SMALL[:8], "--target", "generic", "--threads", "1", "--save")
    text = shell("records", "ls")
    (only,) = json.loads(shell_json("records", "ls"))["records"]
    line = next(line for line in text.splitlines() if line.startswith(only["id"]))
    assert re.search(r"\d+\.\d +\d{4}-\d\d-\d\d +yes", line)


def shell_json(*words: str) -> Any:
    return CliRunner().invoke(build_app(), [*words, "--json"]).stdout
