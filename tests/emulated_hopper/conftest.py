from __future__ import annotations

import shutil

import pytest

from tests.emulated_hopper.emulator import Emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Emulator:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++, which compiles kernels over emulated instructions")
    return Emulator(tmp_path_factory.mktemp("emulated_hopper"), compiler)
