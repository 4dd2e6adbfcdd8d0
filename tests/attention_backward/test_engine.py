"""The op's part of the tile engine: sets are legal, the holdout stays apart, features are numbers or known words."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tests.attention_backward.drawing import BACKWARD
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.engine import engine
from tilewright.tune import problem_sets

PART = engine(BACKWARD)
TRAINING = [key for key, one in PART.problem_sets.items() if not one.holdout]


@lru_cache(maxsize=64)
def of(key: str) -> tuple[AttentionBackwardProblem, ...]:
    return tuple(problem_sets.problems(BACKWARD, key, "cpu"))


def test_the_sets_that_are_promised() -> None:
    promised = {"training", "finetune", "encoder", "packed", "mixed", "validation"}
    assert set(PART.problem_sets) == {*promised, "holdout"}
    assert len(of("holdout")) == len(set(of("holdout"))) == 160
    assert {one.varlen for one in of("packed")} == {True}
    assert any(one.dsink for one in of("packed")), "one of the models has sinks"
    assert (192, 128) in {(one.head_dim, one.head_dim_v) for one in of("training")}
    assert max(one.flops for one in of("validation")) <= 2e9, "quick to measure"


@pytest.mark.parametrize("key", [*TRAINING, "holdout"])
def test_a_set_holds_legal_problems_each_once(key: str) -> None:
    found = of(key)
    assert len(found) == len(set(found)) == len(PART.problem_sets[key])
    for target in ("x86_64_v3", "generic"):
        assert all(not BACKWARD.problem_violations(one, target) for one in found)


def test_no_training_set_holds_a_held_out_problem_or_its_neighbour() -> None:
    for name in TRAINING:
        assert not problem_sets.leaking(BACKWARD, of(name))
    held = of("holdout")[0]
    near = replace(held, batch=held.batch, deterministic=True)
    assert PART.near(held, near)
    assert PART.near(held, held.stage("grad"))
    assert not PART.near(held, replace(held, head_dim=held.head_dim + 8))


def test_kinds_and_features() -> None:
    assert {PART.family(one) for one in of("mixed")} == {"decoder", "encoder", "packed", "window"}
    assert PART.family(of("mixed")[0].stage("dot")) == "dot"
    words_of_features = getattr(PART, "problem_words")  # noqa: B009  an engine may have none
    for one in (*of("mixed")[:10], of("mixed")[0].stage("dot"), of("mixed")[0].stage("grad", "dq")):
        found = dict(zip(PART.problem_feature_names, PART.problem_features(one), strict=True))
        for name, value in found.items():
            words = words_of_features.get(name)
            assert value in words if words else np.isfinite(float(value)), name
    fields = {"tile_m": np.array([64.0, 48.0]), "tile_n": np.array([192.0, 384.0])}
    made = PART.interactions(of("mixed")[0], fields, 2)
    assert len(made) == len(PART.interaction_names)
    assert all(np.isfinite(one).all() and one.shape == (2,) for one in made)
