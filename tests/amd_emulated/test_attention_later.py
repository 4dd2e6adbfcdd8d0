"""Pipelines of gfx950 that came with CK Tile's headers of late 2025, executed: blocks of the default pool by problems
drawn by seed, and numbers of key tiles that their loops treat each in its own way."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests import amd_toolchain, late_headers
from tests.amd_emulated.attention.drawing import Drawn, attempts, plain_problem
from tests.amd_emulated.workers import Workers
from tilewright import settings
from tilewright.arch import arch
from tilewright.backends.hip.attention import KERNELS
from tilewright.build import Builder
from tilewright.ops import op
from tilewright.ops.attention import AttentionSignature
from tilewright.ops.base import KernelSpec

SEED = int(os.environ.get("CATALOG_SEED") or random.SystemRandom().randrange(1 << 20))
DRAWN = 5
LIMIT = 400.0  # seconds of one problem
CASES: list[tuple[str, str, int, dict[str, Any]]] = [
    ("v3", "bf16", 128, {"mask": "window", "return_lse": True}),
    ("v3", "fp16", 128, {"varlen": True}),
    ("qr_async_trload", "fp16", 64, {"mask": "window", "return_lse": True}),
    ("qr_async_trload", "bf16", 64, {}),
]


@pytest.fixture(autouse=True)
def late(toolchain: None) -> Iterator[None]:
    if reason := late_headers.why_none():
        pytest.skip(reason)
    with amd_toolchain.in_force(), settings.override(ck_tile=str(late_headers.USUAL)):
        yield


@pytest.mark.parametrize(("pipeline", "kind", "head", "has"), CASES, ids=[f"{one[0]} {one[1]}" for one in CASES])
def test_kernel(pipeline: str, kind: str, head: int, has: dict[str, Any], workers: Workers) -> None:
    signature = AttentionSignature("forward", kind, kind, kind, head, head, **has)
    proposed = KERNELS.schedules("default", signature, arch("gfx950"))
    spec = KernelSpec("attention", signature, next(one for one in proposed if one.pipeline == pipeline), "gfx950")
    library = Builder().build_one(spec).path
    attention, rng = op("attention"), random.Random(f"later {SEED} {spec.name}")
    usual = plain_problem(spec, SEED)
    keys = spec.schedule.tile[1]
    counted = [Drawn(replace(usual.problem, seqlen_k=count * keys), seed=SEED + count) for count in (1, 2, 3, 4, 5)]
    drawn = [one for one in attempts(rng, spec) if not attention.supports(spec, one.problem)][:DRAWN]
    problems = [*([] if signature.varlen else counted), *drawn]
    results = [workers.prove_drawn(spec, library, one, must_serve=True, limit=LIMIT) for one in problems]
    wrong = [f"{one['label']}: {one['detail']}" for one in results if one["verdict"] != "right"]
    assert not wrong, f"{spec.name}, seed {SEED}:\n" + "\n".join(wrong)
