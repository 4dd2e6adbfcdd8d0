"""A forest of regression trees, scored by a small library of our own; without a compiler, by NumPy."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from tilewright import events
from tilewright.errors import TilewrightError

Array = np.ndarray[Any, Any]

NODE = np.dtype([("threshold", np.float32), ("feature", np.int32), ("left", np.int32), ("value", np.float32)])
MOST_DEEP = 64
_VERSION = 2


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees: the children of an inner node are neighbours, `left` is the index of the first.

    A row goes left where its feature is at most the threshold, or is no number.  A leaf leads to itself, by an infinite
    threshold; children come behind their parent, so that no walk is endless.
    """

    nodes: Array
    roots: Array
    depths: Array  # of each tree: the steps to its deepest leaf
    base: float

    def wrong(self, width: int) -> str:
        """What makes this no forest over so many features; empty where nothing does."""
        nodes = self.nodes
        kinds = ((nodes, NODE), (self.roots, np.int32), (self.depths, np.int32))
        if any(one.dtype != kind or one.ndim != 1 for one, kind in kinds) or len(self.roots) != len(self.depths):
            return "its arrays are of another kind"
        if not np.isfinite(self.base) or not np.isfinite(nodes["value"]).all() or np.isnan(nodes["threshold"]).any():
            return "it holds numbers that are none"
        if len(self.roots) and (self.roots.min() < 0 or self.roots.max() >= len(nodes)):
            return "a tree begins outside"
        if len(self.depths) and (self.depths.min() < 0 or self.depths.max() > MOST_DEEP):
            return "a tree is deeper than trees are"
        if (nodes["feature"] < 0).any() or (nodes["feature"] >= width).any():
            return "a node asks for a feature that is not there"
        own, left = np.arange(len(nodes)), nodes["left"].astype(np.int64)
        leaf = (left == own) & (nodes["threshold"] == np.inf)
        if (~leaf & ((left <= own) | (left + 1 >= len(nodes)))).any():
            return "a node leads back, or outside"
        return ""

    def score(self, rows: Array) -> Array:
        """One number a row."""
        rows = np.ascontiguousarray(rows, np.float32)
        native = _library()
        if native is None:
            return self._by_numpy(rows)
        out = np.empty(len(rows), np.float64)
        native.tw_trees_score(
            self.nodes.ctypes.data, self.roots.ctypes.data, self.depths.ctypes.data, len(self.roots), rows.ctypes.data,
            len(rows), rows.shape[1], self.base, out.ctypes.data,
        )  # fmt: skip
        return out

    def _by_numpy(self, rows: Array) -> Array:
        feature, threshold, left = (self.nodes[name] for name in ("feature", "threshold", "left"))
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots))).astype(np.int64)
        which = np.arange(len(rows))[:, None]
        for _ in range(int(self.depths.max(initial=0))):
            with np.errstate(invalid="ignore"):
                at = left[at] + (rows[which, feature[at]] > threshold[at])
        return np.asarray(self.base + self.nodes["value"][at].astype(np.float64).sum(axis=1))


_lock = threading.Lock()
_loaded: list[ctypes.CDLL | None] = []


def _library() -> ctypes.CDLL | None:
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_built())
    return _loaded[0]


def _built() -> ctypes.CDLL | None:
    """Built and loaded at the first question; None where that fails, which is said once."""
    from tilewright.arch import runnable_host_archs
    from tilewright.backends.base import Source
    from tilewright.build import build_source

    text = resources.files("tilewright.runtime").joinpath("native/trees.cpp").read_text(encoding="utf-8")
    try:
        found = ctypes.CDLL(
            str(build_source(Source("tilewright_trees.cpp", text, "c++"), runnable_host_archs()[-1].name).path)
        )
        found.tw_trees_abi_version.restype = ctypes.c_int64
        if found.tw_trees_abi_version() != _VERSION:
            raise OSError("it is of another version")
        score, pointer, size = found.tw_trees_score, ctypes.c_void_p, ctypes.c_int64
        score.argtypes = (pointer, pointer, pointer, size, pointer, size, size, ctypes.c_double, pointer)
        score.restype = None
    except (TilewrightError, OSError, AttributeError) as error:
        events.emit(events.Warned("trees", f"learned selection takes a millisecond longer: {error}"))
        return None
    return found
