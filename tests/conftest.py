"""Shared by all tests: a store of their own, golden files, hypothesis without a clock, skips that say why."""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from tests import amd_toolchain
from tests.built import NO_COMPILER, NO_COMPILER_RULE, Built, why_no_compiler
from tests.proofs import mark_proofs
from tests.report.browser import NO_BROWSER
from tilewright.ops.base import KernelSpec

GOLDEN = Path(__file__).parent / "golden"

# Deadlines would make the suite depend on the machine's mood, random seeds on the day.
hypothesis_settings.register_profile("tilewright", deadline=None, derandomize=True, max_examples=60)
hypothesis_settings.load_profile("tilewright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--fuzz-seconds", type=float, default=0, help="fuzz for so long, with a seed of the moment")
    parser.addoption("--fuzz-seed", type=int, default=None, help="a seed of the fuzzer to repeat")
    parser.addoption("--gpu-kernels", type=int, default=0, help="at most so many kernels of tests/gpu; 0: all of them")
    parser.addoption("--gpu-seed", type=int, default=0, help="by which those are drawn")


STORE = "tilewright-store"  # of the tests
NO_AMD = "needs the AMD compiler"
WHY_NO_COMPILER = pytest.StashKey[str]()
PARTIAL = pytest.StashKey[set[Path]]()  # modules of which only some tests run


def pytest_configure(config: pytest.Config) -> None:
    """In the environment, so that processes the tests start use the same places."""
    # Kernels built by the tests stay out of the user's store, yet are found again by the next run.  A folder of their
    # own in any case: a toolchain that was installed into the cache must change no verdict.
    given = Path(os.environ.get("TILEWRIGHT_CACHE_DIR") or config.rootpath / ".pytest_cache").expanduser().absolute()
    if given.name != STORE:  # a worker's is that of the process that started it
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(given / STORE)
    # Models know some devices: what a test says of selection must not depend on whether this is one of them.
    os.environ.setdefault("TILEWRIGHT_MODELS", "0")
    amd_toolchain.hide()
    config.stash[WHY_NO_COMPILER] = why_no_compiler()  # asked now: tests change the path


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Before -m and -k are looked at, tests of many cases become proofs; after it, AMD's without a toolchain say so."""
    mark_proofs(items)
    yield
    marked = [item for item in items if item.get_closest_marker("amd")]
    why = amd_toolchain.why_none() if marked else ""
    if why:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"{NO_AMD}: {why}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Ten thousand tests are no garbage: without this, each full collection of Python's looks at them for 0.2 s."""
    gc.collect()
    gc.freeze()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        item.config.stash.setdefault(PARTIAL, set()).add(item.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """On a machine without a C++ compiler, what fails for want of one is skipped, in this process or in one it started.

    A rule, not a mark on each test: most tests come to a compiler by way of a call, and would forget the mark.
    """
    report = yield
    why = item.config.stash[WHY_NO_COMPILER]
    if why and report.failed and NO_COMPILER_RULE in report.longreprtext:
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (line or 0) + 1, why)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What a whole machine lacks is said without being asked, once."""
    skipped = [str(one.longrepr[2]) for one in terminalreporter.stats.get("skipped", ()) if one.longrepr]
    for what in (NO_AMD, NO_COMPILER, NO_BROWSER):
        mine = [text.removeprefix("Skipped: ") for text in skipped if text.removeprefix("Skipped: ").startswith(what)]
        if mine:
            terminalreporter.write_line(f"{len(mine)} tests are skipped: {mine[0]}")


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
def wide_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever terminal the tests were started from; those about narrow ones name their own width."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(autouse=True)
def same_numbers_of_torch(request: pytest.FixtureRequest) -> None:
    """PyTorch's own generator begins anew in each test: nothing depends on the tests before, or on chance."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program that has made few: otherwise it would depend on the tests before which call C knows."""
    monkeypatch.setattr("tilewright.runtime.untracked.MANY", 1 << 30)


@pytest.fixture(autouse=True)
def nothing_is_left_to_later_tests() -> Iterator[None]:
    """What a process remembers of kernels from given libraries, of devices, of libraries it could not have: other tests
    have other ones."""
    kernels = sys.modules.get("tilewright.dispatch.kernels")
    adopted = dict(kernels._adopted) if kernels else {}
    api = sys.modules.get("tilewright.api")
    targets = dict(api._targets) if api else {}
    yield
    kernels = sys.modules.get("tilewright.dispatch.kernels")
    if kernels:
        kernels._adopted.clear()
        kernels._adopted.update(adopted)
        kernels.built._adopted.intersection_update(adopted)
    api = sys.modules.get("tilewright.api")
    if api:
        api._targets.clear()
        api._targets.update(targets)
    native = sys.modules.get("tilewright.native.library")
    if native and native.any_missing():  # every selection after it would look for them again
        native._failed.clear()
        native._wanted.clear()


@pytest.fixture
def needs_compiler(pytestconfig: pytest.Config) -> None:
    """For tests that would fail in other words than those of the error there is without one."""
    why = pytestconfig.stash[WHY_NO_COMPILER]
    if why:
        pytest.skip(why)


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Built:
    """Kernels by their spec; those the modules of this session name in KERNELS are compiled together."""
    partial = request.config.stash.get(PARTIAL, set())  # of these only what a test asks for
    functions = [item for item in request.session.items if isinstance(item, pytest.Function)]
    modules = dict.fromkeys(item.module for item in functions if item.path not in partial)
    announced = [getattr(module, "KERNELS", ()) for module in modules]
    # A module may have imported something else of that name.
    every = [spec for each in announced if isinstance(each, (tuple, list)) for spec in each]
    return Built(spec for spec in every if isinstance(spec, KernelSpec))


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
