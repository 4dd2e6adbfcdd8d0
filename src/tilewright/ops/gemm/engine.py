"""GEMM's part of the tile engine: problem sets of real models and by seed, families, neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from tilewright import lazy
from tilewright.dataclass import dataclass
from tilewright.errors import RequestError
from tilewright.ops.base import KernelSpec
from tilewright.ops.engine import ProblemSet, Values
from tilewright.ops.gemm import features
from tilewright.ops.gemm.problem import GemmProblem
from tilewright.ops.gemm.spec import LAYOUTS, GemmSignature
from tilewright.ops.held_out import HeldOut, Spelling, drawn_in_turn, half_each

if TYPE_CHECKING:
    import random

    from tilewright.ops.gemm import options
else:
    options = lazy.module("tilewright.ops.gemm.options")

HOLDOUT_SEED = 20261115
HOLDOUT_COUNT = 300


@dataclass(frozen=True, slots=True)
class Model:
    """The matrix sizes of a language model's layers."""

    hidden: int
    ffn: int  # of one of gate and up
    q: int  # width of all query heads together
    kv: int  # width of all key heads together, and of all value heads
    vocabulary: int


# As their published configurations state them.
MODELS = {
    "llama-3-8b": Model(4096, 14336, 4096, 1024, 128256),
    "llama-3-70b": Model(8192, 28672, 8192, 1024, 128256),
    "llama-3-405b": Model(16384, 53248, 16384, 1024, 128256),
    "mistral-7b": Model(4096, 14336, 4096, 1024, 32000),
    "qwen2.5-7b": Model(3584, 18944, 3584, 512, 152064),
    "qwen2.5-72b": Model(8192, 29568, 8192, 1024, 152064),
    "gemma-2-9b": Model(3584, 14336, 4096, 2048, 256000),
    "phi-3-mini": Model(3072, 8192, 3072, 3072, 32064),
}
# DeepSeek-V3's projections (out, in): low-rank queries and keys, experts, the dense layers.
DEEPSEEK = ((1536, 7168), (24576, 1536), (576, 7168), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048),
            (36864, 7168), (7168, 18432))  # fmt: skip

DECODE_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PREFILL_ROWS = (512, 1024, 2048, 4096, 8192)


def _linear(m: int, n: int, k: int) -> Values:
    """A linear layer: B is the transposed view of an (n, k) weight."""
    return {"m": m, "n": n, "k": k, "layout": "rcr"}


def _weights() -> list[tuple[int, int]]:
    """(out, in) of every projection, each once."""
    weights = [
        pair
        for model in MODELS.values()
        for pair in (
            (model.q + 2 * model.kv, model.hidden), (model.hidden, model.q), (2 * model.ffn, model.hidden),
            (model.hidden, model.ffn),
        )
    ]  # fmt: skip
    return list(dict.fromkeys([*weights, *DEEPSEEK]))


def _inference() -> list[Values]:
    return [_linear(m, n, k) for n, k in _weights() for m in (*DECODE_ROWS, *PREFILL_ROWS)]


def _decode() -> list[Values]:
    return [_linear(m, n, k) for n, k in _weights() for m in DECODE_ROWS]


def _prefill() -> list[Values]:
    return [_linear(m, n, k) for n, k in _weights() for m in PREFILL_ROWS]


def _heads() -> list[Values]:
    return [_linear(m, model.vocabulary, model.hidden) for model in MODELS.values() for m in (1, 8, 64, 512)]


def _training() -> list[Values]:
    """Forward, backward by data (B by rows) and by weight (A by columns) of 4096 and 8192 tokens."""
    problems: list[Values] = []
    for n, k in _weights():
        for m in (4096, 8192):
            problems += [
                _linear(m, n, k),
                {"m": m, "n": k, "k": n, "layout": "rrr"},
                {"m": n, "n": k, "k": m, "layout": "crr"},
            ]
    return problems


def _square() -> list[Values]:
    sizes = (64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
    return [{"m": size, "n": size, "k": size, "layout": layout} for size in sizes for layout in LAYOUTS]


def _skinny() -> list[Values]:
    wide = [_linear(m, n, k) for m in (1, 2, 3, 5, 8, 13, 16) for n, k in ((1024, 8192), (8192, 1024), (4096, 4096))]
    tall = [
        {"m": m, "n": n, "k": k, "layout": "rrr"}
        for m in (8192, 20000, 65536)
        for n in (16, 48, 128, 320)
        for k in (64, 256)
    ]
    return [*wide, *tall]


def _odd() -> list[Values]:
    return [values for values in drawn(7_001, 360, GPU) if values["m"] % 2 and values["n"] % 2 and values["k"] % 2]


def _validation() -> list[Values]:
    """A few of each kind: quick to measure, and drawn apart from everything else."""
    return list(drawn(7_002, 18, CPU))


# What random problems are drawn from: the range of each size, log-uniform; the families alternate.
CPU: Mapping[str, tuple[tuple[int, int], ...]] = {
    "large": ((256, 1536), (256, 1536), (256, 1536)),
    "decode": ((1, 16), (512, 4096), (512, 4096)),
    "mid": ((17, 256), (256, 2048), (256, 2048)),
    "tall": ((4096, 20000), (16, 256), (32, 256)),
    "small": ((4, 96), (4, 96), (4, 96)),
    "odd": ((3, 700), (3, 700), (3, 700)),
}
GPU: Mapping[str, tuple[tuple[int, int], ...]] = {
    "large": ((1024, 8192), (1024, 8192), (512, 8192)),
    "decode": ((1, 16), (1024, 16384), (1024, 16384)),
    "mid": ((17, 512), (1024, 16384), (1024, 16384)),
    "tall": ((8192, 65536), (16, 512), (64, 4096)),
    "small": ((64, 1024), (64, 1024), (64, 1024)),
    "odd": ((65, 4096), (65, 4096), (65, 4096)),
}
_ALIGNED = 8  # elements: what sizes on GPUs are multiples of, but for the odd ones


def drawn(seed: int, count: int, families: Mapping[str, tuple[tuple[int, int], ...]]) -> Iterator[Values]:
    """The families alternate, sizes log-uniform in their ranges, layouts uniform; odd ones have odd sizes."""
    return drawn_in_turn(seed, count, tuple(families), lambda draw, name: _drawn(draw, name, families))


def _drawn(draw: random.Random, name: str, families: Mapping[str, tuple[tuple[int, int], ...]]) -> Values:
    sizes = []
    for place, (low, high) in enumerate(families[name]):
        size = round(math.exp(draw.uniform(math.log(low), math.log(high))))
        if name == "odd":
            size |= 1
        elif families is GPU and (place or name != "decode"):
            size = max(low, size // _ALIGNED * _ALIGNED)
        sizes.append(size)
    return {"m": sizes[0], "n": sizes[1], "k": sizes[2], "layout": draw.choice(LAYOUTS)}


@lru_cache(maxsize=1)
def _holdout() -> list[Values]:
    return half_each(drawn, HOLDOUT_SEED, HOLDOUT_COUNT, (CPU, GPU))


def _spellings(p: GemmProblem) -> tuple[Spelling, ...]:
    """Sizes alone, whatever the types, layouts and fused work."""
    return (((), (p.m, p.n, p.k)),)


def _problem_of(values: Values) -> GemmProblem:
    return options.problem(values)


_HELD_OUT = HeldOut(_holdout, _problem_of, _spellings)
_apart = _HELD_OUT.apart


_SETS = (
    ProblemSet("llm-inference", f"Linear layers of {', '.join(MODELS)} and deepseek-v3, 1 to 8192 rows",
               _apart(_inference)),
    ProblemSet("llm-decode", "The same with 1 to 256 rows", _apart(_decode)),
    ProblemSet("llm-prefill", "The same with 512 to 8192 rows", _apart(_prefill)),
    ProblemSet("llm-heads", "The same models' output layers", _apart(_heads)),
    ProblemSet("llm-training", "The same models' layers forward and backward, 4096 and 8192 tokens", _apart(_training)),
    ProblemSet("square", "Squares of 64 to 8192 in every layout", _apart(_square)),
    ProblemSet("skinny", "Few rows, or few columns and many rows", _apart(_skinny)),
    ProblemSet("odd", "Sizes that nothing divides, by seed", _apart(_odd)),
    ProblemSet("validation", "Eighteen of all kinds, quick to measure, by seed", _apart(_validation)),
    ProblemSet("holdout", f"{HOLDOUT_COUNT} of all kinds by seed: no model is trained on them", _holdout, holdout=True),
)  # fmt: skip


_SIZES = ("M", "N", "K")  # as CK Tile's tile engine spells them


class GemmEngine:
    """GEMM behind the contract of `tilewright.ops.engine.Engine`."""

    op = "gemm"
    problem_sets: Mapping[str, ProblemSet] = {problem_set.key: problem_set for problem_set in _SETS}
    columns = ("m", "n", "k", "batch", "dtype_a", "dtype_b", "dtype_c", "layout", "epilogue", "num_d")

    @cached_property
    def configs(self) -> Any:
        from importlib import resources

        return resources.files(__package__).joinpath("configs")

    def random(self, seed: int, count: int, device: str) -> Sequence[Values]:
        return list(drawn(seed, count, CPU if device == "cpu" else GPU))

    def family(self, problem: GemmProblem) -> str:
        """By the sizes alone, so that a problem from anywhere has one."""
        if problem.m <= 16:
            return "decode"
        if problem.m % 2 and problem.n % 2 and problem.k % 2:
            return "odd"
        if problem.flops < 2 * 128**3:
            return "small"
        if problem.m >= 4096 and problem.n <= 512:
            return "tall"
        return "mid" if problem.m <= 512 and problem.n * problem.k >= 4 * problem.m * problem.m else "large"

    def near(self, problem: GemmProblem, other: GemmProblem) -> bool:
        return _HELD_OUT.near(problem, other)

    def foreign_problem(self, row: Values) -> Values:
        """M, N and K of CK Tile's tile engine, in capitals."""
        return {name.lower() if name in _SIZES else name: value for name, value in row.items()}

    def foreign_numbers(self, numbers: tuple[int, ...]) -> Values:
        if len(numbers) != len(_SIZES):
            raise RequestError(
                f"{','.join(map(str, numbers))} is no problem of GEMM",
                rule="problem-set",
                value=len(numbers),
                remedy="give m,n,k; several with a semicolon between",
            )
        return {name.lower(): number for name, number in zip(_SIZES, numbers, strict=True)}

    def foreign_columns(self, problem: GemmProblem) -> dict[str, Any]:
        return {"M": problem.m, "N": problem.n, "K": problem.k}

    problem_feature_names = features.PROBLEM
    kernel_feature_names = features.KERNEL
    interaction_names = features.INTERACTION

    def problem_features(self, problem: GemmProblem) -> Sequence[float]:
        return features.problem_features(problem)

    def kernel_features(self, spec: KernelSpec) -> Sequence[float]:
        return features.kernel_features(spec)

    shown_words = features.SHOWN_WORDS

    def signature_words(self, signature: GemmSignature) -> tuple[str, ...]:
        return features.signature_words(signature)

    def kernel_terms(self, kernels: Mapping[str, Any], units: int) -> Mapping[str, Any]:
        return features.kernel_terms(kernels, units)

    def interactions(self, problem: GemmProblem, kernels: Mapping[str, Any], units: int) -> Any:
        return features.interactions(problem, kernels, units)


ENGINE = GemmEngine()
