"""What the bindings of attention and of its gradients share: slots, scalars, and arguments that change scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilewright.dataclass import dataclass
from tilewright.ops.attention_terms import Sizes
from tilewright.ops.base import KernelSpec
from tilewright.runtime.bindings import BindingDefaults
from tilewright.runtime.requests import Pointer, Sample, Scalar, Slot

if TYPE_CHECKING:
    from tilewright.ops.numerics import Check

STARTS = "numbers that never decrease, from 0"
SCORE_SLOTS = (
    Slot("mask", optional=True),
    Slot("bias", optional=True),
    Slot("alibi_slopes", optional=True),
    Slot("sink", optional=True),
)
SEQUENCE_SLOTS = (
    Slot("cu_seqlens_q", optional=True, elements="int32",
         holds=f"{STARTS} to the rows of q, no sequence over max_seqlen_q"),
    Slot("cu_seqlens_k", optional=True, elements="int32",
         holds=f"{STARTS} to the rows of k, no sequence over max_seqlen_k"),
    Slot("seqlens_q", optional=True, elements="int32", holds="0 to the rows a sequence of q has room for"),
    Slot("seqlens_k", optional=True, elements="int32", holds="0 to the keys a sequence has room for"),
)  # fmt: skip
SEED_SLOT = Slot("seed", optional=True, elements="int64")
SCALARS = ("scale", "softcap", "dropout", "seed_low", "seed_high", "offset_low", "offset_high")


@dataclass(frozen=True, slots=True)
class ScoreLayout:
    """Strides of the smaller operands of scores, in elements; what is missing is dense."""

    mask: Sizes = ()  # strides of sequence, head, row, key
    bias: Sizes = ()
    alibi: Sizes = (0, 1)  # strides of sequence and head
    seeded: bool = False  # seed and offset are in memory
    scaled: bool = True  # the scale is a number of the call; else it is 1 / sqrt(head)


def dense_strides(shape: Sequence[int]) -> Sizes:
    """Strides in elements of an array whose last index runs fastest; none is under 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def repeated(shape: Sizes) -> Sizes:
    """Dense strides with 0 where a size is 1: it repeats."""
    return tuple(0 if size == 1 else step for size, step in zip(shape, dense_strides(shape), strict=True))


def lse_strides(problem: Any) -> tuple[int, int]:
    """From one sequence to the next and from one head to the next, of a dense lse."""
    p = problem
    return (0, max(1, p.total_q)) if p.varlen else (max(1, p.heads_q * p.seqlen_q), max(1, p.seqlen_q))


@lru_cache(maxsize=512)
def offset(kind: Any, name: str) -> int:
    """Of a field of a struct; `pages.table` is one inside."""
    outer, _, inner = name.partition(".")
    start: int = getattr(kind, outer).offset
    return start + (getattr(dict(kind._fields_)[outer], inner).offset if inner else 0)


def pointers(kind: Any, slots: Mapping[str, int]) -> tuple[Pointer, ...]:
    """Pointers of a struct's fields, by name."""
    return _pointers(kind, tuple(slots.items()))


@lru_cache(maxsize=256)  # of new sizes they are the same
def _pointers(kind: Any, slots: tuple[tuple[str, int], ...]) -> tuple[Pointer, ...]:
    return tuple(Pointer(offset(kind, name), slot) for name, slot in slots)


def score_args(args: Any, problem: Any, layout: ScoreLayout) -> dict[str, str]:
    """Fill in the strides of what changes scores; its slots, by the fields that lead there."""
    p, slots = problem, {}
    for name, there in (("mask", p.mask_shape), ("bias", p.bias_shape)):
        if there:
            slots[name] = name
            getattr(args, f"{name}_strides")[:] = getattr(layout, name) or repeated(there)
    if p.bias == "alibi":
        slots["alibi"] = "alibi_slopes"
        args.alibi_batch, args.alibi_head = layout.alibi
    if p.dropout and layout.seeded:
        slots["seed_at"] = "seed"
    return slots


def score_scalars(kind: Any, problem: Any, layout: ScoreLayout) -> tuple[Scalar, ...]:
    """Where a struct has the numbers of a call."""
    scalars = [Scalar(kind.scale.offset, 0)] if layout.scaled else []
    if problem.softcap:
        scalars.append(Scalar(kind.softcap.offset, 1))
    if problem.dropout:
        scalars.append(Scalar(kind.dropout.offset, 2, probe=0.5))
        if not layout.seeded:
            places = (kind.seed.offset, kind.seed.offset + 8, kind.offset.offset, kind.offset.offset + 8)
            scalars += [Scalar(at, index) for index, at in enumerate(places, 3)]
    return tuple(scalars)


class JudgedBinding(BindingDefaults):
    """A binding whose results are judged alike whatever kernel computed them."""

    scalars: tuple[str, ...] = SCALARS

    def judged(self, problem: Any, sample: Sample) -> Callable[[Sample], Check]:
        """What is asked of results for a sample's operands; the reference is computed once."""
        raise NotImplementedError

    def check(self, problem: Any, sample: Sample, kernels: Sequence[KernelSpec] = ()) -> Check:
        return self.judged(problem, sample)(sample)

    def judge(self, problem: Any, sample: Sample) -> Callable[[Sample, Sequence[KernelSpec]], Check]:
        ask = self.judged(problem, sample)
        return lambda result, kernels: ask(result)
