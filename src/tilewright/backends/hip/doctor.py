"""What `tilewright doctor` says of HIP compilers and the CK Tile headers."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.backends.findings import Finding, oneline
from tilewright.backends.hip import toolchain
from tilewright.errors import ToolchainError


def findings() -> Iterator[Finding]:
    """Every HIP compiler and the CK Tile headers, with the place they were found in."""
    try:
        found = toolchain.candidates()
    except ToolchainError as error:
        yield Finding("compilers", "hipcc", False, oneline(error))
        return
    if not found:
        yield Finding("compilers", "hipcc", None, f"none found; {toolchain.REMEDY}")
    used = False
    for one in found:
        try:
            tools = toolchain.identify(one)
        except ToolchainError as error:
            yield Finding("compilers", " ".join(one.driver), False, oneline(error))
            continue
        text = f"{tools.identity.version}; {one.where}" + ("" if used else "; used")
        yield Finding("compilers", " ".join(one.driver), True, text)
        if not used:
            yield _ck_tile_headers(tools)
        used = True


def _ck_tile_headers(tools: toolchain.HipToolchain) -> Finding:
    try:
        headers = tools.ck_tile()
    except ToolchainError as error:
        return Finding("compilers", "CK Tile headers", False, oneline(error))
    return Finding("compilers", "CK Tile headers", True, f"{headers.folder}; profile {headers.profile}")
