from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tilewright import settings
from tilewright.errors import MachineError, RequestError, UnknownNameError
from tilewright.settings import Settings, from_environment


@pytest.fixture(autouse=True)
def fresh_process_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_process", None)


def test_an_empty_environment_gives_the_defaults() -> None:
    assert from_environment({}) == Settings()
    assert Settings().cache_dir.is_absolute()


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


def test_caches_lie_where_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert from_environment({}).cache_dir == tmp_path / "tilewright"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    if sys.platform == "linux":
        assert from_environment({}).cache_dir == Path("/home/someone/.cache/tilewright")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere platformdirs is asked")
@pytest.mark.parametrize("folder", [None, "", " ", "/var/caches", "/with space/x"])
def test_the_short_way_to_the_cache_folder_is_that_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, folder: str | None
) -> None:
    import platformdirs

    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if folder is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
    assert from_environment({}).cache_dir == platformdirs.user_cache_path("tilewright", appauthor=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG specification speaks of Linux")
def test_a_relative_place_for_caches_is_ignored_as_xdg_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/place")
    monkeypatch.setenv("HOME", "/home/someone")
    assert from_environment({}).cache_dir == Path("/home/someone/.cache/tilewright")


def test_a_user_without_a_home_is_told_so_and_gets_no_folder_called_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: Path("~/.cache/tilewright"))
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as it is where nobody knows of a home
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(MachineError) as caught:
        from_environment({})
    assert caught.value.rule == "cache-folder"
    assert "TILEWRIGHT_CACHE_DIR" in caught.value.remedy
    assert from_environment({"TILEWRIGHT_CACHE_DIR": "/kernels"}).cache_dir == Path("/kernels")


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(Settings)])
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_variable_means_the_default(name: str, text: str) -> None:
    assert from_environment({f"TILEWRIGHT_{name.upper()}": text}) == Settings()


@pytest.mark.parametrize("name", [one.name for one in dataclasses.fields(Settings) if one.type in ("str", "Path")])
def test_an_empty_text_in_code_means_the_default(name: str) -> None:
    with (
        settings.override(
            **{name: {"cuda_compiler": "nvcc", "thread_pool": "own", "missing": "background"}.get(name, "elsewhere")}
        ),
        settings.override(**{name: ""}),
    ):
        assert getattr(settings.current(), name) == getattr(Settings(), name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("THREADS", "many"),
        ("THREADS", "-1"),
        ("THREADS", "2.0"),
        ("THREADS", "1e9"),
        ("THREADS", "99999"),
        ("THREADS", "9" * 5000),
        ("JOBS", "-2"),
        ("STRICT", "perhaps"),
        ("FROZEN", "2"),
        ("CACHE_MAX_BYTES", "-5"),
        ("CACHE_MAX_BYTES", "4GB"),
        ("CUDA_COMPILER", "gcc"),
        ("CACHE_DIR", "~nobody-of-this-name/kernels"),
    ],
)
def test_a_wrong_value_is_an_error_with_a_remedy(name: str, value: str) -> None:
    with pytest.raises(RequestError) as caught:
        from_environment({f"TILEWRIGHT_{name}": value})
    assert caught.value.rule == "setting-value"
    assert f"TILEWRIGHT_{name}" in caught.value.message
    assert caught.value.remedy


WRONG: dict[str, list[object]] = {
    "bool": ["no", "", 0, 1, None, 2.0, []],
    "int": ["2", "", 2.0, True, None, -1, [3], 1j],
    "str": [3, True, None, b"c++", ["c++"], "a\0b"],
    "Path": [3, True, None, b"here", ["here"], "a\0b", "~nobody-of-this-name/kernels"],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(one.name, value) for one in dataclasses.fields(Settings) for value in WRONG[str(one.type)]],
)
def test_a_value_of_another_kind_is_one_clear_error(name: str, value: object) -> None:
    before = settings.current()

    def scoped(**changes: object) -> None:
        with settings.override(**changes):
            pass

    for change in (settings.configure, scoped):
        with pytest.raises(RequestError) as caught:
            change(**{name: value})
        assert caught.value.rule == "setting-value"
        assert name in caught.value.message
        assert caught.value.remedy
    assert settings.current() == before


def test_numbers_of_numpy_and_paths_are_taken() -> None:
    with settings.override(threads=np.int64(3), cxx=Path("some") / "c++", strict=True) as scoped:
        assert (scoped.threads, type(scoped.threads), scoped.cxx) == (3, int, "some/c++")


@pytest.mark.parametrize(
    ("text", "threads"),
    [
        ("4", 4),
        ("4,2", 4),
        (" 3 , 1", 3),
        ("", 0),
        ("many", 0),
        ("-2", 0),
        ("0", 0),
        ("2.5", 0),
        (",3", 0),
        ("9" * 99, 0),
    ],
)
def test_openmp_may_say_how_many_threads(monkeypatch: pytest.MonkeyPatch, text: str, threads: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert settings.openmp_threads() == threads


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
