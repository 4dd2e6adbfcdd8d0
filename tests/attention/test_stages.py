"""Plans of three stages and more: keys appended to a cache, their parts walked, the parts put together, as one call.

Attention's backward pass is such a plan: a workspace between stages that is larger than one of
them, operands that one stage writes and the next reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.attention.drawing import ATTENTION
from tests.attention.oracle import batched
from tilewright.dispatch.kernels import kernel
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.bindings.attention import stages
from tilewright.runtime.plans import Plan
from tilewright.runtime.requests import Request, StageRequest

pytestmark = pytest.mark.usefixtures("needs_compiler")


def moved(stage: StageRequest, slots: Mapping[int, int]) -> StageRequest:
    """The stage with other operands in the place of some."""
    return replace(stage, pointers=tuple(replace(one, slot=slots.get(one.slot, one.slot)) for one in stage.pointers))


def read_from_cache(stage: StageRequest) -> StageRequest:
    """Its keys are those of the cache, and how many there are another table says."""
    return moved(stage, {stages.K: stages.CACHE_K, stages.V: stages.CACHE_V})


@pytest.mark.parametrize("threads", [1, 2])
def test_three_stages_are_one_plan(threads: int) -> None:
    batch, new, room, heads, heads_kv, size = 2, 3, 40, 4, 2, 32
    rng = np.random.default_rng(threads)
    cache_k, cache_v = (rng.standard_normal((batch, room, heads_kv, size), np.float32) for _ in range(2))
    k, v = (rng.standard_normal((batch, new, heads_kv, size), np.float32) for _ in range(2))
    q = rng.standard_normal((batch, new, heads, size), np.float32)
    before = np.array([30, 7], np.int32)
    after, out = before + np.int32(new), np.full((batch, new, heads, size), np.nan, np.float32)
    adding = AttentionProblem(batch, heads_kv, new, room, size, heads_kv, family="append", seqlens_k=True)
    whole = AttentionProblem(batch, heads, new, room, size, heads_kv, seqlens_k=True, window_right=0,
                             align="bottom_right")  # fmt: skip
    parts, last = whole.part(3), whole.combined(3)
    request = Request(
        "attention",
        (stages.append(adding), read_from_cache(stages.forward(parts, between=True)), stages.combine(last, True)),
        stages.results(whole),
        between_bytes=stages.whole((parts, last), stages.OperandLayout(), ()).between_bytes,
    )
    kernels = [kernel(ATTENTION.fallback_spec(one.problem.signature, "generic")) for one in request.stages]
    plan = Plan(request, kernels, (), threads)
    assert plan.scratch_bytes >= request.between_bytes > 0
    given = {stages.Q: q, stages.K: k, stages.V: v, stages.CACHE_K: cache_k, stages.CACHE_V: cache_v,
             stages.CACHE_SEQLENS: before, stages.SEQLENS_K: after, stages.OUT: out}  # fmt: skip
    addresses = [int(given[slot].ctypes.data) if slot in given else 0 for slot in range(len(stages.SLOTS))]
    plan.run(addresses, (size**-0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for b in range(batch):
        keys, values = (one[b : b + 1, : after[b]] for one in (cache_k, cache_v))
        assert np.array_equal(keys[:, -new:], k[b : b + 1])
        want = batched(q[b : b + 1], keys, values, causal="bottom_right")[0]
        assert np.abs(out[b] - want[0]).max() < 1e-5


def test_more_than_three_stages_are_one_plan() -> None:
    """The ancestor's plans end at three.  Two layers: the second one's keys and values are what the first gives."""
    batch, new, room, heads, size = 2, 3, 40, 2, 16
    rng = np.random.default_rng(5)
    caches = [rng.standard_normal((batch, room, heads, size), np.float32) for _ in range(4)]
    q, k, v = (rng.standard_normal((batch, new, heads, size), np.float32) for _ in range(3))
    before = np.array([30, 7], np.int32)
    after, middle, out = before + np.int32(new), np.full_like(q, np.nan), np.full_like(q, np.nan)
    adding = AttentionProblem(batch, heads, new, room, size, family="append", seqlens_k=True)
    whole = AttentionProblem(batch, heads, new, room, size, seqlens_k=True, window_right=0, align="bottom_right")
    parts, last = whole.part(3), whole.combined(3)
    one_layer = (stages.append(adding), read_from_cache(stages.forward(parts, between=True)),
                 stages.combine(last, True))  # fmt: skip
    # Slots that these stages leave free take what lies between the layers, and the second one's cache.
    first = {stages.OUT: stages.Q_OUT}
    second = {stages.K: stages.Q_OUT, stages.V: stages.Q_OUT, stages.CACHE_K: stages.PARTS,
              stages.CACHE_V: stages.PART_LSE}  # fmt: skip
    request = Request(
        "attention",
        tuple(moved(one, slots) for slots in (first, second) for one in one_layer),
        stages.results(whole),
        between_bytes=stages.whole((parts, last), stages.OperandLayout(), ()).between_bytes,
    )
    assert len(request.stages) == 6
    kernels = [kernel(ATTENTION.fallback_spec(one.problem.signature, "generic")) for one in request.stages]
    given = {stages.Q: q, stages.K: k, stages.V: v, stages.CACHE_SEQLENS: before, stages.SEQLENS_K: after,
             stages.OUT: out,
             stages.Q_OUT: middle}  # fmt: skip
    given |= dict(zip((stages.CACHE_K, stages.CACHE_V, stages.PARTS, stages.PART_LSE), caches, strict=True))
    addresses = [int(given[slot].ctypes.data) if slot in given else 0 for slot in range(len(stages.SLOTS))]
    Plan(request, kernels, (), 2).run(addresses, (size**-0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for layer, (keys, values, wrote) in enumerate(((*caches[:2], middle), (*caches[2:], out))):
        for b in range(batch):
            rows = slice(before[b], after[b])
            assert np.array_equal(keys[b, rows], middle[b] if layer else k[b])
            assert np.array_equal(values[b, rows], middle[b] if layer else v[b])
            want = batched(q[b : b + 1], keys[b : b + 1, : after[b]], values[b : b + 1, : after[b]],
                           causal="bottom_right")[0]  # fmt: skip
            assert np.abs(wrote[b] - want[0]).max() < 1e-5
