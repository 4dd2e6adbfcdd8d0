"""The gradients' part of the tile engine: problem sets of models that are trained and by seed, kinds, neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tilewright import lazy
from tilewright.ops.attention_backward import features
from tilewright.ops.attention_backward.problem import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import OP
from tilewright.ops.attention_models import DECODERS, ENCODERS
from tilewright.ops.engine import ProblemSet, Values
from tilewright.ops.held_out import HeldOut, Spelling, drawn_in_turn, half_each

if TYPE_CHECKING:
    import random

    from tilewright.ops.attention_backward import options
else:
    options = lazy.module("tilewright.ops.attention_backward.options")

HOLDOUT_SEED = 20261117
HOLDOUT = 160

LENGTHS = (1024, 2048, 4096, 8192)  # of sequences that decoders are trained on
# Decoders whose layers are trained in one device's memory, and encoders.
TRAINED = ("gpt2_small", "llama2_7b", "llama3_8b", "llama3_70b", "mistral_7b", "gemma2_9b", "qwen2_7b", "phi3_mini",
           "falcon_7b", "deepseek_v3_prefill")  # fmt: skip
KINDS = ("decoder", "encoder", "packed", "window", "odd")
SIZES = (64, 128, 128, 128, 96, 192, 256, 80)
# Most rows, and the most products; batches are brought down to it.
LIMITS = {"cpu": (1024, 6e8), "gpu": (16384, 2e12)}


def _between(draw: random.Random, low: int, high: int) -> int:
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def _drawn(draw: random.Random, kind: str, device: str) -> Values:
    most_rows, most = LIMITS[device]
    group, size = draw.choice((1, 1, 2, 4, 8)), draw.choice(SIZES)
    heads_kv = draw.choice((2, 4, 8, 16) if device == "gpu" else (1, 2, 4))
    rows, batch = _between(draw, 64, most_rows), _between(draw, 1, 32)
    keys = rows
    features: dict[str, Any] = {"window": "-1,0"}
    if kind == "encoder":
        features = {}
        keys = draw.choice((rows, rows, _between(draw, 64, most_rows)))
    if kind == "window":
        features = {"window": f"{draw.choice((128, 512, 1024)) - 1},0"}
    if kind == "odd":
        rows, keys = rows | 1, _between(draw, 16, most_rows) | 1
        size, features = draw.choice((8, 40, 72, 104, 136)), draw.choice(({}, {"window": "-1,0"}))
    while batch > 1 and batch * heads_kv * group * rows * keys * 5 * size > most:
        batch = (batch + 1) // 2
    while heads_kv * group * rows * keys * 5 * size > most and max(rows, keys) > 64:
        rows, keys = max(16, rows * 3 // 4), max(16, keys * 3 // 4)
    if kind == "packed":
        features |= {"varlen": True, "total_q": max(1, batch * rows // 2), "total_k": max(1, batch * rows // 2)}
        keys = rows
    return {"batch": batch, "heads_q": heads_kv * group, "heads_kv": heads_kv, "seqlen_q": rows, "seqlen_k": keys,
            "head_dim": size, "head_dim_v": size, **features}  # fmt: skip


def drawn(seed: int, count: int, device: str) -> Iterator[Values]:
    """The kinds alternate."""
    return drawn_in_turn(seed, count, KINDS, lambda draw, kind: _drawn(draw, kind, device))


@lru_cache(maxsize=1)
def _holdout() -> list[Values]:
    """Half for each kind of device."""
    return half_each(drawn, HOLDOUT_SEED, HOLDOUT, ("cpu", "gpu"))


def _spellings(p: AttentionBackwardProblem) -> list[Spelling]:
    """What neighbours have in common, and their sizes; whatever the types and what is asked for besides."""
    kind = (p.heads_q, p.heads_kv, p.head_dim, p.head_dim_v, p.window_left, p.window_right, p.align, p.varlen, p.bias)
    return [(kind, (p.batch, p.seqlen_q, p.seqlen_k, p.total_q, p.total_k))]


def _problem_of(values: Values) -> AttentionBackwardProblem:
    return options.problem(values)


_HELD_OUT = HeldOut(_holdout, _problem_of, _spellings)


def _values(name: str, batch: int, rows: int, local: bool = False, **more: object) -> Values:
    """A layer of a decoder: its sinks have no part in grad, so they are asked for."""
    values = dict(DECODERS[name].values(batch, rows, rows, local, **more))
    if values.pop("sink", False):
        values["dsink"] = True
    return values


def _training() -> Iterator[Values]:
    """16384 tokens a step, as sequences of each length."""
    for name in TRAINED:
        for rows in LENGTHS:
            yield _values(name, max(1, 16384 // rows), rows)
            if DECODERS[name].window and DECODERS[name].window < rows:
                yield _values(name, max(1, 16384 // rows), rows, local=True)


def _small() -> Iterator[Values]:
    """What a CPU fine-tunes."""
    for name in ("gpt2_small", "phi3_mini", "llama3_8b", "qwen2_7b"):
        for batch, rows in ((1, 256), (4, 256), (1, 1024)):
            yield _values(name, batch, rows)


def _encoder() -> Iterator[Values]:
    for heads, size, rows in ENCODERS.values():
        for batch in (8, 32):
            yield {"batch": batch, "heads_q": heads, "heads_kv": heads, "seqlen_q": rows, "seqlen_k": rows,
                   "head_dim": size, "head_dim_v": size}  # fmt: skip


def _packed() -> Iterator[Values]:
    """Documents of 64 to 8192 tokens, log-uniform, one behind the other: 32768 tokens a step."""
    import random  # who only selects does without it

    draw = random.Random(7_400)
    for name in ("llama3_8b", "llama3_70b", "mistral_7b", "gpt_oss_120b"):
        for _ in range(2):
            lengths: list[int] = []
            while sum(lengths) < 32768:
                lengths.append(min(_between(draw, 64, 8192), 32768 - sum(lengths)))
            packed: dict[str, Any] = {"varlen": True, "total_q": sum(lengths), "total_k": sum(lengths)}
            yield _values(name, len(lengths), max(lengths), **packed)


def _sets() -> Iterator[ProblemSet]:
    named: tuple[tuple[str, str, Callable[[], Iterable[Values]]], ...] = (
        ("training", "Layers of named decoders at 16384 tokens a step, causal, and their local layers", _training),
        ("finetune", "Layers of named decoders at lengths that CPUs fine-tune", _small),
        ("encoder", "BERT, vision transformers, diffusion and speech: rows see everything", _encoder),
        ("packed", "Documents of 64 to 8192 tokens by seed, one behind the other", _packed),
        ("mixed", "Alternating kinds by seed, half for each kind of device",
         lambda: [*drawn(9_100, 100, "cpu"), *drawn(9_101, 100, "gpu")]),
        ("validation", "Ten of all kinds, quick to measure, by seed", lambda: drawn(9_600, 10, "cpu")),
    )  # fmt: skip
    for key, purpose, make in named:
        yield ProblemSet(key, purpose, _HELD_OUT.apart(make))
    yield ProblemSet("holdout", f"{HOLDOUT} of all kinds by seed: no model is trained on them", _holdout, holdout=True)


class AttentionBackwardEngine:
    """The gradients behind the contract of `tilewright.ops.engine.Engine`."""

    op = OP
    columns = ("family", "batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v", "dtype",
               "align", "window_left", "window_right", "varlen", "deterministic", "accumulate")  # fmt: skip

    @cached_property
    def problem_sets(self) -> Mapping[str, ProblemSet]:
        return {problem_set.key: problem_set for problem_set in _sets()}

    @cached_property
    def configs(self) -> Any:
        from importlib import resources

        return resources.files(__package__).joinpath("configs")

    def random(self, seed: int, count: int, device: str) -> Sequence[Values]:
        return list(drawn(seed, count, "cpu" if device == "cpu" else "gpu"))

    def family(self, problem: AttentionBackwardProblem) -> str:
        """By the numbers alone, so that a problem from anywhere has one."""
        p = problem
        if p.family in ("dot", "convert"):
            return p.family
        if p.varlen:
            return "packed"
        if p.window_left >= 0:
            return "window"
        return "decoder" if p.window_right == 0 else "encoder"

    def near(self, problem: AttentionBackwardProblem, other: AttentionBackwardProblem) -> bool:
        """Whatever the types, the numbers and what else is added to scores; the stages of a problem are near it."""
        return _HELD_OUT.near(problem, other)

    problem_feature_names = features.PROBLEM
    problem_words = features.PROBLEM_WORDS
    interaction_names = features.INTERACTION

    def problem_features(self, problem: AttentionBackwardProblem) -> Sequence[Any]:
        return features.problem_features(problem)

    def interactions(self, problem: AttentionBackwardProblem, kernels: Mapping[str, Any], units: int) -> Sequence[Any]:
        return features.interactions(problem, kernels, units)


ENGINE = AttentionBackwardEngine()
