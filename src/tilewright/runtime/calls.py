"""A call of any op on arrays: by the fast path where it was made before, else by the slow one, with an error a mistake.

    Caller.run(planner, operands, scalars, attributes)
      fast path   C looks the call up by the facts of its operands and launches it    (fast_path)
      slow path   views -> binding.request -> planner.plan -> plan.run                (here)

Nothing below calls this module, and a plan is whole when it is made.
"""

from __future__ import annotations

import inspect
import numbers
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import numpy as np

from tilewright import settings
from tilewright.dataclass import NamedTuple
from tilewright.errors import ProblemError, RequestError, attribute_of, shown
from tilewright.runtime import arrays, fast_path, tables, torch_arrays, untracked
from tilewright.runtime.arrays import View, overlaps_itself, share_memory, view
from tilewright.runtime.bindings import Binding, Planner, binding
from tilewright.runtime.copies import CopyNeeded
from tilewright.runtime.devices import HOST, common_place, kind_of
from tilewright.runtime.host import thread_count
from tilewright.runtime.lines import extent
from tilewright.runtime.loader import Kernel
from tilewright.runtime.plans import Plan, Planned, Plans
from tilewright.runtime.plans import Stage as PlanStage
from tilewright.runtime.requests import (
    NO_SPAN,
    Attributes,
    Operands,
    Packed,
    Pointer,
    Request,
    Result,
    Scalar,
    Slot,
    Span,
    StageRequest,
)

NEVER = "never"  # compared by identity on the fast path: what is equal to it may be no text at all
COPIES = (NEVER, "allow")
_GRAIN = 16  # what addresses on a device are multiples of where checks are shown plain ones

Views = tuple["View | Packed | None", ...]


def scalar(name: str, value: object) -> float:
    """A real number as a float; what is none, or a truth value, has one clear error."""
    torch_arrays.demand_constant(name, value)
    try:
        if type(value) is float or type(value) is int or _is_number(value):
            return float(cast("Any", value))
        why = "is not a real number"
    except Exception as error:  # whatever float() and classes of the user's own raise
        why = f"cannot be made a float ({error!s:.80})"
    raise ProblemError(
        f"{name} is {shown(value)}, which {why}",
        rule="scalar",
        value=shown(value),
        remedy=f"give {name} as a float; an array must have no dimensions, a truth value be written as 0 or 1",
    )


def _is_number(value: Any) -> bool:
    """Real numbers, and arrays of no dimensions that hold one; texts and spans of time are none, though float() takes
    them."""
    if isinstance(value, (np.ndarray, np.generic)):
        if value.shape == () and value.dtype.kind == "O":
            return _is_number(value.item())
        return value.shape == () and value.dtype.kind not in "bcmMSU" and "complex" not in value.dtype.name
    if isinstance(value, numbers.Real):
        return not isinstance(value, bool)
    shape, kind = attribute_of(value, "shape"), str(attribute_of(value, "dtype"))
    return isinstance(shape, tuple) and shape == () and "bool" not in kind and "complex" not in kind


class Note(NamedTuple):
    """A call that the slow path made: what making it again without Python takes."""

    plan: Plan
    counter: Any  # what counts such calls; None: nobody does
    operands: Operands
    scalars: tuple[float, ...]
    results: dict[int, tuple[Any, int]]  # new arrays and their addresses, by slot
    looked_at: bool  # values were checked, which must be done in every call
    written: tuple[int, ...]  # the slots of operands that were given and written


class _Watched(threading.local):
    notes: list[Note] | None = None


_watched = _Watched()


def watching() -> bool:
    """Whether somebody wants to know of the calls of this thread: they must take the slow path then."""
    return _watched.notes is not None


@contextmanager
def watched() -> Iterator[list[Note]]:
    """Note the calls of this thread; a watch inside of another has its own."""
    before, notes = _watched.notes, list[Note]()
    _watched.notes = notes
    try:
        yield notes
    finally:
        _watched.notes = before


untracked.made_of(Plan, Planned, PlanStage, Pointer, Request, Result, Scalar, Span, StageRequest, fast_path.Prepared)


class Caller:
    """Calls of one op.  `fast(calls, options, *scalars, *operands)` is C's, once there is a plan."""

    __slots__ = ("_cast", "_form", "_fronts", "_no_spans", "_optional", "_twins", "_written", "binding", "fast")

    def __init__(self, op: Binding) -> None:
        self.binding = op
        # Slots are many and operands few: a new shape looks at the ones that count.
        self._written = tuple((index, slot) for index, slot in enumerate(op.slots) if slot.written)
        self._optional = tuple(slot.optional for slot in op.slots)
        self._cast = [slot.cast for slot in op.slots]
        names = [slot.name for slot in op.slots]
        self._twins = tuple(names.index(slot.twin) if slot.twin in names else -1 for slot in op.slots)
        self._no_spans = [NO_SPAN] * len(op.slots)
        self._form: fast_path.Form | None = None
        self.fast: Callable[..., Any] = _nothing
        self._fronts: list[fast_path.Front] = []

    def front(self, function: Callable[..., Any], **operands: str | tuple[str, ...] | None) -> fast_path.Front:
        """Let C make the calls of a public function that were made before (`fast_path.Front`)."""
        front = fast_path.Front(function, operands)
        self._fronts.append(front)
        return front

    def run(
        self, planner: Planner, operands: Operands, scalars: Sequence[Any], attributes: Attributes, copy: str = NEVER
    ) -> Any:
        """The result of a call; several are a tuple."""
        if copy is NEVER:
            done = self.fast(planner.plans().fast, attributes, *scalars, *operands)
            if type(done) is list:
                return self.failed(planner, done, operands, scalars)
            if done is not None:
                return done
        return self.run_slow(planner, operands, scalars, attributes, copy)

    def attempt(self, planner: Planner, operands: Operands, scalars: Sequence[Any], options: Attributes) -> Any:
        """The result of a call that was made before with such options and operands; None where Python must look.

        `options` are the attributes, or what the attributes follow from: then a call made before needs no look at what
        the options mean.  Operands at the end that are None may be left out.
        """
        done = self.fast(planner.plans().fast, options, *scalars, *operands)
        return done if type(done) is not list else self.failed(planner, done, operands, scalars)

    def failed(self, planner: Planner, answer: list[Any], operands: Operands, scalars: Sequence[Any]) -> Any:
        """Raise the error of a launch that C made."""
        status, stage, prepared = answer
        plan: Plan = prepared.plan
        left_out = [None] * (len(self.binding.slots) - len(operands))
        views = self._views([*operands, *left_out], planner.kind, NEVER)[0]
        addresses = [0 if view is None else view.address for view in views]
        error = plan.failed(stage, status, addresses, [float(scalar) for scalar in scalars])
        raise tables.with_entry(self.binding, plan, views, error)

    def run_slow(
        self,
        planner: Planner,
        operands: Operands,
        scalars: Sequence[Any],
        attributes: Attributes,
        copy: str,
        options: Attributes | None = None,
    ) -> Any:
        """Every operand is looked at, every mistake has its error; `options` are those of an attempt before."""
        if not isinstance(copy, str) or copy not in COPIES:
            text = shown(copy)
            raise ProblemError(
                f"copy is {text}", rule="copy-name", value=text, remedy="use copy='never' or copy='allow'"
            )
        narrower = self._autocast(operands)
        if narrower is not None:
            device, operands = narrower
            with torch_arrays.without_autocast(device):
                return self.run(planner, operands, scalars, attributes, copy)
        names = self.binding.scalars
        numbers_ = [
            value if type(value) is float else scalar(name, value) for name, value in zip(names, scalars, strict=True)
        ]
        plans = planner.plans()
        example = _example(operands)
        views, operands = self._views(operands, planner.kind, copy)
        while True:
            try:
                (plan, counter), again = self._planned(planner, plans, views, attributes)
                break
            except CopyNeeded as error:
                if any(slot.written and slot.name == error.what for slot in self.binding.slots):
                    raise error.written() from None
                if copy != "allow":
                    raise
                views, operands = self._with_copy(error, views, operands, planner.kind)
        self._demand_apart(views, plan)
        looked_at = tables.checked(self.binding, plan)
        if looked_at:
            tables.demand(self.binding, plan, views)
        results = self._results(plan, views, example)
        addresses = [0 if view is None else view.address for view in views]
        for slot, (_, address) in results.items():
            addresses[slot] = address
        try:
            plan.run(addresses, numbers_)
        except ProblemError as error:
            raise tables.with_entry(self.binding, plan, views, error) from None
        if counter is not None:
            counter.add()
        self._mark_written(operands)
        if _watched.notes is not None:
            written = tuple(index for index, _ in self._written if operands[index] is not None)
            note = Note(plan, counter, tuple(operands), tuple(numbers_), results, looked_at, written)
            _watched.notes.append(note)
        # What C knows it launches without a look.  Where sizes never come back, preparing calls for it is lost time.
        if copy == NEVER and not looked_at and (again or len(plans) <= untracked.MANY):
            options = attributes if options is None else options if _constant(options) else None
            if options is not None:
                self._remember(plans, Planned(plan, counter), views, operands, options)
        return self._answer(operands, plan, example, results)

    def _autocast(self, operands: Operands) -> tuple[str, Operands] | None:
        """The operands as torch.autocast wants them, and its device; None where it wants nothing."""
        if not torch_arrays.loaded() or any(operands[index] is not None for index, _ in self._written):
            return None
        return torch_arrays.autocast(operands, self._cast)

    # -- looking -----------------------------------------------------------------------------------

    def _views(self, operands: Operands, kind: str, copy: str) -> tuple[Views, Operands]:
        """Views of the operands, and the operands: some of them copies, where that is allowed."""
        slots, taken = self.binding.slots, list(operands)
        views: list[View | Packed | None] = []
        for index, operand in enumerate(operands):
            if operand is None and self._optional[index]:
                views.append(None)
                continue
            slot = slots[index]
            if slot.packed is not None and isinstance(operand, slot.packed):
                views.append(operand)
                continue
            if slot.written and torch_arrays.is_tensor(operand):
                torch_arrays.demand_written(slot.name, operand)
            try:
                views.append(view(slot.name, operand, kind))
            except CopyNeeded as error:
                if slot.written:
                    raise error.written() from None
                if copy != "allow":
                    raise
                taken[index] = arrays.copy_of(slot.name, operand, kind)
                views.append(view(slot.name, taken[index], kind))
            except ProblemError as error:
                if error.rule == "array-dtype" and slot.elements:  # what to convert it to follows from the slot
                    error.remedy = f"give {slot.name} as {slot.elements}"
                elif error.rule == "array-dtype" and slot.written:  # what it holds is written over: nothing to convert
                    first = next((each.dtype for each in views if isinstance(each, View)), "fp32")
                    error.remedy = f"allocate {slot.name} with a dtype that results have, for example {first}"
                raise
        return tuple(views), taken

    def _with_copy(self, error: CopyNeeded, views: Views, operands: Operands, kind: str) -> tuple[Views, Operands]:
        """The same with a copy of the operand an error names."""
        for index, slot in enumerate(self.binding.slots):
            if slot.name == error.what and not slot.written and isinstance(views[index], View):
                taken, seen = list(operands), list(views)
                for by_columns in (False, True):  # rows that are contiguous, or else columns
                    taken[index] = arrays.copy_of(slot.name, operands[index], kind, by_columns)
                    copied = seen[index] = view(slot.name, taken[index], kind)
                    if copied.strides != views[index].strides:  # type: ignore[union-attr]
                        return tuple(seen), taken
        raise error.refused(f"give another {error.what}: a copy does not help")

    def _planned(self, planner: Planner, plans: Plans, views: Views, attributes: Attributes) -> tuple[Planned, bool]:
        """The plan, and whether it was known."""
        key: Any = (self.binding.op, attributes, tuple([None if view is None else view.key for view in views]))
        try:
            known = plans.known.get(key)
        except Exception:  # attributes that are no names cannot be looked up; the request says what they are
            known = key = None
        if known is not None:
            return known, True
        self._demand_writeable(views)
        request = self.binding.request(views, attributes, planner.target)
        for stage in request.stages:
            untracked.made_of(type(stage.problem))
        plan, counter = planner.plan(self._placed(request, views)), None
        if settings.current().record:
            from tilewright.runtime import recording

            counter = recording.counter(request)
        planned = Planned(plan, counter)
        if key is not None:
            plans.known.put(key, planned)
            if len(plans) > untracked.MANY:
                untracked.settle(planned, key)
        return planned, False

    def _placed(self, request: Request, views: Views) -> Request:
        """The request with where its operands are and what a call touches of them."""
        place, spans = HOST, list(self._no_spans)
        for index, operand in enumerate(views):
            if operand is not None:
                twin = self._twins[index]
                if twin >= 0 and not _alike(operand, views[twin]):
                    twin = -1  # it has another shape
                spans[index] = _span(operand, twin)
                place = place if operand.place is HOST else operand.place
        if place is not HOST:
            slots = self.binding.slots
            place = common_place(
                [(slot.name, view.place) for slot, view in zip(slots, views, strict=True) if view is not None]
            )
        return request.placed(place, tuple(spans))

    def _demand_writeable(self, views: Views) -> None:
        for index, slot in self._written:
            operand = views[index]
            if not isinstance(operand, View):
                continue
            if not operand.writeable:
                raise ProblemError(
                    f"{slot.name} is read-only",
                    rule="out-read-only",
                    value=False,
                    remedy=f"give a writeable array, or {slot.name}.copy()",
                )
            if overlaps_itself(operand):
                raise ProblemError(
                    f"{slot.name} of shape {operand.shape} has strides {operand.strides}: "
                    "different elements share memory",
                    rule="out-overlaps-itself",
                    value=operand.strides,
                    remedy="give an array with memory of its own",
                )

    def _demand_apart(self, views: Views, plan: Plan) -> None:
        """What is written shares memory with nothing else, except that it may be exactly its twin."""
        for index, slot in self._written:
            operand = views[index]
            if not isinstance(operand, View):
                continue
            twin = plan.request.spans[index].twin
            for other_index, other in enumerate(views):
                same = other_index == twin and other is not None and other.address == operand.address
                if other_index == index or same or not isinstance(other, View) or not share_memory(other, operand):
                    continue
                raise _overlap(slot, other.what, self.binding.slots[other_index].written)

    # -- results -----------------------------------------------------------------------------------

    def _results(self, plan: Plan, views: Views, example: Any) -> dict[int, tuple[Any, int]]:
        """New arrays, and their addresses, by slot."""
        return {
            result.slot: arrays.new_result(example, result, plan.place)
            for result in plan.results
            if views[result.slot] is None
        }

    def _answer(self, operands: Operands, plan: Plan, example: Any, results: dict[int, tuple[Any, int]]) -> Any:
        new = {result.slot: result for result in plan.results if result.slot in results}
        answers = [
            arrays.as_kind_of(example, results[index][0], new[index]) if index in results else operands[index]
            for index, _ in self._written
            if index in results or operands[index] is not None
        ]
        return answers[0] if len(answers) == 1 else tuple(answers)

    def _mark_written(self, operands: Operands) -> None:
        for index, _ in self._written:
            operand = operands[index]
            if operand is not None and torch_arrays.is_tensor(operand):
                torch_arrays.touched(operand)

    # -- remembering -------------------------------------------------------------------------------

    def _remember(self, plans: Plans, planned: Planned, views: Views, operands: Operands, options: Attributes) -> None:
        """Prepare the call for C, where it can make it alone."""
        plan, counter = planned
        place = plan.place
        if plan.in_copies or any(view is not None and view.place != place for view in views):
            return  # elsewhere is pinned memory of the host, whose facts are those of memory a device does not read
        form = self._made_form(operands)
        key = form.key(options, *operands) if form is not None else None
        if form is None or key is None:
            return
        example = _example(operands)
        wanted: list[Result] = [result for result in plan.results if views[result.slot] is None]
        makers = [arrays.maker(example, result, plan.place) for result in wanted]
        written = {result.slot for result in wanted}
        answer = [index for index, _ in self._written if index in written or operands[index] is not None]
        if None in makers:
            return
        prepared = fast_path.prepare(plan, [maker for maker in makers if maker is not None], answer, counter)
        if prepared is not None:
            plans.remember_fast(key, prepared)
            if len(plans) > untracked.MANY:
                untracked.settle(prepared)

    def ready(self) -> None:
        """What the first call would wait for beside its kernels: C's library, and what it asks a loaded PyTorch."""
        if self._made_form(()) is not None and torch_arrays.loaded():
            cast("fast_path._Library", fast_path.library()).use_tensors(torch_arrays.kinds(), *torch_arrays.watched())

    def _made_form(self, operands: Operands) -> fast_path.Form | None:
        native = fast_path.library()
        if native is None:
            return None
        if torch_arrays.loaded() and any(map(torch_arrays.is_tensor, operands)):
            native.use_tensors(torch_arrays.kinds(), *torch_arrays.watched())
        for operand in operands:
            if arrays.is_device_array(operand):
                native.hold(type(operand))
        if self._form is None:
            self._form = fast_path.form(self.binding.slots, len(self.binding.scalars))
            for front in self._fronts if self._form is not None else ():
                front.put(cast("fast_path.Form", self._form), self.binding.slots)
        if self._form is not None:
            self.fast = self._form.call
        return self._form


def _nothing(*_arguments: Any) -> None:
    """Before there is a plan C knows no call."""


def _example(operands: Operands) -> Any:
    """The operand whose library results come from: the first."""
    for operand in operands:
        if operand is not None:
            return operand
    return None


def _constant(option: Any) -> bool:
    """Whether an option cannot change while it is remembered (lists are remembered as they are now): what has an
    `__index__` of its own may."""
    if type(option) is tuple or type(option) is list:
        return all(map(_constant, option))
    return (
        option is None
        or isinstance(option, (bool, int, float, str, type, np.dtype, np.generic))
        or (torch_arrays.is_dtype(option))
    )


def _overlap(slot: Slot, other: str, written: bool) -> ProblemError:
    """Two operands share memory; the first of them is written, and the other read or written too."""
    why = f"which is read while {slot.name} is written"
    remedy = f"give {slot.name} memory of its own, or copy {other} first"
    if other == slot.twin:
        remedy += f" ({slot.name} may be {other} itself, with the same shape and strides)"
    elif written:
        why, remedy = "and both are written", f"give {slot.name} and {other} memory of their own"
    return ProblemError(
        f"{slot.name} shares memory with {other}, {why}", rule="out-overlaps", value=other, remedy=remedy
    )


def _misused(called: str, bind: Callable[..., Any], arguments: tuple[Any, ...], keywords: Any) -> RequestError | None:
    """The error of a call whose arguments are not those `bind` has; None where they are."""
    signature = inspect.signature(bind)
    own = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    try:
        signature.replace(parameters=own).bind(*arguments, **keywords)
    except TypeError as error:
        copy = inspect.Parameter("copy", inspect.Parameter.KEYWORD_ONLY, default=NEVER)
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in (*own, copy)]
        usage = f"{called}{inspect.Signature(plain)}"
        return RequestError(
            f"{called} was called with other arguments than it has: {error}",
            rule="call-arguments",
            value=str(error),
            remedy=f"call it as {usage}",
        )
    return None


def _alike(view: View | Packed, other: View | Packed | None) -> bool:
    if not isinstance(view, View) or not isinstance(other, View):
        return False
    return (view.shape, view.strides) == (other.shape, other.strides)


def _span(view: View | Packed, twin: int) -> Span:
    if not isinstance(view, View):
        return NO_SPAN
    size = view.itemsize
    low, high = extent(view.shape, view.strides, size)
    if 0 in view.shape:
        return Span(low, high, 1, 64, twin)
    return Span(low, high, size, 64 + (size if view.address % _GRAIN else 0), twin)


_callers: dict[str, Caller] = {}


def caller(op: str) -> Caller:
    """The calls of an op; one a process."""
    known = _callers.get(op)
    return known if known is not None else _callers.setdefault(op, Caller(binding(op)))


def run(planner: Planner, op: str, *operands: Any, copy: str = NEVER, **keywords: Any) -> Any:
    """Run an op on arrays, written as users do, with the kernels the planner chooses."""
    call = caller(op)
    try:
        arguments, scalars, attributes = call.binding.bind(*operands, **keywords)
    except TypeError as error:
        raise _misused(op, call.binding.bind, operands, keywords) or error from None
    return call.run(planner, arguments, scalars, attributes, copy)


class OneKernel:
    """A planner that always answers with the same kernel: what calling a kernel directly means."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.kind = kind_of(kernel.spec.arch)
        self.target = kernel.spec.arch
        self._plans: dict[Any, Plans] = {}

    def plans(self) -> Plans:
        now = settings.current()  # plans of recorded calls have counters, and calls with checks are not remembered
        key = now.threads, now.thread_pool, now.record, now.check_tables
        known = self._plans.get(key)
        return known if known is not None else self._plans.setdefault(key, Plans())

    def plan(self, request: Request) -> Plan:
        from tilewright import ops

        if len(request.stages) != 1:
            raise self._other(f"these arrays ask for {len(request.stages)} kernels, one after another")
        stage, spec = request.stages[0], self.kernel.spec
        why = stage.where(spec) if stage.where is not None else ""
        if why:
            raise ProblemError(f"{self.kernel.name} {why}", rule="packed-format", remedy="pack for this kernel")
        signature = ops.op(spec.op).signature_of(stage.problem)
        if signature != spec.signature:
            raise self._other(f"it computes {spec.signature.label()}, and these arrays ask for {signature.label()}")
        return Plan(request, [self.kernel], (), thread_count())

    def kernel_for(self, problem: Any) -> Kernel:
        return self.kernel

    def _other(self, why: str) -> ProblemError:
        return ProblemError(
            f"{self.kernel.name} cannot be called so: {why}",
            rule="kernel-signature",
            value=why,
            remedy=f"use `tilewright.{self.kernel.spec.op}`, which picks a kernel for the arrays",
        )


def call_kernel(kernel: Kernel, *operands: Any, copy: str = NEVER, **keywords: Any) -> Any:
    """Run this kernel; what it computes is its own, layouts must be."""
    if kernel.planner is None:
        kernel.planner = OneKernel(kernel)
    call = caller(kernel.spec.op)
    try:
        arguments, scalars, attributes = call.binding.bind_kernel(kernel.spec, *operands, **keywords)
    except TypeError as error:
        bind: Callable[..., Any] = partial(call.binding.bind_kernel, kernel.spec)
        if any(at.kind is at.VAR_POSITIONAL for at in inspect.signature(bind).parameters.values()):
            bind = call.binding.bind  # it hands everything on
        raise _misused("kernel", bind, operands, keywords) or error from None
    return call.run(kernel.planner, arguments, scalars, attributes, copy)
