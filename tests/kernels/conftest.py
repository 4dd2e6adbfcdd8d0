"""Small C++ texts built against the kernel headers, through the same toolchain and store as kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from tilewright.backends.base import Source
from tilewright.build import build_source

Probe = Callable[[str, str, str], ctypes.CDLL]


@pytest.fixture(scope="session")
def probe() -> Probe:
    def build(name: str, text: str, arch: str) -> ctypes.CDLL:
        return ctypes.CDLL(str(build_source(Source(f"{name}.cpp", text, "c++"), arch).path))

    return build
