"""What is left of a GEMM call on tensors or device arrays when the same was called before.

The key of such a call holds every fact that the checks of the long path look at; only what depends on
addresses (overlap, alignment) is looked at again.  A call that fails there takes the long path, which has
the words for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tilewright.runtime import arrays, quick, torch_arrays
from tilewright.runtime.bindings.gemm.args import GemmArgs
from tilewright.runtime.bindings.gemm.plan import GemmPlan, bad_scalar, copy_args
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import HOST, device
from tilewright.runtime.dlpack import dense_strides
from tilewright.runtime.streams import scoped_stream

if TYPE_CHECKING:
    from tilewright.runtime.gpu import Gpu


def _read_held(*held: Any) -> tuple[Any, ...] | None:
    """As `torch_arrays.reader`, for our own arrays."""
    key: list[Any] = []
    at: list[Any] = [None]
    for one in held:
        if type(one) is not DeviceArray:
            return None
        key += (one.shape, one.strides, one.dtype, one.device.place, not one.address & 15)
        at.append(one.address)
    at[0] = tuple(key)
    return tuple(at)


READERS: dict[type[Any], quick.Read] = {DeviceArray: _read_held}
CALLERS: dict[type[Any], Callable[..., Any]] = {}  # the whole of a call in C, for tensors


_tails: dict[tuple[Any, ...], bytes] = {}


def tail_of(*facts: Any) -> bytes:
    """What the key of a call that C makes ends with: a short name of epilogue, output type, whether a new result is
    made, whether there is no C, and whether beta is not 0."""
    known = _tails.get(facts)
    if known is None:
        known = _tails.setdefault(facts, b"%d" % len(_tails) if len(_tails) < 10_000 else repr(facts).encode())
    return known


def reader_of(array: Any) -> quick.Read | None:
    """What reads arrays of this type for the short path; None where there is no short path."""
    known = READERS.get(type(array))
    if known is None and torch_arrays.is_tensor(array):
        known = torch_arrays.reader()
        for kind in torch_arrays.kinds():
            READERS[kind] = known
    return known


def _read_natively() -> None:
    """From the first plan on a GPU on, tensors are read in C where that can be."""
    native = torch_arrays.native_reader()
    if native is not None:
        for kind in torch_arrays.kinds():
            READERS[kind], CALLERS[kind] = native


class QuickCall:
    """A plan and how to call it with addresses in the order A, B, E, C, Ds."""

    __slots__ = (
        "_dtype", "_go", "_go_surely", "_gpu", "_has_c", "_new", "_ordinal", "_raw", "_strides", "_use_c", "_workspace",
        "plan", "prepared",
    )  # fmt: skip

    def __init__(self, plan: GemmPlan, example: Any, *, new: bool, has_c: bool) -> None:
        """`example` is an operand of the kind the result will be; `new`: the result is made in each call."""
        self.plan = plan
        self._new, self._has_c = new, has_c
        of_torch = torch_arrays.is_tensor(example)
        shape = plan.shape
        self._strides = dense_strides(shape)
        if plan.column_major:
            turned = dense_strides((*shape[:-2], shape[-1], shape[-2]))
            self._strides = (*turned[:-2], turned[-1], turned[-2])
        self._dtype = torch_arrays.dtype_of(plan.dtype_name) if of_torch else None
        self._use_c = plan.use_c
        self.prepared: quick.Prepared | None = None
        self._go: Callable[..., int] | None = None
        self._go_surely: Callable[..., int] | None = None  # on a stream that is captured too
        self._gpu: Gpu | None = None
        self._raw: Callable[[int], int] | None = None
        self._ordinal, self._workspace = plan.place.ordinal, 0
        if plan.place is HOST:
            return
        if of_torch:
            self._raw = torch_arrays.current_stream()
            _read_natively()
        if type(plan) is GemmPlan:  # others do more than one launch
            self._gpu = cast("Gpu", device(plan.place))
            self._workspace = plan.scratch_bytes
            self.prepared = self._prepare(self._gpu, self._workspace)
            if self.prepared is not None:
                self._go = self._go_surely = self.prepared.launch
                if self._workspace and (surely := self._prepare(self._gpu, 0)) is not None:
                    self._go_surely = surely.launch

    def _prepare(self, gpu: Gpu, workspace_bytes: int) -> quick.Prepared | None:
        plan, fields = self.plan, cast("Any", GemmArgs)
        a, b = (fields.b, fields.a) if plan.swapped else (fields.a, fields.b)
        of_a, of_b, of_c, of_ds, of_e, alike = plan.reach
        slots = [
            quick.Slot(a.offset, of_a, plan.size_a),
            quick.Slot(b.offset, of_b, plan.size_b),
            quick.Slot(fields.e.offset, of_e, plan.size_c),
        ]
        if self._has_c:
            slots.append(quick.Slot(fields.c.offset if plan.use_c else None, of_c, plan.size_c))
        grain = 16 if plan._aligned_d else plan.size_d
        for index, of_d in enumerate(of_ds):
            slots.append(quick.Slot(fields.d.offset + 8 * index, of_d, grain))
        scalars = [fields.alpha.offset, *([fields.beta.offset] if plan.use_c else [])]
        made = None
        if self._new and self._dtype is not None:
            made = torch_arrays.allocator(plan.place), plan.shape, self._strides, self._dtype
        prepared = quick.prepare(
            plan.kernel,
            gpu,
            plan.args,
            slots,
            scalars,
            out=-1 if self._new else 2,
            twin=3 if self._has_c and alike else -1,
            workspace_bytes=workspace_bytes,
            allocate=made,
        )
        if prepared is not None:
            prepared.owner = self
        return prepared

    def new_result(self, example: Any) -> tuple[Any, int]:
        """A new array beside `example`, and its address."""
        plan = self.plan
        if self._dtype is None:
            return arrays.new_result(example, plan.shape, plan.dtype_name, plan.column_major, plan.place)
        result = example.new_empty_strided(plan.shape, self._strides, dtype=self._dtype)
        return result, result.data_ptr()

    def run(self, at: tuple[int, ...], alpha: float, beta: float) -> bool:
        """Queue the work; False where addresses need a longer look, and then nothing was done."""
        go = self._go
        if go is None:
            return self._run_plan(at, alpha, beta)
        raw, gpu = self._raw, self._gpu
        assert gpu is not None
        # The stream of a `with stream:` goes before PyTorch's.
        stream = raw(self._ordinal) if raw is not None and scoped_stream() is None else gpu.stream()
        try:
            if self._workspace:
                status = self._with_workspace(gpu, stream, at, alpha, beta)
            else:
                status = go(stream, 0, *at, alpha, beta) if self._use_c else go(stream, 0, *at, alpha)
        except (TypeError, OverflowError):
            raise bad_scalar(alpha, beta) from None
        return not status or self._after(status, gpu, at, alpha, beta)

    def _with_workspace(self, gpu: Gpu, stream: int, at: tuple[int, ...], alpha: float, beta: float) -> int:
        go, surely = self._go, self._go_surely
        assert go is not None
        assert surely is not None
        scalars = (alpha, beta) if self._use_c else (alpha,)
        with gpu._lock:  # until the launch is queued, so that nobody frees the workspace before it
            held = gpu._workspaces.get(stream)
            zeros = self.plan.kernel.clear_bytes
            known = held.at(zeros) if held is not None and held.serves(self._workspace, zeros) else 0
            status = go(stream, known, *at, *scalars)
            if status == quick.CAPTURED:
                status = surely(stream, gpu.workspace(self._workspace, stream, zeros), *at, *scalars)
            return status

    def _after(self, status: int, gpu: Gpu, at: tuple[int, ...], alpha: float, beta: float) -> bool:
        """What remains to be done after an answer that is not 0."""
        if status == quick.NOT_APART:
            return False
        if status == quick.ELSEWHERE:
            return self._run_plan(at, alpha, beta)
        plan = self.plan
        args = copy_args(plan.args)
        a, b, args.e, c, ds = self._addresses(at)
        args.a, args.b = (b, a) if plan.swapped else (a, b)
        args.alpha = alpha
        if plan.use_c:
            args.c, args.beta = c, beta
        for index, one in enumerate(ds):
            args.d[index] = one
        raise gpu.launch_error(plan.kernel, status, ctypes.addressof(args))

    def failed(self, status: int, at: tuple[int, ...], alpha: float, beta: float) -> None:
        """Raise the error of a launch that C made without us."""
        assert self._gpu is not None
        self._after(status, self._gpu, (*at[:2], 0, *at[2:]) if self._new else at, alpha, beta)

    def _addresses(self, at: tuple[int, ...]) -> tuple[int, int, int, int, tuple[int, ...]]:
        """A, B, E, C (0 where there is none) and the Ds."""
        if not self._has_c:
            return at[0], at[1], at[2], 0, at[3:]
        return at[0], at[1], at[2], at[3], at[4:]

    def _run_plan(self, at: tuple[int, ...], alpha: float, beta: float) -> bool:
        plan = self.plan
        a, b, e, c, ds = self._addresses(at)
        if a % plan.size_a or b % plan.size_b or c % plan.size_c or e % plan.size_c:
            return False
        if ds and any(one % plan.size_d for one in ds):
            return False
        if not self._new and not plan.apart(a, b, c, ds, e):
            return False
        plan(a, b, c, ds, e, alpha, beta)
        return True


def raise_failed(
    answer: tuple[int, quick.Prepared], read: quick.Read, alpha: float, beta: float, *tensors: Any
) -> None:
    """Raise the error that a function of `CALLERS` answered with."""
    status, prepared = answer
    found = read(*tensors)
    prepared.owner.failed(status, (0,) * len(tensors) if found is None else found[1:], alpha, beta)
