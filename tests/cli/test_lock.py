"""Lock files: what is pinned is taken, and nothing else where the process is frozen."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import Registry, events, ops, settings, use_locks
from tilewright.cli.main import build_app
from tilewright.dispatch import locks
from tilewright.dispatch.judged import Judges
from tilewright.errors import NoKernelError, RequestError
from tilewright.ops.engine import engine

GEMM = ops.op("gemm")
GEMM_FAMILY = engine(GEMM).family
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


def serving(problem: Any = PROBLEM) -> list[Any]:
    return [one for one in GEMM.candidates(GEMM.signature_of(problem), TARGET) if not GEMM.supports(one, problem)]


def pinned_to_another(file: Path, *, alone: bool = True) -> Any:
    """The file pins a kernel that the estimate would not choose."""
    chosen = Registry(TARGET).select(PROBLEM).spec
    other = next(one for one in serving() if one != chosen)
    locks.write(file, [locks.pin(GEMM, TARGET, PROBLEM, other, alone=alone)])
    return other


def test_what_is_pinned_is_taken_and_a_frozen_process_takes_nothing_else(file: Path) -> None:
    other = pinned_to_another(file)
    registry = Registry(TARGET)
    with settings.override(lock=str(file)):
        chosen = registry.select(PROBLEM)
        assert (chosen.tier, chosen.spec) == ("locked", other)
        assert f"why       pinned by {file}" in str(registry.explain(PROBLEM))
        assert registry.select(OTHER).tier == "heuristic"
    assert registry.select(PROBLEM).tier == "heuristic", "without the setting the file says nothing"
    with settings.override(lock=str(file), frozen=True):
        assert registry.select(PROBLEM).spec == other
        with pytest.raises(NoKernelError) as caught:
            registry.select(OTHER)
        assert caught.value.rule == "lock-missing"
        with pytest.raises(NoKernelError) as caught:
            registry.select(PROBLEM, where=lambda spec: "arrays that do not fit")
        assert caught.value.rule == "lock-stale"
    with settings.override(lock=str(file)):
        assert registry.select(PROBLEM, where=lambda spec: "no" if spec == other else "").tier == "heuristic"


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
    would = json.loads(lock(file, *words, "--diff", "--json", status=1).stdout)
    assert file.read_text() == first
    assert json.loads(lock(file, *words, "--json").stdout) == would
    assert [one["what"] for one in would if not one["family"]] == ["new", "new"]
    pins = locks.read(file)
    assert {one.problem["m"] for one in pins.values()} == {64, 65, 66}
    assert "0 problems and 0 families" in lock(file, "--diff").stderr
    with settings.override(lock=str(file), frozen=True):
        assert Registry(TARGET).select(OTHER).tier == "locked"


def test_diff_says_what_would_be_another_kernel_now(file: Path) -> None:
    other = pinned_to_another(file)
    found = json.loads(lock(file, "--diff", "--json", status=1).stdout)
    now = Registry(TARGET).select(PROBLEM).name
    assert [(one["what"], one["before"], one["now"]) for one in found] == [("changed", other.name, now)]
    pinned_to_another(file, alone=False)
    found = json.loads(lock(file, "--diff", "--json", status=1).stdout)
    assert [(one["what"], one["family"], one["now"]) for one in found] == [
        ("changed", "small", now), ("changed", "", now),
    ]  # fmt: skip
    assert "all small problems of gemm" in found[0]["problem"]
    with settings.override(lock=str(file)):
        lock(file, *SIZES)  # the file in force does not pin itself
    assert locks.read(file)[next(iter(locks.read(file)))].kernel == now
    lock(file, "--diff")


NO_LOCKS = [
    "", "[]", '{"schema": 1, "pins": []}', '{"schema": 3, "pins": [], "kernels": {}}', '{"schema": 2, "pins": []}',
    '{"schema": 2, "pins": [7], "kernels": {}}', '{"schema": 2, "pins": [{"op": "x", "digest": "y"}], "kernels": {}}',
    '{"schema": 2, "pins": [{"op": "x", "digest": []}], "kernels": {}}',
]  # fmt: skip


@pytest.mark.parametrize("text", NO_LOCKS)
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
    (digest,) = data["kernels"]
    if change == "digest":
        data["pins"][0]["digest"], data["kernels"]["0" * 64] = "0" * 64, data["kernels"].pop(digest)
    else:
        data["kernels"][digest]["spec"] = {"of": "another version"}
    file.write_text(json.dumps(data))
    with settings.override(lock=str(file)), pytest.raises(NoKernelError) as caught:
        Registry(TARGET).select(PROBLEM)
    assert caught.value.rule == "lock-stale"


def test_a_lock_file_that_is_not_there_is_told(file: Path) -> None:
    with settings.override(lock=str(file)), pytest.raises(RequestError) as caught:
        Registry(TARGET).select(PROBLEM)
    assert caught.value.rule == "lock-file"
    assert "[lock-file]" in lock(file, "--diff", status=1).stderr


# -- families ------------------------------------------------------------------------------------------------------


class SameForAll:
    """A backend that estimates the same time for every kernel."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def estimate(self, *_arguments: Any) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def even(specs: list[Any], monkeypatch: pytest.MonkeyPatch) -> Registry:
    made = Registry(TARGET, specs)
    monkeypatch.setattr(
        "tilewright.dispatch.judged.judge", lambda *_: None
    )  # estimates are those of the backend's Python
    monkeypatch.setattr(made, "_judges", Judges(SameForAll(made._backend)))
    return made


FAR = GEMM.problem({"m": 1, "n": 512, "k": 512})  # of another family


def test_a_pin_speaks_for_its_family_and_a_frozen_process_takes_nothing_else(file: Path) -> None:
    other = pinned_to_another(file, alone=False)
    registry = Registry(TARGET)
    with settings.override(lock=str(file)):
        chosen = registry.select(OTHER)
        assert (chosen.tier, chosen.spec) == ("locked", other)
        assert "pins for small problems" in chosen.reason
        assert registry.select(FAR).tier == "heuristic"
        assert registry.select(OTHER, where=lambda spec: "no" if spec == other else "").tier == "heuristic"
    with settings.override(lock=str(file), frozen=True):
        assert registry.select(OTHER).spec == other
        for problem, where in ((FAR, None), (OTHER, lambda spec: "arrays that do not fit")):
            with pytest.raises(NoKernelError) as caught:
                registry.select(problem, where=where)
            assert caught.value.rule == "lock-missing"
            assert "frozen" in caught.value.message


def test_of_a_family_the_lowest_estimate_is_taken_and_of_equal_ones_the_first_digest(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = serving()
    assert len(specs) > 2
    problems = [GEMM.problem({"m": 70 + index, "n": 64, "k": 64}) for index in range(len(specs))]
    pins = [locks.pin(GEMM, TARGET, one, spec) for one, spec in zip(problems, specs, strict=True)]
    first = min(one.digest for one in specs)
    for order in (pins, pins[::-1]):
        locks.write(file, order)
        with settings.override(lock=str(file)):
            assert even([], monkeypatch).select(PROBLEM).spec.digest == first
            registry = Registry(TARGET)
            least = min(registry._estimate(one, PROBLEM, 1) for one in specs)
            chosen = registry.select(PROBLEM)
            assert chosen.seconds == pytest.approx(least, rel=1e-5)
            assert registry.select(problems[2]).spec == specs[2], "a problem of its own pin has that kernel"


def test_equal_estimates_are_decided_alike_whatever_was_registered_first(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = serving()
    chosen = [even(order, monkeypatch).select(PROBLEM).spec for order in (specs, specs[::-1], specs[1:] + specs[:1])]
    assert chosen == [min(specs, key=lambda one: one.digest)] * 3
    assert "the order decides" in even(specs, monkeypatch).explain(PROBLEM).full()


def test_exact_pins_speak_for_their_problems_alone(file: Path) -> None:
    assert "1 problem of 0 families" in lock(file, *SIZES, "--exact").stderr
    with settings.override(lock=str(file), frozen=True):
        registry = Registry(TARGET)
        assert registry.select(PROBLEM).tier == "locked"
        with pytest.raises(NoKernelError) as caught:
            registry.select(OTHER)
        assert caught.value.rule == "lock-missing"
    lock(file, "--diff")
    assert "1 problem of 1 family" in lock(file, *SIZES).stderr
    with settings.override(lock=str(file), frozen=True):
        assert Registry(TARGET).select(OTHER).tier == "locked"


def test_commands_follow_a_lock_file_and_frozen_ones_nothing_else(file: Path) -> None:
    other = pinned_to_another(file, alone=False)

    def command(name: str, *words: str, status: int = 0) -> Result:
        options = ("--n", "512", "--k", "512", "--target", TARGET, "--lock", str(file), "--frozen")
        done = CliRunner().invoke(build_app(), [name, "gemm", *options, *words])
        assert done.exit_code == status, done.output
        return done

    told = command("explain", "--m", "1").stdout
    assert "refused" in told
    assert "pins no kernel" in told
    assert "[lock-missing]" in command("run", "--m", "1", status=1).stderr
    small = CliRunner().invoke(build_app(), ["explain", "gemm", *SIZES, "--target", TARGET, "--lock", str(file)])
    assert f"chosen    {other.name}" in small.stdout


def test_two_lock_files_are_compared(file: Path) -> None:
    old = file.with_name("old.lock")
    other = pinned_to_another(old, alone=False)
    lock(file, *SIZES)
    found = json.loads(lock(file, "--diff", "--against", str(old), "--json", status=1).stdout)
    now = Registry(TARGET).select(PROBLEM).name
    assert [(one["before"], one["now"]) for one in found] == [(other.name, now)] * 2
    assert "0 problems and 0 families" in lock(file, "--diff", "--against", str(file)).stderr
    assert "[lock-against]" in lock(file, "--against", str(old), status=1).stderr


def test_a_kernel_edited_under_its_digest_is_a_change_that_frozen_refuses(file: Path) -> None:
    lock(file, *SIZES)
    edited = file.read_text().replace('"schedule": {', '"schedule": {"edited": 1, ')
    file.write_text(edited)
    assert "[lock-frozen]" in lock(file, *SIZES, "--frozen", status=1).stderr
    assert file.read_text() == edited


def test_a_choice_that_a_lock_made_is_explained_again_with_the_lock(file: Path) -> None:
    other = pinned_to_another(file)
    registry = Registry(TARGET)
    with settings.override(lock=str(file), frozen=True):
        words = shlex.split(registry.explain(PROBLEM).replay)
    assert words[words.index("--lock") + 1] == str(file)
    assert "--frozen" in words
    done = CliRunner().invoke(build_app(), [*words[1:], "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["chosen"]["kernel"] == other.name
    assert "--lock" not in registry.explain(PROBLEM).replay


def test_a_pin_with_other_fields_is_told_in_our_words(file: Path) -> None:
    pinned_to_another(file)
    data = json.loads(file.read_text())
    for changed in ({**data["pins"][0], "extra": 1}, {"op": "gemm", "digest": data["pins"][0]["digest"]}):
        file.write_text(json.dumps({**data, "pins": [changed]}))
        with pytest.raises(RequestError) as caught:
            locks.read(file)
        assert caught.value.rule == "lock-file"
        assert "has other fields than a pin" in caught.value.message


def test_explain_says_what_a_lock_leaves_out_and_calls_nothing_slower_that_is_not(file: Path) -> None:
    other = pinned_to_another(file)
    faster = Registry(TARGET).select(PROBLEM)
    with settings.override(lock=str(file)):
        told = Registry(TARGET).explain(PROBLEM)
    notes = {one.digest: one for one in told.candidates}
    assert notes[other.digest].verdict == "chosen"
    note = notes[faster.spec.digest]
    assert note.verdict == "unpinned"
    (reason,) = note.reasons
    assert reason.startswith("the lock file names another; estimated 0."), "it is the faster one"
    assert not any(one.verdict == "slower" for one in told.candidates)
    locks.write(
        file, [locks.pin(GEMM, TARGET, problem, spec) for problem, spec in ((PROBLEM, other), (OTHER, faster.spec))]
    )
    third = GEMM.problem({"m": 66, "n": 64, "k": 64})
    with settings.override(lock=str(file)):
        notes = {one.digest: one for one in Registry(TARGET).explain(third).candidates}
    assert notes[other.digest].verdict == "slower", "the file has both for the family"
    assert "the winner's time" in notes[other.digest].reasons[0]


def test_a_family_s_kernel_that_suits_a_problem_badly_is_warned_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = pinned_to_another(file, alone=False)
    larger = GEMM.problem({"m": 66, "n": 64, "k": 64})
    assert GEMM_FAMILY(larger) == GEMM_FAMILY(PROBLEM)
    for much in (1.0, 3.0):

        def slower(self: Any, spec: Any, problem: Any, threads: int, much: float = much) -> float:
            return 1e-6 * (much if spec == other else 1.0)

        registry = Registry(TARGET)
        with settings.override(lock=str(file)), monkeypatch.context() as patched, events.recorded() as heard:
            patched.setattr(Registry, "_estimate", slower)
            assert registry.select(PROBLEM).spec == registry.select(larger).spec == other
        # Of a pin of the problem's own nothing is said.
        warnings = [one.message for one in heard if isinstance(one, events.Warned) and one.rule == "lock-family"]
        assert len(warnings) == (much == 3.0)
        assert all(larger.describe() in one and "3.0 times as long" in one for one in warnings)


def test_a_lock_file_is_used_from_python(file: Path) -> None:
    chosen = Registry(TARGET).select_stage(PROBLEM)
    lock(file, *SIZES)
    before = settings.current().lock
    with pytest.raises(RequestError), settings.override(lock=""):
        use_locks(file.with_suffix(".missing"))
    configured = use_locks(file)
    try:
        assert settings._process is not None
        assert settings._process.lock == str(file)
        with settings.override(lock=settings._process.lock):
            locked = Registry(TARGET).select_stage(PROBLEM)
        assert (locked.tier, locked.spec) == ("locked", chosen.spec)
    finally:
        configured.close()
        configured.close()
    assert settings._process.lock == before
    with pytest.raises(RequestError, match="a lock file is 3"):
        use_locks(3)  # type: ignore[arg-type]
