"""Lock files: what is pinned is taken, and nothing else where the process is frozen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import Registry, ops, settings
from tilewright.cli.main import build_app
from tilewright.dispatch import locks
from tilewright.errors import NoKernelError, RequestError

GEMM = ops.op("gemm")
TARGET = "generic"
PROBLEM = GEMM.problem({"m": 64, "n": 64, "k": 64})
OTHER = GEMM.problem({"m": 65, "n": 64, "k": 64})


@pytest.fixture(autouse=True)
def file(tmp_path: Path) -> Iterator[Path]:
    with settings.override(cache_dir=tmp_path / "cache", threads=1):
        yield tmp_path / "tilewright.lock"


def lock(file: Path, *words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(build_app(), ["lock", "gemm", "--file", str(file), "--target", TARGET, *words])
    assert done.exit_code == status, done.output
    return done


SIZES = ("--m", "64", "--n", "64", "--k", "64")


def pinned_to_another(file: Path) -> Any:
    """The file pins a kernel that the estimate would not choose."""
    chosen = Registry(TARGET).select(PROBLEM).spec
    specs = [one for one in GEMM.candidates(GEMM.signature_of(PROBLEM), TARGET) if not GEMM.supports(one, PROBLEM)]
    other = next(one for one in specs if one != chosen)
    locks.write(file, [locks.pin(GEMM, TARGET, PROBLEM, other)])
    return other


def test_what_is_pinned_is_taken_and_a_frozen_process_takes_nothing_else(file: Path) -> None:
    other = pinned_to_another(file)
    registry = Registry(TARGET)
    with settings.override(lock=str(file)):
        chosen = registry.select(PROBLEM)
        assert (chosen.tier, chosen.spec) == ("locked", other)
        assert f"locked: pinned by {file}" in str(registry.explain(PROBLEM))
        assert registry.select(OTHER).tier == "rule"
    assert registry.select(PROBLEM).tier == "rule", "without the setting the file says nothing"
    with settings.override(lock=str(file), frozen=True):
        assert registry.select(PROBLEM).spec == other
        with pytest.raises(NoKernelError) as caught:
            registry.select(OTHER)
        assert caught.value.rule == "lock-missing"
        with pytest.raises(NoKernelError) as caught:
            registry.select(PROBLEM, where=lambda spec: "arrays that do not fit")
        assert caught.value.rule == "lock-stale"
    with settings.override(lock=str(file)):
        assert registry.select(PROBLEM, where=lambda spec: "no" if spec == other else "").tier == "rule"


def test_the_command_pins_what_is_chosen_now_and_keeps_the_rest(file: Path) -> None:
    lock(file, *SIZES)
    first = file.read_text()
    lock(file, *SIZES, "--frozen")
    assert file.read_text() == first
    problems = file.with_name("p.json")
    problems.write_text('[{"m": 65}, {"m": 66}]')
    words = ("--problems", str(problems), "--n", "64", "--k", "64")
    done = lock(file, *words, "--frozen", status=1)
    assert "[lock-frozen]" in done.stderr
    assert file.read_text() == first, "refused, and nothing was written"
    assert [one["what"] for one in json.loads(lock(file, *words, "--json").stdout)] == ["new", "new"]
    pins = locks.read(file)
    assert {one.problem["m"] for one in pins.values()} == {64, 65, 66}
    assert "0 of 3 pins" in lock(file, "--diff").stderr
    with settings.override(lock=str(file), frozen=True):
        assert Registry(TARGET).select(OTHER).tier == "locked"


def test_diff_says_what_would_be_another_kernel_now(file: Path) -> None:
    other = pinned_to_another(file)
    found = json.loads(lock(file, "--diff", "--json", status=1).stdout)
    now = Registry(TARGET).select(PROBLEM).name
    assert [(one["what"], one["before"], one["now"]) for one in found] == [("changed", other.name, now)]
    with settings.override(lock=str(file)):
        lock(file, *SIZES)  # the file in force does not pin itself
    assert locks.read(file)[next(iter(locks.read(file)))].kernel == now
    lock(file, "--diff")


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2, "pins": []}', '{"schema": 1, "pins": [{"op": "x"}, 7]}'])
def test_a_file_that_is_no_lock_is_one_clear_error_and_stays(file: Path, text: str) -> None:
    file.write_text(text)
    assert "[lock-file]" in lock(file, *SIZES, status=1).stderr
    assert file.read_text() == text
    with settings.override(lock=str(file)), pytest.raises(RequestError) as caught:
        Registry(TARGET).select(PROBLEM)
    assert caught.value.rule == "lock-file"


@pytest.mark.parametrize("change", ["digest", "spec"])
def test_a_pin_that_cannot_be_kept_is_an_error_and_never_another_kernel(file: Path, change: str) -> None:
    pinned_to_another(file)
    data = json.loads(file.read_text())
    data["pins"][0][change] = "0" * 64 if change == "digest" else {"of": "another version"}
    file.write_text(json.dumps(data))
    with settings.override(lock=str(file)), pytest.raises(NoKernelError) as caught:
        Registry(TARGET).select(PROBLEM)
    assert caught.value.rule == "lock-stale"


def test_a_lock_file_that_is_not_there_is_told(file: Path) -> None:
    with settings.override(lock=str(file)), pytest.raises(RequestError) as caught:
        Registry(TARGET).select(PROBLEM)
    assert caught.value.rule == "lock-file"
    assert "[lock-file]" in lock(file, "--diff", status=1).stderr
