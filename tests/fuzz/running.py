"""Make a call, and say what is wrong with what it did: a raw exception, a wrong number, memory touched that is none of
its business, a right call refused, a wrong one answered.
"""

from __future__ import annotations

import gc
import pickle
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tilewright as tw
from tests.fuzz import capsules, memory, oracle, values
from tests.fuzz.calls import ONE_AT_A_TIME, Call, Example, LiveCall, make, within
from tests.fuzz.libraries import torch
from tests.fuzz.memory import Array, Floats, numpy_type
from tests.fuzz.oracle import MAY, MUST, REFUSE, Expected, Verdict
from tilewright.errors import InternalError, MachineError, TilewrightError


class Wrong(AssertionError):
    """What the fuzzer looks for."""


@dataclass
class Answer:
    """What came of a call."""

    result: Any = None
    error: BaseException | None = None


@dataclass
class Runner:
    """Calls, with the registry and the kernels of a session; `told` is shown each before it is made."""

    registry: Any
    kernels: Sequence[Any]  # as many as there are kinds to draw; None where there is none to call directly
    told: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)

    # -- making ------------------------------------------------------------------------------------

    def _call(self, made: LiveCall) -> Any:
        call, keywords = made.call, dict(made.keywords)
        a, b = made.thing("a"), made.thing("b")
        if call.pack is not None:
            packed = tw.pack(b, m=call.pack.rows, dtype_a=call.pack.dtype_a)
            _scramble(made)
            b = packed
        if call.function == "matmul":
            return tw.matmul(a, b, **keywords)
        operands = (a, b) if call.c is None else (a, b, made.thing("c"))
        if call.function == "run":
            return self.registry.run("gemm", *operands, **keywords)
        if call.function == "kernel":
            return self.kernels[call.kernel](*operands, **keywords)
        return tw.gemm(*operands, **keywords)

    def _answer(self, made: LiveCall) -> Answer:
        with within(made.call.context):
            try:
                return Answer(self._call(made))
            except Exception as error:  # whatever it is, it is judged below
                return Answer(error=error)

    def run(self, example: Example) -> None:
        """All calls of an example; each twice, so that the second takes the fast path."""
        threads = example.threads
        if any(name in ONE_AT_A_TIME for call in example.calls for name in call.context):
            threads = 1
        self.told(repr(example))
        if threads > 1:
            self._at_once(example.calls, threads)
        else:
            for call in example.calls:
                for turn in range(2):
                    self._run_call(_turned(call, turn))
        if capsules.unsettled():
            gc.collect()
            wrong = capsules.normalized()
            if wrong:
                raise Wrong(wrong[0])
        capsules.normalized()

    def _prepared(self, call: Call) -> tuple[LiveCall, Verdict] | None:
        if call.function == "kernel" and self.kernels[call.kernel] is None:
            call = replace(call, function="gemm")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = make(call)
        if made is None:
            return None
        kernel = self.kernels[call.kernel].spec.signature if call.function == "kernel" else None
        return made, oracle.judge(made, kernel)

    def _run_call(self, call: Call) -> None:
        prepared = self._prepared(call)
        if prepared is not None:
            self._demand(*prepared, self._answer(prepared[0]))
            memory.release(prepared[0].lives.values())

    def _at_once(self, calls: Sequence[Call], threads: int) -> None:
        """Every thread makes every call, all at the same time."""
        prepared = [
            [self._prepared(_turned(call, turn)) for call in calls for turn in range(3)] for _ in range(threads)
        ]
        answers: list[list[Answer]] = [[] for _ in range(threads)]
        start = threading.Barrier(threads)

        def work(index: int) -> None:
            start.wait()
            for one in prepared[index]:
                answers[index].append(Answer() if one is None else self._answer(one[0]))

        workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for mine, given in zip(prepared, answers, strict=True):
            for one, answer in zip(mine, given, strict=True):
                if one is not None:
                    self._demand(*one, answer)
                    memory.release(one[0].lives.values())

    # -- judging -----------------------------------------------------------------------------------

    def _demand(self, made: LiveCall, verdict: Verdict, answer: Answer) -> None:
        self.counts["calls"] += 1
        self.counts[verdict.kind] += 1
        try:
            if answer.error is not None:
                self._demand_error(answer.error, verdict)
                _demand_untouched(made, None)
                return
            if verdict.kind == REFUSE:
                raise Wrong(f"was answered and should be refused: {'; '.join(verdict.refuse)}")
            if verdict.expected is not None:
                _demand_numbers(made, verdict.expected, answer.result)
                self.counts["checked"] += 1
            else:
                self.counts["unchecked"] += 1
            _demand_untouched(made, "out")
        except Wrong as wrong:
            raise Wrong(f"{wrong}\n  {made.call!r}\n  may: {verdict.may}, refuse: {verdict.refuse}") from answer.error

    def _demand_error(self, error: BaseException, verdict: Verdict) -> None:
        if not isinstance(error, TilewrightError):
            raise Wrong(f"a raw {type(error).__name__}: {error}")
        told = f"[{error.rule}] {error.message}"
        if isinstance(error, InternalError):
            raise Wrong(f"a bug: {told}")
        if not (error.rule and error.remedy and str(error)):
            raise Wrong(f"an error without a rule or a remedy: {told}")
        again = pickle.loads(pickle.dumps(error))
        if type(again) is not type(error) or str(again) != str(error):
            raise Wrong(f"an error that does not survive pickling: {told}")
        self.counts[f"rule {error.rule}"] += 1
        if error.rule == "frozen":
            self.counts["not built"] += 1
            return
        if verdict.kind == MUST:
            raise Wrong(f"a right call was refused: {error}")
        if verdict.kind == MAY and isinstance(error, MachineError) and error.rule not in ("array-device", "memory"):
            raise Wrong(f"the machine is blamed: {error}")
        self.counts["refused"] += 1


def _turned(call: Call, turn: int) -> Call:
    """The same facts, other numbers."""
    if not turn:
        return call

    def other(one: Any) -> Any:
        return replace(one, seed=one.seed + 100 * turn) if isinstance(one, Array) else one

    return replace(
        call, a=other(call.a), b=other(call.b), c=other(call.c), ds=tuple(map(other, call.ds)), out=other(call.out)
    )


def _scramble(made: LiveCall) -> None:
    """What was packed is not read again."""
    live = made.lives["b"]
    shared = any(one is not live and one.base is live.base for one in made.lives.values())
    if live.view is not None and live.base is not None and not shared:
        live.base[...] = memory.POISON
        live.before = live.base.copy()


def _demand_untouched(made: LiveCall, written: str | None) -> None:
    """Every byte that is no element of the result is what it was."""
    result = made.lives.get(written) if written else None
    for name, live in made.lives.items():
        if live.base is None or live.before is None:
            continue
        same = live.base == live.before
        if result is not None and live.base is result.base:
            same |= result.mask().astype(bool)
        if not same.all():
            first = int(np.argmin(same)) - live.start
            raise Wrong(f"memory of {name} was changed, byte {first} from its first element")


def _demand_numbers(made: LiveCall, expected: Expected, result: Any) -> None:
    live = made.lives.get("out")
    if live is not None:
        if result is not live.thing:
            raise Wrong(f"the result is a {type(result).__name__}, not out itself")
        found = _floats(live.view if live.view is not None else live.thing)
    else:
        _demand_form(made, expected, result)
        found = _floats(result)
    if found.shape != expected.shape:
        raise Wrong(f"the result has shape {found.shape}, expected {expected.shape}")
    told = values.compare(found, expected.numbers, expected.dtype)
    if told:
        raise Wrong(told)


def _demand_form(made: LiveCall, expected: Expected, result: Any) -> None:
    """Library, element type and memory of a new result."""
    name = memory.NAMES[expected.dtype]
    if expected.library == "torch":
        right = type(result) is torch.Tensor and result.dtype == getattr(torch, name) and result.device.type == "cpu"
        recorded = any(getattr(one.recipe, "kind", "") == "grad" for one in made.lives.values())
        grown = right and not recorded and (result.requires_grad or result.grad_fn is not None)
        if not right or grown:
            raise Wrong(f"the result is a {type(result).__name__} of {getattr(result, 'dtype', None)}")
        return
    number = made.call.function == "matmul" and expected.shape == ()
    kinds = (np.generic,) if number else (np.ndarray,)
    if not isinstance(result, kinds) or (not number and type(result) is not np.ndarray):
        raise Wrong(f"the result is a {type(result).__name__}")
    if result.dtype != numpy_type(name):
        raise Wrong(f"the result holds {result.dtype}, expected {name}")
    for one in made.lives.values():
        if one.view is not None and isinstance(result, np.ndarray) and np.may_share_memory(result, one.view):
            raise Wrong("the new result lies in the memory of an operand")


def _floats(result: Any) -> Floats:
    with np.errstate(all="ignore"):
        if torch is not None and isinstance(result, torch.Tensor):
            with torch.no_grad():
                return np.asarray(result.detach().to(torch.float64).numpy())
        return np.asarray(np.asarray(result).astype(np.float64))
