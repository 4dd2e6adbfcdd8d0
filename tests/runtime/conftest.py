"""C++ texts as loaded libraries, through the same toolchain and store as kernels; a HIP runtime that is faked."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.built import library_with_cxx
from tests.runtime.fakes import HERE, FakeHip
from tilewright import settings
from tilewright.backends.base import Source
from tilewright.backends.cuda import driver as cuda_driver
from tilewright.backends.hip import driver
from tilewright.build import build_source


@pytest.fixture(scope="session")
def library_of() -> Callable[[str], Path]:
    def build(text: str) -> Path:
        return build_source(Source("sample.cpp", text, "c++"), "generic").path

    return build


@pytest.fixture(scope="session")
def collect() -> Callable[[], object]:
    """Arrays that earlier tests left in tracebacks are given back now, not in the middle of a test that counts."""
    gc.collect()
    gc.freeze()  # what lives now is looked at once: PyTorch alone makes a full collection take 0.2 s
    return gc.collect


@pytest.fixture
def fake_hip(library_of: Callable[[str], Path], collect: Callable[[], object]) -> Iterator[FakeHip]:
    """The HIP runtime of this test is the fake one; at the end nothing of it may be left."""
    path = library_of((HERE / "fake_hip.cpp").read_text(encoding="utf-8"))
    fake = FakeHip(path, library_of)
    collect()
    fake.reset()
    driver.forget()
    with settings.override(hip_library=str(path)):
        yield fake
    driver.forget()


@pytest.fixture
def fake_cuda(collect: Callable[[], object]) -> Iterator[ctypes.CDLL]:
    """The CUDA driver of this test is the fake one."""
    path = library_with_cxx(HERE / "fake_cuda.cpp")
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.fake_cuda_capacity.argtypes = (ctypes.c_size_t,)
    library.fake_cuda_function.restype = ctypes.c_char_p
    library.fake_cuda_capture.argtypes = (ctypes.c_void_p, ctypes.c_int)
    collect()
    library.fake_cuda_reset()
    cuda_driver.forget()
    with settings.override(cuda_library=str(path)):
        yield library
    cuda_driver.forget()
