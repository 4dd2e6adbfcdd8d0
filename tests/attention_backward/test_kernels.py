"""The kernels of every stage against float64: problems of every kind by seed, under fences."""

from __future__ import annotations

import random

import pytest

from tests.attention_backward.drawing import BACKWARD, gapped, kind, problem
from tests.attention_backward.harness import BINDING, prove, prove_whole
from tilewright.arch import best_host_arch
from tilewright.dispatch.kernels import kernel
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.runtime.bindings.attention_backward import stages
from tilewright.runtime.bindings.attention_backward.args import BackwardArgs, DotArgs
from tilewright.runtime.bindings.attention_backward.request import made_up

pytestmark = pytest.mark.usefixtures("needs_compiler")


def _prove_floor(seed: int, arch: str) -> None:
    draw = random.Random(seed)
    of = kind(draw)
    for index in range(6):
        whole = gapped(draw, problem(draw, of))
        assert not BACKWARD.problem_violations(whole, arch), whole
        for stage in BACKWARD.stages(whole, arch):
            floor = BACKWARD.fallback_spec(stage.signature, arch)
            assert not BACKWARD.check(floor)
            assert not BACKWARD.supports(floor, stage)
            prove(kernel(floor), stage, seed, 1 + index % 2)


@pytest.mark.parametrize("seed", range(6))
def test_the_loops_are_right_on_the_plain_target(seed: int) -> None:
    _prove_floor(seed, "generic")


@pytest.mark.parametrize("seed", range(100, 104))
def test_the_loops_are_right_on_this_machine(seed: int) -> None:
    _prove_floor(seed, best_host_arch().name)


@pytest.mark.parametrize("accumulate", ["dq", "dkv", "all"])
def test_sums_of_fp32_are_converted(accumulate: str) -> None:
    """No kernel of a CPU leaves them: those of GPUs do."""
    arch = best_host_arch().name
    for seed, dtype in enumerate(("fp32", "bf16", "fp16")):
        draw = random.Random(accumulate + dtype)
        whole = gapped(draw, problem(draw, kind(draw, dtype=dtype)))
        stage = whole.stage("convert", accumulate)
        for spec in (*BACKWARD.candidates(stage.signature, arch), BACKWARD.fallback_spec(stage.signature, arch)):
            prove(kernel(spec), stage, seed, 2)


def test_whole_calls_are_right_and_take_two_stages() -> None:
    registry = Registry(best_host_arch().name)
    one = AttentionBackwardProblem(2, 4, 65, 70, 32, 2, 24, window_right=0, dlse=True, dsink=True)
    assert [each.family for each in BACKWARD.stages(one, registry.target)] == ["dot", "grad"]
    prove_whole(registry, one)


def test_the_check_in_c_refuses_what_the_kernel_has_not() -> None:
    one = AttentionBackwardProblem(1, 2, 3, 4, 16).stage("grad")
    floor = kernel(BACKWARD.fallback_spec(one.signature, "generic"))
    (stage,) = BINDING.dense(one).stages
    assert not floor.refusal(stage.args)
    for field, value, said in (
        ("head_qk", 40, "larger than those"),
        ("heads_kv", 3, "no multiple"),
        ("dkv_heads", 5, "not those of keys"),
        ("window_right", 0, "window"),
        ("softcap", 1.0, "soft cap"),
        ("rows", -1, "negative"),
    ):
        args = type(stage.args).from_buffer_copy(stage.args)
        setattr(args, field, value)
        assert said in floor.refusal(args), field


def test_dot_clears_the_accumulator_where_its_kernels_can() -> None:
    """On NVIDIA GPUs, in a call: a stage by itself clears what it adds to."""
    one = AttentionBackwardProblem(2, 4, 300, 300, 64, dtype="bf16")
    dot, grad, _ = made_up(one, "sm_90a").stages
    (pointer,) = (each for each in dot.pointers if each.offset == DotArgs.cleared.offset)
    (sums,) = (each for each in grad.pointers if each.offset == BackwardArgs.dq.offset)
    assert (pointer.slot, pointer.shift) == (sums.slot, sums.shift)
    assert dot.args.cleared_bytes == 4 * 2 * 4 * 384 * 64
    assert grad.args.dq_cleared == 1
    for stage in (
        *stages.alone(grad.problem).stages,
        *made_up(one, "gfx942").stages,
    ):
        assert not getattr(stage.args, "dq_cleared", 0)
        assert not getattr(stage.args, "cleared_bytes", 0)
