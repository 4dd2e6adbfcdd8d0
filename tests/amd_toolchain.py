"""The ROCm toolchain the AMD tests were given, kept where no other test meets it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tilewright import settings
from tilewright.errors import ToolchainError

GIVEN = "TILEWRIGHT_ROCM_PATH"
KEPT = "AMD_TESTS_ROCM_PATH"  # in the environment, so that workers of pytest-xdist have it too
_OTHERS = ("TILEWRIGHT_HIPCC", "TILEWRIGHT_CK_TILE", "TILEWRIGHT_CK_TILE_PROFILE")


def hide() -> None:
    """From now on only those who ask `in_force` find it."""
    given = os.environ.pop(GIVEN, "")
    if given:
        os.environ[KEPT] = str(Path(given).expanduser().absolute())
    for name in _OTHERS:
        os.environ.pop(name, None)


def place() -> str:
    return os.environ.get(KEPT, "")


@contextmanager
def in_force() -> Iterator[None]:
    """The toolchain that was given, and nothing else, for this process; what it starts needs GIVEN set."""
    with settings.override(rocm_path=place()):
        yield


def why_none() -> str:
    """Empty where there is a HIP compiler with the CK Tile headers."""
    from tilewright.backends.hip.toolchain import find_toolchain

    if not place():
        return f"{GIVEN} names no toolchain; `make test-amd` installs one and runs them"
    try:
        with in_force():
            find_toolchain().ck_tile()
    except ToolchainError as error:
        return f"{error.message}; {error.remedy}"
    return ""
