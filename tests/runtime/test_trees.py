"""Forests by sets of kernels: the same sums as a walk through each tree, to the bit, on every arch of this host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.learn.test_learn import forest
from tilewright.arch import runnable_host_archs
from tilewright.errors import TilewrightError
from tilewright.runtime import trees
from tilewright.runtime.trees import Forest, by_sets, distinct_decisions

WIDTH, PROBLEM = 7, 2
DEEP = 8


def summed(one: Forest, rows: Any) -> Any:
    """The reference: trees that look at the problem alone come first, then the others, each in its order."""
    feature, threshold, left = (one.nodes[name] for name in ("feature", "threshold", "left"))
    ends = np.r_[one.roots[1:], len(one.nodes)]
    inner = left != np.arange(len(one.nodes))
    alone = [not (inner[a:b] & (feature[a:b] >= PROBLEM)).any() for a, b in zip(one.roots, ends, strict=True)]
    common, told = one.base, np.zeros(len(rows))
    for wanted in (True, False):
        told = told if wanted else np.full(len(rows), common)
        for root, same in zip(one.roots, alone, strict=True):
            if same is not wanted:
                continue
            at = np.full(len(rows), root, np.int64)
            for _ in range(DEEP):
                with np.errstate(invalid="ignore"):
                    at = left[at] + (rows[np.arange(len(rows)), feature[at]] > threshold[at])
            values = one.nodes["value"][at].astype(np.float64)
            if wanted:
                common += float(values[0])
            else:
                told += values
    return told


@pytest.mark.sampled(12)
@pytest.mark.parametrize("arch", [each.name for each in runnable_host_archs()])
@pytest.mark.parametrize("count", [1, 8, 63, 64, 65, 130, 300, 600])
def test_sums_are_those_of_walks_to_the_bit(arch: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        library = trees.load_library(arch)
    except TilewrightError as error:
        pytest.skip(f"no compiler builds it: {error}")
    monkeypatch.setattr(trees, "_loaded", [library])
    for seed in range(4):
        one = forest(100 * count + seed, trees=37, deep=(1, 3, 5, DEEP)[seed])
        sets = by_sets(one, WIDTH, PROBLEM)
        assert sets is not None
        draw = np.random.default_rng(seed)
        problem, units = draw.normal(size=PROBLEM).astype(np.float32), float(np.float32(draw.normal()))
        kernel, both = draw.normal(size=(2, count)).astype(np.float32), draw.normal(size=(2, count))
        kernel[0, ::5], both[0, ::7], both[1, ::11], both[1, 1::13] = -0.0, np.nan, np.inf, -np.inf
        # A value that is a threshold goes left.
        both[0, :1] = one.nodes["threshold"][one.nodes["feature"] == 4].min(initial=0.5)
        asked = np.flatnonzero(draw.random(count) < 0.9) if count > 1 else np.zeros(1, np.int64)
        rows = np.empty((count, WIDTH), np.float32)
        rows[:, :2], rows[:, 2:4], rows[:, 4:6], rows[:, 6] = problem, kernel.T, both.T, units
        own = sets.kernel_features(kernel)
        desk = sets.desk(PROBLEM, own, len(both))
        desk.problem[:], desk.both[:], desk.kernel_places[: len(asked)] = problem, both, asked
        np.testing.assert_array_equal(sets.ask(desk, own, len(asked), units), summed(one, rows[asked]))


@pytest.mark.parametrize("seed", range(5))
def test_distinct_decisions_are_those_of_numpy_by_pairs(seed: int) -> None:
    draw = np.random.default_rng(seed)
    thresholds = draw.choice([-np.inf, -3.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 3e38, np.inf], 500).astype(np.float32)
    thresholds[::3] = draw.standard_normal(167).astype(np.float32)
    asked = draw.integers(0, 7, 500, np.int32)
    features, values, which = distinct_decisions(asked, thresholds)
    pairs = np.stack([asked, thresholds], axis=1).astype(np.float64) + 0.0
    expected, places = np.unique(pairs, axis=0, return_inverse=True)
    assert np.array_equal(np.stack([features, values], axis=1), expected)
    assert np.array_equal(which, places.reshape(-1))
    assert values.dtype == np.float32
