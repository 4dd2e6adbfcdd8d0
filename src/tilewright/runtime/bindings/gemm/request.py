"""Views of arrays become a GEMM request: problem, argument template, shape of the result.

The layout is read from the strides.  A column-major result is served by computing its transpose,
E^T = B^T A^T, so that kernels only ever write rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.errors import ProblemError
from tilewright.ops.fused import normal_epilogue
from tilewright.ops.gemm.problem import GemmProblem, default_output
from tilewright.runtime.arrays import View, overlaps_itself
from tilewright.runtime.bindings.gemm.args import MAX_D, GemmArgs
from tilewright.runtime.devices import HOST, Place, common_place

_COPY = "np.ascontiguousarray({0}) makes a copy that fits (Tilewright never copies by itself)"


# What float32 may be multiplied as instead.
MATHS = ("tf32",)


@dataclass(frozen=True, slots=True)
class PackedShape:
    """What is left of a B that was packed beforehand: its sizes and the layout it was packed from."""

    k: int
    n: int
    batch: int  # 0: not batched
    repeated: bool  # one matrix was packed for the whole batch
    dtype: str
    layout: str
    place: Place = HOST


@dataclass(frozen=True, slots=True)
class Request:
    """A GEMM call without its pointers."""

    problem: GemmProblem
    args: GemmArgs  # pointers, alpha and beta are filled in a call
    swapped: bool  # the transpose is computed: B's pointer goes into a, A's into b
    shape: tuple[int, ...]  # of the result, as the user sees it
    dtype: str
    column_major: bool  # how a new result is laid out
    place: Place = HOST  # where every operand is


def _bad(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


def _matrix(one: View) -> None:
    if len(one.shape) not in (2, 3):
        hint = f"{one.what}[None, :]" if len(one.shape) == 1 else f"{one.what}.reshape(-1, rows, columns)"
        raise _bad(
            "array-rank",
            f"{one.what} has {len(one.shape)} dimensions, and a matrix has 2, a batch of them 3",
            one.shape,
            f"reshape it, for example {hint}",
        )


def leading_strides(one: View) -> dict[str, int]:
    """The leading stride for each layout (r, c) the last two dimensions can be read in; may be empty."""
    rows, columns = one.shape[-2:]
    down, across = one.strides[-2:]
    if rows == 0 or columns == 0:
        return {"r": max(1, columns), "c": max(1, rows)}
    found = {}
    if (columns == 1 or across == 1) and (rows == 1 or down >= columns):
        found["r"] = down if rows > 1 else columns
    if (rows == 1 or down == 1) and (columns == 1 or across >= rows):
        found["c"] = across if columns > 1 else rows
    return found


def _no_layout(one: View) -> ProblemError:
    return _bad(
        "array-layout",
        f"{one.what} of shape {one.shape} has element strides {one.strides}: neither its rows nor its columns "
        "are contiguous and apart",
        one.strides,
        _COPY.format(one.what),
    )


def input_layout(one: View, prefer: str = "") -> tuple[str, int]:
    """Layout and leading stride of an input.

    A vector can be read both ways: then the preferred layout is taken, or else the one its strides
    look like, so that a transposed view of a row-major array stays column-major at every size.
    """
    found = leading_strides(one)
    if not found:
        raise _no_layout(one)
    alike = prefer or ("r" if one.strides[-2] >= one.strides[-1] else "c")
    letter = alike if alike in found else next(iter(found))
    return letter, found[letter]


def _batch_of(operands: Sequence[View], packed: PackedShape | None) -> int | None:
    """The common batch, None when nothing is batched; 1 broadcasts."""
    sizes = {one.what: one.shape[0] for one in operands if len(one.shape) == 3}
    if packed is not None and packed.batch:
        sizes["b"] = packed.batch
    if not sizes:
        return None
    distinct = {size for size in sizes.values() if size != 1}
    if len(distinct) > 1:
        listing = ", ".join(f"{what} {size}" for what, size in sizes.items())
        raise _bad("shape-batch", f"the batch sizes differ: {listing}", sizes, "use one batch size, or 1 to broadcast")
    return distinct.pop() if distinct else 1


def _batch_stride(one: View, batch: int) -> int:
    return one.strides[0] if len(one.shape) == 3 and one.shape[0] == batch and batch > 1 else 0


def _need_shape(one: View, wanted: tuple[int, ...], rule: str) -> None:
    batched = len(wanted) == 3
    accepted = {wanted}
    if rule != "shape-out" and batched:
        accepted |= {wanted[1:], (1, *wanted[1:])}
    if one.shape not in accepted:
        raise _bad(
            rule, f"{one.what} has shape {one.shape}, and the result has {wanted}", one.shape, f"give shape {wanted}"
        )


def _d_strides(one: View, m: int, n: int, batch: int) -> tuple[int, int, int]:
    """Row, column and batch stride of a D tensor; sizes of 1 broadcast."""
    if not 1 <= len(one.shape) <= 3:
        raise _bad(
            "shape-d", f"{one.what} has {len(one.shape)} dimensions", one.shape, f"give shape ({m}, {n}) or ({n},)"
        )
    shape, strides = (1,) * (3 - len(one.shape)) + one.shape, (0,) * (3 - len(one.shape)) + one.strides
    for size, wanted in zip(shape, (batch, m, n), strict=True):
        if size not in (1, wanted):
            raise _bad(
                "shape-d",
                f"{one.what} has shape {one.shape}, which does not broadcast to the result's {(batch, m, n)}",
                one.shape,
                f"give shape ({m}, {n}), ({n},), (1, {n}) or ({m}, 1)",
            )
    empty = 0 in (batch, m, n)  # nothing is read, so nothing has a layout
    step = [0 if size == 1 or empty else stride for size, stride in zip(shape, strides, strict=True)]
    return step[1], step[2], step[0]


def _result_dtype(a: View, dtype_b: str, c: View | None, out: View | None, out_dtype: str | None) -> str:
    if out is not None:
        if out_dtype is not None and out_dtype != out.dtype:
            raise _bad(
                "out-dtype",
                f"out holds {out.dtype}, but out_dtype asks for {out_dtype}",
                out.dtype,
                "give one of the two, or make them agree",
            )
        return out.dtype
    if out_dtype is not None:
        return out_dtype
    return c.dtype if c is not None else default_output(a.dtype, dtype_b)


def _result_layout(c: View | None, out: View | None) -> str:
    """r or c: how the result is laid out; C must be laid out alike."""
    of_out = leading_strides(out) if out is not None else {"r": 0, "c": 0}
    of_c = leading_strides(c) if c is not None else {"r": 0, "c": 0}
    if out is not None and not of_out:
        raise _no_layout(out)
    if c is not None and not of_c:
        raise _no_layout(c)
    for letter in ("r", "c"):
        if letter in of_out and letter in of_c:
            return letter
    raise _bad(
        "layout-c",
        "c and out are laid out differently: one by rows, one by columns",
        (c.strides if c else None, out.strides if out else None),
        "give an out laid out like c, or copy c into out's layout",
    )


def _check_out(out: View, wanted: tuple[int, ...]) -> None:
    _need_shape(out, wanted, "shape-out")
    if not out.writeable:
        raise _bad("out-read-only", "out is read-only", False, "give a writeable array, or out.copy()")
    if overlaps_itself(out):
        raise _bad(
            "out-overlaps-itself",
            f"out of shape {out.shape} has strides {out.strides}: different elements share memory",
            out.strides,
            "give an array with memory of its own",
        )


def analyse(
    a: View,
    b: View | PackedShape,
    c: View | None = None,
    ds: Sequence[View] = (),
    out: View | None = None,
    *,
    use_c: bool = False,
    epilogue: str = "PassThrough",
    out_dtype: str | None = None,
    prefer: str = "",
) -> Request:
    """Shapes, strides and dtypes as one request, or the first contradiction as one error.

    `prefer` is the layout to take where the strides allow more than one.
    """
    epilogue = normal_epilogue(epilogue)
    packed = b if isinstance(b, PackedShape) else None
    matrices = [one for one in (a, b, c, out) if isinstance(one, View)]
    for one in matrices:
        _matrix(one)
    place = HOST
    if a.place is not HOST:
        places = [(one.what, one.place) for one in (*matrices, *ds)]
        place = common_place(places if packed is None else [*places, ("the packed b", packed.place)])
    m, k = a.shape[-2:]
    k_b, n = (packed.k, packed.n) if packed is not None else b.shape[-2:]  # type: ignore[union-attr]
    if k != k_b:
        raise _bad(
            "shape-k",
            f"a is {m}x{k} and b is {k_b}x{n}: the inner sizes {k} and {k_b} differ",
            (k, k_b),
            "give b with as many rows as a has columns (transpose a view with .T: no copy is made)",
        )
    batch = _batch_of([*matrices, *(one for one in ds if len(one.shape) == 3)], packed)
    shape = (m, n) if batch is None else (batch, m, n)
    count = 1 if batch is None else batch
    dtype = _result_dtype(a, b.dtype, c, out, out_dtype)
    if out is not None:
        _check_out(out, shape)
    if c is not None:
        _need_shape(c, shape, "shape-c")
        if c.dtype != dtype:
            raise _bad("c-dtype", f"c holds {c.dtype}, the result {dtype}", c.dtype, f"convert c to {dtype}")
    if len(ds) > MAX_D:
        raise _bad("epilogue-d-count", f"{len(ds)} D tensors were given", len(ds), f"give at most {MAX_D}")
    for one in ds:
        if one.dtype != ds[0].dtype:
            raise _bad(
                "d-dtype",
                f"{one.what} holds {one.dtype}, {ds[0].what} {ds[0].dtype}",
                one.dtype,
                "give D tensors of one dtype",
            )
    d_strides = [_d_strides(one, m, n, count) for one in ds]
    column_major = _result_layout(c, out) == "c"
    swapped = column_major
    if swapped and packed is not None:
        raise _bad(
            "packed-column-major",
            "a packed b cannot give a column-major result",
            out.strides if out is not None else None,
            "give a row-major out (np.empty(shape)), or use b unpacked",
        )
    left, right = (b.transposed(), a.transposed()) if swapped else (a, b)  # type: ignore[union-attr]
    if swapped:
        m, n = n, m
        c = c.transposed() if c is not None else None
        out = out.transposed() if out is not None else None
        d_strides = [(column, row, step) for row, column, step in d_strides]
    filled = _fill(left, right, c, out, d_strides, (m, n, k, count), use_c, epilogue, dtype, ds, swapped, shape, prefer)
    if place is HOST:
        return filled
    plain = all(_plain_d(one, filled.args, index) for index, one in enumerate(ds))
    return replace(filled, place=place, problem=replace(filled.problem, plain_d=plain))


def _plain_d(one: View, args: GemmArgs, index: int) -> bool:
    """Whether a D tensor has contiguous rows, and its address and strides are multiples of 16 bytes."""
    row, batch = (step * one.itemsize for step in (args.d_row_stride[index], args.d_batch_stride[index]))
    return args.d_col_stride[index] == 1 and not (one.address % 16 or row % 16 or batch % 16)


def _fill(
    a: View,
    b: View | PackedShape,
    c: View | None,
    out: View | None,
    d_strides: list[tuple[int, int, int]],
    sizes: tuple[int, int, int, int],
    use_c: bool,
    epilogue: str,
    dtype: str,
    ds: Sequence[View],
    swapped: bool,
    shape: tuple[int, ...],
    prefer: str,
) -> Request:
    """The argument template and the problem, in the kernel's orientation."""
    m, n, k, batch = sizes
    args = GemmArgs(m=m, n=n, k=k, batch=batch)
    letter_a, args.a_stride = input_layout(a, prefer[:1])
    args.a_batch_stride = _batch_stride(a, batch)
    if isinstance(b, PackedShape):
        # The value of the batch stride is ignored, not whether it is 0.
        letter_b, args.b_batch_stride = b.layout, 1 if b.batch > 1 and not b.repeated else 0
        args.b_stride = max(1, n if letter_b == "r" else k)  # for kernels of a problem without k, which is not packed
        broadcast_b = batch > 1 and args.b_batch_stride == 0
    else:
        letter_b, args.b_stride = input_layout(b, prefer[1:2])
        args.b_batch_stride = _batch_stride(b, batch)
        broadcast_b = batch > 1 and args.b_batch_stride == 0
    args.e_stride, args.e_batch_stride = max(1, n), m * max(1, n)
    if out is not None:
        args.e_stride = leading_strides(out)["r"]
        args.e_batch_stride = _batch_stride(out, batch)
    if c is not None and use_c:
        args.c_stride = leading_strides(c)["r"]
        args.c_batch_stride = _batch_stride(c, batch)
    for index, (row, column, step) in enumerate(d_strides):
        if column not in (0, 1):
            raise _bad(
                "layout-d",
                f"{ds[index].what} of shape {ds[index].shape} has element strides {ds[index].strides}: along the "
                f"{'columns' if swapped else 'rows'} of the result its elements are not contiguous",
                ds[index].strides,
                f"give it the result's layout, for example with np.{'asfortran' if swapped else 'ascontiguous'}array",
            )
        args.d_row_stride[index], args.d_col_stride[index], args.d_batch_stride[index] = row, column, step
    broadcast_a = batch > 1 and args.a_batch_stride == 0
    if broadcast_b and not broadcast_a and letter_a == "r" and not isinstance(b, PackedShape):
        broadcast_b = not _fold_batch(args, len(ds), use_c)
    problem = GemmProblem(
        m=args.m,
        n=n,
        k=k,
        dtype_a=a.dtype,
        dtype_b=b.dtype,
        dtype_c=dtype,
        dtype_d=ds[0].dtype if ds else dtype,
        layout=f"{letter_a}{letter_b}r",
        batch=args.batch,
        epilogue=epilogue,
        num_d=len(ds),
        beta=use_c,
        preshuffled=isinstance(b, PackedShape),
        a_stride=args.a_stride,
        b_stride=args.b_stride,
        c_stride=args.e_stride,
        broadcast_a=broadcast_a,
        broadcast_b=broadcast_b,
    )
    return Request(problem, args, swapped, shape, dtype, column_major=swapped)


def _fold_batch(args: GemmArgs, num_d: int, use_c: bool) -> bool:
    """One matrix B for the whole batch and rows that follow each other: the batch is only more rows.

    True when the arguments were changed to one GEMM with batch * m rows.
    """
    m, batch = args.m, args.batch
    if m == 0:
        return False
    pairs = [("a", args.k), ("e", args.n)] + ([("c", args.n)] if use_c else [])
    for name, row in pairs:
        stride, step = getattr(args, f"{name}_stride"), getattr(args, f"{name}_batch_stride")
        if step != m * stride and not (m == 1 and step >= row):
            return False
    for index in range(num_d):
        row, step = args.d_row_stride[index], args.d_batch_stride[index]
        if step != m * row and m != 1:
            return False
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
    return True


def dense_request(problem: GemmProblem) -> Request:
    """The request of operands laid out exactly as the problem says, batch after batch."""
    p = problem
    args = GemmArgs(m=p.m, n=p.n, k=p.k, batch=p.batch)
    args.a_stride, args.b_stride, args.e_stride, args.c_stride = p.a_stride, p.b_stride, p.c_stride, p.c_stride
    args.a_batch_stride = 0 if p.broadcast_a else p.a_stride * (p.m if p.layout[0] == "r" else p.k)
    args.b_batch_stride = 0 if p.broadcast_b else p.b_stride * (p.k if p.layout[1] == "r" else p.n)
    args.e_batch_stride = args.c_batch_stride = p.c_stride * p.m
    for index in range(p.num_d):
        args.d_row_stride[index], args.d_col_stride[index] = p.n, 1
        args.d_batch_stride[index] = p.m * p.n
    shape = (p.m, p.n) if p.batch == 1 else (p.batch, p.m, p.n)
    return Request(replace(p), args, False, shape, p.dtype_c, column_major=False)
