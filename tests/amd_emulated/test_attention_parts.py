"""What the proof of attention rests on: its drawing, operands in fenced memory, its judge; tested by themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.amd_emulated.attention import calls, drawing
from tests.amd_emulated.proving import Call, Entry, proven, proving
from tilewright.backends.hip.attention.ck_tile.schedules import route
from tilewright.ops import op
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.numpy_types import numpy_dtype

PLAIN = AttentionProblem(2, 4, 37, 50, 64, heads_kv=2, dtype_q="fp16", window_right=3, return_lse=True)


def _spec(problem: AttentionProblem) -> Any:
    return op("attention").fallback_spec(problem.signature, "gfx942")


def test_draws_are_legal_served_and_the_same_again() -> None:
    attention, seen, kinds = op("attention"), Counter[str](), Counter[str]()
    for index in range(120):
        entry = drawing.draw(13, index)
        if index < 3:
            again = drawing.draw(13, index)
            assert (entry.spec, entry.problems, entry.refused) == (again.spec, again.problems, again.refused)
        assert not attention.check(entry.spec)
        _served(entry)
        s = entry.spec.signature
        seen[f"{route(s)} {entry.spec.schedule.pipeline}"] += 1
        words = (s.bias, s.mask, "softcap" * s.softcap, "packed" * s.varlen, s.dtype_q, entry.pool, entry.spec.arch)
        kinds.update((*words, f"heads of {s.head_dim}", s.page_lookup, s.rotary, s.pages, "dropout" * s.dropout))
        kinds.update(("masked" * s.masked, "sink" * s.sink, "mixed" * (s.dtype_q != s.dtype_kv)))
    assert {f"{one} qr" for one in ("forward", "split")} <= set(seen)
    assert {"paged qr_pagedkv", "prefill qr_async", "combine splitkv_combine", "append appendkv"} <= set(seen)
    wanted = ("alibi", "tensor", "window", "softcap", "packed", "fp16", "bf16", "table", "indices", "half", "full")
    assert {"forward tiled", "split tiled", "paged tiled"} <= set(seen)
    ours = ("masked", "sink", "generic", "vectorised", "dropout", "fp32", "mixed")
    assert all(kinds[one] for one in (*wanted, *ours, "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"))
    assert all(kinds[f"heads of {one}"] for one in (32, 64, 96, 128, 160, 192, 256))


def _served(entry: Entry) -> None:
    attention = op("attention")
    assert entry.problems
    for one in (*entry.problems, *entry.refused):
        assert one.problem.family != "split" or one.problem.o_strides == one.problem.dense_strides("o")
        assert one.problem.signature == entry.spec.signature
        assert not attention.problem_violations(one.problem, entry.spec.arch), one
        assert bool(attention.supports(entry.spec, one.problem)) == (one in entry.refused), one
        assert drawing.from_dict(one.to_dict()) == one
        assert proving("attention").problem(one.to_dict()) == one
    assert not attention.supports(entry.spec, drawing.plain_problem(entry.spec, 3).problem)


def test_a_call_has_everything_the_kernel_reads() -> None:
    for index in range(40):
        entry = drawing.draw(14, index)
        for one in (*entry.problems, *entry.refused):
            call = calls.prepare(entry.spec, one)
            assert call.written
            for name, memory in call.memory.items():
                off = memory.address % 16
                assert memory.unchanged()
                assert bool(off) == (not one.problem.aligned and name in calls.ADDRESSED), (name, one)


def _by_hand(call: Call, problem: AttentionProblem) -> dict[str, Any]:
    """The definition, a row and a head at a time, from the bits in memory."""
    kind = numpy_dtype("fp16")
    q, k, v = (call.memory[name].view.view(kind).astype(np.float64) for name in "qkv")
    o, lse = np.zeros(problem.shape("o")), np.zeros(problem.lse_shape)
    for n, i, h in np.ndindex(problem.batch, problem.seqlen_q, problem.heads_q):
        of = h // (problem.heads_q // problem.heads_kv)
        keys = min(problem.seqlen_k, i + problem.window_right + 1)
        score = k[n, :keys, of] @ q[n, i, h] * problem.head_dim**-0.5
        weight = np.exp(score - score.max())
        o[n, i, h] = weight @ v[n, :keys, of] / weight.sum()
        lse[n, h, i] = score.max() + np.log(weight.sum())
    return {"out": o.astype(kind).view("u2"), "lse": lse.astype(np.float32).view("u4")}


@pytest.mark.parametrize("values", sorted(set(drawing.VALUES)))
def test_right_results_are_taken_and_no_others(values: str) -> None:
    call = calls.prepare(_spec(PLAIN), drawing.Drawn(PLAIN, values, 5))
    assert call.judge is not None
    assert not call.judge().ok, "results are poisoned before anyone writes them"
    for name, right in _by_hand(call, PLAIN).items():
        call.memory[name].view[...] = right
    taken = call.judge()
    assert taken.ok, taken.detail
    call.memory["out"].view[1, 20, 3, 11] ^= 1 << 6  # a sixteenth of it
    assert not call.judge().ok


def test_attention_is_found() -> None:
    assert "attention" in proven()
