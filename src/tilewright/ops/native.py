"""What an op passes to the selection library for its learned models."""

from __future__ import annotations

from tilewright.dataclass import dataclass


@dataclass(frozen=True)
class NativeFeatures:
    """What of a learned model's question a library fills in: the columns, and the fields of kernels it asks for."""

    columns: tuple[tuple[str, ...], tuple[str, ...]]  # of the problem, and of it with a kernel
    terms: tuple[str, ...]  # real numbers; a term or switch that the op has as None is a null pointer
    switches: tuple[str, ...]
