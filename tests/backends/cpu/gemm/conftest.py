"""Small C++ texts built against the kernel headers, through the same toolchain and store as kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from tests.built import why_not_compiled, why_not_run
from tilewright.backends.base import Source
from tilewright.build import build_source

Probe = Callable[[str, str, str], ctypes.CDLL]


@pytest.fixture(scope="session")
def probe() -> Probe:
    """The library of a text for an ISA level; it is compiled for any, and skips the test of one this CPU lacks."""

    def build(name: str, text: str, arch: str) -> ctypes.CDLL:
        why = why_not_compiled(arch)
        if why:
            pytest.skip(why)
        library = build_source(Source(f"{name}.cpp", text, "c++"), arch).path
        why = why_not_run(arch)
        if why:
            pytest.skip(why)
        return ctypes.CDLL(str(library))

    return build
