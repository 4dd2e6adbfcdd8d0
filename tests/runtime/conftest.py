"""C++ texts as loaded libraries, through the same toolchain and store as kernels; a HIP runtime that is faked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.runtime.fakes import HERE, FakeHip
from tilewright import settings
from tilewright.backends.base import Source
from tilewright.backends.hip import driver
from tilewright.build import build_source


@pytest.fixture(scope="session")
def library_of() -> Callable[[str], Path]:
    def build(text: str) -> Path:
        return build_source(Source("sample.cpp", text, "c++"), "generic").path

    return build


@pytest.fixture
def fake_hip(library_of: Callable[[str], Path]) -> Iterator[FakeHip]:
    """The HIP runtime of this test is the fake one; at the end nothing of it may be left."""
    path = library_of((HERE / "fake_hip.cpp").read_text(encoding="utf-8"))
    fake = FakeHip(path, library_of)
    gc.collect()  # arrays an earlier test left in a traceback would free addresses that are in use again here
    fake.reset()
    driver.forget()
    with settings.override(hip_library=str(path)):
        yield fake
    driver.forget()
