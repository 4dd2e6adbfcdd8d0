"""The kernels of an op on a backend: kernel families side by side, each in a folder of its own.

What a family says in Python: its schedules, which of them are legal, which a pool proposes, what its template is filled
with, what its machine code must hold.  What it says in C++, once for the kernel's own check, for selection from Python
and from C++: `limits.h` (which problems it refuses, and why) and `cost.h` (what one takes).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from tilewright.arch import Arch
from tilewright.backends.base import KernelsDefaults, Promises
from tilewright.ops.base import KernelSpec, Violation
from tilewright.ops.families import FamilySpace


class Family(KernelsDefaults):
    """A kernel family whose limits and cost are the C++ headers of its folder.

    `numbers` fills in the struct `Schedule` of its limits.h, by name: for the selection library, and for the kernel.
    """

    name: ClassVar[str]  # also of its folder, and of its headers' folder and namespace
    schedules: tuple[type[Any], ...]

    def violations(self, signature: Any, schedule: Any, arch: Arch) -> Iterator[Violation]:
        """None: the kernels of families such as `loops` have no rules beyond those of the op."""
        return iter(())

    def numbers(self, spec: KernelSpec) -> Mapping[str, int]:
        """Of a schedule without numbers; a struct in C++ cannot be empty."""
        return {"none": 0}

    def sentence_numbers(self, spec: KernelSpec, problem: Any) -> Mapping[str, int]:
        """Numbers that its rules name beyond those of the problem and the schedule."""
        return {}

    def include_dirs(self) -> tuple[Path, ...]:
        kind: Any = type(self)
        return (_headers_of(kind),)

    def limits(self, spec: KernelSpec, problem: Any) -> Iterable[Violation]:
        violations: Iterable[Violation] = _selection().refusals(spec, problem)
        return violations

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return float(_selection().seconds(spec, problem, threads))


@lru_cache(maxsize=512)
def _headers_of(kind: type[Any]) -> Path:
    """The folder beside the module of a class; asked for with every kernel that is loaded."""
    return Path(inspect.getfile(kind)).parent / "include"


def _selection() -> Any:
    """Layers above the backends compile the selection library; so it is requested by name."""
    return import_module("tilewright.native.one_kernel")


def selection_number(spec: KernelSpec, function: str, problem: Any, value: float) -> float | None:
    """What one more function of a kernel's selection library says of a problem and a number; None without a library."""
    number: float | None = _selection().number(spec, function, problem, value)
    return number


class OpFamilies(FamilySpace, KernelsDefaults):
    """All that a backend knows of an op: what `tilewright.kernels.<backend>` publishes."""

    @property
    def space(self) -> FamilySpace:
        return self

    def include_dirs(self) -> tuple[Path, ...]:
        kind: Any = type(self)
        shared = _headers_of(kind)
        brought = (folder for family in self.families for folder in family.include_dirs())
        return tuple(dict.fromkeys((*((shared,) if shared.is_dir() else ()), *brought)))

    @cached_property
    def template(self) -> tuple[str, str]:
        raise AttributeError("every family has a template of its own")

    def context(self, spec: KernelSpec) -> Mapping[str, Any]:
        words: Mapping[str, Any] = self.family_of(spec.schedule).context(spec)
        return words

    def estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        return float(self.family_of(spec.schedule).estimate(spec, problem, threads))

    def promises(self, spec: KernelSpec) -> Promises:
        promises: Promises = self.family_of(spec.schedule).promises(spec)
        return promises

    def compile_memory(self, spec: KernelSpec, compiler: str) -> int:
        return int(self.family_of(spec.schedule).compile_memory(spec, compiler))
