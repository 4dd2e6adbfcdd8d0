"""Attention's part of the tile engine: problem sets of real models and by seed, families, neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tilewright import lazy
from tilewright.ops.attention import features
from tilewright.ops.attention.categories import FULL, SMOKE, category
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.attention.spec import OP
from tilewright.ops.attention_models import DECODERS, ENCODERS, LATENT
from tilewright.ops.engine import ForeignWords, ProblemSet, Values
from tilewright.ops.held_out import HeldOut, Spelling, close, drawn_in_turn, half_each

if TYPE_CHECKING:
    import random

    from tilewright.ops.attention import options
else:
    options = lazy.module("tilewright.ops.attention.options")

HOLDOUT_SEED = 20261115
HOLDOUT = 240

PREFILL = (512, 2048, 8192)
CONTEXTS = (1024, 8192, 32768)
BATCHES = (1, 8, 64)


# -- random ones ---------------------------------------------------------------------------------------------------

FAMILIES = ("prefill", "decode", "encoder", "packed", "paged", "window", "chunk", "odd")
HEADS = ((1, 1), (2, 1), (4, 1), (8, 1), (1, 1), (7, 1))  # query heads a head of keys
SIZES = (64, 128, 128, 128, 96, 192, 256, 80)
# Most rows and keys, and the most products; batches are brought down to it.
LIMITS = {"cpu": (2048, 8192, 2e9), "gpu": (16384, 131072, 2e12)}


def _between(draw: random.Random, low: int, high: int) -> int:
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def _drawn(draw: random.Random, family: str, device: str) -> Values:
    most_rows, most_keys, most = LIMITS[device]
    group = draw.choice(HEADS)[0]
    heads_kv, size = draw.choice((1, 2, 4, 8, 16) if device == "gpu" else (1, 2, 4)), draw.choice(SIZES)
    rows = _between(draw, 64, most_rows)
    keys, batch = rows, _between(draw, 1, 64)
    features: dict[str, Any] = {"window": "-1,0"}
    if family in ("decode", "paged"):
        rows, keys, batch = draw.choice((1, 1, 1, 2, 4, 8)), _between(draw, 256, most_keys), _between(draw, 1, 256)
        features = {"seqlens_k": True}
    if family == "paged":
        features |= {"pages": "strided", "page_size": draw.choice((1, 16, 64, 128, 256))}
    if family == "chunk":  # a prompt's next piece behind what is cached
        keys = _between(draw, rows, most_keys)
        features["align"] = "bottom_right"
    if family == "encoder":
        features = {}
    if family == "window":
        features = {"window": f"{draw.choice((128, 512, 1024, 4096)) - 1},0"}
    if family == "odd":
        rows, keys = rows | 1, max(1, _between(draw, 16, most_rows) | 1)
        size, features = draw.choice((8, 40, 72, 104, 136)), draw.choice(({}, {"window": "-1,0"}))
    work = heads_kv * group * rows * keys * 2 * size
    while batch > 1 and batch * work > most:
        batch = (batch + 1) // 2
    while heads_kv * group * rows * keys * 2 * size > most and max(rows, keys) > 64:
        rows, keys = (max(1, rows * 3 // 4) if rows > 8 else rows), max(64, keys * 3 // 4)
    if family == "packed":
        features |= {"varlen": True, "total_q": max(1, batch * rows // 2), "total_k": max(1, batch * keys // 2)}
    return {"batch": batch, "heads_q": heads_kv * group, "heads_kv": heads_kv, "seqlen_q": rows, "seqlen_k": keys,
            "head_dim": size, "head_dim_v": size, **features}  # fmt: skip


def drawn(seed: int, count: int, device: str) -> Iterator[Values]:
    """The families alternate."""
    return drawn_in_turn(seed, count, FAMILIES, lambda draw, family: _drawn(draw, family, device))


# -- sets ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _holdout() -> list[Values]:
    """Half for each kind of device."""
    return half_each(drawn, HOLDOUT_SEED, HOLDOUT, ("cpu", "gpu"))


def _kinds(p: AttentionProblem) -> frozenset[tuple[Any, ...]]:
    """What neighbours have in common (heads, windows and features), as it is spelled and as the plainest of the same.

    Split keys are the same problem, and without a window its alignment means nothing.
    """
    family = "forward" if p.family == "split" else p.family
    return frozenset(
        (family, p.heads_q, p.heads_kv, p.head_dim, p.head_dim_v, *window, p.varlen, p.pages, p.page_lookup,
         p.page_size, p.bias)
        for window in ((p.window_left, p.window_right, p.align, p.mask), _plain_window(p))
    )  # fmt: skip


def _plain_window(p: AttentionProblem) -> tuple[int, int, str, str]:
    """The window without what it bounds beyond all keys, and without the end it is laid at where both are the same.

    First keys that are always seen are nothing special where none is too far to the left.
    """
    first, last = (p.seqlen_q, p.seqlen_k) if p.align == "top_left" else (p.seqlen_k, p.seqlen_q)
    left, right = (
        -1 if bound >= most - 1 else bound for bound, most in ((p.window_left, first), (p.window_right, last))
    )
    square = p.seqlen_q == p.seqlen_k and not (p.varlen or p.seqlens_q or p.seqlens_k)
    mask = p.mask if left >= 0 else "window" if right >= 0 else "none"
    return left, right, "" if square or mask == "none" else p.align, mask


def _joins(p: AttentionProblem) -> tuple[Any, ...]:
    """What the stage that joins parts knows of its problem; it sees no keys."""
    return p.heads_q, p.head_dim_v, p.varlen


def _sizes(p: AttentionProblem) -> tuple[int, ...]:
    return p.batch, p.seqlen_q, p.seqlen_k, p.total_q, p.total_k


def _spellings(p: AttentionProblem) -> list[Spelling]:
    return [(kind, _sizes(p)) for kind in _kinds(p)]


def _problem_of(values: Values) -> AttentionProblem:
    return options.problem(values)


_HELD_OUT = HeldOut(_holdout, _problem_of, _spellings)
_apart = _HELD_OUT.apart


def _prefill() -> Iterator[Values]:
    for model in DECODERS.values():
        for rows in PREFILL:
            yield model.values(1, rows, rows)
            yield model.values(max(1, 8192 // rows), rows, rows)
            if model.window and model.window < rows:
                yield model.values(1, rows, rows, local=True)


def _decode(pages: bool) -> Callable[[], Iterator[Values]]:
    more: dict[str, Any] = {"seqlens_k": True, **({"pages": "strided", "page_size": 16} if pages else {})}

    def make() -> Iterator[Values]:
        for model in DECODERS.values():
            for keys in CONTEXTS:
                for batch in BATCHES:
                    yield {**model.values(batch, 1, keys, **more), "window": ""}

    return make


def _latent() -> Iterator[Values]:
    for keys in CONTEXTS:
        for batch in BATCHES:
            more: dict[str, Any] = {"seqlens_k": True, "pages": "strided", "page_size": 64}
            yield {**LATENT.values(batch, 1, keys, **more), "window": ""}


def _encoder() -> Iterator[Values]:
    for heads, size, rows in ENCODERS.values():
        for batch in (1, 8, 32):
            yield {"batch": batch, "heads_q": heads, "heads_kv": heads, "seqlen_q": rows, "seqlen_k": rows,
                   "head_dim": size,
                   "head_dim_v": size}  # fmt: skip


def _long() -> Iterator[Values]:
    for name in ("llama3_8b", "llama3_70b", "gemma3_27b"):
        model = DECODERS[name]
        for rows in (32768, 65536, 131072):
            yield model.values(1, rows, rows)
            yield model.values(1, 1024, rows)
            if model.window:
                yield model.values(1, rows, rows, local=True)


def _serving() -> Iterator[Values]:
    """Mixes of lengths from 16 to 16384, log-uniform: packed prompts, and pages for what is decoded."""
    import random  # who only selects does without it

    draw = random.Random(7_300)
    for name in ("llama3_8b", "llama3_70b", "mistral_7b", "qwen2_7b"):
        model = DECODERS[name]
        for batch in (8, 32, 128):
            lengths = [_between(draw, 16, 16384) for _ in range(batch)]
            packed: dict[str, Any] = {"varlen": True, "total_q": sum(lengths), "total_k": sum(lengths)}
            yield model.values(batch, max(lengths), max(lengths), **packed)
            yield {**model.values(batch, 1, max(lengths), seqlens_k=True, pages="strided", page_size=16), "window": ""}


def _sets() -> Iterator[ProblemSet]:
    named: tuple[tuple[str, str, Callable[[], Iterable[Values]]], ...] = (
        ("prefill", "Prompts of named decoders, causal, and their local layers", _prefill),
        ("decode", "One token a sequence of named decoders over padded caches", _decode(False)),
        ("decode_paged", "One token a sequence of named decoders over pages of 16", _decode(True)),
        ("mla", "The latent decode step of DeepSeek V3 over pages of 64", _latent),
        ("encoder", "BERT, vision transformers, diffusion and speech: rows see everything", _encoder),
        ("long", "Contexts of 32k to 128k, prompts and their pieces", _long),
        ("serving", "Mixes of lengths from 16 to 16384 by seed: packed prompts and paged decode", _serving),
        ("ck_smoke", "The 16 forward categories of the smoke test of CK Tile's dispatcher, small",
         lambda: category(SMOKE)),
        ("ck_full", "The 15 forward categories of its full test", lambda: category(FULL)),
        ("mixed", "Alternating families by seed, half for each kind of device",
         lambda: [*drawn(9_000, 200, "cpu"), *drawn(9_001, 200, "gpu")]),
        ("validation", "Sixteen of all kinds, quick to measure, by seed", lambda: drawn(9_500, 16, "cpu")),
    )  # fmt: skip
    for key, purpose, make in named:
        yield ProblemSet(key, purpose, _apart(make))
    yield ProblemSet("holdout", f"{HOLDOUT} of all families by seed: no model is trained on them", _holdout,
                     holdout=True)  # fmt: skip


class AttentionEngine(ForeignWords):
    """Attention behind the contract of `tilewright.ops.engine.Engine`."""

    op = OP
    columns = ("family", "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v", "dtype_q",
               "dtype_kv",
               "dtype_out", "align", "window_left", "window_right", "varlen", "pages", "page_size",
               "num_splits")  # fmt: skip

    @cached_property
    def problem_sets(self) -> Mapping[str, ProblemSet]:
        return {problem_set.key: problem_set for problem_set in _sets()}

    @cached_property
    def configs(self) -> Any:
        from importlib import resources

        return resources.files(__package__).joinpath("configs")

    def random(self, seed: int, count: int, device: str) -> Sequence[Values]:
        return list(drawn(seed, count, "cpu" if device == "cpu" else "gpu"))

    def family(self, problem: AttentionProblem) -> str:
        """By the numbers alone, so that a problem from anywhere has one."""
        p = problem
        if p.family != "forward":
            return p.family
        if p.seqlen_q <= 8:
            return "paged" if p.pages != "none" else "decode"
        if p.varlen:
            return "packed"
        if p.pages != "none" or (p.seqlen_q < p.seqlen_k and p.align == "bottom_right"):
            return "chunk"
        if p.window_left >= 0:
            return "window"
        return "prefill" if p.window_right == 0 else "encoder"

    def near(self, problem: AttentionProblem, other: AttentionProblem) -> bool:
        """Whatever the types, the numbers and what else is added to scores; the stages of a problem are near it."""
        if "combine" in (problem.family, other.family):
            sizes = [(each.batch, each.seqlen_q, each.total_q) for each in (problem, other)]
            return "append" not in (problem.family, other.family) and _joins(problem) == _joins(other) and close(*sizes)
        return _HELD_OUT.near(problem, other)

    foreign_module = "tilewright.ops.attention.ck_words"
    problem_feature_names = features.PROBLEM
    problem_words = features.PROBLEM_WORDS
    interaction_names = features.INTERACTION

    def problem_features(self, problem: AttentionProblem) -> Sequence[Any]:
        return features.problem_features(problem)

    def interactions(self, problem: AttentionProblem, kernels: Mapping[str, Any], units: int) -> Sequence[Any]:
        return features.interactions(problem, kernels, units)


ENGINE = AttentionEngine()
