"""How pools of attention and of its gradients are asked for: features and heads as words, and labels read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from tilewright.arch import Arch
from tilewright.dataclass import dataclass
from tilewright.errors import RequestError
from tilewright.ops.attention_terms import BIASES, HEADS, MASKS, head_class
from tilewright.ops.pooling import demand_known

S = TypeVar("S")

_TYPED = ("bias", "rotary")  # words whose place in a label has an element type behind it


def normal_heads(name: str, _arch: object = None) -> str:
    """128 is 128x128; heads of no kernel are rounded up to some."""
    try:
        sizes = [head_class(int(size)) for size in str(name).lower().split("x")]
    except ValueError:
        return str(name)
    return f"{sizes[0]}x{sizes[-1]}"


def dims(heads: str) -> tuple[int, int]:
    """The numbers of 192x128."""
    qk, v = heads.split("x")
    return int(qk), int(v)


def distinct(signatures: Iterable[S]) -> Iterator[S]:
    """Each once, in their order."""
    seen: set[S] = set()
    for signature in signatures:
        if signature not in seen:
            seen.add(signature)
            yield signature


def of_own_pool(
    family: Any, pool: str, arch: Arch, signatures: Iterable[S], own: Callable[[], Iterable[S]] = tuple
) -> Iterator[S]:
    """The signatures that a pool of an arch family's own has kernels of; none at all is an error that says why.

    `pool_rules` of the family's module yields what speaks against a signature in a pool.  Where all are refused, what
    the pool is for (`own`) takes their place: a pool of fp32 asked for heads of 128 has such heads, if not of fp16.
    """
    kept = reason = None
    for signature in signatures:
        broken = next(iter(family.pool_rules(pool, signature, arch)), None)
        if broken is None:
            kept = signature
            yield signature
        reason = reason or broken
    if kept is not None or reason is None:
        return
    for signature in own():
        if next(iter(family.pool_rules(pool, signature, arch)), None) is None:
            kept = signature
            yield signature
    if kept is None:
        raise RequestError(f"the pool {pool} has no such kernel: {reason.message}", rule="pool-empty", value=pool,
                           remedy=reason.remedy)  # fmt: skip


def own_of_axes(
    family: Any, pool: str, arch: Arch, axes_of: Callable[[S], Mapping[str, Any]], named: Mapping[str, Sequence[str]]
) -> Callable[[], Iterator[S]]:
    """The signatures a pool of an arch family's own is for, of them those with the named values; no value: any."""

    def signatures() -> Iterator[S]:
        for signature in family.pool_signatures(pool, arch):
            axes = axes_of(signature)
            if all(axes[axis][0] in values for axis, values in named.items() if values):
                yield signature

    return signatures


def common_features(switches: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The words that both ops know, with the fields of a signature that each sets; `switches`: an op's own, by word."""
    return {
        "plain": {},
        **{mask: {"mask": mask} for mask in MASKS[1:]},
        **{bias: {"bias": bias} for bias in BIASES[2:]},
        "bias": {"bias": "tensor"},
        **{word: {name: True} for word, name in switches.items()},
    }


@dataclass(frozen=True)
class Features:
    """What a kernel has beyond the plain softmax, as one word each, joined by +."""

    fields: Mapping[str, Mapping[str, Any]]  # of a signature, by word
    aliases: Mapping[str, str]
    auxiliary: tuple[str, ...]  # element types that a bias or rotary tables may have
    normalized: Callable[[Any], Any]  # a signature with defaults in the fields that its kernels do not read

    def normal(self, name: str, _arch: object = None) -> str:
        """Features joined by +, each under its proper name; what is not known is let be."""
        words = str(name).lower().replace("-", "_").split("+")
        return "+".join(self.aliases.get(word, word) for word in words)

    def fields_of(self, words: str) -> dict[str, Any]:
        return {name: value for word in words.split("+") for name, value in self.fields[word].items()}

    def words_of(self, signature: Any) -> str:
        """The word of the axis `features` that means exactly this signature's."""
        words = (
            word
            for word, values in self.fields.items()
            if values and all(getattr(signature, name) == value for name, value in values.items())
        )
        return "+".join(words) or "plain"

    def signatures_of(self, text: str, plain: Callable[[int, int], S]) -> Iterator[S]:
        """The signatures with whose label the text begins, of those that are `plain` but for heads and features."""
        for qk, v in product(HEADS, HEADS):
            signature: Any = plain(qk, v)
            if text.startswith(signature.label()):
                candidates = self._with_features(signature, text[len(signature.label()) :])
                yield from (candidate for candidate in candidates if text.startswith(candidate.label()))

    def _with_features(self, plain: Any, rest: str) -> Iterator[Any]:
        """Signatures of the words that a label's rest may begin with."""
        variants = {plain}
        for word, values in self.fields.items():
            for aux in self.auxiliary if word.startswith(_TYPED) else ("",):
                if (f"_{word}_{aux}" if aux else f"_{word}") in rest:
                    more = {**values, **({"dtype_aux": aux} if aux else {})}
                    variants |= {self.normalized(replace(signature, **more)) for signature in variants}
        yield from sorted(variants, key=lambda signature: str(signature.label()))

    def demand_known(self, heads: Sequence[str], features: Sequence[str]) -> None:
        """Refuse the first name, in its normal spelling, that no kernel has."""
        words = [word for feature in features for word in feature.split("+")]
        demand_known("feature-name", "feature", words, list(self.fields))
        known = [f"{qk}x{v}" for qk, v in product(HEADS, HEADS)]
        demand_known("kernel-heads", "size of heads that kernels are made for", heads, known)
