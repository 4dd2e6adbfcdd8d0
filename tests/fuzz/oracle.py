"""What a call must give, from what README and docstrings say of it: in float64, from scratch.

Three verdicts: the call is right and must be answered (MUST), it may be answered or refused (MAY: what is documented
leaves it open), or it must be refused (REFUSE).  Whatever is answered must be the right numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz import capsules, oddities
from tests.fuzz.calls import Call, LiveCall
from tests.fuzz.memory import OURS, Array, Floats, Foreign, Live, Strange, numpy_type
from tests.fuzz.oddities import ABSENT, EITHER, REFUSED
from tests.fuzz.values import Numbers, Terms, numbers

FLOATS = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
OUTPUTS = {"float": ("fp32", "fp16", "bf16"), "int": ("int32", "int8", "fp32")}

MUST, MAY, REFUSE = "must", "may", "refuse"


@dataclass
class Expected:
    """An answer: shape, element type and library, and its numbers."""

    shape: tuple[int, ...]
    dtype: str
    library: str
    numbers: Numbers


@dataclass
class Verdict:
    refuse: list[str] = field(default_factory=list)
    may: list[str] = field(default_factory=list)
    expected: Expected | None = None

    @property
    def kind(self) -> str:
        return REFUSE if self.refuse else MAY if self.may or self.expected is None else MUST


@dataclass
class Facts:
    """An operand as far as it can be told without tilewright."""

    dtype: str = ""  # tilewright's name
    shape: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()  # strides in elements
    values: Floats | None = None
    library: str = "numpy"
    writeable: bool = True
    copy: str = ""  # why kernels cannot read it as it lies
    live: Live | None = None


# -- operands ----------------------------------------------------------------------------------------------------------


def facts_of(name: str, live: Live, call: Call, verdict: Verdict) -> Facts | None:
    """None where the operand must be refused, or nothing is known of it; the verdict knows why."""
    one = live.recipe
    if isinstance(one, Array):
        return _facts_of_array(name, live, one, call, verdict)
    if isinstance(one, Foreign):
        ours = oddities.foreign_name(one)
        if ours is not None:
            shape = tuple(live.thing.shape)
            steps = _dense(shape)
            return Facts(ours, shape, steps, np.zeros(shape), one.library, live=live)
        kind = None if one.library == "torch" else np.dtype(oddities.NUMPY_TYPES[one.dtype])
        known = kind is not None and kind.name in OURS
        (verdict.may if known else verdict.refuse).append(f"{name} has elements of {one.dtype}")
        return None
    if isinstance(one, Strange) and (0 in one.shape or one.name == "imaginary"):
        verdict.may.append(f"{name} is {one}")
        return None
    verdict.refuse.append(f"{name} is {one}")
    return None


def _facts_of_array(name: str, live: Live, one: Array, call: Call, verdict: Verdict) -> Facts | None:
    kind = numpy_type(one.dtype)
    ours = OURS.get(kind.name)
    assert live.view is not None
    if one.library == "dlpack":
        told = capsules.must_be_refused(one)
        if told or told is None:
            (verdict.refuse if told else verdict.may).append(f"{name} is a capsule: {one.kind}")
            return None
    if one.kind == "masked":
        verdict.refuse.append(f"{name} is masked")
    if one.kind == "grad" and not {"no_grad", "inference_mode"} & set(call.context):
        # Recorded where everything is a tensor and nothing is written; else there is an error.
        verdict.may.append(f"{name} requires grad")
    if one.kind == "neg":
        verdict.may.append(f"{name} is negated lazily")
        return None
    if one.kind == "inference" and name == "out" and "inference_mode" not in call.context:
        verdict.may.append("out is a tensor of inference mode")
    if ours is None:
        verdict.refuse.append(f"{name} has elements of {one.dtype}")
        return None
    size = one.itemsize
    odd = any(stride % size for n, stride in zip(one.shape, one.strides, strict=True) if n > 1)
    copy = "byte order" if not kind.isnative else "odd strides" if odd else ""
    if not copy and 0 not in one.shape and live.address % size:
        copy = "alignment"
    steps = tuple(stride // size for stride in one.strides)
    # Tensors have no such thing, and capsules of the older kind do not tell.
    tells = one.library == "numpy" or (one.library == "dlpack" and one.kind not in ("old", "stubborn", "dense"))
    writeable = one.writeable or not tells
    return Facts(ours, one.shape, steps, live.values, one.library, writeable, copy, live)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= size
    return tuple(reversed(steps))


def _layouts(shape: tuple[int, ...], steps: tuple[int, ...]) -> str:
    """The ways a matrix can be read: r, c, both or none."""
    (rows, columns), (down, across) = shape[-2:], steps[-2:]
    if 0 in (rows, columns):
        return "rc"
    by_rows = (columns == 1 or across == 1) and (rows == 1 or down >= columns)
    by_columns = (rows == 1 or down == 1) and (columns == 1 or across >= rows)
    return "r" * by_rows + "c" * by_columns


def _nested(one: Facts) -> bool:
    """Whether no two elements share memory, plainly: each stride is at least what the shorter ones reach."""
    reach = 1
    for step, size in sorted((abs(s), n) for n, s in zip(one.shape, one.steps, strict=True) if n > 1):
        if step < reach:
            return False
        reach += step * (size - 1)
    return True


# -- scalars and names -------------------------------------------------------------------------------------------------


def _named(call: Call, verdict: Verdict, name: str, table: dict[str, tuple[Any, Any]], default: Any) -> Any:
    given = getattr(call, name)
    if given == ABSENT:
        return default
    if name == "beta" and given == "None":
        return None
    meant = table[given][1]
    if meant is REFUSED:
        verdict.refuse.append(f"{name} is {given}")
        return default
    if meant is EITHER:
        verdict.may.append(f"{name} is {given}")
        return EITHER
    return meant


# -- the whole ---------------------------------------------------------------------------------------------------------


@dataclass
class _Sides:
    a: Facts | None
    b: Facts | None
    c: Facts | None
    ds: list[Facts | None]
    out: Facts | None
    alpha: Any
    beta: Any
    epilogue: Any
    copy: bool


def judge(made: LiveCall, kernel: Any = None) -> Verdict:
    """`kernel` is the signature of the one that is called directly."""
    call, verdict = made.call, Verdict()
    # Of a C that does not count nothing need be right, so what is wrong with it leaves the verdict open.
    of_c = Verdict()
    found = {name: facts_of(name, live, call, of_c if name == "c" else verdict) for name, live in made.lives.items()}
    alpha = _named(call, verdict, "alpha", oddities.SCALARS, 1.0)
    beta = _named(call, verdict, "beta", oddities.SCALARS, None)
    epilogue = _named(call, verdict, "epilogue", oddities.EPILOGUES, "PassThrough")
    out_dtype = _named(call, verdict, "out_dtype", oddities.OUT_DTYPES, None)
    way = _named(call, verdict, "math", oddities.MATHS, "")
    copy = _named(call, verdict, "copy", oddities.COPIES, "never")
    _named(call, verdict, "target", oddities.TARGETS, "")
    if beta is None:
        beta = 0.0 if call.c is None else 1.0
    counts = beta is EITHER or beta != 0
    (verdict.refuse if counts else verdict.may).extend(of_c.refuse)
    verdict.may.extend(of_c.may)
    if counts and call.c is None:
        verdict.refuse.append("beta without c")
    if call.ds_kind not in ("tuple", "list"):
        verdict.refuse.append(f"ds is a {call.ds_kind}")
    if "strict" in call.context:
        verdict.may.append("strict mode")
    if kernel is not None:
        epilogue, out_dtype = kernel.epilogue, kernel.dtype_c if call.out is None else None
        way = ""
        verdict.may.append("a kernel that is called directly")
    ds = [found.get(f"ds[{index}]") for index in range(len(call.ds))]
    sides = _Sides(found.get("a"), found.get("b"), found.get("c"), ds, found.get("out"), alpha, beta, epilogue,
                   copy == "allow")  # fmt: skip
    _judge_epilogue(sides, verdict)
    if way == "tf32" and not all(one is not None and one.dtype == "fp32" for one in (sides.a, sides.b)):
        verdict.refuse.append("tf32 is for fp32")
    if verdict.refuse:
        return verdict
    _judge_shapes(call, sides, out_dtype, verdict, EITHER in (alpha, beta, epilogue, out_dtype))
    return verdict


def _judge_epilogue(sides: _Sides, verdict: Verdict) -> None:
    if sides.epilogue is EITHER:
        return
    fewest = 1 if sides.epilogue.startswith("MultiD") else 0
    if fewest <= len(sides.ds) <= 4 and sides.epilogue != "PassThrough":
        if len(sides.ds) > 2:  # a call may have them, and kernels that were built before may not
            verdict.may.append("more than two D tensors")
    elif sides.ds or sides.epilogue != "PassThrough":
        verdict.refuse.append(f"{sides.epilogue} of {len(sides.ds)} D tensors")


def _judge_shapes(call: Call, sides: _Sides, out_dtype: Any, verdict: Verdict, open_: bool) -> None:
    a, b = sides.a, sides.b
    if a is None or b is None:
        return  # nothing can be said of the numbers; the verdict is open already
    least = 1 if call.function == "matmul" else 2
    if min(len(a.shape), len(b.shape)) < least or (call.pack and len(b.shape) not in (2, 3)):
        verdict.refuse.append("too few dimensions")
        return
    shape_a, shape_b = a.shape, b.shape
    vector_a, vector_b = len(shape_a) == 1, len(shape_b) == 1
    shape_a = (1, *shape_a) if vector_a else shape_a
    shape_b = (*shape_b, 1) if vector_b else shape_b
    if shape_a[-1] != shape_b[-2]:
        verdict.refuse.append("inner sizes")
        return
    core = (shape_a[-2], shape_b[-1])
    batches = [shape_a[:-2], shape_b[:-2]]
    others = [one for one in (sides.c, *sides.ds, sides.out) if one is not None]
    if call.function != "matmul":
        batches += [one.shape[:-2] for one in others]
    try:
        batch = tuple(map(int, np.broadcast_shapes(*batches)))
        whole = (*batch, *core)
        for one in others:
            if one is not sides.out and tuple(np.broadcast_shapes(one.shape, whole)) != whole:
                raise ValueError
    except ValueError:
        verdict.refuse.append("shapes that do not broadcast")
        return
    seen = (*batch, *(() if vector_a else core[:1]), *(() if vector_b else core[1:]))
    if sides.out is not None and sides.out.shape != seen:
        # NumPy's ufuncs may write a result into a larger array, once for each place.
        larger = call.function == "matmul" and sides.out.shape[len(sides.out.shape) - len(seen) :] == seen
        (verdict.may if larger else verdict.refuse).append(f"out has shape {sides.out.shape}, not {seen}")
        return
    if call.out is not None and sides.out is None:
        return
    if math.prod(seen) > 1 << 40:
        verdict.refuse.append("no machine has so much memory")
        return
    if shape_a[-1] > 1 << 30 or max(core) > 1 << 40:
        verdict.may.append("sizes beyond what is promised, or what can be copied")
        return
    dtype = _judge_types(call, sides, out_dtype, verdict)
    if dtype is None or verdict.refuse or open_ or None in sides.ds or (call.c is not None and sides.c is None):
        return
    _judge_memory(call, sides, whole, verdict)
    if not verdict.refuse:
        verdict.expected = _expected(sides, whole, seen, dtype)


def _judge_types(call: Call, sides: _Sides, out_dtype: Any, verdict: Verdict) -> str | None:
    """The element type of the result."""
    a, b, c, out = sides.a, sides.b, sides.c, sides.out
    assert a is not None
    assert b is not None
    if out_dtype is EITHER:
        return None
    whole = "int8" in (a.dtype, b.dtype)
    if (whole and a.dtype != b.dtype) or (not whole and not {a.dtype, b.dtype} <= set(FLOATS)):
        verdict.refuse.append(f"{a.dtype} times {b.dtype}")
        return None
    if out is not None and out_dtype is not None and out_dtype != out.dtype:
        verdict.refuse.append("out_dtype differs from out")
        return None
    same = a.dtype == b.dtype and a.dtype in OUTPUTS["float"]
    default = a.dtype if same else "int32" if whole else "fp32"
    dtype = out.dtype if out is not None else out_dtype or (c.dtype if c is not None else default)
    if c is not None and c.dtype != dtype:
        (verdict.refuse if sides.beta else verdict.may).append(f"c of {c.dtype}, result of {dtype}")
    if dtype not in OUTPUTS["int" if whole else "float"]:
        verdict.refuse.append(f"{a.dtype} cannot give {dtype}")
        return None
    kinds = {one.dtype for one in sides.ds if one is not None}
    if len(kinds) > 1 or not kinds <= {dtype, *(("fp32",) if dtype in ("fp16", "bf16") else ())}:
        verdict.refuse.append(f"D tensors of {kinds} with {dtype}")
    if call.pack is not None:
        _judge_pack(call, a, b, verdict)
    return dtype


def _judge_pack(call: Call, a: Facts, b: Facts, verdict: Verdict) -> None:
    assert call.pack is not None
    rows, given = call.pack.rows, call.pack.dtype_a
    if type(rows) is not int or rows < 0:
        verdict.refuse.append(f"packed for {rows!r} rows")
    elif rows > 1 << 40:
        verdict.may.append("packed for more rows than there are")
    if given == "tf32":
        verdict.may.append("packed for tf32")
    elif (b.dtype if given is None else given) != a.dtype:
        verdict.refuse.append("packed for another type")


# -- how operands lie in memory ----------------------------------------------------------------------------------------


def _judge_memory(call: Call, sides: _Sides, whole: tuple[int, ...], verdict: Verdict) -> None:
    """What kernels can read as it lies, or may copy; what they can write."""
    a, b, out = sides.a, sides.b, sides.out
    assert a is not None
    assert b is not None
    copied = {name: why for name, one in (("a", a), ("b", b)) if (why := _needs_copy(one))}
    by_rows = out is None or "r" in _seen_layouts(call, out, whole)
    plain_c = sides.c is None or _rows_follow(sides.c)
    for name, other in (("c", sides.c), *((f"ds[{index}]", one) for index, one in enumerate(sides.ds))):
        if other is not None and (other.copy or not _rows_follow(other) or not by_rows or not plain_c):
            copied[name] = "laid out otherwise"
    if not sides.copy or call.pack is not None:
        verdict.may.extend(f"{name}: {why}" for name, why in copied.items())
    if out is not None:
        _judge_out(call, sides, whole, verdict)
        _judge_apart(call, sides, set(copied) if sides.copy else set(), verdict)
    if call.pack is not None and (len(b.shape) == 3 or len(whole) > 3):
        verdict.may.append("a packed batch")


def _needs_copy(one: Facts) -> str:
    """Why kernels cannot read an input as it lies."""
    if one.copy or 0 in one.shape:
        return one.copy
    if len(one.shape) > 1 and not _layouts(one.shape, one.steps):
        return "no layout"
    if any(n > 1 and s < 0 for n, s in zip(one.shape, one.steps, strict=True)):
        return "negative strides"
    return "a repeated vector" if len(one.shape) == 1 and one.shape[0] > 1 and one.steps[0] < 1 else ""


def _seen_layouts(call: Call, out: Facts, whole: tuple[int, ...]) -> str:
    if call.function == "matmul" and len(out.shape) != len(whole):
        return "r" if not out.shape or out.shape[-1] <= 1 or out.steps[-1] == 1 else ""
    return _layouts(out.shape, out.steps)


def _rows_follow(one: Facts) -> bool:
    """Whether what broadcasts is plain: contiguous rows, or elements or rows that repeat."""
    sizes, steps = (1, 1, *one.shape), (0, 0, *one.steps)
    row, column = (0 if size == 1 else step for size, step in zip(sizes[-2:], steps[-2:], strict=True))
    if 0 in one.shape:
        return True
    apart = row == 0 or row >= (one.shape[-1] if column else 1)
    return column in (0, 1) and apart and all(step >= 0 for step in steps)


def _judge_out(call: Call, sides: _Sides, whole: tuple[int, ...], verdict: Verdict) -> None:
    out = sides.out
    assert out is not None
    if not out.writeable:
        verdict.refuse.append("out is read-only")
    if 0 in out.shape:
        if out.copy:
            verdict.may.append(f"out: {out.copy}")
        return
    if out.copy:
        verdict.refuse.append(f"out: {out.copy}")
    if not _nested(out):
        (verdict.refuse if _shares_itself(out) else verdict.may).append("out overlaps itself")
    if any(step < 0 for step in out.steps):
        verdict.may.append("out has negative strides")
    layouts = _seen_layouts(call, out, whole)
    if not layouts or (call.pack is not None and "r" not in layouts):
        verdict.may.append("the layout of out")


def _judge_apart(call: Call, sides: _Sides, copied: set[str], verdict: Verdict) -> None:
    """Out may be c itself; what is read from a copy may lie where it likes."""
    out, inputs = sides.out, {"a": sides.a, "b": sides.b, "c": sides.c}
    assert out is not None
    inputs |= {f"ds[{index}]": one for index, one in enumerate(sides.ds)}
    if call.pack is not None:
        del inputs["b"]
    for name, one in inputs.items():
        if one is None or not _overlap(out, one) or (name == "c" and _same_place(out, one)):
            continue
        not_read = name in copied or (name == "c" and sides.beta == 0)
        (verdict.may if not_read else verdict.refuse).append(f"out shares memory with {name}")


def _shares_itself(out: Facts) -> bool:
    live = out.live
    return live is not None and live.view is not None and int(live.mask().sum()) < live.view.nbytes


def _overlap(out: Facts, one: Facts) -> bool:
    x, y = out.live, one.live
    if x is None or y is None or x.base is None or x.base is not y.base:
        return False
    return bool((x.mask() & y.mask()).any())


def _same_place(out: Facts, one: Facts) -> bool:
    x, y = out.live, one.live
    assert x is not None
    assert y is not None
    return (x.address, out.shape, out.steps) == (y.address, one.shape, one.steps)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _expected(sides: _Sides, whole: tuple[int, ...], seen: tuple[int, ...], dtype: str) -> Expected:
    a, b = sides.a, sides.b
    assert a is not None
    assert b is not None
    in_torch = a.library == "dlpack" and a.live is not None and getattr(a.live.recipe, "kind", "") == capsules.IN_TORCH
    library = "torch" if in_torch or a.library == "torch" else "numpy"
    of_a, of_b = _values(a), _values(b)
    terms = Terms(
        a=of_a[None] if of_a.ndim == 1 else of_a,
        b=of_b[:, None] if of_b.ndim == 1 else of_b,
        c=None if sides.c is None else _values(sides.c),
        ds=[_values(one) for one in sides.ds if one is not None],
        alpha=sides.alpha,
        beta=sides.beta,
        epilogue=sides.epilogue,
        flushes=a.dtype == b.dtype == "bf16",
        shape=whole,
        dtype=dtype,
    )
    found = numbers(terms)
    parts = (one.reshape(seen) for one in (found.value, found.bound, found.open))
    return Expected(seen, dtype, library, Numbers(*parts))


def _values(one: Facts) -> Floats:
    assert one.values is not None
    return one.values
