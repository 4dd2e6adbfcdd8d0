"""A forest of regression trees, scored by a small library of our own; without a compiler, by NumPy.

The kernels of a selection are asked about by sets (`BySets`): trees share decisions, so a decision (a feature, and one
of its thresholds) is a set of bits, one a kernel, that is worked out once, and a node of a tree takes two operations on
sets, for up to 512 kernels; nodes that no kernel reaches take none.  Trees that look at the problem alone say the same
of all kernels and are evaluated once.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright import events, packaged
from tilewright.dataclass import dataclass
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.backends.base import Source

Array = np.ndarray[Any, Any]

NODE = np.dtype([("threshold", np.float32), ("feature", np.int32), ("left", np.int32), ("value", np.float32)])
MOST_DEEP = 64
# By sets, a tree has a top of four levels and sixteen twigs of four more.
_HALF = 4
_TWIGS, _DEEP = 1 << _HALF, 2 * _HALF
MOST_DECISIONS = (1 << 16) - 1
_SET = 64  # bytes of the largest set of rows
MOST_DESKS = 16  # of a thread
_VERSION = 8


@dataclass(frozen=True)
class Forest:
    """Nodes of all trees: the children of an inner node are neighbours, `left` is the index of the first.

    A row goes left where its feature is at most the threshold, or is no number.  A leaf leads to itself, by an infinite
    threshold; children follow their parent, so that no evaluation is endless.
    """

    nodes: Array
    roots: Array
    depths: Array  # of each tree: the steps to its deepest leaf
    base: float

    def wrong(self, width: int) -> str:
        """What makes this no forest over so many features; empty where nothing does."""
        nodes = self.nodes
        kinds = ((nodes, NODE), (self.roots, np.int32), (self.depths, np.int32))
        if any(array.dtype != kind or array.ndim != 1 for array, kind in kinds) or len(self.roots) != len(self.depths):
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


class _Tables(ctypes.Structure):
    """`Shared` of native/trees.cpp."""

    _fields_ = [
        ("tops", ctypes.c_void_p), ("twigs", ctypes.c_void_p), ("values", ctypes.c_void_p),
        ("tree_count", ctypes.c_int64), ("thresholds", ctypes.c_void_p), ("first", ctypes.c_void_p),
        ("nodes", ctypes.c_void_p), ("roots", ctypes.c_void_p), ("root_count", ctypes.c_int64),
        ("base", ctypes.c_double),
    ]  # fmt: skip


class TreeQuestion(ctypes.Structure):
    """`Question` of native/trees.cpp."""

    _fields_ = [
        ("problem", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("both", ctypes.c_void_p),
        ("kernel_places", ctypes.c_void_p), ("problem_count", ctypes.c_int64), ("kernel_count", ctypes.c_int64),
        ("both_count", ctypes.c_int64), ("stride", ctypes.c_int64), ("count", ctypes.c_int64),
        ("packed", ctypes.c_int64), ("units", ctypes.c_float),
    ]  # fmt: skip


class Prediction(ctypes.Structure):
    """`Prediction` of native/trees.cpp."""

    _fields_ = [
        ("estimates", ctypes.c_void_p), ("low", ctypes.c_void_p), ("high", ctypes.c_void_p), ("far", ctypes.c_double),
        ("trust", ctypes.c_double), ("rough", ctypes.c_double), ("seconds", ctypes.c_void_p),
        ("beyond", ctypes.c_int64),
    ]  # fmt: skip


class Choice(ctypes.Structure):
    """`Choice` of native/trees.cpp: a whole choice in one call."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in (
            "ask", "question", "numbers", "served", "rules", "problem_features", "kernel_features", "terms", "forest",
            "room", "out", "known", "problem", "both", "word_at", "words", "unseen",
        )),
        *((name, ctypes.c_int64) for name in ("word_count", "unseen_count", "estimated", "units")),
        ("rough", ctypes.c_void_p), ("tree_question", TreeQuestion), ("wanted", Prediction),
        *((name, ctypes.c_int64) for name in ("decided", "first", "second", "some", "best")),
        *((name, ctypes.c_double) for name in ("first_seconds", "second_seconds", "best_seconds")),
    ]  # fmt: skip


# The answers of a Choice, from `decided` on.
CHOICE_ANSWERS, CHOICE_ANSWERS_AT = struct.Struct("=5q3d"), Choice.decided.offset


class Desk:
    """Where a question is put down: arrays whose places the library knows.  A question fills all but `out`.

    `problem` are numbers, `both` has a row a feature and a column a kernel, `kernel_places` begins with those of the
    kernels that are asked about.
    """

    def __init__(self, problem: int, kernel: int, both: int, count: int, decisions: int) -> None:
        self.problem, self.both = np.zeros(problem, np.float32), np.zeros((both, count))
        self.kernel_places, self.out = np.zeros(count, np.int64), np.zeros(count)
        self._room = np.empty((decisions + 2) * _SET, np.uint8)
        arrays = self.problem, None, self.both, self.kernel_places
        places = [None if array is None else array.ctypes.data for array in arrays]
        self.question = TreeQuestion(*places, problem, kernel, both, count, 0, 0, 0.0)
        room = self._room.ctypes.data
        self.places = ctypes.addressof(self.question), room + -room % _SET, self.out.ctypes.data
        self.prediction = Prediction()
        self._prediction_at = ctypes.addressof(self.prediction)

    @property
    def whole(self) -> tuple[int, ...]:
        """The places, with that of the prediction."""
        return (*self.places, self._prediction_at)


class _Desks(threading.local):
    """A thread's, by their shape."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], Desk] = {}


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """What a forest asks of kernels alone, a row a feature; the library reads it."""

    numbers: Array
    place: int


class BySets:
    """A forest that kernels of one problem are asked about: rows of the problem, the kernel, both, and the units."""

    def __init__(self, native: ctypes.CDLL, arrays: tuple[Array, ...], base: float) -> None:
        self._native, self._arrays = native, arrays  # the library reads these
        *trees, thresholds, first, nodes, roots = (array.ctypes.data for array in arrays)
        self._tables = _Tables(*trees, len(arrays[0]), thresholds, first, nodes, roots, len(arrays[-1]), base)
        self._at, self._decisions, self._desks = ctypes.addressof(self._tables), len(arrays[3]), _Desks()

    @staticmethod
    def kernel_features(values: Array) -> KernelFeatures:
        """A row a feature, a column a kernel."""
        numbers = np.ascontiguousarray(values, np.float32)
        return KernelFeatures(numbers, numbers.ctypes.data)

    def desk(self, problem: int, kernels: KernelFeatures, both: int) -> Desk:
        """This thread's for kernels of this number: with so many features of the problem, and of both."""
        shape = (problem, *kernels.numbers.shape, both)
        desk = self._desks.kept.get(shape)
        if desk is None:
            if len(self._desks.kept) >= MOST_DESKS:
                self._desks.kept.clear()
            desk = self._desks.kept[shape] = Desk(
                problem, len(kernels.numbers), both, kernels.numbers.shape[1], self._decisions
            )
        return desk

    @property
    def choose(self) -> Any:
        """`tw_trees_choose`, which takes the place of a Choice; it takes microseconds, and keeps Python's lock."""
        return _chooser(self._native)

    def choice(self, desk: Desk, kernels: KernelFeatures, units: int) -> Choice:
        """What all questions at a desk about some kernels share; the caller knows the rest."""
        _, room, out = desk.places
        template = desk.question
        question = TreeQuestion(
            template.problem, kernels.place, template.both, template.kernel_places, template.problem_count,
            template.kernel_count, template.both_count, template.stride, 0, 1, units,
        )  # fmt: skip
        return Choice(
            forest=self._at,
            room=room,
            out=out,
            problem=template.problem,
            both=template.both,
            units=units,
            tree_question=question,
        )

    def ask(self, desk: Desk, kernels: KernelFeatures, count: int, units: float) -> Array:
        """Scores of the first `count` of `desk.kernel_places`; good until the next question at this desk."""
        question = desk.question
        question.kernel, question.count, question.units = kernels.place, count, units
        self._native.tw_trees_ask(self._at, *desk.places)
        return desk.out[:count]

    def predict(
        self, desk: Desk, kernels: KernelFeatures, units: float, estimates: Array, low: int, high: int,
        far: float, trust: float, rough: float,
    ) -> Array | int:  # fmt: skip
        """Seconds of all kernels, or the index of its first feature beyond `low` and `high`."""
        question, wanted = desk.question, desk.prediction
        seconds = np.empty(len(estimates))
        question.kernel, question.units = kernels.place, units
        wanted.estimates, wanted.low, wanted.high = estimates.ctypes.data, low, high
        wanted.far, wanted.trust, wanted.rough, wanted.seconds = far, trust, rough, seconds.ctypes.data
        self._native.tw_trees_predict(self._at, *desk.whole)
        beyond = int(wanted.beyond)
        return seconds if beyond < 0 else beyond


def _joined(*parts: Any) -> Array:
    """One array behind another, as `numpy.r_` does in ten times the time."""
    return np.concatenate([np.atleast_1d(part) for part in parts])


def by_sets(forest: Forest, width: int, common: int = 0) -> BySets | None:
    """The same forest over so many features, the first few of which are the problem's.

    None without a compiler, and for one that is too large for it.
    """
    native = _library()
    forest, alike = _parted(forest, common)
    nodes, roots = forest.nodes, forest.roots
    own, left = np.arange(len(nodes)), nodes["left"].astype(np.int64)
    leaf = left == own
    sizes = np.diff(_joined(roots, len(nodes)))
    if native is None or not len(roots) or roots[0] or (sizes <= 0).any():
        return None
    tree = np.repeat(np.arange(len(roots)), sizes)
    # Trees are contiguous, and every node but the roots has one parent.
    parents = np.bincount(_joined(left[~leaf], left[~leaf] + 1), minlength=len(nodes))
    if (tree[left + ~leaf] != tree).any() or (parents != ~np.isin(own, roots)).any():
        return None
    features, thresholds, which = distinct_decisions(nodes["feature"][~leaf], nodes["threshold"][~leaf])
    if len(features) > MOST_DECISIONS:
        return None
    decision = np.full(len(nodes), len(features), np.uint16)
    decision[~leaf] = which
    parts = _parts(nodes, roots, decision, len(features))
    if parts is None:
        return None
    first = np.searchsorted(features, np.arange(width + 1)).astype(np.int32)
    arrays = (*parts, thresholds, first, alike.nodes, alike.roots)
    return BySets(native, tuple(map(_in_lines, arrays)), forest.base)


def _in_lines(array: Array) -> Array:
    """The same where a line of the cache begins: a part of a tree is in one or two of them, never in one more."""
    room = np.empty(array.nbytes + _SET, np.uint8)
    first = -room.ctypes.data % _SET
    kept: Array = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    kept[...] = array
    return kept


def distinct_decisions(features: Array, thresholds: Array) -> tuple[Array, Array, Array]:
    """Of pairs the distinct ones in order, their features and thresholds apart, and of each pair which of these it is.

    A pair is sorted as one number: its feature before the bits of its threshold, mapped so that they sort in its order.
    Pairs of numbers take NumPy fifty times as long, which was a tenth of a first call.
    """
    bits = (np.asarray(thresholds, np.float32) + np.float32(0)).view(np.int32)  # -0 is 0
    transposed = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits).astype(np.int64)
    pairs, which = np.unique((features.astype(np.int64) << 32) + (transposed + (1 << 31)), return_inverse=True)
    transposed = ((pairs & 0xFFFFFFFF) - (1 << 31)).astype(np.int32)
    bits = np.where(transposed < 0, transposed ^ np.int32(0x7FFFFFFF), transposed)
    return pairs >> 32, bits.view(np.float32), which.reshape(-1)


def _parts(nodes: Array, roots: Array, decision: Array, none: int) -> tuple[Array, Array, Array] | None:
    """Decisions of trees' tops and twigs, `none` where a tree has no node, and the values of leaves by their number.

    None where a tree is deeper than that.
    """
    left, count = nodes["left"].astype(np.int64), len(roots)
    leaf = left == np.arange(len(nodes))
    tops = np.full((count, _TWIGS), none, np.uint16)
    twigs = np.full((count, _TWIGS, _TWIGS), none, np.uint16)
    values = np.zeros((count, 1 << _DEEP), np.float32)
    now, tree, place = roots.astype(np.int64), np.arange(count), np.ones(count, np.int64)
    for depth in range(_DEEP + 1):
        here = leaf[now]
        values[tree[here], (place[here] - (1 << depth)) << (_DEEP - depth)] = nodes["value"][now[here]]
        now, tree, place = now[~here], tree[~here], place[~here]
        below = max(0, depth - _HALF)
        if depth < _HALF:
            tops[tree, place] = decision[now]
        elif depth < _DEEP:
            twigs[tree, (place >> below) - _TWIGS, (1 << below) + place % (1 << below)] = decision[now]
        now, tree, place = _joined(left[now], left[now] + 1), _joined(tree, tree), _joined(2 * place, 2 * place + 1)
    return None if len(now) else (tops, twigs, values)


def _parted(forest: Forest, common: int) -> tuple[Forest, Forest]:
    """The trees that look at kernels, and behind them those that look at the first few features alone."""
    sizes = np.diff(_joined(forest.roots, len(forest.nodes)))
    if not len(sizes) or forest.roots[0] or (sizes <= 0).any():
        return forest, replace(forest, roots=forest.roots[:0], depths=forest.depths[:0])
    inner = forest.nodes["left"] != np.arange(len(forest.nodes))
    beyond = np.add.reduceat(inner & (forest.nodes["feature"] >= common), forest.roots) > 0
    return _of_trees(forest, beyond, sizes), _of_trees(forest, ~beyond, sizes)


def _of_trees(forest: Forest, which: Array, sizes: Array) -> Forest:
    """Some of its trees, of contiguous trees."""
    kept = np.repeat(which, sizes)
    roots = _joined(0, np.cumsum(sizes[which]))[:-1].astype(np.int32)
    nodes = forest.nodes[kept]
    nodes["left"] -= np.repeat(forest.roots[which] - roots, sizes[which]).astype(np.int32)
    return replace(forest, nodes=nodes, roots=roots, depths=forest.depths[which])


_lock = threading.Lock()
_loaded: list[ctypes.CDLL | None] = []


def _library() -> ctypes.CDLL | None:
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_built())
    return _loaded[0]


def library_source() -> Source:
    """What the library is compiled from."""
    from tilewright.backends.base import Source

    text = packaged.read_text("tilewright.runtime", "native/trees.cpp")
    blocks = packaged.read_text("tilewright.runtime", "native/trees_blocks.h").replace("#pragma once\n", "")
    return Source("tilewright_trees.cpp", text.replace('#include "trees_blocks.h"\n', blocks), "c++")


def _built() -> ctypes.CDLL | None:
    """Built and loaded at the first question; None where that fails, which is said once."""
    from tilewright.arch import runnable_host_archs

    try:
        return load_library(runnable_host_archs()[0].name)
    except TimeoutError:  # an OSError too, but of who interrupts us, as the handler of a signal does
        raise
    except (TilewrightError, OSError, AttributeError) as error:
        events.emit(events.Warned("trees", f"learned selection takes a millisecond longer: {error}"))
        return None


def load_library(arch: str) -> ctypes.CDLL:
    """The library as it is compiled for an arch of this host."""
    from tilewright.build import build_source

    library = ctypes.CDLL(str(build_source(library_source(), arch).path))
    library.tw_trees_abi_version.restype = ctypes.c_int64
    if library.tw_trees_abi_version() != _VERSION:
        raise OSError("it is of another version")
    score, pointer, size = library.tw_trees_score, ctypes.c_void_p, ctypes.c_int64
    score.argtypes = (pointer, pointer, pointer, size, pointer, size, size, ctypes.c_double, pointer)
    score.restype = None
    library.tw_trees_ask.argtypes = (pointer, pointer, pointer, pointer)
    library.tw_trees_ask.restype = None
    library.tw_trees_predict.argtypes = (pointer, pointer, pointer, pointer, pointer)
    library.tw_trees_predict.restype = None
    library.tw_trees_choice_bytes.restype = size
    if library.tw_trees_choice_bytes() != ctypes.sizeof(Choice):
        raise OSError("it is of another version")
    return library


@lru_cache(maxsize=1)
def _chooser(native: ctypes.CDLL) -> Any:
    # Loaded once more without giving up Python's lock around a call, which takes longer than the call.
    function = ctypes.PyDLL(native._name).tw_trees_choose
    function.argtypes, function.restype = (ctypes.c_void_p,), None
    return function
