"""The garbage collector does not look at plans, and what is forgotten is freed all the same."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.dispatch.registry import Registry
from tilewright.runtime import fast_path, plans, untracked

pytestmark = pytest.mark.skipif(untracked._function is None, reason="this Python has no such function")


def calls(registry: Registry, op: str, first: int, count: int) -> None:
    for size in range(first, first + count):
        if op == "gemm":
            registry.run("gemm", np.ones((size, 8), np.float32), np.ones((8, 8), np.float32))
        else:
            q = np.ones((1, size, 2, 32), np.float32)
            registry.run("attention", q, q, q)


def tracked(of: Any) -> list[Any]:
    """What a plan is made of and the collector looks at, less what plans share."""
    found, seen, left = [], set[int](), [of]
    while left:
        one = left.pop()
        if id(one) in seen or (type(one) not in untracked._ours and not isinstance(one, untracked._ctypes)):
            continue
        seen.add(id(one))
        found += [one] if gc.is_tracked(one) else []
        left += gc.get_referents(one)
    return found


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("op", ["gemm", "attention"])
@pytest.mark.parametrize("native", [True, False])
def test_plans_are_not_looked_at_where_there_are_many(op: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native:
        assert (fast_path.library() is None) == (untracked._native is None)
    else:
        monkeypatch.setattr(untracked, "_native", None)
    monkeypatch.setattr(untracked, "MANY", 0)
    registry = Registry()
    calls(registry, op, 3, 5)
    assert not registry.plans().fast, "a size that may never come back"
    calls(registry, op, 3, 5)
    held = registry.plans()
    assert len(held) == 5
    for key, planned in held.known.items():
        assert tracked(planned) == []
        assert tracked(key) == []
    prepared = [one for alike in held.fast.values() for one in alike.values()]
    assert len(prepared) == 5 or fast_path.library() is None
    assert [found for one in prepared for found in tracked(one)] == []
    assert [found for pair in registry._selections.items() for one in pair for found in tracked(one)] == []


@pytest.mark.usefixtures("needs_compiler")
@pytest.mark.parametrize("op", ["gemm", "attention"])
def test_what_is_forgotten_is_freed(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some fifty objects a plan: if they stayed, 300 plans would be 15,000 blocks.  Other caches may grow meanwhile."""
    from tilewright.dispatch import registry as dispatch_registry

    monkeypatch.setattr(untracked, "MANY", 0)
    monkeypatch.setattr(plans, "MOST_PLANS", 32)
    monkeypatch.setattr(dispatch_registry, "MOST_REMEMBERED", 32)
    registry = Registry()
    calls(registry, op, 1, 200)
    gc.collect()
    before = sys.getallocatedblocks()
    calls(registry, op, 201, 300)
    gc.collect()
    assert sys.getallocatedblocks() - before < 9000


def test_objects_of_others_stay_in_sight() -> None:
    class Theirs:
        pass

    one = Theirs()
    one.itself = one  # type: ignore[attr-defined]
    untracked.settle((one,), tw.GemmProblem(1, 2, 3))
    assert gc.is_tracked(one)
