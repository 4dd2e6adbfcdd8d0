"""Rules that specs of attention and of its gradients have in common, whatever the target."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any

from tilewright.arch import Arch
from tilewright.dataclass import NamedTuple
from tilewright.ops import rules
from tilewright.ops.attention_terms import HEADS, AttentionSchedule
from tilewright.ops.base import Violation


def _heads(signature: Any, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
    for field in ("head_dim", "head_dim_v"):
        if getattr(signature, field) not in HEADS:
            message = f"{field} is {getattr(signature, field)}, which no kernel is compiled for"
            yield Violation("kernel-heads", message, f"use {', '.join(map(str, HEADS))}; smaller heads are padded")


class CommonRules(NamedTuple):
    rules: tuple[rules.Rule, ...]
    of_signature: tuple[rules.Rule, ...]  # those that read nothing of the schedule


def common_rules(
    words: Mapping[str, Collection[str]],
    dtypes: tuple[str, ...],
    families: Collection[str],
    normalized: Callable[[Any], Any],
) -> CommonRules:
    """The rules of an op whose signatures have these fields of words and of element types and are of these families;
    `normalized` gives a signature with the default in every field that its kernels do not read."""

    def names(signature: Any, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
        for field, known in words.items():
            yield from rules.known(f"{field}-name", field, getattr(signature, field), known)
        yield from rules.known_dtypes(signature, dtypes)

    def canonical(signature: Any, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
        """What a family does not read has its default: else equal kernels would have different names."""
        usual = normalized(signature)
        for field in fields(signature):
            mine, expected = getattr(signature, field.name), getattr(usual, field.name)
            if mine != expected:
                message = f"{field.name} is {mine!r}, and {signature.family} kernels with these features do not read it"
                yield Violation("unread", message, f"use {field.name} {expected!r}")

    def serves(signature: Any, schedule: AttentionSchedule, arch: Arch) -> Iterator[Violation]:
        if signature.family in families and signature.family not in schedule.serves:
            message = f"{schedule.pipeline} has no {signature.family} kernels"
            yield Violation("pipeline-family", message, f"it is for {', '.join(schedule.serves)}")

    of_signature = (names, _heads, canonical)
    return CommonRules((names, rules.words, rules.positive, _heads, canonical, serves), of_signature)
