from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.toolchains.fake_archive import FakeArchive, recipe, standard_archive, write_apt, write_index
from tilewright import settings
from tilewright.toolchains import fetch, python_index
from tilewright.toolchains import install as installing
from tilewright.toolchains.installed import Installed


@dataclass
class World:
    """A fake archive, a fake index, an apt configuration and a cache, with everything to install from them."""

    root: Path
    archive: FakeArchive
    apt: Path
    prefix: Path
    cache: Path
    notes: list[str]
    steps: list[str]

    def step(self, title: str) -> None:
        self.steps.append(title)

    def advance(self, done: int, total: int) -> None:
        assert 0 <= done <= total

    def note(self, text: str) -> None:
        self.notes.append(text)

    def use_url(self, url: str) -> None:
        file = self.apt / "sources.list.d" / "debian.sources"
        file.write_text(file.read_text().replace(self.archive.url, url))

    def install(self, **options: Any) -> tuple[Installed, bool]:
        self.archive.write()
        given = {"progress": self, "apt_dir": self.apt, "recipe": recipe(), **options}
        return installing.install_rocm(self.prefix, **given)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    archive = standard_archive(tmp_path / "mirror")
    index = write_index(tmp_path / "index", "2.8.2", "2.8.3", "2.8.3.post2")
    apt = write_apt(tmp_path / "apt", archive.url)
    monkeypatch.setattr(python_index, "pip_config", lambda: python_index.PipConfig((index,)))
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0.0)
    with settings.override(cache_dir=tmp_path / "cache"):
        yield World(tmp_path, archive, apt, tmp_path / "tools" / "rocm", tmp_path / "cache", [], [])


@pytest.fixture
def index_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Point the installation at another Python index."""

    def use(url: str) -> None:
        monkeypatch.setattr(python_index, "pip_config", lambda: python_index.PipConfig((url,)))

    return use
