"""The fast path of a call made before: one C function from the operands to the launched kernels, for every op.

It is a small library, built once through the kernel store (its text is `native/fast_path.cpp`).  It reads NumPy's
arrays, PyTorch's tensors and what has `facts` and an `address` (our own arrays, packed operands).  Where it cannot be
built or loaded, or an operand is of another kind, Python does the same, slower: see `calls`.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tilewright import events, notices, packaged, settings
from tilewright.dataclass import NamedTuple
from tilewright.errors import TilewrightError
from tilewright.runtime import untracked
from tilewright.runtime.devices import HOST, device
from tilewright.runtime.requests import NO_SPAN, Slot, Span
from tilewright.runtime.streams import SCOPED
from tilewright.runtime.torch_reader import Reader, reader

if TYPE_CHECKING:
    from tilewright.backends.base import Source
    from tilewright.runtime.gpu import Gpu
    from tilewright.runtime.plans import Plan, Stage
    from tilewright.runtime.recording import Counter
    from tilewright.runtime.torch_arrays import Questions

# The only definition of these limits: `source` writes them in front of the text of fast_path.cpp.
MOST_OPERANDS = 48  # the ops that ship have up to 31, and a backward pass needs up to ten more
MOST_SCALARS = 32
MOST_LOOPS = 4
MOST_ARGUMENT_BYTES = 2048  # of one kernel
MOST_PARAMETERS = 48  # of a public function
_LIMITS = (
    "MOST_OPERANDS",
    "MOST_SCALARS",
    "MOST_LOOPS",
    "MOST_ARGUMENT_BYTES",
    "MOST_PARAMETERS",
)
_VERSION = 11
_FASTCALL = 0x80
_EXCHANGE = b"dlpack_exchange_api"

_int, _pointer, _object = ctypes.c_int64, ctypes.c_void_p, ctypes.py_object


class _Form(ctypes.Structure):
    _fields_ = (("id", _int), ("slots", _int), ("scalars", _int), ("written", ctypes.c_uint64))


class _Pointer(ctypes.Structure):
    _fields_ = (("offset", _int), ("slot", _int), ("shift", _int), ("step", _int * MOST_LOOPS))


class _Scalar(ctypes.Structure):
    _fields_ = (("offset", _int), ("index", _int))


class _Stage(ctypes.Structure):
    _fields_ = (
        ("launch", _pointer),
        ("args", _pointer),
        ("pointer", _pointer),
        ("scalar", _pointer),
        *((name, _int) for name in ("bytes", "pointers", "scalars", "scratch", "clear_bytes", "loops")),
        ("loop", _int * MOST_LOOPS),
    )


class _Span(ctypes.Structure):
    _fields_ = tuple((name, _int) for name in ("low", "high", "grain", "twin"))


class _NativeMaker(ctypes.Structure):
    _fields_ = (("slot", _int), ("make", _object), ("arguments", _object))


class _Call(ctypes.Structure):
    _fields_ = (
        *((name, _pointer) for name in ("stage", "span", "made", "answer")),
        *((name, _int) for name in ("stages", "mades", "answers", "scratch_bytes", "clear_bytes", "between")),
        *((name, _pointer) for name in ("team", "current", "capturing")),
        ("expected", ctypes.c_uint64),
        ("workspaces", _object),
        ("stream", _object),
        ("calls", _pointer),
        ("used", _int),
    )


class _Parameter(ctypes.Structure):
    _fields_ = (("name", _object), ("fallback", _pointer), ("role", _int), ("slots", ctypes.c_uint64))


class _Front(ctypes.Structure):
    _fields_ = (
        ("function", _object),
        ("original", _pointer),
        ("form", _pointer),
        *((name, _int) for name in ("id", "parameters", "positional")),
        ("parameter", _pointer),
    )


_STRUCTS = (_Form, _Pointer, _Scalar, _Stage, _Span, _NativeMaker, _Call, Reader, _Parameter, _Front)
_OPTION, _OPERAND, _LEFT_OUT = range(3)  # what a parameter is
_RUNS_FUNCTIONS_ITSELF = sys.version_info[:2] == (3, 11)
STEPS = ("parse", "read", "look up", "allocate", "launch")  # between the times C notes for a benchmark


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", _pointer), ("flags", ctypes.c_int), ("text", ctypes.c_char_p))


class Maker(NamedTuple):
    """What makes a new result in each call: a function and its arguments."""

    slot: int
    make: Callable[..., Any]
    arguments: tuple[Any, ...]


class Prepared(int):
    """The address of a prepared call, as C takes it; keeps alive what the call needs."""

    keep: tuple[Any, ...]
    plan: Plan
    call: _Call

    @property
    def used(self) -> int:
        """When it was called last, by a clock that counts calls."""
        return int(self.call.used)


class _Library:
    """The loaded functions; what they need lives as long as the process."""

    def __init__(self, path: str) -> None:
        library = ctypes.PyDLL(path)
        for name in ("tw_fast_abi_version", "tw_fast_sizes", "tw_fast_now"):
            getattr(library, name).restype = _int
        sizes = [library.tw_fast_sizes(_int(index)) for index in range(len(_STRUCTS))]
        if library.tw_fast_abi_version() != _VERSION or sizes != [ctypes.sizeof(struct) for struct in _STRUCTS]:
            raise OSError(f"{path} is of another version")
        library.tw_fast_start.argtypes = (_int, _object)
        library.tw_fast_arrays.argtypes, library.tw_fast_arrays.restype = (_object,), None
        library.tw_fast_look.argtypes, library.tw_fast_look.restype = (_object,), _object
        library.tw_fast_hold.argtypes = (_object,)
        library.tw_fast_own.argtypes = (_object, ctypes.c_int)
        library.tw_fast_tensors.argtypes = (_object, _object, _pointer, _object, _object, _pointer, _object)
        library.tw_fast_watch.argtypes = (_object, _object, _object)
        library.tw_fast_clock.argtypes, library.tw_fast_clock.restype = (_pointer,), None
        library.tw_fast_launch_often.argtypes = (_pointer, _pointer, _pointer, _pointer, _int)
        library.tw_fast_forget.restype, library.tw_fast_front_hits.restype = None, _int
        self._library = library
        self._methods = {
            name: _Method(name.encode(), ctypes.cast(getattr(library, f"tw_fast_{name}"), _pointer), _FASTCALL, None)
            for name in ("key", "call", "values", "keep", "settle", "check")
        }
        self._make = ctypes.pythonapi.PyCFunction_NewEx
        self._make.restype, self._make.argtypes = _object, (_pointer, _object, _pointer)
        self.held: list[type[Any]] = []
        self.tensors: tuple[Any, ...] = ()
        if not _objects_are_plain() or library.tw_fast_start(object.__basicsize__, SCOPED):
            raise OSError("the objects of this Python have another layout")
        self.reads_arrays = self._use_arrays()
        untracked.use(self.function("settle", 0), library.tw_fast_own)
        self.check = self.function("check", 0)
        self.fronts: list[tuple[Any, ...]] = []
        for dictionary, name in _watched:
            library.tw_fast_watch(settings.SCOPED, dictionary, name)

    def now(self) -> int:
        """The clock of calls, which goes on by this question too."""
        return int(self._library.tw_fast_now())

    def function(self, name: str, owner: object) -> Callable[..., Any]:
        return cast("Callable[..., Any]", self._make(ctypes.addressof(self._methods[name]), owner, None))

    def _use_arrays(self) -> bool:
        """Whether C reads of arrays what NumPy says of them; they are given to it only then."""
        same = sys.implementation.name == "cpython" and all(map(self._agrees, _arrays()))
        if same:
            self._library.tw_fast_arrays(np.ndarray)
        return same

    def _agrees(self, array: np.ndarray[Any, Any]) -> bool:
        address, flags, order, number, sizes = self._library.tw_fast_look(array)
        return (
            address == array.__array_interface__["data"][0]
            and bool(flags & 2) == array.flags.writeable
            and chr(order) == array.dtype.byteorder
            and number == array.dtype.num
            and sizes == (*array.shape, *array.strides)
        )

    def hold(self, kind: type[Any]) -> None:
        """Read operands of a type by their `facts` and `address`."""
        if kind not in self.held and not self._library.tw_fast_hold(kind):
            self.held.append(kind)

    def use_tensors(
        self, kinds: Sequence[type[Any]], questions: Questions, touched: Callable[[tuple[Any, ...]], object]
    ) -> bool:
        """Read tensors of these two types; False where their library publishes no exchange table."""
        capsule = getattr(kinds[0], "__dlpack_c_exchange_api__", None)
        if self.tensors and self.tensors[0] is capsule:
            return True
        if capsule is None:
            return False
        unwrap = ctypes.pythonapi.PyCapsule_GetPointer
        unwrap.restype, unwrap.argtypes = _pointer, (_object, ctypes.c_char_p)
        try:
            table = unwrap(capsule, _EXCHANGE)
        except (ValueError, TypeError):
            return False
        torch = sys.modules["torch"]
        tensor_reader, dtype = reader(torch), torch.dtype
        at = None if tensor_reader is None else ctypes.addressof(tensor_reader)
        if self._library.tw_fast_tensors(kinds[0], kinds[-1], table, questions, touched, at, dtype):
            return False
        self.tensors = (
            capsule,
            tuple(kinds),
            questions,
            touched,
            tensor_reader,
            dtype,
        )  # kept: C has only their addresses
        return True

    def put_before(self, front: Front, form: Form, parameters: Sequence[tuple[str, int, int]]) -> None:
        """Let C handle calls of a function first; parameters are names, roles and the slots they may be."""
        function = front.function
        code: Any = function.__code__
        first = code.co_argcount - len(getattr(function, "__defaults__", None) or ())
        defaults = dict(zip(code.co_varnames[first:], getattr(function, "__defaults__", None) or (), strict=False))
        defaults |= getattr(function, "__kwdefaults__", None) or {}
        array = (_Parameter * len(parameters))()
        for into, (name, role, slots) in zip(array, parameters, strict=True):
            into.name, into.role, into.slots = sys.intern(name), role, slots
            into.fallback = id(defaults[name]) if name in defaults else None
        native_front = _Front(
            function=function,
            original=_vectorcall_of(function),
            form=form.address,
            id=next(_ids),
            parameters=len(parameters),
            positional=code.co_argcount,
            parameter=ctypes.addressof(array),
        )
        if self._library.tw_fast_front(ctypes.byref(native_front)):
            return
        self.fronts.append((native_front, array, defaults, function, form))  # kept: C has only their addresses
        _let_call(function, ctypes.cast(self._library.tw_fast_vectorcall, _pointer))
        if _RUNS_FUNCTIONS_ITSELF:
            address = ctypes.addressof(native_front)
            front.call, front.keep = self.function("values", address), self.function("keep", address)

    def forget(self) -> None:
        """What fronts remember."""
        self._library.tw_fast_forget()

    def front_hits(self) -> int:
        """Calls that fronts have made, for tests."""
        return int(self._library.tw_fast_front_hits())

    def clock(self, times: Any) -> None:
        """Let C write the times of a call's steps into an array, for benchmarks; None: no more."""
        self._library.tw_fast_clock(None if times is None else ctypes.addressof(times))

    def launch_often(self, launch: Any, args: Any, workspace: int, stream: int, count: int) -> int:
        """A kernel with the same arguments again and again, for benchmarks; its status."""
        at = ctypes.cast(launch, _pointer), ctypes.addressof(args)
        return int(self._library.tw_fast_launch_often(*at, workspace, stream, count))


def _vectorcall_of(function: Callable[..., Any]) -> int:
    """The address of the C function that runs a Python function."""
    find = ctypes.pythonapi.PyVectorcall_Function
    find.restype, find.argtypes = _pointer, (_object,)
    return int(find(function))


def _let_call(function: Callable[..., Any], runs: ctypes.c_void_p) -> None:
    """Let another C function run a Python function, whose behaviour that must keep.

    Python has a function for it from 3.12 on.  3.10 looks at the same field; 3.11 looks there only in calls of C's and
    those with `*` and `**`, and elsewhere runs the function itself.
    """
    change = getattr(ctypes.pythonapi, "PyFunction_SetVectorcall", None)
    if change is not None:
        change.restype, change.argtypes = None, (_object, _pointer)
        change(function, runs)
        return
    before, word = _vectorcall_of(function), ctypes.sizeof(_pointer)
    places = [id(function) + at for at in range(0, type(function).__basicsize__, word)]
    fields = [_pointer.from_address(place) for place in places]
    matching = [field for field in fields if field.value == before]
    if len(matching) == 1:
        matching[0].value = runs.value


def _objects_are_plain() -> bool:
    """Whether the type of an object is in the last word of its head, where C looks for it, and one thread at a
    time runs Python, which C relies on."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    word = object.__basicsize__ - ctypes.sizeof(_pointer)
    samples = (1.5, 7, None, (), np.zeros(2), object())
    return sys.implementation.name == "cpython" and all(
        _pointer.from_address(id(sample) + word).value == id(type(sample)) for sample in samples
    )


def _arrays() -> list[np.ndarray[Any, Any]]:
    """Arrays of different shapes, strides, types and rights."""
    base = np.arange(64, dtype=np.float32).reshape(8, 8)
    fixed = np.zeros((2, 3, 4, 5, 6, 2), np.int8)
    fixed.flags.writeable = False
    swapped = base.astype(base.dtype.newbyteorder())
    return [base, base[3:, 2:].T, base[::-2], fixed, swapped, np.zeros((0, 3), np.int64), np.zeros((), np.float16)]


def reads(kind: type[Any]) -> bool:
    """Whether C reads operands of a type otherwise than NumPy's arrays: tensors, device arrays, what is packed."""
    native = _loaded
    return native is not None and (kind in native.held or (bool(native.tensors) and kind in native.tensors[1]))


_watched: list[tuple[dict[str, Any], str]] = [(vars(settings), "_process")]


def watch(names: dict[str, Any], name: str) -> None:
    """A name of a module whose value decides, beside the settings in force, which calls are remembered."""
    _watched.append((names, sys.intern(name)))


def forget() -> None:
    """Plans have changed: what fronts remember of them goes."""
    notices.notify(notices.changed)
    if _loaded is not None:
        _loaded.forget()


_lock = threading.Lock()
_loaded: _Library | None = None
_failed: list[settings.Settings] = []  # those under which it could not be had
_ids = itertools.count(1)


def source(name: str = "fast_path.cpp") -> str:
    """The text of a library: the limits it shares with Python, and a file of `native`."""
    limits = "".join(f"#define TW_{name} {globals()[name]}\n" for name in _LIMITS)
    return limits + packaged.read_text("tilewright.runtime", f"native/{name}")


def library_source() -> Source:
    """The same, as it is compiled."""
    from tilewright.backends.base import Source

    return Source("tilewright_fast_path.cpp", source(), "c++")


def _build() -> _Library:
    from tilewright.arch import runnable_host_archs
    from tilewright.build import build_source

    return _Library(str(build_source(library_source(), runnable_host_archs()[-1].name).path))


def library() -> _Library | None:
    """Built and loaded at the first question; None where that fails, which is said once."""
    global _loaded
    if _loaded is not None:
        return _loaded
    now = settings.current()
    with _lock:
        if _loaded is None and now not in _failed:
            try:
                _loaded = _build()
            except TimeoutError:  # an OSError too, but of who interrupts us, as the handler of a signal does
                raise
            except (TilewrightError, OSError, AttributeError) as error:
                _failed.append(now)
                events.emit(events.Warned("fast-path", f"calls take some microseconds longer: {error}"))
        return _loaded


def checked(functions: tuple[int, int], args: int, threads: int) -> int | None:
    """Bytes of workspace that a kernel asks for, by the addresses of its check and of what says so.

    None where its check refuses the arguments, or there is no library.
    """
    return None if _loaded is None else cast("int | None", _loaded.check(*functions, args, threads))


class Form:
    """An op's operands as C knows them: `key(options, *operands)` and `call(calls, options, *scalars, *operands)`.

    Options are a tuple; operands at the end that are None may be left out.  `key` gives what a call is known by: the
    options that are neither names nor numbers, and all the rest as bytes.  `call` gives the result of the call prepared
    under that.  Both give None where Python must look, `call` [status, stage, prepared call] of a launch that failed.
    """

    __slots__ = ("_form", "address", "call", "key")

    def __init__(self, native: _Library, slots: Sequence[Slot], scalars: int) -> None:
        written = sum(1 << index for index, slot in enumerate(slots) if slot.written)
        self._form = _Form(id=next(_ids), slots=len(slots), scalars=scalars, written=written)
        self.address = ctypes.addressof(self._form)
        owner = Prepared(self.address)
        owner.keep = (native, self._form)
        self.key, self.call = native.function("key", owner), native.function("call", owner)


def form(slots: Sequence[Slot], scalars: int) -> Form | None:
    """None where there is no library, or the op has more than C was made for, which is said."""
    native = library()
    if native is None:
        return None
    if len(slots) > MOST_OPERANDS or scalars > MOST_SCALARS:
        has = f"an op with {len(slots)} operands ({slots[0].name}, ...) and {scalars} scalars"
        limit = f"{MOST_OPERANDS} operands and {MOST_SCALARS} scalars"
        events.emit(events.Warned("fast-path", f"{has} is called from Python alone: C takes {limit}"))
        return None
    for slot in slots:
        if slot.packed is not None:
            native.hold(slot.packed)
    return Form(native, slots, scalars)


class Front:
    """A public function whose calls C handles first, once there is a plan.

    From 3.12 on (and in 3.10) a call does by itself.  Python 3.11 runs a function without asking: there `call`, given
    the values of all parameters, is the answer of a call that C knows, else None, and `keep` is given the answer that
    C had then.
    """

    __slots__ = ("_operands", "call", "function", "keep")

    def __init__(self, function: Callable[..., Any], operands: Mapping[str, Any]) -> None:
        self.function, self._operands = function, operands
        self.call: Callable[..., Any] = _nothing
        self.keep: Callable[[Any], Any] = _itself

    def put(self, form: Form, slots: Sequence[Slot]) -> None:
        """Let C make the calls that were made before, from the function's arguments on.

        `operands` says of which slots a parameter's operand may be (a name, or several); None: where the parameter is
        given, Python makes the call.  All other parameters are options.
        """
        if _loaded is None:
            return
        places = {slot.name: 1 << index for index, slot in enumerate(slots)}
        code: Any = self.function.__code__
        parameters = []
        for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            operand = self._operands.get(name, ())
            role = _LEFT_OUT if operand is None else _OPERAND if operand else _OPTION
            names = (operand,) if isinstance(operand, str) else operand or ()
            parameters.append((name, role, sum(places[slot] for slot in names)))
        if len(parameters) <= MOST_PARAMETERS:
            _loaded.put_before(self, form, parameters)


def _nothing(*_values: Any) -> None:
    """Where C is called by itself, or knows no call yet."""


def _itself(answer: Any) -> Any:
    return answer


def prepare(
    plan: Plan, makers: Sequence[Maker], answer: Sequence[int], counter: Counter | None = None
) -> Prepared | None:
    """A plan as C runs it; None where it cannot (copies of operands are Python's).

    `makers` make the results that no call gives, `answer` are the slots of what a call returns, `counter` counts.
    """
    native = library()
    if native is None or plan.in_copies:
        return None
    parts = [_stage(stage) for stage in plan.stages]
    if any(part is None for part in parts):
        return None
    stages = [part for part in parts if part is not None]
    spans = _spans(plan.request.spans)
    makes = [_native_maker(maker) for maker in makers]
    call = _Call(
        stages=len(stages),
        mades=len(makes),
        answers=len(answer),
        scratch_bytes=plan.scratch_bytes,
        clear_bytes=plan.clear_bytes,
        between=plan.between_at,
        team=plan.team,
        calls=counter.address if counter is not None else None,
        used=native.now(),
    )
    keep: list[Any] = [native, tuple(stages), counter, spans]
    call.span = ctypes.addressof(spans)
    columns: tuple[tuple[str, Any, list[Any]], ...] = (
        ("stage", _Stage, [part for part, _ in stages]),
        ("made", _NativeMaker, makes),
        ("answer", _int, list(answer)),
    )
    for name, kind, values in columns:
        array = (kind * len(values))(*values)
        keep.append(array)
        setattr(call, name, ctypes.addressof(array))
    if plan.place is not HOST:
        keep.append(_on_device(call, cast("Gpu", device(plan.place))))
    prepared = Prepared(ctypes.addressof(call))
    prepared.keep, prepared.plan, prepared.call = (*keep, tuple(makes)), plan, call
    return prepared


def _spans(spans: Sequence[Span]) -> Any:
    """As C has them, one a slot."""
    array = (_Span * len(spans)).from_buffer_copy(_no_spans(len(spans)))
    for index, span in enumerate(spans):
        if span is not NO_SPAN:
            into = array[index]
            into.low, into.high, into.grain, into.twin = span.low, span.high, span.grain, span.twin
    return array


@lru_cache(maxsize=64)
def _no_spans(count: int) -> bytes:
    """Those of slots without operands, which most are."""
    array = (_Span * count)()
    for into in array:
        into.grain, into.twin = NO_SPAN.grain, NO_SPAN.twin
    return bytes(array)


def _stage(stage: Stage) -> tuple[_Stage, tuple[Any, ...]] | None:
    """A stage and what it needs to stay alive."""
    request = stage.request
    size = ctypes.sizeof(request.args)
    if size > MOST_ARGUMENT_BYTES or len(request.loop) > MOST_LOOPS:
        return None
    template = ctypes.create_string_buffer(bytes(request.args), size)
    pointers = (_Pointer * len(request.pointers))()
    for into, pointer in zip(pointers, request.pointers, strict=True):
        into.offset, into.slot, into.shift = pointer.offset, pointer.slot, pointer.shift
        for index, step in enumerate(pointer.steps):
            into.step[index] = step
    scalars = (_Scalar * len(request.scalars))(*[_Scalar(scalar.offset, scalar.index) for scalar in request.scalars])
    native_stage = _Stage(
        launch=ctypes.cast(stage.kernel.launch, _pointer),
        args=ctypes.addressof(template),
        pointer=ctypes.addressof(pointers),
        scalar=ctypes.addressof(scalars),
        bytes=size,
        pointers=len(pointers),
        scalars=len(scalars),
        scratch=stage.scratch,
        clear_bytes=stage.kernel.clear_bytes,
        loops=len(request.loop),
    )
    for index, count in enumerate(request.loop):
        native_stage.loop[index] = count
    return native_stage, (template, pointers, scalars)


def _native_maker(maker: Maker) -> _NativeMaker:
    return _NativeMaker(slot=maker.slot, make=maker.make, arguments=maker.arguments)


def _on_device(call: _Call, gpu: Gpu) -> Any:
    """Fill in how to know whether the device is current, its streams and its workspaces."""
    current, call.expected, capturing = gpu.questions()
    call.current, call.capturing = ctypes.cast(current, _pointer), ctypes.cast(capturing, _pointer)
    call.workspaces, call.stream = gpu.workspaces, gpu.stream
    return gpu, call.stream
