"""The CPU's tiled kernels at every ISA level, on problems drawn by seed, against float64, under fences."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from tests.attention_backward.drawing import BACKWARD, LENGTHS, gapped, kind, problem
from tests.attention_backward.harness import prove, prove_whole
from tests.built import why_not_run
from tilewright.arch import best_host_arch
from tilewright.dispatch.kernels import kernel
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.usefixtures("needs_compiler")

LEVELS = ("generic", "x86_64_v3", "x86_64_v4", "x86_64_v4_bf16")
LONGER = (*LENGTHS, 130, 200, 401)
PROOF = 5000  # problems, over the seeds of the proof
SEEDS = 250


def tiled(signature: Any, arch: str) -> KernelSpec:
    return next(one for one in BACKWARD.candidates(signature, arch) if one.schedule.label().startswith("tiled"))


def prove_tiles(arch: str, seed: int, problems: int, dtype: str, **more: Any) -> None:
    draw = random.Random(f"{arch} {seed}")
    of = {**kind(draw, dtype=dtype), **more}
    for index in range(problems):
        stage = gapped(draw, problem(draw, of, lengths=LONGER)).stage("grad")
        prove(kernel(tiled(stage.signature, arch)), stage, seed, 1 + index % 3)


@pytest.mark.sampled(5)  # every level, and every type
@pytest.mark.parametrize("arch", LEVELS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_tiles_are_right_at_every_level(arch: str, dtype: str) -> None:
    if reason := why_not_run(arch):
        pytest.skip(reason)
    for seed in range(2):
        prove_tiles(arch, seed, 5, dtype)


@pytest.mark.sampled(5)  # every feature
@pytest.mark.parametrize("feature", ["dropout", "dbias", "dalibi", "softcap"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_tiles_have_every_feature(feature: str, dtype: str) -> None:
    bias = {"dbias": "tensor", "dalibi": "alibi"}.get(feature, "none")
    more: dict[str, Any] = {"bias": bias, "dtype_aux": "fp32", "dbias": False, "dalibi": False, feature: True}
    prove_tiles(best_host_arch().name, 7, 6, dtype, **more)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "size", [(64, 64), (128, 128), (96, 96), (192, 128), (256, 256), (80, 80), (160, 160), (64, 96)]
)
def test_tiles_of_every_size_of_heads(size: tuple[int, int]) -> None:
    for dtype in ("fp32", "bf16"):
        one = AttentionBackwardProblem(1, 2, 70, 210, size[0], 1, size[1], dtype=dtype, window_right=0,
                                       align="bottom_right").stage("grad")  # fmt: skip
        prove(kernel(tiled(one.signature, best_host_arch().name)), one, 1, 2)


@pytest.mark.parametrize("count", [2, pytest.param(None, marks=pytest.mark.proof)])
def test_every_schedule_of_the_full_pool_is_right(count: int | None) -> None:
    """The first two are quick, all of them a proof."""
    arch = best_host_arch().name
    one = AttentionBackwardProblem(2, 2, 100, 430, 64, 1, window_left=300, window_right=5).stage("grad")
    specs = list(BACKWARD.proposals("full", arch, **BACKWARD.axes_of(one.signature)))
    assert len({spec.schedule for spec in specs}) > 2
    for spec in specs[:count]:
        if not BACKWARD.check(spec):
            prove(kernel(spec), one, 2, 2)


def test_keys_in_parts_are_added_in_order() -> None:
    """Few heads and many keys: dq is the sum over parts."""
    registry = Registry(best_host_arch().name)
    added: dict[str, Any] = {"bias": "tensor", "bias_shape": (1, 1, 40, 1300), "dbias": True}
    leaning: dict[str, Any] = {"bias": "alibi", "dalibi": True}
    for more in ({}, added, leaning):
        one = AttentionBackwardProblem(1, 2, 40, 1300, 32, 1, window_left=900, window_right=100, **more)
        prove_whole(registry, one)


@pytest.mark.proof
@pytest.mark.part(20)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_five_thousand_problems(seed: int) -> None:
    """Whole calls, stages and all, on this machine's best level; each seed is a kind of kernel of its own."""
    draw, registry = random.Random(f"proof {seed}"), Registry(best_host_arch().name)
    of = kind(draw)
    shaped = partial(problem, draw, of, lengths=(*LENGTHS, 130))
    for index in range(PROOF // SEEDS):
        prove_whole(registry, gapped(draw, shaped()), seed + index)
