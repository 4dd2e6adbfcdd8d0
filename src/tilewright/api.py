"""The Python API: GEMM on arrays, packing, explaining.

`tw.gemm(a, b)` multiplies NumPy arrays or anything with DLPack; `tw.gemm(a, w.T, ds=(bias,),
epilogue="relu")` reads the layout from the strides and fuses the rest; `tw.gemm(a, tw.pack(w.T))`
packs B once for many uses; `print(tw.explain(tw.GemmProblem(m=64, n=64, k=64)))` says what would run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright import settings
from tilewright.arch import all_archs
from tilewright.backends.base import all_backends
from tilewright.dispatch.registry import Registry, default_registry, resolve_target
from tilewright.dispatch.selection import Explanation
from tilewright.errors import DeviceError
from tilewright.runtime.arrays import array_place
from tilewright.runtime.bindings.gemm.call import run as _run_gemm
from tilewright.runtime.bindings.gemm.call import run_read
from tilewright.runtime.bindings.gemm.packed import PackedB, pack_with
from tilewright.runtime.bindings.gemm.quick import CALLERS, READERS, raise_failed, tail_of
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import HOST, Place, device, device_of
from tilewright.runtime.streams import scoped_stream

_ndarray = np.ndarray
_registries: dict[str, Registry] = {}
_NOTHING: tuple[Any, ...] = ()
_PLAIN_NEW = tail_of("passthrough", None, True, True, False)
_PLAIN_OUT = tail_of("passthrough", None, False, True, False)
_targets: dict[Any, str] = {}  # by the device of tensors and our own arrays


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    ds: Sequence[Any] = _NOTHING,
    epilogue: str = "passthrough",
    out: Any = None,
    out_dtype: Any = None,
    math: str = "",
    target: str | None = None,
) -> Any:
    """E = epilogue(alpha * A.B + beta * C, D0, D1).

    `a` is (m, k), `b` is (k, n) or what `pack` gave, `c` and the result are (m, n); a leading third
    dimension is a batch, and a size of 1 or a missing batch broadcasts.  Layouts are read from the
    strides (a transposed view costs nothing) and no operand is ever copied.  `c` is read only where
    `beta` is not 0.  `ds` are up to two tensors the epilogue adds or multiplies; a vector of n is a
    row for every row.  An activation with D tensors is applied to the sum of all.

    The result has the dtype of `out`, else `out_dtype`, else of `c`, else of the inputs (int32 for
    int8, fp32 for fp8 and mixed inputs).  Without `out` it is a new array: of the library `a` comes
    from where that takes DLPack (PyTorch, JAX, ...), of NumPy otherwise.  `out` may be `c` itself.

    float32 is multiplied exactly.  `math="tf32"` allows an NVIDIA GPU to round its inputs to 11 bits first, for
    several times the speed; `ops.gemm.reference.error_bound` says what that costs.
    """
    kind = type(a)
    read = READERS.get(kind)
    name = target or settings.current().target
    if not name and kind is not _ndarray:
        known = _targets.get(a.device) if read is not None else _target_of(a)
        name = _device_target(a) if known is None else known
    registry = _registries.get(name)
    if registry is None:
        registry = _registry(name)
    if read is None or math:
        return _run_gemm(
            registry, a, b, c, alpha=alpha, beta=beta, ds=ds, epilogue=epilogue, out=out, out_dtype=out_dtype, math=math
        )
    call = CALLERS.get(kind)
    if call is not None and scoped_stream() is None:  # C alone knows no stream but PyTorch's
        if c is None and ds is _NOTHING and not beta and epilogue == "passthrough" and out_dtype is None:
            plans = registry.plans()
            result = (
                call(plans, _PLAIN_NEW, alpha, beta, a, b)
                if out is None
                else call(plans, _PLAIN_OUT, alpha, beta, a, b, out)
            )
        else:
            result = _call_fused(call, registry, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)
        if type(result) is tuple:
            raise_failed(result, read, alpha, beta, *[one for one in (a, b, out, c, *ds) if one is not None])
        if result is not None:
            return result
    return run_read(read, registry, a, b, c, alpha, beta, ds, epilogue, out, out_dtype)


def _call_fused(
    call: Callable[..., Any],
    registry: Registry,
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
    """A call with more than A, B and a result, made by C alone; None where that cannot be."""
    if type(ds) is not tuple and type(ds) is not list:
        return None
    try:
        tail = tail_of(epilogue, out_dtype, out is None, c is None, bool(beta))
    except TypeError:  # what is no name has its error elsewhere
        return None
    plans = registry.plans()
    if c is None:
        return (
            call(plans, tail, alpha, beta, a, b, *ds) if out is None else call(plans, tail, alpha, beta, a, b, out, *ds)
        )
    return call(plans, tail, alpha, beta, *((a, b, c) if out is None else (a, b, out, c)), *ds)


def _target_of(a: Any) -> str:
    """The target that the place of an array names: empty for the host, else the arch of its device."""
    place = array_place(a)
    if place is HOST or place.kind not in all_backends():
        return ""  # reading the array says what is wrong with its place
    return place.kind if place.ordinal < 0 else _arch_of(place)


def _device_target(a: Any) -> str:
    """The same for a tensor or an array of ours, remembered by its device."""
    name = _targets[a.device] = _target_of(a)
    return name


@lru_cache(maxsize=64)
def _arch_of(place: Place) -> str:
    one = device(place)
    if one.arch not in all_archs():
        known = ", ".join(name for name, facts in all_archs().items() if facts.backend == place.kind)
        raise DeviceError(
            f"{place} ({one.name}) is of arch {one.arch}, for which there are no kernels",
            rule="arch-not-runnable",
            value=one.arch,
            remedy=f"use a device of {known}, or arrays in host memory",
        )
    return one.arch


def _registry(target: str | None) -> Registry:
    name = target or settings.current().target
    return _registries.setdefault(name, default_registry(name))


def pack(b: Any, *, m: int = 256, dtype_a: str | None = None, target: str | None = None) -> PackedB:
    """Pack B (k, n) once for preshuffle kernels; use the result in place of b in `gemm`.

    `m` is the number of rows A will typically have, `dtype_a` its element type (b's, if not given; "tf32" for
    calls with `math="tf32"`).  The packed bytes belong to this machine's target and are not meant to be stored.
    """
    name = target or settings.current().target or _target_of(b)
    return pack_with(_registry(name), b, m, dtype_a)


def to_device(array: Any, target: str | None = None, index: int | None = None) -> DeviceArray:
    """A copy of a NumPy array in the memory of the device that runs the target's kernels.

    `index` names one of several devices.  `.numpy()` of the result copies back; other libraries read
    it through DLPack.
    """
    return DeviceArray.of(device_of(resolve_target(target).name, index), array)


def explain(
    problem: Any, *, target: str | None = None, threads: int | None = None, strict: bool | None = None
) -> Explanation:
    """Which kernel would serve a problem, which would not, and why; nothing is compiled."""
    return _registry(target).explain(problem, threads=threads, strict=strict)
