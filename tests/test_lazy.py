"""Modules that are imported when something of them is first used."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tilewright import lazy


def test_a_thread_waits_for_a_module_that_another_one_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = tmp_path / "lazy_events.py"
    events.write_text("import threading\nstarted, go_on = threading.Event(), threading.Event()\n", encoding="utf-8")
    slow = "from lazy_events import go_on, started\nstarted.set()\nassert go_on.wait(20)\nanswer = 42\n"
    (tmp_path / "lazy_slow.py").write_text(slow, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lazy_events", "lazy_slow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    stands_for, found = lazy.module("lazy_slow"), []
    first = threading.Thread(target=lambda: found.append(stands_for.answer))
    first.start()
    import lazy_events  # type: ignore[import-not-found]

    assert lazy_events.started.wait(20)
    assert lazy.whole("lazy_slow") is None  # in the middle of it
    second = threading.Thread(target=lambda: found.append(stands_for.answer))
    named_meanwhile = lazy.module("lazy_slow")
    second.start()
    lazy_events.go_on.set()
    first.join(20)
    second.join(20)
    assert found == [42, 42]
    assert named_meanwhile.answer == 42
    assert lazy.module("lazy_slow") is sys.modules["lazy_slow"]
    for name in ("lazy_events", "lazy_slow"):
        sys.modules.pop(name)
