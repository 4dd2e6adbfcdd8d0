"""Convolutions for the fuzzer: drawn about half right, twisted otherwise, made, and judged.

The oracle is its own: padded arrays, a slice a place of the window, small whole numbers whose sums are exact.
"""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import tilewright as tw
from tests.backends.cpu.gemm import catalog
from tests.fuzz import memory, oddities
from tests.fuzz.drawing import HONEST
from tests.fuzz.libraries import LIBRARIES, torch
from tests.fuzz.memory import Array, Floats, Foreign, Junk, Live, Shown, make_arrays, numpy_type
from tests.fuzz.running import Runner, Wrong
from tilewright.errors import InternalError, TilewrightError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

Sizes = tuple[int, ...]
FORWARD, DATA, WEIGHT = "forward", "backward_data", "backward_weight"


class Kind(NamedTuple):
    """What a kernel of the session computes."""

    variant: str
    rank: int
    dtype: str = "float32"
    out: str = "float32"
    epilogue: str = "PassThrough"
    num_d: int = 0


KINDS = (
    *(Kind(variant, rank) for rank in (2, 3) for variant in (FORWARD, DATA, WEIGHT)),
    Kind(FORWARD, 2, "bfloat16", "bfloat16"),
    Kind(FORWARD, 2, "int8", "int32"),
    Kind(FORWARD, 2, epilogue="MultiDAdd", num_d=1),
    Kind(FORWARD, 2, epilogue="Relu", num_d=2),
)


def specs() -> tuple[KernelSpec, ...]:
    """The floor of each kind on this machine."""
    conv, found = op("conv"), []
    for kind in KINDS:
        ours, out = memory.OURS[kind.dtype], memory.OURS[kind.out]
        axes = {"variants": (kind.variant,), "spatial": (kind.rank,), "datatypes": (ours,), "outputs": (out,),
                "epilogues": (kind.epilogue,), "num_d": (kind.num_d,)}  # fmt: skip
        signature = next(iter(conv.proposals("default", catalog.best(), **axes))).signature
        found.append(conv.fallback_spec(signature, catalog.best()))
    return tuple(found)


@dataclass(frozen=True, repr=False)
class ConvCall(Shown):
    """Arrays by the names of the function's parameters; numbers as they are given."""

    variant: str
    arrays: tuple[tuple[str, Any], ...]
    numbers: tuple[tuple[str, Any], ...] = ()
    right: bool = True
    function: str = "api"  # or run


# -- drawing -------------------------------------------------------------------------------------------------------


def _laid(draw: Any, shape: Sizes, itemsize: int) -> Sizes:
    """Byte strides of memory in any order of dimensions, with gaps."""
    order = draw(st.sampled_from([None, None, "turned"]))
    dims = list(range(len(shape))) if order is None else list(draw(st.permutations(range(len(shape)))))
    strides, step, gap = [0] * len(shape), itemsize, draw(st.sampled_from([0, 0, 0, 1, 5]))
    for index in reversed(dims):
        strides[index] = step
        step = step * max(1, shape[index]) + gap * itemsize
    return tuple(strides)


def _array(draw: Any, dtype: str, shape: Sizes, library: str) -> Array:
    size = int(numpy_type(dtype).itemsize)
    return Array(
        dtype,
        shape,
        _laid(draw, shape, size),
        library,
        offset=size * draw(st.sampled_from([0, 0, 1, 3])),
        seed=draw(st.integers(0, 7)),
        fence=draw(st.sampled_from(["", "", "end", "start"])),
        kind=draw(st.sampled_from(HONEST)) if library == "dlpack" else "",
    )


def _ordered(shape: Sizes, layout: str) -> Sizes:
    """A shape that is written channels last, as the layout has it."""
    return shape if "c" in layout[-1:] or layout == "channels_last" else (shape[0], shape[-1], *shape[1:-1])


@st.composite
def convolutions(draw: Any) -> ConvCall:
    kind = draw(st.sampled_from(KINDS))
    rank = draw(st.sampled_from([1, 2, 2])) if kind.rank == 2 else 3
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    c, k = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    window = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    stride = tuple(draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank))
    dilation = tuple(draw(st.sampled_from([1, 1, 2])) for _ in range(rank))
    pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    size, out = [], []
    for w, s, d, (before, after) in zip(window, stride, dilation, pads, strict=True):
        reach = (w - 1) * d + 1
        size.append(max(1, reach - before - after) + draw(st.integers(0, 3)))
        out.append((size[-1] + before + after - reach) // s + 1)
    batch = draw(st.sampled_from([1, 2, 1, 2, 0]))
    layout = draw(st.sampled_from(["nhwc", "nchw", "channels_last", "channels_first"]))
    x, w_ = (batch, *size, c * groups), (k * groups, *window, c)
    y = (batch, *out, k * groups)
    library = draw(st.sampled_from(LIBRARIES))
    shapes = {name: _ordered(one, layout) for name, one in (("x", x), ("w", w_), ("dy", y))}
    result = {FORWARD: "dy", DATA: "x", WEIGHT: "w"}[kind.variant]
    arrays: dict[str, Any] = {
        name: _array(draw, kind.dtype, shape, library) for name, shape in shapes.items() if name != result
    }
    numbers: dict[str, Any] = {"layout": layout, "groups": groups, "stride": _short(draw, stride),
                               "dilation": _short(draw, dilation), "padding": _padding(draw, pads)}  # fmt: skip
    if kind.variant != FORWARD:
        numbers["shape"] = draw(st.sampled_from([tuple, list]))(shapes[result])
    if kind.epilogue != "PassThrough":
        numbers["epilogue"] = draw(st.sampled_from([kind.epilogue, kind.epilogue.lower()]))
    for index in range(kind.num_d):
        whole = shapes["dy"]
        spread = tuple(1 if draw(st.integers(0, 3)) == 0 else one for one in whole)[draw(st.integers(0, 1)) :]
        arrays[f"ds[{index}]"] = _array(draw, kind.out, spread, library)
    if draw(st.integers(0, 2)) == 0:
        arrays["out"] = replace(_array(draw, kind.out, shapes[result], library), values="poison")
    call = ConvCall(kind.variant, tuple(arrays.items()), tuple(numbers.items()))
    call = replace(call, function=draw(st.sampled_from(["api", "api", "api", "run"])))
    return call if draw(st.booleans()) else _twisted(draw, call)


def _short(draw: Any, numbers: Sizes) -> Any:
    if len(set(numbers)) == 1 and draw(st.booleans()):
        return draw(st.sampled_from([int, np.int64]))(numbers[0])
    return draw(st.sampled_from([tuple, list]))(numbers)


def _padding(draw: Any, pads: tuple[tuple[int, int], ...]) -> Any:
    if all(before == after for before, after in pads) and draw(st.booleans()):
        return _short(draw, tuple(one for one, _ in pads))
    return draw(st.sampled_from([tuple, list]))(pads)


NUMBERS: tuple[Any, ...] = (0, -1, 2, 7, 1.5, "2", None, True, (1, 1), (1, 2, 3), ((1, 2), (3, 4)), [[1]], (), 2**40,
                            2**70, np.float32(1), np.ones(2), "same", (None,), ((0, 0), 1), 1j)  # fmt: skip
NAMES: tuple[Any, ...] = ("nhwc", "nchw", "ndhwc", "ncw", "chwn", "", None, 5, b"nhwc", "NHWC")
EPILOGUES: tuple[Any, ...] = ("relu", "multiply", "nonsense", None, 3, "multi_d_add")


def _twisted(draw: Any, call: ConvCall) -> ConvCall:
    """One or two things of a call are other than they were."""
    for _ in range(draw(st.integers(1, 2))):
        arrays, numbers = dict(call.arrays), dict(call.numbers)
        part = draw(st.sampled_from(["number", "number", "array", "array", "layout", "epilogue", "alias"]))
        if part == "number":
            numbers[draw(st.sampled_from(["stride", "padding", "dilation", "groups", "shape"]))] = draw(
                st.sampled_from(NUMBERS)
            )
            if call.variant == FORWARD:
                numbers.pop("shape", None)
        elif part == "layout":
            numbers["layout"] = draw(st.sampled_from(NAMES))
        elif part == "epilogue" and call.variant == FORWARD:
            numbers["epilogue"] = draw(st.sampled_from(EPILOGUES))
        else:
            _twist_array(draw, arrays, part)
        call = replace(call, arrays=tuple(arrays.items()), numbers=tuple(numbers.items()), right=False)
    return call


def _twist_array(draw: Any, arrays: dict[str, Any], part: str) -> None:
    name = draw(st.sampled_from(sorted(arrays)))
    one = arrays[name]
    if not isinstance(one, Array):
        return
    if part == "alias" and "out" in arrays and isinstance(arrays["out"], Array) and name != "out":
        offset = arrays["out"].itemsize * draw(st.sampled_from([0, 0, 1]))
        arrays["out"] = replace(arrays["out"], within=name, offset=offset, library="numpy", kind="", fence="")
        return
    way = draw(st.sampled_from(["junk", "foreign", "size", "rank", "dtype", "read-only", "strides"]))
    if way == "junk":
        arrays[name] = Junk(draw(st.sampled_from(sorted(oddities.JUNK))))
    elif way == "foreign":
        arrays[name] = Foreign("numpy", draw(st.sampled_from(sorted(oddities.NUMPY_TYPES))), one.shape)
    elif way == "read-only":
        arrays[name] = replace(one, writeable=False, library="numpy", kind="")
    elif way == "strides" and one.shape:
        strides = tuple(draw(st.sampled_from([step, 0, -step, one.itemsize])) for step in one.strides)
        arrays[name] = replace(one, strides=strides, library="numpy", kind="", within="")
    else:
        shape = one.shape
        dtype = draw(st.sampled_from(["float32", "float16", "int8", "int32"])) if way == "dtype" else one.dtype
        if way == "size" and shape:
            at = draw(st.integers(0, len(shape) - 1))
            shape = (*shape[:at], max(0, shape[at] + draw(st.sampled_from([-1, 1, 3]))), *shape[at + 1 :])
        elif way == "rank":
            shape = draw(st.sampled_from([shape[1:], (*shape, 1), (1, *shape), ()]))
        size = int(numpy_type(dtype).itemsize)
        arrays[name] = replace(one, dtype=dtype, shape=shape, strides=_laid(draw, shape, size), within="", kind="",
                               library="numpy")  # fmt: skip


# -- making and judging --------------------------------------------------------------------------------------------


def _lives(call: ConvCall) -> dict[str, Live]:
    given = dict(call.arrays)
    lives = make_arrays({name: one for name, one in given.items() if isinstance(one, Array)})
    for live in lives.values():
        live.thing = oddities.thing_of(live)
    for name, one in given.items():
        if isinstance(one, Foreign):
            lives[name] = Live(one, oddities.foreign(one))
        elif isinstance(one, Junk):
            lives[name] = Live(one, oddities.junk(one))
    return lives


def _called(runner: Runner, call: ConvCall, lives: dict[str, Live]) -> Any:
    things = {name: live.thing for name, live in lives.items()}
    numbers = dict(call.numbers)
    if "out" in things:
        numbers["out"] = things["out"]
    ds = [things[name] for name in ("ds[0]", "ds[1]") if name in things]
    if ds:
        numbers["ds"] = tuple(ds)
    names = {FORWARD: ("x", "w"), DATA: ("dy", "w"), WEIGHT: ("x", "dy")}[call.variant]
    first, second = (things[name] for name in names)
    if call.function == "run":
        return runner.registry.run("conv", first, second, variant=call.variant, **numbers)
    if call.variant == FORWARD:
        return tw.conv(first, second, **numbers)
    shape = numbers.pop("shape")
    function = tw.conv_backward_data if call.variant == DATA else tw.conv_backward_weight
    return function(first, second, shape, **numbers)


def run(runner: Runner, call: ConvCall) -> None:
    """Twice, so that the second takes the fast path."""
    runner.told(repr(call))
    for turn in range(2):
        arrays = ((name, replace(one, seed=one.seed + 100 * turn) if isinstance(one, Array) else one)
                  for name, one in call.arrays)  # fmt: skip
        _once(runner, replace(call, arrays=tuple(arrays)))


def _once(runner: Runner, call: ConvCall) -> None:
    lives = _lives(call)
    runner.counts["calls"] += 1
    try:
        try:
            result = _called(runner, call, lives)
        except Exception as error:  # whatever it is, it is judged
            _demand_error(runner, call, error)
            _demand_untouched(lives, None)
            return
        if call.right:
            _demand_numbers(call, lives, result)
            runner.counts["checked"] += 1
        else:
            runner.counts["unchecked"] += 1
        _demand_untouched(lives, "out")
    except Wrong as wrong:
        raise Wrong(f"{wrong}\n  {call!r}") from wrong
    finally:
        memory.release(lives.values())


def _demand_error(runner: Runner, call: ConvCall, error: Exception) -> None:
    if not isinstance(error, TilewrightError):
        raise Wrong(f"a raw {type(error).__name__}: {error}") from error
    told = f"[{error.rule}] {error.message}"
    if isinstance(error, InternalError):
        raise Wrong(f"a bug: {told}") from error
    if not (error.rule and error.remedy and str(error)):
        raise Wrong(f"an error without a rule or a remedy: {told}")
    if str(pickle.loads(pickle.dumps(error))) != str(error):
        raise Wrong(f"an error that does not survive pickling: {told}")
    if error.rule == "frozen" and not call.right:
        runner.counts["not built"] += 1
        return
    if call.right:
        raise Wrong(f"a right call was refused: {error}") from error
    runner.counts["refused"] += 1
    runner.counts[f"rule {error.rule}"] += 1


def _demand_untouched(lives: dict[str, Live], written: str | None) -> None:
    result = lives.get(written) if written else None
    for name, live in lives.items():
        if live.base is None or live.before is None:
            continue
        same = live.base == live.before
        if result is not None and live.base is result.base:
            same |= result.mask().astype(bool)
        if not same.all():
            raise Wrong(
                f"memory of {name} was changed, byte {int(np.argmin(same)) - live.start} from its first element"
            )


def _demand_numbers(call: ConvCall, lives: dict[str, Live], result: Any) -> None:
    out = lives.get("out")
    if out is not None:
        if result is not out.thing:
            raise Wrong(f"the result is a {type(result).__name__}, not out itself")
        result = out.view
    elif torch is not None and isinstance(result, torch.Tensor):
        result = result.to(torch.float64).numpy()
    found = np.asarray(np.asarray(result).astype(np.float64))
    want = expected(call, {name: live.values for name, live in lives.items() if live.values is not None})
    if found.shape != want.shape or not np.array_equal(found, want):
        raise Wrong(f"the numbers are wrong: {found.ravel()[:8]}, expected {want.ravel()[:8]}")


def _last(one: Floats, layout: str) -> Floats:
    return one if layout in ("nhwc", "channels_last") else np.moveaxis(one, 1, -1)


def expected(call: ConvCall, given: dict[str, Floats]) -> Floats:
    """The same in float64, by its own walk over the window."""
    numbers = dict(call.numbers)
    layout, groups = numbers["layout"], numbers["groups"]
    read = {name: _last(one, layout) for name, one in given.items() if name in ("x", "w", "dy")}
    rank = next(iter(read.values())).ndim - 2
    stride, dilation = (_each(numbers[name], rank) for name in ("stride", "dilation"))
    padding = numbers["padding"]
    pairs = [_pair(one) for one in (padding if isinstance(padding, (tuple, list)) else [padding] * rank)]
    if call.variant != FORWARD:
        shape = tuple(numbers["shape"])
        whole = np.zeros(shape)
        read["x" if call.variant == DATA else "w"] = _last(whole, layout)
    x: Any = np.pad(read["x"], [(0, 0), *pairs, (0, 0)])
    w: Any = read["w"].copy()
    c, k = w.shape[-1], w.shape[0] // groups
    sizes = zip(x.shape[1:-1], w.shape[1:-1], dilation, stride, strict=True)
    out = tuple((size - (span - 1) * step - 1) // move + 1 for size, span, step, move in sizes)
    y: Any = np.zeros((x.shape[0], *out, w.shape[0])) if call.variant == FORWARD else read["dy"]
    for place in itertools.product(*map(range, w.shape[1:-1])):
        spans = [slice(at * step, at * step + (size - 1) * move + 1, move)
                 for at, step, size, move in zip(place, dilation, out, stride, strict=True)]  # fmt: skip
        for g in range(groups):
            of_x, of_y = (slice(None), *spans, slice(g * c, g * c + c)), (..., slice(g * k, g * k + k))
            of_w = (slice(g * k, g * k + k), *place)
            if call.variant == FORWARD:
                y[of_y] += x[of_x] @ w[of_w].T
            elif call.variant == DATA:
                x[of_x] += y[of_y] @ w[of_w]
            else:
                w[of_w] += np.tensordot(y[of_y], x[of_x], (range(rank + 1),) * 2)
    inner = tuple(slice(before, size - after) for (before, after), size in zip(pairs, x.shape[1:-1], strict=True))
    total: Any = {FORWARD: y, DATA: x[(slice(None), *inner)], WEIGHT: w}[call.variant]
    total = total if layout in ("nhwc", "channels_last") else np.moveaxis(total, -1, 1)
    for name in ("ds[0]", "ds[1]"):
        if name in given:
            total = total + given[name]
    if str(numbers.get("epilogue", "")).lower() == "relu":
        total = np.maximum(total, 0)
    kind = {"bfloat16": "bfloat16"}.get(next(one.dtype for name, one in call.arrays if name in ("x", "dy")), "float64")
    return np.asarray(total.astype(numpy_type(kind)).astype(np.float64))


def _each(value: Any, rank: int) -> Sizes:
    return tuple(map(int, value)) if isinstance(value, (tuple, list)) else (int(value),) * rank


def _pair(value: Any) -> tuple[int, int]:
    return (int(value[0]), int(value[1])) if isinstance(value, (tuple, list)) else (int(value), int(value))
