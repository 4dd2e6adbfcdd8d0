"""The suite for a machine with an NVIDIA GPU: `python -m pytest tests/gpu -q`.  Elsewhere it skips itself, saying why.

It needs PyTorch only for the tests of tensors, streams and graphs; the others copy NumPy arrays.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.backends.cuda import driver, toolchain
from tilewright.errors import ToolchainError

HERE = Path(__file__).parent


def _missing() -> str:
    why = driver.why_unavailable()
    if why:
        return why
    try:
        toolchain.find_toolchain()
    except ToolchainError as error:
        return error.message
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [one for one in items if HERE in one.path.parents]
    why = _missing() if mine else ""
    for one in mine if why else ():
        one.add_marker(pytest.mark.skip(reason=f"no NVIDIA GPU to run on: {why}"))


@pytest.fixture(scope="session")
def arch() -> str:
    return driver.available_archs()[0]
