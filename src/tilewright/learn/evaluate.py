"""How good choices are: the time of the chosen kernel beside that of the fastest one measured, problem by problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.dispatch.learned import same_device
from tilewright.dispatch.model import Model, Query, ahead
from tilewright.learn.data import Array, Data, matrix, near

NOWHERE = 1 << 30


@dataclass(frozen=True, slots=True)
class Choice:
    """What was chosen for one problem."""

    family: str
    problem: Any
    chosen: str  # digest of a kernel
    oracle: float  # seconds of the fastest
    seconds: float  # of the chosen
    rank: int  # of a fastest kernel in the order of prediction: 0 means one was chosen; NOWHERE: none was looked at

    @property
    def efficiency(self) -> float:
        return self.oracle / self.seconds


@dataclass(frozen=True, slots=True)
class Score:
    """Efficiency against the oracle."""

    problems: int
    mean: float
    p10: float
    worst: float
    top1: float
    top5: float
    families: Mapping[str, Score]

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            name: round(getattr(self, name), 5) for name in ("problems", "mean", "p10", "worst", "top1", "top5")
        }
        if self.families:
            fields["families"] = {name: family.to_dict() for name, family in self.families.items()}
        return fields


def choices(data: Data, scores: Array) -> list[Choice]:
    """The kernel with the lowest score of each problem."""
    listed = []
    first = 0
    for group in data.groups:
        order = np.argsort(scores[first : first + len(group.specs)], kind="stable")
        first += len(group.specs)
        chosen = int(order[0])
        fastest = np.flatnonzero(group.seconds[order] <= group.oracle)  # none, where the estimate left it out
        rank = int(fastest[0]) if len(fastest) else NOWHERE
        listed.append(
            Choice(
                group.family,
                group.problem,
                group.specs[chosen].digest,
                group.oracle,
                float(group.seconds[chosen]),
                rank,
            )
        )
    return listed


def again(earlier: Sequence[Choice], first: Data, second: Data) -> list[Choice]:
    """The same choices by a second measurement of the near kernels.

    The fastest of many measured kernels is so by luck too, and everything else looks slower for it.  So the kernel that
    was the fastest of the first is the oracle, with its time of the second.  What the second did not look at stays.
    """
    times = {
        (measured.problem, measured.device, measured.threads, spec.digest): float(seconds)
        for measured in second.groups
        for spec, seconds in zip(measured.specs, measured.seconds.tolist(), strict=True)
    }
    judged = []
    for choice, group in zip(earlier, first.groups, strict=True):
        here = group.problem, group.device, group.threads
        oracle = times.get((*here, group.specs[int(np.argmin(group.seconds))].digest))
        chosen = times.get((*here, choice.chosen))
        if oracle is not None and chosen is not None:
            choice = replace(choice, oracle=oracle, seconds=chosen)
        judged.append(choice)
    return judged


def score(chosen: Sequence[Choice]) -> Score:
    families = sorted({choice.family for choice in chosen})
    return _score(
        chosen, {name: _score([choice for choice in chosen if choice.family == name], {}) for name in families}
    )


def _score(chosen: Sequence[Choice], families: Mapping[str, Score]) -> Score:
    if not chosen:
        return Score(0, 0.0, 0.0, 0.0, 0.0, 0.0, families)
    reached = np.array([choice.efficiency for choice in chosen])
    ranks = np.array([choice.rank for choice in chosen])
    return Score(
        len(chosen), float(reached.mean()), float(np.quantile(reached, 0.1)), float(reached.min()),
        float((ranks == 0).mean()), float((ranks < 5).mean()), families,
    )  # fmt: skip


def by_model(model: Model, data: Data) -> list[Choice]:
    judged = near(data, model.card.far)
    offsets = np.concatenate([ahead(model.card.trust, group.estimates) for group in judged.groups])
    return choices(judged, model.forest.score(matrix(judged, model.frame)[0]) + offsets)


def unspoken(model: Model, data: Data) -> dict[str, int]:
    """Why dispatch would not ask the model of some of the problems, and of how many; devices are not looked at."""
    reasons: dict[str, int] = {}
    known = model.card.devices[0] if model.card.devices else {}
    for group in data.groups:
        words = [word for spec in group.specs for word in model.frame.unknown_words(spec)]
        why = next((text for spec in group.specs if (text := model.silent(spec, known))), "")
        why = why or (f"it has not seen {words[0]}" if words else "")
        if not why:
            outside = model.outside(Query(group.problem, group.units, model.frame.of_problem(group.problem)))
            why = f"{outside.partition(' is ')[0]} beyond its training" if outside else ""
        if why:
            reasons[why] = reasons.get(why, 0) + 1
    return reasons


def beside(model: Model, others: Sequence[Model], data: Data, seen: Callable[[Model], Collection[str] | None]) -> Model:
    """The model, whose card says how well others would have chosen for these problems; `Model.unsure` goes by that.

    Each is judged where it would be asked, and by problems it was not trained on (`seen` says by what it knows them).
    """
    scores: dict[str, Any] = {}
    for other in others:
        mine = other.card.op == data.op.name and not other.outdated and set(other.card.targets) & set(data.targets)
        if not mine or not any(same_device(known, here) for known in other.card.devices for here in data.devices):
            continue
        known = seen(other) or ()
        fresh = replace(
            data, groups=tuple(g for g, name in zip(data.groups, data.seen, strict=True) if name not in known)
        )
        if fresh.groups and sum(unspoken(other, fresh).values()) < len(fresh.groups):
            scores[f"the model {other.name}"] = score(by_model(other, fresh)).to_dict()
    card = replace(model.card, metrics={**model.card.metrics, **({"others": scores} if scores else {})})
    return type(model)(card, model.forest, model.low, model.high)


def by_estimate(data: Data) -> list[Choice]:
    return choices(data, np.concatenate([group.estimates for group in data.groups]))
