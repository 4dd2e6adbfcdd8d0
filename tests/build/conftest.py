"""Fixtures of the build tests: a store of its own for each test, and stub compilers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.build.stubs import COPY, Stub, write_stub
from tilewright import settings
from tilewright.build import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store that is also the one of the settings in force."""
    with settings.override(cache_dir=tmp_path / "cache"):
        yield Store()


@pytest.fixture
def use_stub(tmp_path: Path, store: Store) -> Iterator[Callable[..., Stub]]:
    """Makes a stub compiler the one in force: use_stub(body, version=...)."""
    scopes = []

    def use(body: str = COPY, *, version: str = "1.0", name: str = "stub-c++") -> Stub:
        stub = write_stub(tmp_path / "bin", body, version=version, name=name)
        scope = settings.override(cxx=str(stub.path))
        scope.__enter__()
        scopes.append(scope)
        return stub

    yield use
    for scope in reversed(scopes):
        scope.__exit__(None, None, None)
