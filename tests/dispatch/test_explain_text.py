"""The printed form of an explanation: the answer first, on one screen, and every candidate on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright import settings
from tilewright.cli.main import build_app
from tilewright.dispatch.explain_text import MOST_LINES
from tilewright.dispatch.records import Record, Timing, records
from tilewright.dispatch.registry import Registry
from tilewright.dispatch.selection import Candidate, Explanation, Selection
from tilewright.ops.base import KernelSpec, plain

CONV = tw.ConvProblem(1, 64, 64, (56, 56), (3, 3), before=(1, 1), after=(1, 1), dtype="bf16")
DECODE = tw.AttentionProblem(1, 32, 1, 4096, 128, dtype_q="bf16", dtype_kv="bf16")
GEMM = tw.GemmProblem(m=16, n=4096, k=4096, layout="rcr")


@pytest.mark.parametrize("target", ["x86_64_v3", "sm_90a", "gfx942"])
@pytest.mark.parametrize("problem", [CONV, DECODE, GEMM], ids=lambda problem: problem.op)
def test_the_answer_comes_first_and_on_one_screen(problem: object, target: str) -> None:
    explanation = Registry(target).explain(problem)
    lines = str(explanation).splitlines()
    assert len(lines) <= MOST_LINES
    assert lines[0].startswith("chosen    ")
    assert lines[1].startswith("tier      ")
    assert explanation.replay in str(explanation)
    stages = explanation.stages or (explanation,)
    for stage in stages:
        assert stage.selection is not None
        assert stage.selection.name in str(explanation)
        assert all(candidate.name in explanation.full() for candidate in stage.candidates)


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_the_shell_prints_one_screen_at_any_width_and_everything_on_request(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    words = ["explain", "conv", "--batch", "1", "--channels", "64", "--filters", "64", "--size", "56x56"]
    words += ["--window", "3", "--padding", "1", "--datatype", "bf16", "--target", "sm_90a"]
    short = CliRunner().invoke(build_app(), words)
    assert short.exit_code == 0, short.output
    assert len(short.stdout.splitlines()) <= MOST_LINES
    whole = CliRunner().invoke(build_app(), [*words, "--all"]).stdout
    candidates = json.loads(CliRunner().invoke(build_app(), [*words, "--json"]).stdout)["candidates"]
    assert len(candidates) > 100
    assert all(candidate["name"] in whole for candidate in candidates)


def test_what_was_dropped_is_counted_by_rule() -> None:
    explanation = Registry("sm_90a").explain(CONV)
    refused = [candidate for candidate in explanation.candidates if candidate.verdict == "refused"]
    rules = {candidate.rules[0] for candidate in refused}
    assert f"dropped   {len(refused)} kernels by {len(rules)} rules" in str(explanation)
    served = sum(candidate.verdict == "slower" for candidate in explanation.candidates)
    assert f"behind    {served} kernels that would serve it too" in str(explanation)


def test_a_long_list_leaves_room_for_the_answer() -> None:
    """Whatever the candidates say, the answer and the command are printed."""
    spec = Registry("generic").select(GEMM).spec
    chosen = Candidate(spec.name, spec.digest, "chosen", (), 1e-6, None, False)
    others = tuple(
        Candidate(f"kernel{i}", str(i), "refused", (f"[rule-{i}] " + "long words " * 30,), None, None, False, None,
                  (f"rule-{i}",))
        for i in range(50)
    )  # fmt: skip
    selection = Selection(spec, "heuristic", "by hand", 1e-6)
    unused = tuple(f"record {i}" for i in range(40))
    text = str(Explanation(GEMM, "generic", 1, False, "by hand", (chosen, *others), selection, "rule", (), unused))
    assert len(text.splitlines()) <= MOST_LINES
    assert "and 38 more records" in text
    assert "dropped   50 kernels by 50 rules" in text
    assert text.splitlines()[-2].startswith("replay    ")


def test_ratios_stand_in_one_column() -> None:
    spec = Registry("generic").select(GEMM).spec
    chosen = Candidate(spec.name, spec.digest, "chosen", (), 1e-6, None, False)
    others = tuple(
        Candidate(f"kernel{i}", str(i), "slower", (), 1e-6 * ratio, None, False)
        for i, ratio in enumerate((1.5, 99.0, 4568.61))
    )
    selection = Selection(spec, "heuristic", "by hand", 1e-6)
    text = str(Explanation(GEMM, "generic", 1, False, "by hand", (chosen, *others), selection, "rule"))
    behind = [line for line in text.splitlines() if "kernel0" in line or "kernel1" in line or "kernel2" in line]
    assert [line.split()[0] for line in behind] == ["1.50x", "99.00x", "4569x"]
    assert len({line.index("kernel") for line in behind}) == 1


def test_kernels_are_ranked_by_the_kind_of_time_that_chose_the_winner() -> None:
    """A kernel that the model does not know was chosen by its estimate, and so is the nearest runner-up."""
    spec = Registry("generic").select(GEMM).spec
    chosen = Candidate(spec.name, spec.digest, "chosen", (), 1e-6, None, False)
    estimates = (9e-6, 8e-6, 7e-6, 6e-6)
    predicted = tuple(
        Candidate(f"old{i}", str(i), "slower", (), estimate, None, False, 2e-6) for i, estimate in enumerate(estimates)
    )
    runner_up = Candidate("new", "new", "slower", (), 1.01e-6, None, False)
    selection = Selection(spec, "heuristic", "by hand", 1e-6)
    text = str(Explanation(GEMM, "generic", 1, False, "by hand", (chosen, *predicted, runner_up), selection, "rule"))
    behind = [line.split() for line in text.splitlines() if line.startswith(" ")]
    assert behind == [["1.01x", "new"], ["6.00x", "old3"], ["7.00x", "old2"]]


@pytest.mark.parametrize(("target", "told"), [("generic", True), ("sm_90a", False), ("gfx942", False)])
def test_the_command_to_repeat_names_threads_where_they_count(target: str, told: bool) -> None:
    assert ("--threads" in Registry(target).explain(GEMM).replay) is told


def timing(spec: KernelSpec, seconds: float) -> Timing:
    return Timing(spec.digest, spec.name, plain(spec), seconds, 0.05, 0.1)


def test_a_choice_within_the_noise_is_not_called_the_fastest(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path, measure=True):
        registry = Registry("generic")
        problem = tw.GemmProblem(m=64, n=64, k=64)
        kept, faster, slower = registry.candidates(problem)[:3]
        timings = (timing(kept, 1.00e-6), timing(faster, 0.96e-6), timing(slower, 2e-6))
        records().put(Record("gemm", plain(problem), 1, "generic", kept.digest, timings, {}, {}))
        explanation = registry.explain(problem, threads=1)
        assert explanation.selection is not None
        assert explanation.selection.name == kept.name
        assert "fastest of" not in str(explanation)
        assert "of 3 measured on this machine" in explanation.selection.reason
        assert "within the noise" in explanation.selection.reason
        verdicts = {candidate.digest: candidate for candidate in explanation.candidates}
        assert verdicts[faster.digest].verdict == "tied"
        assert verdicts[slower.digest].verdict == "slower"
        assert f"0.96x  {faster.name}  (within the noise)" in str(explanation)

        records().put(Record("gemm", plain(problem), 1, "generic", faster.digest, timings, {}, {}))
        assert registry.select(problem, threads=1).reason == "fastest of 3 measured on this machine"
