"""Attention by the latent pipeline on the emulated Hopper GPU: every feature and shape, on problems drawn by seed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests.emulated_hopper.attentions import prove, wrong
from tests.emulated_hopper.emulator import CHANCE, EAGER, LATE, Emulator, apart
from tests.emulated_hopper.test_attention import like
from tests.emulated_hopper.test_attention_mma import problems
from tilewright.backends.cuda.attention.mla import MlaSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.attention import AttentionProblem
from tilewright.runtime.requests import Sample

pytestmark = [pytest.mark.sampled(0), pytest.mark.part(5)]

CASES: dict[str, tuple[MlaSchedule, AttentionProblem]] = {
    "plain": (MlaSchedule(64, 2), like(576, 512)),
    "causal": (MlaSchedule(32, 4), like(576, 512, window_right=0, dtype_q="fp16", dtype_out="fp32")),
    "narrow": (MlaSchedule(48, 2), like(512, 512, window_right=0, varlen=True)),
    "sink_tokens": (MlaSchedule(16, 3), like(576, 512, window_left=8, window_right=0, sink_tokens=4, sink=True)),
    "scores": (MlaSchedule(64, 2), like(576, 512, softcap=True, bias="alibi", return_lse=False)),
    "dropout": (MlaSchedule(32, 2), like(576, 512, dropout=True, mask_shape=(1, 1, 1, 1))),
    "split": (MlaSchedule(64, 2), like(576, 512, family="split", num_splits=2)),
    "pages": (MlaSchedule(64, 2), like(576, 512, pages="strided", page_lookup="table", seqlens_k=True)),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CASES)
def test_problems_drawn_by_seed(emulator: Emulator, name: str) -> None:
    """Values in memory of their own: a tile of keys, then one of values."""
    schedule, first = CASES[name]
    assert wrong(emulator, schedule, *problems(f"latent {name}", first, whole=8)) == []


@pytest.mark.parametrize("family", ["forward", "split"])
@pytest.mark.parametrize("schedule", [MlaSchedule(64, 2), MlaSchedule(32, 4)], ids=lambda one: one.label())
def test_a_latent_is_read_once(emulator: Emulator, schedule: MlaSchedule, family: str) -> None:
    """Values that are the first elements of their keys: nothing is read at the place of v but k itself."""
    for number, (rows, keys, heads) in enumerate(((2, 100, 16), (1, 257, 70), (3, 64, 22))):
        one = replace(
            like(576, 512, family=family, num_splits=2 * (family == "split")), batch=2, heads_q=heads, heads_kv=1,
            seqlen_q=rows, seqlen_k=keys, q_strides=(), o_strides=(), seqlens_k=number == 1,
            k_strides=(keys * 576, 576, 576), v_strides=(keys * 576, 576, 576),
        )  # fmt: skip
        spec = KernelSpec("attention", one.signature, schedule, "sm_90a")
        kernel = emulator.kernel(spec)

        def inside(made: Sample) -> Sample:
            q, k, _, *others = made.operands
            return replace(made, operands=(q, k, k[..., :512], *others))

        proof = partial(prove, kernel, one, number, inside, {"v": "k"})
        for mode in (LATE, EAGER, CHANCE):
            assert apart(kernel, proof, mode, number, 2) == ""
