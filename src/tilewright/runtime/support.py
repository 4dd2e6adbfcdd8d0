"""What calls need beside kernels: small libraries of our own, built through the store like kernels."""

from __future__ import annotations

from tilewright.runtime import fast_path, host


def build_support() -> None:
    """Have them in the store, for processes that must not compile."""
    host.build_team_library()
    fast_path.library()
