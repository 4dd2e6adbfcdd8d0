"""Kernels that are asked about together, prepared once: which serve a problem, and what each is estimated to take."""

from __future__ import annotations

import ctypes
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright import ops
from tilewright.arch import all_archs
from tilewright.arch.host import dual_fma, l2_bytes
from tilewright.backends.base import backend
from tilewright.backends.native import NativeKernels
from tilewright.errors import InternalError, UnknownNameError
from tilewright.native.library import Candidate, Library, Names, Question, Rule, library
from tilewright.ops.base import KernelSpec, Violation

Array = np.ndarray[Any, Any]

_QUESTION = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)  # problem, schedule, answer
OTHER_RULE = 1  # of a kernel that Python says no of; no address
# Adjacent numbers of a Question: estimates_only, threads, l2_bytes, dual_fma; served, best.
_QUESTION_NUMBERS, _QUESTION_AT = struct.Struct("=4q"), Question.estimates_only.offset
_MOST_THREADS = 1 << 20  # of any machine: a number that fits beside the others
_ANSWER_NUMBERS, _ANSWER_AT = struct.Struct("=2q"), Question.served.offset


class Answer:
    """What was said of each kernel of a question; good until the next question of the same thread."""

    __slots__ = ("best", "in_python", "rules", "seconds", "served")

    def __init__(self, rules: Array, seconds: Array) -> None:
        self.rules = rules  # addresses of broken rules: 0 where a kernel serves the problem
        self.seconds = seconds  # infinite where it does not
        self.served, self.best = 0, -1
        self.in_python: list[int] = []  # the places of those that the library left to Python


class _Desk:
    """Where a thread puts its questions down."""

    def __init__(self, judge: Judge) -> None:
        count = len(judge.specs)
        self.problem = ctypes.create_string_buffer(judge.packed.size)
        self.answer = Answer(np.zeros(count, np.int64), np.zeros(count))
        self.question = judge.question(
            ctypes.addressof(self.problem), self.answer.rules, self.answer.seconds, threads=1
        )
        self.place = ctypes.addressof(self.question)


class _Desks(threading.local):
    def __init__(self) -> None:
        self.mine: _Desk | None = None


class Judge:
    """Kernels of one op, signature and backend; `order` decides between equal estimates."""

    def __init__(
        self, native: Library, kernels: NativeKernels, specs: Sequence[KernelSpec], order: Sequence[int]
    ) -> None:
        names: Names = native.names
        self.specs, self._kernels, self._names = tuple(specs), kernels, names
        self._backend = backend(all_archs()[specs[0].arch].backend)
        self.order = np.array(order, np.int64)
        self.packed = struct.Struct(f"={len(names.problem)}q")
        self._keep: list[Any] = [native]
        self._shared: dict[tuple[str, str], int] = {}
        rows = self._rows(specs)
        self.mixed = kernels.undecided or any(row.family < 0 for row in rows)  # Python is asked about some
        self._candidates = (Candidate * len(rows))(*rows)
        self.place = ctypes.addressof(self._candidates)
        self._ask = native.ask
        self._desks = _Desks()

    @staticmethod
    def _in_order(what: str, names: Sequence[str], values: Any) -> list[Any]:
        """Numbers in the library's order."""
        if set(names) != set(values):
            raise InternalError(
                f"the selection library takes {' '.join(names)} of {what}, and gets {' '.join(values)}",
                rule="selection-names",
                value=what,
            )
        return [values[name] for name in names]

    def _kept(self, kind: Any, numbers: Sequence[Any]) -> int:
        """The address of an array of numbers."""
        array = (kind * len(numbers))(*numbers)
        self._keep.append(array)
        return ctypes.addressof(array)

    def _rows(self, specs: Sequence[KernelSpec]) -> list[Candidate]:
        """The kernels as the library knows them.  Their numbers are contiguous: a question runs over all of
        them, and in a program that does other things in between they are in no near cache."""
        numbers: list[int] = []
        families: list[tuple[int, int]] = []  # of each kernel, and where its numbers begin
        for spec in specs:
            described = self._kernels.schedule(spec)
            if described is None or described.family not in self._names.families:
                families.append((-1, 0))
                continue
            family, names = self._names.families[described.family]
            families.append((family, len(numbers)))
            numbers += self._in_order(described.family, names, described.fields)
        first, size = self._kept(ctypes.c_int64, numbers), ctypes.sizeof(ctypes.c_int64)
        unknown = Candidate(-1, None, None, None)
        return [
            unknown if family < 0 else Candidate(family, first + size * at, *self._arch(spec.arch))
            for spec, (family, at) in zip(specs, families, strict=True)
        ]

    def _arch(self, name: str) -> tuple[int, int]:
        """Where the facts and the rates of an arch are."""
        if (name, "arch") not in self._shared:
            arch = all_archs()[name]
            facts, rates = self._kernels.arch(arch), self._kernels.rates(arch)
            arch_numbers = self._in_order("an arch", self._names.arch, facts)
            self._shared[name, "arch"] = self._kept(ctypes.c_int64, arch_numbers)
            self._shared[name, "rates"] = self._kept(ctypes.c_double, self._in_order("rates", self._names.rates, rates))
        return self._shared[name, "arch"], self._shared[name, "rates"]

    def use_rates(self, arch: str, rates: Mapping[str, float]) -> None:
        """Other rates than those of the arch table, from now on: for fits."""
        names = self._names.rates
        held = (ctypes.c_double * len(names)).from_address(self._shared[arch, "rates"])
        held[:] = [rates[name] for name in names]

    def question(self, problem: int, rules: Array, seconds: Array, threads: int) -> Question:
        """A question of one's own, of numbers at an address: `ask_place` answers it, `numbers` fills them in."""
        return Question(
            candidates=self.place, order=self.order.ctypes.data, problem=problem, rules=rules.ctypes.data,
            seconds=seconds.ctypes.data, count=len(self.specs), threads=threads,
        )  # fmt: skip

    @property
    def ask_place(self) -> int:
        """Where the library's function is, for C."""
        return ctypes.cast(self._ask, ctypes.c_void_p).value or 0

    @property
    def numbers(self) -> Callable[[Any], Sequence[int]]:
        """What `packed` packs of a problem."""
        return self._kernels.problem

    def ask(self, problem: Any, threads: int, *, estimates_only: bool = False) -> Answer:
        """Which kernels serve a problem, and what they are estimated to take; or the second alone, of those that the
        library knows."""
        desk = self._desks.mine
        if desk is None:
            desk = self._desks.mine = _Desk(self)
        question = desk.question
        self.packed.pack_into(desk.problem, 0, *self._kernels.problem(problem))
        # Both at once: a number of a structure by its name takes as long as all of them.
        most = min(threads, _MOST_THREADS)
        _QUESTION_NUMBERS.pack_into(question, _QUESTION_AT, estimates_only, most, l2_bytes(), dual_fma())
        self._ask(desk.place)
        answer = desk.answer
        answer.served, answer.best = _ANSWER_NUMBERS.unpack_from(question, _ANSWER_AT)
        if self.mixed and not estimates_only:
            self._complete(answer, problem, threads)
        return answer

    def estimates(self, problem: Any, threads: int, among: Array) -> Array:
        """The estimates of some kernels, whether they serve the problem or not; those of others are infinite."""
        answer = self.ask(problem, threads, estimates_only=True)
        seconds = answer.seconds
        seconds[~among] = math.inf
        if self.mixed:
            for at in (among & (answer.rules < 0)).nonzero()[0].tolist():
                seconds[at] = self._estimate(self.specs[at], problem, threads)
        return seconds

    def _estimate(self, spec: KernelSpec, problem: Any, threads: int) -> float:
        seconds = self._backend.estimate(spec, problem, threads)
        return math.inf if math.isnan(seconds) else seconds

    def _complete(self, answer: Answer, problem: Any, threads: int) -> None:
        """What the library left undecided, by Python."""
        op = ops.op(self.specs[0].op)
        answer.in_python = (answer.rules < 0).nonzero()[0].tolist()
        for at in answer.in_python:
            spec = self.specs[at]
            answer.rules[at] = OTHER_RULE if op.supports(spec, problem) else 0
            if not answer.rules[at]:
                answer.seconds[at] = self._estimate(spec, problem, threads)
        served = (answer.rules == 0).nonzero()[0]
        answer.served, answer.best = len(served), -1
        if len(served):
            lowest = served[answer.seconds[served] == answer.seconds[served].min()]
            answer.best = int(lowest[self.order[lowest].argmin()])

    def rule(self, address: int) -> str:
        """The name of a broken rule; "serves" where none is, empty of one that Python found."""
        if address in (0, OTHER_RULE):
            return "" if address else "serves"
        return str(Rule.from_address(address).name.decode())

    def call(self, function: str, problem: Any) -> int:
        """What a function of the library's own answers of the first kernel and a problem; 0 where there is none."""
        native: Library = self._keep[0]
        mine, answer = native.function(function, _QUESTION), ctypes.c_int64(0)
        if mine is not None:
            numbers = self.packed.pack(*self._kernels.problem(problem))
            mine(numbers, self._candidates[0].schedule, ctypes.addressof(answer))
        return answer.value

    def violation(self, at: int, address: int, problem: Any) -> Violation:
        """A broken rule as people read it: {name} in its sentences is a number of the problem or the schedule."""
        rule = Rule.from_address(address)
        described = self._kernels.schedule(self.specs[at])
        values = dict(zip(self._names.problem, map(int, self._kernels.problem(problem)), strict=True))
        values |= {name: int(value) for name, value in (described.fields.items() if described else ())}
        if (more := getattr(self._kernels, "sentence_numbers", None)) is not None:
            values |= more(self.specs[at], problem)
        return Violation(
            rule.name.decode(), rule.why.decode().format_map(values), rule.remedy.decode().format_map(values)
        )


def native_kernels(specs: Sequence[KernelSpec]) -> NativeKernels | None:
    """How these kernels are passed to a library; None where their op has none on their backend."""
    if not specs:
        return None
    try:
        owner = backend(all_archs()[specs[0].arch].backend).kernels(specs[0].op)
    except UnknownNameError:  # kernels of libraries that a person built: the backend makes none of this op
        return None
    kernels: NativeKernels | None = getattr(owner, "native", None)
    return kernels


def judge(specs: Sequence[KernelSpec], order: Sequence[int]) -> Judge | None:
    """What asks the library about kernels; None where it is not there, or does not know them."""
    kernels = native_kernels(specs)
    native = library(kernels) if kernels is not None else None
    if kernels is None or native is None:
        return None
    described = (kernels.schedule(spec) for spec in specs)
    if not any(schedule is not None and schedule.family in native.names.families for schedule in described):
        return None
    if native.names.problem != kernels.problem_names:
        raise InternalError(
            f"the selection library {kernels.set_name} takes problems with other fields than it gets",
            rule="selection-names",
        )
    return Judge(native, kernels, specs, order)
