"""Training: LightGBM on the logarithm of time, judged by problems it has not seen, packed into our own arrays.

A time has two parts, which two forests learn: what all kernels of a problem have in common (beyond a rough guess, of
the problem's features alone), and how they differ.  Choosing needs the second only, so it gets most of the trees, and
the first no chance to outshout it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.dispatch.learned import same_device
from tilewright.dispatch.model import Card, Model, ahead, rough
from tilewright.errors import RequestError
from tilewright.learn.data import LEAST_PROBLEMS, Array, Data, Group, demand_enough, matrix, near, rough_of
from tilewright.learn.evaluate import Score, by_estimate, choices, score
from tilewright.ops.features import Frame, values
from tilewright.runtime.trees import NODE, Forest

LEAST_FAR = 1.6
PROBES = 4  # of a kind of kernels


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of training."""

    trees: int = 300
    leaves: int = 47
    deep: int = 8  # an evaluation takes as long as a tree is deep
    rate: float = 0.1
    least_rows: int = 10  # of a leaf
    share: float = 0.6  # of the features that a tree may ask
    common_trees: int = 40  # for what a problem's kernels have in common
    folds: int = 5
    seed: int = 7
    far: float = 0.0  # kernels with estimates beyond this multiple of the lowest are not looked at; 0: as the data say
    sharp: float = 8.0  # how fast a kernel's weight falls with its distance from the fastest of its problem
    least_weight: float = 0.05  # of a hopeless one
    trust: float = 0.0  # how much of the estimate's logarithm is taken as said before the first tree: 0 to 1
    estimated: bool = True  # whether the analytic estimate is among the features; a model falls silent when it changes


def lightgbm() -> Any:
    try:
        import lightgbm as module
    except ImportError:
        raise RequestError(
            "training needs LightGBM", rule="missing-extra", value="lightgbm", remedy="install tilewright[learn]"
        ) from None
    return module


def train(data: Data, settings: Settings | None = None, start: Model | None = None) -> Model:
    """A model of all the data; its card has what cross-validation by problem says of such models.

    Without folds there is none: for whoever judges the model by other problems.
    `start` is a model to go on from: its trees stay, and new ones learn what it still gets wrong.  It is judged by
    problems that neither has seen; where the data have too few of these, by models of these data alone.
    """
    settings = settings or Settings()
    demand_enough(data)
    frame = data.frame(estimated=settings.estimated) if start is None else start.frame
    if start is not None:
        _demand_continues(start, data)
    far = settings.far or far_of(data) if start is None else start.card.far
    nearby = near(data, far)
    x, groups = matrix(nearby, frame)
    guess = rough_of(data) if start is None else start.card.rough
    trust = settings.trust * settings.estimated if start is None else start.card.trust
    offsets = np.concatenate([ahead(trust, group.estimates) for group in nearby.groups])
    y = np.concatenate([np.log(group.seconds / rough(guess, group.problem)) for group in nearby.groups]) - offsets
    before = np.zeros(len(y)) if start is None else start.forest.score(x)
    rows = _Rows(x, y - before, groups, _weights(nearby, settings))
    honest = _Honest.judge(nearby, start)
    alone = rows if honest.started else replace(rows, y=y)
    forest = _fit(rows, frame, settings)
    if settings.folds:
        out = _by_others(alone, nearby.problems, frame, settings) + (before if honest.started else 0.0)
    else:
        out = forest.score(x) + before
    if start is not None:
        forest = joined(start.forest, forest)
    judged = honest.groups[groups]
    sigma = float(np.sqrt(np.average((out - y)[judged] ** 2, weights=rows.weights[judged])))
    card = _card(data, frame, forest, score(choices(honest.kept(nearby), (out + offsets)[judged])), settings)
    metrics = {**card.metrics, "estimate": score(by_estimate(honest.kept(data))).to_dict()}
    if not settings.folds:
        del metrics["cross_validation"]
    card = replace(card, sigma=sigma, rough=guess, far=far, trust=trust, metrics=metrics)
    low, high = x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
    if start is not None:
        card, low, high = _continued(card, start, honest), np.minimum(low, start.low), np.maximum(high, start.high)
    return Model(card, forest, low, high)


def _by_others(rows: _Rows, problems: Array, frame: Frame, settings: Settings) -> Array:
    """Of each row, what a forest says that has seen nothing of its problem; `problems` has each group's."""
    folds = _folds(problems, settings)
    out = np.empty(len(rows.y))
    for fold in range(settings.folds):
        test = folds[rows.groups] == fold
        out[test] = _fit(rows.select(~test), frame, settings).score(rows.x[test])
    return out


@dataclass(frozen=True)
class _Honest:
    """What a model can be judged by: problems that its start has not seen, or all of them without the start's trees."""

    groups: Array  # which groups count
    started: bool  # whether the trees of the start have a say
    judged_by: str = ""

    @classmethod
    def judge(cls, data: Data, start: Model | None) -> _Honest:
        every = np.ones(len(data.groups), bool)
        if start is None:
            return cls(every, started=True)
        known = seen_by(start)
        fresh = every if known is None else np.array([problem not in known for problem in data.seen])
        if known is not None and fresh.sum() >= LEAST_PROBLEMS:
            return cls(fresh, True, f"on {int(fresh.sum())} problems that the model it goes on from has not seen")
        why = (
            "does not say what it has seen" if known is None else f"has seen all but {int(fresh.sum())} of the problems"
        )
        return cls(every, False, f"without the trees it goes on from, whose model {why}: it may be better than this")

    def kept(self, data: Data) -> Data:
        return replace(data, groups=tuple(group for group, kept in zip(data.groups, self.groups, strict=True) if kept))


def seen_by(model: Model) -> frozenset[str] | None:
    """The problems a model was trained on; None of one that does not say."""
    seen = model.card.data.get("seen")
    return frozenset(seen.split()) if isinstance(seen, str) else None


def _continued(card: Card, start: Model, honest: _Honest) -> Card:
    """The card of a model that goes on from another: it knows what both know, and says how it was judged."""
    known, new = seen_by(start), frozenset(str(card.data["seen"]).split())
    before = {name: start.card.data.get(name) for name in ("digest", "rows", "problems", "start")}
    data = {**card.data, "start": before, "seen": None if known is None else " ".join(sorted(known | new))}
    devices = [*start.card.devices, *(device for device in card.devices if device not in start.card.devices)]
    return replace(
        card,
        targets=tuple(sorted({*start.card.targets, *card.targets})),
        devices=tuple(devices),
        signatures=tuple(sorted({*start.card.signatures, *card.signatures})),
        data=data,
        metrics={**card.metrics, "judged": honest.judged_by},
    )


def far_of(data: Data) -> float:
    """A multiple of the lowest estimate within which the fastest kernel is, but for one problem in two hundred."""
    rates = [group.estimates[int(np.argmin(group.seconds))] / group.estimates.min() for group in data.groups]
    return max(LEAST_FAR, round(1.1 * float(np.quantile(rates, 0.995)), 2))


@dataclass(frozen=True)
class _Rows:
    """What is learned from."""

    x: Array
    y: Array
    groups: Array  # numbers, those of a group side by side
    weights: Array

    def select(self, which: Array) -> _Rows:
        return _Rows(self.x[which], self.y[which], self.groups[which], self.weights[which])

    def common(self) -> tuple[Array, Array]:
        """Where each group begins, and the mean of its logarithms, in which kernels that could be chosen count most."""
        first = np.flatnonzero(np.r_[True, self.groups[1:] != self.groups[:-1]])
        return first, np.add.reduceat(self.y * self.weights, first) / np.add.reduceat(self.weights, first)


def _weights(data: Data, settings: Settings) -> Array:
    """Kernels that could be chosen matter most, and every problem matters as much as its weight says."""
    weights = []
    for group in data.groups:
        slower = group.seconds / group.seconds.min()
        weight = settings.least_weight + np.exp(-settings.sharp * (slower - 1.0))
        weights.append(group.weight * weight / weight.sum())
    return np.concatenate(weights) * data.rows / len(data.groups)


def _folds(problems: Array, settings: Settings) -> Array:
    """The fold of each group: all groups of a problem, whatever their threads and devices, are in one."""
    count = int(problems.max()) + 1
    return (np.random.default_rng(settings.seed).permutation(count) % settings.folds)[problems]


def _fit(rows: _Rows, frame: Frame, settings: Settings) -> Forest:
    first, level = rows.common()
    problems = rows.x[first]
    problems[:, len(frame.problem_columns) :] = 0.0  # nothing of any kernel
    alike = _boosted(problems, level, None, frame, settings, settings.common_trees)
    sizes = np.diff(np.r_[first, len(rows.y)])
    apart = _boosted(rows.x, rows.y - np.repeat(level, sizes), rows.weights, frame, settings, settings.trees)
    return joined(apart, alike)


def _boosted(x: Array, y: Array, weights: Array | None, frame: Frame, settings: Settings, trees: int) -> Forest:
    library = lightgbm()
    parameters = {
        "objective": "regression", "num_leaves": settings.leaves, "learning_rate": settings.rate,
        "min_data_in_leaf": settings.least_rows, "verbosity": -1, "seed": settings.seed, "deterministic": True,
        "force_row_wise": True, "num_threads": 1, "feature_pre_filter": False, "max_bin": 127,
        "feature_fraction": settings.share, "max_depth": settings.deep,
    }  # fmt: skip
    rows = library.Dataset(x, y, weight=weights, feature_name=list(frame.columns), free_raw_data=False)
    return packed(library.train(parameters, rows, num_boost_round=trees).dump_model())


def packed(dump: Mapping[str, Any]) -> Forest:
    """LightGBM's trees as our arrays; children of a node become neighbours."""
    nodes: list[tuple[float, int, int, float]] = []
    roots, depths = [], []
    for tree in dump["tree_info"]:
        roots.append(len(nodes))
        nodes.append((0.0, 0, 0, 0.0))
        depth, todo = 0, [(len(nodes) - 1, tree["tree_structure"], 0)]
        while todo:
            at, node, level = todo.pop()
            depth = max(depth, level)
            if "leaf_value" in node:
                nodes[at] = (float("inf"), 0, at, float(node["leaf_value"]))
                continue
            if node["decision_type"] != "<=":
                raise ValueError(f"a decision of the kind {node['decision_type']!r}")
            left = len(nodes)
            nodes += [(0.0, 0, 0, 0.0)] * 2
            # LightGBM compares in double: the next smaller float keeps every float on its side.
            threshold = np.float32(node["threshold"])
            if float(threshold) > float(node["threshold"]):
                threshold = np.nextafter(threshold, np.float32(-np.inf))
            nodes[at] = (float(threshold), int(node["split_feature"]), left, 0.0)
            todo += [(left, node["left_child"], level + 1), (left + 1, node["right_child"], level + 1)]
        depths.append(depth)
    return Forest(np.array(nodes, NODE), np.array(roots, np.int32), np.array(depths, np.int32), 0.0)


def joined(forest: Forest, other: Forest) -> Forest:
    moved = other.nodes.copy()
    moved["left"] += len(forest.nodes)
    return Forest(
        np.concatenate([forest.nodes, moved]),
        np.concatenate([forest.roots, other.roots + np.int32(len(forest.nodes))]),
        np.concatenate([forest.depths, other.depths]), forest.base + other.base,
    )  # fmt: skip


def _demand_continues(start: Model, data: Data) -> None:
    """A model goes on with data of its own kind only."""
    if data.op.name != start.card.op:
        raise _other_start(start, f"is for {start.card.op}, not {data.op.name}", f"name a model for {data.op.name}")
    for name, words in data.words.items():
        new = [word for word in words if word not in start.card.vocabulary.get(name, ())]
        if new:
            raise RequestError(
                f"the model {start.card.name} does not know {name} {', '.join(new)}",
                rule="warm-start",
                value=new[0],
                remedy="train a new model on all the data",
            )
    beyond = [name for name in data.schedule_fields if name not in start.card.columns]
    if beyond:
        raise _other_start(start, f"has no feature {', '.join(beyond)}", "train a new model on all the data")
    strange = [target for target in data.targets if target not in start.card.targets]
    if strange:
        raise _other_start(start, f"is not for {', '.join(strange)}", "train a new model, or name a target: --target")
    for device in data.devices:
        if not any(same_device(known, device) for known in start.card.devices):
            described = ", ".join(f"{name} {device[name]}" for name in _WORDS if name in device)
            raise _other_start(
                start, f"was trained on another device than these data ({described})", "train a new model"
            )
    if start.card.data.get("holdout") != data.holdout:  # one that does not say may have seen anything
        raise _other_start(start, "was kept from other problems than these are", "train a new model on all the data")
    if start.outdated:
        raise _other_start(
            start, "saw another analytic estimate than there is now", "train a new model on all the data"
        )


def _other_start(start: Model, why: str, remedy: str) -> RequestError:
    message = f"the model {start.card.name} {why}: nothing can go on from it"
    return RequestError(message, rule="warm-start", value=start.card.name, remedy=remedy)


def _card(data: Data, frame: Frame, forest: Forest, cross_validation: Score, settings: Settings) -> Card:
    from tilewright import __version__
    from tilewright.ops.base import plain

    signatures = {spec.signature for group in data.groups for spec in group.specs}
    return Card(
        op=data.op.name,
        targets=data.targets,
        devices=tuple(_known_words(data.devices)),
        signatures=tuple(sorted({word for signature in signatures for word in frame.signature_words(signature)})),
        columns=frame.columns,
        vocabulary={name: tuple(words) for name, words in frame.words.items()},
        base=forest.base,
        rough=(1.0, 0.0, 0.0),
        far=1.0,
        sigma=0.0,
        data={
            "digest": data.digest, "rows": data.rows, "problems": len(data.groups), "left_out": dict(data.left_out),
            "holdout": data.holdout, "seen": " ".join(sorted(set(data.seen))),
        },
        metrics={"cross_validation": cross_validation.to_dict(), "settings": plain(settings)},
        probes=_probes(data) if frame.estimated else (),
        versions={"tilewright": __version__, "lightgbm": lightgbm().__version__},
    )  # fmt: skip


def _probes(data: Data) -> tuple[dict[str, Any], ...]:
    """Estimates as they are now: of some kernels of each kind (by the words of schedules), on problems of all kinds."""
    from tilewright.ops.base import plain

    columns = data.schedule_fields
    kinds: dict[tuple[str, ...], list[tuple[Group, int]]] = {}
    known: dict[str, tuple[str, ...]] = {}
    for group in data.groups:
        for at, spec in enumerate(group.specs):
            if spec.digest not in known:
                known[spec.digest] = tuple(value for value in values(spec, columns) if isinstance(value, str))
            kinds.setdefault(known[spec.digest], []).append((group, at))
    probes = []
    for _, mine in sorted(kinds.items()):
        for group, at in (mine[index * len(mine) // PROBES] for index in range(PROBES)):
            probes.append({"problem": plain(group.problem), "kernel": group.specs[at].to_dict(),
                          "threads": group.threads, "seconds": float(group.estimates[at])})  # fmt: skip
    return tuple(probes)


# What makes two devices the same to a model; the driver's version, say, does not.
_WORDS = ("model", "arch", "compute_units", "vendor", "l2_bytes", "flags")


def _known_words(devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    known = [{name: device[name] for name in _WORDS if name in device} for device in devices]
    return [words for index, words in enumerate(known) if words not in known[:index]]
