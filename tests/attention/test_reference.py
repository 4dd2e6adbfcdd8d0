"""The float64 reference: against PyTorch's plain path and sums written out; its generator against its paper."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.attention.oracle import plain
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention.reference import attend, sequences
from tilewright.ops.attention_scores import Numbers, kept, philox, seen

Array = np.ndarray[Any, Any]


def operands(seed: int, p: AttentionProblem) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(p.shape(name)) for name in "qkv"}


def exact(p: AttentionProblem, given: dict[str, Any], numbers: Numbers) -> tuple[Array, Array]:
    found = [attend(p, numbers, one, np.arange(len(one.q))) for one in sequences(p, given)]
    return np.stack([one.o for one in found]), np.stack([one.lse for one in found])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"window_right": 0},
        {"heads_kv": 2},
        {"heads_kv": 1, "head_dim_v": 24},
        {"mask_shape": (2, 1, 9, 13)},
        {"bias": "tensor", "bias_shape": (1, 4, 9, 13)},
        {"seqlen_q": 13},
    ],
)
def test_it_is_pytorchs_plain_path(more: dict[str, Any]) -> None:
    torch: Any = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    p = AttentionProblem(**{"batch": 2, "heads_q": 4, "seqlen_q": 9, "seqlen_k": 13, "head_dim": 16, **more})
    given: dict[str, Any] = operands(1, p)
    rng, mask = np.random.default_rng(2), None
    if p.mask_shape:
        given["mask"] = rng.random(p.mask_shape) < 0.7
        given["mask"][..., 0] = True  # PyTorch has no word for a row that sees nothing
        mask = torch.from_numpy(given["mask"])
    if p.bias_shape:
        given["bias"] = rng.standard_normal(p.bias_shape)
        mask = torch.from_numpy(given["bias"])
    q, k, v = (torch.from_numpy(given[name]).transpose(1, 2) for name in "qkv")
    with sdpa_kernel(SDPBackend.MATH):
        want = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=p.window_right == 0, scale=0.3, enable_gqa=p.heads_q != p.heads_kv
        )
    found, lse = exact(p, given, Numbers(scale=0.3))
    assert np.abs(found - want.transpose(1, 2).numpy()).max() < 1e-12
    if mask is None and not p.bounded and p.heads_q == p.heads_kv:
        scores = 0.3 * q @ k.transpose(2, 3)
        assert np.abs(lse - torch.logsumexp(scores, -1).numpy()).max() < 1e-12


@pytest.mark.parametrize("seed", range(12))
def test_it_is_what_the_words_say(seed: int) -> None:
    """Windows, sinks, slopes, caps and masks by chance, against sums written out."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    rows, keys = draw.choice((1, 4, 7)), draw.choice((1, 3, 8))
    causal = draw.choice((False, "top_left", "bottom_right"))
    window = (draw.choice((-1, 0, 2)), draw.choice((-1, 0, 1)))
    right = window[1] if causal is False else 0
    said: dict[str, Any] = {"sink_tokens": draw.choice((0, 2)), "softcap": draw.choice((0.0, 1.5))}
    p = AttentionProblem(
        1, 4, rows, keys, 8, 2, 5, window_left=window[0], window_right=right,
        align="bottom_right" if causal == "bottom_right" else "top_left", sink_tokens=said["sink_tokens"],
        softcap=said["softcap"] > 0,
        bias=draw.choice(("none", "tensor", "alibi")), sink=draw.random() < 0.5,
        mask_shape=draw.choice(((), (1, 1, rows, keys), (1, 4, rows, keys))),
    )  # fmt: skip
    given: dict[str, Any] = operands(seed, p)
    if p.bias == "tensor":
        given["bias"] = rng.standard_normal(p.bias_shape)
    if p.bias == "alibi":
        given["alibi_slopes"] = rng.random(4)
    if p.sink:
        given["sink"] = rng.standard_normal(4)
    if p.mask_shape:
        given["mask"] = rng.random(p.mask_shape) < 0.6
    cut = {
        name.removesuffix("_slopes"): given[name][0] if name in ("mask", "bias") else given[name]
        for name in given
        if name not in "qkv"
    }
    want, want_lse = plain(
        given["q"][0], given["k"][0], given["v"][0], causal=causal, window=(window[0], right), scale=0.4, **said, **cut
    )
    found, lse = exact(p, given, Numbers(scale=0.4, softcap=said["softcap"]))
    assert np.allclose(found[0], want, rtol=0, atol=1e-12)
    assert np.allclose(lse[0], want_lse, rtol=0, atol=1e-12)


def test_the_generator_is_the_papers() -> None:
    """The answers that Random123 publishes for philox4x32-10."""
    ones = 0xFFFFFFFF
    for counter, key, want in (
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones, ones), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ):  # fmt: skip
        words = philox(tuple(np.array([one], np.uint64) for one in counter), key)  # type: ignore[arg-type]
        assert tuple(int(one[0]) for one in words) == want


def test_dropout_drops_as_often_as_it_is_told_and_alike_for_every_tile() -> None:
    numbers = Numbers(dropout=0.3, seed=5, offset=1 << 40)
    rows = np.arange(200)
    found = kept(numbers, 7, rows, 500)
    share = (found == 0).mean()
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / found.size) ** 0.5
    assert abs(found.mean() - 1) < 0.02
    assert set(np.unique(found)) == {0.0, 65536 / (65536 - 19661)}
    assert (kept(numbers, 7, rows[50:60], 300) == found[50:60, :300]).all(), "an entry depends on its place alone"
    assert (kept(Numbers(0.3, dropout=0.3, seed=5), 7, rows, 500) != found).any(), "the offset counts"


@pytest.mark.parametrize("seed", range(40))
def test_pairs_are_counted_in_closed_form(seed: int) -> None:
    draw = random.Random(seed)
    p = AttentionProblem(
        1, 1, draw.randint(0, 9), draw.randint(0, 9), 8, align=draw.choice(("top_left", "bottom_right")),
        window_left=draw.choice((-1, 0, 1, 4, 20)), window_right=draw.choice((-1, 0, 1, 4, 20)),
        sink_tokens=draw.choice((0, 0, 2, 30)),
    )  # fmt: skip
    want = int(seen(p, np.arange(p.seqlen_q), p.seqlen_q, p.seqlen_k).sum())
    assert p.pairs == want, p
