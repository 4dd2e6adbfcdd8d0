"""`tilewright build`: the store is filled ahead; what fails is told, and the rest is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.build.stubs import COPY, Stub, write_stub
from tilewright import ops, settings
from tilewright.arch import best_host_arch
from tilewright.build import Store
from tilewright.cli._problems import read_problems
from tilewright.cli.main import build_app
from tilewright.dispatch import locks
from tilewright.errors import RequestError
from tilewright.ops.base import plain

GEMM = ops.op("gemm")


def shell(*words: str) -> Result:
    return CliRunner().invoke(build_app(), ["build", "gemm", *words])


def data(*words: str) -> dict[str, Any]:
    done = shell(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    """A store of its own and a compiler that copies; nothing can be loaded, so nothing is said to run here."""
    made = write_stub(tmp_path / "bin")
    with settings.override(cache_dir=tmp_path / "cache", cxx=str(made.path)):
        yield made


def file_of(tmp_path: Path, problems: Any) -> str:
    path = tmp_path / "problems.json"
    path.write_text(problems if isinstance(problems, str) else json.dumps(problems), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def no_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.runtime.support.build_support", lambda: None)


def test_a_pool_is_built_once(stub: Stub) -> None:
    words = ("--pool", "tiny", "--target", "generic", "--datatype", "fp32,bf16", "--jobs", "2")
    first = data(*words)
    assert first["target"] == "generic"
    assert [one["stored"] for one in first["built"]] == [False] * len(first["built"])
    assert len(stub.compiled()) == len(first["built"]) >= 2
    assert len(list(Store().all_keys())) == len(first["built"])
    assert all(one["stored"] for one in data(*words)["built"])
    done = shell(*words)
    assert f"generic: 0 built, {len(first['built'])} were in the store, 0 failed" in done.stdout
    assert "build: " in done.stderr


def test_a_preselected_set_may_be_narrowed(stub: Stub) -> None:
    every = data("--preselected", "llm_bf16", "--target", "generic")
    some = data("--preselected", "llm_bf16", "--target", "generic", "--variant", "preshuffle")
    assert 0 < len(some["built"]) < len(every["built"])
    assert all("preshuffle" in one["name"] for one in some["built"])


def test_problems_are_given_by_options_or_by_fields(stub: Stub, tmp_path: Path) -> None:
    same = GEMM.problem({"m": 64, "n": 64, "k": 64})
    file = file_of(
        tmp_path,
        [{"m": 64, "n": 64, "k": 64}, plain(same), {"m": 3, "n": 5, "k": 7, "datatype": "bf16", "layout": "rcr"}],
    )
    found = data("--problems", file, "--target", "generic", "--threads", "1")
    assert len(found["problems"]) == 3
    assert found["problems"][0] == found["problems"][1]
    chosen = {one["kernels"][0]["digest"] for one in found["problems"]}
    assert {one["digest"] for one in found["built"]} == chosen
    assert len(stub.compiled()) == len(chosen)
    assert len(data("--problems", file_of(tmp_path, {"problems": [{"m": 1, "n": 1, "k": 1}]}))["problems"]) == 1


def test_a_kernel_that_fails_is_told_and_the_others_are_built(stub: Stub, tmp_path: Path) -> None:
    body = f'case "$src" in *bf16*) echo "k.cpp:1:1: error: not this one" >&2; exit 1;; esac\n{COPY}'
    broken = write_stub(tmp_path / "bin", body, name="broken")
    words = ("--pool", "tiny", "--target", "generic", "--datatype", "fp32,bf16,fp16")
    with settings.override(cxx=str(broken.path)):
        done = shell(*words, "--json")
        assert done.exit_code == 2
        report = json.loads(done.stdout)
        assert len(report["failed"]) >= 1
        assert all("bf16" in one["name"] and "not this one" in one["message"] for one in report["failed"])
        assert len(report["built"]) >= 2
        assert "[compile-failed]" in done.stderr
        told = shell(*words)
    assert told.exit_code == 2
    assert "failed: gemm_bf16" in told.stderr
    assert f"{len(report['built'])} were in the store, {len(report['failed'])} failed" in told.stdout


def test_a_problem_nobody_serves_does_not_stop_the_others(stub: Stub, tmp_path: Path) -> None:
    file = file_of(tmp_path, [{"m": -4, "n": 4, "k": 4}, {"m": 4, "n": 4, "k": 4}])
    done = shell("--problems", file, "--target", "generic")
    assert done.exit_code == 1
    assert "cannot be served: gemm m=-4" in done.stderr
    told = next(line for line in done.stderr.splitlines() if line.startswith("cannot be served"))
    assert told.count("gemm m=-4") == 1  # the error names the problem too
    assert "1 built" in done.stdout


def test_without_a_word_the_default_pool_is_built(stub: Stub) -> None:
    words = ("--limit", "2", "--target", "generic", "--json")
    found, named = (shell(*more, *words) for more in ((), ("--pool", "default")))
    assert found.exit_code == 0, found.output
    names = [{one["name"] for one in json.loads(each.stdout)["built"]} for each in (found, named)]
    assert names[0] == names[1]
    assert len(names[0]) == 2


def test_the_help_is_not_indented_by_the_code_it_is_written_in() -> None:
    told = shell("--help").stdout
    assert "  Failures are reported" in told
    assert "   Failures are reported" not in told


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--pool", "tiny", "--preselected", "fp32_essential"), "build-what"),
        (("--pool", "tinny"), "pool-name"),
        (("--pool", "tiny", "--target", "gfx943"), "arch-name"),
        (("--problems", "/nowhere/at all"), "problems-file"),
        (("--preselected", "llm_bf16", "--datatype", "fp16"), "preselected-axes"),
    ],
)
def test_a_request_that_cannot_be_meant_is_one_error(stub: Stub, words: tuple[str, ...], rule: str) -> None:
    done = shell(*words)
    assert done.exit_code == 1
    assert f"error: [{rule}]" in done.stderr
    assert "remedy:" in done.stderr
    assert not stub.compiled()


@pytest.mark.parametrize("name", ["gemm", "conv", "attention"])
def test_the_list_that_a_remedy_shows_is_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        read_problems(ops.op(name), tmp_path / "nothing.json", best_host_arch())
    (tmp_path / "shown.json").write_text(caught.value.remedy.removeprefix("give a list such as "))
    assert len(read_problems(ops.op(name), tmp_path / "shown.json", best_host_arch())) == 1


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "holds no problems"),
        ('{"m": 1}', "no list of problems"),
        ("[7]", "problem 1: 7 is no object"),
        ('[{"m": 1, "n": 1, "k": 1}, {"m": 1}]', "problem 2: a gemm problem needs --n, --k"),
        ('[{"m": "1", "n": 1, "k": 1}]', "m is '1', not a whole number"),
        ('[{"m": true, "n": 1, "k": 1}]', "m is True, not a whole number"),
        ('[{"m": 1.0, "n": 1, "k": 1}]', "m is 1.0, not a whole number"),
        ('[{"m": 1, "n": 1, "k": 1, "preshuffle": 1}]', "preshuffle is 1, not true or false"),
        ('[{"m": 1, "n": 1, "k": 1, "datatyp": "fp16"}]', "did you mean 'datatype'"),
        ('[{"m": 1, "n": 1, "k": 1, "datatype": "fp23"}]', "'fp32'"),
    ],
)
def test_a_file_of_problems_is_read_with_care(stub: Stub, tmp_path: Path, problems: str, text: str) -> None:
    done = shell("--problems", file_of(tmp_path, problems), "--target", "generic")
    assert done.exit_code == 1, done.output
    assert text in done.stderr
    assert "remedy:" in done.stderr


def test_axes_and_filters_mean_nothing_to_problems(stub: Stub, tmp_path: Path) -> None:
    file = file_of(tmp_path, [{"m": 1, "n": 1, "k": 1}])
    for words in (("--datatype", "fp16"), ("--filter", "c.arch == 'x'"), ("--limit", "1")):
        done = shell("--problems", file, *words)
        assert done.exit_code == 1
        assert "[build-what]" in done.stderr


def test_problems_are_taken_as_bench_takes_them(stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "problems.csv"
    file.write_text("m,n,k\n3,4,5\n6,7,8\n", encoding="utf-8")
    words = ("--target", "generic", "--threads", "1")
    assert [one["problem"].split()[1] for one in data("--problems", str(file), *words)["problems"]] == ["m=3", "m=6"]
    assert len(data("--problems", "random:7:3", *words)["problems"]) == 3
    assert data("--problems", "validation", *words)["problems"]
    done = shell("--problems", "validatio", *words)
    assert (done.exit_code, "[problem-set]" in done.stderr, "'validation'" in done.stderr) == (1, True, True)


def test_the_kernels_of_a_lock_file(stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "my.lock"
    lock = ["lock", "gemm", "--m", "3", "--n", "4", "--k", "5", "--file", str(file), "--target", "generic"]
    assert CliRunner().invoke(build_app(), lock).exit_code == 0
    pinned = {one.digest for one in locks.read(file).values()}
    found = data("--lock", str(file), "--target", "generic")
    assert {one["digest"] for one in found["built"]} == pinned
    done = shell("--lock", str(file), "--target", "x86_64_v3")
    assert "it pins kernels for generic" in " ".join(done.stderr.split())
    done = shell("--lock", str(file), "--pool", "tiny")
    assert "[build-what]" in done.stderr
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(next(iter(pinned)), "0" * 64), encoding="utf-8")
    done = shell("--lock", str(file), "--target", "generic")
    assert done.exit_code == 1
    assert "[lock-stale]" in done.stderr, "a kernel that this version has not"


@pytest.mark.usefixtures("needs_compiler")
def test_what_is_built_ahead_serves_a_frozen_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Really compiled, in processes of their own: the second may not compile anything, and has no compiler."""
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "store"), "TILEWRIGHT_THREADS": "2"}
    words = ["--m", "5", "--n", "6", "--k", "7", "--target", "generic"]
    frozen = {**environment, "TILEWRIGHT_FROZEN": "1"}

    def tilewright(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tilewright.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env)

    before = tilewright("run", "gemm", *words, env=frozen)
    assert before.returncode == 1
    assert "[frozen]" in before.stderr
    file = file_of(tmp_path, [{"m": 5, "n": 6, "k": 7}])
    built = tilewright("build", "gemm", "--problems", file, "--target", "generic", env=environment)
    assert built.returncode == 0, built.stderr
    after = tilewright("run", "gemm", *words, "--verify", env=frozen)
    assert after.returncode == 0, after.stderr
    assert "right" in after.stdout
