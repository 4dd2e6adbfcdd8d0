"""What an op brings to the tile engine beyond being an op: problem sets, families, neighbours.

Found by entry point (`tilewright.engine`, the op's name).  An op without one can still be swept: its problems come from
files, and every field of them is shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tilewright import plugins
from tilewright.dataclass import dataclass

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

GROUP = "tilewright.engine"

Values = Mapping[str, Any]  # of the op's options, by name


@dataclass(frozen=True)
class ProblemSet:
    """Problems by the values of their options; those left out (often the element types) are the user's to say."""

    key: str
    purpose: str  # one line for people: what they are and where their sizes come from
    make: Callable[[], Sequence[Values]]
    holdout: bool = False  # kept apart: no model may be trained on these, or on near neighbours of them

    @cached_property
    def values(self) -> tuple[Values, ...]:
        return tuple(dict(row) for row in self.make())

    def __len__(self) -> int:
        return len(self.values)


class Engine(Protocol):
    """The op's part of the tile engine."""

    op: str
    problem_sets: Mapping[str, ProblemSet]
    columns: tuple[str, ...]  # the fields of a problem that tables show, in their order
    configs: Traversable | None  # a folder of trait configs, one a kind of device (`tune.instances`)

    def random(self, seed: int, count: int, device: str) -> Sequence[Values]:
        """Problems drawn from the distribution this op states for a kind of device (a backend's name)."""

    def family(self, problem: Any) -> str:
        """Which kind of problem it is, as reports group them."""

    def near(self, problem: Any, other: Any) -> bool:
        """Whether knowing one problem's fastest kernel gives away the other's."""

    # -- the words of others, where an op knows any; each may be left out --------------------------------
    #
    # foreign_config(data)    a trait config under our names, and notes for people on what was left out of it
    # foreign_problem(row)    a problem of a file under the names of options
    # foreign_numbers(numbers)    a problem by its sizes alone, in the order people write them
    # foreign_columns(problem)    the columns of a problem in tables of theirs (`bench --schema ck`)

    # -- what a model sees (`ops.features`); no names, no learned selection --------------------------------

    problem_feature_names: tuple[str, ...]
    interaction_names: tuple[str, ...]

    def problem_features(self, problem: Any) -> Sequence[Any]:
        """A value a name: numbers, and words where the op says which there are (`problem_words`, words by the name)."""

    def interactions(self, problem: Any, kernels: Mapping[str, Any], units: int) -> Any:
        """What follows from problem and kernels, an array a name (or one of all); `kernels` has an array a flat field.

        Also one a name of `kernel_feature_names`, where the op has these and `kernel_features(spec)`: what it works out
        of a kernel alone, once.  Where it has `signature_words(signature)`, a model must have seen each of these words;
        else it must have seen the signature.  Where it has `kernel_terms(kernels, units)`, a mapping, `kernels` has
        these too: what follows from the kernels alone, worked out once, since they are asked about again and again.
        """


class ForeignWords:
    """The words of others as a module of the op has them, which only files of problems and configs need."""

    foreign_module: ClassVar[str]

    def _foreign(self) -> Any:
        return import_module(self.foreign_module)

    def foreign_config(self, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
        translated: tuple[Mapping[str, Any], list[str]] = self._foreign().trait_config(data)
        return translated

    def foreign_problem(self, row: Values) -> Values:
        translated: Values = self._foreign().problem(row)
        return translated

    def foreign_numbers(self, numbers: tuple[int, ...]) -> Values:
        translated: Values = self._foreign().of_numbers(numbers)
        return translated

    def foreign_columns(self, problem: Any) -> dict[str, Any]:
        columns: dict[str, Any] = self._foreign().columns(problem)
        return columns


class Plain:
    """The part of an op that brings none."""

    def __init__(self, op: str, columns: Sequence[str]) -> None:
        self.op = op
        self.problem_sets: Mapping[str, ProblemSet] = {}
        self.columns = tuple(columns)
        self.configs: Traversable | None = None
        self.problem_feature_names: tuple[str, ...] = ()
        self.interaction_names: tuple[str, ...] = ()

    def problem_features(self, problem: Any) -> Sequence[Any]:
        return ()

    def interactions(self, problem: Any, kernels: Mapping[str, Any], units: int) -> Sequence[Any]:
        return ()

    def random(self, seed: int, count: int, device: str) -> Sequence[Values]:
        return ()

    def family(self, problem: Any) -> str:
        return "all"

    def near(self, problem: Any, other: Any) -> bool:
        return bool(problem == other)


def engine(op: Any) -> Engine:
    """What an op brings; the plain answers where it brings nothing."""
    if op.name not in plugins.names(GROUP):
        return Plain(op.name, ())
    part: Engine = plugins.load(GROUP, op.name, "the engine of an op", Engine)
    return part


def columns_of(op: Any, problem: Any) -> dict[str, Any]:
    """The fields of a problem that tables show."""
    wanted = engine(op).columns or tuple(field.name for field in dataclasses.fields(problem))
    return {name: getattr(problem, name) for name in wanted}
