"""Shared by all tests: a store of their own, golden files, hypothesis without a clock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from tests import amd_toolchain
from tests.built import Built

GOLDEN = Path(__file__).parent / "golden"

# Deadlines would make the suite depend on the machine's mood, random seeds on the day.
hypothesis_settings.register_profile("tilewright", deadline=None, derandomize=True, max_examples=60)
hypothesis_settings.load_profile("tilewright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


STORE = "tilewright-store"  # of the tests
WHY_NO_AMD = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """In the environment, so that processes the tests start use the same places."""
    # Kernels built by the tests stay out of the user's store, yet are found again by the next run.  A folder of their
    # own in any case: a toolchain that was installed into the cache must change no verdict.
    given = Path(os.environ.get("TILEWRIGHT_CACHE_DIR") or config.rootpath / ".pytest_cache").expanduser().absolute()
    if given.name != STORE:  # a worker's is that of the process that started it
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(given / STORE)
    amd_toolchain.hide()


# Last: tests that -m or -k left out are gone by then.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `amd` need the toolchain TILEWRIGHT_ROCM_PATH named; without one they say so."""
    marked = [item for item in items if item.get_closest_marker("amd")]
    why = amd_toolchain.why_none() if marked else ""
    if why:
        config.stash[WHY_NO_AMD] = f"{len(marked)} tests of the AMD compiler are skipped: {why}"
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=why))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if WHY_NO_AMD in config.stash:
        terminalreporter.write_line(config.stash[WHY_NO_AMD])


@pytest.fixture(autouse=True)
def toolchain_of_amd_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests marked `amd` see the toolchain they were given; no other test does."""
    if request.node.get_closest_marker("amd") is None:
        yield
        return
    monkeypatch.setenv(amd_toolchain.GIVEN, amd_toolchain.place())
    with amd_toolchain.in_force():
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_to_later_tests() -> Iterator[None]:
    """What a process remembers of kernels from given libraries and of devices: other tests have other ones."""
    kernels = sys.modules.get("tilewright.dispatch.kernels")
    adopted = dict(kernels._adopted) if kernels else {}
    api = sys.modules.get("tilewright.api")
    targets = dict(api._targets) if api else {}
    yield
    kernels = sys.modules.get("tilewright.dispatch.kernels")
    if kernels:
        kernels._adopted.clear()
        kernels._adopted.update(adopted)
    api = sys.modules.get("tilewright.api")
    if api:
        api._targets.clear()
        api._targets.update(targets)
        api._arch_of.cache_clear()


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Built:
    """Kernels by their spec; those the modules of this session name in KERNELS are compiled together."""
    modules = dict.fromkeys(item.module for item in request.session.items if isinstance(item, pytest.Function))
    return Built(spec for module in modules for spec in getattr(module, "KERNELS", ()))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name, or write it under --update-golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"no golden file {name}; write it with: pytest --update-golden, and read it"
        assert text == path.read_text(encoding="utf-8"), f"{name} differs; if meant so: pytest --update-golden"

    return compare
