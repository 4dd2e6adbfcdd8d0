"""What the emulated tests need, and why they are skipped where it is not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import amd_toolchain
from tests.amd_emulated.results import Results
from tests.amd_emulated.workers import Workers
from tilewright.backends.base import backend
from tilewright.errors import ToolchainError

CHECKOUT = "TINYGRAD_CHECKOUT"


def checkout() -> Path:
    """The tinygrad checkout of the environment variable; a wrong one is an error, none is a skip."""
    given = os.environ.get(CHECKOUT, "")
    if not given:
        pytest.skip(f"AMD kernels are not executed: set {CHECKOUT} to a tinygrad checkout (see docs/amd.md)")
    folder = Path(given).expanduser().resolve()
    if not (folder / "test" / "mockgpu" / "amd" / "emu.py").is_file():
        pytest.fail(f"{CHECKOUT}={given} is no tinygrad checkout with an AMD emulator")
    return folder


@pytest.fixture(autouse=True)
def toolchain() -> Iterator[None]:
    with amd_toolchain.in_force():
        yield


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    folder = checkout()
    if shutil.which("clang") is None:
        pytest.skip("AMD kernels are not executed: the emulator needs clang on the path")
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
