from __future__ import annotations

import shutil

import pytest

from tests.emulated_hopper.emulator import Emulator
from tilewright import settings


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++, which compiles kernels over emulated instructions")
    return Emulator(settings.current().cache_dir / "of-tests", compiler)
