"""A C++ text as a loaded library, through the same toolchain and store as kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.backends.base import Source
from tilewright.build import build_source


@pytest.fixture(scope="session")
def library_of() -> Callable[[str], Path]:
    def build(text: str) -> Path:
        return build_source(Source("sample.cpp", text, "c++"), "generic").path

    return build
