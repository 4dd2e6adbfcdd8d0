"""How many blocks share a tile of keys: by multiprocessors, and by what sums cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilewright.arch import arch as arch_by_name
from tilewright.backends.cuda.attention_backward import KERNELS
from tilewright.backends.cuda.attention_backward.parts import MOST_PARTS, Work, best_parts, time_of
from tilewright.ops import op
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.problem_rules import problem_violations

BACKWARD = op("attention_backward")
H200 = arch_by_name("sm_90a")


def problem(heads_q: int, heads_kv: int, rows: int, batch: int = 1, **more: Any) -> AttentionBackwardProblem:
    return AttentionBackwardProblem(batch, heads_q, rows, rows, 128, heads_kv, dtype="bf16", **more)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [
        (problem(16, 2, 8192, window_right=0), 2, 8),  # a block of each, the longest twice the average
        (problem(4, 4, 1024), 2, 8),  # 32 blocks for 132 multiprocessors
        (problem(8, 8, 64), 1, 2),  # a step or none: nothing to share
        (problem(16, 16, 8192, 2, window_right=0), 1, 1),  # 2048 blocks
        (problem(16, 16, 512, 32), 1, 1),
        (problem(8, 8, 0), 1, 1),
    ],
)
def test_parts_by_cost(asked: AttentionBackwardProblem, least: int, most: int) -> None:
    assert least <= best_parts(asked, H200) <= most


def test_sums_weigh_against_parts() -> None:
    """Parts help while multiprocessors are idle, and no further; uneven work is shared out the better the more."""
    work = Work(blocks=32, longest=40e-6, all=32 * 40e-6, item=0.0, sums=1e-6, even=True, runs=1.0)
    assert time_of(work, 4, 132) < time_of(work, 2, 132) < time_of(work, 1, 132)
    assert time_of(work, 8, 132) > time_of(work, 4, 132)
    uneven = work._replace(sums=0.0, longest=400e-6, all=32 * 200e-6, even=False)
    assert time_of(uneven, 8, 132) < time_of(uneven, 4, 132) < time_of(uneven, 1, 132)
    alone = uneven._replace(blocks=2048, longest=900e-6, all=2048 * 200e-6, runs=64.0)  # the last are as long
    assert time_of(alone, 1, 132) > time_of(alone._replace(runs=1.0), 1, 132)


def test_a_head_that_the_cache_does_not_keep_is_shared() -> None:
    work = Work(blocks=512, longest=2e-3, all=512e-3, item=0.0, sums=1e-4, even=False, runs=8.0)
    assert time_of(work, 1, 132) < time_of(work, 4, 132)
    crowded = work._replace(crowd=2.0)
    assert time_of(crowded, 1, 132) > time_of(crowded, 4, 132) == time_of(work, 4, 132)


def test_blocks_in_turns_wait_for_each_other() -> None:
    """As long however few rows each has: in turns fewer parts are worth it."""
    work = Work(blocks=32, longest=40e-6, all=32 * 40e-6, item=0.0, sums=0.0, even=True, runs=1.0)
    turns = work._replace(followers=8)
    assert all(time_of(turns, parts, 132) > time_of(work, parts, 132) for parts in (1, 2, 4))
    assert time_of(turns, 1, 132) / time_of(turns, 4, 132) < time_of(work, 1, 132) / time_of(work, 4, 132)


def test_the_plan_says_its_parts() -> None:
    few = problem(16, 2, 8192, window_right=0)
    names = list(BACKWARD.split_plans(few, "sm_90a"))
    assert names[0].startswith("accumulators of all in ")
    assert "accumulators of dq" in names
    assert "no accumulators" in names
    dot, grad, convert = BACKWARD.stages(few, "sm_90a")
    assert grad.dkv_splits == convert.dkv_splits == best_parts(few, H200)
    assert dot.dkv_splits == 0
    assert grad.dkv_heads == 2 * grad.dkv_splits
    assert convert.parts("dk") == grad.dkv_splits
    assert convert.parts("dq") == 1
    many = problem(16, 16, 8192, 2)
    assert next(iter(BACKWARD.split_plans(many, "sm_90a"))) == "accumulators of dq"
    assert all(1 < parts <= MOST_PARTS for parts in KERNELS.dkv_splits(many, H200))


def test_parts_are_read_where_there_are_sums() -> None:
    asked = problem(8, 2, 100)
    assert asked.stage("grad", "dq", 3).dkv_splits == 0
    assert asked.stage("grad", "all", 3).dkv_heads == 6
    same = asked.stage("grad", "all", 4)  # a query head each: said in one way only
    assert same == asked.stage("grad", "all")
    assert same.dkv_heads == 8
    assert [one.rule for one in problem_violations(replace(same, dkv_splits=-1))] == ["dkv-splits"]
