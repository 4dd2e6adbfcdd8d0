"""What calls need beside kernels: small libraries of our own, built through the store like kernels."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tilewright.errors import ToolchainError
from tilewright.runtime import fast_path, host, torch_ops, trees

if TYPE_CHECKING:
    from tilewright.backends.base import Source


def build_support() -> None:
    """Have them in the store, for processes that must not compile."""
    host.build_team_library()
    fast_path.library()
    if find_spec("torch") is not None:
        with suppress(ToolchainError):  # Python serves its ops then
            torch_ops.build()


def support_sources() -> list[Source]:
    """What they are compiled from, and the library that asks learned models; PyTorch's needs nothing of PyTorch."""
    return [host.team_source(), fast_path.library_source(), torch_ops.library_source(), trees.library_source()]
