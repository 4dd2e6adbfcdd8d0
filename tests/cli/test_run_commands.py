"""run, explain, bench and demo from the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tilewright as tw
from tilewright import ops, settings
from tilewright.cli.main import build_app


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


def data(*words: str) -> dict[str, Any]:
    done = shell(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


SIZES = ("--m", "33", "--n", "17", "--k", "20")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--datatype", "bf16", "--layout", "rcr", "--batch", "3", "--output", "fp32"),
        ("--datatype", "fp32", "--layout", "ccr", "--alpha", "0.5", "--beta", "2", "--threads", "1"),
        ("--epilogue", "relu", "--num-d", "1", "--layout", "rcr"),
        ("--preshuffle", "--layout", "rcr"),
        ("--batch", "2", "--broadcast-b", "--a-stride", "32"),
        ("--datatype", "int8", "--target", "cpu"),
    ],
    ids=" ".join,
)
def test_run_verifies(words: tuple[str, ...]) -> None:
    report = data("run", "gemm", *SIZES, *words, "--verify", "--repeat", "1")
    assert report["ok"] is True
    assert report["error_over_bound"] <= 1
    assert report["tier"] in ("measured", "heuristic", "padded", "fallback")
    assert report["seconds"] > 0


def test_run_prints_what_it_did() -> None:
    done = shell("run", "gemm", *SIZES, "--verify")
    assert done.exit_code == 0, done.output
    for word in ("problem", "kernel", "tier", "GFLOP/s", "right", "of its bound"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--datatype", "fp31"), "did you mean 'fp32'"),
        (("--epilogue", "relo"), "'Relu'"),
        (("--target", "gfx1"), "arch-name"),
        (("--m", "-1"), "size-negative"),
        (("--layout", "rrc"), "layout-name"),
        (("--num-d", "1"), "epilogue-d-count"),
        (("--output", "int8"), "dtype-output"),
    ],
)
def test_a_wrong_request_is_one_clear_error(words: tuple[str, ...], text: str) -> None:
    for command in ("run", "explain"):
        done = shell(command, "gemm", *SIZES, *words)
        assert done.exit_code == 1, done.output
        assert text in done.stderr
        assert "remedy" in done.stderr


def test_explain_is_text_or_json() -> None:
    done = shell("explain", "gemm", *SIZES, "--strict")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("chosen    ")
    assert "--strict" in done.stdout
    assert data("explain", "gemm", *SIZES)["problem"]["n"] == 17


def test_bench_measures_and_remembers_only_when_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.dispatch import records

    # Records of their own, kernels from the shared store.
    monkeypatch.setitem(records._known, settings.current().cache_dir, records.Records(tmp_path))
    small = ("--m", "8", "--n", "8", "--k", "8", "--rounds", "1", "--target", "generic", "--threads", "1")
    record = data("bench", "gemm", *small)
    assert record["timings"]
    assert not list(tmp_path.glob("measured-*.json"))
    assert data("bench", "gemm", *small, "--save")["problem"]["m"] == 8
    explained = data("explain", "gemm", *small[:6], *small[8:])
    assert explained["chosen"]["tier"] == "measured"
    done = shell("bench", "gemm", *small)
    assert done.exit_code == 0, done.output
    assert "GFLOP/s" in done.stdout


def test_bench_takes_the_kernels_of_a_pool() -> None:
    record = data("bench", "gemm", "--m", "8", "--n", "8", "--k", "8", "--rounds", "1", "--pool", "tiny")
    assert len(record["timings"]) >= 1
    done = shell("bench", "gemm", *SIZES, "--pool", "tinny")
    assert done.exit_code == 1
    assert "pool-name" in done.stderr


def test_the_demo_has_no_problem_that_only_a_fallback_serves() -> None:
    registry = tw.Registry()
    demos: dict[str, Any] = {name: getattr(op, "demo", None) for name, op in ops.all_ops().items()}
    assert all(demos[name] for name in ("gemm", "conv", "attention"))
    for name, demo in demos.items():
        if demo is None:
            continue
        tiers = {registry.select(ops.op(name).problem(values)).tier for values in demo.problems.values()}
        assert not {"fallback", "padded"} & tiers, name


@pytest.mark.proof  # `make demo` runs the same in CI
def test_the_demo_shows_every_op_on_kernels_a_user_would_get_beside_its_peers() -> None:
    report = data("demo", "--repeat", "1")
    rows = report["rows"]
    assert {"gemm", "conv", "attention"} <= {row["op"] for row in rows}
    assert all(row["ok"] for row in rows)
    assert not {"fallback", "padded"} & {row["tier"] for row in rows}
    assert all(row["peers"]["NumPy"] > 0 for row in rows if row["op"] in ("gemm", "attention"))
    assert any("NumPy" in row["peers"] for row in rows if row["op"] == "conv")


def test_the_demo_of_an_op_that_has_none_or_does_not_exist() -> None:
    done = shell("demo", "gem")
    assert done.exit_code == 1
    assert "'gemm'" in done.stderr


def test_run_takes_a_kernel_by_name_and_by_digest() -> None:
    candidates = data("explain", "gemm", *SIZES, "--target", "generic")["candidates"]
    other = next(one for one in candidates if one["verdict"] == "slower")
    for word in (other["name"], other["digest"], other["digest"][:8]):
        report = data("run", "gemm", *SIZES, "--target", "generic", "--kernel", word, "--verify", "--repeat", "1")
        assert report["kernel"] == other["name"]
        assert report["ok"] is True
    done = shell("run", "gemm", *SIZES, "--layout", "ccr", "--target", "generic", "--kernel", other["digest"])
    assert done.exit_code == 1
    assert "[kernel-signature]" in done.stderr or "[kernel-name]" in done.stderr


def test_run_and_bench_take_a_filter() -> None:
    words = (*SIZES, "--target", "generic", "--filter", "c.pipeline == 'direct'")
    assert "_direct_" in data("run", "gemm", *words, "--repeat", "1")["kernel"]
    record = data("bench", "gemm", *words, "--rounds", "1", "--threads", "1")
    assert record["timings"]
    assert all("_direct_" in one["name"] for one in record["timings"])
    done = shell("bench", "gemm", *words[:-1], "c.pipeline == 'none'")
    assert done.exit_code == 1
    assert "[no-specs]" in done.stderr
    assert "--why-not" in shell("run", "gemm", *words[:-1], "c.pipeline == 'none'").stderr
    assert shell("run", "gemm", *words[:-1], "c.pipe == 'none'").exit_code == 1


@pytest.mark.usefixtures("needs_compiler")
def test_bench_takes_a_kernel_and_a_list_of_problems(tmp_path: Path) -> None:
    file = tmp_path / "problems.json"
    file.write_text(json.dumps([{"m": 4, "n": 4, "k": 4}, {"m": -1, "n": 4, "k": 4}, {"m": 8, "n": 4, "k": 4}]))
    words = ("bench", "gemm", "--problems", str(file), "--rounds", "1", "--target", "generic", "--threads", "1",
             "--filter", "c.pipeline == 'direct'")  # fmt: skip
    done = shell(*words, "--json")
    assert done.exit_code == 0, "one of them cannot be measured, the others are"
    assert "not measured: gemm m=-1" in done.stderr
    assert [one["problem"]["m"] for one in json.loads(done.stdout)] == [4, 8]
    name = json.loads(done.stdout)[0]["choice"]
    one = data("bench", "gemm", *SIZES, "--rounds", "1", "--target", "generic", "--threads", "1", "--kernel", name)
    assert [each["digest"] for each in one["timings"]] == [name]
    both = shell(*words, "--m", "4")
    assert both.exit_code == 1
    assert "[problems-or-options]" in both.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--seed", "-1"), 1, "--seed"),
        (("--threads", "-1"), 1, "--threads"),
        (("--repeat", "0"), 1, "--repeat"),
        (("--a-stride", str(10**18)), 1, "stride-huge"),
        (("--a-stride", str(10**15)), 2, "memory"),
        (("--c-stride", "-7"), 1, "stride"),
        (("--m", "200000", "--n", "200000"), 2, "memory"),
        (("--batch", str(2**39)), 2, "memory"),
        (("--m", str(2**41)), 1, "size-huge"),
        (("--m", "1e3"), 1, "--m"),
    ],
)
def test_what_no_machine_can_do_is_not_our_bug(words: tuple[str, ...], code: int, text: str) -> None:
    done = shell("run", "gemm", *SIZES, *words)
    assert done.exit_code == code, done.output
    assert text in done.stderr
    assert "bug in Tilewright" not in done.stderr


def test_a_name_says_its_arch_whatever_the_target() -> None:
    """A kernel that `specs --target` printed is run where its arch runs, and else told as one that does not."""
    names = {}
    for arch in ("generic", "gfx942"):
        listed = shell("specs", "gemm", "--target", arch, "--datatype", "fp16", "--layout", "rcr", "--limit", "1")
        names[arch] = listed.stdout.split()[0]
    words = (*SIZES, "--datatype", "fp16", "--layout", "rcr", "--kernel")
    report = data("run", "gemm", *words, names["generic"], "--verify", "--repeat", "1")
    assert (report["kernel"], report["target"], report["ok"]) == (names["generic"], "generic", True)
    record = data("bench", "gemm", *words, names["generic"], "--rounds", "1")
    assert [one["name"] for one in record["timings"]] == [names["generic"]]
    for command in ("run", "bench"):
        done = shell(command, "gemm", *words, names["gfx942"])
        assert done.exit_code == 2, done.output
        assert "[arch-not-runnable]" in done.stderr


def test_the_remedy_for_a_backend_that_is_not_here_would_help_a_command_that_runs_kernels() -> None:
    from tilewright.backends.base import backend

    absent = [name for name in ("hip", "cuda") if not backend(name).available_archs()]
    for name in absent:
        done = shell("run", "gemm", *SIZES, "--target", name)
        assert done.exit_code == 2
        assert "to run here leave the target out" in done.stderr


@pytest.mark.parametrize("words", [("explain",), ("run", "--repeat", "1"), ("bench", "--rounds", "1")], ids=" ".join)
def test_lines_fit_a_terminal_of_80_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = shell(words[0], "gemm", *SIZES, *words[1:], "--target", "generic", "--threads", "1")
    assert done.exit_code == 0, done.output
    for line in done.output.splitlines():
        assert len(line) <= 80 or len(line.split()) == 1, line


def test_the_progress_of_a_benchmark_reaches_its_end() -> None:
    """Kernels that do not serve the problem are not built, and not waited for."""
    words = ("--m", "33", "--n", "17", "--k", "20", "--datatype", "fp16", "--layout", "rcr", "--rounds", "1")
    done = shell("bench", "gemm", *words, "--pool", "default")
    assert done.exit_code == 0, done.output
    counted = [line.split()[1::2] for line in done.stderr.splitlines() if line.startswith("build: ")]
    assert not counted or counted[-1][0] == counted[-1][1]
