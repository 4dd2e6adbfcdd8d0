"""Strategies that draw calls: about half of them right, and what is wrong with the others is one or two things.

A right call is drawn for a kernel of the session, so that few are compiled; then some of its parts are twisted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.fuzz import capsules, oddities
from tests.fuzz.calls import CONTEXTS, Call, Example, Pack
from tests.fuzz.libraries import LIBRARIES
from tests.fuzz.memory import NAMES, OURS, Array, Foreign, Junk, Operand, Same, Strange, numpy_type
from tests.fuzz.oddities import ABSENT

Draw = Callable[[st.SearchStrategy[Any]], Any]


class Kind(NamedTuple):
    """What a kernel of the session computes."""

    variant: str
    dtype_a: str
    dtype_b: str
    dtype_c: str
    dtype_d: str
    layout: str
    epilogue: str
    num_d: int


SIZES = (3, 1, 2, 4, 5, 6, 7, 8, 9, 0, 3, 5, 7, 2, 4, 1, 13, 16, 17, 33)
LARGER = (11, 13, 16, 17, 31, 32, 33, 37, 48, 64, 67, 70)
BATCHES = ((), (), (), (), (2,), (3,), (1,), (2, 3), (1, 2), (3, 1), (2, 2, 2), (1, 3, 2), (0,), (2, 0))
VALUES = ("small", "small", "normal", "special", "bits")
FENCES = ("", "", "end", "end", "start")
FLOAT_NAMES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
_BENIGN = ("1.0", "2.0", "-0.5", "0.1", "1", "-3", "f4", "f8", "0-d", "i8", "tensor", "0.0", "fraction", "subclass")
BENIGN = tuple(one for one in _BENIGN if one in oddities.SCALARS)

HONEST = (*capsules.HONEST, *((capsules.IN_TORCH,) if "torch" in LIBRARIES else ()))

some = st.integers(0, 99)  # a percentage


def _pick(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def _chance(draw: Draw, percent: int) -> bool:
    """True so often; False is the simpler case."""
    return int(draw(some)) >= 100 - percent


# -- arrays ------------------------------------------------------------------------------------------------------------


def _order(draw: Draw, rank: int, letter: str) -> list[int]:
    """Dimensions from the slowest to the fastest in memory."""
    order = list(range(rank))
    if letter == "c" and rank > 1:
        order[-1], order[-2] = order[-2], order[-1]
    if rank > 2 and _chance(draw, 25):
        head = draw(st.permutations(order[:-1]))
        order = [*head, order[-1]]
    return order


def strides_of(draw: Draw, shape: Sequence[int], size: int, letter: str = "r") -> tuple[int, ...]:
    strides, step = [0] * len(shape), size
    pads = _pick(draw, 0, 0, 0, 1, 3, 16)
    for place, index in enumerate(reversed(_order(draw, len(shape), letter))):
        strides[index] = step
        step *= max(1, shape[index])
        step += pads * size if place == 0 else 0
    return tuple(strides)


def array(draw: Draw, dtype: str, shape: tuple[int, ...], letter: str = "r", library: str = "numpy") -> Array:
    size = int(numpy_type(dtype).itemsize)
    return Array(
        dtype,
        shape,
        strides_of(draw, shape, size, letter),
        library,
        offset=size * _pick(draw, 0, 0, 1, 3, 4),
        values=draw(st.sampled_from(VALUES)),
        seed=draw(st.integers(0, 7)),
        fence=draw(st.sampled_from(FENCES)),
        kind=_pick(draw, *HONEST) if library == "dlpack" else "",
    )


def _part_of(draw: Draw, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Batch dimensions that broadcast to these."""
    if not batch or not _chance(draw, 40):
        return batch
    kept = batch[draw(st.integers(0, len(batch))) :]
    return tuple(1 if _chance(draw, 30) else one for one in kept)


def _spelled(draw: Draw, table: dict[str, tuple[Any, Any]], meant: Any) -> str:
    return str(_pick(draw, *(name for name, (_, value) in table.items() if value == meant)))


# -- right calls -------------------------------------------------------------------------------------------------------


class Shapes(NamedTuple):
    a: tuple[int, ...]
    b: tuple[int, ...]
    result: tuple[int, ...]


def _shapes(draw: Draw, vectors: bool, packed: bool) -> Shapes:
    m, n, k = (draw(st.sampled_from(LARGER if _chance(draw, 12) else SIZES)) for _ in range(3))
    batch = draw(st.sampled_from(BATCHES))
    batch_a = _part_of(draw, batch)
    if packed and len(batch) == 1 and _chance(draw, 50):
        return Shapes((*batch_a, m, k), (*batch, k, n), (*batch, m, n))
    if packed:
        return Shapes((*batch_a, m, k), (k, n), (*batch_a, m, n))
    batch_b = _part_of(draw, batch)
    whole = _broadcast(batch_a, batch_b)
    if vectors and _chance(draw, 15):
        return Shapes((k,), (*batch_b, k, n), (*batch_b, n))
    if vectors and _chance(draw, 15):
        return Shapes((*batch_a, m, k), (k,), (*batch_a, m))
    if vectors and _chance(draw, 8):
        return Shapes((k,), (k,), ())
    return Shapes((*batch_a, m, k), (*batch_b, k, n), (*whole, m, n))


def _broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(x), len(y))
    pairs = zip((1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y, strict=True)
    return tuple(two if one == 1 else one for one, two in pairs)


def _repeating(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another."""
    return tuple(_pick(draw, shape, shape, shape[-1:], (*shape[:-1], 1), (1, shape[-1]), (), (1,), shape[-2:]))


def _libraries(draw: Draw) -> Callable[[], str]:
    common = _pick(draw, "numpy", *LIBRARIES)
    mixed = _chance(draw, 15)
    return lambda: str(_pick(draw, *LIBRARIES) if mixed else common)


def right_call(draw: Draw, kinds: Sequence[Kind]) -> Call:
    index = draw(st.integers(0, len(kinds) - 1))
    kind = kinds[index]
    packed = kind.variant == "preshuffle"
    functions = ("gemm",) if packed else ("gemm", "gemm", "run", "kernel")
    function = str(_pick(draw, *functions, *(("matmul",) * 3 if kind.variant == "standard" else ())))
    shapes = _shapes(draw, function == "matmul", packed)
    library = _libraries(draw)
    a = array(draw, NAMES[kind.dtype_a], shapes.a, kind.layout[0], library())
    b = array(draw, NAMES[kind.dtype_b], shapes.b, kind.layout[1], library())
    call = Call(function, a, b, kernel=index, context=_context(draw))
    if packed:
        call = replace(call, pack=Pack(_pick(draw, None, kind.dtype_a) if a.dtype == b.dtype else kind.dtype_a))
    call = _fused(draw, call, kind, shapes.result, library)
    call = _result(draw, call, kind, shapes.result, library)
    if _chance(draw, 25):
        call = replace(call, copy=_pick(draw, "allow", "allow", "never"))
    if kind.dtype_a == kind.dtype_b == "fp32" and not packed and function != "kernel" and _chance(draw, 6):
        call = replace(call, math=_pick(draw, "tf32", "empty"))
    if function not in ("run", "kernel") and _chance(draw, 6):
        call = replace(call, target=_pick(draw, "best", "None", "empty"))
    return call


def _context(draw: Draw) -> tuple[str, ...]:
    if not _chance(draw, 30):
        return ()
    return (str(_pick(draw, *CONTEXTS)),)


def _fused(draw: Draw, call: Call, kind: Kind, shape: tuple[int, ...], library: Callable[[], str]) -> Call:
    """C, D tensors, scalars and the epilogue of a call."""
    if call.function == "matmul":
        return call
    ds = tuple(_broadcast_one(draw, kind.dtype_d, shape, library()) for _ in range(kind.num_d))
    call = replace(call, ds=ds, ds_kind=_pick(draw, "tuple", "list") if ds else "tuple")
    if call.function != "kernel" and (kind.epilogue != "PassThrough" or _chance(draw, 5)):
        call = replace(call, epilogue=_spelled(draw, oddities.EPILOGUES, kind.epilogue))
    if _chance(draw, 35):
        call = replace(call, alpha=_pick(draw, *BENIGN))
    if _chance(draw, 35):
        whole = array(draw, NAMES[kind.dtype_c], shape, "c" if _chance(draw, 15) else "r", library())
        c = _broadcast_one(draw, kind.dtype_c, shape, library()) if _chance(draw, 25) else whole
        call = replace(call, c=c)
        if _chance(draw, 60):
            call = replace(call, beta=_pick(draw, *BENIGN, "None", "0"))
    elif _chance(draw, 10):
        call = replace(call, beta=_pick(draw, "0.0", "0", "None", "-0.0"))
    return call


def _broadcast_one(draw: Draw, dtype: str, shape: tuple[int, ...], library: str) -> Array:
    """What broadcasts to a result; now and then its columns are what is contiguous."""
    return array(draw, NAMES[dtype], _repeating(draw, shape), "c" if _chance(draw, 10) else "r", library)


def _default_output(kind: Kind) -> str:
    same = kind.dtype_a == kind.dtype_b and kind.dtype_a in ("fp32", "fp16", "bf16")
    return kind.dtype_a if same else "int32" if kind.dtype_a == "int8" else "fp32"


def _result(draw: Draw, call: Call, kind: Kind, shape: tuple[int, ...], library: Callable[[], str]) -> Call:
    """Where the result goes, and its type."""
    if _chance(draw, 40):
        whole_c = isinstance(call.c, Array) and call.c.shape == shape
        if whole_c and _chance(draw, 60):
            return replace(call, out=Same("c"))
        out = array(draw, NAMES[kind.dtype_c], shape, "c" if _chance(draw, 15) else "r", library())
        return replace(call, out=replace(out, values="poison"))
    needed = call.c is None and kind.dtype_c != _default_output(kind)
    if call.function != "kernel" and (needed or _chance(draw, 15)):
        return replace(call, out_dtype=_spelled(draw, oddities.OUT_DTYPES, kind.dtype_c))
    return call


# -- twists ------------------------------------------------------------------------------------------------------------


def _an_array(draw: Draw, call: Call) -> tuple[str, Array] | None:
    found = [(name, one) for name, one in call.operands().items() if isinstance(one, Array)]
    return draw(st.sampled_from(found)) if found else None


def _with(call: Call, name: str, one: Operand | None) -> Call:
    if name.startswith("ds["):
        index = int(name[3:-1])
        return replace(call, ds=(*call.ds[:index], one, *call.ds[index + 1 :]))  # type: ignore[arg-type]
    return replace(call, **{name: one})  # type: ignore[arg-type]


def restride(draw: Draw, call: Call) -> Call:
    """Memory that runs backwards, in steps, on the spot, over itself, or between elements."""
    found = _an_array(draw, call)
    if found is None or not found[1].shape:
        return call
    name, one = found
    index = draw(st.integers(0, len(one.shape) - 1))
    strides = list(one.strides)
    way = _pick(draw, "back", "steps", "zero", "over", "between", "swap", "far")
    if way in ("back", "between") and one.library == "torch":
        one = replace(one, library="numpy", kind="")
    if way == "between" and one.library == "dlpack":
        way = "back"
    strides[index] = {
        "back": -strides[index],
        "steps": 2 * strides[index],
        "zero": 0,
        "over": one.itemsize,
        "between": strides[index] + 1,
        "swap": strides[-1 - index],
        "far": strides[index] + 4096 * one.itemsize,
    }[way]
    return _with(call, name, replace(one, strides=tuple(strides)))


def shift(draw: Draw, call: Call) -> Call:
    """The same operand at another alignment."""
    found = _an_array(draw, call)
    if found is None:
        return call
    return _with(call, found[0], replace(found[1], offset=draw(st.integers(0, 63)), fence=""))


def retype(draw: Draw, call: Call) -> Call:
    """Another element type: one of ours, in the other byte order, or one nobody multiplies."""
    found = _an_array(draw, call)
    if found is None:
        return call
    name, one = found
    if _chance(draw, 40):
        kind = _pick(draw, *OURS)
        size = int(numpy_type(kind).itemsize)
        strides = tuple(stride // one.itemsize * size for stride in one.strides)
        return _with(call, name, replace(one, dtype=kind, strides=strides))
    if one.dtype in ("float32", "float16", "int32") and _chance(draw, 30):
        return _with(call, name, replace(one, dtype=numpy_type(one.dtype).newbyteorder(">").str, library="numpy"))
    library = _pick(draw, *(one for one in LIBRARIES if one != "dlpack"))
    types = oddities.NUMPY_TYPES if library == "numpy" else oddities.TORCH_TYPES
    return _with(call, name, Foreign(library, _pick(draw, *types), one.shape))


def reshape(draw: Draw, call: Call) -> Call:
    """A size, or the number of dimensions, that does not fit."""
    found = _an_array(draw, call)
    if found is None:
        return call
    name, one = found
    shape = list(one.shape)
    way = _pick(draw, "size", "more", "fewer", "other")
    if way == "size" and shape:
        index = draw(st.integers(0, len(shape) - 1))
        shape[index] = max(0, shape[index] + _pick(draw, 1, -1, 2))
    elif way == "more":
        shape.insert(draw(st.integers(0, len(shape))), _pick(draw, 1, 2, 0))
    elif way == "fewer" and shape:
        shape.pop(draw(st.integers(0, len(shape) - 1)))
    elif way == "other":
        shape = draw(st.lists(st.integers(0, 4), max_size=5))
    made = replace(array(draw, one.dtype, tuple(shape), "r", one.library), values=one.values, within="")
    return _with(call, name, made)


def oddity(draw: Draw, call: Call) -> Call:
    """Something that is no array, a strange tensor, or a capsule that lies."""
    found = _an_array(draw, call)
    if found is None:
        return call
    name, one = found
    way = _pick(draw, "capsule", "capsule", "capsule", "strange", "junk")
    if way == "capsule":
        lie = _pick(draw, *capsules.HOSTILE)
        return _with(call, name, replace(one, library="dlpack", kind=lie, dtype=_native(one.dtype), fence=""))
    if way == "strange" and oddities.STRANGE:
        return _with(call, name, Strange(_pick(draw, *oddities.STRANGE), one.shape))
    kind = _pick(draw, *oddities.JUNK)
    optional = name in ("c", "out") and kind == "None"
    return call if optional else _with(call, name, Junk(kind))


def _native(dtype: str) -> str:
    return numpy_type(dtype).newbyteorder("=").name


def relabel(draw: Draw, call: Call) -> Call:
    """The same memory as another kind of array."""
    found = _an_array(draw, call)
    if found is None:
        return call
    name, one = found
    if _chance(draw, 40):
        return _with(call, name, replace(one, writeable=False))
    torch_fits = (
        "torch" in LIBRARIES
        and one.dtype in NAMES.values()
        and all(stride >= 0 and not stride % one.itemsize for stride in one.strides)
    )
    if torch_fits and _chance(draw, 60):
        grad = ("grad", "grad") if one.dtype in FLOAT_NAMES[:3] else ()
        kind = _pick(draw, "parameter", "subclass", "neg", "inference", *grad)
        return _with(call, name, replace(one, library="torch", kind=kind, writeable=True))
    return _with(call, name, replace(one, library="numpy", kind=_pick(draw, "matrix", "masked", "memmap", "subclass")))


def alias(draw: Draw, call: Call) -> Call:
    """A result that lies where another operand does, or right beside it."""
    names = [name for name, one in call.operands().items() if isinstance(one, Array) and name != "out"]
    if not names:
        return call
    name = draw(st.sampled_from(names))
    one = call.operands()[name]
    assert isinstance(one, Array)
    if _chance(draw, 30):
        return replace(call, out=Same(name))
    out = call.out if isinstance(call.out, Array) else replace(one, values="poison", writeable=True, kind="")
    low, high = one.extent
    offset = _pick(draw, 0, out.itemsize, -out.itemsize, high, low - out.extent[1], 16, *(one.strides or (4,)))
    return replace(call, out=replace(out, within=name, offset=offset, fence="", values="poison"))


def interleave(draw: Draw, call: Call) -> Call:
    """C or D and the result in turn in one piece of memory: rows of the one between rows of the other."""
    one = call.c if isinstance(call.c, Array) else call.ds[0] if call.ds else None
    if not isinstance(one, Array) or len(one.shape) < 2 or one.shape[-1] == 0:
        return call
    name = "c" if one is call.c else "ds[0]"
    row = one.shape[-1] * one.itemsize
    strides, step = [one.itemsize], 2 * row
    for size in reversed(one.shape[:-1]):
        strides.append(step)
        step *= max(1, size)
    first = replace(one, strides=tuple(reversed(strides)), fence="", offset=0)
    apart = _pick(draw, row, row, row, row - one.itemsize, 0)
    out = replace(first, within=name, offset=apart, values="poison", writeable=True, kind="")
    return replace(_with(call, name, first), out=out)


def rescale(draw: Draw, call: Call) -> Call:
    """Another scalar, right or wrong."""
    name = _pick(draw, "alpha", "beta")
    return call if call.function == "matmul" else replace(call, **{name: _pick(draw, *oddities.SCALARS)})


def rename(draw: Draw, call: Call) -> Call:
    """Another name, right or wrong."""
    tables: dict[str, Any] = {
        "epilogue": oddities.EPILOGUES,
        "out_dtype": oddities.OUT_DTYPES,
        "math": oddities.MATHS,
        "copy": oddities.COPIES,
        "target": oddities.TARGETS,
        "ds_kind": oddities.DS_KINDS,
    }
    for name in {"matmul": ("epilogue", "ds_kind"), "run": ("target",)}.get(call.function, ()):
        tables.pop(name)
    if call.function == "kernel":
        tables = {"copy": oddities.COPIES, "ds_kind": oddities.DS_KINDS}
    name = _pick(draw, *tables)
    return replace(call, **{name: _pick(draw, *tables[name])})


def redress(draw: Draw, call: Call) -> Call:
    """A D tensor more or fewer, no C, no result."""
    way = _pick(draw, "more", "fewer", "no c", "no out", "c")
    if call.function == "matmul" or way == "no out":
        return replace(call, out=None if not isinstance(call.out, Same) else call.out)
    if way == "more" and isinstance(call.a, Array):
        return replace(call, ds=(*call.ds, array(draw, "float32", draw(st.sampled_from([(), (3,), (1, 1)])))))
    if way == "fewer":
        return replace(call, ds=call.ds[1:])
    if way == "no c" and not (isinstance(call.out, Same) and call.out.of == "c"):
        return replace(call, c=None)
    return call


def repack(draw: Draw, call: Call) -> Call:
    if call.pack is None:
        return call
    wrong = _pick(draw, "fp32", "bf16", "int8", "tf32", "float32", "nonsense", 3, "")
    return replace(call, pack=_pick(draw, Pack(wrong), Pack(None, _pick(draw, -1, 0, 1, 2.0, True, "4", None, 2**70))))


def enlarge(draw: Draw, call: Call) -> Call:
    """Sizes no memory holds: a product without an inner size, or an inner size of numbers that repeat."""
    if not isinstance(call.a, Array) or not isinstance(call.b, Array):
        return call
    if _chance(draw, 40):
        a = replace(call.a, shape=(3, 2**39), strides=(call.a.itemsize, 0))
        b = replace(call.b, shape=(2**39, 2), strides=(0, call.b.itemsize))
        return replace(call, a=a, b=b, c=None, ds=(), out=None, epilogue=ABSENT, beta=ABSENT)
    m, n = (_pick(draw, 2**40, 2**31, 2**58, 0) for _ in range(2))
    a = replace(call.a, shape=(m, 0), strides=(call.a.itemsize, call.a.itemsize), fence="")
    b = replace(call.b, shape=(0, n), strides=(call.b.itemsize, call.b.itemsize), fence="")
    return replace(call, a=a, b=b, c=None, ds=(), out=None, epilogue=ABSENT, beta=ABSENT)


def mistake(draw: Draw, call: Call) -> Call:
    return replace(call, context=(str(_pick(draw, *CONTEXTS)),))


TWISTS = (
    restride, restride, shift, retype, retype, reshape, oddity, oddity, relabel, relabel, alias, alias, interleave,
    rescale, rename, rename, redress, repack, enlarge, mistake,
)  # fmt: skip
SIBLINGS = (
    shift,
    restride,
    relabel,
    alias,
    interleave,
    rescale,
    retype,
    oddity,
    mistake,
)  # what a call made before differs in


def _bearable(call: Call) -> Call:
    """Results are small, or so large that no machine starts to make them."""
    a, b = call.a, call.b
    if not isinstance(a, Array) or not isinstance(b, Array) or max(*a.shape, *b.shape, 0) < 1 << 20:
        return call
    count = math.prod(a.shape[:-1]) * math.prod((*b.shape[:-2], *b.shape[-1:]))
    if count == 0 or count >= 1 << 44:
        return call
    small = [replace(one, shape=tuple(min(size, 3) for size in one.shape)) for one in (a, b)]
    return replace(call, a=small[0], b=small[1])


def _sound(call: Call) -> Call:
    """What no library can make is made by one that can, and what takes too much memory is made smaller."""
    call = _bearable(call)
    for name, one in call.operands().items():
        if isinstance(one, (Foreign, Strange)) and max(one.shape, default=0) > 100:
            call = _with(call, name, replace(one, shape=tuple(min(size, 3) for size in one.shape)))
        if isinstance(one, Array) and one.extent[1] - one.extent[0] > 1 << 22:
            one = replace(one, shape=tuple(min(size, 3) for size in one.shape))
            call = _with(call, name, one)
        if isinstance(one, Array) and one.library != "numpy":
            fits = one.dtype in OURS and all(not stride % one.itemsize for stride in one.strides)
            fits = fits and (one.library != "torch" or min(one.strides, default=0) >= 0)
            if not fits:
                call = _with(call, name, replace(one, library="numpy", kind=""))
        if isinstance(one, Same) and not isinstance(call.operands().get(one.of), Array):
            call = replace(call, out=None)
        if isinstance(one, Array) and one.within and not isinstance(call.operands().get(one.within), Array):
            call = _with(call, name, replace(one, within="", offset=0))
    return call


@st.composite
def examples(draw: Draw, kinds: Sequence[Kind]) -> Example:
    call = right_call(draw, kinds)
    for _ in range(_pick(draw, 0, 0, 0, 0, 1, 1, 2)):
        call = draw(st.sampled_from(TWISTS))(draw, call)
    calls = [_sound(call)]
    for _ in range(_pick(draw, 0, 0, 1, 2)):
        calls.append(_sound(draw(st.sampled_from(SIBLINGS))(draw, calls[0])))
    return Example(tuple(calls), threads=2 if _chance(draw, 10) else 1)
