"""The suite for a machine with an NVIDIA GPU: `python -m pytest tests/gpu -q`.  Elsewhere it skips itself, saying why.

Results are judged on the GPU, with PyTorch.  The kernels of all chosen tests are built together, in parallel,
before the first test runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tilewright.backends.cuda import driver, toolchain
from tilewright.errors import TilewrightError, ToolchainError

HERE = Path(__file__).parent


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


def _wanted(item: pytest.Item, arch: str) -> Iterator[Any]:
    """The specs a test will ask for: of its case, or selected for the problems its module names."""
    from tilewright.dispatch.registry import default_registry

    case = getattr(item, "callspec", None) and item.callspec.params.get("case")  # type: ignore[attr-defined]
    if case is not None:
        yield from case.specs(arch)
    for problem in getattr(item.module, "PROBLEMS", ()):  # type: ignore[attr-defined]
        yield default_registry(arch).select(problem).spec


@pytest.fixture(scope="session", autouse=True)
def built(request: pytest.FixtureRequest) -> None:
    """One parallel build for the session, and every kernel loaded."""
    from tilewright.dispatch import kernels

    if _missing():
        return
    arch = driver.available_archs()[0]
    mine = [one for one in request.session.items if HERE in one.path.parents]
    specs = {spec.digest: spec for item in mine for spec in _wanted(item, arch)}
    with suppress(TilewrightError):  # the test that needs a kernel which cannot be built says so
        kernels.kernels(list(specs.values()))
