"""What the emulated tests need, and why they are skipped where it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import amd_toolchain
from tests.amd_emulated import needs
from tests.amd_emulated.results import Results
from tests.amd_emulated.workers import Workers
from tilewright.backends.base import backend
from tilewright.errors import ToolchainError


def checkout() -> Path:
    """The tinygrad checkout of the environment variable; a wrong one is an error, none is a skip."""
    if needs.missing():
        pytest.skip(f"AMD kernels are not executed: {needs.missing()}")
    if needs.wrong():
        pytest.fail(needs.wrong())
    return needs.checkout()


@pytest.fixture(autouse=True)
def toolchain() -> Iterator[None]:
    with amd_toolchain.in_force():
        yield


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    folder = checkout()
    try:
        with amd_toolchain.in_force():
            backend("hip").toolchain()
    except ToolchainError as error:
        pytest.skip(f"AMD kernels are not executed: {error}")
    found = Workers(folder)
    yield found
    found.close()


@pytest.fixture(scope="session")
def results(pytestconfig: pytest.Config) -> Results:
    return Results(pytestconfig.rootpath / "build" / "amd_emulated.json", checkout())
