"""Learned models that a registry's JSON takes along for C++, worked out for its kernels.

What a model sees of kernels alone, and which of them it has not seen, is worked out here, once; features of a problem
come from the selection library, which C++ asks as Python does.  Only the evaluation of the trees is C++'s own
(`cpp/src/models.cpp`), adding in the order of `native/trees.cpp`.

    {"name", "op", "file": the trees, "base", "devices": [identities], "units": [least, most], "far", "trust",
     "rough": [start, byte, operation], "sigma", "low", "high": ranges of the problem's features,
     "own": features of a kernel, "both": features of both, "estimated": whether the last of these is the estimate,
     "groups": [{"signature", "kernels": [digests], "unseen": [places], "words": [[place, number]],
                 "rows": a row a kernel, "terms": {units: [numbers or null, ...]},
                 "real_terms": how many of these are no switches}]}

The file of trees (little-endian): the mark, the counts of nodes and roots as int64, nodes (float32 threshold, int32
feature, int32 left, float32 value), roots (int32).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arch import all_archs
from tilewright.dataclass import dataclass
from tilewright.dispatch.model import Model
from tilewright.native.features import features
from tilewright.native.judge import native_kernels
from tilewright.ops.base import KernelSpec
from tilewright.ops.features import ABSENT, Pool
from tilewright.ops.native import NativeFeatures

MARK = b"TWTREES1"
ENDING, FOLDER = ".twtrees", "models"
MOST_UNITS = 256  # that terms are written for
_WIDE = 1e300  # stands for no bound: JSON has no infinity


@dataclass(slots=True)
class Exported:
    """What goes into the JSON, and the files it names."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


def models(specs: Iterable[KernelSpec], target: str, known: Mapping[str, Sequence[Model]] | None = None) -> Exported:
    """Of the models that are asked of these kernels here; `known` are those of each op, in the order they are asked."""
    exported = Exported()
    if not settings.current().models:
        return exported
    by_signature: dict[tuple[str, Any], list[KernelSpec]] = {}
    for spec in specs:
        by_signature.setdefault((spec.op, spec.signature), []).append(spec)
    for op in dict.fromkeys(op for op, _ in by_signature):
        for model in _of_op(op, target) if known is None else known.get(op, ()):
            groups = [_group(model, target, group) for (name, _), group in by_signature.items() if name == op]
            mine = [group for group in groups if group is not None]
            if mine:
                row = _row(model, target)
                exported.rows.append({**row, "groups": mine})
                exported.files[row["file"]] = trees(model)
    return exported


def _of_op(op: str, target: str) -> Sequence[Model]:
    from tilewright.dispatch import learned, model_files

    return model_files.at_hand_for(op, target) if learned.at_hand() else ()


def trees(model: Model) -> bytes:
    """Its forest as C++ reads it."""
    nodes, roots = model.forest.nodes, model.forest.roots
    head = MARK + struct.pack("<qq", len(nodes), len(roots))
    return head + nodes.astype(nodes.dtype.newbyteorder("<")).tobytes() + roots.astype("<i4").tobytes()


def _units(model: Model, target: str) -> tuple[int, int]:
    """Between which numbers of threads, or of multiprocessors, it speaks on a target."""
    arch = all_archs()[target]
    low, high = int(np.ceil(model.low[-1])), int(np.floor(model.high[-1]))
    if arch.backend == "cpu":
        return max(1, low), min(high, MOST_UNITS)
    own = arch.compute_units or 1
    return (own, own) if low <= own <= high else (1, 0)


def _row(model: Model, target: str) -> dict[str, Any]:
    card = model.card
    low, high = (np.clip(bound, -_WIDE, _WIDE).tolist() for bound in model.range_of_problem)
    return {
        "name": model.name, "op": card.op, "file": f"{FOLDER}/{model.name}{ENDING}", "base": float(model.forest.base),
        "devices": [dict(device) for device in card.devices], "units": list(_units(model, target)), "far": card.far,
        "trust": card.trust, "rough": list(card.rough), "sigma": card.sigma, "low": low, "high": high,
        "own": len(model.frame.kernel_columns), "both": model.frame.both_count, "estimated": model.frame.estimated,
    }  # fmt: skip


def _group(model: Model, target: str, specs: list[KernelSpec]) -> dict[str, Any] | None:
    """The kernels of a signature as a model sees them; None where it says nothing of them, or C++ cannot ask it."""
    low, high = _units(model, target)
    device = model.card.devices[0] if model.card.devices else {}
    if len(specs) < 2 or low > high or any(model.silent(spec, device) for spec in specs):
        return None
    kernels = native_kernels(specs)
    described: NativeFeatures | None = getattr(kernels, "features", None)
    columns = model.frame.problem_columns, model.frame.interaction_columns
    pool = model.frame.pool(specs, low)
    if described is None or features(specs, pool.fields, low, columns) is None:
        return None
    signature = specs[0].signature
    words = [
        [at, numbers.get(str(getattr(signature, name, "")), ABSENT)] for at, name, numbers in model.frame.problem_words
    ]
    return {
        "signature": specs[0].to_dict()["signature"], "kernels": [spec.digest for spec in specs],
        "unseen": sorted(pool.new), "words": words, "rows": pool.block.astype(float).tolist(),
        "terms": _terms(model, described, specs, pool, (low, high)), "real_terms": len(described.terms),
    }  # fmt: skip


def _terms(
    model: Model, described: NativeFeatures, specs: list[KernelSpec], pool: Pool, units: tuple[int, int]
) -> dict[str, list[Any]]:
    """What the selection library wants of kernels alone, by units; one that is as the one before is left out."""
    names, by_units = (*described.terms, *described.switches), dict[str, list[Any]]()
    last: list[Any] | None = None
    for count in range(units[0], units[1] + 1):
        fields = (pool if count == units[0] else model.frame.pool(specs, count)).fields
        now = [None if fields[name] is None else np.ravel(fields[name]).astype(float).tolist() for name in names]
        if now != last:
            by_units[str(count)] = last = now
    return by_units
