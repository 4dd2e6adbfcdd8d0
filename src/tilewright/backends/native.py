"""What the selection library (`tilewright.native`) is told of an op's kernels on a backend: numbers by name.

The families' limits and costs are C++ (`include/tilewright/select`), where the same names stand.  An op's kernels that
have no description, or one of another package that the library does not know, are asked in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tilewright.arch import Arch
from tilewright.ops.base import KernelSpec


class Described(NamedTuple):
    """One kernel: the family's name in the library, and its fields."""

    family: str
    fields: Mapping[str, int]


class NativeKernels(Protocol):
    """How an op's kernels on a backend are told to the library."""

    set_name: str
    problem_names: tuple[str, ...]  # in the order of `problem`
    undecided: bool  # whether the library leaves some kernels or problems to Python

    def problem(self, problem: Any) -> Sequence[int]:
        """On the way of every selection: as short as can be."""

    def schedule(self, spec: KernelSpec) -> Described | None:
        """None where the library has no such family."""

    def arch(self, arch: Arch) -> Mapping[str, int]: ...

    def rates(self, arch: Arch) -> Mapping[str, float]: ...
