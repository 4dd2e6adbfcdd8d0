"""Attentions for the fuzzer: drawn about half right, twisted otherwise, made, and judged by sums written out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tilewright as tw
from tests.attention.oracle import plain
from tests.backends.cpu.gemm import catalog
from tests.fuzz import convolutions, memory
from tests.fuzz.convolutions import ConvCall
from tests.fuzz.libraries import LIBRARIES, torch
from tests.fuzz.memory import Array, Live
from tests.fuzz.running import Runner, Wrong
from tilewright.ops import op
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.base import KernelSpec

# What the kernels of the session have; heads are of at most 32 elements.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "half": {"dtype_q": "bf16"},
    "causal": {"window_right": 0, "lse": True},
    "mask": {"mask_shape": (1, 1, 1, 1)},
    "bias": {"bias": "tensor", "softcap": True},
    "packed": {"varlen": True, "window_right": 0},
    "paged": {"pages": "strided", "page_lookup": "table", "seqlens_k": True},
}


def specs() -> tuple[KernelSpec, ...]:
    """The floor of each kind on this machine."""
    found = (AttentionProblem(1, 1, 1, 1, 8, **more).signature for more in KINDS.values())
    return tuple(op("attention").fallback_spec(one, catalog.best()) for one in found)


@dataclass(frozen=True, repr=False)
class AttentionCall(ConvCall):
    """Arrays by the names of the function's parameters; tables and numbers as they are given."""


def _tables(draw: Any, kind: str, batch: int, rows: int, keys: int) -> dict[str, Any]:
    """Lengths, starts and pages: lists of numbers, which become int32."""
    if kind == "packed":
        return {"cu_seqlens_q": _starts(draw, batch, rows), "cu_seqlens_k": _starts(draw, batch, keys)}
    if kind == "paged":
        pages = -(-keys // 4)
        table = draw(st.permutations(range(batch * pages)))
        return {"block_table": [list(table[one * pages : (one + 1) * pages]) for one in range(batch)],
                "seqlens_k": [draw(st.integers(0, keys)) for _ in range(batch)]}  # fmt: skip
    return {"seqlens_k": [draw(st.integers(0, keys)) for _ in range(batch)]} if draw(st.integers(0, 3)) == 0 else {}


def _starts(draw: Any, batch: int, total: int) -> list[int]:
    return [0, *sorted(draw(st.integers(0, total)) for _ in range(batch - 1)), total]


@st.composite
def attentions(draw: Any) -> AttentionCall:
    kind = draw(st.sampled_from(sorted(KINDS)))
    batch, rows, keys = draw(st.integers(1, 3)), draw(st.integers(0, 6)), draw(st.integers(1, 9))
    heads_kv, group = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 1, 2, 3]))
    qk, v = draw(st.sampled_from([1, 8, 12, 32])), draw(st.sampled_from([1, 8, 12, 32]))
    numbers: dict[str, Any] = _tables(draw, kind, batch, rows, keys)
    first = draw(st.sampled_from(["bshd", "bhsd"]))
    numbers["layout"] = first
    library = draw(st.sampled_from(LIBRARIES))
    dtype = "bfloat16" if kind == "half" else "float32"
    outer: dict[str, tuple[int, ...]] = {"q": (batch, rows), "k": (batch, keys)}
    if kind == "packed":
        outer = {"q": (rows,), "k": (keys,)}
    if kind == "paged":
        outer["k"] = (batch * -(-keys // 4), 4)
    shapes = {
        "q": (*outer["q"], heads_kv * group, qk),
        "k": (*outer["k"], heads_kv, qk),
        "v": (*outer["k"], heads_kv, v),
    }
    arrays: dict[str, Any] = {}
    for name, shape in shapes.items():
        turned = first == "bhsd" and not (kind == "paged" and name != "q")
        arrays[name] = _heads(draw, dtype, (*shape[:-3], shape[-2], shape[-3], shape[-1]) if turned else shape, library)
    if kind == "causal":
        numbers |= {"causal": draw(st.sampled_from([True, "top_left", "bottom_right"])), "return_lse": True}
        numbers["window"] = draw(st.sampled_from([None, (2, None), (0, 0)]))
    if kind == "packed":
        numbers["causal"] = draw(st.sampled_from(["top_left", "bottom_right"]))
    spread = tuple(1 if draw(st.booleans()) else size for size in (batch, heads_kv * group, rows, keys))
    if kind == "mask":
        numbers["mask"] = np.array(draw(st.lists(st.booleans(), min_size=9, max_size=9)))
        numbers["mask"] = np.resize(numbers["mask"], spread)
    if kind == "bias":
        arrays["bias"] = convolutions._array(draw, "float32", spread, "numpy")
        numbers["softcap"] = draw(st.sampled_from([1.0, 3.5]))
    call = AttentionCall("attention", tuple(arrays.items()), tuple(numbers.items()))
    call = replace(call, function=draw(st.sampled_from(["api", "api", "run"])))
    return call if draw(st.booleans()) else _twisted(draw, call)


def _heads(draw: Any, dtype: str, shape: tuple[int, ...], library: str) -> Array:
    """Any order in memory but for the last dimension, whose elements lie side by side."""
    made = convolutions._array(draw, dtype, (*shape[:-1], 1), library)
    gap, size = draw(st.sampled_from([0, 0, 3])), int(made.itemsize)
    strides = tuple(step * (shape[-1] + gap) for step in made.strides[:-1])
    return replace(made, shape=shape, strides=(*strides, size))


WRONG: dict[str, tuple[Any, ...]] = {
    "causal": ("left", 3, None, "bottom_right"),
    "window": ((1,), "ab", (1.5, 0), (-4, 1), (2, 2), 7),
    "softcap": (0.0, -1, "x", float("nan"), 1e-3),
    "scale": ("x", None, 0.25, 1j, [1]),
    "dropout_p": (1.5, -1, "x"),
    "sink_tokens": ("x", -1, 1.5),
    "sink": ("x", (1, 2, 3), np.ones(3, np.float32)),
    "num_splits": (0, 1.5, 1000, "x", True),
    "layout": ("sbhd", None, 5, "bhsd"),
    "seqlens_k": ([100], [-1, 0], [1, 2, 3, 4, 5], "x", [0.5]),
    "seqlens_q": ([100], [-1], "x"),
    "cu_seqlens_q": ([0, 100], [3, 1], [1], [], "x"),
    "cu_seqlens_k": ([0, 100], [5, 0, 1], "x"),
    "block_table": ([[1000]], [[-1]], [1], "x", [[0], [1], [2], [3], [4]]),
    "page_size": (0, 5, "x"),
    "mask": (np.ones((2, 2, 2, 2, 2), bool), np.ones(3, bool), "x", np.ones(1, np.float32)),
    "out_dtype": ("fp31", "int8", 7),
    "kv_layout": ("linear", "diagonal", 3),
    "max_seqlen_q": (0, -1, "x", 1),
}


def _twisted(draw: Any, call: AttentionCall) -> AttentionCall:
    """One or two things of a call are other than they were."""
    for _ in range(draw(st.integers(1, 2))):
        arrays, numbers = dict(call.arrays), dict(call.numbers)
        if draw(st.booleans()):
            name = draw(st.sampled_from(sorted(WRONG)))
            numbers[name] = draw(st.sampled_from(WRONG[name]))
        else:
            convolutions._twist_array(draw, arrays, "array")
        call = replace(call, arrays=tuple(arrays.items()), numbers=tuple(numbers.items()), right=False)
    return call


# -- making and judging --------------------------------------------------------------------------------------------

_TABLES = ("seqlens_q", "seqlens_k", "cu_seqlens_q", "cu_seqlens_k", "block_table")


def _called(runner: Runner, call: ConvCall, lives: dict[str, Live]) -> Any:
    things = {name: live.thing for name, live in lives.items()}
    numbers = dict(call.numbers)
    for name in _TABLES:
        if isinstance(numbers.get(name), list):
            given = np.array(numbers[name])
            numbers[name] = given.astype(np.int32) if given.dtype.kind == "i" else given
    q, k, v = (things.pop(name) for name in "qkv")
    numbers |= things
    if call.function == "run":
        return runner.registry.run("attention", q, k, v, **numbers)
    return tw.attention(q, k, v, **numbers)


def run(runner: Runner, call: AttentionCall) -> None:
    """Twice, so that the second takes the fast path."""
    runner.told(repr(call))
    for turn in range(2):
        arrays = ((name, replace(one, seed=one.seed + 100 * turn) if isinstance(one, Array) else one)
                  for name, one in call.arrays)  # fmt: skip
        _once(runner, replace(call, arrays=tuple(arrays)))


def _once(runner: Runner, call: AttentionCall) -> None:
    lives = convolutions._lives(call)
    runner.counts["calls"] += 1
    try:
        try:
            result = _called(runner, call, lives)
        except Exception as error:  # whatever it is, it is judged
            convolutions._demand_error(runner, call, error)
        else:
            if call.right:
                _demand_numbers(call, lives, result)
                runner.counts["checked"] += 1
            else:
                runner.counts["unchecked"] += 1
        convolutions._demand_untouched(lives, None)
    except Wrong as wrong:
        raise Wrong(f"{wrong}\n  {call!r}") from wrong
    finally:
        memory.release(lives.values())


def _plain(array: Any) -> Any:
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.to(torch.float64).numpy()
    return np.asarray(array).astype(np.float64)


def _demand_numbers(call: AttentionCall, lives: dict[str, Live], result: Any) -> None:
    """Every sequence by itself."""
    numbers = dict(call.numbers)
    values = {name: np.asarray(live.values, np.float64) for name, live in lives.items() if live.values is not None}
    turned = numbers["layout"] == "bhsd"
    out = _plain(result[0] if numbers.get("return_lse") else result)
    near = 3e-2 if dict(call.arrays)["q"].dtype == "bfloat16" else 2e-5
    for one, (rows, keys) in enumerate(_sequences(numbers, values, turned)):
        q, got = (_rows(array, one, rows, turned, "cu_seqlens_q" in numbers) for array in (values["q"], out))
        if "block_table" in numbers:
            chosen = np.array(numbers["block_table"][one], np.int64)
            k, v = (values[name][chosen].reshape(-1, *values[name].shape[2:])[: keys.stop] for name in "kv")
        else:
            k, v = (_rows(values[name], one, keys, turned, "cu_seqlens_k" in numbers) for name in "kv")
        said: dict[str, Any] = {"softcap": numbers.get("softcap", 0.0)}
        causal, window = numbers.get("causal", False), numbers.get("window")
        said["causal"] = "top_left" if causal is True else causal
        if window is not None:
            said["window"] = tuple(-1 if bound is None else bound for bound in window)
        for name, four in (("mask", numbers.get("mask")), ("bias", values.get("bias"))):
            if four is not None:
                mine = four[one if four.shape[0] > 1 else 0]
                said[name] = np.broadcast_to(mine, (mine.shape[0], len(q), max(mine.shape[2], len(k))))
        want, _ = plain(q, k, v, **said)
        if got.shape != want.shape or not np.allclose(got, want, rtol=near, atol=near):
            raise Wrong(f"the numbers of sequence {one} are wrong: {got.ravel()[:6]}, expected {want.ravel()[:6]}")


def _sequences(numbers: dict[str, Any], values: dict[str, Any], turned: bool) -> Any:
    """Rows and keys of each sequence, among its own or among the packed ones."""
    if "cu_seqlens_q" in numbers:
        pairs = zip(
            numbers["cu_seqlens_q"],
            numbers["cu_seqlens_q"][1:],
            numbers["cu_seqlens_k"],
            numbers["cu_seqlens_k"][1:],
            strict=False,
        )
        return [(slice(a, b), slice(c, d)) for a, b, c, d in pairs]
    axis = 2 if turned else 1
    batch, rows = values["q"].shape[0], values["q"].shape[axis]
    lengths = numbers.get("seqlens_k") or [values["k"].shape[axis]] * batch
    return [(slice(0, rows), slice(0, one)) for one in lengths]


def _rows(array: Any, one: int, rows: slice, turned: bool, packed: bool) -> Any:
    """(rows, heads, elements) of a sequence."""
    mine = array if packed else array[one]
    return (mine.transpose(1, 0, 2) if turned else mine)[rows]
