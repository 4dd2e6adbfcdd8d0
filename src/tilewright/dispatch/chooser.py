"""A choice by a learned model in one call of C: limits, estimates, features and trees, with what can be prepared once.

A chooser is of the kernels of a signature, the first model that has something to say of them, and a number of threads.
Where it cannot decide (a problem beyond the model's training, an estimate that is no number) the other models and the
estimate are asked, in Python.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from tilewright.arch.host import dual_fma, l2_bytes
from tilewright.dispatch.learned import by_model
from tilewright.dispatch.model import Voices
from tilewright.dispatch.selection import Chosen, Selection
from tilewright.native.judge import Judge
from tilewright.ops.features import ABSENT
from tilewright.runtime.trees import CHOICE_ANSWERS, CHOICE_ANSWERS_AT, Desk

_answers, _ANSWERS_AT = CHOICE_ANSWERS.unpack_from, CHOICE_ANSWERS_AT
_UNCLEAR, _SILENT, _BY_MODEL = -2, -1, 1  # `Decision` of native/trees.cpp; 0: there was nothing to ask a model


class _Desk:
    """Where a thread puts its questions down."""

    def __init__(self, owner: Chooser) -> None:
        judge, count = owner.judge, len(owner.judge.specs)
        self.numbers = ctypes.create_string_buffer(judge.packed.size)
        self.rules, self.estimates = np.zeros(count, np.int64), np.zeros(count)
        self.known, self.seconds = np.zeros(count), np.zeros(count)
        self.question = judge.question(ctypes.addressof(self.numbers), self.rules, self.estimates, owner.threads)
        self.words = (ctypes.c_float * max(1, len(owner.words)))()
        self.trees: Desk = owner.sets.desk(owner.width, owner.own, owner.both)
        self.choice = choice = owner.sets.choice(self.trees, owner.own, owner.units)
        start, answers = ctypes.addressof(self.question), type(self.question)
        choice.ask, choice.question, choice.numbers = judge.ask_place, start, ctypes.addressof(self.numbers)
        choice.served = start + answers.served.offset
        choice.rules, choice.known = self.rules.ctypes.data, self.known.ctypes.data
        choice.problem_features, choice.kernel_features, choice.terms = owner.features.places
        choice.words, choice.word_at = ctypes.addressof(self.words), owner.word_at.ctypes.data
        choice.unseen = owner.unseen.ctypes.data
        choice.word_count, choice.unseen_count = len(owner.words), len(owner.unseen)
        choice.estimated = owner.model.frame.estimated
        wanted = choice.wanted
        choice.rough = owner.rough.ctypes.data
        wanted.estimates, wanted.seconds = self.estimates.ctypes.data, self.seconds.ctypes.data
        wanted.low, wanted.high = owner.model.range_places
        wanted.far, wanted.trust = owner.model.card.far, owner.model.card.trust
        self.place = ctypes.addressof(choice)


class _Desks(threading.local):
    def __init__(self) -> None:
        self.mine: _Desk | None = None


class Chooser:
    """Of one model and the kernels of one signature."""

    def __init__(self, judge: Judge, voices: Voices, threads: int, units: int, parts: Any) -> None:
        model, pool = voices[0]
        self._alone = len(voices) == 1  # no other model is asked where this one says nothing
        self.judge, self.model, self.threads, self.units = judge, model, threads, units
        self.sets, self.own, self.features = parts
        self.width, self.both = len(model.frame.problem_columns), model.frame.both_count
        self.words = [(name, numbers) for _, name, numbers in model.frame.problem_words]
        self.word_at = np.array([at for at, _, _ in model.frame.problem_words], np.int64)
        self.unseen = np.array(sorted(pool.new), np.int64)
        self._pool = pool  # its fields are read by C
        self._unseen = frozenset(pool.new)
        self._numbers, self._pack = judge.numbers, judge.packed.pack_into
        self.rough, self._choose = np.array(model.card.rough, np.float64), self.sets.choose
        self._desks = _Desks()

    def choose(self, problem: Any) -> Chosen | None:
        """None where it cannot decide."""
        desk = self._desks.mine
        if desk is None:
            desk = self._desks.mine = _Desk(self)
        self._pack(desk.numbers, 0, *self._numbers(problem))
        desk.question.l2_bytes, desk.question.dual_fma = l2_bytes(), dual_fma()
        for at, (name, numbers) in enumerate(self.words):
            desk.words[at] = numbers.get(getattr(problem, name), ABSENT)
        self._choose(desk.place)
        decided, first, second, served, best, *seconds = _answers(desk.choice, _ANSWERS_AT)
        if decided == _BY_MODEL:
            rival = -1 if first not in self._unseen else self._rival(desk)
            return Chosen(served, first, seconds[0], second, seconds[1], True, rival)
        if decided == _UNCLEAR or (decided == _SILENT and not self._alone):
            return None
        return Chosen(served, best, seconds[2])

    def _rival(self, desk: _Desk) -> int:
        """The model's own choice."""
        others = desk.seconds.copy()
        others[self.unseen] = np.inf
        return int(others.argmin())

    def selection(self, chosen: Chosen) -> Selection:
        """What the model chose, for `explain`."""
        return by_model(self.model.name, self.model.card.sigma, self.judge.specs, chosen)


def chooser(judge: Judge, voices: Voices, threads: int, units: int) -> Chooser | None:
    """None where Python must ask: kernels that only Python knows, no model, or one that C does not know whole."""
    if judge.mixed or not voices:
        return None
    model, pool = voices[0]
    parts = model.in_c(pool, units)
    return None if parts is None else Chooser(judge, voices, threads, units, parts)
