"""Problems with nothing in them find a kernel on every target: no estimate divides by what is not there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw

TARGETS = ("generic", "x86_64_v3", "x86_64_v4_bf16", "sm_80", "sm_90a", "gfx942", "gfx1100")
COUNT = 12  # of each op


def _convolutions(rng: random.Random) -> Iterator[Any]:
    for _ in range(COUNT):
        dims, groups = rng.randint(1, 3), rng.choice((1, 1, 2, 32, 96))
        window = tuple(rng.choice((1, 3, 5)) for _ in range(dims))
        yield tw.ConvProblem(
            batch=0,
            channels=groups * rng.choice((1, 2, 3, 8, 64)),
            filters=groups * rng.choice((1, 2, 3, 8, 64)),
            size=tuple(rng.choice((5, 7, 14, 56)) for _ in range(dims)),
            window=window,
            groups=groups,
            stride=tuple(rng.choice((1, 2, 5)) for _ in range(dims)),
            before=tuple(w // 2 for w in window),
            after=tuple(w // 2 for w in window),
            variant=rng.choice(("forward", "backward_data", "backward_weight")),
            dtype=rng.choice(("bf16", "fp16", "fp32")),
        )


def _attentions(rng: random.Random) -> Iterator[Any]:
    for _ in range(COUNT):
        batch, rows, keys = rng.choice(((0, 5, 7), (0, 1, 4096), (2, 0, 7), (2, 5, 0), (0, 0, 0)))
        yield tw.AttentionProblem(
            batch=batch,
            heads_q=8,
            heads_kv=rng.choice((1, 2, 8)),
            seqlen_q=rows,
            seqlen_k=keys,
            head_dim=rng.choice((8, 64, 128, 576)),
            head_dim_v=rng.choice((64, 128, 512)),
            dtype_q=rng.choice(("bf16", "fp16", "fp32")),
            window_right=rng.choice((-1, 0)),
            varlen=rng.random() < 0.3,
            return_lse=rng.random() < 0.5,
        )


def _products(rng: random.Random) -> Iterator[Any]:
    for _ in range(COUNT):
        sizes = [rng.choice((0, 1, 17, 512)) for _ in range(3)]
        sizes[rng.randrange(3)] = 0
        m, n, k = sizes
        dtype, layout = rng.choice(("bf16", "fp16", "fp32", "int8")), rng.choice(("rcr", "rrr", "crr", "ccr"))
        yield tw.GemmProblem(m=m, n=n, k=k, dtype_a=dtype, layout=layout, batch=rng.choice((0, 1, 3)))


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_to_do_has_a_kernel(target: str) -> None:
    registry, rng = tw.Registry(target), random.Random(41907)
    for problem in (*_convolutions(rng), *_attentions(rng), *_products(rng)):
        assert registry.select(problem).seconds > 0.0, problem
