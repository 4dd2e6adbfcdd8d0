"""What `tilewright doctor` says of the host's compilers."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright import settings
from tilewright.backends.cpu import toolchain
from tilewright.backends.findings import Finding, oneline
from tilewright.errors import ToolchainError


def findings() -> Iterator[Finding]:
    """Every C++ compiler; the first that works is used."""
    cxx = settings.current().cxx
    try:
        drivers = toolchain.candidates(cxx)
    except ToolchainError as error:
        yield Finding("compilers", cxx, False, oneline(error))
        return
    used = False
    for driver in drivers:
        try:
            compiler = toolchain.identify(driver)
        except ToolchainError as error:
            yield Finding("compilers", " ".join(driver), False, oneline(error))
            continue
        yield Finding("compilers", " ".join(driver), True, compiler.identity.version + ("" if used else "; used"))
        used = True
    if not drivers:
        yield Finding("compilers", "c++", False, f"none found; {toolchain.REMEDY}")
