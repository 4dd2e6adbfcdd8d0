"""The fewest kernels that serve many problems within a stated loss: greedy set cover, less what became needless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ops.base import KernelSpec

Times = Mapping[str, float]  # of the kernels that serve a problem, by digest


@dataclass(frozen=True, slots=True)
class Cover:
    """Kernels, how many problems each serves best of them, and by how much more time than the best there is."""

    specs: tuple[KernelSpec, ...]
    problems: tuple[int, ...]  # a kernel
    losses: tuple[float, ...]  # a problem


def cover(problems: Sequence[Times], specs: Mapping[str, KernelSpec], loss: float) -> Cover:
    """Kernels of which each problem has one that takes at most 1 + loss times its best."""
    digests = sorted({digest for times in problems for digest in times})
    place = {digest: at for at, digest in enumerate(digests)}
    ratios = np.full((len(problems), len(digests)), np.inf)
    for row, times in enumerate(problems):
        best = min(times.values())
        for digest, seconds in times.items():
            # Where nothing is known of times (no estimate), the first is as good as any.
            ratios[row, place[digest]] = 1.0 if seconds == best else seconds / best if best > 0 else np.inf
    chosen = _pruned(ratios <= 1 + loss, _greedy(ratios, loss))
    among = ratios[:, chosen]
    served = np.bincount(among.argmin(axis=1), minlength=len(chosen)) if len(problems) else np.zeros(0, int)
    losses = (among.min(axis=1) - 1).tolist() if len(problems) else []
    return Cover(
        tuple(specs[digests[at]] for at in chosen), tuple(int(count) for count in served), tuple(map(float, losses))
    )


def _greedy(ratios: Any, loss: float) -> list[int]:
    """The one that serves most of what is left; of equal ones the one that serves it fastest, then by digest."""
    good = ratios <= 1 + loss
    left, chosen = np.ones(len(ratios), bool), list[int]()
    speed = np.where(good, 1 / ratios, 0.0)
    while left.any():
        counts = good[left].sum(axis=0)
        most = np.flatnonzero(counts == counts.max())
        best = int(most[speed[left][:, most].sum(axis=0).argmax()])
        chosen.append(best)
        left &= ~good[:, best]
    return chosen


def _pruned(good: Any, chosen: list[int]) -> list[int]:
    """Without those whose problems the others serve; the ones that served least go first."""
    kept = list(chosen)
    for kernel in reversed(chosen):
        rest = [other for other in kept if other != kernel]
        if rest and good[:, rest].any(axis=1).all():
            kept = rest
    return kept
