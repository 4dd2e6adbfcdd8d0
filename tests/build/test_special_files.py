"""What is no plain file in a folder of ours is never opened: a pipe would be waited for, a device read without end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from tests.build.stubs import Stub, tiny_specs
from tilewright import settings
from tilewright.build import Store, build_one, inspected
from tilewright.dispatch import model_files
from tilewright.dispatch.results import Results, Unreadable
from tilewright.errors import LoadError, RequestError, StoreError
from tilewright.runtime.loader import load_library

PATIENCE = 30.0  # seconds, of a look that takes none


def _folder(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the names of sockets are short
    try:
        listening.bind(path.name)
    finally:
        os.chdir(here)
        listening.close()


KINDS: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "folder": _folder,
    "socket": _socket,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to itself": lambda path: path.symlink_to(path.name),
}


def at_once(call: Callable[[], Any]) -> BaseException | None:
    """What a call raises, which must end soon."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it waits"
    return raised[0] if raised else None


def put(kind: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    KINDS[kind](path)


@pytest.fixture
def entry(store: Store, use_stub: Callable[..., Stub]) -> Path:
    """The folder of a built kernel."""
    use_stub()
    return build_one(tiny_specs(1)[0]).path.parent


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["kernel.so", "manifest.json"])
def test_in_an_entry_of_the_store(store: Store, entry: Path, name: str, kind: str) -> None:
    put(kind, entry / name)
    for look in (store.lookup, store.verify):
        error = at_once(lambda look=look: look(entry.name))  # type: ignore[misc]
        assert isinstance(error, StoreError), error
        assert error.rule == "store-corrupt"
    assert at_once(lambda: list(store.manifests())) is None
    assert at_once(lambda: inspected._spec_beside(entry / "kernel.so")) is None
    assert at_once(lambda: build_one(tiny_specs(1)[0])) is None, "it is built again"
    assert store.lookup(entry.name) is not None


FORMAT_IS = {
    "pipe": "a pipe",
    "folder": "a folder",
    "socket": "a socket",
    "link to a device": "a device",
    "link to itself": "a symbolic link that leads back to itself",
}


@pytest.mark.parametrize(("kind", "named"), FORMAT_IS.items())
def test_for_the_format_of_the_store(store: Store, entry: Path, kind: str, named: str) -> None:
    """The error says what is there; its remedy, to remove it, is enough."""
    path = store.root / "format.json"
    put(kind, path)
    error = at_once(lambda: Store(store.root.parent).lookup(entry.name))
    assert isinstance(error, StoreError), error
    assert error.rule == "store-format-file"
    assert f"{path} in the kernel store is {named}," in str(error)
    assert "remedy: remove it" in str(error)
    path.rmdir() if kind == "folder" else path.unlink()
    again = Store(store.root.parent)
    assert again.lookup(entry.name) is not None
    again.prepare()
    assert path.is_file()


def test_a_link_to_nothing_for_the_format_of_the_store_is_replaced(store: Store, entry: Path) -> None:
    put("link to nothing", store.root / "format.json")
    again = Store(store.root.parent)
    assert again.lookup(entry.name) is not None
    again.prepare()
    assert not (store.root / "format.json").is_symlink()


@pytest.mark.parametrize("kind", KINDS)
def test_as_a_library_or_a_file_to_inspect(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "kernel.so"
    put(kind, path)
    assert isinstance(at_once(lambda: load_library(path)), LoadError)
    assert isinstance(at_once(lambda: inspected._owner_of(path, None)), RequestError)


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "link to a device"])
@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_in_the_folder_of_records(tmp_path: Path, ending: str, kind: str) -> None:
    path = tmp_path / "results.sqlite"
    store = Results(path)
    assert store.count() == 0
    store.close()
    path.touch()
    put(kind, path.with_name(path.name + ending))
    error = at_once(lambda: Results(path).has_choices())
    assert isinstance(error, Unreadable), error


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_folder_of_models(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    path = folder / f"mine{model_files.ENDING}"
    put(kind, path)
    with settings.override(cache_dir=tmp_path):
        assert at_once(model_files.at_hand) is None
        assert all(str(path) in told for told in model_files.damaged())
        assert kind == "link to nothing" or model_files.damaged()
