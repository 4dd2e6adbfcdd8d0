"""Constants of estimates for AMD GPUs, of the arch table."""

from __future__ import annotations

from typing import TypeVar

from tilewright.arch import Arch, fit_source, fitted

Constants = TypeVar("Constants")


def constants(estimate: str, record: type[Constants], arch: Arch) -> Constants:
    """Of an arch; one whose entry has no rates counts with those of the arch that has the fit."""
    name = arch.name if arch.rates is not None and arch.compute_units else fit_source(estimate, arch.name)
    return fitted(estimate, record, name)
