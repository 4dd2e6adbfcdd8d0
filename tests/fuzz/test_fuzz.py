"""Calls over the whole surface: each is answered with the right numbers or refused with one clear error.

The calls are made in a process of its own, which may die of what it finds.  The same calls on every run; for others,
and more of them: `pytest tests/fuzz --fuzz-seconds 600` (`--fuzz-seed` repeats one).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = 1600  # of the proof: about a minute
FEW = 30


def session(tmp_path: Path, *words: str) -> tuple[int, str, Counter[str]]:
    """How a session ended, what it said, and what it counted."""
    last = tmp_path / "last.txt"
    command = [sys.executable, "-m", "tests.fuzz.session", "--last", str(last), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return 0, "", Counter(json.loads(done.stdout.splitlines()[-1]))
    making = last.read_text() if last.exists() else "nothing yet"
    told = f"{' '.join(words)}\nended with {done.returncode} while it made\n{making}\n{done.stderr[-6000:]}"
    again = "python -m tests.fuzz.session --replay 'Example(...)' makes such calls again"
    return done.returncode, f"{told}\n{again}", Counter()


def statistics(counts: Counter[str]) -> str:
    calls = max(1, counts["calls"])
    parts = [f"{counts[name] / calls:.0%} {name}" for name in ("checked", "refused", "not built", "unchecked")]
    short = 1 - counts["slow paths"] / calls
    return f"{counts['calls']} calls: {', '.join(parts)}; {short:.0%} the fast path; {counts['questions']} questions"


@pytest.mark.parametrize("examples", [FEW, pytest.param(EXAMPLES, marks=pytest.mark.proof)])
def test_calls_are_right_or_refused(pytestconfig: pytest.Config, tmp_path: Path, examples: int) -> None:
    seconds, seed = pytestconfig.getoption("--fuzz-seconds"), pytestconfig.getoption("--fuzz-seed")
    if seconds:
        seed = random.SystemRandom().randrange(10**6) if seed is None else seed
        words = ["--seed", str(seed), "--seconds", str(seconds)]
    else:
        words = ["--seed", str(seed or 0), "--examples", str(examples), "--frozen"] + ["--few"] * (examples == FEW)
    code, told, counts = session(tmp_path, *words)
    assert code == 0, told
    print(" ".join(words), statistics(counts), sep="\n")
    assert counts["checked"] > 0.3 * counts["calls"], "most calls are wrong: numbers are hardly looked at"
    assert counts["refused"] > 0.1 * counts["calls"], "hardly a call is wrong: errors are not looked at"
    assert counts["slow paths"] < 0.85 * counts["calls"], "the fast path is hardly taken"


def test_so_they_are_without_the_fast_path(tmp_path: Path) -> None:
    code, told, counts = session(
        tmp_path, "--seed", "1", "--examples", str(FEW), "--frozen", "--few", "--without-fast-path"
    )
    assert code == 0, told
    assert counts["slow paths"] >= counts["checked"] > 0


@pytest.mark.parametrize("way", ["os.abort()", "time.sleep(99)"])
def test_a_crash_is_told_with_its_example(tmp_path: Path, way: str) -> None:
    module = way.partition(".")[0]
    code, told, _ = session(
        tmp_path, "--replay", f"__import__({module!r}){way[len(module) :]}", "--patience", "2", "--few"
    )
    assert code != 0
    assert f"__import__({module!r})" in told
    assert "most recent call first" in told  # where it was
