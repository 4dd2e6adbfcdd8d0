"""A choice made in one call of C is the one that Python makes of the same parts, with the same words."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.native import drawn_conv, drawn_gemm
from tilewright import Registry, ops, settings
from tilewright.backends.cpu.gemm import KERNELS
from tilewright.dispatch import learned
from tilewright.dispatch.chooser import Chooser, chooser
from tilewright.dispatch.judged import Asking
from tilewright.dispatch.model_files import shipped, shipped_names
from tilewright.native.library import library

pytestmark = pytest.mark.skipif(library(KERNELS.native) is None, reason="no compiler builds the selection library")


@pytest.fixture(autouse=True)
def asked() -> Iterator[None]:
    with settings.override(models=True):
        yield


DRAWN: dict[str, Any] = {"gemm": drawn_gemm.problem, "conv": drawn_conv.problem}
COUNT = 150


def questions(name: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Registry, Any, Any, Asking]]:
    """Problems that the model `name` has something to say of, with what is asked of them."""
    card = shipped(name).card
    device, target, op = dict(card.devices[0]), card.targets[0], ops.op(card.op)
    monkeypatch.setattr(learned, "machine", lambda *_: device)
    registry, r, found = Registry(target), random.Random(name), []
    for _ in range(20 * COUNT):
        problem = op.measured_as(DRAWN[op.name](r, target))
        signature = op.signature_of(problem)
        candidates, registered = registry._candidates(op, signature)
        judge = registry._judges.judge_for(op, signature, candidates, registered)
        if judge is None or op.measured_as(problem) is not problem:
            continue
        asking = registry._judges._asking(judge, registry.arch, 2)
        if asking.voices:
            found.append((registry, op, problem, asking))
        if len(found) == COUNT:
            break
    assert len(found) > COUNT / 3
    return found


def both(registry: Registry, op: Any, problem: Any, asking: Asking) -> list[Any]:
    """What is chosen with C and without."""
    askings = asking, asking._replace(chooser=None)
    return [registry._judges.chosen(each, op, problem, registry.arch, 2) for each in askings]


@pytest.mark.parametrize("name", shipped_names())
def test_choices_and_words_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers = set()
    for registry, op, problem, asking in questions(name, monkeypatch):
        assert asking.chooser is not None
        in_c, in_python = both(registry, op, problem, asking)
        assert in_c == in_python, problem
        tiers.add(in_c.tier if in_c is not None else "")
    assert "model" in tiers


@pytest.mark.parametrize("name", shipped_names())
def test_kernels_newer_than_the_model_are_set_beside_its_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = 0
    for number, (registry, op, problem, asking) in enumerate(questions(name, monkeypatch)):
        (model, pool), judge = asking.voices[0], asking.judge
        r = random.Random(number)
        some = r.sample(range(len(judge.specs)), r.randrange(1, 1 + len(judge.specs)))
        voices = ((model, replace(pool, new=dict.fromkeys(some, ("something",)))),)
        mine = asking._replace(voices=voices, chooser=chooser(judge, voices, 2, learned.units_of(registry.arch, 2)))
        assert mine.chooser is not None
        in_c, in_python = both(registry, op, problem, mine)
        assert in_c == in_python, problem
        newer += in_c is not None and "newer than the model" in in_c.reason
    assert newer


@pytest.mark.parametrize("name", ["gemm-zen4-avx512"])
def test_threads_ask_at_desks_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    asked = [(asking.chooser, problem) for _, _, problem, asking in questions(name, monkeypatch)]

    def answers(_: int) -> list[Any]:
        return [one.choose(problem) for one, problem in asked if one is not None]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(answers, range(8)))
    assert all(one == found[0] for one in found)


def test_an_estimate_that_is_no_number_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """An infinite rate of the arch makes estimates infinite, and the model says nothing of such."""
    registry, op, problem, asking = questions("gemm-zen4-avx512", monkeypatch)[0]
    assert isinstance(asking.chooser, Chooser)
    known = asking.judge._kernels.rates(registry.arch)
    asking.judge.use_rates(registry.arch.name, dict.fromkeys(known, np.inf))
    in_c, in_python = both(registry, op, problem, asking)
    assert in_c == in_python
    assert in_c is None or in_c.tier == "heuristic"
    asking.judge.use_rates(registry.arch.name, known)
