"""Programs that are asked something: what they write, how they end, and those that never do."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tilewright.backends import asking

SPAWNS = pytest.mark.parametrize("spawns", [True, False], ids=["spawned", "subprocess"])


@pytest.fixture
def _starts(spawns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not spawns:
        monkeypatch.delattr(os, "posix_spawnp", raising=False)


def python(text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text]


@SPAWNS
@pytest.mark.usefixtures("_starts")
def test_answers_come_in_the_order_of_the_questions() -> None:
    first = python("import sys, time; time.sleep(0.2); print('late'); sys.exit(3)")
    then = python("import sys; sys.stderr.write('odd'); print(sys.stdin.read() or 'nothing to read')")
    late, odd = asking.outputs([first, then], 60.0)
    assert late == asking.Answer(3, "late\n", "")
    assert odd == asking.Answer(0, "nothing to read\n", "odd")


@SPAWNS
@pytest.mark.usefixtures("_starts")
def test_much_text_in_both_outputs() -> None:
    text = "import sys; [(print('o' * 999), sys.stderr.write('e' * 999 + chr(10))) for _ in range(500)]"
    (answer,) = asking.outputs([python(text)], 60.0)
    assert isinstance(answer, asking.Answer)
    assert (len(answer.output), len(answer.complaint)) == (500_000, 500_000)


@SPAWNS
@pytest.mark.usefixtures("_starts")
def test_a_program_that_is_not_there_and_one_that_does_not_end() -> None:
    start = time.monotonic()
    silent = python("import time; time.sleep(60)")
    closed = python("import os, time; os.close(1); os.close(2); time.sleep(60)")
    missing, never, no_more = asking.outputs([["/no/such/compiler"], silent, closed], 1.0)
    assert isinstance(missing, FileNotFoundError)
    assert isinstance(never, TimeoutError)
    assert isinstance(no_more, TimeoutError)
    assert time.monotonic() - start < 30
