"""Running a GEMM on arrays.  The path of a call seen before is short on purpose: every line of it counts.

A call is looked up by shapes, strides and dtypes; only on a miss are views made, the request
analysed and a kernel chosen.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.errors import ProblemError, UnknownNameError
from tilewright.ops.base import KernelSpec
from tilewright.runtime import arrays, host
from tilewright.runtime.arrays import View, address_of, extent, output_dtype, share_memory, view
from tilewright.runtime.bindings import Planner
from tilewright.runtime.bindings.gemm.packed import PackedB
from tilewright.runtime.bindings.gemm.plan import GemmPlan, prepare
from tilewright.runtime.bindings.gemm.quick import QuickCall, reader_of, tail_of
from tilewright.runtime.bindings.gemm.request import MATHS, Request, analyse
from tilewright.runtime.devices import Place, kind_of
from tilewright.runtime.loader import Kernel
from tilewright.runtime.quick import Read

# Plans kept for a set of settings; a program whose sizes never repeat must not fill memory with them.
MOST_PLANS = 8192

# What addresses and batch strides on a device must be multiples of for a problem to count as aligned.
DEVICE_GRAIN = 16

_ndarray = np.ndarray
_empty = np.empty


def run(
    planner: Planner,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    ds: Sequence[Any] = (),
    epilogue: str = "passthrough",
    out: Any = None,
    out_dtype: Any = None,
    math: str = "",
) -> Any:
    """E = epilogue(alpha * A.B + beta * C, D0, D1) with the kernel the planner chooses."""
    if math:
        return run_with_math(planner, math, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    plans = planner.plans()
    kind_b = type(b)
    if type(a) is not _ndarray or (kind_b is not _ndarray and kind_b is not PackedB):
        read = reader_of(a)
        if read is not None:
            return run_read(read, planner, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
        return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    key_b = (b.shape, b.strides, b.dtype) if kind_b is _ndarray else b.key
    if out is None and c is None and type(ds) is tuple and not ds and not beta:
        key: Any = (a.shape, a.strides, a.dtype, key_b, epilogue, out_dtype)
        try:
            plan = plans.get(key)
        except TypeError:  # an epilogue or dtype that is no name; the long path says so
            plan = key = None
        if plan is None:
            return _run_views(planner, plans, key, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
        result = _empty(plan.shape, plan.dtype)
        at_a = address_of(a)
        at_b = address_of(b) if kind_b is _ndarray else b.address
        if at_a % plan.size_a or at_b % plan.size_b:
            return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
        plan(at_a, at_b, 0, (), address_of(result), alpha, 0.0)
        return result
    return _run_fused(planner, plans, key_b, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)


def run_read(
    read: Read,
    planner: Planner,
    a: Any,
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    ds: Sequence[Any],
    epilogue: str,
    out: Any,
    out_dtype: Any,
) -> Any:
    """The short path of PyTorch's tensors and our arrays on a device."""
    plans = planner.plans()
    if type(ds) is not tuple and type(ds) is not list:
        return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    packed = b if type(b) is PackedB else None
    plain = c is None and not ds and packed is None
    if plain:
        found = read(a, b) if out is None else read(a, b, out)
    else:
        given = (a, b, out, c, *ds) if packed is None else (a, out, c, *ds)
        found = read(*[one for one in given if one is not None])
    key: Any = None
    call: QuickCall | None = None
    if found is not None:
        key = found[0], epilogue, out_dtype
        if not plain or beta:
            key += out is None, c is None, bool(beta), None if packed is None else packed.key
        try:
            call = plans.get(key)
        except TypeError:  # an epilogue or dtype that is no name; the long path says so
            key = None
    if found is None or call is None:
        return _run_views(planner, plans, key, a, b, c, alpha, beta, ds, epilogue, out, out_dtype, quick=True)
    at = found[1:] if packed is None else (found[1], packed.address, *found[2:])
    result = out
    if out is None:
        result, at_out = call.new_result(a)
        at = (at[0], at[1], at_out, *at[2:])
    if call.run(at, alpha, beta):
        return result
    return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)


def run_with_math(
    planner: Planner,
    math: str,
    a: Any,
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    ds: Sequence[Any],
    epilogue: str,
    out: Any,
    out_dtype: Any,
) -> Any:
    """Inputs multiplied as another type than they have; always by the long path."""
    if math not in MATHS:
        raise UnknownNameError(
            f"{math!r} is not a way to multiply", rule="math-name", value=str(math), remedy="use math='tf32', or none"
        )
    return _run_views(planner, planner.plans(), None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype, math=math)


def _with_math(request: Request, math: str) -> Request:
    """The same request with inputs of the type they are multiplied as."""
    held = (request.problem.dtype_a, request.problem.dtype_b)
    if held != ("fp32", "fp32"):
        raise ProblemError(
            f"math {math!r} is how float32 is multiplied, and a and b hold {' and '.join(held)}",
            rule="math-dtype",
            value=held,
            remedy="leave math out, or give float32 arrays",
        )
    return replace(request, problem=replace(request.problem, dtype_a=math, dtype_b=math))


def _run_fused(
    planner: Planner,
    plans: MutableMapping[Any, Any],
    key_b: Any,
    a: np.ndarray[Any, Any],
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    ds: Sequence[Any],
    epilogue: str,
    out: Any,
    out_dtype: Any,
) -> Any:
    """The short path with C, Ds or out: all NumPy, or handed on."""
    if type(ds) is not tuple and type(ds) is not list:
        return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    key: Any = [a.shape, a.strides, a.dtype, key_b, epilogue, out_dtype, bool(beta)]
    others = (out, c, *ds)
    for one in others:
        if one is None:
            key.append(None)
        elif type(one) is _ndarray:
            key.append((one.shape, one.strides, one.dtype))
        else:
            return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    key = tuple(key)
    try:
        plan = plans.get(key)
    except TypeError:
        plan = key = None
    if plan is None or plan.column_major:
        return _run_views(planner, plans, key, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    at_a = address_of(a)
    at_b = b.address if type(b) is PackedB else address_of(b)
    at_c = 0 if c is None else address_of(c)
    at_ds = tuple([address_of(one) for one in ds])
    result = _empty(plan.shape, plan.dtype) if out is None else out
    at_out = address_of(result)
    if out is not None and (not out.flags.writeable or not plan.apart(at_a, at_b, at_c, at_ds, at_out)):
        return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    bad = at_a % plan.size_a or at_b % plan.size_b or at_c % plan.size_c or at_out % plan.size_c
    if bad or (at_ds and any(one % plan.size_d for one in at_ds)):
        return _run_views(planner, plans, None, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
    plan(at_a, at_b, at_c, at_ds, at_out, alpha, beta)
    return result


def _key(one: View | PackedB | None) -> Any:
    if one is None:
        return None
    return one.key if isinstance(one, PackedB) else (one.shape, one.strides, one.dtype, one.place)


def _place(one: View | PackedB) -> Place:
    return one.shape.place if isinstance(one, PackedB) else one.place


def _aligned(operands: Sequence[View | PackedB]) -> bool:
    """Whether addresses and batch strides of operands on a device are multiples of DEVICE_GRAIN bytes."""
    for one in operands:
        if one.address % DEVICE_GRAIN:
            return False
        if isinstance(one, View) and len(one.shape) == 3 and one.strides[0] * one.itemsize % DEVICE_GRAIN:
            return False
    return True


def _run_views(
    planner: Planner,
    plans: MutableMapping[Any, Any],
    fast_key: Any,
    a: Any,
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    ds: Sequence[Any],
    epilogue: str,
    out: Any,
    out_dtype: Any,
    prefer: str = "",
    quick: bool = False,
    math: str = "",
) -> Any:
    """The long path: every operand is looked at, every mistake has its error.

    `fast_key` is where the short path looked in vain; with `quick` it is the one of `run_read`.
    """
    if beta and c is None:
        raise ProblemError(
            f"beta is {beta}, but there is no c to scale", rule="beta-without-c", value=beta, remedy="give c, or beta=0"
        )
    if not isinstance(epilogue, str):
        raise ProblemError(
            f"epilogue is a {type(epilogue).__name__}, not a name",
            rule="epilogue-name",
            value=str(epilogue),
            remedy="give a name such as 'relu'",
        )
    if hasattr(ds, "shape") or not isinstance(ds, Sequence):
        raise ProblemError(
            "ds must be a tuple or list of arrays", rule="ds-type", value=type(ds).__name__, remedy="write ds=(d0,)"
        )
    kind = planner.kind
    of_a = view("a", a, kind)
    of_b = b if isinstance(b, PackedB) else view("b", b, kind)
    of_c = None if c is None else view("c", c, kind)
    of_ds = [view(f"ds[{index}]", one, kind) for index, one in enumerate(ds)]
    of_out = None if out is None else view("out", out, kind)
    wanted = None if out_dtype is None else output_dtype(out_dtype)
    aligned = kind == "cpu" or _aligned([one for one in (of_a, of_b, of_out) if one is not None])
    aligned_ds = kind == "cpu" or _aligned(of_ds)
    key = (
        _key(of_a),
        _key(of_b),
        _key(of_c),
        tuple(map(_key, of_ds)),
        _key(of_out),
        bool(beta),
        epilogue,
        wanted,
        aligned,
        aligned_ds,
        math,
    )
    plan = plans.get(key)
    if plan is None or (of_out is not None and not of_out.writeable):
        shape_b: Any = of_b
        where = None
        if isinstance(of_b, PackedB):
            of_b.demand(of_a, math)
            shape_b = replace(of_b.shape, dtype=of_a.dtype) if math else of_b.shape
            where = of_b.refuses() if of_b.shape.k else None  # without k nothing is read, by whichever kernel
        request = analyse(
            of_a, shape_b, of_c, of_ds, of_out, use_c=bool(beta), epilogue=epilogue, out_dtype=wanted, prefer=prefer
        )
        if not aligned:
            request = replace(request, problem=replace(request.problem, aligned=False))
        if math:
            request = _with_math(request, math)
        plan = planner.plan("gemm", request, where)
        plan.reach = _reach(of_a, of_b, of_c, of_ds, of_out)
        if len(plans) >= MOST_PLANS:
            plans.clear()
        plans[key] = plan
    if fast_key is not None and not quick:
        plans[fast_key] = plan
    elif fast_key is not None and all(_place(one) == plan.place for one in (of_a, of_b, of_c, of_out, *of_ds) if one):
        # Elsewhere is pinned memory of the host, whose key is that of memory a device does not read.
        made = plans[fast_key] = QuickCall(plan, a, new=of_out is None, has_c=of_c is not None)
        if type(fast_key[0]) is bytes and made.prepared is not None and not isinstance(of_b, PackedB):
            # For a call that C makes alone.
            plans[fast_key[0] + tail_of(epilogue, out_dtype, out is None, c is None, bool(beta))] = made.prepared
    result: Any = out
    if of_out is None:
        result, at_out = arrays.new_result(a, plan.shape, plan.dtype_name, plan.column_major, plan.place)
    else:
        at_out = of_out.address
        demand_apart([one for one in (of_a, of_b, *of_ds) if isinstance(one, View)], of_c, of_out)
    plan(
        of_a.address,
        of_b.address,
        of_c.address if of_c else 0,
        tuple(one.address for one in of_ds),
        at_out,
        alpha,
        beta,
    )
    return result


def _reach(a: View, b: View | PackedB, c: View | None, ds: Sequence[View], out: View | None) -> Any:
    """Byte extents around each first element, for the quick overlap test of later calls."""

    def of(one: View | PackedB | None) -> tuple[int, int]:
        return (0, 0) if not isinstance(one, View) else extent(one.shape, one.strides, one.itemsize)

    alike = c is not None and out is not None and (c.shape, c.strides) == (out.shape, out.strides)
    return of(a), of(b), of(c), tuple(of(one) for one in ds), of(out), alike


def demand_apart(inputs: Sequence[View], c: View | None, out: View) -> None:
    """`out` may be exactly `c`; it may share memory with nothing else."""
    same = c is not None and (c.address, c.shape, c.strides) == (out.address, out.shape, out.strides)
    for one in (*inputs, *([c] if c is not None and not same else [])):
        if share_memory(one, out):
            raise ProblemError(
                f"out shares memory with {one.what}, which is read while out is written",
                rule="out-overlaps",
                value=one.what,
                remedy=f"give an out of its own, or copy {one.what} first"
                + (" (out may be c itself, with the same shape and strides)" if one is c else ""),
            )


class OneKernel:
    """A planner that always answers with the same kernel: what calling a kernel directly means."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.kind = kind_of(kernel.spec.arch)
        self._plans: dict[int, dict[Any, Any]] = {}

    def plans(self) -> MutableMapping[Any, Any]:
        threads = host.thread_count()
        known = self._plans.get(threads)
        return known if known is not None else self._plans.setdefault(threads, {})

    def plan(self, op: str, request: Request, where: Callable[[KernelSpec], str] | None = None) -> GemmPlan:
        mine = self.kernel.spec.signature
        if mine.dtype_a in MATHS:  # calling such a kernel is asking for it
            request = _with_math(request, mine.dtype_a)
        asked = request.problem.signature
        why = where(self.kernel.spec) if where is not None else ""
        if why:
            raise ProblemError(f"{self.kernel.name} {why}", rule="packed-format", remedy="pack b for this kernel")
        if mine != asked:
            raise ProblemError(
                f"{self.kernel.name} computes {mine.label()}, and these arrays ask for {asked.label()}",
                rule="kernel-signature",
                value=asked.label(),
                remedy="use `tilewright.gemm`, which picks a kernel for the arrays",
            )
        return prepare(self.kernel, request, host.thread_count())


def call(
    kernel: Kernel,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    ds: Sequence[Any] = (),
    out: Any = None,
) -> Any:
    """Run this kernel; epilogue and output type are its own, layouts must be."""
    planner = kernel.planner
    if planner is None:
        planner = kernel.planner = OneKernel(kernel)
    signature = kernel.spec.signature
    plans = planner.plans()
    wanted = signature.dtype_c if out is None else None
    return _run_views(
        planner, plans, None, a, b, c, alpha, beta, ds, signature.epilogue, out, wanted, prefer=signature.layout
    )
