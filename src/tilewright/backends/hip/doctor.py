"""What `tilewright doctor` says of HIP compilers and the CK Tile headers."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.backends.findings import Finding, oneline
from tilewright.backends.hip import ck_tile, toolchain
from tilewright.errors import ToolchainError
from tilewright.toolchains import installed, staging


def findings() -> Iterator[Finding]:
    """Every HIP compiler and the CK Tile headers, with the place they were found in."""
    freed = staging.sweep()
    if freed:
        text = f"removed {freed >> 20} MiB that a toolchain's installation left when it was killed"
        yield Finding("compilers", str(installed.folder()), None, text)
    try:
        candidates = toolchain.candidates()
    except ToolchainError as error:
        yield Finding("compilers", "hipcc", False, oneline(error))
        return
    if not candidates:
        yield Finding("compilers", "hipcc", None, f"none found; {toolchain.REMEDY}")
    used = False
    for candidate in candidates:
        try:
            tools = toolchain.identify(candidate)
        except ToolchainError as error:
            yield Finding("compilers", " ".join(candidate.driver), False, oneline(error))
            continue
        text = f"{tools.identity.version}; {candidate.where}" + ("" if used else "; used")
        yield Finding("compilers", " ".join(candidate.driver), True, text)
        if not used:
            yield from _ck_tile_headers(tools)
        used = True


def _ck_tile_headers(tools: toolchain.HipToolchain) -> Iterator[Finding]:
    """Which profile the headers fit and what kernels they lack; where they fit none, what each profile misses."""
    headers = tools.headers
    if headers is None or not headers.profile:
        try:
            tools.ck_tile()
        except ToolchainError as error:
            yield Finding("compilers", "CK Tile headers", False, oneline(error))
        for fit in headers.fits if headers is not None else ():
            yield Finding("compilers", f"CK Tile of {fit.profile}", False, "; ".join(fit.missing))
        return
    yield Finding("compilers", "CK Tile headers", True, f"{headers.folder}; profile {headers.profile}")
    for op in ck_tile.ops_with_profiles():
        for kind, why in headers.lacks(op).items():
            what = f"{op} kernels" if kind == ck_tile.ALL else f"{op} kernels with {kind}"
            yield Finding("compilers", what, False, f"cannot be built with these headers: {why}")
