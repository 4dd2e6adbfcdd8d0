"""A call less its pointers, as every op's binding describes it: operands, stages, results.

Nothing here knows an op.  A *slot* is a place for an operand of a call, in an order the binding fixes; results are
slots too.  A *stage* is one kernel of the call; most ops have one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.dataclass import dataclass
from tilewright.runtime.devices import HOST, Place

if TYPE_CHECKING:
    from tilewright.ops.base import KernelSpec

BETWEEN = -1  # instead of a slot: the workspace that the stages of a call share

Where = Callable[["KernelSpec"], str]  # why a kernel is left out; empty where it is not
Operands = Sequence[Any]  # one a slot, None where it is not given
Attributes = tuple[Any, ...]  # whatever else a plan depends on; hashable


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot of an operand: its name in errors, and what it may hold."""

    name: str
    written: bool = False
    optional: bool = False
    twin: str = ""  # the slot whose memory a written one may be exactly
    elements: str = ""  # their type where there is one alone, as of tables
    holds: str = ""  # what its elements may be where not any number will do: "0 to the first size"
    cast: bool = False  # one of the factors or terms that torch.autocast makes narrower
    packed: type[Any] | None = None  # what may stand for an array: something with `key`, `facts`, `address`, `place`


class Packed(Protocol):
    """An operand in a form of its kernels' own."""

    @property
    def address(self) -> int: ...

    @property
    def place(self) -> Place: ...

    @property
    def key(self) -> Any:
        """All that a plan can depend on; hashable."""

    @property
    def facts(self) -> bytes:
        """The same as a few bytes, for the short path in C."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where an address goes in the arguments: that of a slot (or BETWEEN), and `shift` bytes.

    `steps`: bytes that each of the stage's loops adds per iteration.
    """

    offset: int
    slot: int
    shift: int = 0
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scalar:
    """Where a scalar of the call goes, as a double; `probe` is what the kernel's check is shown in its place."""

    offset: int
    index: int
    probe: float = 1.0


@dataclass(frozen=True, slots=True)
class Copy:
    """An operand that a stage does not take as it is: a dense copy, padded with zeros, in the workspace.

    Shapes go with the slowest dimension first; strides are in bytes, and 0 repeats.  `pointer` is the index of the
    stage's pointer that the copy replaces.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padded: tuple[int, ...]  # the shape of the copy
    itemsize: int
    read: bool = True
    written: bool = False
    at: int = 0  # in the part of the workspace that holds a stage's copies; `staging.lay_out` sets it

    @property
    def nbytes(self) -> int:
        count = self.itemsize
        for size in self.padded:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class StageRequest:
    """One kernel of a call: its problem, its arguments less pointers and scalars, and where those go."""

    problem: Any
    args: ctypes.Structure
    pointers: tuple[Pointer, ...]
    scalars: tuple[Scalar, ...] = ()
    loop: tuple[int, ...] = ()  # launched once for each index of these sizes, at most four
    copies: tuple[Copy, ...] = ()
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """An array that a call makes where none is given."""

    slot: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    dtype: str


@dataclass(frozen=True, slots=True)
class Span:
    """What a call touches around an operand's address, what that is a multiple of, and what checks are shown of it."""

    low: int = 0
    high: int = 0
    grain: int = 1
    probe: int = 64
    twin: int = -1  # the slot that may be the very same memory, in the same shape and strides


NO_SPAN = Span()  # of an operand that is not there


@dataclass(frozen=True, slots=True)
class Request:
    """Everything of a call but pointers and scalars."""

    op: str
    stages: tuple[StageRequest, ...]
    results: tuple[Result, ...]
    place: Place = HOST
    between_bytes: int = 0  # of results between the stages
    spans: tuple[Span, ...] = ()  # one a slot; `calls` knows them from the arrays
    others: Callable[[], Sequence[Request]] | None = field(default=None, compare=False)  # the same call in other stages

    def placed(self, place: Place, spans: tuple[Span, ...]) -> Request:
        """The same with where its operands are and what a call touches of them."""
        return Request(self.op, self.stages, self.results, place, self.between_bytes, spans, self.others)


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands made up for a problem, as a call takes them."""

    operands: tuple[Any, ...]
    scalars: tuple[float, ...]
    attributes: Attributes
    more: Mapping[str, Any] | None = None  # what else the check of the op wants to know
