"""Kernels that are asked about together, prepared once: which serve a problem, and what each is estimated to take."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arch import all_archs
from tilewright.arch.host import l2_bytes
from tilewright.backends.base import backend
from tilewright.backends.native import NativeKernels
from tilewright.errors import InternalError
from tilewright.native.library import Candidate, Library, Names, Question, library
from tilewright.ops.base import KernelSpec

Array = np.ndarray[Any, Any]


class Answer:
    """What was said of each kernel of a question; good until the next question of the same thread."""

    __slots__ = ("best", "rules", "seconds", "served")

    def __init__(self, rules: Array, seconds: Array) -> None:
        self.rules = rules  # numbers of broken rules: 0 where a kernel serves the problem
        self.seconds = seconds  # infinite where it does not
        self.served, self.best = 0, -1


class _Desk:
    """Where a thread puts its questions down."""

    def __init__(self, judge: Judge) -> None:
        count = len(judge.specs)
        self.problem = ctypes.create_string_buffer(judge.packed.size)
        self.answer = Answer(np.zeros(count, np.int32), np.zeros(count))
        self.question = Question(
            candidates=judge.place, order=judge.order.ctypes.data, problem=ctypes.addressof(self.problem),
            rules=self.answer.rules.ctypes.data, seconds=self.answer.seconds.ctypes.data, count=count,
        )  # fmt: skip
        self.place = ctypes.addressof(self.question)


class _Desks(threading.local):
    def __init__(self) -> None:
        self.mine: _Desk | None = None


class Judge:
    """Kernels of one op, signature and backend; `order` decides between equal estimates."""

    def __init__(
        self, native: Library, names: Names, kernels: NativeKernels, specs: Sequence[KernelSpec], order: Sequence[int]
    ) -> None:
        self.specs, self._kernels, self._names = tuple(specs), kernels, names
        self.order = np.array(order, np.int64)
        self.packed = struct.Struct(f"={len(names.problem)}q")
        self._keep: list[Any] = [native]
        self._shared: dict[tuple[str, str], int] = {}
        rows = [self._candidate(spec) for spec in specs]
        self._candidates = (Candidate * len(rows))(*rows)
        self.place = ctypes.addressof(self._candidates)
        self._ask, self._set = native.ask, names.place
        self._desks = _Desks()

    def _numbers(self, what: str, kind: Any, names: Sequence[str], given: Any) -> int:
        """The address of an array of numbers in the library's order."""
        if set(names) != set(given):
            raise InternalError(
                f"the selection library takes {' '.join(names)} of {what}, and is told {' '.join(given)}",
                rule="selection-names",
                value=what,
            )
        array = (kind * len(names))(*[given[name] for name in names])
        self._keep.append(array)
        return ctypes.addressof(array)

    def _candidate(self, spec: KernelSpec) -> Candidate:
        described = self._kernels.schedule(spec)
        assert described is not None, "only described kernels come here"
        family, fields = self._names.families[described.family]
        arch = all_archs()[spec.arch]
        if (spec.arch, "arch") not in self._shared:
            facts, rates = self._kernels.arch(arch), self._kernels.rates(arch)
            self._shared[spec.arch, "arch"] = self._numbers("an arch", ctypes.c_int64, self._names.arch, facts)
            self._shared[spec.arch, "rates"] = self._numbers("rates", ctypes.c_double, self._names.rates, rates)
        schedule = self._numbers(described.family, ctypes.c_int64, fields, described.fields)
        return Candidate(family, schedule, self._shared[spec.arch, "arch"], self._shared[spec.arch, "rates"])

    def ask(self, problem: Any, threads: int, *, refused_too: bool = False) -> Answer:
        """What the library says; `refused_too`: with estimates of kernels that do not serve the problem."""
        desk = self._desks.mine
        if desk is None:
            desk = self._desks.mine = _Desk(self)
        question = desk.question
        self.packed.pack_into(desk.problem, 0, *self._kernels.problem(problem))
        question.refused_too, question.threads, question.l2_bytes = refused_too, threads, l2_bytes()
        self._ask(self._set, desk.place)
        answer = desk.answer
        answer.served, answer.best = question.served, question.best
        return answer

    def rule(self, number: int) -> str:
        """The rule behind a number, as violations name it."""
        return self._names.rules[number]


def judge(backend_name: str, op: str, specs: Sequence[KernelSpec], order: Sequence[int]) -> Judge | None:
    """What asks the library about kernels; None where it is not there, or does not know one of them."""
    kernels: NativeKernels | None = getattr(backend(backend_name).kernels(op), "native", None)
    if kernels is None or not specs:
        return None
    native = library()
    names = native.sets.get(kernels.set_name) if native is not None else None
    if native is None or names is None:
        return None
    described = [kernels.schedule(spec) for spec in specs]
    if any(one is None or one.family not in names.families for one in described):
        return None
    if names.problem != kernels.problem_names:
        raise InternalError(
            f"the selection library takes problems of {op} otherwise than they are told", rule="selection-names"
        )
    return Judge(native, names, kernels, specs, order)
