"""Views of arrays become a GEMM request: problem, argument template, shape of the result.

The layout is read from the strides.  A column-major result is served by computing its transpose, E^T = B^T A^T, so that
kernels only ever write rows.  A C that repeats is added as a D tensor where it counts once, and copied out otherwise.
Batch dimensions that are one in memory are one; the rest is launched in a loop.

A gated product of two B (`up`) is one stage where a kernel reads both, else two: A.B_up, then the gate with that as D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

from tilewright.dataclass import NamedTuple, dataclass
from tilewright.dtypes import DTYPES
from tilewright.errors import ProblemError, UnknownNameError, an, counted, shown
from tilewright.ops.fused import GATES, epilogue_d_counts, normal_epilogue
from tilewright.ops.gemm.legality import has_dual_kernels, problem_check
from tilewright.ops.gemm.problem import GemmProblem, default_output
from tilewright.ops.gemm.spec import MAX_D
from tilewright.runtime.arrays import View, conversion_of, output_dtype
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.bindings.gemm.operands import (
    D0,
    OUT,
    UP,
    A,
    B,
    C,
    Matrix,
    PackedShape,
    batch_of,
    matrix,
    merged,
)
from tilewright.runtime.bindings.gemm.packed import PackedB
from tilewright.runtime.copies import copy_needed
from tilewright.runtime.devices import HOST
from tilewright.runtime.fast_path import MOST_LOOPS
from tilewright.runtime.lines import dense_strides
from tilewright.runtime.requests import BETWEEN, Copy, Pointer, Request, Result, Scalar, StageRequest

MATHS = ("tf32",)  # what float32 may be multiplied as instead
_FIELDS: Any = GemmArgs
ALPHA, BETA = 0, 1  # the scalars


class Attributes(NamedTuple):
    """What a GEMM depends on beside its operands."""

    epilogue: Any = "passthrough"
    out_dtype: Any = None
    math: str = ""
    c_counts: int = 0  # 0: beta is 0 and C is not read; 1: beta is 1; 2: another
    form: str = ""  # "matmul": operands of one dimension are vectors; a layout: the one to prefer


@lru_cache(maxsize=64)
def knows_math(math: str, target: str) -> bool:
    """Whether a target multiplies float32 so; one that does not multiplies exactly."""
    return not problem_check(GemmProblem(8, 8, 8, math), target)


def _bad(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


@dataclass(slots=True)
class _Call:
    """A call that becomes a request."""

    attributes: Attributes
    target: str
    a: View
    b: View | PackedShape
    c: View | None
    ds: list[View]
    out: View | None
    packed: PackedB | None
    up: View | None = None  # the second B
    math: str = ""  # what float32 is multiplied as: none where the target knows no such math
    batch: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()  # of m and n (-2, -1): sizes that vectors lack in the result
    epilogue: str = "PassThrough"
    dtype: str = ""  # of the result
    copies: list[Matrix] = field(default_factory=list)  # operands read from a copy

    @property
    def sizes(self) -> tuple[int, int, int]:
        n = self.b.n if isinstance(self.b, PackedShape) else self.b.shape[-1]
        return self.a.shape[-2], n, self.a.shape[-1]

    @property
    def whole(self) -> tuple[int, ...]:
        """The shape of the result with both of its matrix dimensions."""
        m, n, _ = self.sizes
        return (*self.batch, m, n)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape users see."""
        m, n, _ = self.sizes
        return (*self.batch, *(() if -2 in self.dropped else (m,)), *(() if -1 in self.dropped else (n,)))


def build(views: Sequence[Any], options: tuple[Any, ...], target: str) -> Request:
    """Shapes, strides and dtypes as one request, or the first contradiction as one error."""
    call = _read(views, Attributes(*options), target)
    _demand_inputs(call)
    _infer_shapes(call)
    _infer_dtypes(call)
    return _stage(call) if call.up is None else _gated(call)


def _gated(call: _Call) -> Request:
    """Both products in one kernel, where the target has one for such layouts; else one after the other."""
    laid = _lay_out(call)
    if not laid.transposed and laid.up is not None and laid.right is not None and _alike(laid.up, laid.right):
        both = _stage(call)
        if has_dual_kernels(both.stages[0].problem, call.target):
            return both
    assert call.up is not None
    size = DTYPES[call.dtype].bytes
    # The layout of the result: kernels read a D tensor along the rows they write.
    strides = _new_strides(call.whole, laid.transposed)
    between = replace(call.a, what="a @ up", address=0, shape=call.whole, strides=strides, dtype=call.dtype)
    product = replace(call, b=call.up, up=None, out=between, epilogue="PassThrough", copies=[])
    (first,) = _stage(product).stages
    request = _stage(replace(call, up=None, ds=[between], copies=[]))
    (second,) = request.stages
    stages = _sent(first, {B: UP, OUT: BETWEEN}), _sent(second, {D0: BETWEEN})
    return replace(request, stages=stages, between_bytes=max(1, math.prod(call.whole)) * size)


def _alike(left: Matrix, other: Matrix) -> bool:
    return (left.dtype, left.strides, left.steps) == (other.dtype, other.strides, other.steps)


def _sent(stage: StageRequest, slots: dict[int, int]) -> StageRequest:
    """The stage with pointers of some slots going elsewhere."""
    return replace(stage, pointers=tuple(replace(at, slot=slots.get(at.slot, at.slot)) for at in stage.pointers))


# -- reading -----------------------------------------------------------------------------------------------------------


def _of_no_batch(view: Any) -> Any:
    """Of a batch of 0 no matrix is read or written, whatever its strides."""
    if view is not None and isinstance(view, View) and 0 in view.shape[:-2]:
        return replace(view, strides=dense_strides(view.shape))
    return view


def _read(views: Sequence[Any], attributes: Attributes, target: str) -> _Call:
    a, b, c, *fused_ds, out, up = map(_of_no_batch, views)
    packed = b if isinstance(b, PackedB) else None
    if attributes.math is None:
        attributes = attributes._replace(math="")
    if not isinstance(attributes.math, str) or attributes.math not in ("", *MATHS):
        raise UnknownNameError(
            f"{shown(attributes.math)} is not a math mode",
            rule="math-name",
            value=shown(attributes.math),
            remedy="use math='tf32', or none",
        )
    held = (a.dtype, a.dtype if packed is not None else b.dtype)
    if attributes.math and held != ("fp32", "fp32"):
        raise _bad(
            "math-dtype",
            f"math {shown(attributes.math)} is how float32 is multiplied, and a and b hold {' and '.join(held)}",
            held,
            "leave math out, or give float32 arrays",
        )
    math = attributes.math if attributes.math and knows_math(attributes.math, target) else ""
    if packed is not None:
        packed.demand(a, math)
        b = replace(packed.shape, dtype=a.dtype) if math else packed.shape
    ds = [d for d in fused_ds if d is not None]
    call = _Call(attributes, target, a, b, c, ds, out, packed, up, math=math)
    if not isinstance(attributes.epilogue, str):
        raise _bad(
            "epilogue-name",
            f"epilogue is {an(type(attributes.epilogue).__name__)}, not a name",
            shown(attributes.epilogue),
            "give a name such as 'relu'",
        )
    call.epilogue = normal_epilogue(attributes.epilogue)
    if up is None and not ds and call.epilogue in GATES:
        raise _bad(
            "epilogue-d-count",
            f"{call.epilogue} multiplies by a D tensor, and there is none",
            0,
            "give ds=(d,), or use tilewright.gated_gemm, which multiplies by a second product",
        )
    if attributes.c_counts and c is None:
        raise _bad("beta-without-c", "beta is not 0, but there is no c to scale", None, "give c, or beta=0")
    return call


def demand_multiplied(view: View) -> None:
    """Refuse elements that no kernel multiplies, whatever the target."""
    if DTYPES[view.dtype].kind == "table" or view.dtype == "int32":
        held = DTYPES[view.dtype].numpy_name
        message = f"{view.what} has elements of type {held}, which no kernel multiplies"
        raise _bad("array-dtype", message, held, conversion_of(view, held))


def _demand_alike(gate: View | PackedShape, up: View) -> None:
    """Both B of a gated product."""
    if isinstance(gate, PackedShape):
        raise _bad("dual-operands", "gate is packed, and up is not", None, "give both as they are")
    if (gate.shape, gate.dtype) != (up.shape, up.dtype):
        raise _bad(
            "shape-up",
            f"gate has shape {gate.shape} and holds {gate.dtype}, up {up.shape} and {up.dtype}",
            up.shape,
            "give two matrices of one shape and dtype",
        )


def _demand_inputs(call: _Call) -> None:
    """Ranks, and element types that are multiplied at all."""
    for view in (call.a, call.b, call.up):
        if view is None or isinstance(view, PackedShape):
            continue
        demand_multiplied(view)
    if call.up is not None:
        _demand_alike(call.b, call.up)
    least = 1 if call.attributes.form == "matmul" else 2
    for view in (call.a, call.b):
        if isinstance(view, View) and (rank := len(view.shape)) < least:
            hint = "use tilewright.matmul, which takes vectors" if rank else "give at least 1 row and 1 column"
            message = f"{view.what} has {counted(rank, 'dimension')}, and a matrix has 2"
            raise _bad("array-rank", message, view.shape, hint)
    if len(call.ds) > MAX_D:
        raise _bad("epilogue-d-count", f"{len(call.ds)} D tensors were given", len(call.ds), f"give at most {MAX_D}")


def _infer_shapes(call: _Call) -> None:
    """Vectors become matrices, batches are found, inner sizes agree."""
    if len(call.a.shape) == 1:
        call.a = replace(call.a, shape=(1, *call.a.shape), strides=(max(1, call.a.shape[0]), *call.a.strides))
        call.dropped = (-2,)
    if isinstance(call.b, View) and len(call.b.shape) == 1:
        call.b = replace(call.b, shape=(*call.b.shape, 1), strides=(*call.b.strides, 1))
        call.dropped += (-1,)
    m, n, k = call.sizes
    rows = call.b.k if isinstance(call.b, PackedShape) else call.b.shape[-2]
    if k != rows:
        raise _bad(
            "shape-k",
            f"a is {m}x{k} and b is {rows}x{n}: the inner sizes {k} and {rows} differ",
            (k, rows),
            "give b with as many rows as a has columns (transpose a view with .T: no copy is made)",
        )
    packed = call.b if isinstance(call.b, PackedShape) else None
    batched = [view for view in (call.a, call.b) if isinstance(view, View)]
    if call.attributes.form != "matmul":
        batched += [view for view in (call.c, *call.ds, call.out) if view is not None and len(view.shape) > 2]
    call.batch = batch_of(batched, packed)
    if call.out is not None and call.out.shape != call.shape:
        raise _bad(
            "shape-out",
            f"out has shape {call.out.shape}, and the result has {call.shape}",
            call.out.shape,
            f"give shape {call.shape}",
        )


@lru_cache(maxsize=256)
def _possible(dtype_a: str, dtype_b: str, target: str) -> tuple[str, ...]:
    """The element types that results of inputs can have on a target."""
    problems = (GemmProblem(8, 8, 8, dtype_a, dtype_b, name) for name in DTYPES)
    return tuple(problem.dtype_c for problem in problems if not problem_check(problem, target))


def _infer_dtypes(call: _Call) -> None:
    """The element types of the result, C and D tensors, and how inputs are multiplied."""
    wanted = None
    if call.attributes.out_dtype is not None:
        wanted = output_dtype(call.attributes.out_dtype, _possible(call.a.dtype, call.b.dtype, call.target))
    out, c = call.out, call.c
    if out is not None and wanted is not None and wanted != out.dtype:
        raise _bad(
            "out-dtype",
            f"out holds {out.dtype}, but out_dtype asks for {wanted}",
            out.dtype,
            "give one of the two, or make them agree",
        )
    known = out.dtype if out is not None else wanted
    call.dtype = known or (c.dtype if c is not None else default_output(call.a.dtype, call.b.dtype))
    if c is not None and c.dtype != call.dtype:
        raise _bad("c-dtype", f"c holds {c.dtype}, the result {call.dtype}", c.dtype, f"convert c to {call.dtype}")
    for d in call.ds:
        if d.dtype != call.ds[0].dtype:
            raise _bad(
                "d-dtype",
                f"{d.what} holds {d.dtype}, {call.ds[0].what} {call.ds[0].dtype}",
                d.dtype,
                "give D tensors of one dtype",
            )


# -- laying out --------------------------------------------------------------------------------------------------------


class _Laid(NamedTuple):
    """Operands as matrices in the kernel's orientation: the left one, the right one (None where it is packed), C, the
    D tensors and the result."""

    left: Matrix
    right: Matrix | None
    c: Matrix | None
    ds: list[Matrix]
    e: Matrix
    transposed: bool
    up: Matrix | None = None  # the second B


def _result(call: _Call, by_columns: bool) -> Matrix:
    m, n, _ = call.sizes
    size = DTYPES[call.dtype].bytes
    if call.out is None or 0 in call.whole:  # nothing is written, so whatever the strides are will do
        strides = _new_strides(call.whole, by_columns)
        return Matrix(OUT, "out", call.dtype, size, (m, n), strides[-2:], strides[:-2])  # type: ignore[arg-type]
    out = call.out
    full = iter(zip(out.shape, out.strides, strict=True))
    strides = tuple(
        (max(1, n) if index == -2 else 1) if index in call.dropped else next(full)[1]
        for index in range(-len(call.whole), 0)
    )
    odd = out.address % 16 != 0 and 0 not in out.shape
    return Matrix(OUT, "out", out.dtype, size, (m, n), strides[-2:], strides[:-2], odd)  # type: ignore[arg-type]


def _new_strides(shape: tuple[int, ...], by_columns: bool) -> tuple[int, ...]:
    if not by_columns:
        return dense_strides(shape)
    transposed = dense_strides((*shape[:-2], shape[-1], shape[-2]))
    return (*transposed[:-2], transposed[-1], transposed[-2])


def _lay_out(call: _Call) -> _Laid:
    m, n, k = call.sizes
    whole = call.whole
    a = matrix(A, call.a, (*call.batch, m, k))
    b = matrix(B, call.b, (*call.batch, k, n)) if isinstance(call.b, View) else None
    c = matrix(C, call.c, whole) if call.c is not None else None  # its shape must fit even where it is not read
    ds = [matrix(D0 + index, d, whole) for index, d in enumerate(call.ds)]
    c = c if call.attributes.c_counts else None
    plain_c = c if c is not None and not c.repeats else None
    transposed = _by_columns(call, plain_c)
    e = _result(call, transposed)
    if transposed and b is None:
        raise _bad(
            "packed-column-major",
            "a packed b cannot give a column-major result",
            e.strides,
            "give a row-major out (np.empty(shape), torch.empty(shape)), or use b unpacked",
        )
    up = matrix(UP, call.up, (*call.batch, k, n)) if call.up is not None else None
    laid = _Laid(a, b, c, ds, e, transposed, up)
    if transposed:
        assert b is not None
        old = c.transposed() if c is not None else None
        laid = _Laid(b.transposed(), a.transposed(), old, [d.transposed() for d in ds], e.transposed(), transposed)
    return _infer_c(call, laid)


def _by_columns(call: _Call, c: Matrix | None) -> bool:
    """Whether the result is column-major: as `out` is, else as a C that is read."""
    of_c = c.leading() if c is not None else {}
    if call.out is None:
        return "r" not in of_c and "c" in of_c
    leading = _result(call, False).leading()
    if not leading:
        raise _bad(
            "array-layout",
            f"out of shape {call.out.shape} has element strides {call.out.strides}: neither its rows nor its columns "
            "are contiguous and apart",
            call.out.strides,
            "give an out whose rows follow each other, such as np.empty(shape) or torch.empty(shape)",
        )
    if "r" in leading and "c" in leading:
        return "r" not in of_c and "c" in of_c
    return "r" not in leading


def _infer_c(call: _Call, laid: _Laid) -> _Laid:
    """C as kernels take it: rows like the result's; else as one more D tensor, where it counts once; else copied."""
    c = laid.c
    if c is None or (not c.repeats and "r" in c.leading()):
        return laid
    counts = epilogue_d_counts("MultiDAdd" if call.epilogue == "PassThrough" else call.epilogue)
    once = call.attributes.c_counts == 1 and call.epilogue != "MultiDMultiply"
    fits = len(laid.ds) + 1 in counts and all(d.dtype == c.dtype for d in laid.ds)
    if once and fits and (c.strides[1] in (0, 1) or c.shape[1] == 1):
        call.epilogue = "MultiDAdd" if call.epilogue == "PassThrough" else call.epilogue
        return laid._replace(c=None, ds=[*laid.ds, c])
    if min(*c.strides, *c.steps, 0) < 0 or (not c.repeats and call.c is not None and "c" in c.leading()):
        raise copy_needed(
            c.what,
            f"c of shape {call.c.shape if call.c else ()} is laid out otherwise than the result",
            rule="layout-c",
            value=c.strides,
        )
    call.copies.append(c)
    return laid


# -- filling in --------------------------------------------------------------------------------------------------------


def _stage(call: _Call) -> Request:
    """The argument template, the problem and where pointers go."""
    laid = _lay_out(call)
    among = [operand for operand in (laid.left, laid.right, laid.up, laid.c, *laid.ds, laid.e) if operand is not None]
    copied = {copy.slot for copy in call.copies}
    sizes, steps = merged(call.batch, among)
    packed_steps = _packed_steps(call, sizes) if laid.right is None else ()
    step_of = {id(operand): operand_steps for operand, operand_steps in zip(among, steps, strict=True)}
    loop, batch = sizes[:-1], sizes[-1] if sizes else 1
    if len(loop) > MOST_LOOPS:
        message = f"{len(sizes)} batch dimensions are not one in memory, and kernels are launched over {MOST_LOOPS}"
        raise copy_needed("a", message, rule="shape-batch", value=call.batch)
    args = GemmArgs(m=laid.e.shape[0], n=laid.e.shape[1], k=laid.left.shape[1], batch=batch)
    inner = {id(operand): (step_of[id(operand)][-1] if sizes else 0) for operand in among}
    letters = _inputs(call, laid, args, inner, packed_steps)
    _outputs(call, laid, args, inner, batch)
    fold = letters[0] == "r" and laid.right is not None and batch > 1 and args.b_batch_stride == 0
    if fold and args.a_batch_stride and not copied:
        _fold_batch(args, len(laid.ds), laid.c is not None)
    problem = _problem(call, laid, args, letters)
    pointers, copies = _pointers(call, laid, step_of, len(loop), args)
    scalars = [Scalar(_FIELDS.alpha.offset, ALPHA)]
    if laid.c is not None:
        scalars.append(Scalar(_FIELDS.beta.offset, BETA))
    where = call.packed.refuses() if call.packed is not None and problem.k else None  # without k nothing is read
    stage = StageRequest(problem, args, tuple(pointers), tuple(scalars), loop, tuple(copies), where)
    results = (Result(OUT, call.shape, _seen_strides(call, laid), call.dtype),)
    return Request("gemm", (stage,), results)


def _seen_strides(call: _Call, laid: _Laid) -> tuple[int, ...]:
    """Of a new result, as users see it."""
    strides = _new_strides(call.whole, laid.transposed)
    return tuple(stride for index, stride in enumerate(strides, -len(strides)) if index not in call.dropped)


def _packed_steps(call: _Call, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """A packed B is one matrix for all, or one a batch index."""
    assert isinstance(call.b, PackedShape)
    if (call.b.batch or 0) <= 1 or call.b.repeated:
        return (0,) * len(sizes)
    if sizes != (call.b.batch,):
        raise _bad(
            "packed-batch",
            f"b was packed as a batch of {call.b.batch}, and the batch of the call is {call.batch}",
            call.batch,
            "give a with one batch dimension of that size, its matrices evenly apart",
        )
    return (1,)  # the value is ignored, not whether it is 0


def _inputs(
    call: _Call, laid: _Laid, args: GemmArgs, inner: dict[int, int], packed_steps: tuple[int, ...]
) -> tuple[str, str]:
    """Layouts and strides of A and B."""
    prefer = call.attributes.form if call.attributes.form != "matmul" else ""
    letter_a, args.a_stride = laid.left.layout(prefer[:1])
    args.a_batch_stride = inner[id(laid.left)]
    if laid.right is not None:
        letter_b, args.b_stride = laid.right.layout(prefer[1:2])
        args.b_batch_stride = inner[id(laid.right)]
        return letter_a, letter_b
    assert isinstance(call.b, PackedShape)
    letter_b = call.b.layout
    args.b_stride = max(
        1, args.n if letter_b == "r" else args.k
    )  # for kernels of a problem without k, which is not packed
    args.b_batch_stride = packed_steps[-1] if packed_steps else 0
    return letter_a, letter_b


def _outputs(call: _Call, laid: _Laid, args: GemmArgs, inner: dict[int, int], batch: int) -> None:
    """Strides of E, C and the D tensors."""
    args.e_stride = laid.e.leading()["r"]
    args.e_batch_stride = inner[id(laid.e)] if batch > 1 else args.m * max(1, args.n)
    if laid.c is not None and laid.c in call.copies:
        args.c_stride, args.c_batch_stride = max(1, args.n), args.m * max(1, args.n)
    elif laid.c is not None:
        args.c_stride, args.c_batch_stride = laid.c.leading()["r"], inner[id(laid.c)]
    for index, d in enumerate(laid.ds):
        empty = 0 in d.shape or batch == 0
        row, column = (0 if empty or size == 1 else step for size, step in zip(d.shape, d.strides, strict=True))
        if column not in (0, 1):
            raise copy_needed(
                d.what,
                f"{d.what} has element strides {d.strides} over {d.shape}: along the "
                f"{'columns' if laid.transposed else 'rows'} of the result its elements are not contiguous",
                rule="layout-d",
                value=d.strides,
            )
        if min(row, inner[id(d)]) < 0:
            raise d.no_layout()
        args.d_row_stride[index], args.d_col_stride[index], args.d_batch_stride[index] = row, column, inner[id(d)]


def _problem(call: _Call, laid: _Laid, args: GemmArgs, letters: tuple[str, str]) -> GemmProblem:
    on_device = call.a.place is not HOST
    many = args.batch > 1
    problem = GemmProblem(
        m=args.m,
        n=args.n,
        k=args.k,
        dtype_a=laid.left.dtype,
        dtype_b=laid.right.dtype if laid.right is not None else call.b.dtype,
        dtype_c=call.dtype,
        dtype_d=laid.ds[0].dtype if laid.ds else call.dtype,
        layout=f"{letters[0]}{letters[1]}r",
        batch=args.batch,
        epilogue=call.epilogue,
        num_d=len(laid.ds),
        beta=laid.c is not None,
        preshuffled=laid.right is None,
        a_stride=args.a_stride,
        b_stride=args.b_stride,
        c_stride=args.e_stride,
        broadcast_a=many and args.a_batch_stride == 0,
        broadcast_b=many and args.b_batch_stride == 0,
        unaligned=_unaligned(call, laid) if on_device else "",
    )
    return replace(problem, dtype_a=call.math, dtype_b=call.math) if call.math else problem


def _unaligned(call: _Call, laid: _Laid) -> str:
    """The letters of operands on a device whose address or batch strides are no multiples of 16 bytes."""
    operands = (("a", laid.left), ("b", laid.right), ("b", laid.up), ("c", laid.e))
    odd = [letter for letter, operand in operands if operand is not None and _is_odd(operand)]
    return "".join(odd) + ("b" if call.packed is not None and call.packed.address % 16 else "")


def _is_odd(operand: Matrix) -> bool:
    return operand.odd or any(step * operand.itemsize % 16 for step in operand.steps)


def _pointers(
    call: _Call, laid: _Laid, step_of: dict[int, tuple[int, ...]], loops: int, args: GemmArgs
) -> tuple[list[Pointer], list[Copy]]:
    """Where each address goes, how far the loops move it, and the copies that replace operands."""
    places: list[tuple[int, Matrix]] = [(_FIELDS.a.offset, laid.left), (_FIELDS.e.offset, laid.e)]
    if laid.right is not None:
        places.append((_FIELDS.b.offset, laid.right))
    if laid.up is not None:
        places.append((_FIELDS.b_up.offset, laid.up))
    if laid.c is not None:
        places.append((_FIELDS.c.offset, laid.c))
    places += [(_FIELDS.d.offset + 8 * index, d) for index, d in enumerate(laid.ds)]
    pointers: list[Pointer] = []
    copies: list[Copy] = []
    for offset, operand in places:
        steps = tuple(step * operand.itemsize for step in step_of[id(operand)][:loops])
        if operand in call.copies:
            shape = (args.batch, *operand.shape)
            inner = step_of[id(operand)][-1] if step_of[id(operand)] else 0
            strides = tuple(step * operand.itemsize for step in (inner, *operand.strides))
            copies.append(Copy(len(pointers), shape, strides, shape, operand.itemsize))
        pointers.append(Pointer(offset, operand.slot, 0, steps))
    if laid.right is None:
        pointers.append(Pointer(_FIELDS.b.offset, B, 0, (0,) * loops))
    return pointers, copies


def _fold_batch(args: GemmArgs, num_d: int, use_c: bool) -> None:
    """One matrix B for the whole batch and rows that follow each other: the batch is only more rows."""
    m, batch = args.m, args.batch
    if m == 0:
        return
    pairs = [("a", args.k), ("e", args.n)] + ([("c", args.n)] if use_c else [])
    for name, row in pairs:
        stride, step = getattr(args, f"{name}_stride"), getattr(args, f"{name}_batch_stride")
        if step != m * stride and not (m == 1 and step >= row):
            return
    for index in range(num_d):
        if args.d_batch_stride[index] != m * args.d_row_stride[index] and m != 1:
            return
    if m == 1:
        for name, _row in pairs:
            setattr(args, f"{name}_stride", max(1, getattr(args, f"{name}_batch_stride")))
        for index in range(num_d):
            args.d_row_stride[index] = args.d_batch_stride[index]
    for name, _row in pairs:
        setattr(args, f"{name}_batch_stride", 0)
    for index in range(num_d):
        args.d_batch_stride[index] = 0
    args.m, args.batch = m * batch, 1
