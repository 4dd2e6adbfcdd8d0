"""What a selection library (`tilewright.native`) gets of an op's kernels on a backend: numbers by name.

The families' limits and costs are C++ (`limits.h` and `cost.h` of each family), where the same names stand.  A kernel
of a family that has none is asked about in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import tilewright
from tilewright.arch import Arch
from tilewright.dataclass import NamedTuple, dataclass
from tilewright.ops.base import KernelSpec
from tilewright.ops.native import NativeFeatures

if TYPE_CHECKING:
    from tilewright.backends.families import OpFamilies


class Described(NamedTuple):
    """One kernel: the family's name in the library, and its fields."""

    family: str
    fields: Mapping[str, int]


@dataclass(frozen=True)
class SelectionSource:
    """What the library of a set is made of."""

    space: str  # the C++ namespace with Query, Rates and Arch
    prepared: str  # the C++ class that is made of a problem's numbers, once a question
    headers: tuple[str, ...]
    families: Mapping[str, str]  # name to the C++ namespace with Schedule, limits and seconds
    include_dirs: tuple[Path, ...] = ()
    exports: str = ""  # more functions, as C++


class NativeKernels(Protocol):
    """How an op's kernels on a backend are passed to the library."""

    @property
    def set_name(self) -> str: ...

    @property
    def problem_names(self) -> tuple[str, ...]:
        """In the order of `problem`."""

    @property
    def undecided(self) -> bool:
        """Whether the library leaves some kernels or problems to Python."""

    def source(self) -> SelectionSource: ...

    def problem(self, problem: Any) -> Sequence[int]:
        """Every selection calls it: as short as can be."""

    def schedule(self, spec: KernelSpec) -> Described | None:
        """None where the library has no such family."""

    def arch(self, arch: Arch) -> Mapping[str, int]: ...

    def rates(self, arch: Arch) -> Mapping[str, float]: ...


def our_include_dir() -> Path:
    """The headers that all backends share."""
    return Path(tilewright.__file__).parent / "include"


@dataclass(frozen=True)
class FamiliesNative:
    """The families of an op on a backend, as their library takes them."""

    kernels: OpFamilies
    prepared: str
    problem_names: tuple[str, ...]
    problem: Callable[[Any], Sequence[int]]
    arch: Callable[[Arch], Mapping[str, int]]
    rates: Callable[[Arch], Mapping[str, float]]
    exports: str = ""
    headers: tuple[str, ...] = ()  # for the exports
    features: NativeFeatures | None = None
    undecided: bool = False
    set_name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "set_name", f"{self.kernels.backend}_{self.kernels.op}")

    def source(self) -> SelectionSource:
        space, folder = f"tw::selection::{self.set_name}", f"tilewright/{self.kernels.backend}/{self.kernels.op}"
        names = {family.name: f"{space}::{family.name}" for family in self.kernels.own}
        headers = (*self.headers, *(f"{folder}/{name}/cost.h" for name in names))
        gpu = Path(tilewright.__file__).parent / "backends" / "gpu" / "include"  # families of GPUs share some there
        places = (our_include_dir(), *self.kernels.include_dirs(), gpu)
        return SelectionSource(space, self.prepared, headers, names, places, self.exports)

    def sentence_numbers(self, spec: KernelSpec, problem: Any) -> Mapping[str, int]:
        numbers: Mapping[str, int] = self.kernels.family_of(spec.schedule).sentence_numbers(spec, problem)
        return numbers

    def schedule(self, spec: KernelSpec) -> Described | None:
        family = self.kernels.family_of(spec.schedule)
        return Described(family.name, family.numbers(spec)) if family in self.kernels.own else None
