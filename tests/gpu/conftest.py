"""The suite for a machine with an NVIDIA GPU: `make test-gpu`.  Elsewhere it skips itself, saying why.

Results are judged on the GPU, with PyTorch.  The kernels of all chosen tests are built together, in parallel,
before the first test runs: all of them, or as many as `--gpu-kernels` says, drawn by `--gpu-seed`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.sampling import Sample, draw
from tilewright.backends.cuda import driver, toolchain
from tilewright.errors import TilewrightError, ToolchainError
from tilewright.ops.base import KernelSpec

HERE = Path(__file__).parent
SAMPLED = pytest.StashKey[str]()


def _missing() -> str:
    why = driver.why_unavailable()
    if why:
        return why
    try:
        toolchain.find_toolchain()
    except ToolchainError as error:
        return error.message
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed, and the results are judged with it"
    import torch

    return "" if torch.cuda.is_available() else "PyTorch sees no CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [one for one in items if HERE in one.path.parents]
    why = _missing() if mine else ""
    for one in mine if why else ():
        one.add_marker(pytest.mark.skip(reason=f"no NVIDIA GPU to run on: {why}"))


@pytest.fixture(scope="session")
def arch() -> str:
    return driver.available_archs()[0]


def _case(item: Any) -> Any:
    """What a test is a case of, which knows the kernels to ask; none of tests that choose theirs."""
    called = getattr(item, "callspec", None)
    return None if called is None else called.params.get("case")


def _selected(item: Any, arch: str) -> Iterator[Any]:
    """The specs that selection chooses for the problems a test's module names."""
    from tilewright.dispatch.registry import default_registry

    for problem in getattr(item.module, "PROBLEMS", ()):
        yield default_registry(arch).select(problem).spec


@pytest.fixture(scope="session")
def sample(request: pytest.FixtureRequest) -> Sample:
    """The kernels of this run's cases."""
    arch = driver.available_archs()[0]
    cases = {one.nodeid: _case(one) for one in request.session.items if HERE in one.path.parents}
    wanted = {name: case.specs(arch) for name, case in cases.items() if case is not None}
    drawn = draw(wanted, request.config.getoption("--gpu-kernels"), request.config.getoption("--gpu-seed"))
    request.config.stash[SAMPLED] = str(drawn)
    return drawn


@pytest.fixture
def specs(request: pytest.FixtureRequest, sample: Sample) -> Sequence[KernelSpec]:
    """The kernels that a test of a case asks."""
    return sample.kernels[request.node.nodeid]


@pytest.fixture(scope="session", autouse=True)
def built(request: pytest.FixtureRequest) -> None:
    """One parallel build for the session, and every kernel loaded."""
    from tilewright.dispatch import kernels

    if _missing():
        return
    sampled: Sample = request.getfixturevalue("sample")
    arch = driver.available_archs()[0]
    mine = [one for one in request.session.items if HERE in one.path.parents]
    selected = [spec for item in mine for spec in _selected(item, arch)]
    with suppress(TilewrightError):  # the test that needs a kernel which cannot be built says so
        kernels.kernels(list({one.digest: one for one in (*sampled.specs, *selected)}.values()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if SAMPLED in config.stash:
        terminalreporter.write_line(config.stash[SAMPLED])
