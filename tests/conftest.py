"""Shared by all tests: a store of their own, golden files, hypothesis without a clock."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings

from tilewright.errors import ToolchainError
from tilewright.settings import Settings

GOLDEN = Path(__file__).parent / "golden"

# Deadlines would make the suite depend on the machine's mood, random seeds on the day.
hypothesis_settings.register_profile("tilewright", deadline=None, derandomize=True, max_examples=60)
hypothesis_settings.load_profile("tilewright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    # Kernels built by the tests stay out of the user's store, yet are found again by the next run.
    # In the environment, so that processes the tests start use the same place.
    if "TILEWRIGHT_CACHE_DIR" not in os.environ:
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(config.rootpath / ".pytest_cache" / "tilewright-store")
        # A toolchain the user installed lies in the store the tests do not use.
        toolchain = Settings().cache_dir.expanduser() / "toolchains" / "rocm"
        if "TILEWRIGHT_ROCM_PATH" not in os.environ and (toolchain / "manifest.json").exists():
            os.environ["TILEWRIGHT_ROCM_PATH"] = str(toolchain)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `amd` need a HIP compiler and the CK Tile headers; without them they say so."""
    del config
    marked = [item for item in items if item.get_closest_marker("amd")]
    if not marked:
        return
    from tilewright.backends.hip.toolchain import find_toolchain

    try:
        find_toolchain().ck_tile()
    except ToolchainError as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"{error.message}; {error.remedy}"))


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
