from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.errors import RequestError, UnknownNameError
from tilewright.settings import Settings, from_environment


@pytest.fixture(autouse=True)
def fresh_process_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_process", None)


def test_an_empty_environment_gives_the_defaults() -> None:
    assert from_environment({}) == dataclasses.replace(Settings(), cache_dir=Settings().cache_dir.expanduser())


def test_each_kind_of_option_is_read_from_the_environment() -> None:
    read = from_environment(
        {
            "TILEWRIGHT_THREADS": "3",
            "TILEWRIGHT_STRICT": "yes",
            "TILEWRIGHT_MEASURE": "0",
            "TILEWRIGHT_CXX": "clang++",
            "TILEWRIGHT_CACHE_DIR": "some/place",
            "HOME": "ignored",
        }
    )
    assert (read.threads, read.strict, read.measure, read.cxx) == (3, True, False, "clang++")
    assert read.cache_dir == Path("some/place")


def test_the_home_folder_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert from_environment({"TILEWRIGHT_CACHE_DIR": "~/kernels"}).cache_dir == Path("/home/someone/kernels")


@pytest.mark.parametrize(
    ("name", "value"),
    [("THREADS", "many"), ("THREADS", "-1"), ("JOBS", "-2"), ("STRICT", "perhaps"), ("CACHE_MAX_BYTES", "-5")],
)
def test_a_wrong_value_is_an_error_with_a_remedy(name: str, value: str) -> None:
    with pytest.raises(RequestError) as caught:
        from_environment({f"TILEWRIGHT_{name}": value})
    assert caught.value.rule == "setting-value"
    assert caught.value.remedy


def test_a_mistyped_variable_is_an_error_not_a_silence() -> None:
    with pytest.raises(UnknownNameError, match="TILEWRIGHT_THREDS") as caught:
        from_environment({"TILEWRIGHT_THREDS": "1"})
    assert "did you mean 'threads'" in caught.value.remedy


def test_code_wins_over_the_environment_and_a_scope_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_THREADS", "2")
    monkeypatch.setenv("TILEWRIGHT_JOBS", "7")
    assert settings.current().threads == 2
    settings.configure(threads=3)
    assert settings.current().threads == 3
    with settings.override(threads=4):
        with settings.override(strict=True):
            assert (settings.current().threads, settings.current().strict) == (4, True)
        assert not settings.current().strict
    assert (settings.current().threads, settings.current().jobs) == (3, 7)


def test_an_override_ends_even_when_the_body_fails() -> None:
    before = settings.current()
    with pytest.raises(ZeroDivisionError), settings.override(threads=4):
        raise ZeroDivisionError
    assert settings.current() == before


def test_an_override_stays_in_its_thread() -> None:
    seen: list[int] = []
    settings.configure(threads=1)
    with settings.override(threads=9):
        other = threading.Thread(target=lambda: seen.append(settings.current().threads))
        other.start()
        other.join()
    assert seen == [1]


@pytest.mark.parametrize("change", [settings.configure, lambda **changes: settings.override(**changes).__enter__()])
def test_an_unknown_option_in_code_is_an_error(change: object) -> None:
    assert callable(change)
    with pytest.raises(UnknownNameError, match="thread"):
        change(thread=1)


def test_a_path_may_be_given_as_text() -> None:
    with settings.override(cache_dir="here") as scoped:
        assert scoped.cache_dir == Path("here")
