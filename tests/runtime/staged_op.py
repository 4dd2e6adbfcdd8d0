"""An op of two stages for tests: y = alpha * (x * x)[table] + gamma * more, and where each came from.

Two results, an int32 table, an optional operand, x of 1 to 3 dimensions, and a workspace between the stages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tilewright.errors import ProblemError
from tilewright.ops.base import KernelSpec, OpDefaults, Violation, from_plain, read_spec
from tilewright.runtime.bindings import BindingDefaults
from tilewright.runtime.lines import dense_strides
from tilewright.runtime.requests import BETWEEN, Pointer, Request, Result, Sample, Scalar, Slot, Span, StageRequest
from tilewright.runtime.samples import poison

NAME = "pick"


@dataclass(frozen=True, slots=True)
class PickSignature:
    stage: str  # square, gather, or both for a problem that is asked for

    def label(self) -> str:
        return self.stage


@dataclass(frozen=True, slots=True)
class PickSchedule:
    variant: int = 0

    def label(self) -> str:
        return f"v{self.variant}"


@dataclass(frozen=True, slots=True)
class PickProblem:
    op: ClassVar[str] = NAME
    shape: tuple[int, ...]
    picks: int
    more: bool = False
    stage: str = "both"

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def flops(self) -> int:
        return self.count + 2 * self.picks

    @property
    def bytes(self) -> int:
        return 12 * self.count + 16 * self.picks

    def describe(self) -> str:
        return f"{NAME} {'x'.join(map(str, self.shape))} picks={self.picks} {self.stage}"


class PickOp(OpDefaults):
    name = NAME
    summary = "squares, picked by a table"
    pool_names: tuple[str, ...] = ("default",)
    axes: tuple[Any, ...] = ()
    options: tuple[Any, ...] = ()

    def spec_from_dict(self, data: dict[str, Any]) -> KernelSpec:
        return read_spec(data, NAME, PickSignature, lambda _arch, _fields: PickSchedule)

    def check(self, spec: KernelSpec) -> list[Violation]:
        return []

    def supports(self, spec: KernelSpec, problem: PickProblem) -> list[Violation]:
        if spec.signature != self.signature_of(problem):
            return [Violation("signature", "computes another stage")]
        return []

    def padded(self, spec: KernelSpec, problem: PickProblem) -> None:
        return None

    def measured_as(self, problem: PickProblem) -> PickProblem:
        return problem

    def problem_violations(self, problem: PickProblem, arch: str) -> list[Violation]:
        return [] if problem.picks >= 0 else [Violation("size-negative", "picks is negative", "use 0 or more")]

    def signature_of(self, problem: PickProblem) -> PickSignature:
        return PickSignature(problem.stage)

    def problem(self, values: Mapping[str, Any]) -> PickProblem:
        return PickProblem(**values)

    def problem_from_dict(self, data: Mapping[str, Any]) -> PickProblem:
        made: PickProblem = from_plain(PickProblem, "a pick problem", data)
        return made

    def words(self, problem: PickProblem) -> list[str]:
        return ["--picks", str(problem.picks)]

    def stages(self, problem: PickProblem, arch: str) -> Sequence[PickProblem]:
        if problem.stage != "both":
            return (problem,)
        return replace(problem, stage="square"), replace(problem, stage="gather")

    def axes_of(self, signature: PickSignature) -> dict[str, tuple[Any, ...]]:
        return {}

    def proposals(self, pool: str, arch: str, **axes: Any) -> Iterator[KernelSpec]:
        yield from ()

    def preselected(self, name: str, arch: str) -> Iterator[KernelSpec]:
        yield from ()

    def fallback_spec(self, signature: PickSignature, arch: str) -> KernelSpec:
        return KernelSpec(NAME, signature, PickSchedule(), arch)

    def candidates(self, signature: PickSignature, arch: str) -> Sequence[KernelSpec]:
        return ()


class Args(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int64),
        ("picks", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("x", "table", "more", "between", "y", "seen")),
        ("alpha", ctypes.c_double),
        ("gamma", ctypes.c_double),
    )


FIELDS: Any = Args
X, TABLE, MORE, Y, SEEN = range(5)


def _stage(problem: PickProblem, alone: bool = False) -> StageRequest:
    """`alone`: as measured, with what stands between the stages in an operand."""
    args = Args(count=problem.count, picks=problem.picks)
    between = Pointer(FIELDS.between.offset, Y if alone and problem.stage == "square" else X if alone else BETWEEN)
    if problem.stage == "square":
        return StageRequest(problem, args, (Pointer(FIELDS.x.offset, X), between))
    pointers = [
        Pointer(FIELDS.table.offset, TABLE),
        between,
        Pointer(FIELDS.y.offset, Y),
        Pointer(FIELDS.seen.offset, SEEN),
    ]
    scalars = [Scalar(FIELDS.alpha.offset, 0)]
    if problem.more:
        pointers.append(Pointer(FIELDS.more.offset, MORE))
        scalars.append(Scalar(FIELDS.gamma.offset, 1))
    return StageRequest(problem, args, tuple(pointers), tuple(scalars))


class Verdict:
    def __init__(self, ok: bool) -> None:
        self.ok, self.max_error, self.bound_ratio, self.detail = ok, 0.0, 0.0, "" if ok else "it differs"


class PickBinding(BindingDefaults):
    op = NAME
    slots = (
        Slot("x"),
        Slot("table"),
        Slot("more", optional=True),
        Slot("y", written=True, optional=True, twin="more"),
        Slot("seen", written=True, optional=True),
    )
    scalars = ("alpha", "gamma")

    def bind(
        self,
        x: Any,
        table: Any,
        more: Any = None,
        *,
        y: Any = None,
        seen: Any = None,
        alpha: Any = 1.0,
        gamma: Any = 1.0,
    ) -> tuple[Any, Any, Any]:
        return (x, table, more, y, seen), (alpha, gamma), ()

    def bind_kernel(self, spec: KernelSpec, *operands: Any, **keywords: Any) -> tuple[Any, Any, Any]:
        return self.bind(*operands, **keywords)

    def request(self, views: Sequence[Any], attributes: tuple[Any, ...], target: str) -> Request:
        x, table, more, y, seen = views
        if not 1 <= len(x.shape) <= 3 or x.dtype != "fp32" or table.dtype not in ("int32",):
            raise ProblemError("x or table is not as it must be", rule="pick", remedy="give float32 and int32")
        if any(one is not None and one.shape != table.shape for one in (more, y, seen)):
            raise ProblemError("shapes differ", rule="pick-shape", remedy="give one shape")
        problem = PickProblem(x.shape, table.shape[0], more is not None)
        stages = tuple(_stage(one) for one in PickOp().stages(problem, target))
        shape, strides = table.shape, dense_strides(table.shape)
        results = (Result(Y, shape, strides, "fp32"), Result(SEEN, shape, strides, "int32"))
        return Request(NAME, stages, results, between_bytes=8 * problem.count)

    def copies(self, stage: StageRequest, larger: Any) -> StageRequest:
        return stage

    def sample(self, problem: PickProblem, seed: int = 0, exact: bool = False) -> Sample:
        rng = np.random.default_rng(seed)
        x = rng.integers(-5, 5, problem.shape).astype(np.float32)
        table = rng.integers(0, max(1, problem.count), problem.picks, dtype=np.int32)
        more = rng.integers(-5, 5, problem.picks).astype(np.float32) if problem.more else None
        y, seen = np.empty(problem.picks, np.float32), np.empty(problem.picks, np.int32)
        if problem.stage == "square":
            y = np.empty(2 * problem.count, np.float32)  # the bytes between the stages
        if problem.stage == "gather":
            x = (x.reshape(-1).astype(np.float64) ** 2).view(np.float32)
        poison(y)
        poison(seen)
        return Sample((x, table, more, y, seen), (2.0, 3.0), ())

    def checks_apart(self, problem: PickProblem) -> bool:
        return False

    def dense(self, problem: PickProblem) -> Request:
        return Request(NAME, (_stage(problem, alone=True),), (), spans=(Span(),) * 5)

    def attributes_for(self, attributes: tuple[Any, ...], scalars: Sequence[float]) -> tuple[Any, ...]:
        return attributes

    def packed_for(self, planner: Any, problem: PickProblem, operands: Sequence[Any]) -> Sequence[Any]:
        return operands

    def check(self, problem: PickProblem, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Verdict:
        x, table, more, y, seen = sample.operands
        if problem.stage == "square":
            return Verdict(bool((y.view(np.float64) == x.reshape(-1).astype(np.float64) ** 2).all()))
        squares = x.view(np.float64) if problem.stage == "gather" else x.reshape(-1).astype(np.float64) ** 2
        expected = expected_of(squares, table, more, *sample.scalars)
        return Verdict(bool((y == expected).all() and (seen == table + 1).all()))

    def judge(self, problem: PickProblem, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Verdict]:
        return lambda made, kernels: self.check(problem, made, kernels)


def expected_of(squares: Any, table: Any, more: Any, alpha: float, gamma: float) -> Any:
    found = alpha * squares[table] + (gamma * more if more is not None else 0)
    return found.astype(np.float32)


OP, BINDING = PickOp(), PickBinding()
