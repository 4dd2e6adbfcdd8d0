"""Attention's part of the tile engine: sets are legal, the holdout stays apart, features are numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from tests.attention.drawing import ATTENTION
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention_models import DECODERS, ENCODERS
from tilewright.ops.engine import engine
from tilewright.ops.features import Frame, kernel_columns, vocabulary
from tilewright.tune import instances, problem_sets

PART = engine(ATTENTION)
TRAINING = [key for key, one in PART.problem_sets.items() if not one.holdout]


@lru_cache(maxsize=64)
def of(key: str) -> tuple[AttentionProblem, ...]:
    return tuple(problem_sets.problems(ATTENTION, key, "cpu"))


def test_the_sets_that_are_promised() -> None:
    promised = {"prefill", "decode", "decode_paged", "mla", "encoder", "long", "serving", "mixed", "validation",
                "ck_smoke", "ck_full"}  # fmt: skip
    assert set(PART.problem_sets) == {*promised, "holdout"}
    assert len(of("holdout")) == len(set(of("holdout"))) == 240
    assert {one.seqlen_q for one in of("decode_paged")} == {1}
    assert {(one.head_dim, one.head_dim_v) for one in of("mla")} == {(576, 512)}
    assert max(one.seqlen_k for one in of("long")) == 131072
    assert {one.varlen for one in of("serving")} == {True, False}
    assert max(one.flops for one in of("validation")) <= 4.1e9, "quick to measure"
    assert len(DECODERS) >= 15
    assert len(ENCODERS) >= 10


@pytest.mark.parametrize("key", [*TRAINING, "holdout"])
def test_a_set_holds_legal_problems_each_once(key: str) -> None:
    found = of(key)
    assert len(found) == len(set(found)) == len(PART.problem_sets[key])
    for target in ("x86_64_v3", "sm_90a", "gfx942"):
        assert all(not ATTENTION.problem_violations(one, target) for one in found)


def test_no_training_set_holds_a_held_out_problem_or_its_neighbour() -> None:
    held: dict[Any, list[Any]] = {}
    for one in of("holdout"):
        key = (one.heads_q, one.heads_kv, one.head_dim, one.window_left, one.window_right, one.varlen, one.pages)
        held.setdefault(key, []).append(np.log([one.batch, one.seqlen_q, one.seqlen_k]))
    near = math.log(1.0001)
    for name in TRAINING:
        assert not problem_sets.leaking(ATTENTION, of(name))
        for one in of(name):
            key = (one.heads_q, one.heads_kv, one.head_dim, one.window_left, one.window_right, one.varlen, one.pages)
            for other in held.get(key, ()) if not one.varlen and one.pages == "none" else ():
                assert np.abs(np.log([one.batch, one.seqlen_q, one.seqlen_k]) - other).max() > near, (name, one)


def test_a_leak_is_seen_however_its_window_is_spelled() -> None:
    """One that bounds nothing, by what the reference says each row sees, is no window."""
    held, far = of("holdout"), 1 << 20
    wide = [
        replace(one, window_left=far if one.window_left < 0 else one.window_left,
                window_right=far if one.window_right < 0 else one.window_right)
        for one in held
        if one.family == "forward" and -1 in (one.window_left, one.window_right)
    ]  # fmt: skip
    assert len(wide) > 150
    assert problem_sets.leaking(ATTENTION, wide) == wide
    values = {"batch": 2, "heads_q": 3, "seqlen_q": 1, "seqlen_k": 300, "head_dim": 64}
    every = ATTENTION.problem(values)
    last = replace(every, window_right=0, align="bottom_right")
    first = replace(every, window_right=0, align="top_left")
    assert (every.pairs, last.pairs, first.pairs) == (1800, 1800, 6)
    assert PART.near(every, last)
    assert not PART.near(every, first)
    square = replace(every, seqlen_q=300, window_left=20, window_right=0)
    assert PART.near(replace(square, align="top_left"), replace(square, align="bottom_right"))
    assert not PART.near(square, replace(square, window_left=299))


def test_a_leak_is_seen_in_any_type() -> None:
    held = PART.problem_sets["holdout"].values[0]
    same = ATTENTION.problem({**held, "datatype": "bf16", "softcap": True})
    larger = ATTENTION.problem({**held, "batch": held["batch"] * 20})
    assert problem_sets.leaking(ATTENTION, [same, larger]) == [same]


@pytest.mark.parametrize("target", ["x86_64_v3", "sm_90a", "gfx942"])
def test_the_stages_of_a_held_out_problem_are_held_out_too(target: str) -> None:
    """A sweep measures stages: the keys in parts, and the parts joined."""
    stages = {
        ATTENTION.measured_as(stage)
        for one in of("holdout")
        for way in ATTENTION.split_plans(one, target).values()
        for stage in way
    }
    assert target == "x86_64_v3" or {"split", "combine"} <= {one.family for one in stages}
    assert len(problem_sets.leaking(ATTENTION, stages)) == len(stages)


def test_where_no_window_is_nothing_says_where_it_lies() -> None:
    held = next(one for one in of("holdout") if (one.window_left, one.window_right) == (-1, -1))
    both = [replace(held, align="bottom_right"), replace(held, align="top_left")]
    assert problem_sets.leaking(ATTENTION, both, [held]) == both


def test_random_ones_are_told_by_their_seed_and_of_every_family() -> None:
    for device in ("cpu", "cuda"):
        found = [ATTENTION.problem(one) for one in PART.random(5, 64, device)]
        assert found == [ATTENTION.problem(one) for one in PART.random(5, 64, device)]
        assert {PART.family(one) for one in found} >= {"prefill", "decode", "paged", "packed", "window", "chunk"}
        assert all(one.pairs * (one.head_dim + one.head_dim_v) <= (4e9 if device == "cpu" else 4e12) for one in found)


def test_features_are_numbers_that_tell_problems_apart() -> None:
    p = AttentionProblem(2, 8, 128, 512, 64, 2, window_right=0)
    names = PART.problem_feature_names
    assert len(PART.problem_features(p)) == len(names)
    other: dict[str, Any] = {"log2_batch": {"batch": 4}, "softcap": {"softcap": True}, "lengths_k": {"seqlens_k": True},
                             "bottom_right": {"align": "bottom_right"}, "log2_window": {"window_left": 31},
                             "head_v": {"head_dim_v": 32}, "splits": {"num_splits": 4}}  # fmt: skip
    for name, changed in other.items():
        made = replace(p.dense(), q_strides=(), k_strides=(), v_strides=(), o_strides=(), **changed)
        differ = [
            a for a, b, c in zip(names, PART.problem_features(p), PART.problem_features(made), strict=True) if b != c
        ]
        assert name in differ
    found = PART.interactions(p, {"tile_m": np.array([64.0, 128.0]), "tile_n": np.array([64.0, 0.0])}, 2)
    assert len(found) == len(PART.interaction_names)
    assert all(np.isfinite(one).all() and one.shape == (2,) for one in found)


def test_configurations_that_ship_hold_legal_kernels() -> None:
    for target in ("x86_64_v3", "sm_90a", "gfx942"):
        data = instances.load(ATTENTION, "", target)
        found = instances.expand(ATTENTION, data, target)
        assert found.specs, target


@pytest.mark.parametrize("arch", ["x86_64_v3", "sm_90a", "gfx942"])
def test_a_models_rows_are_whole_for_every_kernel(arch: str) -> None:
    problem = AttentionProblem(2, 8, 128, 512, 128, 2, dtype_q="bf16", window_right=0)
    specs = list(ATTENTION.candidates(problem.signature, arch))
    assert specs
    words = vocabulary(specs, kernel_columns(ATTENTION.schedules))
    frame = Frame(PART, kernel_columns(ATTENTION.schedules), words)
    rows = frame.rows(specs, problem, 8)
    assert rows.shape == (len(specs), len(frame.columns))
    assert np.isfinite(rows).all()
