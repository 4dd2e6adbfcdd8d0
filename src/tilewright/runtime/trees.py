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

NODE = np.dtype([("threshold", np.float32), ("feature", np.int32), ("left", np.int32)])
_VERSION = 1


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees: the children of an inner node are neighbours, `left` is the index of the first.

    A row goes left where its feature is at most the threshold, or is no number.  A leaf has feature -1 and its value as
    threshold; children come behind their parent, so that no walk is endless.
    """

    nodes: Array
    roots: Array
    base: float

    def wrong(self, width: int) -> str:
        """What makes this no forest over so many features; empty where nothing does."""
        nodes, roots = self.nodes, self.roots
        if nodes.dtype != NODE or nodes.ndim != 1 or roots.dtype != np.int32 or roots.ndim != 1:
            return "its arrays are of another kind"
        if not np.isfinite(self.base) or not np.isfinite(nodes["threshold"]).all():
            return "it holds numbers that are none"
        if len(roots) and (roots.min() < 0 or roots.max() >= len(nodes)):
            return "a tree begins outside"
        inner = nodes["feature"] >= 0
        if (nodes["feature"] < -1).any() or (nodes["feature"] >= width).any():
            return "a node asks for a feature that is not there"
        left = nodes["left"][inner].astype(np.int64)
        if ((left <= np.flatnonzero(inner)) | (left + 1 >= len(nodes))).any():
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
            self.nodes.ctypes.data, self.roots.ctypes.data, len(self.roots), rows.ctypes.data, len(rows),
            rows.shape[1], self.base, out.ctypes.data,
        )  # fmt: skip
        return out

    def _by_numpy(self, rows: Array) -> Array:
        feature, threshold, left = (self.nodes[name] for name in ("feature", "threshold", "left"))
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots))).astype(np.int64)
        which = np.arange(len(rows))[:, None]
        while True:
            inner = feature[at] >= 0
            if not inner.any():
                return np.asarray(self.base + threshold[at].astype(np.float64).sum(axis=1))
            with np.errstate(invalid="ignore"):
                right = rows[which, np.maximum(feature[at], 0)] > threshold[at]
            at = np.where(inner, left[at] + right, at)


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
        score.argtypes = (pointer, pointer, size, pointer, size, size, ctypes.c_double, pointer)
        score.restype = None
    except (TilewrightError, OSError, AttributeError) as error:
        events.emit(events.Warned("trees", f"learned selection takes a millisecond longer: {error}"))
        return None
    return found
