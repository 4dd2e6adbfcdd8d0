"""What calls need beside kernels: small libraries of our own, built through the store like kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.runtime import fast_path, host, trees

if TYPE_CHECKING:
    from tilewright.backends.base import Source


def build_support() -> None:
    """Have them in the store, for processes that must not compile."""
    host.build_team_library()
    fast_path.library()


def support_sources() -> list[Source]:
    """What they are compiled from, and the library that asks learned models."""
    return [host.team_source(), fast_path.library_source(), trees.library_source()]
