"""The CK Tile headers: where they are and which version of their interface they speak.

The headers carry no version number, so a version is told by what the templates look like.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.errors import ToolchainError

MID_2025 = "mid-2025"
NEWER = "newer"
OLDER = "older"
SUPPORTED = (MID_2025,)

_EPILOGUE = Path("ck_tile/ops/epilogue/cshuffle_epilogue.hpp")
_LAUNCH = Path("ck_tile/host/kernel_launch.hpp")
_COMP_V5 = Path("ck_tile/ops/gemm/pipeline/gemm_pipeline_ag_bg_cr_comp_v5.hpp")
_CORE = Path("ck_tile/core.hpp")

REMEDY = (
    "`tilewright toolchain install rocm` brings the headers that are known to work; "
    "or set TILEWRIGHT_CK_TILE to a folder that holds ck_tile/"
)


@dataclass(frozen=True, slots=True)
class Headers:
    """One set of headers: the folder that holds `ck_tile/`, its profile and the digest of its files."""

    folder: Path
    profile: str
    digest: str

    def require(self, profiles: tuple[str, ...] = SUPPORTED) -> None:
        """An error unless the headers are of a profile that kernels are generated for."""
        if self.profile not in profiles:
            raise ToolchainError(
                f"the CK Tile headers in {self.folder} are of the {self.profile} profile; "
                f"kernels are generated for {' and '.join(profiles)}",
                rule="headers-version",
                value=self.profile,
                remedy=REMEDY,
            )


def has_headers(folder: Path) -> bool:
    return (folder / _CORE).is_file()


def profile_of(folder: Path) -> str:
    """Tell the version by the parameters of two templates that changed."""
    if not (folder / _COMP_V5).is_file():
        return OLDER
    launch = _text(folder / _LAUNCH)
    epilogue = _text(folder / _EPILOGUE)
    parameters = re.search(r"template\s*<([^>]*)>\s*struct\s+CShuffleEpilogueProblem\b", epilogue)
    mid = parameters is not None and "kBlockSize_" in parameters[1] and "MemoryOperation_" in parameters[1]
    return MID_2025 if mid and "MaxThreadPerBlock" in launch else NEWER


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _tree_digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted((folder / "ck_tile").rglob("*.hpp")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return found.hexdigest()


@lru_cache(maxsize=16)
def read_headers(folder: Path) -> Headers:
    """The headers in a folder, read once a process; none there is an error."""
    if not has_headers(folder):
        raise ToolchainError(
            f"there are no CK Tile headers in {folder}: {_CORE} is missing",
            rule="no-headers",
            value=str(folder),
            remedy=REMEDY,
        )
    return Headers(folder, profile_of(folder), _tree_digest(folder))
